"""What is written before a pod is bound, so that device plugins of vendors find its devices.

Some device plugins look for the pod that they serve among the pending pods of their node, and read
its devices from annotations of their own. They must be given one pod at a time: an annotation of
the node is the lock. Nothing is written here; refusals are values. Source of keys, formats and
texts: Koordinator (deviceshare, DevicePluginAdaption).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, Final, TypeAlias

from koord.core.device.names import GPU_CORE, GPU_MEMORY
from koord.core.device.vendors import (
    ASCEND_DUO,
    CAMBRICON,
    HAMI_CORE,
    HUAWEI,
    METAX,
    MODEL_LABEL,
    VENDOR_LABEL,
    is_same_model,
)
from koord.core.units import Amounts

BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
HAMI_NODE: Final = "hami.io/vgpu-node"
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
class Allocated:
    """The GPUs of a pod, their model, and the time of the binding in unix nanoseconds."""

    gpus: Sequence[AllocatedGpu]
    now: int
    model: str = ""

    @property
    def minors(self) -> str:
        return ",".join(str(one.minor) for one in self.gpus)


# --- refusals ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdapterRejected:
    """The device plugin of a vendor cannot serve an allocation."""

    code: ClassVar = "AdapterRejected"
    vendor: str
    fault: str

    def describe(self) -> str:
        return f'failed to adapt for GPU device plugin of vendor "{self.vendor}": {self.fault}'


@dataclass(frozen=True, slots=True)
class NodeLocked:
    """The device plugin of a node is serving another pod, or the lock cannot be read."""

    code: ClassVar = "NodeLocked"
    node: str
    key: str
    lock: str

    def describe(self) -> str:
        return (
            f'node "{self.node}" has been locked: annotation {self.key} is "{self.lock[:128]}"; '
            "the device plugin removes it when it has served that pod"
        )


@dataclass(frozen=True, slots=True)
class NoInventory:
    """GPUs were given on a node without a Device object, so that their vendor is unknown."""

    code: ClassVar = "NoDeviceInventory"
    node: str

    def describe(self) -> str:
        return f'device "{self.node}" not found'


# --- annotations ---------------------------------------------------------------------------------


def annotate_bind(now: int) -> Annotations:
    """Return the annotation of every pod with devices."""
    return {BIND_TIMESTAMP: str(now)}


def annotate_gpus(given: Allocated) -> Annotations:
    """Return the annotation of every pod with GPUs."""
    return {GPU_MINORS: given.minors}


def label_gpus(provider: str, node: str) -> Mapping[str, str]:
    """Return the label of a pod with GPUs whose isolation provider is HAMi."""
    return {HAMI_NODE: node} if provider == HAMI_CORE else {}


def _adapt_huawei(given: Allocated) -> Annotations:
    at = {"predicate-time": str(given.now)}
    if is_same_model(given.model, ASCEND_DUO):
        cards = ",".join(f"Ascend310P-{one.minor}" for one in given.gpus)
        return {**at, "huawei.com/Ascend310P": cards}
    cards = ",".join(
        f"{one.minor}-{one.template}" if one.template else str(one.minor) for one in given.gpus
    )
    return {**at, "huawei.com/npu-core": cards}


def _adapt_cambricon(given: Allocated) -> Annotations | AdapterRejected:
    if len(given.gpus) > 1:
        return AdapterRejected(CAMBRICON, "multiple gpu share is not supported on device side")
    fault = _find_fault(given.gpus, _SMLU_UNIT)
    if fault:
        return AdapterRejected(CAMBRICON, fault)
    (gpu,) = given.gpus
    core, memory = gpu.amounts[GPU_CORE], gpu.amounts[GPU_MEMORY] // _SMLU_UNIT
    return {
        "CAMBRICON_DSMLU_ASSIGHED": "false",  # the spelling of the device plugin
        "CAMBRICON_DSMLU_PROFILE": f"{gpu.minor}_{core}_{memory}",
    }


def _adapt_metax(given: Allocated) -> Annotations | AdapterRejected:
    fault = _find_fault(given.gpus, _MI)
    if fault:
        return AdapterRejected(METAX, fault)
    cards = [
        {"uuid": one.id, "compute": one.amounts[GPU_CORE], "vRam": one.amounts[GPU_MEMORY] // _MI}
        for one in given.gpus
    ]
    return {"metax-tech.com/gpu-devices-allocated": json.dumps([cards], separators=(",", ":"))}


def _find_fault(gpus: Iterable[AllocatedGpu], least_memory: int) -> str:
    """Return why a plugin that needs cores and memory cannot serve GPUs; empty if it can."""
    for one in gpus:
        if GPU_CORE not in one.amounts:
            return "gpu core resource is required"
        if one.amounts.get(GPU_MEMORY, 0) < least_memory:
            return f"gpu memory must not be less than {least_memory} bytes"
    return ""


ADAPTERS: Final[Mapping[str, Callable[[Allocated], Annotations | AdapterRejected]]] = {
    HUAWEI: _adapt_huawei,
    CAMBRICON: _adapt_cambricon,
    METAX: _adapt_metax,
}
"""Vendor -> what its device plugin reads from the pod; others read nothing of their own."""
LOCKS: Final[Mapping[str, str]] = {
    CAMBRICON: "cambricon.com/dsmlu.lock",
    METAX: "hami.io/mutex.lock",
}
"""Vendor -> the node annotation that admits one pod at a time to its device plugin."""


# --- the hand-off --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PluginNode:
    """A node as device plugins know it; ``labels`` of its Device, None without one.

    ``has_pod`` tells whether a pod, given as ``namespace/name``, still exists.
    """

    name: str
    annotations: Annotations
    labels: Mapping[str, str] | None
    has_pod: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class HandOff:
    """What is to be written to a pod; ``lock`` is an annotation of the node, to be written first.

    With a ``refusal`` nothing must be written; the other fields then show how far it came.
    """

    annotations: Annotations
    labels: Mapping[str, str] = field(default_factory=dict)
    lock: tuple[str, str] | None = None
    refusal: AdapterRejected | NodeLocked | NoInventory | None = None


def hand_off(
    pod: str, provider: str, gpus: Sequence[AllocatedGpu], node: PluginNode, now: int
) -> HandOff:
    """Return what is to be written for a pod (``namespace/name``) with devices, GPUs among them.

    ``provider`` is the isolation provider that the pod asks for; ``now`` is in unix nanoseconds.
    """
    general = annotate_bind(now)
    if not gpus:
        return HandOff(general)
    labels = node.labels or {}
    given = Allocated(gpus, now, labels.get(MODEL_LABEL, ""))
    done = HandOff({**general, **annotate_gpus(given)}, label_gpus(provider, node.name))
    if node.labels is None:
        return replace(done, refusal=NoInventory(node.name))
    vendor = labels.get(VENDOR_LABEL, "")
    found = ADAPTERS[vendor](given) if vendor in ADAPTERS else {}
    if isinstance(found, AdapterRejected):
        return replace(done, refusal=found)
    done = replace(done, annotations={**done.annotations, **found})
    key = LOCKS.get(vendor)
    if key is None:
        return done
    lock = take_lock(key, pod, node, now)
    if isinstance(lock, NodeLocked):
        return replace(done, refusal=lock)
    return replace(done, lock=(key, lock))


def take_lock(key: str, pod: str, node: PluginNode, now: int) -> str | NodeLocked:
    """Return the value with which a pod locks a node, unless another pod holds the lock.

    It is taken over when it is old, when its pod no longer exists, and by its own pod. A lock that
    cannot be read belongs to somebody.
    """
    at = datetime.fromtimestamp(now // 10**9, UTC)
    held = node.annotations.get(key)
    if held is not None:
        since, _, holder = held.partition(",")
        age = _seconds_between(since, at)
        if age is None or (
            abs(age) <= LOCK_SECONDS and _is_held(holder.replace(",", "/"), pod, node)
        ):
            return NodeLocked(node.name, key, held)
    return f"{at:%Y-%m-%dT%H:%M:%SZ},{pod.replace('/', ',')}"


def _is_held(holder: str, pod: str, node: PluginNode) -> bool:
    """Whether a lock holds back a pod; without a name its holder is unknown, and may exist."""
    return holder != pod and (not holder or node.has_pod(holder))


def _seconds_between(since: str, now: datetime) -> float | None:
    try:
        return (now - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no time, without a zone, out of range
        return None
