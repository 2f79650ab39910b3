"""The life of an elastic job, with a minimum below its size: it grows, and gives back first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.preemption.test_search import search, victims_of
from tests.support.laws import examples

from koord.core.model.pods import Handling, PodPhase, RecordedPlan


def run(cluster: FakeCluster) -> list[str]:
    """Place what has room; it runs then, as the operators have recorded it."""
    placed = cluster.step()
    for name in placed:
        pod = cluster.pod(name)
        assert pod.gang is not None
        strength = sum(
            bool(other.node) for other in cluster.state.gangs.members(pod.gang.key).values()
        )
        cluster.pods(
            replace(
                pod,
                handling=Handling.BIND,
                is_gated=False,
                phase=PodPhase.RUNNING,
                recorded=RecordedPlan(pod.node, "p", pod.gang.key, strength, 2),
            )
        )
        cluster.queue.forgive([pod.uid])
    return placed


def test_five_members_of_which_two_are_needed() -> None:
    cluster = make_cluster(nodes=1).gang("el", 5, 2)
    assert run(cluster) == [], "one node is not enough for two"
    cluster.nodes(make_node("n1").gpu(8), make_node("n2").gpu(8))
    assert run(cluster) == ["el-0", "el-1", "el-2"], "the required ones, and what else fits"
    cluster.nodes(make_node("n3").gpu(8))
    assert run(cluster) == ["el-3"], "it grows into room"
    for wanted, victims in ((1, {"el-2", "el-3"}), (2, {"el-2", "el-3"})):
        urgent = [make_pod(f"hp-{at}").gpu(8).priority(10) for at in range(wanted)]
        answer = victims_of(search(cluster, make_unit("hp", urgent))).split()
        assert len(answer) == wanted
        assert set(answer) <= victims, "and gives the surplus back first"
    urgent = [make_pod(f"hp-{at}").gpu(8).priority(10) for at in range(3)]
    answer = victims_of(search(cluster, make_unit("hp", urgent)))
    assert answer == "el-0 el-1 el-2 el-3", "below its minimum it does not stay"


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 8), st.integers(1, 6))
def test_no_more_goes_than_the_surplus_while_that_is_enough(
    count: int, minimum: int, nodes: int, wanted: int
) -> None:
    minimum = min(count, minimum)
    cluster = make_cluster(nodes=nodes).gang("el", count, minimum)
    placed = len(run(cluster))
    assert placed == (0 if nodes < minimum else min(count, nodes))
    surplus, free = max(0, placed - minimum), nodes - placed
    if not placed or not free < wanted <= free + surplus:
        return
    urgent = [make_pod(f"hp-{at}").gpu(8).priority(10) for at in range(wanted)]
    answer = victims_of(search(cluster, make_unit("hp", urgent))).split()
    assert len(answer) == wanted - free


@pytest.mark.parametrize("lost", ["el-0", "el-3"])
def test_a_lost_member_above_the_minimum_is_no_loss_of_the_gang(lost: str) -> None:
    cluster = make_cluster(nodes=4).gang("el", 4, 2)
    run(cluster)
    cluster.delete_pods(lost)
    assert cluster.state.is_complete("default/el")
    replacement = make_pod("el-9").gang("default/el").gpu(8).created(9)
    assert run(cluster.pods(replacement)) == ["el-9"]
