"""In which order a set of units moves, and where to: tried on a cycle and undone.

A place is reserved before its pod is evicted. So a unit is planned while it still runs, on what the
moves before it have left; then its old place is free. Two pods cannot change places, and a unit may
have to wait for another one to leave. Each unit moves once. Quotas are asked once the old place is
free: a move changes nothing of what they use.

All orders and all nodes are tried, nodes with the least room first: so whole nodes and devices
stay free. What is left decides, not how it came about: each state is tried once.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.defrag.model import MoveStep, PodMove
from koord.core.defrag.movable import make_copies
from koord.core.engine.arrays import Ints
from koord.core.engine.cycle import Cycle, Place
from koord.core.engine.planner import plan
from koord.core.engine.plugin import Admission
from koord.core.engine.scoring import Scoring
from koord.core.engine.state_view import GangView
from koord.core.eviction.model import VictimKind, VictimUnit
from koord.core.eviction.trials import REMOVAL_STEPS, TRIAL_STEPS, Room
from koord.core.model.plan import Assignment, Demand, Placement, Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason

PORTION: Final = 48
"""Rows that are looked at together for room."""
CHECK_STEPS: Final = 30
"""Array operations that take as long as a check whether the units left may find places."""


@dataclass(frozen=True, slots=True)
class MoveSequence:
    """Steps in order, and where the waiting unit goes after them."""

    steps: tuple[MoveStep, ...]
    placement: Placement


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """How units are planned, and how many steps all trials may take together."""

    scoring: Scoring
    most_steps: int


class MoveTrials:
    """Moves of ``units``, tried for one waiting unit on one cycle."""

    def __init__(
        self,
        gangs: GangView,
        cycle: Cycle,
        unit: Unit,
        units: Sequence[VictimUnit],
        options: TrialOptions,
    ) -> None:
        self.cycle = cycle
        self.unit = unit
        self.units = units
        self.room = Room(cycle, unit, units)
        """What is free at the beginning, to which it refers."""
        self._gangs = gangs
        self._options = options
        self._before: Ints = cycle.used.copy()
        vectors = [cycle.vector(want.shape) for want in self.room.wants]
        self._columns = sorted({column for vector in vectors for column in vector.columns})
        self._start = cycle.steps.taken
        self._limits: dict[PodShape, Ints] = {}
        self._failed: set[Hashable] = set()

    @property
    def steps(self) -> int:
        """How many steps of the planner were taken."""
        return self.cycle.steps.taken - self._start

    @property
    def is_over(self) -> bool:
        """Whether the steps are used up."""
        return self.steps > self._options.most_steps

    def is_past(self, share: float) -> bool:
        """Whether more than a share of the steps is used up."""
        return self.steps > self._options.most_steps * share

    def place_waiting(self) -> Placement | Reason:
        """Return where the waiting unit goes as things are; it does not stay there."""
        return self._undone(self.unit)

    def place_without_all(self) -> Placement | Reason:
        """Return where the waiting unit goes if all units were gone."""
        mark = self.cycle.checkpoint()
        self._remove([pod for unit in self.units for pod in unit.pods])
        outcome = self._undone(self.unit)
        self.cycle.rollback(mark)
        return outcome

    def find_sequence(self, chosen: Sequence[int]) -> MoveSequence | None:
        """Return how exactly these units move so that the waiting unit fits; None: they cannot.

        Also None if the steps are used up.
        """
        mark = self.cycle.checkpoint()
        self._failed.clear()
        solution = self._continue((), tuple(chosen))
        self.cycle.rollback(mark)
        return solution

    def _continue(self, done: tuple[MoveStep, ...], left: tuple[int, ...]) -> MoveSequence | None:
        if not left:
            placement = self._undone(self.unit)
            return MoveSequence(done, placement) if isinstance(placement, Placement) else None
        state = frozenset(
            (move.pod.uid, move.target, move.allocations) for step in done for move in step.moves
        )
        if state in self._failed or not self.may_succeed(left):
            return None
        for at in self.hardest_first(left):
            still = tuple(unit for unit in left if unit != at)
            for step in self.steps_of(at):
                solution = self._continue((*done, step), still)
                if solution is not None or self.is_over:
                    return solution
        self._failed.add(state)
        return None

    def may_succeed(self, left: Sequence[int]) -> bool:
        """Whether these units may find places, and the waiting unit one without them, by amounts.

        It may be a mistake that they do, never that they do not.
        """
        cycle, table = self.cycle, self.cycle.table
        cycle.steps.take(cycle.used.shape[1], CHECK_STEPS)
        used = cycle.used.copy()
        counts: Counter[PodShape] = Counter()
        sources: dict[PodShape, set[int]] = {}
        for at in left:
            for pod in self.units[at].pods:
                place = cycle.place_of(pod)
                if place is None:
                    return False
                vector = cycle.vector(pod.shape)
                used[vector.columns, place.row] -= vector.amounts
                counts[pod.shape] += 1
                sources.setdefault(pod.shape, set()).add(place.row)
        freed = (self._before - used)[self._columns]
        if not self.room.is_enough(freed):
            return False
        for shape, count in counts.items():
            if cycle.may_use_held_room(shape):
                continue
            copies = self._limits_of(shape)
            vector = cycle.vector(shape)
            for column, amount in zip(vector.columns, vector.amounts, strict=True):
                copies = np.minimum(copies, (table.allocatable[column] - used[column]) // amount)
            copies = np.maximum(copies, 0)
            (source, *more) = sources[shape]
            own = int(copies[source]) if not more else 0
            if int(copies.sum()) - own < count:
                return False
        return True

    def _limits_of(self, shape: PodShape) -> Ints:
        limits = self._limits.get(shape)
        if limits is None:
            limits = self._limits[shape] = self.cycle.node_limits(shape)
        return limits

    def hardest_first(self, units: Sequence[int]) -> list[int]:
        """Return units in the order in which they are tried: gangs, then the largest pods."""
        return sorted(units, key=lambda at: (-len(self.units[at].pods), self._size_of(at), at))

    def _size_of(self, at: int) -> tuple[int, ...]:
        vector = self.cycle.vector(self.units[at].pods[0].shape)
        amounts = dict(zip(vector.columns, vector.amounts, strict=True))
        return tuple(-amounts.get(column, 0) for column in reversed(self._columns))

    def shape_of(self, at: int) -> PodShape:
        """Return the shape by which the first pod of a unit is planned elsewhere."""
        (copy,) = make_copies(self.units[at].pods[:1])
        self.cycle.expect((copy,))
        return self.cycle.shape_of(copy)

    def steps_of(self, at: int, avoid: Sequence[int] = (), only: int = -1) -> Iterator[MoveStep]:
        """Yield the ways a unit may move now; while one is looked at, the cycle is as after it.

        ``avoid`` are rows that are left out, ``only`` is the one row to try.
        """
        unit = self.units[at]
        for assignments in self._place(unit, avoid, only):
            moves = tuple(
                PodMove(pod, assignment.node, assignment.allocations)
                for pod, assignment in zip(unit.pods, assignments, strict=True)
            )
            # No earlier: what is rolled back here are the old places alone, not the new ones.
            mark = self.cycle.checkpoint()
            self._remove(unit.pods)
            if self._admit([assignment.pod for assignment in assignments]):
                yield MoveStep(unit, moves)
            self.cycle.rollback(mark)
            if self.is_over:
                return

    def _place(
        self, unit: VictimUnit, avoid: Sequence[int], only: int
    ) -> Iterator[list[Assignment]]:
        copies = make_copies(unit.pods)
        sources = [self._row_of(pod) for pod in unit.pods]
        if unit.kind is VictimKind.GANG:
            if self._is_constrained(unit):
                yield from self._place_constrained(unit, copies, sources)
                return
            yield from self._place_each(unit, copies, sources, avoid, only)
            return
        for assignment in self._place_pod(unit, copies[0], sources[0], avoid, only):
            yield [assignment]

    def _place_each(
        self,
        unit: VictimUnit,
        copies: Sequence[Pod],
        sources: Sequence[int],
        avoid: Sequence[int],
        only: int,
    ) -> Iterator[list[Assignment]]:
        """Place the members of a gang one by one; all of them run meanwhile."""
        at = len(sources) - len(copies)
        for first in self._place_pod(unit, copies[0], sources[at], avoid, only):
            if len(copies) == 1:
                yield [first]
                continue
            for further in self._place_each(unit, copies[1:], sources, avoid, only):
                yield [first, *further]
                if self.is_over:
                    return

    def _place_constrained(
        self, unit: VictimUnit, copies: Sequence[Pod], sources: Sequence[int]
    ) -> Iterator[list[Assignment]]:
        """Place a gang as the planner does, which knows its constraints, on other nodes."""
        demands: dict[str, list[Pod]] = {}
        for copy in copies:
            demands.setdefault(copy.gang.key if copy.gang else "", []).append(copy)
        made = Unit(
            f"{unit.key}:moved",
            tuple(Demand(gang, tuple(pods), len(pods)) for gang, pods in demands.items()),
            unit.group,
            unit.priority,
        )
        allowed = np.ones(self.cycle.used.shape[1], dtype=bool)
        allowed[list(sources)] = False
        mark = self.cycle.checkpoint()
        self.cycle.expect(copies)
        restriction = {self.cycle.shape_of(copy): allowed for copy in copies}
        with self.cycle.only(restriction), self.cycle.without_admission():
            placement = self._plan(made)
        if isinstance(placement, Placement):
            by_uid = {assignment.pod.uid: assignment for assignment in placement.assignments}
            yield [by_uid[copy.uid] for copy in copies]
        self.cycle.rollback(mark)

    def _place_pod(
        self, unit: VictimUnit, copy: Pod, source: int, avoid: Sequence[int], only: int
    ) -> Iterator[Assignment]:
        """Yield places of one pod on other nodes; while one is looked at, it is taken."""
        cycle = self.cycle
        cycle.expect((copy,))
        shape = cycle.shape_of(copy)
        for row in self._rows_for(shape, source, avoid, only):
            mark = cycle.checkpoint()
            assignment = self._place_on(unit, copy, shape, row)
            if assignment is not None:
                yield assignment
            cycle.rollback(mark)
            if self.is_over:
                return

    def _place_on(
        self, unit: VictimUnit, copy: Pod, shape: PodShape, row: int
    ) -> Assignment | None:
        """Place a pod on a row with room, as the planner does."""
        cycle = self.cycle
        if copy.gang is None and not copy.attraction:
            return self._reserve(copy, shape, row)
        allowed = np.zeros(cycle.used.shape[1], dtype=bool)
        allowed[row] = True
        gang = copy.gang.key if copy.gang is not None else ""
        made = Unit(copy.uid, (Demand(gang, (copy,), 1),), unit.group, copy.priority)
        with cycle.only({shape: allowed}), cycle.without_admission():
            placement = self._plan(made)
        return placement.assignments[0] if isinstance(placement, Placement) else None

    def _reserve(self, copy: Pod, shape: PodShape, row: int) -> Assignment | None:
        """Place a pod that nothing ties to others without looking at other rows."""
        cycle = self.cycle
        cycle.steps.take(0, REMOVAL_STEPS)
        node = cycle.table.node_at(row).name
        if copy.exceeded_limit is not None or shape.needs_kube_scheduler:
            return None
        if cycle.blocking_reasons((copy,)):
            return None
        if not cycle.needs_reserve(shape):
            cycle.place(shape, row)
            cycle.note_places((copy,), (node,))
            return Assignment(copy, node)
        place = cycle.reserve(copy, shape, row)
        return Assignment(copy, node, place.allocations) if isinstance(place, Place) else None

    def _rows_for(
        self, shape: PodShape, source: int, avoid: Sequence[int], only: int
    ) -> Iterator[int]:
        """Yield the rows with room for a pod, in the order in which they are tried.

        Those where the waiting unit would find room come last, those with the least room first.
        Whether there is room is looked at in portions: most pods need few rows.
        """
        cycle, table = self.cycle, self.cycle.table
        rows = np.flatnonzero(self._limits_of(shape)) if only < 0 else np.array([only])
        ratio = np.full(rows.size, np.inf)
        vector = cycle.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            free = table.allocatable[column, rows] - cycle.used[column, rows]
            ratio = np.minimum(ratio, free / amount)
        if not cycle.may_use_held_room(shape):
            rows, ratio = rows[ratio >= 1], ratio[ratio >= 1]
        freed = (self._before - cycle.used)[self._columns]
        serves = np.zeros(cycle.used.shape[1], dtype=bool)
        for want in self.room.wants:
            serves |= self.room.copies(want, freed) > 0
        rows = rows[np.lexsort((table.name_rank[rows], ratio, serves[rows]))]
        rows = rows[~np.isin(rows, [source, *avoid])]
        for first in range(0, rows.size, PORTION):
            portion = rows[first : first + PORTION]
            yield from portion[cycle.bounds(shape, portion) > 0].tolist()

    def _is_constrained(self, unit: VictimUnit) -> bool:
        gangs = {pod.gang.key for pod in unit.pods if pod.gang is not None}
        specs = [self._gangs.spec(gang) for gang in gangs]
        return any(
            spec is not None and (spec.topology is not None or spec.sub_groups is not None)
            for spec in specs
        )

    def _row_of(self, pod: Pod) -> int:
        place = self.cycle.place_of(pod)
        return -1 if place is None else place.row

    def _admit(self, copies: Sequence[Pod]) -> bool:
        """Charge new places to the quotas that the old ones have just left."""
        demands = tuple(Demand("", (copy,), 1) for copy in copies)
        unit = Unit(copies[0].uid, demands)
        return all(
            isinstance(session.pre_filter(unit), Admission) for session in self.cycle.pre_filtering
        )

    def _remove(self, pods: Sequence[Pod]) -> None:
        self.cycle.steps.take(0, REMOVAL_STEPS * len(pods))
        self.cycle.remove(pods)

    def _undone(self, unit: Unit) -> Placement | Reason:
        mark = self.cycle.checkpoint()
        outcome = self._plan(unit)
        self.cycle.rollback(mark)
        return outcome

    def _plan(self, unit: Unit) -> Placement | Reason:
        self.cycle.steps.take(0, TRIAL_STEPS)
        outcome = plan(self.cycle, (unit,), self._options.scoring)
        return outcome.placements[0] if outcome.placements else outcome.refusals[0].reason
