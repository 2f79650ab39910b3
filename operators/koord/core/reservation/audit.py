"""Compares what is kept about reservations with what their pods say: any difference is a defect."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from koord.core.pod_charge import PodCharge, charge_of
from koord.core.pods import Handling
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.plugin import Reservations, find_use
from koord.core.units import PODS, Amounts

if TYPE_CHECKING:
    from koord.core.state import ClusterState

EXACT: Final = "devices and CPUs"
"""Stands for the resource where a reservation holds others than it should."""


@dataclass(frozen=True, slots=True)
class ReservationDrift:
    """A resource of a reservation that is kept otherwise than counted."""

    reservation: str
    resource: str
    kept: int
    counted: int


def find_drift(state: "ClusterState") -> list[ReservationDrift]:
    """Return the differences; none are expected."""
    plugin, found = state.plugin(Reservations), list[ReservationDrift]()
    plugin.settle(state)
    users = _find_users(state) if plugin.known else {}
    for uid, reservation in plugin.known.items():
        if not reservation.status.is_active:
            continue
        mine = sorted(users.get(uid, ()), key=lambda charge: charge.uid)
        used = add_up(dict(one.load.requests) for one in mine)
        used.pop(PODS, None)
        counted = ReservationAccount(reservation, used, len(mine))
        kept, pod = plugin.accounts.get(uid, ReservationAccount(reservation)), state.pods.get(uid)
        is_held = pod is not None and pod.handling is Handling.RESERVE
        held = dict(pod.shape.requests) if pod is not None and is_held else {}
        held.pop(PODS, None)
        name = reservation.name
        found += _compare(name, kept.used, used) + _compare(name, held, counted.held())
        if pod is not None and pod.allocations != plugin.left_of(uid, mine):
            found.append(ReservationDrift(name, EXACT, len(pod.allocations), len(mine)))
    return found


def _compare(name: str, kept: Amounts, counted: Amounts) -> list[ReservationDrift]:
    pairs = ((key, kept.get(key, 0), counted.get(key, 0)) for key in {**kept, **counted})
    return [
        ReservationDrift(name, key, one, other) for key, one, other in sorted(pairs) if one != other
    ]


def _find_users(state: "ClusterState") -> dict[str, list[PodCharge]]:
    """Return reservation -> the charges of the pods on its node that are given to it."""
    plugin, users = state.plugin(Reservations), dict[str, list[PodCharge]]()
    for pod in state.pods.values():
        given = plugin.given.get(pod.uid, pod.allocations)
        use = find_use(given)
        charge = charge_of(pod) if use is not None else None
        if use is None or charge is None or use.uid not in plugin.known:
            continue
        if charge.load.node == plugin.known[use.uid].status.node:
            users.setdefault(use.uid, []).append(replace(charge, allocations=given))
    return users
