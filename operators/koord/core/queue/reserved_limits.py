"""How many pods fit on nodes where room is reserved for others, until they have ended.

Room of a pod on a node is the least over all times until its end: what runs now ends, what is
reserved begins. Between two starts of what is reserved room only grows, so those times and the
first are enough (rule Q26). Amounts only; devices are tried (``PlannedRoom``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.model.plan import Assignment, Placement, Unit
from koord.core.model.pods import PodShape
from koord.core.queue.ends import EndingPod, Ends
from koord.core.queue.room import FOREVER, Reserved
from koord.core.queue.run_time import Knowledge


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
        self._table = table
        self._pods: list[EndingPod] = []
        self._counts: list[int] = []
        """How many pods there are up to each of those units."""

    @property
    def pods(self) -> Sequence[EndingPod]:
        """All of them."""
        for unit, placement in self.placed[len(self._counts) :]:
            end = self.end_of(unit)
            for assignment in placement.assignments:
                row = self._table.row_of[assignment.node]
                pod = EndingPod(assignment.pod, row, end, end, Knowledge.DECLARED)
                self._pods.append(pod)
            self._counts.append(len(self._pods))
        return self._pods

    def forget_since(self, count: int) -> None:
        """Forget all but the first units."""
        del self.placed[count:], self._counts[count:]
        del self._pods[self._counts[-1] if self._counts else 0 :]

    def on(self, row: int) -> Iterable[EndingPod]:
        return (running for running in self.pods if running.row == row)


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
        self._deltas = [self._delta_of(moment) for moment in moments]

    def room(self, shape: PodShape, rows: Rows) -> Ints:
        """Return how many pods of a shape fit on each row."""
        table, used = self._cycle.table, self._cycle.used
        room = np.full(used.shape[1], NO_LIMIT, dtype=np.int64)
        vector = table.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            free = table.allocatable[column][self.rows] - used[column][self.rows]
            for delta in self._deltas:
                left = np.maximum((free + delta[column]) // amount, 0)
                room[self.rows] = np.minimum(room[self.rows], left)
        if self._allowed is not None:
            room[~self._allowed] = 0
        limits: Ints = room[rows]
        return limits

    def within(self, allowed: Mask) -> "ReservedLimits":
        """Return the same on some rows only."""
        narrowed = copy(self)
        narrowed._allowed = allowed if self._allowed is None else self._allowed & allowed  # noqa: SLF001 - of the same class
        return narrowed

    def without(self, avoided: Mask) -> "ReservedLimits":
        """Return the same without some rows."""
        return self.within(~avoided)

    def ended(self, row: int, at: int) -> list[EndingPod]:
        """Return the pods on a row that are charged, and have ended by then."""
        node = self._cycle.table.node_at(row).name
        return [
            running
            for running in (*self._ends.on(node), *self._started.on(row))
            if self.base < running.end <= at and self._cycle.place_of(running.pod) is not None
        ]

    def _delta_of(self, moment: ReservedMoment) -> Ints:
        """Return, by column and row, what is free then and not now, less what is reserved."""
        table = self._cycle.table
        delta = np.zeros((len(table.allocatable), len(self.rows)), dtype=np.int64)
        for reserved in moment.active:
            for assignment in reserved.assignments:
                at = self._at.get(table.row_of.get(assignment.node, -1))
                if at is not None:
                    self._add(delta, at, assignment.pod.shape, -1)
        if moment.at > self.base:
            for row, at in self._at.items():
                for running in self.ended(row, moment.at):
                    self._add(delta, at, running.pod.shape, 1)
        return delta

    def _add(self, delta: Ints, at: int, shape: PodShape, sign: int) -> None:
        vector = self._cycle.table.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            delta[column, at] += sign * amount
