"""Why nobody is preempted for a waiting unit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from koord.core.model.patience import Hanging, tell_hanging
from koord.core.model.reasons import PodReason, Reason
from koord.core.model.text import cut, format_time, listed, named, plural
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
}


def tell_protection(why: Protection) -> str:
    """Return the words to put behind how much is protected."""
    return _WHY[why]


Counts = tuple[tuple[Protection, int], ...]


def _write(protected: Counts) -> str:
    return listed(f"{count} {_WHY[why]}" for why, count in protected)


@dataclass(frozen=True, slots=True)
class PreemptionNever(PodReason):
    """A member of the unit must not preempt."""

    code: ClassVar = "PreemptionNever"
    is_reservation: bool = False

    def _text(self) -> str:
        if self.is_reservation:
            return (
                f"{self.pod} preempts nobody: only a reservation does whose template names a "
                "PriorityClass that preempts, and that takes in no running pods."
            )
        return f"{self.pod} preempts nobody: its preemptionPolicy is Never"

    def upstream(self) -> str:
        return "" if self.is_reservation else "not eligible due to preemptionPolicy=Never."


@dataclass(frozen=True, slots=True)
class NobodyLower(Reason):
    """No running pod has a lower priority than every member of the unit."""

    code: ClassVar = "NobodyLower"
    priority: int
    running: int

    def _text(self) -> str:
        return f"none of {plural(self.running, 'running pod')} has a priority below {self.priority}"

    def upstream(self) -> str:
        return "No preemption victims found for incoming pod"


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
    """Pods of lower priority run, but none of them may be evicted.

    ``kept`` says how much the quotas use that keep some of them.
    """

    code: ClassVar = "VictimsProtected"
    priority: int
    protected: Counts
    kept: tuple[GuaranteeKept, ...] = ()

    def _text(self) -> str:
        pods_of_quotas = sum(guarantee.pods for guarantee in self.kept)
        counts = [
            (why, max(0, count - pods_of_quotas) if why is Protection.QUOTA else count)
            for why, count in self.protected
        ]
        whys = [f"{count} {_WHY[why]}" for why, count in counts if count]
        whys += [guarantee.text() for guarantee in self.kept]
        return f"no pod with a priority below {self.priority} may be evicted: {listed(whys)}"


@dataclass(frozen=True, slots=True)
class PreemptionNotHelpful(Reason):
    """The unit does not fit even without all pods that may be evicted.

    ``reason`` is why it does not fit then, ``evictable`` how many pods may be evicted, and
    ``protected`` why others may not.
    """

    code: ClassVar = "PreemptionNotHelpful"
    evictable: int
    reason: Reason
    protected: Counts = ()

    def _text(self) -> str:
        protected = f" ({_write(self.protected)})" if self.protected else ""
        return (
            f"evicting {plural(self.evictable, 'pod')} of lower priority{protected} would not be "
            f"enough: {self.reason.text()}"
        )

    def upstream(self) -> str:
        message = "Preemption is not helpful for scheduling"
        return f"{message}: {why}" if (why := self.reason.upstream()) else message

    def _advice(self) -> Iterable[str]:
        return self.reason.advice()


@dataclass(frozen=True, slots=True)
class WaitsForTermination(Reason):
    """The unit fits once pods are gone that terminate already.

    They are waited for ``until`` then, in seconds since the epoch; 0: for ever.
    """

    code: ClassVar = "WaitsForTermination"
    is_capacity: ClassVar = True
    pods: tuple[str, ...]
    until: float = 0.0

    def _text(self) -> str:
        terminate = "terminates is" if len(self.pods) == 1 else "terminate are"
        count = plural(len(self.pods), "pod")
        is_bounded = 0 < self.until < float("inf")
        until = f"; others are preempted after {format_time(self.until)}" if is_bounded else ""
        return f"it fits once {count} that {terminate} gone: {named(self.pods)}{until}"

    def upstream(self) -> str:
        return "not eligible due to terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class TerminationStuck(Reason):
    """The unit would fit without ``pods`` that are still there long after they should have gone.

    Nobody else is evicted for it, because that would not be enough.
    """

    code: ClassVar = "TerminationStuck"
    is_capacity: ClassVar = True
    pods: tuple[Hanging, ...]

    def _text(self) -> str:
        return tell_hanging(self.pods)

    def _advice(self) -> Iterable[str]:
        yield self.pods[0].advice()
        yield "Room elsewhere, or the end of these pods, starts the unit."


@dataclass(frozen=True, slots=True)
class OnlySurplus(Reason):
    """The gang has its minimum; members above it preempt nobody."""

    code: ClassVar = "OnlySurplus"
    gang: str

    def _text(self) -> str:
        return f"gang {self.gang} has its minimum, and members above it preempt nobody"


@dataclass(frozen=True, slots=True)
class NotAQuestionOfRoom(Reason):
    """Evicting pods cannot help: the unit waits for something else, ``reason``."""

    code: ClassVar = "NotAQuestionOfRoom"
    reason: Reason

    def _text(self) -> str:
        return f"evicting pods does not help: {cut(self.reason.text(), 512)}"


@dataclass(frozen=True, slots=True)
class SearchTooExpensive(Reason):
    """The search for victims ran out of steps before it found any."""

    code: ClassVar = "SearchTooExpensive"
    units: int
    steps: int

    def _text(self) -> str:
        return (
            f"the search for victims among {plural(self.units, 'unit')} took {self.steps:,} "
            "steps without a result; it is tried again when the cluster has changed"
        )
