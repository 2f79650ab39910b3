"""The status of the devices of one node: their users, free amounts, how pods come to use them.

Computed from the ledger and the pods of the node, never counted up and down. Either a container is
given exactly the devices of its pod, or a device plugin chooses: one that reads what was decided
from annotations, or one that only counts cards. Nothing is given out here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from koord.core.device.inventory import Strayed
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    DeviceKey,
    DeviceName,
    DeviceReport,
    DeviceShare,
    Part,
    make_part,
)
from koord.core.device.plugin import Devices
from koord.core.device.reasons import IsolationAbsent
from koord.core.device.states import DeviceDemand
from koord.core.device.vendors import DEVICE_PLUGINS, VENDORS, DevicePlugin
from koord.core.engine.state_view import StateView
from koord.core.model.device_names import GPU, DeviceType
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import MAX_TEXT, cut, listed, plural


class Consumption(StrEnum):
    """Whether the pods of a node use exactly the devices that they were given."""

    EXACT = "Exact"
    ADVISORY = "Advisory"
    """A device plugin gives out whole cards, and the kubelet chooses them: the counts are right."""


def consumption_of(devices: Devices, name: str) -> Consumption:
    node = devices.node(name)
    cards = (card for vendor in VENDORS.values() for card in vendor.cards)
    is_counted = node is not None and any(node.allocatable.get(card) for card in cards)
    return Consumption.ADVISORY if is_counted else Consumption.EXACT


def plugin_for(devices: Devices, pod: Pod, node: str) -> DevicePlugin | None:
    """Return the device plugin that looks for the devices of a pod in its annotations."""
    if node not in devices.reports:
        return None
    demand, ledger = devices.request_of(pod), devices.ledger_of(node)
    if ledger is None or not isinstance(demand, DeviceDemand):
        return None
    vendor = ledger.inventory.vendor
    return DEVICE_PLUGINS[vendor] if vendor in demand.request.plugins else None


def isolation_reason(devices: Devices, pod: Pod) -> IsolationAbsent | None:
    """Return why a pod that was given devices is not kept to its part of them, if nothing does."""
    demand = devices.request_of(pod) if devices.reports else None
    is_alone = isinstance(demand, DeviceDemand) and demand.request.lacks_isolation
    return IsolationAbsent(pod.key) if is_alone else None


MAX_PODS: Final = 256
"""Pods that a status lists: the API server limits the size of an object."""
_MAX_SHOWN: Final = 5


class DeviceReadiness(StrEnum):
    """Whether all that the object says is in use."""

    SYNCED = "Synced"
    INVALID_ENTRIES = "InvalidEntries"
    NO_NODE = "NoNode"


class Records(StrEnum):
    """Whether devices are where the records of pods say."""

    MATCH = "AllMatch"
    MOVED = "DevicesMoved"
    """Some have other minors by now."""
    GONE = "DeviceMissing"
    """Some are not listed any more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many devices of a type there are; ``shared`` ones are in use in part."""

    total: int
    healthy: int
    free: int
    shared: int


@dataclass(frozen=True, slots=True)
class PodDevices:
    """A pod (key and uid) with the devices of one type that it was given."""

    kind: DeviceType
    pod: str
    uid: str
    minors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device: its free amounts, and the pods (keys) that use it."""

    kind: DeviceType
    minor: int
    is_healthy: bool
    free: Part
    pods: tuple[str, ...]
    is_recovering: bool = False
    """Healthy again, but not used yet."""
    id: str = ""
    since: float = 0.0
    """Since when it is unhealthy, in seconds since the epoch; 0: nobody says."""


@dataclass(frozen=True, slots=True)
class NodeDeviceStatus:
    """The status of the devices of a node.

    ``largest`` is the most free GPUs that one pod can get; ``foreign`` counts GPUs of pods of which
    nobody knows which ones they are, and ``foreign_pods`` names those pods and ResourceClaims.
    """

    readiness: DeviceReadiness
    problems: tuple[tuple[str, str], ...]
    counts: Mapping[DeviceType, Counts]
    pods: tuple[PodDevices, ...] = ()
    devices: tuple[DeviceState, ...] = ()
    largest: int = 0
    foreign: int = 0
    foreign_pods: tuple[str, ...] = ()
    consumption: Consumption = Consumption.EXACT
    strayed: tuple[tuple[str, Strayed], ...] = ()
    """Pods (keys) with devices that are not where their records say."""

    @property
    def fragmentation(self) -> float:
        """The part of the free GPUs that one pod cannot get together with the others."""
        gpus = self.counts.get(GPU)
        return 1 - self.largest / gpus.free if gpus and gpus.free else 0.0

    def describe(self) -> str:
        if self.readiness is DeviceReadiness.NO_NODE:
            return "there is no node of this name"
        if self.problems:
            shown = listed(f"{path} {what}" for path, what in self.problems[:_MAX_SHOWN])
            return cut(f"not used: {shown}; the other devices are", MAX_TEXT)
        return listed(plural(count.total, f"{kind} device") for kind, count in self.counts.items())

    @property
    def unhealthy(self) -> list[DeviceState]:
        """Those that are not used for their health; of nodes that do not exist none are known."""
        return [device for device in self.devices if not device.is_healthy]

    def describe_health(self) -> str:
        """Return which devices are unhealthy, and who uses them."""
        shown = listed(_describe_health(device) for device in self.unhealthy[:_MAX_SHOWN])
        hidden = len(self.unhealthy) - _MAX_SHOWN
        return cut(f"{shown} and {hidden} more" if hidden > 0 else shown, MAX_TEXT)

    @property
    def records(self) -> Records:
        if not self.strayed:
            return Records.MATCH
        is_gone = any(strayed.now is None for _, strayed in self.strayed)
        return Records.GONE if is_gone else Records.MOVED

    def describe_records(self) -> str:
        """Return which pods have devices that are elsewhere by now: those that are gone first."""
        if not self.strayed:
            return "devices are where the records of pods say"
        ordered = sorted(self.strayed, key=lambda item: item[1].now is not None)
        shown = listed(f"{pod} has {strayed.describe()}" for pod, strayed in ordered[:_MAX_SHOWN])
        hidden = len(ordered) - _MAX_SHOWN
        return cut(f"{shown} and {hidden} more" if hidden > 0 else shown, MAX_TEXT)

    def describe_foreign(self) -> str:
        pods = listed(self.foreign_pods[:_MAX_SHOWN])
        return cut(
            f"{plural(self.foreign, 'GPU')} of {pods} are left free: unknown which", MAX_TEXT
        )


def observe_devices(
    plugin: Devices, report: DeviceReport, pods: Mapping[str, Pod]
) -> NodeDeviceStatus:
    """Return the status of the devices of a node; ``pods`` are the known ones by uid."""
    ledger = plugin.ledger_of(report.node)
    if ledger is None:
        counts = {kind: _count(devices, ()) for kind, devices in _healthy(report)}
        return NodeDeviceStatus(DeviceReadiness.NO_NODE, report.problems, counts)
    shares_of = plugin.pods_on(report.node)
    keys = {uid: pods[uid].key if uid in pods else uid for uid in shares_of}
    holding_pods = [
        PodDevices(kind, keys[uid], uid, minors)
        for uid, shares in shares_of.items()
        for kind, minors in _minors_of(shares)
    ]
    devices = _list_devices(plugin, report, ledger, keys)
    return NodeDeviceStatus(
        DeviceReadiness.INVALID_ENTRIES if report.problems else DeviceReadiness.SYNCED,
        report.problems,
        {
            kind: _count(healthy, [device for device in devices if device.kind == kind])
            for kind, healthy in _healthy(report)
        },
        tuple(
            sorted(holding_pods, key=lambda pod_devices: (pod_devices.kind, pod_devices.pod))[
                :MAX_PODS
            ]
        ),
        devices,
        plugin.states.largest(ledger),
        ledger.foreign,
        (
            *sorted(keys[uid] for uid, shares in shares_of.items() if not shares),
            *(
                f"ResourceClaim {resource_claim.key}"
                for resource_claim in plugin.resource_claims_on(report.node)
            ),
        ),
        consumption_of(plugin, report.node),
        tuple(
            (pods[uid].key if uid in pods else uid, device)
            for uid, strayed in plugin.strayed_on(report.node).items()
            for device in strayed
        ),
    )


def _describe_health(device: DeviceState) -> str:
    state = "recovers" if device.is_recovering else "is unhealthy"
    users = f", used by {listed(device.pods[:_MAX_SHOWN])}" if device.pods else ""
    return f"{device.kind} {device.minor} {state}{users}"


def _healthy(report: DeviceReport) -> list[tuple[DeviceType, list[bool]]]:
    return [(kind, [bool(device.total) for device in devices]) for kind, devices in report.devices]


def _count(healthy: list[bool], devices: Iterable[DeviceState]) -> Counts:
    states = [device for device in devices if device.is_healthy]
    free = sum(not state.pods for state in states)
    shared = sum(bool(state.pods) and any(amount for _, amount in state.free) for state in states)
    return Counts(len(healthy), sum(healthy), free, shared)


def _minors_of(shares: Iterable[DeviceShare]) -> list[tuple[DeviceType, tuple[int, ...]]]:
    minors: dict[DeviceType, list[int]] = {}
    for share in shares:
        minors.setdefault(share.kind, []).append(share.minor)
    return [(kind, tuple(sorted(listed))) for kind, listed in sorted(minors.items())]


def _list_devices(
    plugin: Devices, report: DeviceReport, ledger: DeviceLedger, keys: Mapping[str, str]
) -> tuple[DeviceState, ...]:
    users: dict[DeviceKey, list[str]] = {}
    for uid, shares in plugin.pods_on(report.node).items():
        for share in shares:
            users.setdefault((share.kind, share.minor), []).append(keys[uid])
    return tuple(
        DeviceState(
            kind,
            device.minor,
            bool(device.total),
            make_part(ledger.free[kind, device.minor]),
            tuple(sorted(users.get((kind, device.minor), ()))),
            plugin.recoveries.is_recovering(report, (kind, device.minor)),
            report.names.get((kind, device.minor), DeviceName()).id,
            report.unhealthy_since.get((kind, device.minor), 0.0),
        )
        for kind, devices in ledger.inventory.devices
        for device in devices
    )


_DeviceResource: TypeAlias = tuple[DeviceType, int, str]
"""Type, minor and resource of a device."""


# --- drift: what ledgers say must equal what pods were given -------------------------------------


def find_drift(state: StateView, nodes: Collection[str]) -> list[str]:
    """Return those of the nodes whose devices are not used as their pods say; none are expected."""
    plugin = state.plugin(Devices)
    ledgers = {node: ledger for node in nodes if (ledger := plugin.ledger_of(node)) is not None}
    counted: dict[str, Counter[_DeviceResource]] = {node: Counter() for node in ledgers}
    for pod in state.pods.values() if counted else ():
        node = node_charged(pod)
        if node in counted:
            for share in _shares_of(plugin, node, pod):
                for name, amount in share.part:
                    counted[node][(share.kind, share.minor, name)] += amount
    charged = {
        node: Counter(
            {(*key, name): n for key, use in ledger.used.items() for name, n in use.amounts}
        )
        for node, ledger in ledgers.items()
    }
    return [node for node in ledgers if charged[node] != counted[node]]


def _shares_of(plugin: Devices, node: str, pod: Pod) -> tuple[DeviceShare, ...]:
    if pod.handling is Handling.RESERVE:
        return plugin.make_hold(node, pod.allocations).left
    return plugin.numbered(node, plugin.given_to(pod.uid) or pod.allocations)
