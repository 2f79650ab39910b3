"""What an asker may learn by name: redaction of values, before texts are made of them.

An asker learns by name only what the same rights could list. Amounts and positions are no secret:
without them no answer is of use. A name that is not the asker's to see becomes a ``HiddenName``:
null for programs, and for people words that name nobody. Nothing is ever replaced in texts.

Which fields hold names is a closed table: a test wants a row for every field of a reason.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, Final, TypeVar, cast

from koord.answers.encoding import encode

T = TypeVar("T")

_RESERVATION: Final = "reservation "
"""Begins the name of a reservation where units are named; it is in no namespace."""


class HiddenName(str):
    """Words in the place of a name that is not to be seen."""

    __slots__ = ()


@encode.register
def _(_name: HiddenName) -> None:
    return None


class NameKind(Enum):
    """What the text of a field names."""

    UNIT = auto()
    """A pod or gang as ``namespace/name``, perhaps after its kind; or a namespace."""
    QUOTA = auto()
    """Another quota than the asker's own."""
    SEVERAL = auto()
    """Words about several units, written already."""
    NODE = auto()
    """Nodes, other than those that the asker's own pods are on."""
    RESERVATION = auto()
    """Reservations, which are in no namespace."""
    OF_OTHERS = auto()
    """Words that may quote others: they are left out."""


ONE_UNIT: Final = HiddenName("a gang in another namespace")
SEVERAL_UNITS: Final = HiddenName("gangs in other namespaces")
_HIDDEN: Final[Mapping[NameKind, str]] = {
    NameKind.UNIT: ONE_UNIT,
    NameKind.QUOTA: HiddenName("another quota"),
    NameKind.SEVERAL: SEVERAL_UNITS,
    NameKind.NODE: HiddenName("a node"),
    NameKind.RESERVATION: HiddenName("a reservation"),
    NameKind.OF_OTHERS: "",
}

NAMES: Final[Mapping[str, NameKind]] = {
    "Borrower.quota": NameKind.QUOTA,
    "GuaranteeKept.quota": NameKind.QUOTA,
    "InvalidQuota.other": NameKind.QUOTA,
    "Loan.borrower": NameKind.QUOTA,
    "Loan.lender": NameKind.QUOTA,
    "NodeOffer.detail": NameKind.OF_OTHERS,
    "Overview.over": NameKind.QUOTA,
    "QuotaUser.quota": NameKind.QUOTA,
    "Summary.parent": NameKind.QUOTA,
    "WaitingUnit.quota": NameKind.QUOTA,
    "PodUsage.quota": NameKind.QUOTA,
    "ShareChange.quota": NameKind.QUOTA,
    "ClosedReservation.detail": NameKind.OF_OTHERS,
    "QueueStanding.lacks": NameKind.OF_OTHERS,
    "QueueStanding.problem": NameKind.OF_OTHERS,
    "QueueStanding.queue": NameKind.QUOTA,
    "QueueStanding.reported": NameKind.OF_OTHERS,
    "WaitingForPreemption.victims": NameKind.SEVERAL,
    **dict.fromkeys(
        (
            "Closed.nodes",
            "Elsewhere.held",
            "Elsewhere.short",
            "NodeCauseCount.examples",
            "NodeLocked.node",
            "NodeOffer.node",
            "NodesComing.nodes",
            "ReservationUsage.node",
        ),
        NameKind.NODE,
    ),
    **dict.fromkeys(
        (
            "AwaitedEnd.name",
            "BehindHead.head",
            "Borrower.users",
            "Elsewhere.holders",
            "Elsewhere.users",
            "Episode.by",
            "EvictedUnit.ref",
            "GangCount.gang",
            "GroupClaims.gang",
            "GroupClaims.pod",
            "Hanging.name",
            "HealthFinding.units",
            "HeldForReplacements.gangs",
            "InconsistentGroup.gang",
            "InconsistentGroup.silent",
            "InsufficientNodes.first",
            "KueueAssignmentBlocked.pod",
            "MemberOnFailedNode.gone",
            "MissingGang.gang",
            "MissingGang.missing",
            "MissingPodGroup.gang",
            "MixedGates.gang",
            "MixedGates.pod",
            "MixedSchedulers.gang",
            "MixedSchedulers.pod",
            "NamespaceBackoff.namespace",
            "NativeQuorumMissing.gang",
            "NativeQuorumMissing.pod",
            "NodeLocked.holder",
            "OnlySurplus.gang",
            "PodGroupsNotServed.gang",
            "PodReason.pod",
            "PodUsage.pod",
            "PodUsage.pod_group",
            "PriorityDiffers.gang",
            "PriorityDiffers.pod",
            "PromiseMove.by",
            "QueueEntry.names",
            "QuotaAmbiguous.namespace",
            "QuotaNotAllowed.namespace",
            "QuotaUnknown.namespace",
            "QuotaUser.name",
            "ReservationUsage.by",
            "RoomBackoff.namespace",
            "TimeLimitReached.pod",
            "TimeLimitTooLong.pod",
            "TooExpensive.pod",
            "TooLarge.subject",
            "UnmetEntitlement.leaving",
            "UnmetEntitlement.protected",
            "WaitingUnit.name",
            "WaitsForTermination.pods",
            "WouldDelay.head",
        ),
        NameKind.UNIT,
    ),
}
"""``Class.field`` -> what it names; also of subclasses."""

Hide = Callable[[NameKind, str], str]
"""Returns a name as it is, or what stands in its place."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What an asker may list: pods in ``namespaces`` (None: everywhere), quotas, nodes.

    Without all quotas there may be those in ``quota_namespaces``, and those of the asker's pods:
    ``quota_names`` are both, where they were looked up. Nodes come with their devices. ``units``
    are pods and gangs (``namespace/name``) that the asker may get by name where she may not list.
    ``events`` is about the one object of a question. Without ``amounts`` those of others and all
    positions are hidden, too.
    """

    namespaces: frozenset[str] | None = None
    quotas: bool = True
    quota_namespaces: frozenset[str] = frozenset()
    quota_names: frozenset[str] = frozenset()
    nodes: bool = True
    reservations: bool = True
    units: frozenset[str] = frozenset()
    events: bool = True
    amounts: bool = True
    is_complete: bool = True
    """Whether it was asked of all namespaces."""

    @property
    def is_whole(self) -> bool:
        sees_kinds = self.quotas and self.nodes and self.reservations and self.events
        return self.namespaces is None and sees_kinds and self.amounts

    @property
    def digest(self) -> str:
        """Short text that differs between sights; empty for everything."""
        if self.is_whole:
            return ""
        names = ["*"] if self.namespaces is None else sorted(self.namespaces)
        kinds = [self.quotas, self.nodes, self.reservations, self.events, self.is_complete]
        kinds.append(self.amounts)
        parts = [names, sorted(self.quota_namespaces), sorted(self.units), kinds]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def sees_unit(self, namespace: str, name: str) -> bool:
        """Whether a pod or gang is to be seen."""
        return self.sees(namespace) or f"{namespace}/{name}" in self.units

    def sees_quota(self, name: str) -> bool:
        """Whether a quota is to be seen, given by its name."""
        return self.quotas or name in self.quota_names

    def hide(self, kind: NameKind, text: str) -> str:
        """Return a name, or what stands in its place if it is not to be seen."""
        if kind is NameKind.QUOTA:
            return text if self.sees_quota(text) or not text else _HIDDEN[kind]
        if kind is NameKind.NODE:
            return text if self.nodes else _HIDDEN[kind]
        if kind is NameKind.RESERVATION or text.startswith(_RESERVATION):
            return text if self.reservations or not text else _HIDDEN[NameKind.RESERVATION]
        if self.namespaces is None or not text:
            return text
        is_seen = self.sees(namespace_of(text)) or text.rpartition(" ")[2] in self.units
        return text if kind is NameKind.UNIT and is_seen else _HIDDEN[kind]


EVERYTHING: Final = Sight()


def namespace_of(name: str) -> str:
    """Return the namespace of ``team-a/x`` and of ``gang team-a/x``."""
    return name.partition("/")[0].rpartition(" ")[2]


def redact(value: T, hide: Hide) -> T:
    """Return a value of an answer in which names are hidden."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return cast("T", _redact_all(value, hide))
    changed = {}
    for name, kind in _fields_of(type(value)):
        before = getattr(value, name)
        after = _redact_all(before, hide) if kind is None else _hide_names(before, kind, hide)
        if after is not before:
            changed[name] = after
    return dataclasses.replace(value, **changed) if changed else value


@cache
def _fields_of(owner: type) -> tuple[tuple[str, NameKind | None], ...]:
    """Return the fields of a dataclass, and what each names: there are thousands of its values."""
    names = (field.name for field in dataclasses.fields(owner))
    return tuple((name, kind_of(owner, name)) for name in names)


def kind_of(owner: type, field: str) -> NameKind | None:
    """Return what a field of a class names; None: nothing that is hidden."""
    rows = (f"{base.__name__}.{field}" for base in owner.__mro__)
    return next((NAMES[row] for row in rows if row in NAMES), None)


def _redact_all(value: Any, hide: Hide) -> Any:
    if isinstance(value, tuple):
        after = [redact(element, hide) for element in value]
        is_same = all(new is old for new, old in zip(after, value, strict=True))
        return value if is_same else tuple(after)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return redact(value, hide)
    return value


def _hide_names(value: Any, kind: NameKind, hide: Hide) -> Any:
    if isinstance(value, str):
        return hide(kind, value)
    if isinstance(value, tuple):
        hidden = tuple(hide(kind, name) for name in value)
        return value if hidden == value else tuple(_put_together(hidden))
    return value


def _put_together(names: tuple[str, ...]) -> Iterator[str]:
    """Yield names; those of several units that are hidden are one, where the first of them was."""
    hidden = [name for name in names if name == ONE_UNIT and isinstance(name, HiddenName)]
    is_told = False
    for name in names:
        if not isinstance(name, HiddenName) or len(hidden) < 2:
            yield name
        elif not is_told:
            is_told = True
            yield SEVERAL_UNITS
