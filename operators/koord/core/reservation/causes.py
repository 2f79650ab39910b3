"""Why nodes do not suit a reservation, or a pod that must use one."""

from collections.abc import Iterable
from typing import Final

from koord.core.engine.cause import Cause
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
