"""What two domains give a pod is in the same zone of a node, which a third one chooses."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import numpy as np
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit
from typing_extensions import override

from koord.core.engine.plugin import Aligned, Plugin, Unschedulable
from koord.core.model.pods import AnnotationWrite
from koord.core.model.zone_hints import NumaHint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.builders import PodBuilder

    from koord.core.engine.arrays import Ints
    from koord.core.engine.cycle import Cycle
    from koord.core.engine.plugin import Draft
    from koord.core.model.pods import Pod, PodShape
    from koord.core.model.zone_hints import Hints


class Seat(AnnotationWrite):
    def writes(self) -> Iterable[AnnotationWrite]:
        yield self


class Seats(Plugin):
    """Seats of one kind; free ones by zone, the same on every node."""

    def __init__(self, name: str, free: tuple[int, ...]) -> None:
        self.name, self.free = name, free  # type: ignore[misc]

    @override
    def open(self, cycle: Cycle) -> SeatsSession:
        return SeatsSession(self, cycle)


class SeatsSession(Aligned):
    def __init__(self, plugin: Seats, cycle: Cycle) -> None:
        self.name, self.cycle = plugin.name, cycle  # type: ignore[misc]
        self.free = np.tile(np.array(plugin.free), (len(cycle.table.nodes), 1))

    @override
    def ask(self, pod: Pod, shape: PodShape) -> bool:
        return True

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        numbers: Ints = self.free[rows] @ (100 ** np.arange(self.free.shape[1]))
        return numbers

    @override
    def hints(self, shape: PodShape, row: int) -> Mapping[str, Hints]:
        free = np.flatnonzero(self.free[row]).tolist()
        return {self.name: tuple(NumaHint(1 << zone, is_preferred=True) for zone in free)}

    @override
    def reserve(self, draft: Draft) -> Seat:
        assert draft.zones is not None
        zone = draft.zones.bit_length() - 1
        self._take(draft.row, zone, 1)
        self.cycle.undo.push(self._take, draft.row, zone, -1)
        return Seat(draft.pod.uid, self.name, str(zone))

    def _take(self, row: int, zone: int, count: int) -> None:
        self.free[row, zone] -= count
        assert self.free[row, zone] >= 0


class OneZone(Plugin):
    """Every pod is in one zone."""

    name = "one-zone"

    @override
    def open(self, cycle: Cycle) -> OneZoneSession:
        return OneZoneSession(cycle)


class OneZoneSession(Aligned):
    name = OneZone.name

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle

    @override
    def ask(self, pod: Pod, shape: PodShape) -> bool:
        return True

    @override
    def align(self, draft: Draft) -> int | Unschedulable:
        hints = [found or () for _, found in self.cycle.hints(draft.shape, draft.row)]
        common = reduce(and_, (sum(one.nodes or 0 for one in some) for some in hints))
        return common & -common or Unschedulable("no zone has both")


def pods(name: str, count: int) -> list[PodBuilder]:
    return [make_pod(f"{name}-{at}").requests(cpu=100) for at in range(count)]


def test_what_domains_give_is_in_one_zone_and_gangs_that_do_not_fit_give_it_back() -> None:
    plugins = [Seats("red", (2, 1, 0)), Seats("blue", (0, 2, 5)), OneZone()]
    cluster = make_cluster(more_plugins=plugins)
    cluster.nodes(*(make_node(name).cpu(4000) for name in ("n0", "n1")))
    plan = cluster.plan(make_unit("u", pods("u", 3)), make_unit("v", pods("v", 2)))
    (placement,) = plan.placements
    assert placement.unit == "v"
    for one in placement.assignments:
        assert {(seat.key, seat.value) for seat in one.allocations} == {("red", "1"), ("blue", "1")}
    assert {one.node for one in placement.assignments} == {"n0", "n1"}
    assert [one.unit for one in plan.refusals] == ["u"]


def test_rows_with_equal_signatures_have_equal_hints() -> None:
    cluster = make_cluster(more_plugins=[Seats("red", (2, 1)), Seats("blue", (1, 1)), OneZone()])
    cluster.nodes(*(make_node(name).cpu(4000) for name in ("n0", "n1", "n2")))
    cycle = cluster.open_cycle()
    pod = make_pod("p").build()
    shape = cycle.shape_of(pod)
    cycle.reserve(pod, shape, 1)
    columns = cycle.hint_signatures(shape, np.arange(3))
    rows = [tuple(int(column[row]) for column in columns) for row in range(3)]
    assert rows[0] == rows[2] != rows[1]
    assert cycle.hints(shape, 0) == cycle.hints(shape, 2) != cycle.hints(shape, 1)
