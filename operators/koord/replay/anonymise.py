"""A snapshot without the names of its cluster, that is planned in the same way.

Names of all kinds, values of labels, and keys of labels that are not well known are replaced, each
text by the same text wherever it is, and in the same order (``order_map``). Amounts and names of
resources stay; times are moved by whole weeks, all by the same; texts for people are dropped. What
has stayed is told, so that whoever gives the file away sees it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from koord.core.model.nodes import Node
from koord.core.model.pods import Pod, PodShape
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.quota.hooks import Hooks
from koord.domains.registry import KINDS
from koord.replay.decisions import UnitDecision, bare, compare, decide
from koord.replay.order_map import NoOrder, OrderMap, find_words
from koord.replay.recorded import RecordedCluster
from koord.replay.snapshot_file import SnapshotFile
from koord.replay.vocabulary import find_vocabulary

WELL_KNOWN: Final = ("kubernetes.io", "k8s.io", "koordinator.sh", "nvidia.com")
"""Domains of keys that stay."""
_READ_VALUES: Final = ("node.koordinator.sh/", "batch.kubernetes.io/job-completion-index")
"""Labels of which planning reads the values: models of GPUs, policies, indexes."""
_FOR_PEOPLE: Final = frozenset(
    {(Pod, "scheduler_message"), (Pod, "rejection"), (Pod, "resource_version")}
    | {(Node, "resource_version")}
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_WEEK: Final = 7 * 24 * 3600
_FIRST_TIME: Final = 1e9
"""Fractional numbers from here on are times, in seconds since the epoch; amounts are whole."""
_MOVED_TO: Final = 1_600_000_000
_BOUNDS: Final = frozenset({SelectorOperator.GT, SelectorOperator.LT})


@dataclass(frozen=True, slots=True)
class Anonymised:
    """A snapshot without names, what has stayed of texts, and how names were replaced."""

    snapshot: SnapshotFile
    kept: tuple[str, ...]
    names: frozenset[str]
    """The texts that were replaced."""
    replace_text: Callable[[str], str]


class CannotAnonymise(ValueError):  # noqa: N818 - what it says is what is wrong
    """Without names, something else would be decided."""


def anonymise_checked(snapshot: SnapshotFile, make_hooks: Callable[[], Hooks]) -> Anonymised:
    """Return a snapshot without names that is planned as before. Raises ``CannotAnonymise``."""
    try:
        anonymised = anonymise(snapshot)
    except NoOrder as error:
        raise CannotAnonymise(str(error)) from error
    before, after = (
        decide(each.cluster, each.cluster.make_state(make_hooks()))
        for each in (snapshot, anonymised.snapshot)
    )
    expected = [_replace_decision(each, anonymised.replace_text) for each in before]
    if [(each.nodes, each.reason) for each in expected] != [
        (each.nodes, each.reason) for each in after
    ]:
        raise CannotAnonymise(
            "without its names this snapshot would be planned differently, so it says nothing; "
            "please report that"
        )
    if any(compare(snapshot.decisions, before)):
        return anonymised  # what was recorded is what matters then
    # The names of gangs that owners make have digests of their uids.
    return replace(
        anonymised, snapshot=replace(anonymised.snapshot, decisions=tuple(map(bare, after)))
    )


def anonymise(snapshot: SnapshotFile) -> Anonymised:
    """Return a snapshot without names. Raises ``NoOrder`` if that is not possible."""
    cluster = snapshot.cluster
    # Names of kinds and hooks are no names of the cluster.
    around = replace(cluster, values={}, gaps=(), hooks=())
    seen = _Seen()
    seen.add((around, *cluster.values.values()))
    kept = {text for text in seen.texts if seen.stays(text)}
    words = find_words(kept)
    pods = {text for pod in seen.pods for text in (pod.name, pod.key)}
    general, of_pods = _make_maps(seen, words)

    def replace_text(text: str) -> str:
        if text in kept or not text:
            return text
        if text not in pods:
            return general.replace(text)
        namespace, slash, name = text.rpartition("/")
        return f"{general.replace(namespace)}{slash}{of_pods.replace(name)}"

    weeks = round((cluster.now - _MOVED_TO) / _WEEK) if cluster.now >= _FIRST_TIME else 0
    change = _Change(replace_text, float(weeks * _WEEK))
    moved = replace(
        change.make(around),
        values={name: change.make(objects) for name, objects in cluster.values.items()},
        gaps=cluster.gaps,
        hooks=cluster.hooks,
    )
    decisions = tuple(_replace_decision(each, replace_text) for each in snapshot.decisions)
    made = replace(
        snapshot,
        cluster=moved,
        decisions=decisions,
        unit=replace_text(snapshot.unit),
        records=(),
        is_anonymised=True,
    )
    names = frozenset(seen.texts | pods) - kept
    return Anonymised(made, tuple(sorted(kept | _find_parts(cluster))), names, replace_text)


def _find_parts(cluster: RecordedCluster) -> set[str]:
    """Return what stays because the replay needs it: hooks, and kinds that a site has added."""
    own = {kind.name for kind in KINDS}
    kinds = {*cluster.values, *(gap.name for gap in cluster.gaps)}
    return {*cluster.hooks, *(kinds - own)}


def _make_maps(seen: "_Seen", words: set[str]) -> tuple[OrderMap, OrderMap]:
    names = {pod.name for pod in seen.pods}
    return OrderMap(seen.texts, words), OrderMap(names, words, keeps_numbers=True)


def _replace_decision(decision: UnitDecision, replace_text: Callable[[str], str]) -> UnitDecision:
    """Return a decision without names. The id of a plan is made of them, and numbers name some."""
    return UnitDecision(
        names=tuple(map(replace_text, decision.names)),
        nodes=tuple(sorted((replace_text(pod), replace_text(at)) for pod, at in decision.nodes)),
        reason=decision.reason,
    )


class _Seen:
    """All texts of a cluster, and which of them are no names."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.pods: list[Pod] = []
        self.resources: set[str] = set()
        self._read: set[str] = set()
        """Values of labels that planning reads."""
        self._compared: set[str] = set()
        """Keys of labels whose values are compared as numbers."""
        self._labels: list[Mapping[str, str]] = []
        self._met: set[int] = set()

    def add(self, value: object) -> None:
        self._add(value)
        for labels in self._labels:
            for key, text in labels.items():
                is_number = key in self._compared and _INTEGER.fullmatch(text)
                if is_number or key.startswith(_READ_VALUES):
                    self._read.add(text)

    def stays(self, text: str) -> bool:
        is_meant = text in self.resources or text in self._read or is_well_known(text)
        return is_meant or text in find_vocabulary()

    def _add(self, value: object) -> None:
        if isinstance(value, Enum):
            return
        if isinstance(value, str):
            self.texts.add(value)
        elif isinstance(value, Mapping):
            for part in (*value.keys(), *value.values()):
                self._add(part)
        elif isinstance(value, tuple | list | set | frozenset):
            for part in value:
                self._add(part)
        elif is_dataclass(value) and id(value) not in self._met:
            self._met.add(id(value))
            self._note(value)
            for name in _names_of(type(value)):
                if (type(value), name) not in _FOR_PEOPLE:
                    self._add(getattr(value, name))

    def _note(self, value: object) -> None:
        match value:
            case Pod():
                self.pods.append(value)
                self._labels.append(value.profile.labels)
            case Node():
                self.resources |= value.allocatable.keys() | value.capacity.keys()
                self._labels.append(value.labels)
            case PodShape():
                self.resources |= {name for name, _ in value.requests}
            case Requirement() if value.operator in _BOUNDS:
                self._compared.add(value.key)
                self._read |= {text for text in value.values if _INTEGER.fullmatch(text)}


class _Change:
    """Makes values of others: texts are replaced, and times are moved."""

    def __init__(self, replace_text: Callable[[str], str], seconds: float) -> None:
        self._replace_text = replace_text
        self._seconds = seconds
        self._made: dict[int, tuple[object, object]] = {}
        """Id of a value -> the value, and what was made of it: shared parts stay shared."""

    def move(self, moment: float) -> float:
        return moment - self._seconds if moment >= _FIRST_TIME else moment

    def make(self, value: Any) -> Any:
        if isinstance(value, bool | int | Enum) or value is None:
            return value
        if isinstance(value, str):
            return self._replace_text(value)
        if isinstance(value, float):
            return self.move(value)
        return self._make_collection(value)

    def _make_collection(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self.make(key): self.make(part) for key, part in value.items()}
        if is_dataclass(value):
            return self._make_shared(value)
        if hasattr(value, "_fields"):
            return type(value)(*map(self.make, value))
        return _SAME[type(value)](map(self.make, value))

    def _make_shared(self, value: Any) -> Any:
        made = self._made.get(id(value))
        if made is None:
            kind = type(value)
            parts = {
                name: type(getattr(value, name))()
                if (kind, name) in _FOR_PEOPLE
                else self.make(getattr(value, name))
                for name in _names_of(kind)
            }
            made = self._made[id(value)] = (value, kind(**parts))
        return made[1]


_SAME: Final[Mapping[type, Callable[[Iterable[Any]], Any]]] = {
    tuple: tuple,
    list: list,
    set: frozenset,
    frozenset: frozenset,
}


def is_well_known(key: str) -> bool:
    """Whether a key is one of a domain that everybody knows."""
    domain = key.rpartition("/")[0]
    return domain in WELL_KNOWN or domain.endswith(tuple(f".{ending}" for ending in WELL_KNOWN))


def _names_of(kind: Any) -> Iterator[str]:
    return (each.name for each in fields(kind) if each.init and each.name[0] != "_")
