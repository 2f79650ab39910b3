"""ClusterNetworkTopology: the layers of the network, from spine to node, and their node labels.

Compatible with Koordinator's. The rules here check the list of layers only, not nodes.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

from pydantic import Field

from koord.api.model import ListMap, Model, Rule
from koord.api.reservation import KOORDINATOR_GROUP
from koord.api.resource import (
    AGE,
    Conditions,
    Int32,
    Int64,
    KeptSpec,
    Names,
    PrinterColumn,
    Resource,
    reason_column,
)

ROOT_LAYER: Final = "ClusterTopologyLayer"
"""Built in: its one domain holds all nodes; never listed."""
NODE_LAYER: Final = "NodeTopologyLayer"
"""Built in: one domain per node; always listed."""
MAX_LAYERS: Final = 16
"""Deeper than any network; limits the cost of the checks."""

LayerName = Annotated[str, Field(min_length=1, max_length=63)]


class TopologyLayer(Model):
    """One layer of the network."""

    rules = (
        Rule(
            f"self.topologyLayer != '{ROOT_LAYER}'",
            f"{ROOT_LAYER} is built in and must not be listed; name it as parentTopologyLayer",
            lambda layer: layer.topology_layer != ROOT_LAYER,
        ),
        Rule(
            "!has(self.parentTopologyLayer) || self.parentTopologyLayer != self.topologyLayer",
            "parentTopologyLayer must not name the layer itself",
            lambda layer: layer.parent_topology_layer != layer.topology_layer,
        ),
        Rule(
            f"self.topologyLayer == '{NODE_LAYER}' "
            "|| (has(self.labelKey) && self.labelKey.size() > 0)",
            f"labelKey must name a node label: only {NODE_LAYER} goes without",
            lambda layer: layer.topology_layer == NODE_LAYER or bool(layer.label_key),
        ),
    )

    topology_layer: LayerName
    """Name of the layer; NodeTopologyLayer is the lowest."""
    parent_topology_layer: Annotated[str, Field(max_length=63)] | None = None
    """The layer above; empty or ClusterTopologyLayer for the top layer."""
    label_key: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=317)]], Field(max_length=8)]
        | None
    ) = None
    """Node labels that name the domain of a node; the first that is not empty counts."""


def _parents(layers: Sequence[TopologyLayer]) -> list[str]:
    named = (layer.parent_topology_layer or ROOT_LAYER for layer in layers)
    return [parent for parent in named if parent != ROOT_LAYER]


def _has_known_parents(layers: Sequence[TopologyLayer]) -> bool:
    return set(_parents(layers)) <= {layer.topology_layer for layer in layers}


def _is_one_chain(layers: Sequence[TopologyLayer]) -> bool:
    parents = _parents(layers)
    tops = len(layers) - len(parents)
    return tops <= 1 and len(parents) == len(set(parents)) and NODE_LAYER not in parents


_HAS_NODE_LAYER: Final = Rule(
    f"self.exists(layer, layer.topologyLayer == '{NODE_LAYER}')",
    f"networkTopologySpec must list {NODE_LAYER}, the lowest layer",
    lambda layers: any(layer.topology_layer == NODE_LAYER for layer in layers),
)
_HAS_KNOWN_PARENTS: Final = Rule(
    "self.all(layer, !has(layer.parentTopologyLayer) "
    f"|| layer.parentTopologyLayer in ['', '{ROOT_LAYER}'] "
    "|| self.exists(above, above.topologyLayer == layer.parentTopologyLayer))",
    "every parentTopologyLayer must be listed as a topologyLayer; "
    f"leave it out or write {ROOT_LAYER} for the top layer",
    _has_known_parents,
)
# A list without a top layer has an unknown parent, which the rule above rejects, or a cycle; a
# cycle in which each layer has one child would include NodeTopologyLayer, which has none.
_IS_ONE_CHAIN: Final = Rule(
    f"self.filter(top, !has(top.parentTopologyLayer) "
    f"|| top.parentTopologyLayer in ['', '{ROOT_LAYER}']).size() <= 1 "
    "&& self.all(layer, self.filter(below, has(below.parentTopologyLayer) "
    "&& below.parentTopologyLayer == layer.topologyLayer).size() "
    f"<= (layer.topologyLayer == '{NODE_LAYER}' ? 0 : 1))",
    f"the layers must form one chain from one top layer to {NODE_LAYER}: "
    "no two layers have the same parentTopologyLayer",
    _is_one_chain,
)


class ClusterNetworkTopologySpec(Model):
    """The layers of the network."""

    network_topology_spec: Annotated[
        list[TopologyLayer],
        Field(min_length=1, max_length=MAX_LAYERS),
        ListMap(("topology_layer",)),
        _HAS_NODE_LAYER,
        _HAS_KNOWN_PARENTS,
        _IS_ONE_CHAIN,
    ]
    """The layers in any order; parentTopologyLayer chains them from top to NodeTopologyLayer."""


class DomainReference(Model):
    """Names a domain."""

    topology_layer: str
    """The layer of the domain."""
    topology_name: str
    """The name of the domain; empty for the whole cluster."""


class DomainStatus(Model):
    """One domain of the tree."""

    topology_info: DomainReference
    """The domain."""
    parent_topology_info: DomainReference | None = None
    """The domain above; absent for the whole cluster."""
    child_topology_layer: str | None = None
    """The layer below."""
    child_topology_names: list[str] | None = None
    """The domains below, by name; left out if they are nodes."""
    node_num: Int32
    """How many nodes are in the domain."""


class LeftOutNode(Model):
    """A node that is not in the tree."""

    name: str
    """Name of the node."""
    missing_layer: str
    """The layer for which the node has no label."""


class LeftOutNodes(Model):
    """Nodes that are not in the tree, and so get no pod with a topology constraint."""

    count: Int32 = 0
    """How many there are."""
    nodes: list[LeftOutNode] | None = None
    """The first of them."""


class ClusterNetworkTopologyStatus(Model):
    """The tree that the nodes form."""

    detail_status: list[DomainStatus] | None = None
    """Every domain above the nodes, depth first."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""
    conditions: Conditions | None = None
    """Whether the tree could be built, Ready among them."""
    last_valid_spec: KeptSpec | None = None
    """The layers in use: those of the spec if they are valid, else the last valid ones."""
    node_count: Int32 | None = None
    """How many nodes are in the tree."""
    left_out: LeftOutNodes | None = None
    """Nodes that are not in the tree."""


class ClusterNetworkTopology(Resource):
    """The layers of the network; the object named default is used unless a group names another."""

    names: ClassVar = Names(
        group=KOORDINATOR_GROUP,
        kind="ClusterNetworkTopology",
        plural="clusternetworktopologies",
        short=("cnt",),
        namespaced=False,
        columns=(
            reason_column("Accepted"),
            reason_column("Ready", priority=1),
            PrinterColumn("Nodes", ".status.nodeCount", "integer", "Nodes in the tree."),
            PrinterColumn("Left-Out", ".status.leftOut.count", "integer", "Nodes not in the tree."),
            AGE,
        ),
    )

    spec: ClusterNetworkTopologySpec
    """The layers of the network."""
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()
    """The tree that the nodes form."""
