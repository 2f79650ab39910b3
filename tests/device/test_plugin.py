"""Devices in the planner: which node, which devices, and that everything can be undone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import SCORING, make_cluster, make_unit
from tests.device.nodes import a100x8, report
from tests.support.laws import examples

from koord.answers.explain import explain_pod
from koord.core.device.allocation import AllocatedDevices
from koord.core.device.inventory import RECOVERY_SECONDS
from koord.core.device.model import Hint, Joint, JointScope, Scope
from koord.core.device.plugin import Devices
from koord.core.device.reasons import InvalidDeviceRequest
from koord.core.device.request import DeviceAllocationHints
from koord.core.device.session import NAME, DeviceSession
from koord.core.engine.cycle import Place
from koord.core.engine.reasons import InsufficientNodes
from koord.core.eviction.model import Preemption
from koord.core.eviction.search import plan_preemption
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY_RATIO, RDMA, RDMA_SHARE

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.device.model import Inventory
    from koord.core.model.plan import Assignment, Plan
    from koord.core.model.pods import Pod

ROOMY = {GPU_CORE: 800, GPU_MEMORY_RATIO: 800, RDMA_SHARE: 400}


def gpu_cluster(count: int = 2, inventory: Inventory | None = None) -> FakeCluster:
    cluster = make_cluster()
    for at in range(count):
        node = make_node(f"n{at}").gpu(8)
        for name, amount in ROOMY.items():
            node.resource(name, amount)
        cluster.nodes(node)
        cluster.state.plugin(Devices).upsert(report(f"n{at}", inventory))
    return cluster


def whole(name: str, count: int = 1) -> PodBuilder:
    return make_pod(name).gpu(count)


def part(name: str, percent: int = 50) -> PodBuilder:
    return make_pod(name).resource(GPU_CORE, percent).resource(GPU_MEMORY_RATIO, percent)


def minors(assignment: Assignment, kind: str = GPU) -> list[int]:
    return [
        share.minor
        for allocation in assignment.allocations
        if isinstance(allocation, AllocatedDevices)
        for share in allocation.shares
        if share.kind == kind
    ]


def placed(plan: Plan) -> list[tuple[str, list[int]]]:
    (placement,) = plan.placements
    return sorted((assignment.node, minors(assignment)) for assignment in placement.assignments)


def settle(cluster: FakeCluster, *pods: PodBuilder) -> None:
    """Place pods as the operators do: they are on their nodes from now on."""
    built = [pod.build() for pod in pods]
    cluster.pods(*built)
    cluster.assume(cluster.plan(make_unit("settled", built)))


def recover(cluster: FakeCluster, now: float = 1e9) -> None:
    """Let so much time pass that devices which are healthy again are used again."""
    cluster.state.advance(now)
    cluster.state.advance(now + RECOVERY_SECONDS)


def test_each_member_of_a_gang_gets_its_own_devices() -> None:
    plan = gpu_cluster().plan(make_unit("u", [whole(f"p{at}", 4) for at in range(4)]))
    half = [list(range(4)), list(range(4, 8))]
    assert placed(plan) == [(node, minors) for node in ("n0", "n1") for minors in half]


def test_shares_fill_one_gpu_before_the_next() -> None:
    plan = gpu_cluster().plan(make_unit("u", [part(f"p{at}") for at in range(3)]))
    assert placed(plan) == [("n0", [0]), ("n0", [0]), ("n0", [1])]


def test_free_halves_are_no_whole_gpu() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, *(part(f"p{at}", 60) for at in range(8)))
    (refusal,) = cluster.plan(make_unit("v", [whole("w")])).refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    assert "Insufficient GPU Devices" in refusal.reason.text()


def test_devices_of_pods_on_nodes_are_taken() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("p", 2))
    assert placed(cluster.plan(make_unit("v", [whole("q", 2)]))) == [("n0", [2, 3])]
    cluster.delete_pods("p")
    assert placed(cluster.plan(make_unit("v", [whole("q", 2)]))) == [("n0", [0, 1])]


def test_gpus_of_pods_of_others_are_left_free() -> None:
    cluster = gpu_cluster(1).pods(whole("other", 3).not_ours().bound("n0"))
    assert not cluster.plan(make_unit("u", [whole("p", 6)])).placements
    assert placed(cluster.plan(make_unit("u", [whole("p", 5)]))) == [("n0", [0, 1, 2, 3, 4])]


def test_a_node_without_a_device_object_gives_plain_resources() -> None:
    cluster = gpu_cluster(1).nodes(make_node("bare").gpu(8))
    cluster.pods(whole("other", 8).not_ours().bound("n0"))
    assert placed(cluster.plan(make_unit("u", [whole("p", 8)]))) == [("bare", [])]


def test_an_invalid_request_waits_and_says_what_would_be_valid() -> None:
    pod = make_pod("p").resource(GPU_CORE, 50).resource(GPU_MEMORY_RATIO, 150)
    (refusal,) = gpu_cluster().plan(make_unit("u", [pod])).refusals
    assert isinstance(refusal.reason, InvalidDeviceRequest)
    assert refusal.reason.advice()


def test_gpus_and_nics_on_the_same_switches() -> None:
    wishes = DeviceAllocationHints(joint=Joint((GPU, RDMA), JointScope.SAME_PCIE))
    pods: list[Pod] = [
        replace(whole(f"p{at}", 2).resource(RDMA_SHARE, 1).build(), extensions=((NAME, wishes),))
        for at in range(4)
    ]
    (placement,) = gpu_cluster(1).plan(make_unit("u", pods)).placements
    given = sorted(
        (minors(assignment), minors(assignment, RDMA)) for assignment in placement.assignments
    )
    assert given == [([2 * at, 2 * at + 1], [at + 1]) for at in range(4)]


def test_devices_that_fail_are_not_given_and_their_pods_keep_them() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("p", 2))
    plugin = cluster.state.plugin(Devices)
    plugin.upsert(report("n0", a100x8(sick={0, 2})))
    assert placed(cluster.plan(make_unit("v", [whole("q")]))) == [("n0", [3])]
    plugin.upsert(report("n0"))
    recover(cluster)
    assert placed(cluster.plan(make_unit("v", [whole("q", 6)]))) == [("n0", [2, 3, 4, 5, 6, 7])]


def test_pods_without_a_record_of_their_gpus_can_be_preempted() -> None:
    cluster = gpu_cluster(1)
    low = [whole(f"low-{at}", 4).released("n0", "p").running("n0").build() for at in range(2)]
    cluster.pods(*low)
    for gpus, victims in ((8, 2), (4, 1)):
        unit = make_unit("v", [whole("high", gpus).priority(10)])
        assert not cluster.plan(unit).placements
        found = plan_preemption(cluster.state, unit)
        assert isinstance(found, Preemption)
        assert len(found.pods) == victims


@settings(max_examples=examples(30))
@given(
    st.lists(
        st.tuples(st.sampled_from(["place", "remove", "restore", "rollback"]), st.integers(0, 9)),
        max_size=30,
    )
)
def test_undo_and_restore_are_exact(steps: list[tuple[str, int]]) -> None:
    cluster = gpu_cluster(2)
    settle(cluster, whole("b0", 2), part("b1"))
    cluster.pods(whole("u", 2).released("n1", "p").running("n1").build())
    before = [cluster.pod(name) for name in ("b0", "b1", "u")]
    cycle = cluster.open_cycle()
    session = cycle.session(DeviceSession)
    pods = [*before, *(whole(f"p{at}", 1 + at % 3).build() for at in range(4)), part("h").build()]
    taken, marks = [], []
    for step, at in steps:
        states = session.signature(pods[0].shape, np.arange(2)).tolist()
        marks.append((cycle.checkpoint(), states))
        pod = pods[at % len(pods)]
        match step:
            case "place" if cycle.place_of(pod) is None:
                cycle.reserve(pod, cycle.shape_of(pod), at % 2)
            case "remove":
                removed = cycle.remove([pod])
                taken.append((removed, states, cycle.version))
            case "restore" if taken and taken[-1][2] == cycle.version:
                removed, earlier, _ = taken.pop()
                assert cycle.restore(removed)
                assert session.signature(pods[0].shape, np.arange(2)).tolist() == earlier
            case "rollback":
                mark, earlier = marks[at % len(marks)]
                del marks[at % len(marks) :]
                taken.clear()
                cycle.rollback(mark)
                assert session.signature(pods[0].shape, np.arange(2)).tolist() == earlier


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_filter_counts_exactly(count: int) -> None:
    cluster = gpu_cluster(1)
    cycle = cluster.open_cycle()
    pod = whole("p", count).build()
    shape = cycle.shape_of(pod)
    (bound,) = cycle.bounds(shape, np.array([0])).tolist()
    fitting = 0
    while isinstance(cycle.reserve(pod, shape, 0), Place):
        fitting += 1
    assert bound == fitting == 8 // count


def test_states_that_no_node_is_in_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.core.device.states.MOST_STATES", 1)
    cluster = gpu_cluster(2)
    settle(cluster, whole("p", 2))
    cluster.open_cycle()
    plugin = cluster.state.plugin(Devices)
    assert sorted(plugin.state_of[:2].tolist()) == [3, 4]
    assert placed(cluster.plan(make_unit("v", [whole("q", 7)]))) == [("n1", list(range(7)))]


def test_explanations_name_devices_and_numbers() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, *(part(f"p{at}", 60) for at in range(8)))
    (shape_offer,) = explain_pod(cluster.pods(part("q")).state, cluster.pod("q"), SCORING).offers
    (offer,) = shape_offer.nodes
    assert offer.pods == 0
    assert (
        "gpu 3: gpu-core 40 free, 50 asked and gpu-memory-ratio 40 free, 50 asked" in offer.detail
    )
    assert offer.detail.startswith("0 of 1 gpu; gpu 0: ")


def test_explanations_of_gpus_that_are_free_but_not_together() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("p", 1))
    scope = DeviceAllocationHints(hints=((GPU, Hint(scope=Scope.NUMA_NODE)),))
    pod = replace(whole("q", 5).build(), extensions=((NAME, scope),))
    cluster.state.upsert_pod(pod)
    (shape_offer,) = explain_pod(cluster.state, pod, SCORING).offers
    assert shape_offer.nodes[0].detail == "gpu 1, 2, 3, 4, 5, 6, 7 are free, at most 7 for one pod"
