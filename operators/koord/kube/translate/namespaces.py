"""Namespaces: nothing but their labels decides anything."""

from koord.core.nodes import Namespace
from koord.kube.wire import WireNamespace


def translate_namespace(wire: WireNamespace) -> Namespace:
    """Return the core's view of a namespace."""
    return Namespace(wire.metadata.name, wire.metadata.labels or {})
