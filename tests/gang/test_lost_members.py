"""Started gangs with sub-groups that lose members: what is reported, replaced and kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_pod, make_pod_group
from tests.cluster import SCORING, FakeCluster, plan_in
from tests.gang.test_sub_group_members import PAIRS, REPLICAS, A, add, make_gang, run

from koord.core.engine.holds import Holds
from koord.core.gang.failure import find_restart
from koord.core.gang.quorum import Ready, count_to_replace, demands, find_to_replace
from koord.core.gang.reasons import BelowMin
from koord.core.gang.status import ConditionType, observe
from koord.core.model.gangs import ROOT, OnMemberFailure, SubGroup, SubGroupTree


def lost(cluster: FakeCluster) -> dict[str, int]:
    return {one.sub_group: one.missing for one in find_to_replace(cluster.state.gangs, A)}


def degraded(cluster: FakeCluster) -> str:
    """Return the text of the condition if it is True."""
    for kind, is_true, reason in observe(cluster.state.gangs, A, 0.0).conditions:
        if kind is ConditionType.DEGRADED and is_true:
            assert isinstance(reason, BelowMin)
            return reason.text()
    return ""


def test_optional_sub_group_that_lost_a_member_is_below_its_minimum() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1", "y-0", "y-1")
    assert (lost(cluster), degraded(cluster)) == ({}, "")
    cluster.delete_pods("y-1")
    assert lost(cluster) == {"y": 1}
    assert degraded(cluster) == (
        f"{A}/y has 1 of 2 required members left; replacements are placed before all other pods"
    )


def test_optional_sub_group_that_lost_all_members_is_not_missed() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1", "y-0", "y-1")
    cluster.delete_pods("y-0", "y-1")
    assert (lost(cluster), degraded(cluster)) == ({}, "")


def test_needed_sub_group_is_missed_while_others_have_spare_members() -> None:
    cluster = make_gang(PAIRS, 4, least=None)
    run(cluster, "x-0", "x-1", "x-2", "y-0", "y-1")
    cluster.delete_pods("y-1")
    assert lost(cluster) == {"y": 1}
    cluster.delete_pods("y-0")
    assert lost(cluster) == {"y": 2}


def test_members_missing_in_sub_groups_are_counted_once() -> None:
    cluster = make_gang(PAIRS, 5, least=None)
    run(cluster, "x-0", "x-1", "x-2", "y-0", "y-1")
    cluster.delete_pods("y-1")
    assert lost(cluster) == {"y": 1}
    cluster.delete_pods("x-2")
    assert lost(cluster) == {"y": 1, ROOT: 1}


def test_half_a_replica_is_missed() -> None:
    cluster = make_gang(REPLICAS)
    run(cluster, "r0a-0", "r0b-0", "r1a-0", "r1b-0")
    cluster.delete_pods("r1b-0")
    assert lost(cluster) == {"r1b": 1}
    assert "default/a/r1b has 0 of 1 required member left" in degraded(cluster)


def test_raising_the_minimum_of_a_sub_group_is_no_loss() -> None:
    cluster = make_gang(PAIRS)
    run(cluster, "x-0", "x-1", "y-0", "y-1")
    group = make_pod_group(A, 2).build()
    tree = SubGroupTree(SubGroup(ROOT, min_sub_groups=1), (SubGroup("x", 900), SubGroup("y", 900)))
    cluster.pod_groups(replace(group, spec=replace(group.spec, sub_groups=tree)))
    assert count_to_replace(cluster.state.gangs, A) <= 4, "it never had more"


def test_only_what_replaces_lost_members_is_a_repair() -> None:
    cluster = make_gang((*PAIRS, SubGroup("z", 2)))
    run(cluster, "x-0", "x-1", "y-0", "y-1")
    cluster.delete_pods("y-1")
    add(cluster, "x-2", "y-2", "z-0", "z-1")
    ready = demands(cluster.state.gangs, A)
    assert isinstance(ready, Ready)
    repairs = {unit.pods[0].name: unit.is_repair for unit in ready.units}
    assert repairs == {"x-2": False, "y-2": True, "z-0": False}


def test_only_the_broken_sub_group_restarts_if_the_gang_does_not_need_it() -> None:
    cluster = make_gang(REPLICAS)
    group = cluster.state.gangs.pod_group(A)
    assert group is not None
    spec = replace(group.spec, on_member_failure=OnMemberFailure.RESTART_GANG)
    cluster.pod_groups(replace(group, spec=spec))
    run(cluster, "r0a-0", "r0b-0", "r1a-0", "r1b-0")
    cluster.delete_pods("r1b-0")
    assert restarted(cluster) == ("sub-group", ["r1a-0"])
    cluster.delete_pods("r0a-0")
    assert restarted(cluster) == ("gang", ["r0b-0", "r1a-0"])


def test_members_that_wait_for_their_sub_group_are_no_interrupted_start() -> None:
    cluster = make_gang(PAIRS)
    group = cluster.state.gangs.pod_group(A)
    assert group is not None
    spec = replace(group.spec, on_member_failure=OnMemberFailure.RESTART_GANG)
    cluster.pod_groups(replace(group, spec=spec))
    add(cluster, "y-0")
    for at in range(2):
        made = make_pod(f"x-{at}").gang(A).gpu(8).created(9)
        made = made.released(f"n{at}", "p", A, 2, 2, youngest=9.0).running(f"n{at}")
        cluster.pods(replace(made.build(), sub_group="x"))
    cluster.delete_pods("x-1")
    assert restarted(cluster) == ("gang", ["x-0"])


def restarted(cluster: FakeCluster) -> tuple[str, list[str]]:
    restart = find_restart(cluster.state.gangs, A)
    assert restart is not None
    return restart.what, [pod.name for pod in restart.pods]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_room_of_a_lost_member_is_kept_for_its_sub_group(*, is_restarted: bool) -> None:
    cluster, holds = make_gang((*PAIRS, SubGroup("z", 1)), nodes=4), Holds()
    for at, name in enumerate(("x-0", "x-1", "y-0", "y-1")):
        made = make_pod(name).gang(A).gpu(8).released(f"n{at}", "p", A, 4, 4).running(f"n{at}")
        cluster.pods(replace(made.build(), sub_group=name[0]))
    holds.absorb({A}, cluster.state, 0.0)
    cluster.delete_pods("y-1")
    if is_restarted:
        cluster.state.gangs.take_departed()
    holds.absorb({A}, cluster.state, 0.0)
    assert holds.reserved_for_replacements() == {A: 1}
    cluster.pods(make_pod("other").gpu(8))
    add(cluster, "x-2", "z-0")
    assert not plan(cluster, holds)
    add(cluster, "y-2")
    assert plan(cluster, holds) == {"y-2": "n3"}


def plan(cluster: FakeCluster, holds: Holds) -> dict[str, str]:
    outcome = holds.plan(cluster.open_cycle(), cluster.take(), plan_in, SCORING, 0.0)
    return {one.pod.name: one.node for p in outcome.placements for one in p.assignments}
