"""Impossible topology constraints are refused with a clear reason, on clusters of any size."""

from __future__ import annotations

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster
from tests.objects import upsert_topology

from koord.core.engine.queue import unit_of
from koord.core.model.plan import Demand, Unit
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

A = "default/a"
NODES = 10_000
LAYERS = (Layer("Spine", "", ("s",)), Layer("Rack", "Spine", ("r",)), Layer(NODE_LAYER, "Rack"))
ONE_ABOVE = LAYERS[0], Layer(NODE_LAYER, "Spine")


@pytest.fixture(scope="module")
def cluster() -> FakeCluster:
    """Nodes without any label."""
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    cluster.topology(*ONE_ABOVE, name="flat")
    for at in range(NODES):
        cluster.nodes(make_node(f"n{at}").gpu(8))
    return cluster


@pytest.mark.parametrize(
    ("topology", "layer", "multiple", "code", "words"),
    [
        ("default", "Rack", 1, "NoDomainFits", "No node is in the topology"),
        ("default", "Spine", 4, "NoDomainFits", "No node is in the topology"),
        ("flat", "Spine", 1, "NoDomainFits", "9995 more domains"),
        ("flat", NODE_LAYER, 8, "NoDomainFits", "9995 more domains"),
        ("flat", "Row", 1, "UnknownLayer", "Row"),
        ("none", "Spine", 1, "MissingTopology", "none"),
    ],
)
def test_gang_on_nodes_without_labels_is_refused(  # noqa: PLR0917 - the columns of the table
    cluster: FakeCluster, topology: str, layer: str, multiple: int, code: str, words: str
) -> None:
    constraint = TopologyConstraint(
        (LayerConstraint(layer, GatherStrategy.MUST, multiple),), topology
    )
    cluster.pod_groups(make_pod_group(A, 2).topology(constraint))
    pods = tuple(make_pod(f"a-{at}").gang(A).gpu(8).build() for at in range(2))
    alone = unit_of(make_pod("alone").gpu(8).build())
    outcome = cluster.plan(Unit(A, (Demand(A, pods, 2),), A), alone)
    (refusal,) = outcome.refusals
    assert refusal.reason.code == code
    assert words in refusal.reason.text()
    assert [placement.unit for placement in outcome.placements] == [alone.key]


def test_multiple_larger_than_the_gang_is_refused(cluster: FakeCluster) -> None:
    constraint = TopologyConstraint(
        (LayerConstraint("Spine", GatherStrategy.PREFER, 8),), "labelled"
    )
    upsert_topology(
        cluster.state, Topology("labelled", (Layer("Spine", "", ("none",)), ONE_ABOVE[1]))
    )
    cluster.pod_groups(make_pod_group(A, 2).topology(constraint))
    pods = tuple(make_pod(f"a-{at}").gang(A).gpu(1).build() for at in range(2))
    (refusal,) = cluster.plan(Unit(A, (Demand(A, pods, 2),), A)).refusals
    assert refusal.reason.code == "MultipleNotMet"
    assert "multiple" in refusal.reason.text()
