"""Publishes what devices add to their nodes: capacity, allocatable and labels.

Level-triggered: a node is compared with what its Device says. An annotation of the node lists what
was published, so that it can be removed when the Device is gone, and nothing else is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koord.api.keys import operators
from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import ChangedInputs
from koord.core.device.node_resources import NodeResources, publish
from koord.core.device.plugin import Devices
from koord.core.nodes import Node
from koord.core.state import ClusterState
from koord.core.units import format_amount

RETRY_SECONDS: Final = 30.0
_PAUSE: Final = Pause(0.5, 2.0)


class NodeWriter(Protocol):
    """Writes nodes."""

    async def patch(self, node: Node, body: Mapping[str, Any]) -> bool:
        """Merge ``body`` into a node and its status; return whether it is to be tried again."""


@dataclass(frozen=True, slots=True)
class NodeResourcesPolicy:
    """Observes nodes with devices, and those on which something was published."""

    state: ClusterState
    writer: NodeWriter
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    def changed(self) -> list[str]:
        reports = self.state.plugin(Devices).reports
        inputs: dict[str, object] = {}
        for name, row in self.state.table.live_rows():
            node, report = self.state.table.node_at(row), reports.get(name)
            if report is not None or node.published:
                inputs[name] = (report, node.allocatable, node.labels, node.published)
        return self._inputs.compare(inputs)

    def pause_for(self, _node: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        row = self.state.table.row_of.get(name)
        if row is None:
            return None
        node = self.state.table.node_at(row)
        report = self.state.plugin(Devices).reports.get(name)
        healthy = {
            kind: [dict(one.total) for one in devices if one.total]
            for kind, devices in (report.devices if report is not None else ())
        }
        wanted = publish(healthy, report.labels if report is not None else {})
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
