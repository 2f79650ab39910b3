"""What Kueue has chosen for a pod, where its topology is in use: from annotations and selector."""

from collections.abc import Mapping
from typing import Final

import msgspec

from koord.api.keys import kueue as keys
from koord.kube.wire import WirePod

_TOPOLOGY: Final = frozenset(
    {
        keys.REQUIRED_TOPOLOGY,
        keys.PREFERRED_TOPOLOGY,
        keys.UNCONSTRAINED_TOPOLOGY,
        keys.SLICE_TOPOLOGY,
    }
)
_HOSTNAME: Final = "kubernetes.io/hostname"
_selectors: Final = msgspec.json.Decoder(dict[str, str] | None)


def chooses_places(annotations: Mapping[str, str] | None) -> bool:
    """Whether annotations of a pod say that Kueue chooses its place in the network."""
    return bool(annotations) and not _TOPOLOGY.isdisjoint(annotations or ())


def read_kueue_node(wire: WirePod) -> str | None:
    """Return the node that Kueue chose for a pod; empty if it chooses domains above nodes.

    None if it chooses none. The gate of its topology is taken off with the same write that adds the
    selector, so the annotations tell, and not the gate.
    """
    if not chooses_places(wire.metadata.annotations):
        return None
    raw = bytes(wire.spec.node_selector)
    selector: dict[str, str] | None = _selectors.decode(raw) if raw else None
    return selector.get(_HOSTNAME, "") if selector else ""
