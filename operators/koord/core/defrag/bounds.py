"""How many pods have to move at least, by amounts and the rules about nodes alone.

Per node and number of pods of the waiting unit: how many pods have to leave it so that these fit,
the largest first. Where more than that is needed the bound is too low, never too high: what it
excludes need not be tried. Of several shapes that wait the one counts that needs most.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.eviction.model import VictimUnit
from koord.core.eviction.trials import Room, Want
from koord.core.model.pods import PodShape

NEVER: Final = 1 << 30
"""More moves than there are pods: they would not be enough."""
_EXACT: Final = 1e-9

Rises: TypeAlias = list[float]
"""How many pods more have to leave a node for each further pod that goes there, rising."""


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A row where ``copies`` pods of a shape could go."""

    row: int
    shape: PodShape
    copies: int


@dataclass(frozen=True, slots=True)
class _WantBound:
    """The rises of all rows for pods of one shape."""

    want: Want
    by_row: Mapping[int, Rises]
    lowest: tuple[tuple[float, int], ...]
    """All rises with their rows, sorted."""


class MoveBounds:
    """Bounds for one waiting unit; units are numbered as in ``room``."""

    def __init__(self, room: Room, units: Sequence[VictimUnit]) -> None:
        self._room = room
        self.pods = [len(unit.pods) for unit in units]
        self._loads: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        """Row -> the unit of each pod that may leave it, and what the pod uses."""
        for at, loads in enumerate(room.loads):
            for row, amounts in loads:
                self._loads.setdefault(row, []).append((at, amounts))
        rows = range(room.free.shape[1])
        self._bounds = [
            self._bound(want, {row: self._rise(want, row, frozenset()) for row in rows})
            for want in room.wants
            if want.count
        ]

    def units_on(self, row: int) -> list[int]:
        """Return the units with pods on a row, in order."""
        return sorted({at for at, _ in self._loads.get(row, ())})

    def rows_of(self, unit: int) -> set[int]:
        """Return the rows of the pods of a unit."""
        return {row for row, _ in self._room.loads[unit]}

    def least(self, moved: Collection[int]) -> int:
        """Return how many further pods have to move at least if some units do; NEVER: no number."""
        rows = {row for at in moved for row in self.rows_of(at)}
        return max((self._least_of(bound, moved, rows) for bound in self._bounds), default=0)

    def near_rows(self, moved: Collection[int], most: int) -> list[int]:
        """Return the rows on which at most ``most`` further moves make room for a pod."""
        touched = {row for at in moved for row in self.rows_of(at)}
        near: set[int] = set()
        for bound in self._bounds:
            for rise, row in bound.lowest:
                if rise > most:
                    break
                if row not in touched and rise > 0:
                    near.add(row)
            for row in touched:
                rises = self._rise(bound.want, row, moved)
                if any(0 < rise <= most for rise in rises):
                    near.add(row)
        return sorted(near)

    def targets(self) -> list[RowTarget]:
        """Return where pods of the waiting unit could go, those that need fewest moves first."""
        targets: list[tuple[float, int, RowTarget]] = []
        for bound in self._bounds:
            copies: Counter[int] = Counter()
            for rise, row in bound.lowest:
                copies[row] += 1
                targets.append((rise, row, RowTarget(row, bound.want.shape, copies[row])))
        return [target for *_, target in sorted(targets, key=lambda entry: entry[:2])]

    def _bound(self, want: Want, by_row: Mapping[int, Rises]) -> _WantBound:
        lowest = sorted((rise, row) for row, rises in by_row.items() for rise in rises)
        return _WantBound(want, by_row, tuple(lowest))

    def _least_of(self, bound: _WantBound, moved: Collection[int], rows: Collection[int]) -> int:
        count = bound.want.count
        changed = sorted(rise for row in rows for rise in self._rise(bound.want, row, moved))
        same: list[float] = []
        for rise, row in bound.lowest:
            if len(same) == count:
                break
            if row not in rows:
                same.append(rise)
        rises = sorted((*changed[:count], *same))[:count]
        return NEVER if len(rises) < count else math.ceil(sum(rises) - _EXACT)

    def _rise(self, want: Want, row: int, moved: Collection[int]) -> Rises:
        most = min(want.count, int(want.limits[row]))
        if most <= 0:
            return []
        if not want.columns:
            return [0.0] * most
        free = self._room.free[:, row]
        loads = []
        for at, amounts in self._loads.get(row, ()):
            if at in moved:
                free = free + np.array(amounts)
            else:
                loads.append(amounts)
        needs = _count_leaving(want, free, loads, most)
        return _convex(needs)


def _count_leaving(
    want: Want, free: Ints, loads: Sequence[tuple[int, ...]], most: int
) -> list[int]:
    """Return how many pods have to leave for 1, 2, … pods that wait, as far as that is possible."""
    sums = {}
    for column in want.columns:
        largest = sorted((amounts[column] for amounts in loads), reverse=True)
        sums[column] = np.concatenate(([0], np.cumsum(largest))) + int(free[column])
    needs: list[int] = []
    for count in range(1, most + 1):
        need = 0
        for column, amount in zip(want.columns, want.amounts, strict=True):
            need = max(need, int(np.searchsorted(sums[column], count * amount)))
        if need > len(loads):
            break
        needs.append(need)
    return needs


def _convex(needs: Sequence[int]) -> Rises:
    """Return the rises of the lower convex hull of (0, 0), (1, needs[0]), (2, needs[1]) …."""
    hull: list[tuple[int, int]] = [(0, 0)]
    for point in enumerate(needs, 1):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    rises: Rises = []
    for before, after in pairwise(hull):
        rises += [_slope(before, after)] * (after[0] - before[0])
    return rises


def _slope(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])
