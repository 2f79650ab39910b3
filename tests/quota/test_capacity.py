"""The capacity while nodes are cordoned, drained or deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster

from koord.answers.quota_audit import find_drift
from koord.core.model.selectors import Requirement, SelectorOperator

IN_POOL = (Requirement("pool", SelectorOperator.IN, ("a",)),)
ROOT = make_quota(
    "root", "q", created=1.0, is_parent=True, tree_id="t", is_tree_root=True,
    min={"cpu": 100}, max={"cpu": 1000}, total={"cpu": 100}, selector=IN_POOL,
)  # fmt: skip
TEAM = make_quota("team", "q", created=3.0, max={"cpu": 1000})


def total(cluster: FakeCluster, tree: str = "") -> int:
    cluster.state.open_ledger()
    return cluster.state.quotas.solutions[tree].inputs.total["cpu"]


def test_a_cordoned_node_of_a_pool_changes_nothing_outside() -> None:
    cluster = make_cluster().quotas(ROOT, replace(TEAM, name="below", parent="root"), TEAM)
    pooled = replace(make_node("p").cpu(100).build(), labels={"pool": "a"})
    for node in (make_node("d").cpu(100).build(), pooled):
        cluster.nodes(node)
    cluster.pods(make_pod("x").requests(cpu=60).quota("below").running("p"))
    assert total(cluster) == 100
    cluster.nodes(replace(pooled, is_unschedulable=True))
    cluster.quotas(replace(ROOT, unschedulable={"cpu": 100}))
    assert (total(cluster), total(cluster, "t")) == (100, 100)


@pytest.mark.parametrize(("quota", "expected"), [("", 100), ("team", 180)])
def test_usage_on_a_node_that_is_gone_does_not_reduce_the_capacity_of_others(
    quota: str, expected: int
) -> None:
    """Its pods stay until they are garbage collected, which takes a minute."""
    cluster = make_cluster().quotas(TEAM)
    cluster.nodes(make_node("a").cpu(100), make_node("b").cpu(100))
    cluster.pods(make_pod("x").requests(cpu=80).quota(quota).running("b"))
    cluster.state.remove_node("b")
    assert total(cluster) == expected
    assert not find_drift(cluster.state)
    cluster.delete_pods("x")
    assert total(cluster) == 100
    cluster.nodes(make_node("b").cpu(100))
    assert total(cluster) == 200


@pytest.mark.parametrize(
    ("quota", "expected"),
    [pytest.param("", 100, id="outside"), pytest.param("team", 180, id="of the quota")],
)
@pytest.mark.parametrize("how", [{"is_unschedulable": True}, {"is_terminating": True}], ids=str)
def test_usage_on_a_closed_node_does_not_reduce_the_capacity_of_others(
    quota: str, expected: int, how: dict[str, bool]
) -> None:
    cluster = make_cluster().quotas(TEAM)
    cluster.nodes(make_node("a").cpu(100))
    cluster.nodes(replace(make_node("b").cpu(100).build(), **how))
    cluster.pods(make_pod("x").requests(cpu=80).quota(quota).running("b"))
    assert total(cluster) == expected
