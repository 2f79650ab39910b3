"""The status of topologies follows layers and nodes, and is written only when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import make_node
from tests.cluster import make_cluster
from tests.objects import remove_topology, upsert_topology

from koord.controllers.network_topology import TopologyStatusPolicy
from koord.controllers.status_controller import StatusController
from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

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
        policy = TopologyStatusPolicy(self.state, self.sink)
        self.controller = StatusController(policy, lambda: self.now)

    async def settle(self) -> list[tuple[Mapping[str, Any], ConditionPatch]]:
        """Let time pass until everything is said; return what was."""
        before = len(self.sink.said)
        for _ in range(4):
            self.controller.look()
            self.now += 1.0
            await self.controller.flush()
        return self.sink.said[before:]

    def add_node(self, name: str, **labels: str) -> None:
        node = make_node(name)
        for key, value in labels.items():
            node.label(key, value)
        self.state.upsert_node(node.build())


async def test_status_lists_domains_and_nodes_left_out() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS, generation=3))
    scene.add_node("a", spine="s", block="b")
    scene.add_node("b", block="b")
    [(fields, ready)] = await scene.settle()
    assert (ready.status, ready.reason, ready.observed_generation) == (True, "Built", 3)
    assert fields["nodeCount"] == 1
    assert fields["leftOut"] == {"count": 1, "nodes": [{"name": "b", "missingLayer": "Spine"}]}
    assert [one["topologyInfo"]["topologyName"] for one in fields["detailStatus"]] == ["", "s", "b"]
    assert fields["lastValidSpec"]["networkTopologySpec"] == [
        {"topologyLayer": "Spine", "labelKey": ["spine"]},
        {"topologyLayer": "Block", "parentTopologyLayer": "Spine", "labelKey": ["block"]},
        {"topologyLayer": NODE_LAYER, "parentTopologyLayer": "Block"},
    ]
    assert "b (Spine)" in ready.message


async def test_unchanged_status_is_not_written_again() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS))
    scene.add_node("a", spine="s", block="b")
    assert len(await scene.settle()) == 1
    scene.add_node("a", spine="s", block="b", other="label")
    assert await scene.settle() == []
    scene.add_node("a", spine="t", block="b")
    [(fields, _)] = await scene.settle()
    assert fields["detailStatus"][1]["topologyInfo"]["topologyName"] == "t"


async def test_invalid_layers_are_named_and_the_last_valid_ones_kept() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS))
    scene.add_node("a", spine="s", block="b")
    await scene.settle()
    upsert_topology(scene.state, Topology("default", (*LAYERS, LAYERS[0]), generation=2))
    [(fields, ready)] = await scene.settle()
    assert (ready.status, ready.reason) == (False, "InvalidLayers")
    assert '"Spine" is listed twice' in ready.message
    assert "stay active" in ready.message
    assert fields["nodeCount"] == 1
    assert len(fields["lastValidSpec"]["networkTopologySpec"]) == 3


async def test_topologies_without_nodes_or_valid_layers_are_not_ready() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("empty", LAYERS))
    upsert_topology(scene.state, Topology("never", (LAYERS[0],)))
    said = [(ready.reason, fields.get("detailStatus")) for fields, ready in await scene.settle()]
    assert [reason for reason, _ in said] == ["NoNodes", "InvalidLayers"]
    assert said[1][1] is None


async def test_status_stays_short_with_ten_thousand_unlabelled_nodes() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS))
    for at in range(10_000):
        scene.add_node(f"n{at}")
    [(fields, ready)] = await scene.settle()
    assert (ready.reason, fields["leftOut"]["count"]) == ("NoNodes", 10_000)
    assert len(fields["leftOut"]["nodes"]) == 20
    assert len(ready.message) <= 1024


async def test_domains_beyond_the_limit_are_only_counted() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS))
    for at in range(3000):
        scene.add_node(f"n{at}", spine="s")
    [(fields, ready)] = await scene.settle()
    assert len(fields["detailStatus"]) == 2000
    assert "1002 more domains not listed" in ready.message


async def test_deleted_topology_is_forgotten() -> None:
    scene = Scene()
    upsert_topology(scene.state, Topology("default", LAYERS))
    await scene.settle()
    remove_topology(scene.state, "default")
    assert await scene.settle() == []
    upsert_topology(scene.state, Topology("default", LAYERS))
    assert len(await scene.settle()) == 1
