"""How pods come to use the devices that they were given.

Either a container is given exactly these, or a device plugin chooses: one that reads what was
decided from annotations, or one that only counts cards. Nothing is given out here.
"""

from enum import StrEnum

from koord.core.device.device_plugins import DEVICE_PLUGINS, DevicePlugin
from koord.core.device.plugin import Devices
from koord.core.device.reasons import IsolationAbsent
from koord.core.device.states import DeviceDemand
from koord.core.device.vendors import VENDORS
from koord.core.model.pods import Pod


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
    """Return what there is to say about a pod that was given devices."""
    demand = devices.request_of(pod) if devices.reports else None
    is_alone = isinstance(demand, DeviceDemand) and demand.request.lacks_isolation
    return IsolationAbsent(pod.key) if is_alone else None
