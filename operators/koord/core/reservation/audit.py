"""Compares what is kept about reservations with what their pods say: any difference is a defect."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from koord.core.pods import Handling
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.plugin import Reservations, find_use
from koord.core.units import PODS, Amounts

if TYPE_CHECKING:
    from koord.core.state import ClusterState


@dataclass(frozen=True, slots=True)
class ReservationDrift:
    """A resource of a reservation that is kept otherwise than counted."""

    reservation: str
    resource: str
    kept: int
    counted: int


def find_drift(state: "ClusterState") -> list[ReservationDrift]:
    """Return the differences, as of the last refresh; none are expected."""
    plugin, found = state.plugin(Reservations), list[ReservationDrift]()
    users = _count_users(state) if plugin.known else {}
    for uid, reservation in plugin.known.items():
        if not reservation.status.is_active:
            continue
        used = add_up(users.get(uid, ()))
        used.pop(PODS, None)
        counted = ReservationAccount(reservation, used, len(users.get(uid, ())))
        kept, pod = plugin.accounts.get(uid, ReservationAccount(reservation)), state.pods.get(uid)
        is_held = pod is not None and pod.handling is Handling.RESERVE
        held = dict(pod.shape.requests) if pod is not None and is_held else {}
        held.pop(PODS, None)
        name = reservation.name
        found += _compare(name, kept.used, used) + _compare(name, held, counted.held())
    return found


def _compare(name: str, kept: Amounts, counted: Amounts) -> list[ReservationDrift]:
    pairs = ((key, kept.get(key, 0), counted.get(key, 0)) for key in {**kept, **counted})
    return [
        ReservationDrift(name, key, one, other) for key, one, other in sorted(pairs) if one != other
    ]


def _count_users(state: "ClusterState") -> dict[str, list[Amounts]]:
    """Return reservation -> the requests of the pods on its node that are given to it."""
    known, users = state.plugin(Reservations).known, dict[str, list[Amounts]]()
    for pod in state.pods.values():
        use = find_use(pod.allocations) if pod.allocations and pod.node else None
        reservation = known.get(use.uid) if use is not None else None
        if reservation is None or pod.phase.is_terminal or pod.node != reservation.status.node:
            continue
        users.setdefault(reservation.uid, []).append(dict(pod.shape.requests))
    return users
