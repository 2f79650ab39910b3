"""Types of devices and names of their resources, old names included.

Units (source: Koordinator): the cards of vendors count whole devices; ``koordinator.sh/gpu``,
``gpu-core``, ``gpu-memory-ratio``, ``rdma`` and ``fpga`` count hundredths of one; ``gpu-memory``
counts bytes; ``gpu.shared`` counts the GPUs over which a request is spread.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from koord.core.model.units import Amounts

DeviceType: TypeAlias = str

GPU: Final = "gpu"
"""NPUs and MLUs are of this type, too."""
RDMA: Final = "rdma"
FPGA: Final = "fpga"

PREFIX: Final = "koordinator.sh/"
OLD_PREFIX: Final = "kubernetes.io/"

NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
DCU_GPU: Final = "dcu.com/gpu"
KOORD_GPU: Final = f"{PREFIX}gpu"
GPU_SHARED: Final = f"{PREFIX}gpu.shared"
GPU_CORE: Final = f"{PREFIX}gpu-core"
GPU_MEMORY: Final = f"{PREFIX}gpu-memory"
GPU_MEMORY_RATIO: Final = f"{PREFIX}gpu-memory-ratio"
NPU_CORE: Final = "huawei.com/npu-core"
NPU_CPU: Final = "huawei.com/npu-cpu"
NPU_DVPP: Final = "huawei.com/npu-dvpp"
RDMA_SHARE: Final = f"{PREFIX}rdma"
FPGA_SHARE: Final = f"{PREFIX}fpga"

CARDS: Final = (NVIDIA_GPU, AMD_GPU, DCU_GPU)
"""Resources that count whole GPUs of one vendor."""
WHOLE: Final = 100
"""One device, in hundredths."""

TYPE_OF: Final[Mapping[str, DeviceType]] = MappingProxyType(
    dict.fromkeys(
        (
            *CARDS,
            KOORD_GPU,
            GPU_SHARED,
            GPU_CORE,
            GPU_MEMORY,
            GPU_MEMORY_RATIO,
            NPU_CORE,
            NPU_CPU,
            NPU_DVPP,
        ),
        GPU,
    )
    | {RDMA_SHARE: RDMA, FPGA_SHARE: FPGA}
)
"""Resource -> the type of device that it asks for."""

REPORTED: Final = frozenset(
    {KOORD_GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_SHARE, FPGA_SHARE}
)
"""Resources that nodes have by their Device alone: no device plugin gives such devices out."""

CURRENT_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {
        name.replace(PREFIX, OLD_PREFIX): name
        for name in (KOORD_GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_SHARE, FPGA_SHARE)
    }
)
"""Names of Koordinator 0.7 and before -> today's."""


def rename(amounts: Amounts) -> Amounts:
    """Replace old names; where both are given, today's counts."""
    if CURRENT_NAME.keys().isdisjoint(amounts):
        return amounts
    renamed = {key: amount for key, amount in amounts.items() if key not in CURRENT_NAME}
    for old, name in CURRENT_NAME.items():
        if old in amounts:
            renamed.setdefault(name, amounts[old])
    return renamed


def needs_device_object(amounts: Amounts) -> bool:
    """Whether requests can be met only where it is known which devices there are."""
    return any(amount and CURRENT_NAME.get(key, key) in REPORTED for key, amount in amounts.items())


def group_by_type(amounts: Amounts) -> dict[DeviceType, dict[str, int]]:
    """Return the requests for devices by type, without zeros, under today's names."""
    groups: dict[DeviceType, dict[str, int]] = {}
    for key, amount in sorted(rename(amounts).items()):
        kind = TYPE_OF.get(key)
        if kind is not None and amount:
            groups.setdefault(kind, {})[key] = amount
    return groups
