"""What becomes of everything that waits, planned once for units that ask for the same.

A unit is decided from what it asks for and from what those before it have taken. So when one is
refused, those that ask for exactly the same are refused for the same reason, until something is
placed: they need not be planned. Of ten thousand waiting units few ask for anything else.

What asks for the same is decided here. How a unit is planned is up to the planner; where turns
depend on what starts (queue policies), all are planned, in one piece.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.engine.cycle import Cycle
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.safe_planner import plan_safely
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Demand, Placement, Unit, UnitKey
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.quota.reasons import QuotaExceeded
from koord.core.quota.session import QuotaSession
from koord.core.topology.reasons import NoDomainFits
from koord.isolation import Isolation

_WINDOW: Final = 64
"""Units that are looked at together, at first and after something was placed."""
_MOST_IN_WINDOW: Final = 16_384
_UNUSUAL: Final = frozenset({Handling.STAND_IN, Handling.RESERVE})
"""Pods that stand for others: each is planned."""
_ISOLATED: Final = Isolation("answers")
_SHARED_REASONS: Final = (InsufficientNodes, NoDomainFits, QuotaExceeded)
"""Reasons that follow from what a unit asks for alone; others may be about one pod."""


@dataclass(frozen=True, slots=True)
class PlannedUnits:
    """What one plan of waiting units came to. ``left`` were not decided: there was no time.

    ``alike`` are units that were not planned, each with the one whose refusal is theirs.
    """

    placements: tuple[Placement, ...]
    refusals: Mapping[UnitKey, Reason]
    alike: Mapping[UnitKey, Unit]
    left: frozenset[UnitKey] = frozenset()

    def count_placed(self) -> Counter[UnitKey]:
        """Return unit -> how many of its pods get nodes."""
        placed: Counter[UnitKey] = Counter()
        for placement in self.placements:
            placed[placement.unit] += len(placement.assignments)
        return placed

    def reason_of(self, unit: Unit) -> Reason | None:
        """Return why a unit, or the rest of it, was refused, with the names of its own pods."""
        reason = self.refusals.get(unit.key)
        return None if reason is None else self.tell_as_its_own(unit, reason)

    def tell_as_its_own(self, unit: Unit, reason: Reason) -> Reason:
        """Return the reason of the unit that was planned, with the names of a unit's own pods."""
        like = self.alike.get(unit.key)
        return reason if like is None else _tell_of(unit, reason, like)

    def complete(
        self, units: Iterable[Unit], add: Callable[[Unit, Reason], Reason]
    ) -> dict[UnitKey, Reason]:
        """Return why units were refused, with what ``add`` knows of it: asked once for all alike.

        Units are in the order in which they were planned.
        """
        completed: dict[UnitKey, Reason] = {}
        for unit in units:
            reason, like = self.refusals.get(unit.key), self.alike.get(unit.key)
            if reason is not None and like is None:
                completed[unit.key] = _ISOLATED.call(unit.key, add, unit, reason) or reason
            elif like is not None:
                completed[unit.key] = _tell_of(unit, completed[like.key], like)
        return completed


def plan_waiting(
    cycle: Cycle,
    state: ClusterState,
    units: Sequence[Unit],
    scoring: Scoring,
    is_over: Callable[[], bool] = lambda: False,
) -> PlannedUnits:
    """Plan units, which are in order, on a cycle of the state; once ``is_over``, no further one."""
    run = _WaitingPlan(cycle, state, scoring, is_over)
    cycle.expect([pod for unit in units for pod in unit.pods])
    if cycle.ordering is not None:
        run.plan([(unit, None) for unit in units])
    else:
        run.decide(units)
    placed = {placement.unit for placement in run.placements}
    left = (unit.key for unit in units) if run.is_stopped else ()
    undecided = frozenset(key for key in left if key not in placed and key not in run.refusals)
    return PlannedUnits(tuple(run.placements), run.refusals, run.alike, undecided)


@dataclass(frozen=True, slots=True)
class _RememberedPlan:
    """What one plan of units came to; as long as nothing has changed it holds."""

    units: Sequence[Unit]
    planned: PlannedUnits


def remember_plan(state: ClusterState, units: Sequence[Unit], planned: PlannedUnits) -> None:
    """Keep the plan of all that waits in a state, for the next question about it."""
    state.followers[_RememberedPlan] = _RememberedPlan(units, planned)


def recall_plan(state: ClusterState, units: Sequence[Unit]) -> PlannedUnits | None:
    """Return the plan of these very units; None if there is none, or something was left out.

    Whoever changes nodes or quotas of a state, and no unit, must not ask.
    """
    kept = state.followers.get(_RememberedPlan)
    if not isinstance(kept, _RememberedPlan) or kept.units is not units or kept.planned.left:
        return None
    return kept.planned


_Batch = list[tuple[Unit, Hashable | None]]
"""Units that are planned together, each with what it asks for."""


class _WaitingPlan:
    """One pass over units in order."""

    def __init__(
        self, cycle: Cycle, state: ClusterState, scoring: Scoring, is_over: Callable[[], bool]
    ) -> None:
        self.placements: list[Placement] = []
        self.refusals: dict[UnitKey, Reason] = {}
        self.alike: dict[UnitKey, Unit] = {}
        self.is_stopped = False
        self._cycle, self._state, self._scoring, self._is_over = cycle, state, scoring, is_over
        self._refused: dict[Hashable, Unit] = {}
        """What was asked for in vain since something was placed -> the first unit that did."""
        self._repeats = 1
        """So many units that ask for the same are planned together."""
        self._window = _WINDOW
        cycle.before_unit = self._look_at_clock

    def decide(self, units: Sequence[Unit]) -> None:
        at = 0
        while at < len(units) and not self.is_stopped:
            at += self._decide_first(units[at : at + self._window])

    def _decide_first(self, units: Sequence[Unit]) -> int:
        """Decide units until something is placed; return how many."""
        kinds = find_kinds(self._cycle, self._state, units)
        granted, batch, counts = self._granted(), _Batch(), Counter[Hashable]()
        for at, (unit, kind) in enumerate(zip(units, kinds, strict=True)):
            like = None if kind is None or unit.key in granted else self._refused.get(kind)
            if batch and (like is not None or (kind and counts[kind] >= self._repeats)):
                if self.plan(batch) or self.is_stopped:
                    return at
                granted, batch, counts = self._granted(), _Batch(), Counter()
                like = None if kind is None or unit.key in granted else self._refused.get(kind)
            if like is not None:
                self._refuse_like(unit, like)
                continue
            batch.append((unit, kind))
            counts[kind] += 1
        if not (batch and self.plan(batch)):
            self._window = min(2 * self._window, _MOST_IN_WINDOW)
        return len(units)

    def plan(self, batch: Sequence[tuple[Unit, Hashable | None]]) -> bool:
        """Plan units; return whether something was placed."""
        outcome = plan_safely(self._cycle, [unit for unit, _ in batch], self._scoring)
        self.placements += outcome.placements
        self.refusals |= {refusal.unit: refusal.reason for refusal in outcome.refusals}
        placed = {placement.unit for placement in outcome.placements}
        is_anything_placed = bool(placed)
        if is_anything_placed:
            self._refused.clear()
            is_all = len(placed) == len(batch)
            self._repeats = 2 * self._repeats if is_all else 1
            self._window = max(_WINDOW, 2 * self._repeats)
        granted = self._granted()
        for unit, kind in reversed(batch):
            if unit.key in placed:
                break
            if kind is None or unit.key in granted:
                continue  # what has more than its share is refused by nodes, and others by quotas
            if isinstance(self.refusals.get(unit.key), _SHARED_REASONS):
                self._refused[kind] = unit
        return is_anything_placed

    def _refuse_like(self, unit: Unit, like: Unit) -> None:
        """Refuse a unit as one that asks for the same, unless it may not be planned at all."""
        not_now = self._cycle.not_now(unit)
        if not_now is None:
            self.alike[unit.key] = like
        self.refusals[unit.key] = not_now or self.refusals[like.key]

    def _granted(self) -> Collection[UnitKey]:
        """Return the units that quotas let start beyond their shares: they are like no other."""
        session = self._cycle.find_session(QuotaSession)
        return () if session is None else session.granted

    def _look_at_clock(self, _: Unit) -> None:
        if not self.is_stopped and self._is_over():
            self.is_stopped = True
            self._cycle.steps.most = -1.0


# --- what units ask for -----------------------------------------------------------------------


def find_kinds(cycle: Cycle, state: ClusterState, units: Sequence[Unit]) -> list[Hashable | None]:
    """Return what each unit asks for, as far as it decides; None: it has something of its own.

    Everything by which a unit may be decided, other than names and times, is part of it.
    """
    pods = [pod for unit in units for pod in unit.pods]
    kinds = iter(_find_kinds_of_pods(cycle, state, pods))
    return [_find_kind(unit, [next(kinds) for _ in unit.pods]) for unit in units]


def _find_kind(unit: Unit, kinds: Sequence[Hashable | None]) -> Hashable | None:
    if unit.is_repair or None in kinds or len(unit.demands) != 1:
        return None
    (demand,) = unit.demands
    if not demand.gang:
        return kinds[0] if len(kinds) == 1 else None
    # Members that differ are placed by index and name.
    if len(set(kinds)) != 1 or not _is_plain(demand):
        return None
    size = len(kinds), demand.required, demand.min_member
    return kinds[0], size, demand.constraint, demand.is_held, demand.run


def _is_plain(demand: Demand) -> bool:
    """Whether a gang starts as a whole, and on its own."""
    return not (
        demand.placed
        or demand.placed_there
        or demand.sub_groups is not None
        or demand.native is not None
        or len(demand.placed_with) > 1
    )


def _find_kinds_of_pods(
    cycle: Cycle, state: ClusterState, pods: Sequence[Pod]
) -> Iterable[Hashable | None]:
    quotas = state.quotas
    is_in_use, refused = quotas.is_in_use, quotas.exceeding_submissions
    for pod, shape in zip(pods, cycle.shapes_of(pods), strict=True):
        if _is_unusual(pod):
            yield None
            continue
        charge = (quotas.quota_of(pod), quotas.requests_of(pod)) if is_in_use else None
        yield _describe(pod, shape), charge, refused.get(pod.uid) if refused else None


def _is_unusual(pod: Pod) -> bool:
    """Whether a pod has something that no other has."""
    return bool(
        pod.recorded is not None
        or pod.claims
        or pod.nominated is not None
        or pod.exceeded_limit is not None
        or pod.kueue_node is not None
        or pod.reserved_node
        or pod.pinned
        or pod.handling in _UNUSUAL
    )


def _describe(pod: Pod, shape: PodShape) -> Hashable:
    return (
        shape,
        pod.namespace,
        pod.priority,
        pod.handling,
        pod.quota,
        pod.is_non_preemptible,
        pod.extensions,
        pod.attraction,
    )


# --- reasons -----------------------------------------------------------------------------------


def _tell_of(unit: Unit, reason: Reason, like: Unit) -> Reason:
    """Return the reason of one unit as that of another one which asks for the same."""
    if isinstance(reason, InsufficientNodes):
        return replace(reason, first=_counterpart(unit, reason.first, like))
    if isinstance(reason, NoDomainFits):
        first = _counterpart(unit, reason.shortage.first, like)
        return replace(reason, shortage=replace(reason.shortage, first=first))
    return reason


def _counterpart(unit: Unit, name: str, like: Unit) -> str:
    """Return the pod of a unit that has the place of a pod in another one."""
    at = next((at for at, pod in enumerate(like.pods) if pod.key == name), 0)
    return unit.pods[at].key
