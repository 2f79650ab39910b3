"""The exact search: sets of units in the order of their cost, until the waiting unit fits.

Costs only grow with a set, so the first set that fits is the cheapest. Sets are left out that
bounds exclude with whatever is added to them, that must not go together, or that differ from
another one only in which of several equal units is in it.
"""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from koord.core.engine.arrays import Ints
from koord.core.eviction.model import Cost, VictimKind, VictimUnit
from koord.core.eviction.victim_search import VictimSearch, VictimSet

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
