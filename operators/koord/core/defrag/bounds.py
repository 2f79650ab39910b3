"""How many pods have to move at least, by amounts and the rules about nodes alone.

Per node and number of pods of the waiting unit: how many pods have to leave it so that these fit,
the largest first; GPUs that have to be whole count by who keeps them. Where more than that is
needed the bound is too low, never too high: what it excludes need not be tried. Of several shapes
that wait the one counts that needs most.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np

from koord.core.device.occupancy import WHOLE_GPU, GpuOccupancy, count_whole_gpus
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


@dataclass(frozen=True, slots=True)
class _Load:
    """A pod that may leave a row: the number of its unit, its amounts and its part of the GPUs."""

    unit: int
    amounts: tuple[int, ...]
    gpus: int


OccupancyOf: TypeAlias = Callable[[int], GpuOccupancy | None]
"""Returns who keeps the GPUs of a row; None if it is not known which there are."""


class MoveBounds:
    """Bounds for one waiting unit; units are numbered as in ``room``."""

    def __init__(self, room: Room, units: Sequence[VictimUnit], occupancy_of: OccupancyOf) -> None:
        self._room = room
        self.pods = [len(unit.pods) for unit in units]
        rows = range(room.free.shape[1])
        needs_gpus = any(count_whole_gpus(want.shape) for want in room.wants)
        live = {row for want in room.wants for row in np.flatnonzero(want.limits).tolist()}
        self._gpus = {row: occupancy_of(row) for row in live} if needs_gpus else {}
        self._loads: dict[int, list[_Load]] = {}
        for at, (unit, loads) in enumerate(zip(units, room.loads, strict=True)):
            for pod, (row, amounts) in zip(unit.pods, loads, strict=False):
                occupancy = self._gpus.get(row)
                gpus = 0 if occupancy is None else occupancy.kept.get(pod.uid, 0)
                self._loads.setdefault(row, []).append(_Load(at, amounts, gpus))
        self._bounds = [
            self._bound(want, {row: self._rise(want, row, frozenset()) for row in rows})
            for want in room.wants
            if want.count
        ]

    def units_on(self, row: int) -> list[int]:
        """Return the units with pods on a row, in order."""
        return sorted({load.unit for load in self._loads.get(row, ())})

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
        occupancy = self._gpus.get(row)
        free = self._room.free[:, row].tolist()
        gpus = 0 if occupancy is None else occupancy.free
        staying = []
        for load in self._loads.get(row, ()):
            if load.unit in moved:
                free = [amount + more for amount, more in zip(free, load.amounts, strict=True)]
                gpus += load.gpus
            else:
                staying.append(load)
        lacking = [
            _Lack(amount, free[column], [load.amounts[column] for load in staying])
            for column, amount in zip(want.columns, want.amounts, strict=True)
        ]
        whole = count_whole_gpus(want.shape)
        if whole and occupancy is not None:
            lacking.append(_Lack(whole * WHOLE_GPU, gpus, [load.gpus for load in staying]))
        return _convex(_count_leaving(lacking, len(staying), most))


class _Lack:
    """How many pods have to leave for an amount per pod that waits, the largest first."""

    def __init__(self, amount: int, free: int, loads: Sequence[int]) -> None:
        self._amount = amount
        self._sums = list(accumulate(sorted(loads, reverse=True), initial=free))

    def leaving(self, count: int) -> int:
        """Return it for so many pods that wait; more than there are if all are not enough."""
        return bisect_left(self._sums, count * self._amount)


def _count_leaving(lacking: Sequence[_Lack], pods: int, most: int) -> list[int]:
    """Return how many pods have to leave for 1, 2, … pods that wait, as far as that is possible."""
    needs: list[int] = []
    for count in range(1, most + 1):
        need = max(lack.leaving(count) for lack in lacking)
        if need > pods:
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
