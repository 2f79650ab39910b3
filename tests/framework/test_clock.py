"""One clock: a toy whose measurements expire, and a planner that compares nothing with another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit

from koord.core.engine.arrays import NO_LIMIT
from koord.core.engine.cause import Cause
from koord.core.engine.plugin import FilterReach, Plugin, Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from koord.core.engine.arrays import Ints, Rows
    from koord.core.engine.cycle import Cycle
    from koord.core.model.pods import PodShape

START = 1_700_000_000.0
VALID_SECONDS = 60.0
HOT = Cause("Hot", 80, "node(s) were measured as too busy", "Wait until {nodes} are less busy.")


@dataclass
class Busy(Plugin):
    """Keeps pods off nodes that were measured as busy, as long as a measurement counts."""

    name = "busy"
    measured: dict[str, float] = field(default_factory=dict)

    def measure(self, node: str) -> None:
        self.measured[node] = self.view.now

    def advance(self, now: float) -> list[str]:
        over = [node for node, at in self.measured.items() if at + VALID_SECONDS <= now]
        for node in over:
            del self.measured[node]
        return over

    def next_due(self) -> float | None:
        return min((at + VALID_SECONDS for at in self.measured.values()), default=None)

    def open(self, cycle: Cycle) -> BusySession | None:
        rows = [
            cycle.table.row_of[node]
            for node, at in self.measured.items()
            if cycle.now < at + VALID_SECONDS
        ]
        return BusySession(rows, len(cycle.table.nodes)) if rows else None


class BusySession(Session):
    name = "busy"
    reach = FilterReach.NOTHING

    def __init__(self, busy: list[int], rows: int) -> None:
        self.limits = np.full(rows, NO_LIMIT)
        self.limits[busy] = 0

    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        yield HOT, self.limits[rows]


def test_what_was_measured_expires_by_the_clock_that_is_handed_in() -> None:
    busy = Busy()
    cluster = make_cluster(1, more_plugins=[busy])
    unit = make_unit("u", [make_pod("p").requests(cpu=100)])
    cluster.state.advance(START)
    busy.measure("n0")
    assert cluster.state.next_due() == START + VALID_SECONDS
    assert cluster.state.advance(START + VALID_SECONDS - 1) == set()
    assert not cluster.plan(unit).placements
    assert cluster.state.advance(START + VALID_SECONDS) == {"n0"}
    assert cluster.plan(unit).placements
    assert cluster.state.next_due() is None


def test_a_cycle_keeps_the_time_at_which_it_was_opened() -> None:
    cluster = make_cluster(1)
    cluster.state.advance(START)
    cycle = cluster.open_cycle()
    cluster.state.advance(START + 1)
    assert (cycle.now, cluster.state.now) == (START, START + 1)
