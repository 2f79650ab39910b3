"""Pre-allocation: a reservation takes in pods that run already, and holds what they leave.

Which of the candidates on a node are taken in, without objects. ``free`` is what is left on the
node; a reservation fits if it has room there without what the chosen pods use already.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koord.core.model.units import Amounts
from koord.core.reservation.choice import MAX_SCORE, score
from koord.core.reservation.ledger import (
    InsufficientResource,
    ReservationAccount,
    add_up,
    lacks_inside,
    lacks_on_node,
)
from koord.core.reservation.model import PreAllocation


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
