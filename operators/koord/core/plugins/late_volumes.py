"""Claims that are bound with their first pod: which nodes may serve them, as far as is known.

kube-scheduler takes an existing volume of the claim's class, or lets one be made where the topology
of the class allows it. Which volume it takes, and whether one can be made, is known only
afterwards. So what is found here rules nodes out, and promises nothing about the others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.model.selectors import (
    LabelSelector,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    is_selected,
)

Terms: TypeAlias = tuple[SelectorTerm, ...]

FILESYSTEM: Final = "Filesystem"


@dataclass(frozen=True, slots=True)
class WantedVolume:
    """What a claim asks of an existing volume."""

    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    selector: LabelSelector = ()


NOTHING_WANTED: Final = WantedVolume()


@dataclass(frozen=True, slots=True)
class VolumeOffer:
    """What a volume offers that no claim has yet; ``claim`` is the one that it is kept for."""

    storage_class: str = ""
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    labels: tuple[tuple[str, str], ...] = ()
    claim: str = ""

    def serves(self, wanted: WantedVolume) -> bool:
        return (
            self.size >= wanted.size
            and self.volume_mode == wanted.volume_mode
            and set(wanted.access_modes) <= set(self.access_modes)
            and is_selected(dict(self.labels), wanted.selector)
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass; ``is_delayed``: its claims are bound when their first pod is placed.

    ``terms`` say where volumes can be made, None: anywhere. ``is_static``: none is made.
    ``provisioner`` makes them.
    """

    name: str
    is_delayed: bool = False
    is_static: bool = False
    terms: Terms | None = None
    provisioner: str = ""


class FreeVolumes:
    """The volumes that no claim has, with the node selector terms that say where they are."""

    def __init__(self) -> None:
        self._offers: dict[str, tuple[VolumeOffer, Terms | None]] = {}
        """Name of a volume -> what it offers, and where."""
        self._names: dict[tuple[str, str], set[str]] = {}
        """Class, and the claim that volumes are kept for -> their names."""
        self._terms_by_class: dict[str, dict[WantedVolume, Terms | None]] = {}

    def upsert(self, name: str, offer: VolumeOffer | None, terms: Terms | None) -> None:
        self.remove(name)
        if offer is not None:
            self._offers[name] = offer, terms
            self._names.setdefault((offer.storage_class, offer.claim), set()).add(name)
            self._terms_by_class.pop(offer.storage_class, None)

    def remove(self, name: str) -> None:
        offer, _ = self._offers.pop(name, (None, None))
        if offer is None:
            return
        key = offer.storage_class, offer.claim
        self._names[key].discard(name)
        if not self._names[key]:
            del self._names[key]
        self._terms_by_class.pop(offer.storage_class, None)

    def class_of(self, name: str) -> str:
        """Return the class of a free volume; empty if it is not free."""
        offer, _ = self._offers.get(name, (None, None))
        return "" if offer is None else offer.storage_class

    def is_held_for(self, key: str, wanted: WantedVolume, storage_class: str) -> bool:
        """Whether a volume of the class is kept for a claim, and serves it."""
        names = self._names.get((storage_class, key), ())
        return any(self._offers[name][0].serves(wanted) for name in names)

    def terms_for(
        self, key: str, wanted: WantedVolume, storage_class: StorageClass
    ) -> Terms | None:
        """Return where a claim may be served, as ORed terms; None: perhaps anywhere."""
        kept = self._names.get((storage_class.name, key), ())
        if kept:
            return _joined(self._terms_of(kept, wanted))
        if not storage_class.is_static and storage_class.terms is None:
            return None
        terms_by_wanted = self._terms_by_class.setdefault(storage_class.name, {})
        if wanted not in terms_by_wanted:
            terms_by_wanted[wanted] = _joined(
                self._terms_of(self._names.get((storage_class.name, ""), ()), wanted)
            )
        existing, made = (
            terms_by_wanted[wanted],
            () if storage_class.is_static else storage_class.terms,
        )
        return None if existing is None else _joined((existing, made))

    def _terms_of(self, names: Iterable[str], wanted: WantedVolume) -> Iterator[Terms | None]:
        for name in names:
            offer, terms = self._offers[name]
            if offer.serves(wanted):
                yield terms


def _joined(parts: Iterable[Terms | None]) -> Terms | None:
    """Return terms of which one must hold; those about one label are one. None if any part is."""
    values: dict[str, set[str]] = {}
    unmerged: set[SelectorTerm] = set()
    for terms in parts:
        if terms is None:
            return None
        for term in terms:
            only = _one_label(term)
            if only is None:
                unmerged.add(term)
            else:
                values.setdefault(only.key, set()).update(only.values)
    merged = (
        SelectorTerm((Requirement(key, SelectorOperator.IN, tuple(sorted(value))),))
        for key, value in values.items()
    )
    return tuple(sorted((*unmerged, *merged), key=repr))


def _one_label(term: SelectorTerm) -> Requirement | None:
    if term.fields or len(term.expressions) != 1:
        return None
    (only,) = term.expressions
    return only if only.operator is SelectorOperator.IN else None
