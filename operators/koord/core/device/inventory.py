"""The devices of a node, from its Device object and its labels: which are meant, which are usable.

Minors change when a machine starts, or when a card is taken out; ids stay. So a record
is found by its id, else by the addresses of its virtual functions, and by its minor only where ids
cannot be compared: one of them is missing, or they are of different kinds.

A device that fails is out of use at once. One that keeps failing and recovering would be given to
one pod after another, so it must stay healthy for a while first. What a status shows as unhealthy
counts as such after a restart. Who uses a device is not known here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeAlias

from koord.core.device.model import (
    DEFAULT_OPTIONS,
    DeviceKey,
    DeviceName,
    DeviceReport,
    DeviceShare,
    Inventory,
    Partition,
    PartitionTable,
    minors_of,
)
from koord.core.device.vendors import (
    ISOLATION_LABEL,
    MODEL_LABEL,
    VENDOR_LABEL,
    cannot_be_shared,
    has_nvswitch,
)
from koord.core.model.device_names import GPU, DeviceType

POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
WELL_PLANNED: Final = "node.koordinator.sh/secondary-device-well-planned"
_HONOR: Final = "Honor"
_NVSWITCH_GPUS: Final = 8

HOPPER_PARTITIONS: Final = tuple(
    (
        size,
        tuple(
            Partition(minors_of(range(first, first + size)), score=1) for first in range(0, 8, size)
        ),
    )
    for size in (1, 2, 4, 8)
)
"""What the NVSwitch of a node with eight H100, H800 or H20 lets work together."""
NVSWITCH_LINK: Final = "NVLink"
"""What connects these GPUs."""


def make_inventory(report: DeviceReport, node_labels: Mapping[str, str]) -> Inventory:
    """Return the devices of a node; labels of the node go before those of its Device."""
    labels = {**report.labels, **node_labels}
    vendor, model = labels.get(VENDOR_LABEL, ""), labels.get(MODEL_LABEL, "")
    return Inventory(
        report.devices,
        _make_table(report, node_labels, vendor, model),
        f"{vendor}-{model}",
        node_labels.get(ISOLATION_LABEL, ""),
        unshareable=f'"{model}" of vendor "{vendor}"' if cannot_be_shared(vendor, model) else "",
        is_well_planned=report.labels.get(WELL_PLANNED) == "true",
        vendor=vendor,
    )


def _make_table(
    report: DeviceReport, node_labels: Mapping[str, str], vendor: str, model: str
) -> PartitionTable | None:
    """Return the partitions that the Device lists, or those of the model."""
    if report.partitions is not None:
        return PartitionTable(report.partitions, report.labels.get(POLICY) == _HONOR)
    gpus = sum(len(devices) for kind, devices in report.devices if kind == GPU)
    if gpus != _NVSWITCH_GPUS or not has_nvswitch(vendor, model):
        return None
    return PartitionTable(HOPPER_PARTITIONS, node_labels.get(POLICY) == _HONOR)


_PCI_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


# --- which device a record means -----------------------------------------------------------------


def compared(identifier: str) -> str:
    """Return an id in the form in which ids are compared: PCI addresses are written in many."""
    lower = identifier.lower()
    address = _PCI_ADDRESS.fullmatch(lower)
    return f"{int(address[1] or '0', 16):08x}:{address[2]}" if address else lower


def _is_address(identifier: str) -> bool:
    return _PCI_ADDRESS.fullmatch(identifier.lower()) is not None


@dataclass(frozen=True, slots=True)
class Strayed:
    """A device of a record that is elsewhere by now: ``now`` is its minor, None if it is gone."""

    kind: DeviceType
    minor: int
    id: str
    now: int | None = None

    def describe(self) -> str:
        named = f"{self.kind} {self.minor}" + (f" ({self.id})" if self.id else "")
        return f"{named}, which is gone" if self.now is None else f"{named}, now {self.now}"


class NamedDevices:
    """The devices of a node by their names; None: it reports none, and minors are all there is."""

    def __init__(self, names: Mapping[DeviceKey, DeviceName] | None) -> None:
        self._is_known = names is not None
        names = self._names = names or {}
        self._by_id = {
            (kind, compared(name.id)): minor for (kind, minor), name in names.items() if name.id
        }
        self._by_function = {
            (kind, compared(address)): minor
            for (kind, minor), name in names.items()
            for _, address in name.functions
            if address
        }

    def locate(self, kind: DeviceType, minor: int, recorded: DeviceName) -> int | None:
        """Return the minor that a recorded device has now; None if the node no longer lists it."""
        if not self._is_known:
            return minor
        located = self._by_id.get((kind, compared(recorded.id))) if recorded.id else None
        if located is not None:
            return located
        for _, address in recorded.functions:
            located = self._by_function.get((kind, compared(address)))
            if located is not None:
                return located
        present = self._names.get((kind, minor))
        if present is None:
            return None
        is_other = (
            recorded.id and present.id and _is_address(recorded.id) == _is_address(present.id)
        )
        return None if is_other else minor

    def functions(self, kind: DeviceType, minor: int, recorded: DeviceName) -> tuple[int, ...]:
        """Return the numbers that recorded virtual functions of a device have now."""
        recorded_addresses = {compared(address) for _, address in recorded.functions}
        present = self._names.get((kind, minor), DeviceName()).functions
        return tuple(
            n for n, (_, address) in enumerate(present) if compared(address) in recorded_addresses
        )

    def strayed(
        self, shares: Iterable[DeviceShare], names: Iterable[DeviceName]
    ) -> tuple[Strayed, ...]:
        """Return the devices of a record that are not where it says."""
        recorded_devices = (
            Strayed(share.kind, share.minor, name.id, self.locate(share.kind, share.minor, name))
            for share, name in zip(shares, names, strict=True)
        )
        return tuple(strayed for strayed in recorded_devices if strayed.now != strayed.minor)


NOTHING_NAMED: Final = NamedDevices(None)
"""Of a node without a Device."""


RECOVERY_SECONDS: Final = DEFAULT_OPTIONS.recovery_seconds
"""The default."""
_FAILED: Final = -inf
_UNTIMED: Final = inf
_Identity: TypeAlias = tuple[DeviceType, str | int]
"""Type and id of a device; its minor, where it has no id."""


def _identify(report: DeviceReport, key: DeviceKey) -> _Identity:
    name = report.names.get(key)
    return (key[0], compared(name.id)) if name is not None and name.id else key


class Recoveries:
    """Devices of all nodes that are not in use for their health; times are since the epoch.

    Recovered devices are used again after ``seconds``, counted from the next :meth:`advance`.
    """

    def __init__(self, seconds: float = RECOVERY_SECONDS) -> None:
        self.seconds = seconds
        self._until: dict[str, dict[_Identity, float]] = {}
        """Node -> device -> when it is used again."""
        self._due: float | None = None

    def note(self, report: DeviceReport) -> None:
        """Note what a node reports."""
        previous = self._until.pop(report.node, None)
        if previous is None:
            shown = (_identify(report, key) for key in report.shown_unhealthy)
            previous = dict.fromkeys(shown, _FAILED)
        until: dict[_Identity, float] = {}
        for kind, devices in report.devices:
            for device in devices:
                key = _identify(report, (kind, device.minor))
                if not device.total:
                    until[key] = _FAILED
                elif key in previous and self.seconds:
                    until[key] = _UNTIMED if previous[key] == _FAILED else previous[key]
        self._until[report.node] = until
        if _UNTIMED in until.values():
            self._due = _FAILED

    def forget(self, node: str) -> None:
        self._until.pop(node, None)

    def advance(self, now: float) -> list[str]:
        """Set the time; return the nodes with devices that are used again."""
        if self._due is None or now < self._due:
            return []
        recovered: list[str] = []
        pending: list[float] = []
        for node, until in self._until.items():
            for key, at in until.items():
                if at == _UNTIMED:
                    until[key] = now + self.seconds
            due = [key for key, at in until.items() if _FAILED < at <= now]
            for key in due:
                del until[key]
            if due:
                recovered.append(node)
            pending.extend(at for at in until.values() if at != _FAILED)
        self._due = min(pending, default=None)
        return recovered

    def next_due(self) -> float | None:
        """Return when :meth:`advance` is to be called; None for never."""
        return self._due

    def is_recovering(self, report: DeviceReport, device: DeviceKey) -> bool:
        until = self._until.get(report.node, {})
        return until.get(_identify(report, device), _FAILED) != _FAILED

    def mask(self, report: DeviceReport) -> DeviceReport:
        """Return a report with the devices that are not used yet as unhealthy ones."""
        until = self._until.get(report.node, {})
        if all(at == _FAILED for at in until.values()):
            return report
        return replace(
            report,
            devices=tuple(
                (
                    kind,
                    tuple(
                        replace(device, total=())
                        if _identify(report, (kind, device.minor)) in until
                        else device
                        for device in devices
                    ),
                )
                for kind, devices in report.devices
            ),
        )
