"""Makes a set of victims better: nobody too many, then nobody cheaper.

Reprieve: units are put back, the dearest first, until none of them can be spared. Three tests for a
unit, the quickest first: whether it fits beside the pods that took its room; whether bounds say
that it is needed; and what the planner says without it.

The exact search: sets of units in the order of their cost, until the waiting unit fits. Costs only
grow with a set, so the first set that fits is the cheapest. Sets are left out that bounds exclude
with whatever is added to them, that must not go together, or that differ from another one only in
which of several equal units is in it.
"""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.eviction.model import Cost, VictimKind, VictimUnit
from koord.core.eviction.trials import Load, VictimSearch, VictimSet
from koord.core.model.plan import Placement


def reprieve(search: VictimSearch, solution: VictimSet) -> VictimSet:
    """Return a solution in which no unit can be spared, unless the steps are used up."""
    return _Minimizer(search, solution).run()


class _Minimizer:
    def __init__(self, search: VictimSearch, solution: VictimSet) -> None:
        self._search = search
        self._position = {unit.key: at for at, unit in enumerate(search.units)}
        self._best = solution

    def run(self) -> VictimSet:
        bounds = self._bounds()
        if not all(bounds.is_needed(self._position[victim.key]) for victim in self._best.victims):
            self._try(self._fit_beside())
            bounds = self._bounds()
        is_changed, is_complete = True, True
        while is_changed and is_complete:
            is_changed, is_complete = self._pass(bounds)
            bounds = self._bounds() if is_changed else bounds
        return replace(self._best, is_minimal=is_complete)

    def _bounds(self) -> "_Needed":
        return _Needed(self._search, [self._position[victim.key] for victim in self._best.victims])

    def _pass(self, bounds: "_Needed") -> tuple[bool, bool]:
        """Try to spare each unit; return whether one was, and whether all were tried."""
        is_changed = False
        for victim in self._dearest_first():
            if bounds.is_needed(self._position[victim.key]):
                continue
            if self._search.trials.is_over:
                return is_changed, False
            if self._try([other for other in self._best.victims if other is not victim]):
                bounds.spare(self._position[victim.key])
                is_changed = True
        return is_changed, True

    def _try(self, victims: Sequence[VictimUnit]) -> bool:
        if len(victims) == len(self._best.victims):
            return False
        solution = self._search.solve_with(victims)
        if solution is not None:
            self._best = solution
        return solution is not None

    def _fit_beside(self) -> list[VictimUnit]:
        """Return the units that do not fit beside the pods that took their room."""
        search, victims = self._search, self._best.victims
        cycle, left = search.trials.cycle, list[VictimUnit]()
        mark = cycle.checkpoint()
        unit = search.trials.unit
        removed = {victim.key: cycle.remove(victim.pods) for victim in victims}
        placement = search.trials.place(())
        if isinstance(placement, Placement):
            if unit.required == len(unit.pods):
                # The order matters: each that is put back takes room from those after it.
                left = [
                    victim
                    for victim in self._dearest_first()
                    if not cycle.restore(removed[victim.key])
                ]
            else:
                left = list(victims)
        cycle.rollback(mark)
        keep = {victim.key for victim in left}
        return [victim for victim in victims if victim.key in keep]

    def _dearest_first(self) -> list[VictimUnit]:
        return sorted(self._best.victims, key=lambda victim: -self._position[victim.key])


class _Needed:
    """Tells of units whether bounds prove that the waiting unit does not fit with them."""

    def __init__(self, search: VictimSearch, victims: Sequence[int]) -> None:
        self._room = search.room
        self._freed = self._room.freed(victims)
        bounds = self._room.bounds
        counts = [self._room.sum(want, self._freed) - want.count for want in bounds]
        self._spare: Ints = np.array(counts, dtype=np.int64)
        self._losses_of: dict[tuple[Load, ...], Ints] = {}

    def is_needed(self, unit: int) -> bool:
        return bool((self._spare < self._losses(unit)).any())

    def spare(self, unit: int) -> None:
        """Take note that a unit stays."""
        self._spare = self._spare - self._losses(unit)
        for row, amounts in self._room.loads[unit]:
            self._freed[:, row] -= amounts
        self._losses_of.clear()

    def _losses(self, unit: int) -> Ints:
        """Return, per bound, how many pods less fit if a unit stays."""
        loads = self._room.loads[unit]
        losses = self._losses_of.get(loads)
        if losses is None:
            losses = self._losses_of[loads] = self._lose(loads)
        return losses

    def _lose(self, loads: Sequence[Load]) -> Ints:
        room, losses = self._room, np.zeros(len(self._room.bounds), dtype=np.int64)
        for row in {row for row, _ in loads}:
            used = np.sum([amounts for at, amounts in loads if at == row], axis=0)
            free = room.free[:, row] + self._freed[:, row]
            losses += room.bounds_at(row, free) - room.bounds_at(row, free - used)
        return losses


MOST_UNITS: Final = 64
SET_STEPS: Final = 40
"""Array operations that take as long as one set."""


def find_cheapest(
    search: VictimSearch, solution: VictimSet | None
) -> tuple[VictimSet | None, bool]:
    """Return the cheapest solution, ``solution`` if none is cheaper, and whether that is proven."""
    if len(search.units) > MOST_UNITS:
        return solution, False
    return _Exact(search, solution).run()


class _Exact:
    def __init__(self, search: VictimSearch, solution: VictimSet | None) -> None:
        self._search = search
        self._best = solution
        self._units = search.units
        self._twins = _find_twins(search)
        room = search.room
        self._freed_by = [room.freed([at]) for at in range(len(self._units))]
        self._freed_from = [room.nothing()]
        for freed in reversed(self._freed_by):
            self._freed_from.append(self._freed_from[-1] + freed)
        self._freed_from.reverse()

    def run(self) -> tuple[VictimSet | None, bool]:
        search = self._search
        heap: list[tuple[Cost, tuple[int, ...]]] = [(search.costs.of(()), ())]
        while heap:
            cost, chosen = heapq.heappop(heap)
            if self._best is not None and cost >= self._best.cost:
                return self._best, True
            if search.trials.is_over:
                return self._best, False
            victims = [self._units[at] for at in chosen]
            freed = self._freed(chosen)
            if chosen and search.room.is_enough(freed) and search.trials.fits(victims):
                solution = search.solve_with(victims)
                # A part of it would cost less, and would have come before.
                return None if solution is None else replace(solution, is_minimal=True), True
            for more, at in self._extend(cost, chosen, victims, freed):
                heapq.heappush(heap, (more, (*chosen, at)))
        return self._best, True

    def _extend(
        self, cost: Cost, chosen: tuple[int, ...], victims: Sequence[VictimUnit], freed: Ints
    ) -> Iterator[tuple[Cost, int]]:
        """Yield units that come after those of a set and may be added, with the cost then."""
        search, steps = self._search, self._search.trials.cycle.steps
        first = chosen[-1] + 1 if chosen else 0
        for at in range(first, len(self._units)):
            steps.take(0, SET_STEPS)
            if not search.room.is_enough(freed + self._freed_from[at]):
                return
            twin, unit = self._twins[at], self._units[at]
            if twin is not None and twin not in chosen:
                continue
            more = search.costs.add(cost, victims, unit)
            if self._best is not None and more >= self._best.cost:
                continue
            if search.is_legal([*victims, unit]):
                yield more, at

    def _freed(self, chosen: tuple[int, ...]) -> Ints:
        freed = self._search.room.nothing()
        for at in chosen:
            freed += self._freed_by[at]
        return freed


def _find_twins(search: VictimSearch) -> list[int | None]:
    """Return, per unit, the one before it that is equal in everything that decides."""
    last: dict[Hashable, int] = {}
    twins: list[int | None] = []
    for at, unit in enumerate(search.units):
        kind = _kind_of(search, unit)
        twins.append(None if kind is None else last.get(kind))
        if kind is not None:
            last[kind] = at
    return twins


def _kind_of(search: VictimSearch, unit: VictimUnit) -> Hashable | None:
    """Return what is equal for interchangeable units; None if a unit is like no other."""
    pod = unit.pods[0]
    is_plain = not pod.allocations and not pod.claims and not pod.attraction
    if unit.kind not in {VictimKind.POD, VictimKind.SURPLUS} or not is_plain:
        return None
    charges = tuple(sorted(search.guarantees.charges_of(unit).items()))
    quota = search.guarantees.shares_quota(unit), pod.quota
    where = pod.namespace, pod.planned_node, pod.shape, tuple(sorted(pod.profile.labels.items()))
    cost = unit.priority, unit.doubts, unit.work
    return unit.kind, unit.group, cost, where, charges, quota
