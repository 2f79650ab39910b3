"""A refusal counts every node once, and not those of the pods that fit."""

from __future__ import annotations

from tests.builders import make_node, make_pod
from tests.cluster import make_cluster

from koord.answers.reason_context import ContextFinder


def test_nodes_of_pods_that_fit_are_not_counted_as_refusing() -> None:
    cluster = make_cluster(8)
    for at in range(4, 8):
        cluster.pods(make_pod(f"bert-{at}").owners("bert").gpu(8).running(f"n{at}"))
    cluster.gang("big", 9)
    (unit,) = cluster.take()
    (refusal,) = cluster.plan(unit).refusals
    told = ContextFinder(cluster.state).add(unit, refusal.reason).text()
    assert told == (
        "Room for 4 of 9 pods. The other 4 nodes lack 8 free nvidia.com/gpu (default/bert-*). 5 "
        "more empty nodes as large as the largest one would be enough."
    )


def test_members_of_one_gang_are_abbreviated() -> None:
    cluster = make_cluster(2).gang("bert", 2)
    cluster.step()
    cluster.gang("big", 2).step()
    told = cluster.reasons()["big-0"]
    unit = cluster.queue.blocked["default/big"].unit
    assert "All 2 nodes lack 8 free nvidia.com/gpu (default/bert-*)." in (
        ContextFinder(cluster.state).add(unit, told).text()
    )


def test_a_node_that_lacks_several_resources_is_counted_once() -> None:
    cluster = make_cluster().nodes(
        make_node("full").cpu(1000).gpu(8), make_node("cordoned").gpu(8).unschedulable()
    )
    cluster.pods(make_pod("user").gpu(8).requests(cpu=1000).running("full"))
    cluster.gang("big", 2)
    (unit,) = cluster.take()
    (refusal,) = cluster.plan(unit).refusals
    assert "Of 2 nodes, 1 was unschedulable, 1 lacks 8 free" in refusal.reason.text()
