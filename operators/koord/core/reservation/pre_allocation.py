"""Pre-allocation: a reservation takes in pods that run already, and holds what they leave.

Which of the candidates on a node are taken in is decided without objects. ``free`` is what is left
on the node; a reservation fits if it has room there without what the chosen pods use already. The
candidates of one planning cycle are found last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.engine.cycle import Cycle
from koord.core.model.pods import Handling, Pod
from koord.core.model.units import Amounts
from koord.core.reservation.choice import MAX_SCORE, score
from koord.core.reservation.ledger import (
    InsufficientResource,
    ReservationAccount,
    add_up,
    lacks_inside,
    lacks_on_node,
)
from koord.core.reservation.matching import judge
from koord.core.reservation.model import (
    NAME,
    NO_HINTS,
    PRE_ALLOCATABLE,
    Owner,
    PreAllocation,
    ReservationHints,
    ReservationInfo,
    ReservationState,
    ReservationUse,
)


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that may be taken in; of those of the whole cluster, a higher ``priority`` is first."""

    uid: str
    requests: Amounts
    priority: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True)
class PreAllocationChoice:
    """Sets of pods to take in, the best one first, with their points; or what is lacking.

    The empty set: the reservation is placed as any other. ``is_open``: whether it fits then is for
    others to say.
    """

    sets: Sequence[tuple[RunningPod, ...]] = ()
    points: int = 0
    on_node: frozenset[str] = frozenset()
    inside: tuple[InsufficientResource, ...] = ()
    is_open: bool = False


NONE_THERE: Final = PreAllocationChoice()


def choose(
    pre_allocation: PreAllocation,
    account: ReservationAccount,
    free: Amounts,
    candidates: Iterable[RunningPod],
) -> PreAllocationChoice:
    """Return which pods of a node a reservation takes in; ``account`` is what it asks for."""
    there = list(candidates)
    lacking = lacks_on_node(account.reserved, free)
    if pre_allocation.prefers_none and not pre_allocation.is_required:
        if not lacking:
            return PreAllocationChoice(((),), MAX_SCORE)
        if not there:
            return PreAllocationChoice(on_node=frozenset(lacking))
    if not there:
        return (
            NONE_THERE
            if pre_allocation.is_required
            else PreAllocationChoice(points=MAX_SCORE, is_open=True)
        )
    if pre_allocation.takes_many:
        return _choose_many(pre_allocation, account, free, there)
    return _choose_one(pre_allocation, account, free, there)


def _choose_one(
    pre_allocation: PreAllocation,
    account: ReservationAccount,
    free: Amounts,
    candidates: list[RunningPod],
) -> PreAllocationChoice:
    fitting, on_node, inside = list[RunningPod](), set[str](), list[InsufficientResource]()
    for candidate in candidates:
        missing = lacks_on_node(account.reserved, add_up((free, candidate.requests)))
        lacks = lacks_inside(candidate.requests, account)
        on_node.update(missing)
        inside += lacks
        if not missing and not lacks:
            fitting.append(candidate)
    ordered = _in_order(pre_allocation, account, fitting)
    if not ordered:
        return PreAllocationChoice(on_node=frozenset(on_node), inside=tuple(inside))
    return PreAllocationChoice(
        [(running_pod,) for running_pod in ordered], score(ordered[0].requests, account)
    )


def _in_order(
    pre_allocation: PreAllocation, account: ReservationAccount, candidates: Iterable[RunningPod]
) -> list[RunningPod]:
    def rank(running_pod: RunningPod) -> tuple[int, str]:
        first = (
            running_pod.priority
            if pre_allocation.is_clusterwide
            else score(running_pod.requests, account)
        )
        return -first, running_pod.uid

    return sorted(candidates, key=rank)


def _choose_many(
    pre_allocation: PreAllocation,
    account: ReservationAccount,
    free: Amounts,
    candidates: list[RunningPod],
) -> PreAllocationChoice:
    """Take pods in until the reservation fits; those that do not fit in it are left out."""
    chosen: list[RunningPod] = []
    total: dict[str, int] = {}
    for running_pod in _in_order(pre_allocation, account, candidates):
        after = add_up((total, running_pod.requests))
        if any(n > account.reserved[name] for name, n in after.items() if name in account.reserved):
            continue
        chosen.append(running_pod)
        total = after
        if not lacks_on_node(account.reserved, add_up((free, total))):
            return PreAllocationChoice((tuple(chosen),), MAX_SCORE // (1 + len(chosen)))
    lacking = lacks_on_node(account.reserved, add_up((free, total)))
    return PreAllocationChoice(on_node=frozenset(lacking))


class RunningPods:
    """The running pods that reservations may take in, as of one cycle.

    ``used_by`` returns what a pod (uid) uses of a reservation; ``compat``: owners are selected in
    all namespaces.
    """

    def __init__(
        self,
        cycle: Cycle,
        pods: Mapping[str, Pod],
        used_by: Callable[[str], ReservationUse | None],
        *,
        compat: bool,
    ) -> None:
        self._cycle, self._pods = cycle, pods
        self._used_by, self._compat = used_by, compat
        self._by_row: dict[str, dict[int, list[RunningPod]]] = {}
        """Reservation -> the candidates on each row."""

    def options(
        self, reservation: ReservationInfo, rows: Iterable[int]
    ) -> dict[int, PreAllocationChoice]:
        """Return which pods a reservation would take in on rows that have candidates."""
        pre_allocation, pod = reservation.pre_allocation, reservation.pod
        if pre_allocation is None or pod is None:
            return {}
        account = ReservationAccount(
            replace(reservation, status=ReservationState(allocatable=reservation.requests()))
        )
        candidates = self._candidates(reservation, pre_allocation)
        charged = {
            row: [
                running_pod
                for running_pod in candidates[row]
                if self._cycle.is_charged(running_pod.uid)
            ]
            for row in rows
            if row in candidates
        }
        return {
            row: choose(pre_allocation, account, self._free(row), running_pods)
            for row, running_pods in charged.items()
        }

    def _free(self, row: int) -> dict[str, int]:
        table, used = self._cycle.table, self._cycle.used
        columns = table.columns.items()
        return {name: int(table.allocatable[at, row] - used[at, row]) for name, at in columns}

    def _candidates(
        self, reservation: ReservationInfo, pre_allocation: PreAllocation
    ) -> Mapping[int, list[RunningPod]]:
        candidates = self._by_row.get(reservation.uid)
        if candidates is None:
            candidates = self._by_row[reservation.uid] = {}
            for pod in self._pods.values():
                row = self._cycle.table.row_of.get(pod.node, -1)
                if row >= 0 and self._may_take(reservation, pre_allocation, pod, row):
                    rank = _hints_of(pod).rank
                    candidate = RunningPod(pod.uid, dict(pod.shape.requests), rank, pod.key)
                    candidates.setdefault(row, []).append(candidate)
        return candidates

    def _may_take(
        self, reservation: ReservationInfo, pre_allocation: PreAllocation, pod: Pod, row: int
    ) -> bool:
        """Whether a reservation may take in a pod; its record must be one of the operators."""
        if pod.recorded is None or pod.handling is Handling.RESERVE or not pod.is_alive:
            return False
        use = self._used_by(pod.uid)
        if use is not None and use.uid != reservation.uid:
            return False
        owners = tuple(owner for owner in reservation.owners if owner.selector is not None)
        if pre_allocation.is_clusterwide:
            if pod.profile.labels.get(PRE_ALLOCATABLE) != "true":
                return False
            owners = (Owner(selector=()),)
        status = ReservationState(allocatable=reservation.requests())
        like = replace(reservation, owners=owners, is_unschedulable=False, status=status)
        labels = self._cycle.table.node_at(row).labels
        every_namespace = self._compat or pre_allocation.is_clusterwide
        return judge(pod, _hints_of(pod), like, labels, every_namespace=every_namespace).may_use


def _hints_of(pod: Pod) -> ReservationHints:
    hints = next((extension for name, extension in pod.extensions if name == NAME), NO_HINTS)
    return hints if isinstance(hints, ReservationHints) else NO_HINTS
