"""Nodes with devices for tests, and requests in the words of the spec of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from koord.core.device.allocate import DEFAULTS, AllocationSettings, allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.model import (
    OURS,
    DeviceLocation,
    DeviceName,
    DeviceReport,
    DeviceRequest,
    DeviceRules,
    DeviceShare,
    FunctionGroup,
    Hint,
    Inventory,
    Joint,
    JointScope,
    NodeDevice,
    make_part,
)
from koord.core.device.request import DeviceAllocationHints, read_request
from koord.core.model.device_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    RDMA_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from koord.core.device.ledger import DeviceLedger
    from koord.core.device.model import PartitionTable

GIB = 1 << 30
MEMORY = 83201216 << 10
"""Of an A100, in bytes."""
GPU_TOTAL = make_part({GPU_CORE: 100, GPU_MEMORY: MEMORY, GPU_MEMORY_RATIO: 100})
NIC_TOTAL = make_part({RDMA_SHARE: 100})
FUNCTIONS = (FunctionGroup((("type", "general"),), tuple(range(8))),)
A100_PLACES = tuple(DeviceLocation(0, gpu // 4, f"pcie{gpu // 2}") for gpu in range(8))


def gpu(minor: int, place: DeviceLocation | None = None, total: Any = GPU_TOTAL) -> NodeDevice:
    return NodeDevice(minor, total, place)


def nic(minor: int, place: DeviceLocation | None = None) -> NodeDevice:
    return NodeDevice(minor, NIC_TOTAL, place, groups=FUNCTIONS)


def make_node(
    gpus: Iterable[NodeDevice], nics: Iterable[NodeDevice] = (), table: PartitionTable | None = None
) -> Inventory:
    pools = ((GPU, tuple(gpus)), (RDMA, tuple(nics)))
    return Inventory(tuple((kind, devices) for kind, devices in pools if devices), table)


def a100x8(sick: Collection[int] = ()) -> Inventory:
    """Eight GPUs on four switches in two NUMA nodes, and a NIC, minor 1 to 4, per switch.

    GPUs with the minors in ``sick`` are unhealthy.
    """
    return make_node(
        (gpu(n, place, () if n in sick else GPU_TOTAL) for n, place in enumerate(A100_PLACES)),
        (nic(n + 1, A100_PLACES[2 * n]) for n in range(4)),
    )


def whole(minor: int) -> DeviceShare:
    return DeviceShare(GPU, minor, GPU_TOTAL)


def half(minor: int) -> DeviceShare:
    return DeviceShare(
        GPU, minor, make_part({GPU_CORE: 50, GPU_MEMORY: MEMORY // 2, GPU_MEMORY_RATIO: 50})
    )


def wish(
    requests: Mapping[str, int],
    *,
    joint: str | None = None,
    rules: DeviceRules = OURS,
    gpu_parts: Any = (),
    **hints: Hint,
) -> DeviceRequest:
    """Return a request; ``joint`` is "" or SamePCIe for GPUs with NICs."""
    scope = JointScope(joint) if joint else None
    wishes = DeviceAllocationHints(
        tuple(hints.items()),
        Joint((GPU, RDMA), scope) if joint is not None else None,
        gpu_parts=gpu_parts,
    )
    request = read_request(requests, wishes, rules)
    assert isinstance(request, DeviceRequest), request
    return request


def give(
    ledger: DeviceLedger, request: DeviceRequest, settings: AllocationSettings = DEFAULTS
) -> tuple[DeviceLedger, dict[str, list[int]]]:
    """Allocate, and return the ledger afterwards with the minors by type."""
    shares = allocate(ledger, request, settings=settings)
    assert not isinstance(shares, DeviceCause), shares
    return ledger.with_shares(shares), minors_by_type(shares)


def minors_by_type(shares: Iterable[DeviceShare]) -> dict[str, list[int]]:
    minors: dict[str, list[int]] = {}
    for share in shares:
        minors.setdefault(share.kind, []).append(share.minor)
    return minors


def report(
    node: str, inventory: Inventory | None = None, labels: Mapping[str, str] | None = None
) -> DeviceReport:
    """Return what the Device object of a node with these devices says."""
    devices = (inventory or a100x8()).devices
    names = {
        (kind, device.minor): DeviceName(
            f"{kind.upper()}-{node}-{device.minor}",
            tuple(
                (n, f"0000:{device.minor:02x}:00.{n}")
                for group in device.groups
                for n in group.numbers
            ),
        )
        for kind, pool in devices
        for device in pool
    }
    return DeviceReport(node, devices, names, labels=labels or {})
