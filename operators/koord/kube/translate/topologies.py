"""ClusterNetworkTopologies: from the wire to ``koord.core.topology.cache.Topology``.

Does not validate the layers. The status is kept for its writers, and the last valid layers are read
from it.
"""

from typing import Final

from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.kube.translate.last_valid import read_last_valid
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import TopologySpec, WireTopology

MAX_LAYERS: Final = 64
"""More are cut off; the API server allows 16."""


class TopologyTranslator(SeenStatuses):
    """Translates topologies, and keeps their statuses for their writers."""

    def translate(self, wire: WireTopology) -> Topology:
        meta = wire.metadata
        raw = self._see(meta.uid, wire.status)
        return Topology(
            name=meta.name,
            layers=_translate_layers(wire.spec),
            uid=meta.uid,
            generation=meta.generation,
            last_valid=_translate_layers(read_last_valid(raw, TopologySpec)),
        )


def _translate_layers(spec: TopologySpec | None) -> tuple[Layer, ...]:
    layers = (spec.network_topology_spec or ()) if spec is not None else ()
    return tuple(
        Layer(layer.topology_layer, layer.parent_topology_layer or "", tuple(layer.label_key or ()))
        for layer in layers[:MAX_LAYERS]
    )
