"""Reservations that are used once: by one pod, or by all pods that start together.

The first pod on its node ends such a reservation, and what it held is free. A gang starts as a
whole, and none of its members is the first. So they use it together: what is left of it is room for
the others of the unit, on no other terms than free room. Each has it recorded, so that what is held
and used is counted once from the plan to the end of the reservation, also after a crash.
"""

from koord.core.engine.undo_log import UndoLog
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts
from koord.core.reservation.ledger import ReservationAccount, takes


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
