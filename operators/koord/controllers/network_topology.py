"""The status of ClusterNetworkTopologies: for the operator ``networktopology``.

Whether an object is valid is said in the condition ``Accepted``; here ``Ready`` says whether the
nodes form a tree, and the status lists it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.networktopology import (
    ClusterNetworkTopologySpec,
    ClusterNetworkTopologyStatus,
    DomainReference,
    DomainStatus,
    LeftOutNode,
    LeftOutNodes,
    TopologyLayer,
)
from koord.api.resource import KeptSpec
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.model.topology_constraint import NODE_LAYER, ROOT_LAYER
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology.status import Readiness, TopologyStatus, observe_topology
from koord.core.topology.tree import TopologyDomain
from koord.kube.status import ConditionPatch

READY: Final = "Ready"
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class TopologyStatusPolicy:
    """Observes topologies whose layers or nodes have changed."""

    state: ClusterState
    author: StatusAuthor[str, Topology]
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    def changed(self) -> list[str]:
        return self._inputs.compare(self.state.topologies, self._inputs_of)

    def _inputs_of(self, name: str) -> object:
        topologies = self.state.topologies
        tree = topologies.tree(name)
        version = tree.version if tree is not None else 0
        return topologies.topology(name), topologies.problem(name), tree, version

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> None:
        topology = self.state.topologies.topology(name)
        if topology is not None:
            status = observe_topology(self.state.topologies, name)
            self.author.write_status(topology, make_fields(status), (_ready(status, topology),))


def _ready(status: TopologyStatus, topology: Topology) -> ConditionPatch:
    is_ready = status.readiness is Readiness.BUILT
    text = status.describe()
    return ConditionPatch(READY, is_ready, str(status.readiness), text, topology.generation)


def make_fields(status: TopologyStatus) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    nodes = [LeftOutNode(name=name, missing_layer=layer) for name, layer in status.left_out]
    made = ClusterNetworkTopologyStatus(
        node_count=status.nodes,
        left_out=LeftOutNodes(count=status.left_out_count, nodes=nodes),
        detail_status=list(map(_make_domain, status.domains)) or None,
        last_valid_spec=_keep(status.valid) if status.valid else None,
    )
    return made.encode_set()


def _make_domain(domain: TopologyDomain) -> DomainStatus:
    return DomainStatus(
        topology_info=_make_reference(domain.layer, domain.name),
        parent_topology_info=_make_reference(*domain.parent) if domain.parent is not None else None,
        child_topology_layer=domain.child_layer or None,
        child_topology_names=list(domain.child_names) or None,
        node_num=domain.nodes,
    )


def _make_reference(layer: str, name: str) -> DomainReference:
    return DomainReference(topology_layer=layer, topology_name=name)


def _keep(layers: Iterable[Layer]) -> KeptSpec:
    """Return the layers in the form of the object; the core has found them valid."""
    kept = list(map(_make_layer, layers))
    return ClusterNetworkTopologySpec.model_construct(network_topology_spec=kept).encode()


def _make_layer(layer: Layer) -> TopologyLayer:
    return TopologyLayer.model_construct(
        topology_layer=layer.name,
        parent_topology_layer=layer.parent if layer.parent and layer.parent != ROOT_LAYER else None,
        label_key=list(layer.label_keys) if layer.label_keys and layer.name != NODE_LAYER else None,
    )
