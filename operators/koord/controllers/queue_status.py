"""Where units stand in their queues, as a part of the status of a PodGroup, and back.

What an earlier process promised is read from there: a promise outlives it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter

from koord.answers.standing import QueueStanding
from koord.api.parse import InvalidObject, parse_value
from koord.api.place_lists import write_places
from koord.api.podgroup import GroupQueue, QueueMove, QueueReservation, ReservedPlace
from koord.api.resource import to_time
from koord.core.gang.status import ConditionType
from koord.core.queue.promises import Certainty, PromiseBasis, PromiseMove
from koord.core.queue.turns import StartReservation
from koord.kube.status import conditions_of

MOST_PLACES: Final = 16
MOST_TEXT: Final = 16384
"""Of what names further places: of those that are not told, a new process plans anew."""
_ADAPTER: Final = TypeAdapter(GroupQueue)


def make_queue_status(standing: QueueStanding) -> GroupQueue:
    """Return what the status of a PodGroup says."""
    return GroupQueue(
        position=standing.position or None,
        ahead=standing.ahead,
        head_since=_time(standing.head_since),
        expected_start=_time(standing.expected_start),
        start_no_later_than=_time(standing.latest_start),
        certainty=str(standing.certainty),
        basis=dict(standing.basis) or None,
        reservation=_make_reservation(standing.reservation),
        last_move=_make_move(standing.last_move),
    )


def _make_reservation(reservation: StartReservation | None) -> QueueReservation | None:
    if reservation is None:
        return None
    nodes = sorted(reservation.nodes.items())
    more = write_places(dict(nodes[MOST_PLACES:]))
    return QueueReservation(
        kind=reservation.kind,
        since=_time(reservation.since),
        idle_held_seconds=reservation.idle_seconds,
        places=[ReservedPlace(node=node, pods=pods) for node, pods in nodes[:MOST_PLACES]],
        more_places=more if 0 < len(more) <= MOST_TEXT else None,
        places_total=len(nodes),
    )


def _make_move(move: PromiseMove | None) -> QueueMove | None:
    if move is None:
        return None
    return QueueMove.model_validate(
        {
            "from": to_time(move.before),
            "to": _time(move.after),
            "cause": str(move.cause),
            "by": move.by or None,
        }
    )


def _time(seconds: float | None) -> Any:
    return None if seconds is None else to_time(seconds)


def read_standing(status: Mapping[str, Any]) -> QueueStanding | None:
    """Return what the status of a PodGroup says of its turn; None if it is nothing, or nonsense."""
    shown = _read(status)
    queued = conditions_of(status).get(ConditionType.QUEUED)
    if shown is None or queued is None or shown.certainty not in set(Certainty):
        return None
    message = str(queued.get("message", ""))
    return QueueStanding(
        queue="",
        position=shown.position or 0,
        waiting=0,
        ahead=shown.ahead,
        gpus_ahead=0,
        state=str(queued.get("reason", "")),
        certainty=Certainty(shown.certainty),
        head_since=_seconds(shown.head_since),
        expected_start=_seconds(shown.expected_start),
        latest_start=_seconds(shown.start_no_later_than),
        basis=dict(shown.basis or {}),
        reported=message,
    )


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp())


def _read(status: Mapping[str, Any]) -> GroupQueue | None:
    shown = parse_value(_ADAPTER, status.get("queue") or {}, at=("status", "queue"))
    return None if isinstance(shown, InvalidObject) else shown


def read_promise(status: Mapping[str, Any]) -> PromiseBasis | None:
    """Return what the status of a PodGroup promises; None if it is nothing, or nonsense."""
    shown = _read(status)
    if shown is None or shown.certainty != Certainty.PROMISED:
        return None
    start, reservation = shown.start_no_later_than, shown.reservation
    if start is None:
        return None
    places = (reservation.places if reservation is not None else None) or ()
    return PromiseBasis(int(start.timestamp()), nodes=frozenset(place.node for place in places))
