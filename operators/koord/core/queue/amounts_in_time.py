"""At which time amounts could be enough for a unit: a lower bound of when it starts.

Adds up what is free when those that run have ended, for all nodes at once. Knows neither rules of
plugins nor what is reserved.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.model.plan import Unit
from koord.core.model.pods import PodShape
from koord.core.queue.ends import EndingPod


class AmountsInTime:
    """What is free of what a unit requests, as pods end; ``runs`` are in the order of ends."""

    def __init__(self, cycle: Cycle, unit: Unit, runs: Sequence[EndingPod]) -> None:
        self._cycle = cycle
        self._counts = Counter(cycle.shape_of(pod) for pod in unit.pods)
        self._is_bounded = not any(map(cycle.may_use_held_room, self._counts))
        self._vectors = {shape: cycle.table.vector(shape) for shape in self._counts}
        columns = sorted({c for vector in self._vectors.values() for c in vector.columns})
        self._at = {column: at for at, column in enumerate(columns)}
        self._limits = {shape: cycle.node_limits(shape) for shape in self._counts}
        self._ends = [run.end for run in runs]
        self._rows = np.array([run.row for run in runs], dtype=np.int64)
        numbers: dict[PodShape, int] = {}
        shapes = [numbers.setdefault(run.pod.shape, len(numbers)) for run in runs]
        amounts = np.zeros((len(columns), len(numbers)), dtype=np.int64)
        for shape, number in numbers.items():
            vector = cycle.table.vector(shape)
            for column, amount in zip(vector.columns, vector.amounts, strict=True):
                if column in self._at:
                    amounts[self._at[column], number] = amount
        self._amounts = amounts[:, np.array(shapes, dtype=np.int64)]

    def first(self, times: Sequence[int]) -> int:
        """Return the position of the first of ``times`` at which there could be enough."""
        low, high = 0, len(times) if self._is_bounded else 0
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_enough(times[middle]) else (middle + 1, high)
        return low

    def rows_with_room(self, time: int) -> Mask | None:
        """Return on which rows a pod of the unit could start by then; None: amounts do not tell."""
        if not self._is_bounded:
            return None
        mask = np.zeros(self._cycle.used.shape[1], dtype=np.bool_)
        for copies in self._copies(time).values():
            mask |= copies > 0
        return mask

    def _is_enough(self, time: int) -> bool:
        return all(
            int(np.clip(copies, 0, self._counts[shape]).sum()) >= self._counts[shape]
            for shape, copies in self._copies(time).items()
        )

    def _copies(self, time: int) -> Mapping[PodShape, Ints]:
        """Return how many pods of each shape fit on each row, as far as amounts tell."""
        ended = bisect_right(self._ends, time)
        free = {column: self._free(column, ended) for column in self._at}
        rooms = {}
        for shape, vector in self._vectors.items():
            copies = self._limits[shape]
            for column, amount in zip(vector.columns, vector.amounts, strict=True):
                copies = np.minimum(copies, free[column] // amount)
            rooms[shape] = copies
        return rooms

    def _free(self, column: int, ended: int) -> Ints:
        table, used = self._cycle.table, self._cycle.used
        amounts = self._amounts[self._at[column], :ended].astype(np.float64)
        freed = np.bincount(self._rows[:ended], weights=amounts, minlength=used.shape[1])
        free: Ints = table.allocatable[column] - used[column] + freed.astype(np.int64)
        return free
