"""The operator ``networktopology``: keeps the status of topologies in line with the nodes.

Nodes and layers come through the state; a burst of them is looked at once. Whether an object is
valid at all is said by the operator of that name in the condition ``Accepted``; here ``Ready`` says
whether there is a tree, and the status lists it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koord.controllers.coalescing import Agenda, Pause, rest
from koord.core.state import ClusterState
from koord.core.topology.cache import Topology
from koord.core.topology.describe import Domain
from koord.core.topology.layers import InvalidLayers, Layer
from koord.core.topology.status import Readiness, TopologyStatus, observe_topology
from koord.core.topology.tree import TopologyTree
from koord.core.topology_constraint import NODE_LAYER, ROOT_LAYER
from koord.kube.status import ConditionPatch

READY: Final = "Ready"
_PAUSE: Final = Pause(0.5, 1.5)


class TopologySink(Protocol):
    """Where a status goes; writes only what differs from what is there."""

    def write_status(
        self, topology: Topology, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        """Set these fields and conditions of the status, and no others."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a status is made from."""

    topology: Topology
    fault: InvalidLayers | None
    tree: TopologyTree | None
    version: int


@dataclass(slots=True)
class TopologyController:
    """Observes topologies whose layers or nodes have changed. ``clock`` never goes back."""

    state: ClusterState
    sink: TopologySink
    clock: Callable[[], float]
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _due: Agenda[str] = field(default_factory=Agenda)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Say that the state has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            self.look()
            self.flush()
            await rest(self._woken, self._due.first(), self.clock())

    def look(self) -> None:
        """Find out what has changed since it was looked at."""
        now = self.clock()
        for name in self._seen.keys() - set(self.state.topologies):
            del self._seen[name]
            self._due.drop(name)
        for name in self.state.topologies:
            seen = self._see(name)
            if seen is None or self._seen.get(name) == seen:
                continue
            self._seen[name] = seen
            self._due.put_off(name, now, _PAUSE)

    def flush(self) -> None:
        """Write the status of those whose time has come."""
        now = self.clock()
        for name in self._due.take(now):
            topology = self.state.topologies.topology(name)
            if topology is not None:
                status = observe_topology(self.state.topologies, name)
                fields = make_fields(status, topology.generation)
                self.sink.write_status(topology, fields, (_ready(status, topology),))

    def _see(self, name: str) -> _Seen | None:
        book = self.state.topologies
        topology, tree = book.topology(name), book.tree(name)
        if topology is None:
            return None
        return _Seen(topology, book.fault(name), tree, tree.version if tree is not None else 0)


def _ready(status: TopologyStatus, topology: Topology) -> ConditionPatch:
    is_ready = status.readiness is Readiness.BUILT
    text = status.describe()
    return ConditionPatch(READY, is_ready, str(status.readiness), text, topology.generation)


def make_fields(status: TopologyStatus, generation: int) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    fields: dict[str, Any] = {
        "observedGeneration": generation,
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


def _make_domain(domain: Domain) -> dict[str, Any]:
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
