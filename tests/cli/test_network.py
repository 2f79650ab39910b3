"""The tree of a topology as text, JSON and graph: offers to a gang, and free resources."""

from __future__ import annotations

import io
import json

import networkx as nx
from rich.console import Console
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, open_cycle
from tests.topology.test_gang_topology import GANG, ask, make_members, make_network, must, prefer

from koord.answers.encoding import encode
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.topology import view_topology
from koord.answers.why import make_answer
from koord.cli.common import TreeOutput
from koord.cli.explain_view import BEST_NODES, make_parts
from koord.cli.output import print_parts
from koord.cli.topology_view import describe_free, describe_where, draw, write_topology_graph
from koord.core.model.plan import ObservedTopology
from koord.core.topology.strategy.observation import domain_capacities

SIZES = {"s0": {"a": [8, 8], "b": [8]}, "s1": {"c": [16]}}


def write(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def explain(cluster: FakeCluster) -> tuple[str, dict[str, object]]:
    answer = make_answer(
        Reading(cluster.state), Target(TargetKind.POD_GROUP, "default", "job"), 0.0
    )
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_parts(make_parts(answer, 0.0, BEST_NODES), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue(), encode(answer)


def fill(count: int, *, running: int = 0) -> FakeCluster:
    cluster = make_network(SIZES)
    ask(cluster, must("Block"), minimum=count + running)
    return cluster.pods(
        *make_members(count),
        *(
            make_pod(f"old-{at}").gang(GANG).requests(cpu=8000).running("node-0")
            for at in range(running)
        ),
    )


def test_a_waiting_gang_gets_the_offer_of_every_domain() -> None:
    text, document = explain(fill(3))
    assert "PodGroup default/job Waiting NoDomainFits" in text
    assert "Network topology default: MustGather Block" in text
    assert "ClusterTopologyLayer  offers 5 (4 nodes)" in text
    assert "Block a  offers 2 (2 nodes)" in text
    assert "Free room for 1 more member in Block s0/a" in text
    network = document["network"]
    assert isinstance(network, dict)
    assert network["where"] is None
    assert [domain["offer"] for domain in network["domains"]] == [5, 3, 2, 1, 2, 2]


def test_a_placeable_gang_gets_its_domain() -> None:
    text, document = explain(fill(2))
    assert "Place: NodeTopologyLayer s1/c/node-3; uses 1 Spine, 1 Block, 1 Node" in text
    assert "the best possible" in text
    network = document["network"]
    assert isinstance(network, dict)
    assert network["where"]["domain"] == "s1/c/node-3"


def test_placed_members_are_counted_by_domain() -> None:
    text, _ = explain(fill(1, running=1))
    assert "Block a  offers 1, has 1 member (2 nodes)" in text


def test_a_topology_shows_what_is_free() -> None:
    state = fill(0, running=1).state
    state.upsert_node(make_node("bare").build())
    tree = state.topologies.tree("default")
    assert tree is not None
    domains = tuple(domain_capacities(open_cycle(state), tree))
    text = write(draw(domains, describe_free, None, "--all"))
    assert "Spine s0  3 nodes; free: cpu 16 of 24" in text
    few = write(draw(domains, describe_free, 3, "--all"))
    assert "3 more domains (--all shows all)" in few
    document = encode(view_topology(state, "default", tree))
    assert document["leftOut"] == [{"node": "bare", "missingLayer": "Spine"}]
    assert json.loads(json.dumps(document))["domains"][1]["free"]["cpu"] == "16"


def test_a_topology_as_a_graph() -> None:
    state = fill(0, running=1).state
    tree = state.topologies.tree("default")
    assert tree is not None
    dot = write_topology_graph(state, "default", tree, TreeOutput.DOT)
    assert '"/s0" ["label"="Spine s0\\n3 nodes\\nfree: cpu 16 of 24' in dot
    assert '"/" -> "/s0";' in dot
    written = write_topology_graph(state, "default", tree, TreeOutput.GRAPHML)
    graph = nx.parse_graphml(written)
    assert set(graph.successors("/s0")) == {"/s0/a", "/s0/b"}
    assert graph.nodes["/s0"]["free cpu"] == "16"
    assert graph.nodes["/s0"]["nodes"] == 3


def test_a_suboptimal_place_says_by_how_much() -> None:
    where = ObservedTopology(
        "default", "Block", ("s0", "a"), (("Block", 1), ("Node", 3)), ("Node", 1)
    )
    assert describe_where(where) == (
        "Place: Block s0/a; uses 1 Block, 3 Node; "
        "maybe not the best: at most 1 Node more than needed"
    )


def test_a_placed_gang_gets_the_offers_for_more_members() -> None:
    text, _ = explain(fill(0, running=1))
    assert "Block a  offers 1, has 1 member (2 nodes)" in text
    assert "Block c  offers 2 (1 node)" in text


def test_unknown_layers_are_named() -> None:
    cluster = fill(1)
    ask(cluster, prefer("block"), must("Spine"))
    text, document = explain(cluster)
    assert 'Topology default has no layer "block" (case counts)' in text
    network = document["network"]
    assert isinstance(network, dict)
    assert network["unknownLayers"] == ["block"]
    text, _ = explain(fill(1))
    assert "has no layer" not in text
