"""What is written before a pod is bound, so that device plugins of vendors find its devices.

Some device plugins look for the pod that they serve among the pending pods of their node, and read
its devices from annotations of their own. They must be given one pod at a time, and some of them
know an annotation of the node that is a lock. Nothing is written here; what cannot be served is a
value. Source of keys, formats and texts: Koordinator (deviceshare, DevicePluginAdaption).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from koord.core.device.vendors import (
    ASCEND_DUO,
    CAMBRICON,
    HAMI_CORE,
    HUAWEI,
    METAX,
    is_same_model,
)
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY
from koord.core.model.units import Amounts

BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
HAMI_NODE: Final = "hami.io/vgpu-node"
MEMORY_LIMIT: Final = "scheduling.koordinator.sh/gpu-memory-limit-"
CORE_LIMIT: Final = "scheduling.koordinator.sh/gpu-core-limit-"
"""With the position of the GPU among those of the pod: HAMi-core limits each by itself."""
LOCK_SECONDS: Final = 300
"""A node lock that is older is taken over: the device plugin has failed."""

_MI: Final = 1 << 20
_SMLU_UNIT: Final = 256 * _MI
"""The option ``--min-dsmlu-unit=256`` of Cambricon's device plugin."""

Annotations: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AllocatedGpu:
    """A GPU, or a part of it, that a pod was given; ``template`` is that of a sliced NPU."""

    minor: int
    amounts: Amounts = field(default_factory=dict)
    id: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class AdapterRejected:
    """The device plugin of a vendor cannot serve an allocation."""

    vendor: str
    problem: str

    def describe(self) -> str:
        """Return the message of Koordinator."""
        return f'failed to adapt for GPU device plugin of vendor "{self.vendor}": {self.problem}'


# --- annotations ---------------------------------------------------------------------------------

Gpus: TypeAlias = Sequence[AllocatedGpu]


def _adapt_huawei(gpus: Gpus, model: str) -> Annotations:
    if is_same_model(model, ASCEND_DUO):
        return {"huawei.com/Ascend310P": ",".join(f"Ascend310P-{gpu.minor}" for gpu in gpus)}
    cards = (f"{gpu.minor}-{gpu.template}" if gpu.template else str(gpu.minor) for gpu in gpus)
    return {"huawei.com/npu-core": ",".join(cards)}


def _adapt_cambricon(gpus: Gpus, _model: str) -> Annotations | AdapterRejected:
    if len(gpus) > 1:
        return AdapterRejected(CAMBRICON, "multiple gpu share is not supported on device side")
    problem = _find_problem(gpus, _SMLU_UNIT)
    if problem:
        return AdapterRejected(CAMBRICON, problem)
    (gpu,) = gpus
    core, memory = gpu.amounts[GPU_CORE], gpu.amounts[GPU_MEMORY] // _SMLU_UNIT
    return {
        "CAMBRICON_DSMLU_ASSIGHED": "false",  # the spelling of the device plugin
        "CAMBRICON_DSMLU_PROFILE": f"{gpu.minor}_{core}_{memory}",
    }


def _adapt_metax(gpus: Gpus, _model: str) -> Annotations | AdapterRejected:
    problem = _find_problem(gpus, _MI)
    if problem:
        return AdapterRejected(METAX, problem)
    cards = [
        {"uuid": gpu.id, "compute": gpu.amounts[GPU_CORE], "vRam": gpu.amounts[GPU_MEMORY] // _MI}
        for gpu in gpus
    ]
    return {"metax-tech.com/gpu-devices-allocated": json.dumps([cards], separators=(",", ":"))}


def _find_problem(gpus: Iterable[AllocatedGpu], least_memory: int) -> str:
    """Return why a plugin that needs cores and memory cannot serve GPUs; empty if it can."""
    for gpu in gpus:
        if GPU_CORE not in gpu.amounts:
            return "gpu core resource is required"
        if gpu.amounts.get(GPU_MEMORY, 0) < least_memory:
            return f"gpu memory must not be less than {least_memory} bytes"
    return ""


@dataclass(frozen=True, slots=True)
class DevicePlugin:
    """How a vendor's device plugin finds the devices of the pod that it serves.

    It serves pods that request a resource of ``domain``. ``timestamp`` is the annotation by which
    it finds the pod that waits longest, ``lock`` the node annotation that admits one pod at a time.
    """

    domain: str
    adapt: Callable[[Gpus, str], Annotations | AdapterRejected]
    timestamp: str = ""
    lock: str = ""


DEVICE_PLUGINS: Final[Mapping[str, DevicePlugin]] = {
    HUAWEI: DevicePlugin("huawei.com/", _adapt_huawei, timestamp="predicate-time"),
    CAMBRICON: DevicePlugin("cambricon.com/", _adapt_cambricon, lock="cambricon.com/dsmlu.lock"),
    METAX: DevicePlugin("metax-tech.com/", _adapt_metax, lock="hami.io/mutex.lock"),
}
"""By vendor; the device plugins of others read nothing of their own."""


def find_plugins(resources: Iterable[str]) -> frozenset[str]:
    """Return the vendors whose device plugins the kubelet calls for a pod."""
    return frozenset(
        vendor
        for name in resources
        for vendor, plugin in DEVICE_PLUGINS.items()
        if name.startswith(plugin.domain)
    )


@dataclass(frozen=True, slots=True)
class HandOff:
    """What device plugins read from a pod: annotations, labels, and ``timestamps``.

    The values of the last are the time of the write, in unix nanoseconds.
    """

    annotations: Annotations = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    timestamps: tuple[str, ...] = (BIND_TIMESTAMP,)


NOTHING: Final = HandOff()
"""For pods whose devices no plugin reads from its own annotations."""


def hand_off(gpus: Gpus, vendor: str, model: str, provider: str, node: str) -> HandOff:
    """Return the annotations and labels to write for a pod with these GPUs.

    ``provider`` is the isolation provider that the pod asks for. What a plugin cannot serve is left
    out: a pod that needs the plugin is not placed there.
    """
    plugin = DEVICE_PLUGINS.get(vendor)
    if not gpus or (plugin is None and provider != HAMI_CORE):
        return NOTHING
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    timestamps = NOTHING.timestamps
    if provider == HAMI_CORE:
        labels[HAMI_NODE] = node
        annotations |= limit_gpus(gpus)
    if plugin is not None:
        adapted = plugin.adapt(gpus, model)
        if not isinstance(adapted, AdapterRejected):
            annotations |= adapted
            timestamps += (plugin.timestamp,) if plugin.timestamp else ()
    return HandOff(annotations, labels, timestamps)


def limit_gpus(gpus: Gpus) -> Annotations:
    """Return the memory in bytes and the cores in percent that HAMi-core is to allow of each."""
    return {
        f"{key}{at}": str(gpu.amounts[resource])
        for at, gpu in enumerate(gpus)
        for key, resource in ((MEMORY_LIMIT, GPU_MEMORY), (CORE_LIMIT, GPU_CORE))
        if resource in gpu.amounts
    }


# --- one pod at a time ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Locked:
    """A node is locked by another pod, or its lock cannot be read; ``holder`` is "" then."""

    lock: str
    holder: str


NeedsLock: TypeAlias = Callable[[str, float], bool]
"""Whether a pod (``namespace/name``) that took a lock at a time, in seconds, still needs it."""


def take_lock(lock: str | None, pod: str, needs_it: NeedsLock, now: datetime) -> str | Locked:
    """Return the value with which a pod (``namespace/name``) locks a node, unless another holds it.

    ``lock`` is what the node has. It is taken over when it is old, when its pod does not need it
    any more, and by its own pod. A lock that cannot be read counts as held.
    """
    if lock is not None:
        since, _, holder = lock.partition(",")
        holder = holder.replace(",", "/")
        age = _seconds_between(since, now)
        if age is None:
            return Locked(lock, "")
        is_recent = abs(age) <= LOCK_SECONDS and holder != pod
        if is_recent and (not holder or needs_it(holder, now.timestamp() - age)):
            return Locked(lock, holder)
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{pod.replace('/', ',')}"


def _seconds_between(since: str, now: datetime) -> float | None:
    try:
        return (now - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no time, without a zone, out of range
        return None
