"""Publishes what devices add to their nodes: capacity, allocatable and labels.

Level-triggered: a node is compared with what its Device says. An annotation of the node lists what
was published, so that it can be removed when the Device is gone, and nothing else is.
"""

from dataclasses import dataclass
from typing import Any, Final

from koord.api.keys import operators
from koord.controllers.coalescing import Pause
from koord.core.device.node_resources import NPU_NAMES, NodeResources, Publishing, publish
from koord.core.device.plugin import Devices
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.model.units import format_amount
from koord.kube.node_writer import NodeWriter

RETRY_SECONDS: Final = 30.0
_PAUSE: Final = Pause(0.5, 2.0)


@dataclass(slots=True)
class NodeResourcesPolicy:
    """Observes nodes with devices, and those on which something was published."""

    state: ClusterState
    writer: NodeWriter
    _seen: int = 0
    """The last change of nodes that was looked at."""

    def changed(self) -> list[str]:
        changes = self.state.plugin(Devices).changes_of_nodes
        changed, self._seen = list(changes.after(self._seen)), changes.last
        return changed

    def pause_for(self, _node: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        row = self.state.table.row_of.get(name)
        if row is None:
            return None
        node = self.state.table.node_at(row)
        devices = self.state.plugin(Devices)
        report = devices.reports.get(name)
        healthy = {
            kind: [dict(device.total) for device in devices if device.total]
            for kind, devices in (report.devices if report is not None else ())
        }
        labels = report.labels if report is not None else {}
        # What a node had before we published anything is its device plugin's; two would alternate.
        foreign = [
            key for key in NPU_NAMES if key in node.allocatable and key not in node.published
        ]
        publishing = Publishing(old_names=devices.old_names.names, foreign=foreign)
        wanted = publish(healthy, labels, publishing)
        body = make_patch(node, wanted)
        is_failed = bool(body) and await self.writer.patch(node, body)
        return RETRY_SECONDS if is_failed else None


def make_patch(node: Node, wanted: NodeResources) -> dict[str, Any]:
    """Return the merge patch that makes a node as wanted; empty if it is."""
    published = {*wanted.amounts, *wanted.labels}
    gone = set(node.published) - published
    amounts: dict[str, str | None] = {
        key: format_amount(key, amount)
        for key, amount in wanted.amounts.items()
        if node.allocatable.get(key) != amount
    }
    amounts |= dict.fromkeys(gone & node.allocatable.keys())
    labels: dict[str, str | None] = {
        key: value for key, value in wanted.labels.items() if node.labels.get(key) != value
    }
    labels |= dict.fromkeys(gone & node.labels.keys())
    body: dict[str, Any] = {}
    if amounts:
        # A kubelet drops resources from allocatable that its capacity does not have.
        body["status"] = {"capacity": amounts, "allocatable": amounts}
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    if published != set(node.published):
        listed = ",".join(sorted(published)) or None
        metadata["annotations"] = {operators.PUBLISHED: listed}
    return body | ({"metadata": metadata} if metadata else {})
