"""Values of reservations: what is held, for whom, and what pods say about it.

All values are immutable. Who matches, how much fits and when one expires is decided elsewhere.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from koord.core.model.nodes import Taint
from koord.core.model.pods import AnnotationWrite, Pod, Toleration
from koord.core.model.selectors import LabelSelector, SelectorTerm
from koord.core.model.units import PODS, Amounts


@dataclass(frozen=True, slots=True)
class IgnoredResources:
    """Resources by name, and by group: what is before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        if name in self.names:
            return True
        group, slash, _ = name.partition("/")
        return bool(slash and group) and group in self.groups


NOTHING_IGNORED: Final = IgnoredResources()


NAME: Final = "reservation"
POD_PREFIX: Final = "reservation:"
"""Of the names of the pods that stand for reservations; no other pod has such a name."""
ALLOCATED: Final = "scheduling.koordinator.sh/reservation-allocated"
EXACT_MATCH: Final = "scheduling.koordinator.sh/exact-match-reservation"
PRE_ALLOCATABLE: Final = "pod.koordinator.sh/is-pre-allocatable"
DAY: Final = 24 * 3600.0
PLACEHOLDERS: Final = "koord-placeholders"
"""The namespace of placeholders: nobody but the operators creates pods there."""


class ReservationPhase(StrEnum):
    """``status.phase``."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class AllocatePolicy(StrEnum):
    """Whether pods may use more than is reserved: only ``RESTRICTED`` forbids it."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


class HoldProtection(StrEnum):
    """How room is kept from pods that others place: not at all, or by pods that request as much."""

    LEDGER = "Ledger"
    PLACEHOLDER = "Placeholder"


@dataclass(frozen=True, slots=True)
class ObjectOwner:
    """One pod; empty fields match any."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class ControllerOwner:
    """Pods with such an owner reference; empty fields match any."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    kind: str = ""
    api_version: str = ""
    is_controller: bool | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may use a reservation; all that is set must match. ``selector`` None: not set."""

    pod: ObjectOwner | None = None
    controller: ControllerOwner | None = None
    selector: LabelSelector = None


@dataclass(frozen=True, slots=True)
class ReservationHints:
    """What a pod says about reservations.

    With ``has_affinity`` it must use one. ``exact`` are resources of which it must request as much
    as is reserved. ``problems`` is what cannot be read: field and what is wrong.
    """

    has_affinity: bool = False
    name: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    exact: tuple[str, ...] = ()
    is_ignoring: bool = False
    rank: int = 0
    """Of pods that say they may be taken into reservations, a higher one is first."""
    problems: tuple[tuple[str, str], ...] = ()


NO_HINTS: Final = ReservationHints()


@dataclass(frozen=True, slots=True)
class PreAllocation:
    """Which running pods a reservation takes in, and how many.

    ``is_clusterwide``: all that say so; otherwise those that own the reservation. ``is_required``:
    at least one. ``prefers_none``: none, where it fits anyway.
    """

    is_clusterwide: bool = False
    takes_many: bool = False
    is_required: bool = False
    prefers_none: bool = False


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """One condition; times are seconds since the epoch."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    probed: float = 0.0
    changed: float = 0.0


@dataclass(frozen=True, slots=True)
class ReservationState:
    """What the status of a Reservation says."""

    phase: str = ReservationPhase.PENDING
    node: str = ""
    allocatable: Amounts = field(default_factory=dict)
    conditions: tuple[StatusCondition, ...] = ()

    @property
    def is_available(self) -> bool:
        return self.phase == ReservationPhase.AVAILABLE and bool(self.node)

    @property
    def is_active(self) -> bool:
        """Whether it holds room."""
        return self.phase in {ReservationPhase.AVAILABLE, ReservationPhase.WAITING} and bool(
            self.node
        )

    @property
    def is_over(self) -> bool:
        return self.phase in {ReservationPhase.SUCCEEDED, ReservationPhase.FAILED}

    @property
    def is_expired(self) -> bool:
        ready = self.condition("Ready")
        is_marked = ready is not None and (ready.status, ready.reason) == ("False", "Expired")
        return self.phase == ReservationPhase.FAILED and is_marked

    def condition(self, kind: str) -> StatusCondition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)


_NOT_RESTRICTED: Final = (
    "spec.preAllocation",
    "needs allocatePolicy Restricted",
)


@dataclass(frozen=True, slots=True)
class ReservationInfo:
    """A Reservation. ``pod`` is what is planned for it: its template, as a waiting pod.

    ``ttl`` None: it does not expire, whatever ``expires`` says. ``namespace`` limits whom label
    selectors of owners select; empty: nobody. ``problems`` is what cannot be read: field and what
    is wrong; it then matches no pod.
    """

    name: str
    uid: str
    pod: Pod | None
    owners: tuple[Owner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    status: ReservationState = field(default_factory=ReservationState)
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    options: tuple[str, ...] = ()
    """The resources that ``RESTRICTED`` is about; none: all."""
    taints: tuple[Taint, ...] = ()
    order: int = 0
    namespace: str = ""
    pinned_to: str = ""
    is_once: bool = True
    is_unschedulable: bool = False
    """Takes no new pods: cordoned, or being deleted."""
    priority_class: str = ""
    """The PriorityClass that its template names; the priority of ``pod`` is what it claims."""
    ttl: float | None = DAY
    expires: float | None = None
    created: float = 0.0
    inner: Amounts = field(default_factory=dict)
    """The part that no owner may use."""
    resize: Amounts = field(default_factory=dict)
    pre_allocation: PreAllocation | None = None
    """Running pods that it takes in; None: it takes in none."""
    protection: HoldProtection = HoldProtection.LEDGER
    problems: tuple[tuple[str, str], ...] = ()
    generation: int = field(default=0, compare=False)

    def requests(self) -> dict[str, int]:
        """Return what is to be reserved: the template's requests, resized."""
        requests = dict(self.pod.shape.requests) if self.pod is not None else {}
        requests.pop(PODS, None)
        return {**requests, **self.resize}

    def find_problems(self) -> tuple[tuple[str, str], ...]:
        """Return what keeps it from being placed: field and what is wrong."""
        if self.pre_allocation is not None and self.policy is not AllocatePolicy.RESTRICTED:
            return (*self.problems, _NOT_RESTRICTED)
        if self.problems or any(self.requests().values()):
            return self.problems
        return (("spec.template.spec.containers", "must request some resource to reserve"),)

    def is_matchable(self, pods: int) -> bool:
        """Whether pods may use it; ``pods`` use it already."""
        return self.status.is_available and not self.problems and not (self.is_once and pods)


@dataclass(frozen=True, slots=True)
class ReservationUse:
    """The reservation that a pod (uid) uses."""

    pod: str
    name: str
    uid: str

    @property
    def hold_owner(self) -> str:
        return self.uid

    def writes(self) -> Iterable[AnnotationWrite]:
        text = json.dumps({"name": self.name, "uid": self.uid}, separators=(",", ":"))
        yield AnnotationWrite(self.pod, ALLOCATED, text, is_record=True)


@dataclass(frozen=True, slots=True)
class PreAllocated:
    """The running pods, uid and key, that a reservation has taken in."""

    name: str
    uid: str
    pods: tuple[tuple[str, str], ...]

    def writes(self) -> Iterable[AnnotationWrite]:
        for uid, key in self.pods:
            for write in ReservationUse(uid, self.name, self.uid).writes():
                yield replace(write, of=key)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A pod that holds room on a node, for a reservation (uid).

    Without a reservation it is a guard: it requests nothing, and keeps the pods of all other
    schedulers off its node while placeholders there are replaced.
    """

    uid: str
    name: str
    node: str
    reservation: str
    requests: Amounts
    holds: bool = True
    """Neither terminating nor terminal."""


def restricted_names(reserved: Iterable[str], options: Iterable[str]) -> tuple[str, ...]:
    """Return the reserved resources that ``RESTRICTED`` is about: all unless some are named."""
    names, wanted = tuple(reserved), frozenset(options)
    return tuple(name for name in names if name in wanted) or names
