"""Devices of nodes: who holds them and what is free, as in the API. Decides nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypedDict

from koord.answers.encoding import encode
from koord.api.device import (
    DeviceAllocation,
    DeviceFragmentation,
    DeviceHolder,
    DeviceStatus,
    DeviceSummary,
    DeviceUse,
)
from koord.api.quantity import to_quantity
from koord.core.device.model import DeviceReport
from koord.core.device.plugin import Devices
from koord.core.device.status import NodeDeviceStatus, observe_devices
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import DeviceType
from koord.core.model.pods import Pod
from koord.core.model.text import cut, listed
from koord.core.model.units import format_amount
from koord.core.reservation.plugin import Reservations


def make_fields(status: NodeDeviceStatus) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    allocations: dict[str, list[DeviceHolder]] = {}
    for holder in status.pods:
        namespace, _, name = holder.pod.partition("/")
        entry = DeviceHolder(
            name=name, namespace=namespace, uuid=holder.uid, minors=list(holder.minors)
        )
        allocations.setdefault(holder.kind, []).append(entry)
    made = DeviceStatus(
        consumption=str(status.consumption),
        allocations=[
            DeviceAllocation(type=kind, entries=entries) for kind, entries in allocations.items()
        ],
        summary={
            kind: DeviceSummary(
                total=count.total, healthy=count.healthy, free=count.free, shared=count.shared
            )
            for kind, count in status.counts.items()
        },
        devices=[
            DeviceUse(
                type=device.kind,
                minor=device.minor,
                id=device.id or None,
                health=device.is_healthy,
                free={key: to_quantity(format_amount(key, amount)) for key, amount in device.free},
                pods=list(device.pods),
            )
            for device in status.devices
        ],
        fragmentation=DeviceFragmentation(
            largest_free_partition=status.largest, index=f"{status.fragmentation:.2f}"
        ),
    )
    return made.encode_set()


_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """Devices of one type that a pod, or a reservation by its name, holds on a node."""

    pod: Pod
    reservation: str
    kind: DeviceType
    minors: tuple[int, ...]


def find_holdings(state: ClusterState, node: str) -> list[DeviceHolding]:
    """Return what pods and reservations hold on a node: reservations first, most first.

    Of a reservation only what no pod uses.
    """
    reservations = state.plugin(Reservations).reservations
    holdings = []
    for uid, shares in state.plugin(Devices).pods_on(node).items():
        pod = state.pods.get(uid)
        if pod is None:
            continue
        minors: dict[DeviceType, list[int]] = {}
        for share in shares:
            minors.setdefault(share.kind, []).append(share.minor)
        name = reservations[uid].name if uid in reservations else ""
        holdings += [
            DeviceHolding(pod, name, kind, tuple(group)) for kind, group in sorted(minors.items())
        ]
    return sorted(
        holdings,
        key=lambda device_holding: (
            not device_holding.reservation,
            -len(device_holding.minors),
            device_holding.pod.key,
        ),
    )


def describe_reserved(holdings: Iterable[DeviceHolding]) -> str:
    """Return which reservations hold which devices; empty if none does."""
    held = [
        f"reservation {holding.reservation} holds {holding.kind} "
        f"{', '.join(map(str, holding.minors))}"
        for holding in holdings
        if holding.reservation
    ]
    more = len(held) - _MOST_NAMED
    return cut(listed(held[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""))


class NodeDevices(NamedTuple):
    """What a node reports, and the status of it."""

    report: DeviceReport
    status: NodeDeviceStatus


def view_devices(state: ClusterState, names: Iterable[str]) -> list[NodeDevices]:
    """Return the devices of these nodes, each of which has a report."""
    plugin = state.plugin(Devices)
    reports = (plugin.reports[name] for name in names)
    return [NodeDevices(report, observe_devices(plugin, report, state.pods)) for report in reports]


class DeviceProblemDocument(TypedDict):
    """A field of a report that makes no sense."""

    field: str
    message: str


class DeviceRecordsDocument(TypedDict):
    """Whether devices are where the records of pods say."""

    state: str
    message: str


class DeviceUseDocument(TypedDict):
    """A device: what is free of it, and the pods that use it."""

    type: str
    minor: int
    id: NotRequired[str]
    health: bool
    free: Mapping[str, str]
    pods: list[str]


class NodeDevicesDocument(TypedDict):
    """What a node reports, and the status of it as in the API."""

    node: str
    readiness: str
    problems: list[DeviceProblemDocument]
    foreignGPUs: int
    records: DeviceRecordsDocument
    consumption: str
    allocations: list[Any]
    summary: Mapping[str, Any]
    devices: list[DeviceUseDocument]
    fragmentation: Mapping[str, Any]


@encode.register
def _(devices: NodeDevices) -> NodeDevicesDocument:
    report, status = devices.report, devices.status
    problems: list[DeviceProblemDocument] = [
        {"field": path, "message": what} for path, what in report.problems
    ]
    fields = make_fields(status)
    return {
        "node": report.node,
        "readiness": status.readiness,
        "problems": problems,
        "foreignGPUs": status.foreign,
        "records": {"state": status.records, "message": status.describe_records()},
        "consumption": fields["consumption"],
        "allocations": fields["allocations"],
        "summary": fields["summary"],
        "devices": fields["devices"],
        "fragmentation": fields["fragmentation"],
    }
