"""ClusterNetworkTopologies: from the wire to ``koord.core.topology.book.Topology``.

Whether layers make a tree is decided in the core; here they are only read. What stands in the
status is kept for those who write it, and the layers that were valid last are taken from there.
"""

from typing import Final

import msgspec

from koord.core.topology.book import Topology
from koord.core.topology.layers import Layer
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import TopologySpec, WireTopology

MAX_LAYERS: Final = 64
"""More are cut off: the API server admits 16."""


class _Status(msgspec.Struct, rename="camel", gc=False):
    """What of a status outlives a restart."""

    last_valid_spec: TopologySpec | None = None


_status_decoder = msgspec.json.Decoder(_Status | None)


class TopologyTranslator(SeenStatuses):
    """Translates topologies, and keeps what stands in their status for those who write it."""

    def translate(self, wire: WireTopology) -> Topology:
        """Return the core's view of a topology."""
        meta = wire.metadata
        raw = self._see(meta.uid, wire.status)
        return Topology(
            name=meta.name,
            layers=_translate_layers(wire.spec),
            uid=meta.uid,
            generation=meta.generation,
            last_valid=_translate_layers(_last_valid(raw)),
        )


def _last_valid(raw: bytes) -> TopologySpec | None:
    try:
        status = _status_decoder.decode(raw) if raw else None
    except msgspec.DecodeError:
        # Somebody wrote nonsense into the status: it is ours to write anew.
        return None
    return status.last_valid_spec if status is not None else None


def _translate_layers(spec: TopologySpec | None) -> tuple[Layer, ...]:
    layers = (spec.network_topology_spec or ()) if spec is not None else ()
    return tuple(
        Layer(one.topology_layer, one.parent_topology_layer or "", tuple(one.label_key or ()))
        for one in layers[:MAX_LAYERS]
    )
