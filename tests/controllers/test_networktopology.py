"""The status of topologies follows layers and nodes, and is written only when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import make_node
from tests.cluster import make_cluster

from koord.controllers.network_topology import TopologyController
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology_constraint import NODE_LAYER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.kube.status import ConditionPatch

LAYERS = (
    Layer("Spine", "", ("spine",)),
    Layer("Block", "Spine", ("block",)),
    Layer(NODE_LAYER, "Block"),
)


class Sink:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[Mapping[str, Any], ConditionPatch]] = []

    def write_status(
        self, topology: Topology, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        self.said.append((fields, conditions[0]))


class Scene:
    """A state, its controller, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.state = make_cluster().state
        self.sink = Sink()
        self.now = 0.0
        self.controller = TopologyController(self.state, self.sink, lambda: self.now)

    def settle(self) -> list[tuple[Mapping[str, Any], ConditionPatch]]:
        """Let time pass until everything is said; return what was."""
        before = len(self.sink.said)
        for _ in range(4):
            self.controller.look()
            self.now += 1.0
            self.controller.flush()
        return self.sink.said[before:]

    def add_node(self, name: str, **labels: str) -> None:
        node = make_node(name)
        for key, value in labels.items():
            node.label(key, value)
        self.state.upsert_node(node.build())


def test_the_status_lists_domains_and_who_is_left_out() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS, generation=3))
    scene.add_node("a", spine="s", block="b")
    scene.add_node("b", block="b")
    [(fields, ready)] = scene.settle()
    assert (ready.status, ready.reason, ready.observed_generation) == (True, "Built", 3)
    assert fields["observedGeneration"] == 3
    assert fields["nodeCount"] == 1
    assert fields["leftOut"] == {"count": 1, "nodes": [{"name": "b", "missingLayer": "Spine"}]}
    assert [one["topologyInfo"]["topologyName"] for one in fields["detailStatus"]] == ["", "s", "b"]
    assert fields["lastValidSpec"]["networkTopologySpec"] == [
        {"topologyLayer": "Spine", "labelKey": ["spine"]},
        {"topologyLayer": "Block", "parentTopologyLayer": "Spine", "labelKey": ["block"]},
        {"topologyLayer": NODE_LAYER, "parentTopologyLayer": "Block"},
    ]
    assert "b (Spine)" in ready.message


def test_what_changes_nothing_is_not_said_again() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS))
    scene.add_node("a", spine="s", block="b")
    assert len(scene.settle()) == 1
    scene.add_node("a", spine="s", block="b", other="label")
    assert scene.settle() == []
    scene.add_node("a", spine="t", block="b")
    [(fields, _)] = scene.settle()
    assert fields["detailStatus"][1]["topologyInfo"]["topologyName"] == "t"


def test_invalid_layers_are_named_and_the_last_valid_ones_kept() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS))
    scene.add_node("a", spine="s", block="b")
    scene.settle()
    scene.state.upsert_topology(Topology("default", (*LAYERS, LAYERS[0]), generation=2))
    [(fields, ready)] = scene.settle()
    assert (ready.status, ready.reason) == (False, "InvalidLayers")
    assert '"Spine" is listed twice' in ready.message
    assert "stay in force" in ready.message
    assert fields["nodeCount"] == 1
    assert len(fields["lastValidSpec"]["networkTopologySpec"]) == 3


def test_without_nodes_and_without_any_valid_layers() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("empty", LAYERS))
    scene.state.upsert_topology(Topology("never", (LAYERS[0],)))
    said = [(ready.reason, fields.get("detailStatus")) for fields, ready in scene.settle()]
    assert [reason for reason, _ in said] == ["NoNodes", "InvalidLayers"]
    assert said[1][1] is None


def test_ten_thousand_nodes_without_labels_make_a_short_status() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS))
    for at in range(10_000):
        scene.add_node(f"n{at}")
    [(fields, ready)] = scene.settle()
    assert (ready.reason, fields["leftOut"]["count"]) == ("NoNodes", 10_000)
    assert len(fields["leftOut"]["nodes"]) == 20
    assert len(ready.message) <= 1024


def test_more_domains_than_a_status_takes_are_counted() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS))
    for at in range(3000):
        scene.add_node(f"n{at}", spine="s")
    [(fields, ready)] = scene.settle()
    assert len(fields["detailStatus"]) == 2000
    assert "1002 more domains not listed" in ready.message


def test_a_topology_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.state.upsert_topology(Topology("default", LAYERS))
    scene.settle()
    scene.state.remove_topology("default")
    assert scene.settle() == []
    scene.state.upsert_topology(Topology("default", LAYERS))
    assert len(scene.settle()) == 1
