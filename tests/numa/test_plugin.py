"""NUMA nodes and CPUs in the planner: which node, which CPUs, and that everything can be undone."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import SCORING, make_cluster, make_unit
from tests.device.nodes import a100x8, report
from tests.objects import upsert_numa
from tests.support.laws import examples

from koord.answers.explain import explain_pod
from koord.core.device.allocation import AllocatedDevices
from koord.core.device.plugin import Devices
from koord.core.engine import steps
from koord.core.engine.cycle import Place
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.amplification import Amplification
from koord.core.model.device_names import GPU
from koord.core.model.gangs import GangMembership, GangSource
from koord.core.model.reasons import TooExpensive
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.model.units import CPU, MEMORY
from koord.core.numa.cpu_topology import CpuExclusive, CpuPlace, format_cpuset, make_topology
from koord.core.numa.cpus import CpuBind
from koord.core.numa.model import NAME, NumaAllocation, NumaAllocationHints, NumaReport
from koord.core.numa.plugin import Numa
from koord.core.numa.policy import NumaExclusive, NumaPolicy
from koord.core.numa.reasons import InvalidNumaAnnotation
from koord.core.numa.session import NumaSession
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.engine.cycle import Cycle
    from koord.core.model.plan import Assignment, Plan
    from koord.core.model.pods import Allocation, Pod

GIB = 1 << 30
SINGLE = NumaAllocationHints(policy=NumaPolicy.SINGLE_NUMA_NODE)
PINNED = NumaAllocationHints(is_pinned=True)


def make_report(node: str, **changes: object) -> NumaReport:
    """Two NUMA nodes of four cores with two CPUs each, and 64 GiB of memory each."""
    places = [CpuPlace(cpu, core=cpu // 2, socket=cpu // 8, numa=cpu // 8) for cpu in range(16)]
    part = ((CPU, 8000), (MEMORY, 64 * GIB))
    made = NumaReport(node, ((0, part), (1, part)), make_topology(places))
    return replace(made, **changes)  # type: ignore[arg-type]


def numa_cluster(count: int = 1, *, gpus: bool = False) -> FakeCluster:
    cluster = make_cluster()
    for at in range(count):
        cluster.nodes(make_node(f"n{at}").cpu(16000).memory(128 * GIB).gpu(8))
        cluster.state.plugin(Numa).upsert(make_report(f"n{at}"))
        if gpus:
            cluster.state.plugin(Devices).upsert(report(f"n{at}", a100x8()))
    return cluster


def pod(
    name: str, wishes: NumaAllocationHints, cpu: int = 2000, memory: int = 0, gpus: int = 0
) -> Pod:
    made: PodBuilder = make_pod(name).requests(cpu=cpu, memory=memory)
    built = (made.gpu(gpus) if gpus else made).build()
    return replace(built, extensions=((NAME, wishes),))


def given(assignment: Assignment) -> tuple[list[int], str, list[int]]:
    """Return NUMA nodes, CPUs and GPUs."""
    numa = [
        allocation
        for allocation in assignment.allocations
        if isinstance(allocation, NumaAllocation)
    ]
    devices = [
        allocation
        for allocation in assignment.allocations
        if isinstance(allocation, AllocatedDevices)
    ]
    return (
        [share.number for allocation in numa for share in allocation.shares],
        "".join(format_cpuset(allocation.cpus) for allocation in numa),
        [share.minor for allocation in devices for share in allocation.shares if share.kind == GPU],
    )


def placed(plan: Plan) -> dict[str, tuple[list[int], str, list[int]]]:
    assert not plan.refusals, plan.refusals[0].reason.text()
    return {
        assignment.pod.name: given(assignment)
        for unit in plan.placements
        for assignment in unit.assignments
    }


def refused(plan: Plan) -> str:
    (refusal,) = plan.refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    return refusal.reason.text()


def test_cpus_memory_and_gpus_of_a_pod_are_on_one_numa_node() -> None:
    pods = [pod(f"p{at}", SINGLE, cpu=6000, gpus=2) for at in range(2)]
    placed_on = placed(numa_cluster(gpus=True).plan(make_unit("u", pods)))
    assert placed_on == {"p0": ([0], "", [0, 1]), "p1": ([1], "", [4, 5])}


def test_no_room_on_one_numa_node_is_no_room() -> None:
    cluster = numa_cluster(gpus=True)
    text = refused(cluster.plan(make_unit("u", [pod("p", SINGLE, cpu=10000)])))
    assert "Unaligned NUMA Hint cause cpu prefer [11] among [11]" in text
    assert placed(cluster.plan(make_unit("v", [pod("p", NumaAllocationHints(), cpu=10000)])))


def test_pinned_cpus_are_given_once() -> None:
    cluster = numa_cluster()
    pods = [pod(f"p{at}", PINNED, cpu=4000) for at in range(4)]
    placed_on = placed(cluster.plan(make_unit("u", pods)))
    assert sorted(cpus for _, cpus, _ in placed_on.values()) == ["0-3", "12-15", "4-7", "8-11"]
    cluster.pods(*pods)
    cluster.assume(cluster.plan(make_unit("u", pods)))
    assert "lacks 2 free cpu" in refused(cluster.plan(make_unit("v", [pod("q", PINNED)])))
    cluster.delete_pods("p1")
    assert placed(cluster.plan(make_unit("v", [pod("q", PINNED)])))


def settle(cluster: FakeCluster, *pods: Pod) -> dict[str, tuple[list[int], str, list[int]]]:
    """Place pods as the operators do: they are on their nodes from now on."""
    cluster.pods(*pods)
    plan = cluster.plan(make_unit("settled", pods))
    cluster.assume(plan)
    return placed(plan)


@pytest.mark.parametrize(
    ("policy", "cpu", "gpus", "expected"),
    [
        (NumaPolicy.RESTRICTED, 10000, 0, [0, 1]),
        (NumaPolicy.RESTRICTED, 10000, 6, [0, 1]),
        (NumaPolicy.RESTRICTED, 10000, 2, None),
        (NumaPolicy.BEST_EFFORT, 10000, 2, [0, 1]),
        (NumaPolicy.BEST_EFFORT, 4000, 2, [0]),
        (NumaPolicy.SINGLE_NUMA_NODE, 4000, 6, None),
    ],
)
def test_policies(policy: NumaPolicy, cpu: int, gpus: int, expected: list[int] | None) -> None:
    plan = numa_cluster(gpus=True).plan(
        make_unit("u", [pod("p", NumaAllocationHints(policy=policy), cpu=cpu, gpus=gpus)])
    )
    if expected is None:
        assert "Unaligned NUMA Hint" in refused(plan)
    else:
        assert placed(plan)["p"][0] == expected


def test_a_best_effort_pod_starts_where_numa_nodes_are_full() -> None:
    cluster = numa_cluster()
    settle(cluster, pod("a", SINGLE, cpu=8000), pod("b", SINGLE, cpu=6000))
    cluster.nodes(make_node("n0").cpu(32000).memory(128 * GIB).gpu(8))
    best = NumaAllocationHints(policy=NumaPolicy.BEST_EFFORT)
    assert settle(cluster, pod("c", best, cpu=4000)) == {"c": ([], "", [])}


def test_a_node_demands_its_policy_of_every_pod() -> None:
    cluster = numa_cluster()
    node = make_node("n0").cpu(16000).memory(128 * GIB)
    cluster.nodes(node.label("node.koordinator.sh/numa-topology-policy", "SingleNUMANode"))
    assert settle(cluster, pod("a", NumaAllocationHints(), cpu=6000)) == {"a": ([0], "", [])}
    assert "Unaligned" in refused(
        cluster.plan(make_unit("v", [pod("b", NumaAllocationHints(), cpu=9000)]))
    )
    other = NumaAllocationHints(policy=NumaPolicy.RESTRICTED)
    text = refused(cluster.plan(make_unit("w", [pod("c", other)])))
    assert "The node refuses: NUMA Topology policy not match." in text


def test_a_node_demands_whole_cores_of_every_pod() -> None:
    cluster = numa_cluster()
    node = make_node("n0").cpu(16000).memory(128 * GIB)
    cluster.nodes(node.label("node.koordinator.sh/cpu-bind-policy", "FullPCPUsOnly"))
    assert settle(cluster, pod("a", NumaAllocationHints(), cpu=4000)) == {"a": ([], "0-3", [])}
    text = refused(cluster.plan(make_unit("v", [pod("b", NumaAllocationHints(), cpu=3000)])))
    assert "requested cpus not multiple cpus per core" in text
    text = refused(cluster.plan(make_unit("v", [pod("b", NumaAllocationHints(), cpu=2500)])))
    assert "the requested CPUs must be integer" in text


def test_nodes_without_numa_nodes_take_no_pod_with_a_policy() -> None:
    cluster = make_cluster().nodes(make_node("n0").cpu(16000))
    text = refused(cluster.plan(make_unit("u", [pod("p", SINGLE)])))
    assert "missing NUMA resources" in text


def test_devices_alone_are_aligned_where_only_they_have_numa_nodes() -> None:
    cluster = make_cluster().nodes(make_node("n0").cpu(16000).gpu(8))
    cluster.state.plugin(Devices).upsert(report("n0", a100x8()))
    pods = [pod("a", SINGLE, gpus=3), pod("b", SINGLE, gpus=3)]
    assert placed(cluster.plan(make_unit("u", pods))) == {
        "a": ([], "", [0, 1, 2]),
        "b": ([], "", [4, 5, 6]),
    }
    assert "gpu prefer [11]" in refused(cluster.plan(make_unit("v", [pod("c", SINGLE, gpus=5)])))


def test_pinned_pods_need_no_agent_where_there_is_none() -> None:
    cluster = make_cluster().nodes(make_node("n0").cpu(16000))
    assert placed(cluster.plan(make_unit("u", [pod("p", PINNED)]))) == {"p": ([], "", [])}
    cluster.state.plugin(Numa).upsert(NumaReport("other"))
    assert "invalid CPU Topology" in refused(cluster.plan(make_unit("u", [pod("p", PINNED)])))


def test_cpus_of_the_system_and_of_the_kubelet_are_not_given() -> None:
    cluster = numa_cluster()
    report = make_report("n0", reserved=0b11, pinned=(("other", 0b1100),))
    cluster.state.plugin(Numa).upsert(report)
    assert settle(cluster, pod("a", replace(SINGLE, is_pinned=True), cpu=4000)) == {
        "a": ([1], "8-11", [])
    }
    assert settle(cluster, pod("b", PINNED, cpu=8000)) == {"b": ([], "4-7,12-15", [])}


def test_shared_and_pinned_cpus_of_a_numa_node_add_up() -> None:
    cluster = numa_cluster()
    settle(cluster, pod("a", SINGLE, cpu=6500), pod("b", SINGLE, cpu=6500))
    assert "not enough cpus" in refused(cluster.plan(make_unit("u", [pod("c", PINNED, cpu=3000)])))
    assert settle(cluster, pod("d", PINNED)) == {"d": ([], "0,8", [])}


def test_an_annotation_that_cannot_be_read_waits_alone() -> None:
    wishes = NumaAllocationHints(problems=(("metadata.annotations[x]", "is not JSON"),))
    units = [make_unit("u", [pod("p", wishes)]), make_unit("v", [pod("q", SINGLE)])]
    plan = numa_cluster().plan(*units)
    (refusal,) = plan.refusals
    assert isinstance(refusal.reason, InvalidNumaAnnotation)
    assert "metadata.annotations[x] is not JSON" in refusal.reason.text()
    assert len(plan.placements) == 1


def test_explain_says_what_each_numa_node_has_left() -> None:
    cluster = numa_cluster()
    settle(cluster, pod("a", SINGLE, cpu=6000))
    settle(cluster, pod("b", SINGLE, cpu=5000))
    cluster.pods(pod("c", SINGLE, cpu=4000))
    ((offer,),) = (
        offer.nodes for offer in explain_pod(cluster.state, cluster.pod("c"), SCORING).offers
    )
    assert "NUMA node 0: 2 of 8 CPUs free; NUMA node 1: 3 of 8 CPUs free" in offer.detail


def test_what_a_pod_was_given_stays_charged_when_its_annotation_changes() -> None:
    cluster = numa_cluster()
    settle(cluster, pod("a", PINNED, cpu=8000))
    cluster.pods(replace(pod("a", PINNED, cpu=8000), node="n0", is_gated=False, allocations=()))
    assert settle(cluster, pod("b", PINNED, cpu=8000)) == {"b": ([], "8-15", [])}


WISHES = st.builds(
    NumaAllocationHints,
    policy=st.sampled_from([None, *NumaPolicy]),
    exclusive=st.sampled_from([None, *NumaExclusive]),
    is_pinned=st.booleans(),
    required=st.sampled_from([None, *CpuBind]),
    preferred=st.sampled_from(CpuBind),
    cpu_exclusive=st.sampled_from([None, *CpuExclusive]),
)
PODS = st.lists(
    st.tuples(WISHES, st.sampled_from([500, 1000, 2000, 3000, 4000, 9000]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["place", "remove", "restore", "rollback"]), st.integers(0, 11)),
    max_size=40,
)


def check(cycle: Cycle, held: dict[str, tuple[int, tuple[Allocation, ...]]]) -> None:
    """No CPU is given twice, and no NUMA node gives more than it has; counted from allocations."""
    topology = make_report("n0").cpus
    assert topology is not None
    for row in (0, 1):
        mine = [
            allocation
            for at, allocations in held.values()
            for allocation in allocations
            if at == row and isinstance(allocation, NumaAllocation)
        ]
        assert (
            sum(allocation.cpus.bit_count() for allocation in mine)
            == reduce(or_, (allocation.cpus for allocation in mine), 0).bit_count()
        )
        for group in topology.numa_nodes:
            shared = pinned = memory = 0
            for allocation in mine:
                amounts = dict(
                    *(share.amounts for share in allocation.shares if share.number == group.number)
                )
                memory += amounts.get(MEMORY, 0)
                if allocation.cpus:
                    pinned += (allocation.cpus & group.cpus).bit_count() * 1000
                else:
                    shared += amounts.get(CPU, 0)
            assert shared + pinned <= 8000
            assert memory <= 64 * GIB


@for_all(PODS, STEPS)
@settings(max_examples=examples(30), deadline=None)
def test_nothing_is_given_twice_and_undo_is_exact(
    requests: list[tuple[NumaAllocationHints, int, int]], steps: list[tuple[str, int]]
) -> None:
    cluster = numa_cluster(2, gpus=True)
    pods = [pod(f"p{at}", *request[:2], 4 * GIB, request[2]) for at, request in enumerate(requests)]
    settled = [pod for pod in pods[:3] if cluster.pods(pod) and cluster.step()]
    cycle = cluster.open_cycle()
    session = cycle.session(NumaSession)
    held: dict[str, tuple[int, tuple[Allocation, ...]]] = {
        pod.uid: (cluster.row(cluster.pod(pod.name).node), cluster.pod(pod.name).allocations)
        for pod in settled
    }
    check(cycle, held)

    def look() -> list[int]:
        return session.signature(pods[0].shape, np.arange(2)).tolist()

    taken, marks = [], []
    for step, at in steps:
        chosen = pods[at % len(pods)]
        marks.append((cycle.checkpoint(), look(), dict(held)))
        match step:
            case "place" if cycle.place_of(chosen) is None:
                place = cycle.reserve(chosen, cycle.shape_of(chosen), at % 2)
                if isinstance(place, Place):
                    held[chosen.uid] = (place.row, place.allocations)
                else:
                    assert look() == marks[-1][1]
            case "remove" if chosen.uid in held:
                before, earlier = look(), held.pop(chosen.uid)
                taken.append((cycle.remove([chosen]), before, chosen.uid, earlier, cycle.version))
            case "restore" if taken and taken[-1][-1] == cycle.version:
                removed, before, uid, earlier, _ = taken.pop()
                assert cycle.restore(removed)
                held[uid] = earlier
                assert look() == before
            case "rollback":
                mark, before, earlier_held = marks[at % len(marks)]
                del marks[at % len(marks) :]
                taken.clear()
                cycle.rollback(mark)
                held = earlier_held
                assert look() == before
        check(cycle, held)


def test_what_waits_for_numa_nodes_is_tried_again_when_they_are_reported() -> None:
    cluster = make_cluster().nodes(make_node("n0").cpu(16000))
    cluster.pods(pod("p", SINGLE))
    assert cluster.step() == []
    upsert_numa(cluster.state, make_report("n0"))
    assert cluster.step() == ["p"]


def test_more_nodes_are_not_advised_where_an_empty_one_would_not_do() -> None:
    plan = numa_cluster().plan(make_unit("u", [pod("p", SINGLE, cpu=9000)]))
    assert "empty node" not in refused(plan)
    settled = numa_cluster()
    settle(settled, pod("a", SINGLE, cpu=8000), pod("b", SINGLE, cpu=8000))
    assert "empty node" in refused(settled.plan(make_unit("u", [pod("p", SINGLE, cpu=8000)])))


def test_explain_names_what_cannot_be_read_of_a_node() -> None:
    cluster = numa_cluster()
    problems = (("metadata.annotations[x]", "is not JSON"),)
    cluster.state.plugin(Numa).upsert(make_report("n0", cpus=None, problems=problems))
    cluster.pods(pod("p", PINNED))
    (shape,) = explain_pod(cluster.state, cluster.pod("p"), SCORING).offers
    assert [(node.cause, node.detail) for node in shape.nodes] == [
        ("CPUTopologyMissing", "metadata.annotations[x] is not JSON")
    ]


def test_gpus_that_the_numa_nodes_report_need_no_device_object() -> None:
    cluster = numa_cluster()
    part = ((CPU, 8000), (MEMORY, 64 * GIB), ("nvidia.com/gpu", 4))
    cluster.state.plugin(Numa).upsert(make_report("n0", zones=((0, part), (1, part))))
    pods = [pod(f"p{at}", SINGLE, gpus=3) for at in range(2)]
    placed_on = placed(cluster.plan(make_unit("u", pods)))
    assert sorted(numa for numa, _, _ in placed_on.values()) == [[0], [1]]
    assert "Unaligned" in refused(cluster.plan(make_unit("v", [pod("q", SINGLE, gpus=5)])))


def test_states_that_no_node_is_in_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.core.numa.states.MOST_STATES", 1)
    cluster = numa_cluster()
    settle(cluster, pod("a", PINNED, cpu=4000))
    cluster.open_cycle()
    assert settle(cluster, pod("b", PINNED, cpu=8000)) == {"b": ([], "8-15", [])}


def test_cpus_that_are_chosen_are_steps_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of pods that pin different numbers of CPUs must not occupy the planner."""
    monkeypatch.setattr(steps, "PER_NODE", 0)
    monkeypatch.setattr(steps, "PER_UNIT", 0)
    monkeypatch.setattr(steps, "PER_ROW", 40)
    cluster = numa_cluster(4)
    pods = [pod(f"p{at}", PINNED, cpu=1000 * at, memory=at) for at in range(1, 9)]
    (refusal,) = cluster.plan(make_unit("u", pods)).refusals
    assert isinstance(refusal.reason, TooExpensive)
    (plain,) = cluster.plan(make_unit("v", [pod("q", NumaAllocationHints())])).placements
    assert plain.assignments


def test_a_pinned_cpu_costs_more_where_cpus_are_amplified() -> None:
    """16 CPUs are offered as 24; four pinned ones cost six."""
    cluster = numa_cluster()
    node = make_node("n0").cpu(24000).memory(128 * GIB).build()
    cluster.nodes(replace(node, amplification=Amplification(1500)))
    assert settle(cluster, pod("a", PINNED, cpu=4000)) == {"a": ([], "0-3", [])}
    assert placed(cluster.plan(make_unit("u", [pod("b", NumaAllocationHints(), cpu=18000)])))
    text = refused(cluster.plan(make_unit("v", [pod("b", NumaAllocationHints(), cpu=18001)])))
    assert "lacks 18001m free cpu" in text
    settle(cluster, pod("c", NumaAllocationHints(), cpu=13000))
    text = refused(cluster.plan(make_unit("w", [pod("d", PINNED, cpu=4000)])))
    assert "Insufficient amplified cpu" in text
    assert settle(cluster, pod("e", PINNED, cpu=3000))


def test_other_cpus_of_a_core_are_for_the_next_pods_that_spread() -> None:
    wishes = NumaAllocationHints(NumaPolicy.RESTRICTED, None, True, CpuBind.SPREAD_BY_PCPUS)
    cycle = numa_cluster().open_cycle()
    like = pod("p", wishes, cpu=1000)
    assert cycle.fit(cycle.shape_of(like), like, np.array([0]), 100).tolist() == [16]


def test_what_waits_is_tried_again_when_cpus_of_a_numa_node_are_free() -> None:
    cluster = numa_cluster()
    settle(cluster, pod("a", SINGLE, cpu=6000), pod("b", SINGLE, cpu=6000))
    cluster.pods(pod("c", SINGLE, cpu=4000))
    assert cluster.step() == []
    cluster.delete_pods("b")
    assert cluster.step() == ["c"]


def test_cpus_that_nobody_knows_are_left_free_on_every_numa_node() -> None:
    lost = NumaAllocation("uid-default-a", lost=6000)
    running = replace(pod("a", PINNED, cpu=6000), node="n0", is_gated=False, allocations=(lost,))
    cluster = numa_cluster().pods(running)
    assert "not enough cpus" in refused(cluster.plan(make_unit("u", [pod("b", PINNED, cpu=5000)])))
    assert placed(cluster.plan(make_unit("u", [pod("b", PINNED, cpu=4000)])))
    cycle = cluster.open_cycle()
    assert cycle.restore(cycle.remove([cluster.pod("a")]))
    assert not list(lost.writes())


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
def test_a_network_domain_offers_what_its_numa_nodes_take(count: int, fits: bool) -> None:  # noqa: FBT001
    """Two NUMA nodes of eight CPUs take one pod of five each, not three pods together."""
    cluster = numa_cluster(4).topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    for at in range(4):
        node = make_node(f"n{at}").cpu(16000).memory(128 * GIB)
        cluster.nodes(node.label("block", f"b{at // 2}"))
    one_block = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))
    cluster.pod_groups(make_pod_group("default/g", count).topology(one_block))
    claim = GangMembership("default/g", GangSource.POD_GROUP)
    pods = [replace(pod(f"g-{at}", SINGLE, cpu=5000), gang=claim, index=at) for at in range(count)]
    cluster.pods(*pods)
    assert len(cluster.step()) == (count if fits else 0)
