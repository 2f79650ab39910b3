"""Why a reservation serves no pod now: it is over, in use by its one pod, invalid, or waits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.model.pods import Pod
from koord.core.reservation.matching import MatchOutcome, judge
from koord.core.reservation.model import ReservationHints, ReservationInfo, ReservationPhase

MOST_JUDGED: Final = 256
"""Reservations that are looked at for one pod; those beyond are not named."""
_MATCHING: Final = frozenset({MatchOutcome.MATCHED, MatchOutcome.EXACT})


class ClosedBy(StrEnum):
    """What closes a reservation."""

    USED_UP = "UsedUp"
    IN_USE = "InUse"
    ENDED = "Ended"
    INVALID = "Invalid"
    WAITING = "Waiting"
    NOT_AVAILABLE = "NotAvailable"


_TEXTS: Final[Mapping[ClosedBy, str]] = {
    ClosedBy.USED_UP: "is over: it was for one pod (allocateOnce), which has used it",
    ClosedBy.IN_USE: "is for one pod (allocateOnce), which uses it",
    ClosedBy.ENDED: "is over: {detail}",
    ClosedBy.INVALID: "is invalid: {detail}",
    ClosedBy.WAITING: "waits for a node itself",
    ClosedBy.NOT_AVAILABLE: "is not available: {detail}",
}


@dataclass(frozen=True, slots=True)
class ClosedReservation:
    """A reservation that would serve a pod if it was open, and why it is not."""

    name: str
    cause: ClosedBy
    detail: str = ""

    @property
    def is_over(self) -> bool:
        return self.cause in {ClosedBy.USED_UP, ClosedBy.ENDED}

    def text(self) -> str:
        return f"Reservation {self.name} {_TEXTS[self.cause].format(detail=self.detail)}"


def find_cause(reservation: ReservationInfo, pods: int) -> ClosedReservation | None:
    """Return why a reservation serves no further pod; ``pods`` use it. None if it may serve one."""
    if reservation.is_matchable(pods):
        return None
    status, detail = reservation.status, ""
    if status.phase == ReservationPhase.SUCCEEDED:
        cause = ClosedBy.USED_UP
    elif status.is_over:
        ready = status.condition("Ready")
        message = "" if ready is None else ready.message or ready.reason
        cause, detail = ClosedBy.ENDED, message or str(status.phase)
    elif reservation.problems:
        cause, detail = ClosedBy.INVALID, " ".join(reservation.problems[0])
    elif not status.node:
        cause = ClosedBy.WAITING
    elif status.is_available:
        cause = ClosedBy.IN_USE
    else:
        cause, detail = ClosedBy.NOT_AVAILABLE, str(status.phase)
    return ClosedReservation(reservation.name, cause, detail)


def find_closed(
    pod: Pod,
    hints: ReservationHints,
    candidates: Iterable[tuple[ReservationInfo, int]],
    labels: Mapping[str, Mapping[str, str]],
    *,
    every_namespace: bool,
) -> tuple[ClosedReservation, ...]:
    """Return what would serve a pod if it was open, by name.

    ``candidates`` are reservations and how many pods use each, ``labels`` those of their nodes.
    """
    closed: list[ClosedReservation] = []
    for reservation, pods in candidates:
        of_node = labels.get(reservation.status.node, {})
        outcome = judge(pod, hints, reservation, of_node, every_namespace=every_namespace)
        closed_reservation = find_cause(reservation, pods) if outcome in _MATCHING else None
        if closed_reservation is not None:
            closed.append(closed_reservation)
    return tuple(sorted(closed, key=lambda closed_reservation: closed_reservation.name))
