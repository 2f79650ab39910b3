"""Room that is held from a time on, and until another: a toy that books CPU on nodes for later.

Until it starts, others may use the room if they end before; how long they take, their label says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.builders import make_pod
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.framework.toys import BookingSession

from koord.core.engine.arrays import NO_LIMIT
from koord.core.engine.cause import Cause
from koord.core.engine.planner import plan
from koord.core.engine.plugin import FilterReach, Hold, Plugin
from koord.core.engine.scoring import Scoring

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tests.builders import PodBuilder

    from koord.core.engine.arrays import Ints, Rows
    from koord.core.engine.cycle import Cycle
    from koord.core.model.pods import Pod, PodShape

NOW, START, END = 1_000.0, 1_600.0, 2_000.0
BOOKED = Cause("Booked", 80, "node(s) are booked before it would end", "Wait, or end sooner.")


@dataclass
class Later(Plugin):
    """Holds ``cpu`` of each of ``nodes`` from START until END for pods with the label."""

    nodes: Sequence[str]
    cpu: int
    name = "booking"

    def next_due(self) -> float | None:
        return next((at for at in (START, END) if at > self.view.now), None)

    def advance(self, now: float) -> Sequence[str]:
        return self.nodes if now in {START, END} else ()

    def open(self, cycle: Cycle) -> LaterSession:
        return LaterSession(cycle, [cycle.table.row_of[node] for node in self.nodes], self.cpu)


class LaterSession(BookingSession):
    has_windows = True
    reach = FilterReach.ROW

    def __init__(self, cycle: Cycle, rows: Sequence[int], cpu: int) -> None:
        super().__init__(cycle, rows, cpu if START <= cycle.now < END else 0)
        self._booked, self._is_ahead = cpu, cycle.now < START

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        if "booking" in pod.profile.labels:
            return "booking"
        takes = pod.profile.labels.get("takes")
        is_in_time = takes is not None and self._cycle.now + int(takes) <= START
        return "in-time" if is_in_time else "late"

    def concerns(self, shape: PodShape) -> bool:
        return shape.ask_of(self.name) == "booking"

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if self._is_ahead and shape.ask_of(self.name) == "late":
            limits = np.full(len(self._cycle.table.nodes), NO_LIMIT)
            column, requests = self._column, dict(shape.requests)
            free = self._cycle.table.allocatable[column] - self._cycle.used[column] - self._booked
            booked = list(self.used)
            limits[booked] = np.maximum(free[booked], 0) // requests["cpu"]
            yield BOOKED, limits[rows]

    def holds(self, shape: PodShape, rows: Ints) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        return {
            row: [
                tuple(replace(hold, start=START, end=END) for hold in option) for option in options
            ]
            for row, options in super().holds(shape, rows).items()
        }


def booked_cluster() -> FakeCluster:
    cluster = make_cluster(1, more_plugins=[Later(["n0"], 64_000)])
    cluster.state.advance(NOW)
    return cluster


def pod(**labels: str) -> PodBuilder:
    return make_pod("p").labels(**labels).requests(cpu=60_000)


@pytest.mark.parametrize(
    ("labels", "at", "fitting"),
    [
        ({}, NOW, 0),
        ({"takes": "600"}, NOW, 1),
        ({"takes": "601"}, NOW, 0),
        ({"takes": "600"}, START, 0),
        ({}, START, 0),
        ({"booking": "yes"}, START, 1),
        ({"booking": "yes"}, END - 1, 1),
        ({}, END, 1),
        ({"booking": "yes"}, END, 1),
    ],
)
def test_room_is_free_until_it_is_needed_and_held_as_long_as_it_is(
    labels: dict[str, str], at: float, fitting: int
) -> None:
    state = booked_cluster().state
    state.refresh()
    unit = make_unit("u", [pod(**labels)])
    assert len(plan(state.open_cycle(at=at), (unit,), Scoring()).placements) == fitting


def test_hold_is_offered_only_inside_its_window() -> None:
    state = booked_cluster().state
    state.refresh()
    like = pod(booking="yes").build()
    for at, is_held in ((NOW, False), (START, True), (END, False)):
        cycle = state.open_cycle(at=at)
        shape = cycle.shape_of(like)
        options = list(cycle._options(shape, 0))
        assert [bool(option) for option in options] == ([True, False] if is_held else [False])


def test_unit_that_waits_for_the_start_is_tried_when_it_comes() -> None:
    cluster = booked_cluster()
    cluster.pods(make_pod("user").labels(takes="600").requests(cpu=60_000).running("n0"))
    cluster.pods(make_pod("owner").labels(booking="yes").requests(cpu=60_000))
    assert cluster.step() == []
    cluster.delete_pods("user")
    due = cluster.state.next_due()
    assert due == START
    cluster.state.note_freed(cluster.state.advance(due))
    assert cluster.step() == ["owner"]
