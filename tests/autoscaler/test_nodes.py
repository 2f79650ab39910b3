"""What nodes say of their coming and going."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import NodeBuilder, make_node, make_pod
from tests.cluster import make_cluster, make_unit

from koord.core.autoscaler.nodes import YOUNG_SECONDS, could_hold, is_starting
from koord.core.autoscaler.plugin import ElasticNodes
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.pods import Toleration

NOW = 1_000_000.0
LEAVING = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"]


@pytest.mark.parametrize("taint", LEAVING)
def test_pods_that_tolerate_everything_stay_off_nodes_about_to_go(taint: str) -> None:
    cluster = make_cluster().nodes(make_node("n0").gpu(8).taint(taint))
    pod = make_pod("p").gpu(1).tolerates(operator="Exists")
    (refusal,) = cluster.plan(make_unit("u", [pod])).refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    assert f"about to be taken out of the cluster ({taint})" in refusal.reason.text()
    cluster.nodes(make_node("n0").gpu(8))
    assert cluster.plan(make_unit("u", [pod])).placements


def test_a_candidate_for_deletion_is_used_last_and_used_all_the_same() -> None:
    candidate = make_node("n0").gpu(8)
    candidate = candidate.taint("DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")
    cluster = make_cluster().nodes(candidate, make_node("n1").gpu(8))
    unit = make_unit("u", [make_pod("p").gpu(8)])
    (placement,) = cluster.plan(unit).placements
    assert placement.assignments[0].node == "n1"
    cluster.state.remove_node("n1")
    assert cluster.plan(unit).placements


@pytest.mark.parametrize(
    ("node", "age", "starts"),
    [
        (make_node("n").taint("node.kubernetes.io/not-ready"), 10, True),
        (make_node("n").taint("node.kubernetes.io/not-ready"), YOUNG_SECONDS, False),
        (make_node("n").taint("startup-taint.cluster-autoscaler.kubernetes.io/x"), 10, True),
        (make_node("n").label("karpenter.sh/nodepool", "gpu"), 10, True),
        (
            make_node("n")
            .label("karpenter.sh/nodepool", "gpu")
            .label("karpenter.sh/initialized", "true"),
            10,
            False,
        ),
        (make_node("n"), 10, False),
        (make_node("n").taint("node.kubernetes.io/not-ready").taint(LEAVING[0]), 10, False),
    ],
)
def test_nodes_that_are_coming(node: NodeBuilder, age: float, *, starts: bool) -> None:
    built = replace(node.build(), created=NOW - age)
    assert is_starting(built, NOW) is starts
    cluster = make_cluster()
    cluster.state.advance(NOW)
    cluster.nodes(built)
    starting = cluster.state.plugin(ElasticNodes).find_starting()
    assert [coming.node.name for coming in starting] == ["n"] * starts


def test_what_a_node_like_another_could_hold() -> None:
    node = make_node("n").gpu(8).label("pool", "a").taint("node.kubernetes.io/not-ready").build()
    assert could_hold(node, make_pod("p").gpu(8).selector(pool="a").build().shape)
    assert not could_hold(node, make_pod("p").gpu(9).build().shape)
    assert not could_hold(node, make_pod("p").selector(pool="b").build().shape)
    tainted = make_node("n").taint("team", "x").build()
    assert not could_hold(tainted, make_pod("p").build().shape)
    exists = Toleration(operator="Exists")
    assert could_hold(tainted, replace(make_pod("p").build().shape, tolerations=(exists,)))
