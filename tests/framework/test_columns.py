"""Columns of a plugin's own: a toy that estimates how much CPU pods really use.

A node takes pods until the estimates reach part of its CPUs; nodes that are less loaded come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit
from tests.support.laws import examples

from koord.core.engine.cause import Cause
from koord.core.engine.plugin import Charging, Plugin
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.scoring import ScoreTerm, ScoreTerms, ScoringStrategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.engine.cycle import Cycle
    from koord.core.engine.state_view import StateView
    from koord.core.model.nodes import Node
    from koord.core.model.pod_charge import PodCharge
    from koord.core.model.pods import PodShape

BUSY = Cause("Busy", 80, "node(s) would be too busy", "Wait until {nodes} are less busy.")


@dataclass
class Load(Plugin):
    """Expects of each pod ``percent`` of its CPU request, and fills nodes up to ``most``."""

    percent: int = 50
    most: int = 60
    name = "load"

    def attach(self, view: StateView) -> None:
        self.view = view
        self.column = view.table.add_column(BUSY)

    def upsert_node(self, row: int, node: Node) -> None:
        self.view.table.allocatable[self.column, row] = node.allocatable["cpu"] * self.most // 100

    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if row >= 0:
            self.view.table.used[self.column, row] += self.estimate(charge.shape) * count

    def measure(self, node: str, cpu: int) -> None:
        self.view.table.used[self.column, self.view.table.row_of[node]] = cpu
        self.view.note_freed([node])

    def estimate(self, shape: PodShape) -> int:
        return dict(shape.requests).get("cpu", 0) * self.percent // 100

    def open(self, cycle: Cycle) -> LoadSession:
        return LoadSession(self, cycle)


class LoadSession(Charging):
    name = "load"

    def __init__(self, plugin: Load, cycle: Cycle) -> None:
        self._plugin, self._cpu = plugin, cycle.table.column("cpu")

    def demand(self, shape: PodShape) -> Iterable[tuple[int, int]]:
        yield self._plugin.column, self._plugin.estimate(shape)

    def score_terms(self, shape: PodShape) -> Iterable[ScoreTerms]:
        estimate = self._plugin.estimate(shape)
        least = ScoringStrategy.LEAST_ALLOCATED
        yield ScoreTerms(
            (ScoreTerm(self._plugin.column, estimate, least, 1, self._cpu),), weight=10
        )


def pods(count: int, cpu: int = 1000, name: str = "p") -> list[PodBuilder]:
    return [make_pod(f"{name}-{at}").requests(cpu=cpu) for at in range(count)]


def cluster_with(load: Load, nodes: int = 2, cpu: int = 10_000) -> FakeCluster:
    cluster = make_cluster(more_plugins=[load])
    return cluster.nodes(*(make_node(f"n{at}").cpu(cpu) for at in range(nodes)))


def test_gang_of_equal_members_is_placed_by_count_up_to_the_limit_of_the_column() -> None:
    load = Load(percent=150)
    cluster = cluster_with(load)
    cycle = cluster.open_cycle()
    shape = cycle.shape_of(pods(1)[0].build())
    assert cycle.is_plain(shape)
    assert not cycle.needs_reserve(shape)
    assert cluster.plan(make_unit("u", pods(8))).placements
    (refusal,) = cluster.plan(make_unit("u", pods(9))).refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    assert refusal.reason.fit == 8
    assert "had too little" not in refusal.reason.text()
    assert "would be too busy" in refusal.reason.text()


def test_less_loaded_node_comes_first_and_members_even_the_load_out() -> None:
    load = Load()
    cluster = cluster_with(load)
    load.measure("n0", 2000)
    (placement,) = cluster.plan(make_unit("u", pods(6))).placements
    nodes = [one.node for one in placement.assignments]
    assert (nodes.count("n0"), nodes.count("n1")) == (1, 5)


def test_pods_that_run_are_charged_until_they_go() -> None:
    load = Load(percent=100)
    cluster = cluster_with(load, nodes=1)
    cluster.pods(*(pod.running("n0") for pod in pods(5, name="old")))
    assert not cluster.plan(make_unit("u", pods(2))).placements
    cluster.delete_pods("old-0")
    assert cluster.plan(make_unit("u", pods(2))).placements


def test_measurement_wakes_what_waits_for_it() -> None:
    load = Load()
    cluster = cluster_with(load, nodes=1)
    load.measure("n0", 6000)
    cluster.pods(*(pod for pod in pods(1)))
    assert cluster.step() == []
    load.measure("n0", 1000)
    assert cluster.step() == ["p-0"]


def test_other_resources_and_nodes_leave_the_column_alone() -> None:
    load = Load(percent=100)
    cluster = cluster_with(load, nodes=1).pods(*(pod.running("n0") for pod in pods(3, name="old")))
    table = cluster.state.table
    cluster.nodes(make_node("n0").cpu(10_000).gpu(4))
    assert table.used[load.column, cluster.row("n0")] == 3000
    cluster.state.remove_node("n0")
    cluster.nodes(*(make_node(f"m{at}").cpu(10_000) for at in range(100)))
    rows = [cluster.row(f"m{at}") for at in range(100)]
    assert set(table.allocatable[load.column, rows].tolist()) == {6000}
    assert not table.used[load.column].any()


def test_pods_that_are_there_may_stay_above_the_limit() -> None:
    load = Load()
    cluster = cluster_with(load, nodes=1)
    load.measure("n0", 9000)
    cycle = cluster.open_cycle()
    assert cycle.can_stay(cycle.shape_of(pods(1)[0].build()), "n0")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 6000), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(100, 3000),
    st.integers(1, 150),
)
def test_bulk_equals_one_by_one_and_a_rollback_restores_every_column(
    measured: list[int], count: int, cpu: int, percent: int
) -> None:
    load = Load(percent=percent)
    cluster = cluster_with(load, nodes=len(measured))
    for at, used in enumerate(measured):
        load.measure(f"n{at}", used)
    cycle = cluster.open_cycle()
    before, mark = cycle.used.copy(), cycle.checkpoint()
    together = cluster.plan(make_unit("u", pods(count, cpu), required=0))
    single = cluster.plan(*(make_unit(pod.build().uid, [pod]) for pod in pods(count, cpu)))
    bulk = sorted(one.node for placed in together.placements for one in placed.assignments)
    assert bulk == sorted(one.node for placed in single.placements for one in placed.assignments)
    shape = cycle.shape_of(pods(1, cpu)[0].build())
    for row, fit in enumerate(cycle.room(shape).tolist()):
        if fit:
            cycle.place(shape, row, fit)
    assert (cycle.used[load.column] <= np.maximum(before[load.column], 6000)).all()
    cycle.rollback(mark)
    assert np.array_equal(cycle.used, before)
