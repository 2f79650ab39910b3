"""Which of several reservations a pod uses, the points of nodes for it, and who shares it.

The order is total, so equal inputs always give the same choice.

Some reservations are used once: by one pod, or by all pods that start together. The first pod on
its node ends such a reservation, and what it held is free. A gang starts as a whole, and none of
its members is the first. So they use it together: what is left of it is room for the others of the
unit, on no other terms than free room. Each has it recorded, so that what is held and used is
counted once from the plan to the end of the reservation, also after a crash.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from koord.core.engine.cycle import UndoLog
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts
from koord.core.reservation.ledger import ReservationAccount, takes
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
        node: score(requests, account) if account else 0 for node, account in nominated.items()
    }
    ordered = [
        (account.reservation.order, account.reservation.name, node)
        for node, account in nominated.items()
        if account is not None and account.reservation.order
    ]
    if ordered:
        points[min(ordered)[2]] = PREFERRED
    return points


class SingleUse:
    """Which unit uses what is used once, in one cycle; on its undo log."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._unit: UnitKey = ""
        self._members: frozenset[str] = frozenset()
        self._used_by: dict[str, UnitKey] = {}
        """Reservation -> the unit that has begun to use it in this cycle."""

    @property
    def is_shared(self) -> bool:
        """Whether several pods are decided together."""
        return bool(self._unit)

    def decide(self, unit: Unit) -> bool:
        """Take note of the unit that is decided; return whether that may change what is open."""
        is_alone = len(unit.pods) < 2
        self._unit = "" if is_alone else unit.key
        self._members = frozenset(() if is_alone else (pod.uid for pod in unit.pods))
        return bool(self._used_by)

    def is_open(self, account: ReservationAccount, pod: Pod | None = None) -> bool:
        """Whether the unit has begun to use it, and ``pod`` belongs to the unit."""
        reservation = account.reservation
        if not self._unit or self._used_by.get(reservation.uid) != self._unit:
            return False
        return reservation.is_matchable(0) and (pod is None or pod.uid in self._members)

    def takes(
        self,
        account: ReservationAccount,
        requests: Amounts,
        pod: Pod | None = None,
        *,
        is_required: bool,
    ) -> bool:
        """Whether a reservation takes such a pod."""
        if self.is_open(account, pod):
            return any(account.left().get(name, 0) for name, n in requests.items() if n)
        return account.is_matchable and takes(account, requests, is_required=is_required)

    def begin(self, account: ReservationAccount, pod: Pod) -> None:
        """Take note that a pod uses a reservation."""
        uid = account.reservation.uid
        if account.reservation.is_once and pod.uid in self._members and uid not in self._used_by:
            self._undo.push(self._used_by.pop, uid)
            self._used_by[uid] = self._unit
