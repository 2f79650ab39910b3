"""Reads ``/sys``: where PCI devices are in the machine, and RDMA NICs with their functions.

Every file may be missing: then the place is unknown. Nothing is written.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koord.agent.reading import DeviceReading, Fault, ObservedDevice, PciPlace
from koord.core.model.device_names import RDMA, RDMA_SHARE, WHOLE

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ACTIVE: Final = "4: ACTIVE"
_DISPLAY: Final = "0x03"
"""The PCI class of GPUs, 3D controllers included."""


def normalise_address(text: str) -> str:
    """Return a PCI address as the kernel writes it: ``00000000:3B:00.0`` -> ``0000:3b:00.0``."""
    domain, _, bus_and_function = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{bus_and_function}"


@dataclass(frozen=True, slots=True)
class Sysfs:
    """The tree under ``root``, which is ``/sys`` outside of tests."""

    root: Path

    def place_of(self, address: str) -> PciPlace:
        """Return where a PCI device is."""
        device = self._device(address)
        numa = _read_int(device / "numa_node")
        return PciPlace(address, _switch_of(device), numa, self._socket_of(numa))

    def find_displays(self, vendor: str) -> list[str]:
        """Return the addresses of a vendor's GPUs, by its PCI id such as ``0x10de``."""
        return [
            address
            for address in self._addresses()
            if _read(self._device(address) / "vendor") == vendor
            and _read(self._device(address) / "class").startswith(_DISPLAY)
        ]

    def find_nics(self) -> DeviceReading:
        """Return the physical functions with RDMA; virtual ones belong to them."""
        return DeviceReading(
            tuple(nic for address in self._addresses() if (nic := self._nic(address)))
        )

    def _nic(self, address: str) -> ObservedDevice | None:
        device = self._device(address)
        ports = sorted(device.glob("infiniband/*/ports/*/state"))
        if not ports or (device / "physfn").exists():
            return None
        states = [_read(port) for port in ports]
        down = None if _ACTIVE in states else Fault("LinkDown", f"ports are {', '.join(states)}")
        functions = sorted(link.resolve().name for link in device.glob("virtfn*"))
        return ObservedDevice(
            RDMA,
            address,
            self.place_of(address),
            {RDMA_SHARE: str(WHOLE)},
            functions=tuple(functions),
            fault=down,
        )

    def _addresses(self) -> list[str]:
        return sorted(path.name for path in (self.root / "bus/pci/devices").glob("*"))

    def _device(self, address: str) -> Path:
        return self.root / "bus/pci/devices" / address

    def _socket_of(self, numa: int) -> int:
        cpus = _read(self.root / f"devices/system/node/node{numa}/cpulist")
        first = re.match(r"\d+", cpus)
        if first is None:
            return -1
        return _read_int(
            self.root / f"devices/system/cpu/cpu{first[0]}/topology/physical_package_id"
        )


def _switch_of(device: Path) -> str:
    """Return the PCIe switch that a device is behind, or else its host bridge.

    Behind a switch the path ends with the port towards the host, the port towards the device, and
    the device; without one there is only the root port, or nothing, below the host bridge.
    """
    try:
        parts = device.resolve(strict=True).parts
    except OSError:
        return ""
    bridges = [part for part in parts if _ADDRESS.fullmatch(part)][:-1]
    if len(bridges) > 2:
        return bridges[-2]
    return next((part for part in parts if part.startswith("pci")), "")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _read_int(file: Path) -> int:
    text = _read(file)
    return int(text) if text.isdecimal() else -1
