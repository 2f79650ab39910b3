"""The status of ClusterNetworkTopologies: for the operator ``networktopology``.

Whether an object is valid is said in the condition ``Accepted``; here ``Ready`` says whether the
nodes form a tree, and the status lists it.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import ChangedInputs, StatusSink
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
    sink: StatusSink[Topology]
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
            self.sink.write_status(topology, make_fields(status), (_ready(status, topology),))


def _ready(status: TopologyStatus, topology: Topology) -> ConditionPatch:
    is_ready = status.readiness is Readiness.BUILT
    text = status.describe()
    return ConditionPatch(READY, is_ready, str(status.readiness), text, topology.generation)


def make_fields(status: TopologyStatus) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    fields: dict[str, Any] = {
        "nodeCount": status.nodes,
        "leftOut": {
            "count": status.left_out_count,
            "nodes": [{"name": name, "missingLayer": layer} for name, layer in status.left_out],
        },
    }
    if status.domains:
        fields["detailStatus"] = [_make_domain(domain) for domain in status.domains]
    if status.valid:
        fields["lastValidSpec"] = {
            "networkTopologySpec": [_make_layer(layer) for layer in status.valid]
        }
    return fields


def _make_domain(domain: TopologyDomain) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "topologyInfo": {"topologyLayer": domain.layer, "topologyName": domain.name},
        "nodeNum": domain.nodes,
    }
    if domain.parent is not None:
        layer, name = domain.parent
        entry["parentTopologyInfo"] = {"topologyLayer": layer, "topologyName": name}
    if domain.child_layer:
        entry["childTopologyLayer"] = domain.child_layer
    if domain.child_names:
        entry["childTopologyNames"] = list(domain.child_names)
    return entry


def _make_layer(layer: Layer) -> dict[str, Any]:
    made: dict[str, Any] = {"topologyLayer": layer.name}
    if layer.parent and layer.parent != ROOT_LAYER:
        made["parentTopologyLayer"] = layer.parent
    if layer.label_keys and layer.name != NODE_LAYER:
        made["labelKey"] = list(layer.label_keys)
    return made
