"""Placeholder pods: what those of a reservation should request, and whether they do.

Schedulers of others do not know what a reservation holds. They respect pods that are bound to its
node and request as much. Such pods are no part of the cluster state, where the reservation itself
counts. Nothing here writes or reads a clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from koord.core.engine.state_view import StateView
from koord.core.model.units import PODS, Amounts
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.model import HoldProtection, Placeholder
from koord.core.reservation.plugin import Reservations

if TYPE_CHECKING:
    from koord.core.model.pod_charge import PodCharge


class HoldState(Enum):
    """How far the room of a reservation is kept from schedulers of others."""

    LEDGER = "Ledger"
    PLACEHOLDER = "Placeholder"
    MISSING = "PlaceholderMissing"
    STOLEN = "CapacityStolen"


def account_of(
    state: StateView, uid: str, *, is_in: Callable[[str], bool]
) -> ReservationAccount | None:
    """Return the account of a reservation with those of its pods (uid) only that are in already."""
    plugin = state.plugin(Reservations)
    account = plugin.accounts.get(uid)
    if account is None:
        return None
    users: list[PodCharge] = [user for user in plugin.users_of(uid) if is_in(user.uid)]
    used = add_up(dict(user.load.requests) for user in users)
    return replace(account, used=used, pods=len(users))


def wanted(state: StateView, account: ReservationAccount) -> dict[str, int]:
    """Return what placeholders are to request: what is held, less what others have taken."""
    over = find_overfull(state, account)
    held = {name: n - over.get(name, 0) for name, n in account.held().items() if name != PODS}
    return {name: n for name, n in held.items() if n > 0}


def find_overfull(state: StateView, account: ReservationAccount) -> dict[str, int]:
    """Return by how much the node of a reservation has more taken than it has, per resource."""
    table = state.table
    row = table.row_of.get(account.reservation.status.node)
    if row is None:
        return {}
    columns = ((name, table.columns.get(name)) for name in account.reserved)
    over = {
        name: int(table.used[column, row] - table.allocatable[column, row])
        for name, column in columns
        if column is not None
    }
    return {name: n for name, n in over.items() if n > 0}


def missing(amounts: Amounts, there: Iterable[Placeholder]) -> dict[str, int]:
    """Return what placeholders request too little of (negative: too much)."""
    total = add_up(placeholder.requests for placeholder in there if placeholder.holds)
    names = amounts.keys() | total.keys()
    lacking = {name: amounts.get(name, 0) - total.get(name, 0) for name in names}
    return {name: n for name, n in lacking.items() if n}


def assess(state: StateView, account: ReservationAccount) -> HoldState:
    """Return how the room of a reservation is kept; ``account`` has its bound pods."""
    reservation = account.reservation
    if find_overfull(state, account):
        return HoldState.STOLEN
    if reservation.protection is not HoldProtection.PLACEHOLDER:
        return HoldState.LEDGER
    there = state.plugin(Reservations).placeholders_of(reservation.uid)
    lacking = missing(wanted(state, account), there)
    return HoldState.MISSING if any(n > 0 for n in lacking.values()) else HoldState.PLACEHOLDER
