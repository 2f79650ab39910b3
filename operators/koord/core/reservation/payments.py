"""Who pays for room in a quota: a reservation for what it holds, a pod for what it requests.

A unit is charged to its quotas before its nodes are known. So reservations that its pods may use
leave them as much of their own quota beforehand; when a pod is placed, what it really gives back is
left to it instead. Which quotas these are is not known here: :meth:`Cycle.hold` charges them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from koord.core.engine.cycle import Cycle
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.units import Amounts
from koord.core.reservation.ledger import ReservationAccount, takes


class Payments:
    """What reservations have left to pods in one cycle; on its undo log.

    ``pod_of`` returns the pod that stands for a reservation (uid).
    """

    def __init__(self, pod_of: Callable[[str], Pod | None], cycle: Cycle) -> None:
        self._pod_of, self._cycle = pod_of, cycle
        self._paid: dict[str, tuple[str, Amounts]] = {}
        """Pod uid -> the reservation that left its quota to the pod, and how much of it."""

    def leave(
        self,
        pod: Pod,
        requests: Amounts,
        accounts: Iterable[ReservationAccount],
        left: dict[str, dict[str, int]],
    ) -> None:
        """Leave a pod the quota of the first reservation that takes it; ``left`` is theirs yet."""
        for account in accounts:
            if not account.is_matchable or not takes(account, requests, is_required=True):
                continue
            uid = account.reservation.uid
            there = left.setdefault(uid, dict(account.left()))
            part = {name: min(n, there.get(name, 0)) for name, n in requests.items()}
            part = {name: n for name, n in part.items() if n}
            if part:
                for name, n in part.items():
                    there[name] -= n
                self._charge(uid, part, -1)
                self._set(pod.uid, (uid, part))
                return

    def pay(self, pod: Pod, uid: str, given_back: Amounts) -> bool:
        """Take back what was left to a pod; leave it what it gives back to a reservation, if any.

        False if a quota does not allow it.
        """
        paid = self._paid.get(pod.uid)
        if not self._cycle.is_charging_holds or paid == (uid, given_back):
            return True
        # Strictly in this order: what was left to the pod may only fit again after the release.
        if given_back:
            self._charge(uid, given_back, -1)
        if paid is not None and not self._charge(*paid, 1):
            return False
        self._set(pod.uid, (uid, given_back) if given_back else None)
        return True

    def take_back(self, pod: Pod) -> Amounts:
        """Take back what was left to a pod, and return it: what the reservation pays for."""
        paid = self._paid.get(pod.uid)
        if paid is None or not self._charge(*paid, 1):
            return {}
        self._set(pod.uid, None)
        return paid[1]

    def settle(self, unit: Unit, placed: Sequence[Pod]) -> None:
        """Take back what was left to pods that were not placed."""
        if not self._paid:
            return
        uids = {pod.uid for pod in placed}
        for pod in unit.pods:
            paid = self._paid.get(pod.uid)
            if paid is not None and pod.uid not in uids:
                self._charge(*paid, 1)
                self._set(pod.uid, None)

    def _charge(self, uid: str, amounts: Amounts, count: int) -> bool:
        """Charge the quota of a reservation for what it holds (negative: less)."""
        pod = self._pod_of(uid)
        if pod is None:
            return True
        shape = PodShape(tuple(sorted(amounts.items())))
        return self._cycle.hold(replace(pod, uid="", shape=shape, counted=()), count)

    def _set(self, uid: str, paid: tuple[str, Amounts] | None) -> None:
        self._cycle.undo.push(self._restore, uid, self._paid.get(uid))
        self._restore(uid, paid)

    def _restore(self, uid: str, paid: tuple[str, Amounts] | None) -> None:
        if paid is None:
            self._paid.pop(uid, None)
        else:
            self._paid[uid] = paid
