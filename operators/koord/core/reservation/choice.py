"""Which of several reservations a pod uses, and the points of nodes for it.

The order is total, so equal inputs always give the same choice.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from koord.core.model.units import Amounts
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.lifecycle import deadline_of

K = TypeVar("K", str, int)

MAX_SCORE: Final = 100
PREFERRED: Final = 1000
"""Raw points of the node with the reservation that is first in order."""


def score(requests: Amounts, account: ReservationAccount) -> int:
    """Return how full a reservation is with the pod, 0 to 100; nothing for what spills over."""
    reserved = [(name, n) for name, n in account.reserved.items() if n > 0]
    if not reserved or not any(requests.values()):
        return 0
    total = 0
    for name, n in reserved:
        used = account.used.get(name, 0) + requests.get(name, 0)
        total += MAX_SCORE * used // n if used <= n else 0
    return total // len(reserved)


def nominate(requests: Amounts, accounts: Iterable[ReservationAccount]) -> list[ReservationAccount]:
    """Return the reservations that a pod fits in, the one to use first."""
    return sorted(accounts, key=lambda account: _key_of(requests, account))


def _key_of(requests: Amounts, account: ReservationAccount) -> tuple[object, ...]:
    """Sort by order, then the fullest, least spill, what ends first, the oldest, the name."""
    reservation = account.reservation
    spills = sum(requests.get(name, 0) > n for name, n in account.left().items())
    order = reservation.order or float("inf")
    deadline = deadline_of(reservation)
    ends = float("inf") if deadline is None else deadline
    points = -score(requests, account)
    return (order, points, spills, ends, reservation.created, reservation.name)


def score_nodes(
    requests: Amounts, nominated: Mapping[K, ReservationAccount | None]
) -> dict[K, int]:
    """Return the raw points of each node with its nominated reservation (None: none)."""
    points = {
        node: score(requests, reservation_account) if reservation_account else 0
        for node, reservation_account in nominated.items()
    }
    ordered = [
        (reservation_account.reservation.order, reservation_account.reservation.name, node)
        for node, reservation_account in nominated.items()
        if reservation_account is not None and reservation_account.reservation.order
    ]
    if ordered:
        points[min(ordered)[2]] = PREFERRED
    return points
