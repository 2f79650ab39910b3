"""NUMA policies compared with brute force on random use of a node, and bounds with trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.cluster import make_unit
from tests.numa.test_plugin import (
    GIB,
    PODS,
    WISHES,
    given,
    numa_cluster,
    pod,
)
from tests.support.laws import examples

from koord.core.engine.cycle import Place
from koord.core.numa.model import NumaAllocationHints
from koord.core.numa.policy import NumaExclusive, NumaPolicy

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.pods import Pod

CPUS = st.sampled_from([1000, 2000, 3000, 4000, 6000, 8000, 10000])
GPUS = st.integers(0, 5)
MEMORIES = st.sampled_from([1, 20, 40, 60, 100])


def start(cluster: FakeCluster, pods: list[Pod]) -> list[tuple[int, list[int]]]:
    """Place what fits, one after the other; return the NUMA node and GPUs of each, cpu in milli."""
    places = []
    for subject in pods:
        cluster.pods(subject)
        plan = cluster.place(make_unit(subject.name, [subject]))
        for unit in plan.placements:
            for assignment in unit.assignments:
                numa, _, gpus = given(assignment)
                assert len(numa) == 1, "one NUMA node has it all"
                assert {minor // 4 for minor in gpus} <= set(numa)
                places.append((numa[0], gpus))
    return places


@for_all(
    st.lists(st.tuples(CPUS, MEMORIES, GPUS), max_size=6),
    st.tuples(CPUS, MEMORIES, GPUS),
    st.booleans(),
)
@settings(max_examples=examples(25), deadline=None)
def test_one_numa_node_is_found_if_there_is_one(
    before: list[tuple[int, int, int]],
    last: tuple[int, int, int],
    is_pinned: bool,  # noqa: FBT001 - drawn
) -> None:
    wishes = NumaAllocationHints(
        NumaPolicy.SINGLE_NUMA_NODE, NumaExclusive.PREFERRED, is_pinned=is_pinned
    )
    cluster = numa_cluster(gpus=True)
    free = [[8000, 64, 4], [8000, 64, 4]]
    for at, (cpu, memory, gpus) in enumerate([*before, last]):
        wanted = (cpu, memory, gpus)
        fits = [zone for zone in free if all(a >= b for a, b in zip(zone, wanted, strict=True))]
        placed = start(cluster, [pod(f"p{at}", wishes, cpu, memory * GIB, gpus)])
        assert bool(placed) == bool(fits)
        for numa, _ in placed:
            zone = free[numa]
            for index, amount in enumerate(wanted):
                zone[index] -= amount
            assert min(zone) >= 0


@for_all(PODS, WISHES, CPUS, GPUS)
@settings(max_examples=examples(20), deadline=None)
def test_bounds_are_never_too_low_and_zero_only_where_nothing_fits(
    before: list[tuple[NumaAllocationHints, int, int]],
    wishes: NumaAllocationHints,
    cpu: int,
    gpus: int,
) -> None:
    cluster = numa_cluster(gpus=True)
    for at, earlier in enumerate(before):
        cluster.pods(pod(f"b{at}", earlier[0], earlier[1], 4 * GIB, earlier[2]))
    cluster.step()
    cycle = cluster.open_cycle()
    like = pod("p", wishes, cpu, 4 * GIB, gpus)
    shape = cycle.shape_of(like)
    rows = np.array([0])
    (bound,) = cycle.bounds(shape, rows).tolist()
    (count,) = cycle.fit(shape, like, rows, 100).tolist()
    assert count <= bound
    trial = 0
    while isinstance(cycle.reserve(like, shape, 0), Place):
        trial += 1
    assert trial == count
    assert bool(bound) == bool(trial)
