"""Nodes: from the wire to ``koord.core.nodes.Node``."""

from functools import lru_cache

import msgspec

from koord.core.nodes import Node, Taint
from koord.kube.translate.amounts import parse_amounts
from koord.kube.wire import WireNode


class _WireTaint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


_taints_decoder = msgspec.json.Decoder(list[_WireTaint] | None)


def translate_node(wire: WireNode) -> Node:
    """Return the core's view of a node."""
    meta, spec = wire.metadata, wire.spec
    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        taints=_parse_taints(bytes(spec.taints)),
        is_unschedulable=bool(spec.unschedulable),
        is_terminating=meta.deletion_timestamp is not None,
        allocatable=parse_amounts(bytes(wire.status.allocatable)),
        resource_version=meta.resource_version,
    )


@lru_cache(maxsize=4096)
def _parse_taints(raw: bytes) -> tuple[Taint, ...]:
    """Sorted, and without the times at which they were added."""
    wire = (_taints_decoder.decode(raw) if raw else None) or ()
    return tuple(Taint(*fields) for fields in sorted((t.key, t.value, t.effect) for t in wire))
