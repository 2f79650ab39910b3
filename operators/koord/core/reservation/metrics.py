"""What is measured of reservations, with the names and units of Koordinator's series.

Their accounts are compared with what their pods say, too: any difference is a defect.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.engine.state_view import StateView
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Allocation, Handling, Pod
from koord.core.model.units import CPU, PODS, Amounts, is_in_bytes
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.model import ReservationPhase, ReservationState
from koord.core.reservation.plugin import Reservations, find_use

PHASES: Final = (
    ReservationPhase.PENDING,
    ReservationPhase.AVAILABLE,
    ReservationPhase.SUCCEEDED,
    ReservationPhase.FAILED,
)
_GIB: Final = 1 << 30
Series = list[tuple[str, str, str, float]]


def phase_series(status: ReservationState) -> dict[str, int]:
    """Return 1 for the phase of a reservation and 0 for each other one."""
    current = status.phase or ReservationPhase.PENDING
    return {str(phase): int(phase == current) for phase in PHASES}


def resource_series(allocatable: Amounts, allocated: Amounts) -> Series:
    """Return (type, resource, unit, value) for what is reserved, used, and their ratio."""
    series: Series = []
    for name, size in sorted(allocatable.items()):
        used = allocated.get(name, 0)
        unit, divisor = _unit_of(name)
        series.append(("allocatable", name, unit, size / divisor))
        series.append(("allocated", name, unit, used / divisor))
        if size > 0:
            series.append(("utilization", name, "ratio", used / size))
    return series


def _unit_of(name: str) -> tuple[str, int]:
    if name == CPU:
        return "core", 1000
    return ("Gi", _GIB) if is_in_bytes(name) else ("raw", 1)


EXACT: Final = "devices and CPUs"
"""Stands for the resource where a reservation holds others than it should."""
_User: TypeAlias = tuple[Pod, tuple[Allocation, ...]]
"""A pod, and what it was given."""


@dataclass(frozen=True, slots=True)
class ReservationDrift:
    """A resource of a reservation that is kept otherwise than counted."""

    reservation: str
    resource: str
    kept: int
    counted: int


def find_drift(state: StateView) -> list[ReservationDrift]:
    """Return the differences; none are expected."""
    plugin, drift = state.plugin(Reservations), list[ReservationDrift]()
    plugin.absorb()
    users = _find_users(state) if plugin.reservations else {}
    for uid, reservation in plugin.reservations.items():
        if not reservation.status.is_active:
            continue
        mine = users.get(uid, {})
        used = add_up(dict(pod.shape.requests) for pod, _ in mine.values())
        used.pop(PODS, None)
        counted = ReservationAccount(reservation, used, len(mine))
        kept, pod = plugin.accounts.get(uid, ReservationAccount(reservation)), state.pods.get(uid)
        is_held = pod is not None and pod.handling is Handling.RESERVE
        held = dict(pod.shape.requests) if pod is not None and is_held else {}
        held.pop(PODS, None)
        name = reservation.name
        drift += _compare(name, kept.used, used) + _compare(name, held, counted.held())
        exact = pod.allocations if pod is not None else ()
        given = (allocation for user in sorted(mine) for allocation in mine[user][1])
        if uid in plugin.exact and exact != plugin.left_of(uid, given):
            drift.append(ReservationDrift(name, EXACT, len(exact), len(mine)))
    return drift


def _compare(name: str, kept: Amounts, counted: Amounts) -> list[ReservationDrift]:
    pairs = ((key, kept.get(key, 0), counted.get(key, 0)) for key in {**kept, **counted})
    return [
        ReservationDrift(name, key, kept_amount, counted_amount)
        for key, kept_amount, counted_amount in sorted(pairs)
        if kept_amount != counted_amount
    ]


def _find_users(state: StateView) -> dict[str, dict[str, _User]]:
    """Return reservation -> the pods on its node that are given to it, by uid."""
    plugin, users = state.plugin(Reservations), dict[str, dict[str, _User]]()
    for pod in state.pods.values():
        given = plugin.given.get(pod.uid, pod.allocations)
        use = find_use(given) if given else None
        reservation = plugin.reservations.get(use.uid) if use is not None else None
        if reservation is not None and node_charged(pod) == reservation.status.node:
            users.setdefault(reservation.uid, {})[pod.uid] = (pod, given)
    return users
