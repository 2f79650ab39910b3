"""A reading of the devices of a node: devices, links between them, and their faults.

Plain values. The kernel (``sysfs``) and the library of a vendor (a ``VendorReader``) make them;
``report`` makes the Device object from them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a device is unhealthy: the reason and the message of its condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a device is, by the names of a Device object; -1 and "" are unknown."""

    bus_id: str
    pcie: str = ""
    numa: int = -1
    socket: int = -1


@dataclass(frozen=True, slots=True)
class ObservedDevice:
    """One device. ``minor`` is None if nobody else numbers it. ``functions`` are PCI addresses."""

    kind: str
    id: str
    place: PciPlace
    resources: Mapping[str, str]
    minor: int | None = None
    functions: tuple[str, ...] = ()
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The devices of one vendor, or of the kernel.

    ``links`` are pairs of minors, one per link; ``SWITCH`` stands for the switches of the fabric.
    ``table`` are partitions that the vendor names, as in the annotation ``gpu-partitions``.
    ``fault`` is why devices may be missing.
    """

    devices: tuple[ObservedDevice, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    links: tuple[tuple[int, int], ...] = ()
    table: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    fault: Fault | None = None


SWITCH = -1
"""The end of a link that is no device."""


class VendorReader(Protocol):
    """Devices of one vendor. All calls block, and none raises."""

    def read(self) -> DeviceReading:
        """Return the devices as they are now."""

    def wait(self, seconds: float) -> Mapping[str, Fault]:
        """Wait for reports of faults, ``seconds`` at most; return them by id of the device."""


def join(readings: Sequence[DeviceReading]) -> DeviceReading:
    """Return the readings of several sources as one; of two devices with one number the first."""
    devices: dict[tuple[str, int | str], ObservedDevice] = {}
    for reading in readings:
        for device in reading.devices:
            devices.setdefault(
                (device.kind, device.id if device.minor is None else device.minor), device
            )
    return DeviceReading(
        devices=tuple(devices.values()),
        labels={key: value for reading in readings for key, value in reading.labels.items()},
        links=tuple(link for reading in readings for link in reading.links),
        table={size: sets for reading in readings for size, sets in reading.table.items()},
        fault=next((reading.fault for reading in readings if reading.fault), None),
    )


def make_label(text: str) -> str:
    """Return a valid value of a label: some names of models have slashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text)[:63].strip("._-")
