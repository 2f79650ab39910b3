"""The status of Devices, and what they add to nodes: for the operator ``device``.

Whether an object is valid is said in the condition ``Accepted``; here ``Ready`` says whether its
devices are in use, and the status says who holds them and what is free.

``NodeResourcesPolicy`` publishes what devices add to their nodes: capacity, allocatable and labels.

Level-triggered: a node is compared with what its Device says. An annotation of the node lists what
was published, so that it can be removed when the Device is gone, and nothing else is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from koord.answers.devices import make_fields
from koord.api.keys import operators
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_publishing import DeviceAnnouncer
from koord.core.device.model import DeviceReport
from koord.core.device.node_resources import NPU_NAMES, NodeResources, Publishing, publish
from koord.core.device.plugin import Devices
from koord.core.device.status import (
    DeviceReadiness,
    NodeDeviceStatus,
    Records,
    observe_devices,
)
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.model.text import MAX_TEXT, cut, listed
from koord.core.model.units import format_amount
from koord.kube.node_writer import NodeWriter
from koord.kube.status import ConditionPatch

if TYPE_CHECKING:
    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.pods import Pod

READY: Final = "Ready"
HEALTHY: Final = "Healthy"
FOREIGN: Final = "ForeignAllocations"
RECORDS: Final = "RecordsMatch"
_PAUSE: Final = Pause(1.0, 2.0)


@dataclass(slots=True)
class DeviceStatusPolicy:
    """Observes nodes whose devices, or the pods that hold them, have changed."""

    state: ClusterState
    author: StatusAuthor[str, DeviceReport]
    announcer: DeviceAnnouncer
    _seen: int = 0
    """The last change of use that was looked at."""
    _announced: dict[str, frozenset[tuple[str, str, str]]] = field(default_factory=dict)
    """Node -> pod, type and name of its devices that do not work, as announced."""

    def changed(self) -> list[str]:
        changes = self.state.plugin(Devices).changes_of_use
        changed, self._seen = list(changes.after(self._seen)), changes.last
        return changed

    def pause_for(self, _node: str) -> Pause:
        return _PAUSE

    async def update(self, node: str) -> None:
        devices = self.state.plugin(Devices)
        report = devices.reports.get(node)
        if report is None:
            self._announced.pop(node, None)
            return
        status = observe_devices(devices, report, self.state.pods)
        self.author.write_status(report, make_fields(status), _conditions(status, report))
        self._announce(node, status)

    def _announce(self, node: str, status: NodeDeviceStatus) -> None:
        """Tell gangs and single pods that devices of theirs have failed or are gone, once."""
        failed = {(device.pod, device.kind, device.name): device for device in _find_failed(status)}
        announced = self._announced.get(node, frozenset())
        self._announced[node] = frozenset(failed)
        texts: dict[str, list[str]] = {}
        users: dict[str, Pod | ObservedPodGroup] = {}
        new = (device for key, device in failed.items() if key not in announced)
        for device in sorted(new, key=lambda device: (device.pod, device.kind, device.minor)):
            pod = self.state.pod_by_key(device.pod)
            if pod is None:
                continue
            group = self.state.gangs.pod_group(pod.gang.key) if pod.gang is not None else None
            user = pod if group is None else group
            users[user.uid] = user
            texts.setdefault(user.uid, []).append(f"{device.pod} uses {device.text}")
        for uid, uses in texts.items():
            text = f"devices of node {node} are unhealthy: {listed(uses)}"
            self.announcer.announce_unhealthy(users[uid], cut(text, MAX_TEXT))


@dataclass(frozen=True, slots=True)
class _Failed:
    """A device that does not work for a pod (key); ``name`` is its id, or its minor without one."""

    pod: str
    kind: str
    minor: int
    name: str
    text: str


def _find_failed(status: NodeDeviceStatus) -> Iterator[_Failed]:
    for device in status.unhealthy:
        for pod in device.pods if not device.is_recovering else ():
            text = f"{device.kind} {device.minor}"
            yield _Failed(pod, device.kind, device.minor, device.id or str(device.minor), text)
    for pod, gone in status.strayed:
        if gone.now is None:
            name = gone.id or str(gone.minor)
            yield _Failed(pod, gone.kind, gone.minor, name, gone.describe())


def _conditions(status: NodeDeviceStatus, report: DeviceReport) -> tuple[ConditionPatch, ...]:
    is_ready = status.readiness is DeviceReadiness.SYNCED
    ready = ConditionPatch(
        READY, is_ready, str(status.readiness), status.describe(), report.generation
    )
    if status.unhealthy:
        text = status.describe_health()
        healthy = ConditionPatch(HEALTHY, False, "DevicesUnhealthy", text, report.generation)
    else:
        healthy = ConditionPatch(HEALTHY, True, "AllHealthy", "all are", report.generation)
    if not status.foreign:
        text = "it is known which devices each pod holds"
        foreign = ConditionPatch(FOREIGN, False, "None", text, report.generation)
    else:
        text = status.describe_foreign()
        foreign = ConditionPatch(FOREIGN, True, "UnknownDevices", text, report.generation)
    records = ConditionPatch(
        RECORDS,
        status.records is Records.MATCH,
        str(status.records),
        status.describe_records(),
        report.generation,
    )
    return ready, healthy, foreign, records


RETRY_SECONDS: Final = 30.0
_NODE_PAUSE: Final = Pause(0.5, 2.0)


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
        return _NODE_PAUSE

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
