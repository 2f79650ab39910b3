"""How many pods fit on nodes where room is reserved for others, until they have ended.

Room of a pod on a node is the least over all times until its end: what runs now ends, what is
reserved begins. Between two starts of what is reserved room only grows, so those times and the
first are enough. Amounts only; devices are tried (``PlannedRoom``).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.model.plan import Assignment, Placement, Unit
from koord.core.model.pods import PodShape
from koord.core.queue.ends import EndingPod, Ends
from koord.core.queue.room import FOREVER, Reserved
from koord.core.queue.run_time import Knowledge

_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class PlannedStart(Reserved):
    """What is reserved for a unit, pod by pod."""

    assignments: tuple[Assignment, ...] = ()

    def by_node(self) -> Mapping[str, list[Assignment]]:
        """Return node -> what is reserved there."""
        nodes: dict[str, list[Assignment]] = {}
        for assignment in self.assignments:
            nodes.setdefault(assignment.node, []).append(assignment)
        return nodes


@dataclass(frozen=True, slots=True)
class ReservedMoment:
    """A time, and what is reserved from then on, or before and still."""

    at: int
    active: tuple[PlannedStart, ...]


def moments_of(reserved: Sequence[PlannedStart], start: int, end: int) -> list[ReservedMoment]:
    """Return the times from ``start`` until ``end`` at which reserved room matters."""
    times = {start, *(other.start for other in reserved if start < other.start < end)}
    moments = (
        ReservedMoment(at, tuple(other for other in reserved if other.start <= at < other.end))
        for at in sorted(times)
    )
    return [moment for moment in moments if moment.active]


class StartedHere:
    """Pods that were placed in this cycle, with their ends, which are found when they matter."""

    def __init__(self, table: NodeTable) -> None:
        self.placed: list[tuple[Unit, Placement]] = []
        self.end_of: Callable[[Unit], int] = lambda _: FOREVER
        self.rollbacks = 0
        """How often some of the units were forgotten."""
        self._table = table
        self._pods: list[EndingPod] = []
        self._counts: list[int] = []
        """How many pods there are up to each of those units."""
        self._on: defaultdict[int, list[EndingPod]] = defaultdict(list)

    @property
    def pods(self) -> Sequence[EndingPod]:
        """All of them."""
        for unit, placement in self.placed[len(self._counts) :]:
            end = self.end_of(unit)
            for assignment in placement.assignments:
                row = self._table.row_of[assignment.node]
                pod = EndingPod(assignment.pod, row, end, end, Knowledge.DECLARED)
                self._pods.append(pod)
                self._on[row].append(pod)
            self._counts.append(len(self._pods))
        return self._pods

    def since(self, units: int) -> Sequence[EndingPod]:
        """Return those of units after the first ones."""
        pods = self.pods
        return pods[self._counts[units - 1] if units else 0 :]

    def forget_since(self, count: int) -> None:
        """Forget all but the first units."""
        if count < len(self.placed):
            self.rollbacks += 1
        del self.placed[count:], self._counts[count:]
        left = self._counts[-1] if self._counts else 0
        for pod in self._pods[left:]:
            self._on[pod.row].remove(pod)
        del self._pods[left:]

    def on(self, row: int) -> Iterable[EndingPod]:
        return self._on[row] if self.pods and row in self._on else ()


class ReservedLimits:
    """What is left for others beside reserved room, from the time ``base`` of the cycle on."""

    def __init__(
        self,
        cycle: Cycle,
        ends: Ends,
        started: StartedHere,
        moments: Sequence[ReservedMoment],
        base: int,
    ) -> None:
        self.moments, self.base = moments, base
        self.number = next(_NUMBERS)
        """Others have another one."""
        self._allowed: Mask | None = None
        """Rows that alone are to be used; None: all."""
        self._cycle, self._ends, self._started = cycle, ends, started
        rows = {
            row
            for moment in moments
            for reserved in moment.active
            for node in reserved.places
            if (row := cycle.table.row_of.get(node)) is not None
        }
        self.rows: Ints = np.array(sorted(rows), dtype=np.int64)
        self._at = {row: at for at, row in enumerate(self.rows.tolist())}
        self._times = [moment.at for moment in moments]
        self._deltas = self._make_deltas()
        """By moment, column and row: what is free then and not now, less what is reserved."""
        self._least: Ints | None = None
        """The least of them over all moments."""

    def room(self, shape: PodShape, rows: Rows) -> Ints:
        """Return how many pods of a shape fit on each row."""
        table, used = self._cycle.table, self._cycle.used
        room = np.full(used.shape[1], NO_LIMIT, dtype=np.int64)
        if self.moments:
            if self._least is None:
                self._least = self._deltas.min(axis=0)
            vector = table.vector(shape)
            for column, amount in zip(vector.columns, vector.amounts, strict=True):
                free = table.allocatable[column][self.rows] - used[column][self.rows]
                left = np.maximum((free + self._least[column]) // amount, 0)
                room[self.rows] = np.minimum(room[self.rows], left)
        if self._allowed is not None:
            room[~self._allowed] = 0
        limits: Ints = room[rows]
        return limits

    def within(self, allowed: Mask) -> "ReservedLimits":
        """Return the same on some rows only."""
        narrowed = self._copy()
        narrowed._allowed = allowed if self._allowed is None else self._allowed & allowed  # noqa: SLF001 - of the same class
        return narrowed

    def without(self, avoided: Mask) -> "ReservedLimits":
        """Return the same without some rows."""
        return self.within(~avoided)

    def with_started(self, pods: Iterable[EndingPod]) -> "ReservedLimits":
        """Return the same after more pods were placed; itself if none of them matters here."""
        mattering = [pod for pod in pods if pod.row in self._at and self._has_moments_after(pod)]
        if not mattering:
            return self
        changed = self._copy()
        changed._deltas, changed._least = self._deltas.copy(), None  # noqa: SLF001 - the same
        for pod in mattering:
            changed._note_end(pod)  # noqa: SLF001 - the same
        return changed

    def ended(self, row: int, at: int) -> list[EndingPod]:
        """Return the pods on a row that are charged, and have ended by then."""
        node = self._cycle.table.node_at(row).name
        return [
            running
            for running in (*self._ends.on(node), *self._started.on(row))
            if self.base < running.end <= at and self._cycle.place_of(running.pod) is not None
        ]

    def _copy(self) -> "ReservedLimits":
        copied = copy(self)
        copied.number = next(_NUMBERS)
        return copied

    def _make_deltas(self) -> Ints:
        table = self._cycle.table
        shape = (len(self.moments), len(table.allocatable), len(self.rows))
        deltas = self._deltas = np.zeros(shape, dtype=np.int64)
        last = max(self._times, default=self.base)
        for row in self._at if last > self.base else ():
            for running in self.ended(row, last):
                self._note_end(running)
        amounts: dict[int, Ints] = {}
        for at, moment in enumerate(self.moments):
            for reserved in moment.active:
                if id(reserved) not in amounts:
                    amounts[id(reserved)] = self._amounts_of(reserved)
                deltas[at] -= amounts[id(reserved)]
        return deltas

    def _has_moments_after(self, running: EndingPod) -> bool:
        return self.base < running.end <= max(self._times, default=self.base)

    def _note_end(self, running: EndingPod) -> None:
        """Count what is free after a pod, which is charged at the base."""
        first, at = bisect_left(self._times, running.end), self._at[running.row]
        vector = self._cycle.table.vector(running.pod.shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self._deltas[first:, column, at] += amount

    def _amounts_of(self, reserved: PlannedStart) -> Ints:
        """Return what is reserved, by column and row."""
        table = self._cycle.table
        amounts = np.zeros((len(table.allocatable), len(self.rows)), dtype=np.int64)
        counts = Counter((each.node, each.pod.shape) for each in reserved.assignments)
        for (node, shape), pods in counts.items():
            at = self._at.get(table.row_of.get(node, -1))
            if at is not None:
                vector = table.vector(shape)
                for column, amount in zip(vector.columns, vector.amounts, strict=True):
                    amounts[column, at] += amount * pods
        return amounts
