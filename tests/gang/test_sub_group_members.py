"""Sub-groups are whole at every level: which members are planned, and which wait for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group
from tests.cluster import SCORING, FakeCluster, make_cluster
from tests.support.laws import examples

from koord.answers.explain import PlacementState, explain_gang
from koord.answers.queue_view import view_queue
from koord.core.gang.quorum import Ready, demands, report_quorum
from koord.core.gang.reasons import GangCount, GangNotStarted, MissingMembers, Reached
from koord.core.gang.status import MAX_SUB_GROUPS, observe
from koord.core.model.gangs import ROOT, MatchPolicy, SubGroup, SubGroupTree
from koord.core.model.pods import Handling, Pod, PodPhase, RecordedPlan
from koord.core.model.reasons import WaitingForForeignGate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from koord.core.model.plan import Placement, Unit
    from koord.core.model.reasons import Reason

A = "default/a"
PAIRS = (SubGroup("x", 2), SubGroup("y", 2))
REPLICAS = (
    SubGroup("r0"),
    SubGroup("r1"),
    SubGroup("r0a", 1, parent="r0"),
    SubGroup("r0b", 1, parent="r0"),
    SubGroup("r1a", 1, parent="r1"),
    SubGroup("r1b", 1, parent="r1"),
)


def make_gang(
    groups: Iterable[SubGroup],
    minimum: int = 2,
    *,
    least: int | None = 1,
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED,
    nodes: int = 8,
) -> FakeCluster:
    tree = SubGroupTree(SubGroup(ROOT, min_sub_groups=least), tuple(groups))
    group = make_pod_group(A, minimum).match_policy(policy).build()
    cluster = make_cluster(nodes)
    return cluster.pod_groups(replace(group, spec=replace(group.spec, sub_groups=tree)))


def add(cluster: FakeCluster, *names: str) -> None:
    """Create waiting members, each the only one on a node: ``x-0`` is in ``x``."""
    for name in names:
        pod = make_pod(name).gang(A).gpu(8).build()
        cluster.pods(replace(pod, sub_group=name.rpartition("-")[0]))


def run(cluster: FakeCluster, *names: str) -> None:
    """Create members that we have released together, and that run."""
    for at, name in enumerate(names):
        group, count = name.rpartition("-")[0], len(names)
        made = (
            make_pod(name)
            .gang(A)
            .gpu(8)
            .released(f"n{7 - at}", f"plan-{names[0]}", A, count, count)
        )
        cluster.pods(replace(made.running(f"n{7 - at}").build(), sub_group=group))


def planned(cluster: FakeCluster) -> list[list[str]]:
    """Return the members of each unit."""
    ready = demands(cluster.state.gangs, A)
    assert isinstance(ready, Ready), ready
    return [[pod.name for pod in unit.pods] for unit in ready.units]


def left_out(cluster: FakeCluster) -> dict[str, Reason]:
    ready = demands(cluster.state.gangs, A)
    assert isinstance(ready, Ready), ready
    return {pod.name: one.reason for one in ready.left_out for pod in one.pods}


def settle(cluster: FakeCluster) -> set[str]:
    """Plan and bind until nothing changes; return the members that were placed."""
    names: set[str] = set()
    while units := {unit.key: unit for unit in cluster.take()}:
        outcome = cluster.decide(units.values())
        for placement in outcome.placements:
            bind(cluster, placement, units[placement.unit])
            names |= {one.pod.name for one in placement.assignments}
    return names


def bind(cluster: FakeCluster, placement: Placement, unit: Unit) -> None:
    for demand in unit.demands:
        placed = placement.uids & {pod.uid for pod in demand.pods}
        assert len(placed) >= demand.required, "it would not be bound, and planned again"
    count = len(placement.assignments)
    for one in placement.assignments:
        plan = RecordedPlan(one.node, placement.plan_id, A, count, placement.strengths[A])
        bound = replace(one.pod, node=one.node, recorded=plan, is_gated=False)
        cluster.pods(replace(bound, phase=PodPhase.RUNNING, handling=Handling.BIND))


def test_part_of_a_later_sub_group_waits_for_the_rest() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1")
    add(cluster, "y-0")
    assert planned(cluster) == []
    assert left_out(cluster) == {"y-0": MissingMembers((GangCount(f"{A}/y", 1, 2),))}
    add(cluster, "y-1")
    assert planned(cluster) == [["y-0", "y-1"]]
    assert not left_out(cluster)


def test_half_a_replica_waits_for_the_other_half() -> None:
    cluster = make_gang(REPLICAS)
    run(cluster, "r0a-0", "r0b-0")
    add(cluster, "r1a-0")
    assert planned(cluster) == []
    assert left_out(cluster) == {"r1a-0": MissingMembers((GangCount(f"{A}/r1b", 0, 1),))}
    add(cluster, "r1b-0")
    assert planned(cluster) == [["r1a-0", "r1b-0"]]


def test_replica_that_fits_in_part_does_not_start() -> None:
    cluster = make_gang(REPLICAS, nodes=8)
    run(cluster, "r0a-0", "r0b-0")
    cluster.pods(*(make_pod(f"other-{at}").gpu(8).running(f"n{at}") for at in range(5)))
    add(cluster, "r1a-0", "r1b-0")
    assert settle(cluster) == set()
    cluster.delete_pods("other-0")
    assert settle(cluster) == {"r1a-0", "r1b-0"}


def test_incomplete_sub_group_does_not_start_with_the_gang() -> None:
    cluster = make_gang(PAIRS)
    add(cluster, "y-0", "x-0", "x-1")
    assert planned(cluster) == [["x-0", "x-1"]]
    assert left_out(cluster) == {"y-0": MissingMembers((GangCount(f"{A}/y", 1, 2),))}
    assert report_quorum(cluster.state.gangs, A) == Reached((GangCount(A, 2, 2),))
    assert settle(cluster) == {"x-0", "x-1"}


def test_sub_groups_that_are_not_needed_follow_the_gang() -> None:
    cluster = make_gang(PAIRS)
    add(cluster, "x-0", "x-1", "y-0", "y-1")
    assert left_out(cluster) == dict.fromkeys(("y-0", "y-1"), GangNotStarted(f"{A}/y", A))
    assert settle(cluster) == {"x-0", "x-1", "y-0", "y-1"}


@pytest.mark.parametrize("minimum", [3, 4])
def test_incomplete_sub_groups_are_named(minimum: int) -> None:
    cluster = make_gang(PAIRS, minimum)
    add(cluster, "y-0", "x-0", "x-1")
    found = demands(cluster.state.gangs, A)
    assert found == MissingMembers((GangCount(A, 2, minimum), GangCount(f"{A}/y", 1, 2)))
    assert isinstance(found, MissingMembers)
    assert found.text() == f"2 of {minimum} members of {A} present; {A}/y: 1 of 2"


def test_replacement_of_a_started_sub_group_comes_alone() -> None:
    cluster = make_gang((SubGroup("x", 2), SubGroup("y", 3)))
    run(cluster, "x-0", "x-1")
    run(cluster, "y-0")
    add(cluster, "y-1")
    assert planned(cluster) == [["y-1"]]


def test_replacements_wait_for_each_other_by_policy() -> None:
    policy = MatchPolicy.WAITING_AND_RUNNING
    cluster = make_gang((SubGroup("x", 2), SubGroup("y", 3)), policy=policy)
    run(cluster, "x-0", "x-1", "y-0")
    add(cluster, "y-1")
    assert left_out(cluster) == {"y-1": MissingMembers((GangCount(f"{A}/y", 2, 3),))}
    add(cluster, "y-2")
    assert planned(cluster) == [["y-1", "y-2"]]


def test_sub_group_that_lost_all_members_starts_whole_again() -> None:
    cluster = make_gang(PAIRS, least=None, minimum=4)
    run(cluster, "x-0", "x-1")
    add(cluster, "y-0")
    assert left_out(cluster) == {"y-0": MissingMembers((GangCount(f"{A}/y", 1, 2),))}


def test_members_behind_foreign_gates_are_waited_for() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1")
    add(cluster, "y-0")
    gated = make_pod("y-1").gang(A).gpu(8).foreign_gates("their/gate").build()
    cluster.pods(replace(gated, sub_group="y"))
    reason = left_out(cluster)["y-0"]
    assert isinstance(reason, WaitingForForeignGate)
    assert reason.pod == "default/y-1"


def test_needed_sub_group_behind_a_foreign_gate_keeps_the_gang_from_starting() -> None:
    cluster = make_gang(PAIRS, least=None)
    add(cluster, "x-0", "x-1", "y-0", "-0")
    gated = make_pod("y-1").gang(A).gpu(8).foreign_gates("their/gate").build()
    cluster.pods(replace(gated, sub_group="y"))
    assert isinstance(demands(cluster.state.gangs, A), WaitingForForeignGate)


def test_one_member_of_each_of_many_sub_groups_is_planned_alone() -> None:
    cluster = make_gang(tuple(SubGroup(f"g{at}", 1) for at in range(3)), minimum=1)
    run(cluster, "g0-0")
    add(cluster, "g1-0", "g2-0", "g2-1")
    assert planned(cluster) == [["g1-0"], ["g2-0"], ["g2-1"]]


def test_queue_lists_what_is_left_out_once() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1")
    add(cluster, "y-0")
    (waiting,) = view_queue(cluster.state, SCORING)
    assert (waiting.names, waiting.pods, waiting.reason.code) == ((A,), 1, "MissingMembers")
    explained = explain_gang(cluster.state, A, SCORING)
    assert explained.standing is PlacementState.WAITING
    assert explained.reason == waiting.reason


def test_status_counts_the_members_of_sub_groups_at_every_level() -> None:
    cluster = make_gang(REPLICAS)
    run(cluster, "r0a-0", "r0b-0")
    add(cluster, "r1a-0")
    counts = observe(cluster.state.gangs, A, 0.0).sub_groups
    found = {one.name: (one.present, one.placed, one.is_complete) for one in counts}
    assert found["r0"] == (2, 2, True)
    assert found["r1"] == (1, 0, False)
    assert (found["r1a"], found["r1b"]) == ((1, 0, True), (0, 0, False))


def test_status_of_many_sub_groups_lists_those_that_lack_members() -> None:
    cluster = make_gang(tuple(SubGroup(f"g{at}", 1) for at in range(MAX_SUB_GROUPS + 2)))
    add(cluster, "g0-0")
    counts = observe(cluster.state.gangs, A, 0.0).sub_groups
    assert [one.name for one in counts] == [f"g{at + 1}" for at in range(MAX_SUB_GROUPS)]


# Whatever comes and goes

names = st.sampled_from(("x", "y", "y", "p", "q", ""))
TREE = (
    SubGroup("x", 2),
    SubGroup("y", 3, min_sub_groups=1),
    SubGroup("p", 2, parent="y"),
    SubGroup("q", 1, parent="y"),
)


def is_complete(name: str, counts: dict[str, int]) -> bool:
    """The rule of ``docs/gangs.md``, written down a second time."""
    own = {"x": 2, "p": 2, "q": 1}
    if name in own:
        return counts.get(name, 0) >= own[name]
    whole = [one for one in ("p", "q") if is_complete(one, counts)]
    useful = counts.get("y", 0) + sum(counts.get(one, 0) for one in whole)
    return bool(whole) and useful >= 3


@settings(max_examples=examples(40), deadline=None)
@given(
    events=st.lists(st.tuples(st.sampled_from(("come", "come", "end")), names), max_size=24),
    least=st.sampled_from((None, 1)),
    minimum=st.integers(1, 4),
    policy=st.sampled_from((MatchPolicy.ONCE_SATISFIED, MatchPolicy.WAITING_AND_RUNNING)),
    nodes=st.integers(1, 8),
)
def test_no_sub_group_starts_in_part_and_none_is_planned_in_vain(
    events: list[tuple[str, str]],
    least: int | None,
    minimum: int,
    policy: MatchPolicy,
    nodes: int,
) -> None:
    cluster = make_gang(TREE, minimum, least=least, policy=policy, nodes=nodes)
    for at, (what, name) in enumerate(events):
        members = [pod for pod in cluster.state.pods.values() if pod.sub_group == name]
        if what == "come":
            add(cluster, f"{name}-{at}")
        elif members:
            cluster.state.remove_pod(members[0].uid)
        before = {pod.name for pod in running(cluster)}
        settle(cluster)
        counts = count(running(cluster))
        old = count(pod for pod in running(cluster) if pod.name in before)
        for one in ("x", "y", "p", "q"):
            had = old.get(one, 0) + (sum(old.get(n, 0) for n in "pq") if one == "y" else 0)
            has = counts.get(one, 0) + (sum(counts.get(n, 0) for n in "pq") if one == "y" else 0)
            if has > had == 0:
                assert is_complete(one, counts), (one, counts)
        check_reasons(cluster)


def running(cluster: FakeCluster) -> list[Pod]:
    return [pod for pod in cluster.state.pods.values() if pod.phase is PodPhase.RUNNING]


def count(pods: Iterable[Pod]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        found[pod.sub_group] = found.get(pod.sub_group, 0) + 1
    return found


def check_reasons(cluster: FakeCluster) -> None:
    """Every waiting member has a reason, and nothing is due."""
    queue = cluster.absorb()
    assert not len(queue)
    blocked = {pod.uid for one in queue.blocked.values() for pod in one.pods}
    for pod in cluster.state.pods.values():
        if pod.is_waiting:
            assert A in queue.waiting or pod.uid in blocked or queue.why_left_out(pod), pod.name
