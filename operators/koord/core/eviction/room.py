"""Bounds of the search: how many pods of the waiting unit fit at most without some running units.

Only amounts and rules about nodes are counted, so a bound may be too high, never too low. What a
bound excludes need not be tried on the planner.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.eviction.model import VictimUnit
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod, PodShape

Load: TypeAlias = tuple[int, tuple[int, ...]]
"""A row, and what a pod uses of it of each column of ``Room``."""


@dataclass(frozen=True, slots=True)
class Want:
    """``count`` pods such as ``like`` request ``amounts`` of some columns.

    ``columns`` are positions in the columns of ``Room``; none if room may be held for such pods,
    which amounts do not tell. ``limits`` is how many of them the rules about nodes allow per row.
    ``is_plain``: nothing else than these amounts decides on a row.
    """

    count: int
    like: Pod
    shape: PodShape
    columns: tuple[int, ...]
    amounts: tuple[int, ...]
    limits: Ints
    is_plain: bool


class Room:
    """What is free on every row, and what each unit uses there of what the unit wants."""

    def __init__(self, cycle: Cycle, unit: Unit, units: Sequence[VictimUnit]) -> None:
        counts = _count_shapes(cycle, unit)
        vectors = {shape: cycle.vector(shape) for shape in counts}
        columns: Final = sorted(
            {column for vector in vectors.values() for column in vector.columns}
        )
        at = {column: position for position, column in enumerate(columns)}
        self.wants = [
            _make_want(cycle, shape, count, like, at) for shape, (count, like) in counts.items()
        ]
        self.free: Ints = (cycle.table.allocatable - cycle.used)[columns]
        amounts_of: dict[PodShape, tuple[int, ...]] = {}
        self._take([tuple(_loads_of(cycle, unit.pods, at, amounts_of)) for unit in units])

    def only(self, units: Sequence[int]) -> "Room":
        """Return the room with some units alone, in this order."""
        if len(units) == len(self.loads):
            return self
        narrowed = copy(self)
        narrowed._take([self.loads[at] for at in units])  # noqa: SLF001 - of the same class
        return narrowed

    def _take(self, loads: Sequence[tuple[Load, ...]]) -> None:
        self.loads = loads
        flat = [(n, row, amounts) for n, load in enumerate(loads) for row, amounts in load]
        self._unit_of = np.array([n for n, _, _ in flat], dtype=np.int64)
        self._row_of = np.array([row for _, row, _ in flat], dtype=np.int64)
        amounts = np.array([load_amounts for _, _, load_amounts in flat], dtype=np.int64)
        self._amounts: Ints = amounts.reshape(len(flat), len(self.free)).T

    def nothing(self) -> Ints:
        """Return the amounts that are freed if nobody goes."""
        return np.zeros_like(self.free)

    def freed(self, chosen: Sequence[int] | Mask) -> Ints:
        """Return the amounts that some units free, by column and row."""
        mask = np.zeros(len(self.loads), dtype=bool)
        mask[chosen] = True
        entries = mask[self._unit_of]
        freed = self.nothing()
        rows = self._row_of[entries]
        for column, amounts in enumerate(self._amounts):
            np.add.at(freed[column], rows, amounts[entries])
        return freed

    def copies(self, want: Want, freed: Ints) -> Ints:
        """Return at most how many such pods fit on every row."""
        copies = want.limits
        for column, amount in zip(want.columns, want.amounts, strict=True):
            copies = np.minimum(copies, (self.free[column] + freed[column]) // amount)
        return np.maximum(copies, 0)

    def copies_at(self, want: Want, row: int, free: Sequence[int]) -> int:
        """Return :meth:`copies` on one row with so much free of every column."""
        copies = int(want.limits[row])
        for column, amount in zip(want.columns, want.amounts, strict=True):
            copies = min(copies, free[column] // amount)
        return max(copies, 0)

    def is_enough(self, freed: Ints, rows: Mask | None = None) -> bool:
        """Whether the unit may fit, on some rows only, if these amounts were freed."""
        return all(self.sum(want, freed, rows) >= want.count for want in self.wants)

    def sum(self, want: Want, freed: Ints, rows: Mask | None = None) -> int:
        """Return at most how many such pods fit on some rows together."""
        copies = self.copies(want, freed)
        return int((copies if rows is None else copies[rows]).sum())

    def useful_rows(self, freed: Ints) -> Mask:
        """Return the rows that may take more pods of the unit if these amounts were freed."""
        useful = np.zeros(self.free.shape[1], dtype=bool)
        nothing = self.nothing()
        for want in self.wants:
            least = self.copies(want, nothing) if want.is_plain else 0
            useful |= self.copies(want, freed) > least
        return useful


def _make_want(cycle: Cycle, shape: PodShape, count: int, like: Pod, at: dict[int, int]) -> Want:
    vector, limits = cycle.vector(shape), cycle.node_limits(shape)
    if cycle.may_use_held_room(shape):
        return Want(count, like, shape, (), (), limits, is_plain=False)
    is_plain = cycle.is_plain(shape) and not cycle.needs_reserve(shape)
    columns = tuple(at[column] for column in vector.columns)
    return Want(count, like, shape, columns, tuple(vector.amounts), limits, is_plain=is_plain)


def _count_shapes(cycle: Cycle, unit: Unit) -> dict[PodShape, tuple[int, Pod]]:
    """Count, by shape, the pods that have to be placed for the unit to start.

    Of gangs with surplus and several shapes it is unknown which; they count as none.
    """
    cycle.expect(unit.pods)
    counts: Counter[PodShape] = Counter()
    likes: dict[PodShape, Pod] = {}
    for demand in unit.demands:
        fresh = [pod for pod in demand.pods if pod.recorded is None]
        shapes = [cycle.shape_of(pod) for pod in fresh]
        for pod, shape in zip(fresh, shapes, strict=True):
            likes.setdefault(shape, pod)
        if len(demand.pods) == demand.required:
            counts.update(shapes)
        elif len(set(shapes)) == 1:
            counts[shapes[0]] += _count_required(demand, len(fresh))
    return {shape: (counts[shape], like) for shape, like in likes.items()}


def _count_required(demand: Demand, fresh: int) -> int:
    return max(0, demand.required - (len(demand.pods) - fresh))


def _loads_of(
    cycle: Cycle,
    pods: Sequence[Pod],
    at: dict[int, int],
    amounts_of: dict[PodShape, tuple[int, ...]],
) -> Iterator[Load]:
    for pod in pods:
        place = cycle.place_of(pod)
        if place is None:
            continue
        amounts = amounts_of.get(pod.shape)
        if amounts is None:
            vector = cycle.vector(pod.shape)
            used = dict(zip(vector.columns, vector.amounts, strict=True))
            amounts = amounts_of[pod.shape] = tuple(used.get(column, 0) for column in at)
        yield place.row, amounts
