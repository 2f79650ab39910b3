"""Why a pod cannot use a reservation, or a reservation cannot be placed; causes on nodes, too."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.engine.cause import Cause
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import InvalidPodAnnotation, PodReason
from koord.core.model.units import PODS
from koord.core.reservation.ledger import InsufficientResource
from koord.core.reservation.matching import ClosedReservation
from koord.core.reservation.model import AllocatePolicy, ReservationInfo

NO_RESERVATION: Final = Cause(
    "NoReservationMatches",
    75,
    "node(s) no reservations match reservation affinity",
    "Look at koord reservation explain: it says which rule keeps the pod out of each reservation.",
)
PINNED: Final = Cause(
    "ReservationPinned",
    76,
    "node(s) didn't match the nodeName specified by reservation",
    "Remove spec.template.spec.nodeName of the reservation, or free room on that node.",
)
POLICY_CONFLICT: Final = Cause(
    "ReservationPolicyConflict",
    77,
    "node(s) reservation allocate policy conflict",
    "Give all reservations of a node an allocatePolicy, or none.",
)
NO_CANDIDATE: Final = Cause(
    "NoPodToPreAllocate",
    78,
    "node(s) no pod(s) to meet the pre-allocation requirements",
    "Remove the label pre-allocation-required, or make the reservation as large as a running pod.",
)

NO_NODE_WITH_CANDIDATES: Final = Cause(
    "NoPodMatchesReservation",
    79,
    "node(s) no pod match reservation with pre allocation required",
    "Remove the label pre-allocation-required, or look at the owners of the reservation.",
)


def conflicts(policy: AllocatePolicy, policies: Iterable[AllocatePolicy]) -> bool:
    """Whether a policy cannot be on a node with these: the default one only suits itself."""
    is_default = policy is AllocatePolicy.DEFAULT
    return any((other is AllocatePolicy.DEFAULT) is not is_default for other in policies)


def find_conflict(
    reservation: ReservationInfo, node: str, policies: Iterable[AllocatePolicy]
) -> Cause | None:
    """Return why a reservation cannot be on a node that has reservations with these policies."""
    if reservation.pinned_to not in {"", node}:
        return PINNED
    return POLICY_CONFLICT if conflicts(reservation.policy, policies) else None


_MOST_NAMED: Final = 3


def describe_insufficient(lack: InsufficientResource, *, is_detailed: bool = False) -> str:
    """Say of what a reservation has not enough left, in Koordinator's words."""
    what = "Too many pods" if lack.resource == PODS else f"Insufficient {lack.resource}"
    text = f"Reservation(s) {what}"
    if not is_detailed:
        return text
    return f"{text}, requested: {lack.requested}, used: {lack.used}, capacity: {lack.capacity}"


@dataclass(frozen=True, slots=True)
class NoReservationFits(PodReason):
    """No reservation takes a pod that must use one.

    ``problems`` of those that it owns: (what is wrong, how many). ``closed`` would take it if they
    were open; ``name`` is the one that it names.
    """

    code: ClassVar = "NoReservationFits"
    reason_class: ClassVar = ReasonClass.ROOM
    is_capacity: ClassVar = True
    meaning: ClassVar = (
        "the pod must use a reservation (`reservation-affinity`), and none takes it: how many it "
        "may own, and what keeps it out of each; those that are over, in use by their one pod, "
        "invalid or without a node are named"
    )
    says: ClassVar = (
        "0/{owned} reservations are available: {problems:?{problems:list {1} {0}}"
        f"|{NO_RESERVATION.text}}}."
        "{closed:?{_first_closed}|{name:? There is no reservation {name} for {pod}.}}"
        "{_others:? {_others:# more reservation} cannot be used either.}"
    )
    advises: ClassVar = (
        (
            "{_over:?Create {_over:names} again, or name another one in the annotation "
            "reservation-affinity: a reservation that is over serves no more pods.}"
        ),
        "Run koord reservation explain NAME --pod {pod} to see each rule and amount.",
    )
    owned: int
    problems: tuple[tuple[str, int], ...] = ()
    name: str = ""
    closed: tuple[ClosedReservation, ...] = ()

    @property
    def _first_closed(self) -> str:
        return "".join(f" {reservation.text()}." for reservation in self.closed[:_MOST_NAMED])

    @property
    def _others(self) -> int:
        return max(0, len(self.closed) - _MOST_NAMED)

    @property
    def _over(self) -> list[str]:
        return [reservation.name for reservation in self.closed if reservation.is_over]


@dataclass(frozen=True, slots=True)
class InvalidReservationAnnotation(InvalidPodAnnotation):
    """An annotation of the pod about reservations cannot be read."""

    code: ClassVar = "InvalidReservationAnnotation"


@dataclass(frozen=True, slots=True)
class InvalidReservation(PodReason):
    """A field of the Reservation cannot be used: which one, and why."""

    code: ClassVar = "InvalidReservation"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    says: ClassVar = "{problems:list {0} {1}}"
    advises: ClassVar = ("Correct these fields of the Reservation.",)
    problems: tuple[tuple[str, str], ...]
