"""The search for moves: which units move where so that a waiting unit fits.

The objective is the number of pods that move, then what evicting them would cost. The only judge of
a fit is the planner, on a cycle of its own. Nothing is moved here.

The exact search takes sets of units level by level, by the number of their pods, and in the order
of their cost within a level. Costs only grow with a set, so the first set that can move, in some
order and to some nodes, is the best one. Sets from which too few moves are left, by bounds, are not
extended. On large clusters a quick search finds moves first, for the case that the steps of the
exact one are used up: it empties one node after the other, and moves others out of the way of those
that find no place.
"""

import heapq
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from koord.core.defrag.bounds import NEVER, MoveBounds
from koord.core.defrag.model import MoveCost, MovePlan, MoveProof
from koord.core.defrag.movable import Movable, find_movable
from koord.core.defrag.quick import find_quickly
from koord.core.defrag.reasons import (
    MovesDoNotApply,
    MovesNotHelpful,
    MovesNotSearched,
    NoRoomToMove,
    NothingMayMove,
)
from koord.core.defrag.sequence import MoveSequence, MoveTrials, TrialOptions
from koord.core.device.occupancy import find_occupancy
from koord.core.device.plugin import Devices
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.mobility import Mobility
from koord.core.eviction.model import NOBODY, Cost, Costs, Exempt, Moment, VictimKind, VictimUnit
from koord.core.eviction.search import NO_CONTEXT, PreemptionContext
from koord.core.migration.model import MigrationOptions
from koord.core.model.plan import Placement, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

MOST_STEPS: Final = 130_000_000
"""Steps of the planner that one search may take: about a second."""
MOST_MOVES: Final = 64
"""Pods that move for one unit at most, unless an administrator says less."""
FEW_UNITS: Final = 12
"""Up to so many units all sets are tried at once."""
SET_STEPS: Final = 20
"""Array operations that take as long as one set."""
_SEVERAL_PODS: Final = 3
"""So many times the steps a search may take for several pods: they are of the kind that takes less
time. Only the quick search takes them all: sets for several nodes are too many to be tried."""
_FIRST_SHARE: Final = 0.3
_QUICK_SHARE: Final = 0.7
_MOST_TRIED: Final = 6
"""Moves of which all orders and places are tried to spare another one."""


@dataclass(frozen=True, slots=True)
class DefragOptions:
    """Settings of the search; ``min_runtime`` and ``max_per_day`` as in ``Moment``."""

    min_runtime: float = 0.0
    max_per_day: int = 0
    most_moves: int = MOST_MOVES
    most_steps: int = MOST_STEPS
    scoring: Scoring = field(default_factory=Scoring)
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    """Which pods jobs move."""


DEFAULT_OPTIONS: Final = DefragOptions()


def plan_moves(
    state: ClusterState,
    unit: Unit,
    options: DefragOptions = DEFAULT_OPTIONS,
    exempt: Exempt = NOBODY,
    context: PreemptionContext = NO_CONTEXT,
) -> MovePlan | Reason:
    """Return the fewest and cheapest moves after which a unit fits, or why there are none."""
    state.refresh()
    moment = Moment(context.now, options.min_runtime, options.max_per_day)
    costs = Costs(context.budgets)
    mobility = Mobility(state, options.migration)
    movable = find_movable(state, unit, costs, replace(exempt, moment=moment), mobility)
    with closing(state.open_cycle(context.pending)) as cycle:
        if context.prepare is not None:
            context.prepare(cycle)
        # What leaves anyway makes room by itself; moves are for what is missing then.
        cycle.remove(movable.terminating)
        limits = TrialOptions(options.scoring, _times_of(unit) * options.most_steps)
        trials = MoveTrials(state.gangs, cycle, unit, movable.units, limits)
        occupancy_of = partial(find_occupancy, state.plugin(Devices), cycle)
        bounds = MoveBounds(trials.room, movable.units, occupancy_of)
        return _Search(trials, bounds, movable, costs, options.most_moves).run()


def _times_of(unit: Unit) -> int:
    return _SEVERAL_PODS if len(unit.pods) > 1 else 1


@dataclass(frozen=True, slots=True)
class _Solution:
    chosen: tuple[int, ...]
    sequence: MoveSequence
    cost: MoveCost


_NO_COST: Final = MoveCost(0, Costs(()).of(()))


class _Search:
    def __init__(
        self,
        trials: MoveTrials,
        bounds: MoveBounds,
        movable: Movable,
        costs: Costs,
        most_moves: int,
    ) -> None:
        self._trials = trials
        self._movable = movable
        self._units = movable.units
        self._costs = costs
        self._most = most_moves
        self._exact_share = 1 / _times_of(trials.unit)
        """Until this part of the steps is used up, sets are tried."""
        self._bounds = bounds
        self._twins = _find_twins(self._units)
        self._best: _Solution | None = None

    def run(self) -> MovePlan | Reason:
        before = self._trials.place_waiting()
        if isinstance(before, Placement):
            nothing = _Solution((), MoveSequence((), before), _NO_COST)
            return self._conclude(nothing, is_cheapest=True)
        return self._find_hopeless(before) or self._find()

    def _find(self) -> MovePlan | Reason:
        level = max(self._bounds.least(()), 1)
        if len(self._units) > FEW_UNITS and level <= self._most:
            # Of several nodes there are too many combinations to begin with all of them.
            if len(self._trials.unit.pods) > 1:
                self._try_quickly(level)
            elif self._search_level(level, _FIRST_SHARE):
                if self._best is not None:
                    return self._conclude(self._best, is_cheapest=True)
                level += 1
            if self._best is None:
                self._try_quickly(level)
        while level <= self._last_level() and self._search_level(level, self._exact_share):
            if self._best is not None and self._best.cost.pods == level:
                return self._conclude(self._best, is_cheapest=True)
            level += 1
        if self._best is None:
            return self._explain(level)
        is_fewest = level >= self._best.cost.pods
        return self._conclude(self._best, is_fewest=is_fewest, is_cheapest=False)

    def _last_level(self) -> int:
        most = min(self._most, sum(self._bounds.pods))
        return most if self._best is None else min(most, self._best.cost.pods)

    def _find_hopeless(self, before: Reason) -> Reason | None:
        """Return why no moves help, if that is plain."""
        if not before.is_capacity:
            return MovesDoNotApply(before)
        protected = self._movable.protected
        pods = sum(self._bounds.pods)
        if not self._units:
            running = sum(count for _, count in protected)
            return NothingMayMove(running, before, protected)
        if self._bounds.least(()) >= NEVER:
            without = self._trials.place_without_all()
            reason = before if isinstance(without, Placement) else without
            return MovesNotHelpful(pods, reason, protected)
        return None

    def _explain(self, level: int) -> Reason:
        """Say why there are no moves: those of fewer pods than ``level`` were all tried."""
        pods = sum(self._bounds.pods)
        without = self._trials.place_without_all()
        if not isinstance(without, Placement):
            return MovesNotHelpful(pods, without, self._movable.protected)
        if self._trials.is_past(self._exact_share):
            return MovesNotSearched(pods, level, self._trials.steps)
        return NoRoomToMove(pods, level, self._most if self._most < pods else 0)

    def _try_quickly(self, least: int) -> None:
        moves = find_quickly(self._trials, self._bounds, least, self._most, _QUICK_SHARE)
        if moves is None or self._costs.count_violations(self._pods_of(moves.chosen)):
            return
        self._best = self._solution_of(moves.chosen, moves.sequence)
        for at in sorted(moves.chosen, reverse=True):
            fewer = tuple(unit for unit in self._best.chosen if unit != at)
            if len(fewer) > _MOST_TRIED or self._bounds.least(fewer):
                continue
            if self._trials.is_past(_QUICK_SHARE):
                break
            sequence = self._trials.find_sequence(fewer)
            if sequence is not None:
                self._best = self._solution_of(fewer, sequence)

    def _search_level(self, level: int, share: float) -> bool:
        """Search all sets of ``level`` pods; return whether none cheaper is left than the best."""
        heap: list[tuple[Cost, tuple[int, ...]]] = [(self._costs.of(()), ())]
        while heap:
            cost, chosen = heapq.heappop(heap)
            if self._best is not None and MoveCost(level, cost) >= self._best.cost:
                return True
            if self._trials.is_past(share):
                return False
            pods = sum(self._bounds.pods[at] for at in chosen)
            if pods == level:
                sequence = self._trials.find_sequence(chosen)
                if sequence is not None:
                    self._best = self._solution_of(chosen, sequence)
                    return True
                continue
            for at in self._extend(chosen, level - pods):
                more = self._costs.add(
                    cost, [self._units[unit] for unit in chosen], self._units[at]
                )
                if not more.violations:
                    heapq.heappush(heap, (more, (*chosen, at)))
        return not self._trials.is_past(share)

    def _extend(self, chosen: tuple[int, ...], left: int) -> Iterator[int]:
        """Yield the units after those of a set with which ``left`` moves may be enough."""
        bounds, steps = self._bounds, self._trials.cycle.steps
        spare = left - bounds.least(chosen)
        first = chosen[-1] + 1 if chosen else 0
        units: Sequence[int] = range(first, len(self._units))
        if spare <= 0:  # Each further unit has to make room where it is missing.
            near = {at for row in bounds.near_rows(chosen, left) for at in bounds.units_on(row)}
            units = sorted(at for at in near if at >= first)
        for at in units:
            steps.take(0, SET_STEPS)
            pods, twin = bounds.pods[at], self._twins[at]
            if pods > left or (twin is not None and twin not in chosen):
                continue
            if pods > spare and bounds.least((*chosen, at)) > left - pods:
                continue
            if not self._is_twice(chosen, at):
                yield at

    def _is_twice(self, chosen: Collection[int], at: int) -> bool:
        """Whether a member would move alone and with its gang."""
        unit = self._units[at]
        return bool(unit.group) and any(
            self._units[other].group == unit.group
            and VictimKind.GANG in {unit.kind, self._units[other].kind}
            for other in chosen
        )

    def _solution_of(self, chosen: tuple[int, ...], sequence: MoveSequence) -> _Solution:
        units = [self._units[at] for at in chosen]
        cost = MoveCost(sum(len(unit.pods) for unit in units), self._costs.of(units))
        return _Solution(chosen, sequence, cost)

    def _pods_of(self, chosen: Collection[int]) -> list[Pod]:
        return [pod for at in chosen for pod in self._units[at].pods]

    def _conclude(
        self, solution: _Solution, *, is_fewest: bool = True, is_cheapest: bool
    ) -> MovePlan:
        proof = MoveProof(
            is_minimal=is_fewest,
            is_fewest=is_fewest,
            is_cheapest=is_cheapest,
            steps=self._trials.steps,
        )
        unit, sequence = self._trials.unit, solution.sequence
        return MovePlan(unit.key, sequence.steps, sequence.placement, solution.cost, proof)


def _find_twins(units: Sequence[VictimUnit]) -> list[int | None]:
    """Return, per unit, the one before it that is equal in everything that decides."""
    last: dict[Hashable, int] = {}
    twins: list[int | None] = []
    for at, unit in enumerate(units):
        kind = _kind_of(unit)
        twins.append(None if kind is None else last.get(kind))
        if kind is not None:
            last[kind] = at
    return twins


def _kind_of(unit: VictimUnit) -> Hashable | None:
    """Return what is equal for interchangeable units; None if a unit is like no other."""
    pod = unit.pods[0]
    is_plain = not (pod.allocations or pod.claims or pod.attraction or pod.extensions)
    if unit.kind not in {VictimKind.POD, VictimKind.SURPLUS} or not is_plain:
        return None
    where = pod.namespace, pod.planned_node, pod.shape, tuple(sorted(pod.profile.labels.items()))
    cost = unit.priority, unit.doubts, unit.work, unit.group
    return where, cost, pod.quota
