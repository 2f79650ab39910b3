"""Pending gangs are requeued when topology constraints change."""

from __future__ import annotations

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster
from tests.objects import remove_topology

from koord.core.model.pods import PodPhase
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer
from koord.core.topology.reasons import MissingTopology, MultipleNotMet, NoDomainFits, UnknownLayer

A, B = "default/a", "default/b"
LAYERS = (Layer("Rack", "", ("r",)), Layer(NODE_LAYER, "Rack"))


def must(layer: str) -> TopologyConstraint:
    return TopologyConstraint((LayerConstraint(layer, GatherStrategy.MUST),))


@pytest.mark.parametrize("asked", [None, must("Rack")])
def test_gang_is_requeued_when_its_constraint_is_removed(asked: TopologyConstraint | None) -> None:
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    for at in range(2):
        cluster.nodes(make_node(f"n{at}").gpu(8).label("r", "r0"))
        cluster.pods(make_pod(f"a-{at}").gang(A).gpu(8))
    cluster.pod_groups(make_pod_group(A, 2).topology(must(NODE_LAYER)))
    (unit,) = cluster.take()
    assert cluster.decide([unit]).refusals
    cluster.pod_groups(make_pod_group(A, 2).topology(asked))
    (again,) = cluster.take()
    assert cluster.plan(again).placements


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        pytest.param(None, MissingTopology.code, id="deleted"),
        pytest.param(
            (Layer("Block", "", ("r",)), Layer(NODE_LAYER, "Block")),
            UnknownLayer.code,
            id="other layers",
        ),
    ],
)
def test_gang_is_requeued_when_its_topology_is_deleted(
    layers: tuple[Layer, ...] | None, code: str
) -> None:
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    cluster.nodes(make_node("n").gpu(8).label("r", "r0"))
    cluster.pods(make_pod("full").gpu(8).running("n"))
    cluster.pod_groups(make_pod_group(A, 1).topology(must("Rack")))
    cluster.pods(make_pod("a-0").gang(A).gpu(8))
    assert refuse(cluster) == NoDomainFits.code
    if layers is None:
        remove_topology(cluster.state, "default")
    else:
        cluster.topology(*layers)
    assert refuse(cluster) == code


def refuse(cluster: FakeCluster) -> str:
    """Plan the one unit that is due; return the reason of its refusal."""
    (unit,) = cluster.take()
    (refusal,) = cluster.decide([unit]).refusals
    return refusal.reason.code


def test_gang_is_requeued_when_another_gang_changes_its_constraint() -> None:
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    for at, gang in enumerate((A, B)):
        cluster.pod_groups(make_pod_group(gang, 1).group(A, B).topology(must("Rack")))
        cluster.nodes(make_node(f"n{at}").gpu(8).label("r", f"r{at}"))
        old = make_pod(f"old-{at}").gang(gang).gpu(1).released(f"n{at}", "p", f"{A},{B}", 2, 1)
        cluster.pods(old.running(f"n{at}"))
    cluster.pods(make_pod("late").gang(B).gpu(1))
    (unit,) = cluster.take()
    (refusal,) = cluster.decide([unit]).refusals
    assert refusal.reason.code == "MembersApart"
    cluster.pod_groups(make_pod_group(A, 1).group(A, B).topology(None))
    (again,) = cluster.take()
    (placement,) = cluster.plan(again).placements
    assert [one.node for one in placement.assignments] == ["n1"]


def test_gang_with_a_multiple_is_requeued_when_a_member_succeeds() -> None:
    """The room it leaves does not matter: the number of members to place changes."""
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    constraint = TopologyConstraint((LayerConstraint("Rack", GatherStrategy.MUST, 2),))
    cluster.pod_groups(make_pod_group(A, 1).topology(constraint))
    for name in ("n0", "n1"):
        cluster.nodes(make_node(name).gpu(4).label("r", "r0"))
    olds = [make_pod(f"old-{at}").gang(A).gpu(1).released("n0", "p", A, 2, 1) for at in range(2)]
    for old in olds:
        cluster.pods(old.running("n0"))
    cluster.pods(make_pod("late").gang(A).gpu(4))
    assert refuse(cluster) == MultipleNotMet.code
    cluster.pods(olds[0].phase(PodPhase.SUCCEEDED))
    (again,) = cluster.take()
    (placement,) = cluster.plan(again).placements
    assert [one.node for one in placement.assignments] == ["n1"]
