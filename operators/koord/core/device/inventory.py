"""The inventory of a node, from what its Device object and its labels say."""

from collections.abc import Mapping
from typing import Final

from koord.core.device.model import (
    DeviceReport,
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
from koord.core.model.device_names import GPU

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
