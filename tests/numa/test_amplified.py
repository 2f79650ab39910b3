"""Nodes whose CPUs are offered several times: what pinned CPUs cost there, and what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.builders import make_node
from tests.cluster import SCORING, FakeCluster, make_cluster, make_unit
from tests.numa.test_plugin import GIB, PINNED, SINGLE, make_report, placed, pod, refused, settle
from tests.objects import upsert_numa

from koord.answers.explain import explain_pod
from koord.core.engine.cycle import Place
from koord.core.model.amplification import Amplification
from koord.core.model.units import CPU, MEMORY
from koord.core.numa.cpu_topology import CpuPlace, make_topology
from koord.core.numa.model import NumaAllocation, NumaAllocationHints, NumaReport, make_layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from koord.core.model.pods import Pod

SHARED = NumaAllocationHints()


def amplified(ratios: Amplification, cpus: int = 32, *, is_reported: bool = False) -> FakeCluster:
    """One node of two NUMA nodes, whose allocatable is already what it offers."""
    half = cpus // 2
    places = [CpuPlace(at, core=at // 2, socket=at // half, numa=at // half) for at in range(cpus)]
    part = ((CPU, half * 1000), (MEMORY, 64 * GIB))
    report = make_report("n0", zones=((0, part), (1, part)), cpus=make_topology(places))
    node = make_node("n0").cpu(cpus * ratios.cpu).memory(128 * GIB).build()
    cluster = make_cluster().nodes(replace(node, amplification=ratios))
    upsert_numa(cluster.state, replace(report, is_amplified=is_reported))
    return cluster


def busy() -> FakeCluster:
    """48 CPUs are offered, 8 pinned ones cost 12, others have 20: 16 are left."""
    cluster = amplified(Amplification(1500))
    settle(cluster, pod("pinned", PINNED, cpu=8000), pod("shared", SHARED, cpu=20_000))
    return cluster


def test_what_pods_use_of_cpus_that_are_offered_several_times() -> None:
    def used(*pods: Pod) -> int:
        cluster = amplified(Amplification(1500))
        settle(cluster, *pods)
        cycle = cluster.open_cycle()
        return int(cycle.used[cycle.table.column(CPU), 0])

    assert used(pod("pinned", PINNED, cpu=4000)) == 6_000
    assert used(pod("pinned", PINNED, cpu=8000), pod("shared", SHARED, cpu=20_000)) == 32_000
    cluster = amplified(Amplification(1500))
    assert dict(cluster.state.table.node_at(0).allocatable)[CPU] == 48_000


def test_a_pinned_pod_costs_its_cpus_times_the_ratio() -> None:
    assert placed(busy().plan(make_unit("u", [pod("p", PINNED, cpu=10_000)])))
    text = refused(busy().plan(make_unit("u", [pod("p", PINNED, cpu=11_000)])))
    assert "Insufficient amplified cpu" in text


def test_a_pod_without_pinned_cpus_costs_what_it_requests() -> None:
    assert placed(busy().plan(make_unit("u", [pod("p", SHARED, cpu=16_000)])))
    text = refused(busy().plan(make_unit("u", [pod("p", SHARED, cpu=16_001)])))
    assert "Insufficient" in text or "lacks" in text


def test_explain_says_what_pinned_cpus_cost_there() -> None:
    cluster = busy()
    cluster.pods(pod("p", PINNED, cpu=11_000))
    (shape,) = explain_pod(cluster.state, cluster.pod("p"), SCORING).offers
    assert [(node.cause, node.detail) for node in shape.nodes] == [
        (
            "InsufficientAmplifiedCPU",
            "11 pinned CPUs cost 16500m of 16 free, 48 are offered",
        )
    ]


def test_a_node_with_bad_ratios_takes_no_pinned_pods() -> None:
    cluster = amplified(Amplification(problem="is no JSON object of numbers"))
    text = refused(cluster.plan(make_unit("u", [pod("p", PINNED)])))
    assert "invalid CPU amplification ratio" in text
    assert placed(cluster.plan(make_unit("v", [pod("q", SINGLE), pod("r", SHARED)])))
    cluster.pods(pod("p", PINNED))
    (shape,) = explain_pod(cluster.state, cluster.pod("p"), SCORING).offers
    (node,) = shape.nodes
    assert node.cause == "InvalidAmplificationRatio"
    assert "resource-amplification-ratio] is no JSON object of numbers" in node.detail


def test_pods_that_wait_for_valid_ratios_are_tried_again() -> None:
    cluster = amplified(Amplification(problem="is no JSON object of numbers"))
    cluster.pods(pod("p", PINNED))
    assert cluster.step() == []
    node = cluster.state.table.node_at(0)
    cluster.nodes(replace(node, amplification=Amplification()))
    assert cluster.step() == ["p"]


@pytest.mark.parametrize(
    ("report", "zone"),
    [
        (make_report("n0"), ((CPU, 12_000), (MEMORY, 96 * GIB))),
        (make_report("n0", is_amplified=True), ((CPU, 8000), (MEMORY, 64 * GIB))),
        (make_report("n0", is_amplified=True, reserved=0x3), ((CPU, 5000), (MEMORY, 64 * GIB))),
    ],
)
def test_numa_nodes_are_amplified_unless_their_report_is(
    report: NumaReport, zone: tuple[tuple[str, int], ...]
) -> None:
    node = replace(make_node("n0").build(), amplification=Amplification(1500, 1500))
    assert make_layout(report, node).zones[0] == (0, zone)


RATIOS = st.integers(100, 500).map(lambda ratio: ratio * 10)
REQUESTS = st.lists(
    st.tuples(st.sampled_from([PINNED, SHARED, SINGLE]), st.sampled_from([500, 1000, 3000, 7000])),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(st.tuples(st.sampled_from(["place", "remove", "undo"]), st.integers(0, 11)))


class Bookkeeping:
    """What pods of one node have, counted apart from the planner: CPU requested, CPUs pinned."""

    def __init__(self, cluster: FakeCluster, pods: list[Pod], ratio: int) -> None:
        self.ratio, self.held = ratio, dict[str, tuple[int, int]]()
        for settled in pods:
            cluster.pods(settled)
            cluster.step()
            bound = cluster.pod(settled.name)
            if bound.node:
                self.note(bound, bound.allocations)
        self.cycle = cluster.open_cycle()
        self.marks = [(self.cycle.checkpoint(), dict(self.held))]

    def note(self, chosen: Pod, allocations: Iterable[object]) -> None:
        cpus = [one.cpus.bit_count() for one in allocations if isinstance(one, NumaAllocation)]
        self.held[chosen.uid] = dict(chosen.shape.requests)[CPU], sum(cpus)

    def place(self, chosen: Pod) -> None:
        cycle, shape = self.cycle, self.cycle.shape_of(chosen)
        if chosen.uid in self.held or not int(cycle.fit(shape, chosen, np.array([0]), 1)[0]):
            return
        place = cycle.reserve(chosen, shape, 0)
        if isinstance(place, Place):
            self.note(chosen, place.allocations)

    def remove(self, chosen: Pod, *, returns: bool) -> None:
        before = self.held.pop(chosen.uid, None)
        if before is None:
            return
        removed = self.cycle.remove([chosen])
        if returns:
            assert self.cycle.restore(removed)
            self.held[chosen.uid] = before

    def undo(self, at: int) -> None:
        mark, earlier = self.marks[at % len(self.marks)]
        del self.marks[at % len(self.marks) + 1 :]
        self.cycle.rollback(mark)
        self.held = dict(earlier)

    @property
    def used(self) -> int:
        requested = sum(cpu for cpu, _ in self.held.values())
        pinned = sum(count for _, count in self.held.values())
        return requested - 1000 * pinned + pinned * self.ratio


@for_all(RATIOS, REQUESTS, STEPS)
@settings(deadline=None)
def test_no_more_is_used_than_is_offered_and_undo_is_exact(
    ratio: int, requests: list[tuple[NumaAllocationHints, int]], steps: list[tuple[str, int]]
) -> None:
    cluster = amplified(Amplification(ratio), cpus=16)
    pods = [pod(f"p{at}", *request) for at, request in enumerate(requests)]
    books = Bookkeeping(cluster, pods[:2], ratio)
    column = books.cycle.table.column(CPU)
    for step, at in steps:
        chosen = pods[at % len(pods)]
        match step:
            case "place":
                books.marks.append((books.cycle.checkpoint(), dict(books.held)))
                books.place(chosen)
            case "remove":
                books.remove(chosen, returns=bool(at % 2))
            case _:
                books.undo(at)
        assert int(books.cycle.used[column, 0]) == books.used
        assert books.used <= 16 * ratio
