"""Why nobody is preempted for a waiting unit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from koord.core.model.patience import Hanging, tell_hanging
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason, Reason
from koord.core.model.text import cut
from koord.core.model.units import format_amount


class Protection(StrEnum):
    """Why a running pod of lower priority is not evicted."""

    LABEL = "Label"
    """Labelled ``disable-preemptible: "true"`` with the right to it, or ``preemptible: "false"``
    within a guarantee."""
    CRITICAL = "Critical"
    """Of a system priority."""
    FOREIGN = "Foreign"
    """Placed by another scheduler, which would place it again."""
    YOUNG = "Young"
    """Runs for less than ``minRuntime``."""
    STARTING = "Starting"
    """Assigned to its node, but not bound yet."""
    EXEMPT = "Exempt"
    """Evicting it was refused lately."""
    OFTEN = "Often"
    """Its gang was preempted ``maxPerDay`` times within a day."""
    QUOTA = "Quota"
    """Its quota is within its guarantee."""
    GANG = "Gang"
    """Its gang needs it, and another member may not be evicted."""
    USED = "Used"
    """A reservation that pods use: its room was promised to them."""
    BUDGET = "Budget"
    """A PodDisruptionBudget does not allow it."""
    OWNERLESS = "Ownerless"
    """No controller would create it again."""
    DAEMON = "Daemon"
    """Created for its node."""
    RESERVED = "Reserved"
    """Says that it has to use a reservation."""
    STORAGE = "LocalStorage"
    """Would lose an emptyDir or hostPath volume."""
    COST = "EvictionCost"
    """Its eviction cost says that it never moves."""
    REPLICAS = "ExpectedReplicas"
    """None of its workload would remain meanwhile."""
    SETTINGS = "Settings"
    """The settings ``migration`` leave it out."""


_WHY: Final[Mapping[Protection, str]] = {
    Protection.LABEL: "labelled as not preemptible",
    Protection.CRITICAL: "of a system-critical priority",
    Protection.FOREIGN: "placed by other schedulers",
    Protection.YOUNG: "within their minimum runtime",
    Protection.STARTING: "about to start",
    Protection.EXEMPT: "exempt for now",
    Protection.OFTEN: "members of gangs that were preempted as often as allowed",
    Protection.QUOTA: "that their quotas keep for what they are guaranteed",
    Protection.GANG: "members of gangs that cannot be evicted as a whole",
    Protection.USED: "in reservations that pods use",
    Protection.BUDGET: "protected by PodDisruptionBudgets",
    Protection.OWNERLESS: "without a controller that would create them again",
    Protection.DAEMON: "created for their nodes",
    Protection.RESERVED: "that have to use a reservation",
    Protection.STORAGE: "with volumes on their nodes (emptyDir, hostPath)",
    Protection.COST: "whose eviction cost says never",
    Protection.REPLICAS: "of whose workloads none would remain meanwhile",
    Protection.SETTINGS: "that the settings of migration leave out",
}


def tell_protection(why: Protection) -> str:
    """Return the words to put behind how much is protected."""
    return _WHY[why]


Counts = tuple[tuple[Protection, int], ...]


def _write(protected: Iterable[tuple[Protection, int]]) -> list[str]:
    return [f"{count} {_WHY[why]}" for why, count in protected]


@dataclass(frozen=True, slots=True)
class PreemptionNever(PodReason):
    """A member of the unit must not preempt."""

    code: ClassVar = "PreemptionNever"
    reason_class: ClassVar = ReasonClass.ROOM
    meaning: ClassVar = (
        "a pod of the unit has `preemptionPolicy: Never`; or a Reservation names no PriorityClass, "
        "one that does not preempt, or takes in running pods"
    )
    way_out: ClassVar = "another PriorityClass"
    says: ClassVar = (
        "{pod} preempts nobody: {is_reservation:?only a reservation does whose template names a "
        "PriorityClass that preempts, and that takes in no running pods."
        "|its preemptionPolicy is Never}"
    )
    quotes: ClassVar = "{is_reservation:?|not eligible due to preemptionPolicy=Never.}"
    is_reservation: bool = False


@dataclass(frozen=True, slots=True)
class NobodyLower(Reason):
    """No running pod has a lower priority than every pod of the unit."""

    code: ClassVar = "NobodyLower"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "room, or a higher priority"
    says: ClassVar = "none of {running:# running pod} has a priority below {priority}"
    quotes: ClassVar = "No preemption victims found for incoming pod"
    priority: int
    running: int


@dataclass(frozen=True, slots=True)
class GuaranteeKept:
    """Pods that stay because their quota would have less of a resource than it is guaranteed.

    ``least`` is what the smallest of them uses, or of their gangs: these go as a whole.
    """

    quota: str
    resource: str
    used: int
    guaranteed: int
    least: int
    pods: int

    def text(self) -> str:
        used, guaranteed, beyond, least = (
            format_amount(self.resource, amount)
            for amount in (self.used, self.guaranteed, self.used - self.guaranteed, self.least)
        )
        whose = f"{self.pods} of quota {self.quota}, which uses {used} {self.resource}"
        if self.used <= self.guaranteed:
            return f"{whose} and is guaranteed {guaranteed}"
        return (
            f"{whose}, {beyond} more than the {guaranteed} that it is guaranteed, in pods and "
            f"gangs of {least} or more"
        )


@dataclass(frozen=True, slots=True)
class VictimsProtected(Reason):
    """There are pods of lower priority, and none may be evicted: how many for which reason.

    ``kept`` says how much the quotas use that keep some of them.
    """

    code: ClassVar = "VictimsProtected"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "the list above"
    says: ClassVar = "no pod with a priority below {priority} may be evicted: {_whys:list}"
    priority: int
    protected: Counts
    kept: tuple[GuaranteeKept, ...] = ()

    @property
    def _whys(self) -> list[str]:
        pods_of_quotas = sum(guarantee.pods for guarantee in self.kept)
        counts = [
            (why, max(0, count - pods_of_quotas) if why is Protection.QUOTA else count)
            for why, count in self.protected
        ]
        return [
            *_write(pair for pair in counts if pair[1]),
            *(guarantee.text() for guarantee in self.kept),
        ]


class NotHelpful(Reason):
    """Base of the reasons that making way does not help: what is in the way then, who stays."""

    __slots__ = ()
    reason: Reason
    """Why the unit does not fit then either."""
    protected: Counts

    @property
    def _whys(self) -> list[str]:
        return _write(self.protected)

    def _advice(self) -> Iterable[str]:
        return self.reason.advice()


@dataclass(frozen=True, slots=True)
class PreemptionNotHelpful(NotHelpful):
    """The unit does not fit even without all pods that may be evicted, and why.

    ``reason`` is why it does not fit then, ``evictable`` how many pods may be evicted, and
    ``protected`` why others may not.
    """

    code: ClassVar = "PreemptionNotHelpful"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "what that reason asks for"
    says: ClassVar = (
        "evicting {evictable:# pod} of lower priority{protected:? ({_whys:list})} would not be "
        "enough: {reason.text()}"
    )
    quotes: ClassVar = (
        "Preemption is not helpful for scheduling{reason.upstream():?: {reason.upstream()}}"
    )
    evictable: int
    reason: Reason
    protected: Counts = ()


@dataclass(frozen=True, slots=True)
class WaitsForTermination(Reason):
    """The unit fits once pods are gone that terminate already.

    They are waited for ``until`` then, in seconds since the epoch; 0: for ever.
    """

    code: ClassVar = "WaitsForTermination"
    reason_class: ClassVar = ReasonClass.ENDING
    is_capacity: ClassVar = True
    meaning: ClassVar = (
        "the unit fits once pods are gone that terminate already; it says until when they are "
        "waited for"
    )
    way_out: ClassVar = "wait"
    says: ClassVar = (
        "it fits once {pods:# pod} that {pods:terminates is|terminate are} gone: {pods:names}"
        "{_is_bounded:?; others are preempted after {until:time}}"
    )
    quotes: ClassVar = "not eligible due to terminating pod on the nominated node."
    pods: tuple[str, ...]
    until: float = 0.0

    @property
    def _is_bounded(self) -> bool:
        return 0 < self.until < float("inf")


@dataclass(frozen=True, slots=True)
class TerminationStuck(Reason):
    """The unit would fit without ``pods`` that are still there long after they should have gone.

    Nobody else is evicted for it, because that would not be enough.
    """

    code: ClassVar = "TerminationStuck"
    reason_class: ClassVar = ReasonClass.ENDING
    is_capacity: ClassVar = True
    meaning: ClassVar = (
        "pods that are named are still there `preemption.stuckAfter` after their grace period, and "
        "keep the room; nobody is preempted because that would not be enough"
    )
    way_out: ClassVar = "look at their finalizers and nodes"
    says: ClassVar = "{_hanging}"
    advises: ClassVar = (
        "{_first.advice()}",
        "Room elsewhere, or the end of these pods, starts the unit.",
    )
    pods: tuple[Hanging, ...]

    @property
    def _hanging(self) -> str:
        return tell_hanging(self.pods)

    @property
    def _first(self) -> Hanging:
        return self.pods[0]


@dataclass(frozen=True, slots=True)
class OnlySurplus(Reason):
    """The gang has its minimum; members above it preempt nobody."""

    code: ClassVar = "OnlySurplus"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "room"
    says: ClassVar = "gang {gang} has its minimum, and members above it preempt nobody"
    gang: str


@dataclass(frozen=True, slots=True)
class NotAQuestionOfRoom(Reason):
    """The unit waits for something that evictions do not give.

    That is ``reason``.
    """

    code: ClassVar = "NotAQuestionOfRoom"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "what its condition says"
    says: ClassVar = "evicting pods does not help: {_why}"
    reason: Reason

    @property
    def _why(self) -> str:
        return cut(self.reason.text(), 512)


@dataclass(frozen=True, slots=True)
class SearchTooExpensive(Reason):
    """The search used up its steps before it found victims."""

    code: ClassVar = "SearchTooExpensive"
    reason_class: ClassVar = ReasonClass.OPERATORS
    way_out: ClassVar = "it is tried again when the cluster has changed"
    says: ClassVar = (
        "the search for victims among {units:# unit} took {steps:,} steps without a result; it is "
        "tried again when the cluster has changed"
    )
    units: int
    steps: int
