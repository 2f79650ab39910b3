"""Why a reservation serves no pod now: it is over, in use by its one pod, invalid, or waits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.model.pods import Pod
from koord.core.reservation.matching import Verdict, judge
from koord.core.reservation.model import Phase, Reservation, Wishes

MOST_JUDGED: Final = 256
"""Reservations that are looked at for one pod; those beyond are not named."""
_MATCHING: Final = frozenset({Verdict.MATCHED, Verdict.EXACT})


class Cause(StrEnum):
    """What closes a reservation."""

    USED_UP = "UsedUp"
    IN_USE = "InUse"
    ENDED = "Ended"
    INVALID = "Invalid"
    WAITING = "Waiting"
    NOT_AVAILABLE = "NotAvailable"


_TEXTS: Final[Mapping[Cause, str]] = {
    Cause.USED_UP: "is over: it was for one pod (allocateOnce), which has used it",
    Cause.IN_USE: "is for one pod (allocateOnce), which uses it",
    Cause.ENDED: "is over: {detail}",
    Cause.INVALID: "is invalid: {detail}",
    Cause.WAITING: "waits for a node itself",
    Cause.NOT_AVAILABLE: "is not available: {detail}",
}


@dataclass(frozen=True, slots=True)
class ClosedReservation:
    """A reservation that would serve a pod if it was open, and why it is not."""

    name: str
    cause: Cause
    detail: str = ""

    @property
    def is_over(self) -> bool:
        return self.cause in {Cause.USED_UP, Cause.ENDED}

    def text(self) -> str:
        return f"Reservation {self.name} {_TEXTS[self.cause].format(detail=self.detail)}"


def find_cause(reservation: Reservation, pods: int) -> ClosedReservation | None:
    """Return why a reservation serves no further pod; ``pods`` use it. None if it may serve one."""
    if reservation.is_matchable(pods):
        return None
    status, detail = reservation.status, ""
    if status.phase == Phase.SUCCEEDED:
        cause = Cause.USED_UP
    elif status.is_over:
        ready = status.condition("Ready")
        message = "" if ready is None else ready.message or ready.reason
        cause, detail = Cause.ENDED, message or str(status.phase)
    elif reservation.problems:
        cause, detail = Cause.INVALID, " ".join(reservation.problems[0])
    elif not status.node:
        cause = Cause.WAITING
    elif status.is_available:
        cause = Cause.IN_USE
    else:
        cause, detail = Cause.NOT_AVAILABLE, str(status.phase)
    return ClosedReservation(reservation.name, cause, detail)


def find_closed(
    pod: Pod,
    wishes: Wishes,
    candidates: Iterable[tuple[Reservation, int]],
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
        verdict = judge(pod, wishes, reservation, of_node, every_namespace=every_namespace)
        closed_reservation = find_cause(reservation, pods) if verdict in _MATCHING else None
        if closed_reservation is not None:
            closed.append(closed_reservation)
    return tuple(sorted(closed, key=lambda closed_reservation: closed_reservation.name))
