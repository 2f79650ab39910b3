"""The inventory of a node, from what its Device object and its labels say."""

import re
from collections.abc import Mapping
from typing import Final

from koord.core.device.model import (
    DeviceReport,
    Inventory,
    Partition,
    PartitionTable,
    minors_of,
)
from koord.core.device.names import GPU

VENDOR: Final = "node.koordinator.sh/gpu-vendor"
MODEL: Final = "node.koordinator.sh/gpu-model"
POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
WELL_PLANNED: Final = "node.koordinator.sh/secondary-device-well-planned"
ISOLATION: Final = "koordinator.sh/gpu-isolation-provider"

NVIDIA: Final = "nvidia"
_HONOR: Final = "Honor"
_HOPPER: Final = frozenset({"h100", "h800", "h20"})
_FAMILY: Final = re.compile(r"[a-z]+[0-9]+[a-z]?")

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


def make_inventory(
    report: DeviceReport,
    node_labels: Mapping[str, str],
    refusing: frozenset[tuple[str, str]] = frozenset(),
) -> Inventory:
    """Return the devices of a node; ``refusing`` are (vendor, model) that cannot be shared."""
    labels = {**report.labels, **node_labels}
    vendor, model = labels.get(VENDOR, ""), labels.get(MODEL, "")
    return Inventory(
        report.devices,
        _make_table(report, node_labels, vendor, model),
        f"{vendor}-{model}",
        node_labels.get(ISOLATION, ""),
        refuses_shares=(vendor, model) in refusing,
        is_well_planned=report.labels.get(WELL_PLANNED) == "true",
    )


def _make_table(
    report: DeviceReport, node_labels: Mapping[str, str], vendor: str, model: str
) -> PartitionTable | None:
    """Return the partitions that the Device lists, or those of the model."""
    if report.partitions is not None:
        return PartitionTable(report.partitions, report.labels.get(POLICY) == _HONOR)
    if vendor not in {"", NVIDIA} or family_of(model) not in _HOPPER:
        return None
    gpus = sum(len(devices) for kind, devices in report.devices if kind == GPU)
    listed = tuple(one for one in HOPPER_PARTITIONS if gpus == 8)
    return PartitionTable(listed, node_labels.get(POLICY) == _HONOR) if listed else None


def family_of(model: str) -> str:
    """Return the family of a model: ``h100`` of ``NVIDIA-H100-80GB-HBM3``."""
    text = model.lower().removeprefix("nvidia").lstrip("- ")
    found = _FAMILY.match(text)
    return found[0] if found else text
