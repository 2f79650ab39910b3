"""What is held, used and left of reservations: the closed form, without any counting up and down.

On one node, per resource: ``A`` is allocatable, ``P`` what pods outside of reservations request,
and of a reservation ``C`` is reserved, ``U`` requested by its pods, ``I`` for no owner to use.
Outsiders find ``A - P - sum(max(C, U + I))``; a pod of reservation r finds
``A - P - sum over the others - U - I``, and with the policy Restricted at most ``C - I - U``.

In quotas a reservation pays for what it holds, a pod for what it requests. A unit is charged to its
quotas before its nodes are known. So reservations that its pods may use leave them as much of their
own quota beforehand; when a pod is placed, what it really gives back is left to it instead. Which
quotas these are is not known here: :meth:`Cycle.hold` charges them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from koord.core.engine.cycle import Cycle
from koord.core.model.device_names import TYPE_OF
from koord.core.model.plan import Unit
from koord.core.model.pods import HostPort, Pod, PodShape
from koord.core.model.units import PODS, Amounts
from koord.core.reservation.model import (
    NOTHING_IGNORED,
    AllocatePolicy,
    IgnoredResources,
    ReservationInfo,
    restricted_names,
)


@dataclass(frozen=True, slots=True)
class ReservationAccount:
    """One reservation on its node: reserved, used and kept amounts, and how many pods use it."""

    reservation: ReservationInfo
    used: Amounts = field(default_factory=dict)
    pods: int = 0
    ignored: IgnoredResources = NOTHING_IGNORED
    ports: tuple[HostPort, ...] = ()
    """Host ports that it holds: those of its template that none of its pods uses."""

    @property
    def reserved(self) -> Amounts:
        return self.reservation.status.allocatable

    @property
    def is_matchable(self) -> bool:
        return self.reservation.is_matchable(self.pods)

    def with_ports(self, ports: Iterable[HostPort], *, is_in: bool) -> tuple[HostPort, ...]:
        """Return the ports that it holds when a pod with these comes in, or leaves."""
        moved, pod = set(ports), self.reservation.pod
        if not moved or pod is None:
            return self.ports
        held = set(self.ports) - moved if is_in else moved.union(self.ports)
        return tuple(port for port in pod.shape.host_ports if port in held)

    def allocated(self) -> dict[str, int]:
        """Return what its pods use of the reserved resources."""
        return {name: self.used.get(name, 0) for name in self.reserved}

    def left(self) -> dict[str, int]:
        """Return what owners may still use of it."""
        inner = self.reservation.inner
        return {
            name: max(0, n - self.used.get(name, 0) - inner.get(name, 0))
            for name, n in self.reserved.items()
        }

    def held(self) -> dict[str, int]:
        """Return what it takes from outsiders besides what its pods request."""
        inner = self.reservation.inner
        return {
            name: max(0, n - self.used.get(name, 0), min(n, inner.get(name, 0)))
            for name, n in self.reserved.items()
        }


@dataclass(frozen=True, slots=True)
class InsufficientResource:
    """A resource of which a reservation has not enough left; all amounts in the unit of cpu etc."""

    resource: str
    requested: int
    used: int
    capacity: int


def requests_of(shape: PodShape) -> dict[str, int]:
    """Return the requests of a pod without its slot on the node."""
    return {name: n for name, n in shape.requests if name != PODS}


def add_up(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def taken_by(plain: Amounts, accounts: Iterable[ReservationAccount]) -> dict[str, int]:
    """Return what outsiders find taken on a node: P + sum(max(C, U + I))."""
    return add_up(
        (plain, *(part for account in accounts for part in (account.allocated(), account.held())))
    )


def free_through(
    allocatable: Amounts,
    plain: Amounts,
    other_accounts: Iterable[ReservationAccount],
    account: ReservationAccount | None = None,
) -> dict[str, int]:
    """Return what a pod finds on a node, through a reservation or (None) outside of all."""
    own = () if account is None else (account.allocated(), account.reservation.inner)
    total = add_up((taken_by(plain, other_accounts), *own))
    return {name: n - total.get(name, 0) for name, n in allocatable.items()}


def lacks_on_node(
    requests: Amounts, free: Amounts, ignored: IgnoredResources = NOTHING_IGNORED
) -> list[str]:
    """Return the resources of which a node has not enough free."""
    lacking = (name for name, n in requests.items() if n > 0 and n > free.get(name, 0))
    return [name for name in lacking if name not in ignored]


def lacks_inside(requests: Amounts, account: ReservationAccount) -> list[InsufficientResource]:
    """Return the resources of which a Restricted reservation has not enough left."""
    reservation = account.reservation
    if reservation.policy is not AllocatePolicy.RESTRICTED:
        return []
    lacks = []
    for name in restricted_names(sorted(account.reserved), reservation.options):
        requested = 1 if name == PODS else requests.get(name, 0)
        used = account.pods if name == PODS else max(0, account.used.get(name, 0))
        capacity = account.reserved[name] - reservation.inner.get(name, 0)
        if requested and requested + used > capacity and name not in account.ignored:
            lacks.append(InsufficientResource(name, requested, used, capacity))
    return lacks


def has_common(reserved: Amounts, requests: Amounts) -> bool:
    """Whether a pod requests something that is reserved; all names of a device type are one."""
    if not reserved.keys().isdisjoint(requests):
        return True
    kinds = {TYPE_OF[name] for name in requests if name in TYPE_OF}
    return bool(kinds) and any(TYPE_OF.get(name) in kinds for name in reserved)


def takes(account: ReservationAccount, requests: Amounts, *, is_required: bool) -> bool:
    """Whether a reservation itself has enough left for a pod.

    A pod that need not use one uses none that reserves nothing that it requests.
    """
    if not is_required and not has_common(account.reserved, requests):
        return False
    return not lacks_inside(requests, account)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Through which accounts a pod fits on a node, or else what each of them lacks."""

    fitting: Sequence[ReservationAccount] = ()
    on_node: frozenset[str] = frozenset()
    inside: Mapping[str, Sequence[InsufficientResource]] = field(default_factory=dict)
    """Name of the reservation -> what it lacks."""


def fit_on_node(
    requests: Amounts,
    matched: Sequence[ReservationAccount],
    free: Mapping[str, Amounts],
    *,
    is_required: bool,
) -> NodeAnswer:
    """Return which matched reservations a pod fits in; ``free`` is what it finds through each.

    A pod that need not use one skips those that reserve nothing that it requests.
    """
    fitting, on_node = list[ReservationAccount](), set[str]()
    inside: dict[str, Sequence[InsufficientResource]] = {}
    for account in matched:
        name = account.reservation.name
        if not is_required and not has_common(account.reserved, requests):
            continue
        missing = lacks_on_node(requests, free[name], account.ignored)
        lacks = lacks_inside(requests, account)
        on_node.update(missing)
        if lacks:
            inside[name] = lacks
        if not missing and not lacks:
            fitting.append(account)
    return NodeAnswer(fitting, frozenset(on_node), inside)


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
