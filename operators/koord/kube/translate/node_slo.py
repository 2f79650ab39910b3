"""NodeSLOs, and what nodes say of their network: from the wire to the core, and back."""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from koord.api.keys.slo import NETWORK_BANDWIDTH
from koord.api.nodeslo import NodeSLO
from koord.api.quantity import parse_quantity
from koord.caches import cached_by_text
from koord.core.model.nodes import Node
from koord.core.nodeslo.plugin import ObservedSlo
from koord.kube.decode import MALFORMED
from koord.kube.wire import WireCustomResource

NAME: Final = "network-bandwidth"
"""Of the extension of nodes that say what their network has."""
MANAGER: Final = "koord-nodeslo"
_MAX_TEXT: Final = 64
_LABELS: Final = {"app.kubernetes.io/managed-by": "koord-operators"}


def translate_node_slo(wire: WireCustomResource) -> ObservedSlo:
    meta = wire.metadata
    return ObservedSlo(meta.name, meta.uid, _read_spec(bytes(wire.spec)))


@cached_by_text()
def _read_spec(raw: bytes) -> Mapping[str, Any]:
    spec = msgspec.json.decode(raw) if raw else {}
    return spec if isinstance(spec, dict) else {}


def read_bandwidth(annotations: Mapping[str, str]) -> tuple[tuple[str, Hashable], ...]:
    """Return the bandwidth that a node says it has, as an extension; () for none, or nonsense."""
    text = annotations.get(NETWORK_BANDWIDTH, "")
    if not text or len(text) > _MAX_TEXT:
        return ()
    try:
        is_amount = parse_quantity(text).nano >= 0
    except MALFORMED:
        return ()
    return ((NAME, text),) if is_amount else ()


def bandwidth_of(node: Node) -> str:
    return next((str(value) for name, value in node.extensions if name == NAME), "")


def make_node_slo(node: Node, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object to apply: it goes with its node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": NodeSLO.names.api_version,
        "kind": NodeSLO.names.kind,
        "metadata": {"name": node.name, "labels": _LABELS, "ownerReferences": [owner]},
        "spec": dict(spec),
    }
