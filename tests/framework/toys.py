"""Toy plugins: they show what joining the planner takes, and exercise every way to do so.

``Lanes`` filters, scores and reserves: nodes have numbered lanes, and a pod with the label ``lane``
gets one of its own. ``Refuse`` refuses pods after others have reserved for them. ``Booking`` holds
CPU on nodes for pods with the label ``booking``, which may use more than is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from koord.core.engine.cause import Cause
from koord.core.engine.plugin import (
    FilterReach,
    Hold,
    Holding,
    Plugin,
    Scale,
    Score,
    Session,
    Unschedulable,
)
from koord.core.model.pods import AnnotationWrite

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from koord.core.engine.arrays import Ints, Rows
    from koord.core.engine.cycle import Cycle
    from koord.core.engine.plugin import Draft
    from koord.core.model.pods import Allocation, Pod, PodShape

NO_LANE = Cause("NoLane", 80, "node(s) had no free lane", "Add lanes to {nodes}.")


@dataclass(frozen=True)
class Lane:
    """One lane for one pod."""

    uid: str
    number: int

    def writes(self) -> Iterable[AnnotationWrite]:
        yield AnnotationWrite(self.uid, "toy.example/lane", str(self.number))


class Lanes(Plugin):
    """``lanes``: how many each node has; ``taken``: lanes of pods from before, by uid."""

    name = "lanes"

    def __init__(self, lanes: int, taken: Mapping[str, tuple[str, int]] | None = None) -> None:
        self.lanes = lanes
        self.taken = taken or {}

    def open(self, cycle: Cycle) -> LanesSession:
        return LanesSession(self, cycle)


class LanesSession(Session):
    name = "lanes"
    reach = FilterReach.ROW

    def __init__(self, plugin: Lanes, cycle: Cycle) -> None:
        self.taken: dict[tuple[int, int], str] = {
            (cycle.table.row_of[node], lane): uid for uid, (node, lane) in plugin.taken.items()
        }
        self._cycle = cycle
        self._lanes = plugin.lanes

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return pod.profile.labels.get("lane")

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if self.concerns(shape):
            yield NO_LANE, self._free()[rows]

    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        if self.concerns(shape):
            yield Score(self._free()[rows], 10, Scale.BY_MAX)

    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return self._free()[rows]

    def reserve(self, draft: Draft) -> Allocation | Unschedulable:
        free = [at for at in range(self._lanes) if (draft.row, at) not in self.taken]
        if not free:
            return Unschedulable(NO_LANE)
        self._take(draft.row, free[0], draft.pod.uid)
        return Lane(draft.pod.uid, free[0])

    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        lanes = [lane for (at, lane), uid in self.taken.items() if (at, uid) == (row, pod.uid)]
        for lane in lanes:
            del self.taken[row, lane]
            self._cycle.undo.push(self.taken.__setitem__, (row, lane), pod.uid)
        return [Lane(pod.uid, lane) for lane in lanes]

    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Unschedulable | None:
        for one in allocations:
            if isinstance(one, Lane):
                if (row, one.number) in self.taken:
                    return Unschedulable(NO_LANE)
                self._take(row, one.number, pod.uid)
        return None

    def _take(self, row: int, lane: int, uid: str) -> None:
        self.taken[row, lane] = uid
        self._cycle.undo.push(self.taken.__delitem__, (row, lane))

    def _free(self) -> Ints:
        free = np.full(len(self._cycle.table.nodes), self._lanes, dtype=np.int64)
        for row, _ in self.taken:
            free[row] -= 1
        return free


@dataclass
class Refuse(Plugin):
    """Refuses pods with a lane on some nodes, but only when everything else is reserved."""

    nodes: Sequence[str]
    ends_unit: bool = False
    name = "refuse"

    def open(self, cycle: Cycle) -> RefuseSession:
        rows = {cycle.table.row_of[node] for node in self.nodes}
        return RefuseSession(rows, Unschedulable("refused", ends_unit=self.ends_unit))


@dataclass
class RefuseSession(Session):
    rows: set[int]
    short: Unschedulable
    name = "refuse"
    after = ("lanes",)

    def concerns(self, shape: PodShape) -> bool:
        return shape.ask_of("lanes") is not None

    def reserve(self, draft: Draft) -> Unschedulable | None:
        assert draft.allocations, "what comes before has reserved"
        return self.short if draft.row in self.rows else None


@dataclass
class Booking(Plugin):
    """Holds ``cpu`` on each of ``nodes``; what is held counts as used there."""

    nodes: Sequence[str]
    cpu: int
    name = "booking"

    def open(self, cycle: Cycle) -> BookingSession:
        return BookingSession(cycle, [cycle.table.row_of[node] for node in self.nodes], self.cpu)


class BookingSession(Holding):
    """Charges max(C, U) per row: C is held, U is used by pods of the booking."""

    name = "booking"

    def __init__(self, cycle: Cycle, rows: Sequence[int], held: int) -> None:
        self.used = dict.fromkeys(rows, 0)
        self._cycle, self._held = cycle, held
        self._column = cycle.table.column("cpu")
        for row in rows:
            cycle.used[self._column, row] += held

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        return pod.profile.labels.get("booking")

    def holds(self, shape: PodShape, rows: Ints) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        most = {row: self._most(shape, row) for row in rows.tolist() if row in self.used}
        return {row: ((Hold(f"booking-{row}", one),),) for row, one in most.items() if one}

    def reserve(self, draft: Draft) -> Unschedulable | None:
        if draft.holds:
            self._use(draft.row, dict(draft.shape.requests)["cpu"])
        return None

    def _most(self, shape: PodShape, row: int) -> int:
        left = max(self._held - self.used[row], 0)
        free = (
            self._cycle.table.allocatable[self._column, row] - self._cycle.used[self._column, row]
        )
        return int(left + free) // dict(shape.requests)["cpu"]

    def _use(self, row: int, cpu: int) -> None:
        """Count what a pod uses; its own charge of ``cpu`` stands for more of max(C, U)."""
        before = max(self._held, self.used[row])
        self._cycle.undo.push(self.used.__setitem__, row, self.used[row])
        self.used[row] += cpu
        self._cycle.charge(row, self._column, max(self._held, self.used[row]) - before - cpu)
