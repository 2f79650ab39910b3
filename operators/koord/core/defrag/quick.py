"""Finds moves quickly, on clusters of any size: good ones, not always the best.

One node after the other is emptied, those that need the fewest moves first, until the waiting unit
fits. Each pod goes to the fullest node that has room for it. If there is none, smaller pods are
moved away from some node before; a few levels deep, since each level costs moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.defrag.bounds import MoveBounds, RowTarget
from koord.core.defrag.model import MoveStep
from koord.core.defrag.sequence import MoveSequence, MoveTrials
from koord.core.model.plan import Placement
from koord.core.model.pods import PodShape

DEPTH: Final = 2
"""How many moves in a row may have to be done before one that the waiting unit needs."""
MOST_ROWS: Final = 6
"""Nodes on which room is made for one pod that finds none."""
MOST_PASSES: Final = 60
"""Sets of nodes that are emptied."""


@dataclass(frozen=True, slots=True)
class QuickMoves:
    """Units by their numbers, and how they move."""

    chosen: tuple[int, ...]
    sequence: MoveSequence

    @property
    def pods(self) -> int:
        """How many pods move."""
        return sum(len(step.moves) for step in self.sequence.steps)


def find_quickly(
    trials: MoveTrials, bounds: MoveBounds, least: int, most: int, share: float
) -> QuickMoves | None:
    """Return moves of at most ``most`` pods; the first with only ``least``, or the fewest.

    It ends when ``share`` of the steps is used up.
    """
    targets, best = bounds.targets(), None
    is_single = sum(want.count for want in trials.room.wants) == 1
    for depth in range(DEPTH + 1):
        for start in range(min(len(targets), MOST_PASSES)):
            limit = most if best is None else best.pods - 1
            if trials.is_past(share) or limit < least:
                return best
            mark = trials.cycle.checkpoint()
            end = start + 1 if is_single else len(targets)
            moves = _Pass(trials, bounds, limit, share).run(targets[start:end], depth)
            trials.cycle.rollback(mark)
            best = moves or best
            if not is_single:
                break
        if best is not None:
            return best
    return best


@dataclass(frozen=True, slots=True)
class _Moved:
    """A unit that was moved, by its number."""

    unit: int
    step: MoveStep


class _Pass:
    """Empties nodes on the cycle of the trials; whoever runs it rolls back."""

    def __init__(self, trials: MoveTrials, bounds: MoveBounds, most: int, share: float) -> None:
        self._trials = trials
        self._cycle = trials.cycle
        self._bounds = bounds
        self._most = most
        self._share = share
        self._steps: list[_Moved] = []
        self._shapes: set[PodShape] = set()
        """Of pods that run, for which others make way."""

    def run(self, targets: Sequence[RowTarget], depth: int) -> QuickMoves | None:
        emptied: list[int] = []
        for target in targets:
            if self._trials.is_past(self._share):
                return None
            is_new = target.row not in emptied
            emptied += [target.row] if is_new else []
            if not self._make_room(target.row, target.shape, target.copies, depth, emptied):
                if is_new:
                    emptied.pop()
                continue
            placement = self._trials.place_waiting() if self._steps else None
            if isinstance(placement, Placement):
                chosen = tuple(sorted(moved.unit for moved in self._steps))
                steps = tuple(moved.step for moved in self._steps)
                return QuickMoves(chosen, MoveSequence(steps, placement))
        return None

    def _make_room(
        self, row: int, shape: PodShape, copies: int, depth: int, avoid: Sequence[int]
    ) -> bool:
        """Move units off a row until so many pods of a shape fit; False, undone, if they cannot."""
        mark, count = self._cycle.checkpoint(), len(self._steps)
        # For a pod that makes way none makes way that needs as much room itself.
        refused = {at for at in self._bounds.units_on(row) if self._is_as_large(at, shape)}
        while self._copies(shape, row) < copies:
            unit = self._choose(row, shape, copies, refused)
            if unit is None or self._trials.is_past(self._share):
                self._cycle.rollback(mark)
                del self._steps[count:]
                return False
            if not self._move(unit, depth, avoid):
                refused.add(unit)
        return True

    def _is_as_large(self, unit: int, shape: PodShape) -> bool:
        """Whether a pod of the shape would fit wherever a unit does, and it is one that runs."""
        if shape not in self._shapes:
            return False
        loads = self._cycle.vector(self._trials.units[unit].pods[0].shape)
        amounts = dict(zip(loads.columns, loads.amounts, strict=True))
        vector = self._cycle.vector(shape)
        pairs = zip(vector.columns, vector.amounts, strict=True)
        return all(amounts.get(column, 0) >= amount for column, amount in pairs)

    def _copies(self, shape: PodShape, row: int) -> int:
        return int(self._cycle.bounds(shape, np.array([row]))[0])

    def _choose(self, row: int, shape: PodShape, copies: int, refused: set[int]) -> int | None:
        """Return the unit that makes most of the missing room, the smallest of several."""
        cycle, vector = self._cycle, self._cycle.vector(shape)
        moved = {moved.unit for moved in self._steps}
        missing = {
            column: copies * amount
            - int(cycle.table.allocatable[column, row] - cycle.used[column, row])
            for column, amount in zip(vector.columns, vector.amounts, strict=True)
        }
        missing = {column: amount for column, amount in missing.items() if amount > 0}

        def rank(at: int) -> tuple[int, float, int, int]:
            pods = self._trials.units[at].pods
            loads = cycle.vector(pods[0].shape)
            amounts = dict(zip(loads.columns, loads.amounts, strict=True))
            gain = min(
                (min(amounts.get(column, 0) / amount, 1.0) for column, amount in missing.items()),
                default=1.0,
            )
            excess = sum(amounts.get(column, 0) for column in missing)
            return len(pods), -gain, excess, at

        units = [at for at in self._bounds.units_on(row) if at not in moved | refused]
        return min(units, key=rank, default=None)

    def _move(self, unit: int, depth: int, avoid: Sequence[int]) -> bool:
        """Move a unit to a node with room, or to one where room can be made."""
        pods = sum(len(moved.step.moves) for moved in self._steps)
        if pods + self._bounds.pods[unit] > self._most:
            return False
        if self._take(unit, avoid):
            return True
        if not depth or self._bounds.pods[unit] > 1:
            return False
        shape = self._trials.shape_of(unit)
        self._shapes.add(shape)
        away = [*avoid, *self._bounds.rows_of(unit)]
        for row in self._rows_to_clear(shape, away):
            mark, count = self._cycle.checkpoint(), len(self._steps)
            if self._make_room(row, shape, 1, depth - 1, [*away, row]) and self._take(
                unit, avoid, row
            ):
                return True
            self._cycle.rollback(mark)
            del self._steps[count:]
        return False

    def _take(self, unit: int, avoid: Sequence[int], only: int = -1) -> bool:
        # The generator is not resumed: the cycle stays as it is after the first way.
        step = next(self._trials.steps_of(unit, avoid, only), None)
        if step is not None:
            self._steps.append(_Moved(unit, step))
        return step is not None

    def _rows_to_clear(self, shape: PodShape, avoid: Sequence[int]) -> list[int]:
        """Return the rows that lack least for a pod."""
        cycle, vector = self._cycle, self._cycle.vector(shape)
        lack = np.zeros(cycle.used.shape[1])
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            free = cycle.table.allocatable[column] - cycle.used[column]
            lack = np.maximum(lack, (amount - free) / amount)
        lack[cycle.node_limits(shape) <= 0] = np.inf
        lack[list(avoid)] = np.inf
        rows = np.lexsort((cycle.table.name_rank, lack))[:MOST_ROWS].tolist()
        return [row for row in rows if np.isfinite(lack[row])]
