"""Devices of any vendor, from JSON files that a tool of the vendor writes.

The files are those that Koordinator reads: each lists devices, or is one. What cannot be used is
left out and named; the others count.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from typing_extensions import override

from koord.agent.reading import (
    DeviceReading,
    Fault,
    ObservedDevice,
    PciPlace,
    VendorReader,
    make_label,
)
from koord.agent.sysfs import Sysfs, normalise_address
from koord.api.quantity import parse_quantity
from koord.core.device.inventory import POLICY
from koord.core.device.vendors import MODEL_LABEL, VENDOR_LABEL, normalise_model
from koord.core.model.device_names import GPU, GPU_MEMORY, GPU_MEMORY_RATIO, PREFIX, WHOLE

_INVALID: Final = "InvalidDeviceFile"
_UNIT: Final = re.compile(r"[^A-Za-z0-9_]+")


class _Link(msgspec.Struct, rename="camel"):
    peer_minor: str
    type: str = ""


class _Topology(msgspec.Struct, rename="camel"):
    p2p_links: list[_Link] = msgspec.field(default_factory=list, name="p2pLinks")
    must_honor_partition: bool = False
    socket: int = msgspec.field(default=-1, name="socketID")
    numa: int = msgspec.field(default=-1, name="nodeID")
    pcie: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class _DeviceHealth(msgspec.Struct, rename="camel"):
    healthy: bool = False
    err_code: str = ""
    err_message: str = ""


class _Device(msgspec.Struct):
    vendor: str
    model: str
    uuid: str
    minor: int
    resources: dict[str, str] = {}
    topology: _Topology = msgspec.field(default_factory=_Topology)
    status: _DeviceHealth = msgspec.field(default_factory=_DeviceHealth)


class DeviceFiles(VendorReader):
    """Reads the files of a folder at every reading."""

    def __init__(self, folder: Path, sysfs: Sysfs) -> None:
        self._folder = folder
        self._sysfs = sysfs

    @override
    def read(self) -> DeviceReading:
        devices: list[_Device] = []
        problems: list[str] = []
        for file in sorted(self._folder.glob("*.json")):
            _read_file(file, devices, problems)
        return DeviceReading(
            tuple(self._make(device) for device in devices),
            _labels(devices),
            table=_table(devices),
            fault=Fault(_INVALID, "; ".join(problems)) if problems else None,
        )

    @override
    def wait(self, seconds: float) -> Mapping[str, Fault]:
        time.sleep(seconds)
        return {}

    def _make(self, device: _Device) -> ObservedDevice:
        reported, address = device.topology, device.topology.bus_id
        located = self._sysfs.place_of(normalise_address(address)) if address else PciPlace("")
        place = PciPlace(
            located.bus_id,
            reported.pcie or located.pcie,
            reported.numa if reported.numa >= 0 else located.numa,
            reported.socket if reported.socket >= 0 else located.socket,
        )
        return ObservedDevice(
            GPU,
            device.uuid,
            place,
            _amounts(device),
            minor=device.minor,
            fault=_fault(device.status),
        )


def _read_file(file: Path, devices: list[_Device], problems: list[str]) -> None:
    try:
        content = file.read_bytes().strip()
        is_list = content.startswith(b"[")
        entries = msgspec.json.decode(content, type=list[msgspec.Raw]) if is_list else [content]
    except (OSError, ValueError) as error:
        problems.append(f"{file.name}: {error}")
        return
    for index, entry in enumerate(entries):
        try:
            devices.append(_parse(bytes(entry)))
        except ValueError as error:
            problems.append(f"{file.name}[{index}]: {error}")


def _parse(entry: bytes) -> _Device:
    """Return a device that can be reported. Raises ValueError."""
    device = msgspec.json.decode(entry, type=_Device, strict=False)
    if not device.uuid:
        raise ValueError("a device has no uuid")
    if not 0 <= device.minor <= 1023:
        raise ValueError(f"minor {device.minor} is not within 0 and 1023")
    for amount in device.resources.values():
        parse_quantity(amount)
    if device.topology.bus_id:
        normalise_address(device.topology.bus_id)
    return device


def _amounts(device: _Device) -> dict[str, str]:
    amounts = {
        key if "/" in key else f"{PREFIX}{key}": amount for key, amount in device.resources.items()
    }
    return amounts | ({GPU_MEMORY_RATIO: str(WHOLE)} if GPU_MEMORY in amounts else {})


def _fault(status: _DeviceHealth) -> Fault | None:
    if status.healthy:
        return None
    reason = _UNIT.sub("", status.err_code)
    return Fault(
        reason if reason[:1].isalpha() else f"Error{reason}" if reason else "Unknown",
        status.err_message or "device is unhealthy",
    )


def _labels(devices: list[_Device]) -> dict[str, str]:
    values_of = {
        VENDOR_LABEL: {device.vendor for device in devices},
        MODEL_LABEL: {normalise_model(device.model) for device in devices},
        POLICY: {
            "Honor" if any(device.topology.must_honor_partition for device in devices) else "Prefer"
            for device in devices
            if device.topology.p2p_links
        },
    }
    return {key: make_label(*values) for key, values in values_of.items() if len(values) == 1}


def _table(devices: list[_Device]) -> dict[str, list[dict[str, Any]]]:
    """Return the sets of devices that are linked with each other, as the vendor says."""
    listed_minors = {device.minor for device in devices}
    sets = {
        (tuple(sorted({device.minor, *_peers(link)})), link.type)
        for device in devices
        for link in device.topology.p2p_links
    }
    table: dict[str, list[dict[str, Any]]] = {}
    for minors, kind in sorted(sets):
        if listed_minors.issuperset(minors):
            entry = {"minors": list(minors), "gpuLinkType": kind, "allocationScore": 1}
            table.setdefault(str(len(minors)), []).append(entry)
    return table


def _peers(link: _Link) -> list[int]:
    return [int(text) for text in link.peer_minor.split(",") if text.strip().isdecimal()]
