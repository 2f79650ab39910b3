"""The worked examples of job-level preemption, with the victims that are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.preemption.test_search import places_of, running, search, victims_of, waiting

from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.plan import Unit

SPINES = (Layer("Spine", "", ("spine",)), Layer("Block", "Spine", ("block",)))


def network(*nodes: tuple[str, str, str], cpu: int) -> FakeCluster:
    """Make nodes of (name, spine, block)."""
    cluster = make_cluster().topology(*SPINES, Layer(NODE_LAYER, "Block"))
    return cluster.nodes(
        *(
            make_node(name).cpu(cpu * 1000).label("spine", spine).label("block", block)
            for name, spine, block in nodes
        )
    )


def gang(cluster: FakeCluster, count: int, cpu: int, layer: str) -> Unit:
    """Add a waiting gang that must share a domain of a layer."""
    must = TopologyConstraint((LayerConstraint(layer, GatherStrategy.MUST),))
    cluster.pod_groups(make_pod_group("default/hp", count).topology(must))
    for at in range(count):
        pod = make_pod(f"hp{at}").gang("default/hp").requests(cpu=cpu * 1000).index(at)
        cluster.pods(pod.priority(1000))
    return next(unit for unit in cluster.take() if unit.key == "default/hp")


def test_reprieve_in_a_domain_spares_what_can_stay() -> None:
    """Of 16.6: two victims are enough, and the cycle is clean when they are put back."""
    cluster = network(("node-1", "s1", "b1"), ("node-2", "s1", "b1"), cpu=32)
    low = [("A", "node-1"), ("B", "node-2"), ("C", "node-2")]
    cluster.pods(*(running(name, node, 16, 1) for name, node in low))
    answer = search(cluster, gang(cluster, 3, 16, "Block"))
    assert victims_of(answer) == "A C"
    assert places_of(answer) == {"hp0": "node-1", "hp1": "node-1", "hp2": "node-2"}


def test_tightest_domain_is_emptied_and_only_as_far_as_needed() -> None:
    """Of 16.7: two spines need one victim each, and the smaller one suffices."""
    blocks = {"b0": (0, 1, 2), "b1": (3, 4), "b2": (5, 6), "b3": (7, 8), "b4": (9, 10, 11)}
    spines = {"b0": "s0", "b1": "s0", "b2": "s1", "b3": "s1", "b4": "s2"}
    nodes = [(f"node-{at}", spines[name], name) for name, rows in blocks.items() for at in rows]
    cluster = network(*nodes, cpu=8)
    cluster.pods(*(running(f"low-{at}", f"node-{at}", 8, 1) for at in (0, 1, 5)))
    answer = search(cluster, gang(cluster, 4, 8, "Spine"))
    assert victims_of(answer) == "low-5"
    assert places_of(answer) == {f"hp{at}": f"node-{at + 5}" for at in range(4)}


def test_equal_domains_go_by_name() -> None:
    cluster = network(("n1", "s1", "b1"), ("n2", "s2", "b2"), cpu=8)
    cluster.pods(running("low-1", "n1", 8, 1), running("low-2", "n2", 8, 1))
    assert victims_of(search(cluster, gang(cluster, 1, 8, "Spine"))) == "low-1"


def test_a_member_that_has_a_node_keeps_it() -> None:
    """Of 16.8: the first node by name, and of its equal pods the last by name."""
    cluster = make_cluster().nodes(*(make_node(f"node-{at}").cpu(32_000) for at in (1, 2)))
    for name, node in (("e1", "node-1"), ("e2", "node-1"), ("e4", "node-2")):
        cluster.pods(running(name, node, 16, 1))
    cluster.pods(running("sibling", "node-2", 16, 1000))
    answer = search(cluster, waiting("p", 1, 16, 1000))
    assert victims_of(answer) == "e2"
    assert places_of(answer) == {"p0": "node-1"}
