"""What the devices of a node add to its capacity, its allocatable and its labels.

Published amounts are sums over healthy devices, the same in capacity and allocatable: a kubelet
drops extended resources from allocatable that are missing in capacity. The names of Koordinator 0.7
are published only while pods request them: a kubelet rejects a pod that requests
``kubernetes.io/gpu-core`` from a node that does not list it. Nothing is written here.
Source: Koordinator (gpudeviceresource).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koord.core.device.vendors import DRIVER_LABEL, MODEL_LABEL, NVIDIA, VENDOR_LABEL
from koord.core.model.device_names import (
    CURRENT_NAME,
    FPGA,
    FPGA_SHARE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    RDMA_SHARE,
    WHOLE,
    DeviceType,
    rename,
)
from koord.core.model.pods import PodShape
from koord.core.model.units import Amounts

NPU_NAMES: Final = (NPU_CORE, NPU_CPU, NPU_DVPP)
"""Device plugins of the vendor report these, too."""
_SUMMED: Final = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, *NPU_NAMES)
PUBLISHED: Final[Mapping[DeviceType, tuple[str, ...]]] = {
    GPU: (KOORD_GPU, GPU_SHARED, *_SUMMED),
    RDMA: (RDMA_SHARE,),
    FPGA: (FPGA_SHARE,),
}
"""Device type -> all resources of nodes that come from such devices."""
LABELS: Final = (VENDOR_LABEL, MODEL_LABEL, DRIVER_LABEL)
"""Labels of a Device that its node gets."""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a node is to have; and what it is not to have, as far as it was published by us."""

    amounts: Amounts
    labels: Mapping[str, str]
    removed: frozenset[str]
    removed_labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Publishing:
    """What is published besides sums: ``gpu.shared``, and old names that pods still request.

    ``foreign`` names are left alone: device plugins report them themselves.
    """

    shared: bool = True
    old_names: Collection[str] = ()
    foreign: Collection[str] = ()


DEFAULT: Final = Publishing()


def publish(
    healthy: Mapping[DeviceType, Sequence[Amounts]],
    labels: Mapping[str, str],
    publishing: Publishing = DEFAULT,
) -> NodeResources:
    """Return what a node is to publish for its healthy devices, given by type.

    ``labels`` are those of the Device. A node without a Device has neither devices nor labels.
    """
    sums = _sum_gpus(healthy.get(GPU, ()), labels.get(VENDOR_LABEL, ""), publishing)
    sums[RDMA_SHARE] = WHOLE * len(healthy.get(RDMA, ()))
    sums[FPGA_SHARE] = sum(rename(device).get(FPGA_SHARE, 0) for device in healthy.get(FPGA, ()))
    for old in publishing.old_names:
        sums[old] = sums.get(CURRENT_NAME[old], 0)
    ours = {name for names in PUBLISHED.values() for name in names} | CURRENT_NAME.keys()
    ours.difference_update(publishing.foreign)
    amounts = {name: amount for name, amount in sums.items() if amount and name in ours}
    copied = {key: labels[key] for key in LABELS if key in labels}
    return NodeResources(
        amounts, copied, frozenset(ours - amounts.keys()), frozenset(LABELS) - copied.keys()
    )


def _sum_gpus(gpus: Sequence[Amounts], vendor: str, publishing: Publishing) -> dict[str, int]:
    renamed = [rename(gpu) for gpu in gpus]
    sums = {name: sum(gpu.get(name, 0) for gpu in renamed) for name in _SUMMED}
    if vendor in {"", NVIDIA}:
        sums[KOORD_GPU] = sums[GPU_CORE]
    if publishing.shared:
        sums[GPU_SHARED] = WHOLE * len(gpus)
    return sums


class OldNames:
    """``names`` are those that live pods request."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._of: dict[str, frozenset[str]] = {}

    def note(self, uid: str, shape: PodShape | None) -> bool:
        """Note the requests of a pod, None when it is gone; return whether ``names`` changed."""
        requests = shape.requests if shape is not None else ()
        old = frozenset(name for name, _ in requests if name in CURRENT_NAME)
        if old == self._of.get(uid, frozenset()):
            return False
        self._of[uid] = old
        if not old:
            del self._of[uid]
        before, self.names = self.names, frozenset[str]().union(*self._of.values())
        return self.names != before
