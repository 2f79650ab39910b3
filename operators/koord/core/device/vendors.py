"""Vendors of accelerators: cards, models, how those are shared, and what their device plugins read.

A new vendor is a new entry of ``VENDORS``, and of ``DEVICE_PLUGINS`` if its device plugin reads
annotations of its own. Nothing here chooses devices, and nothing is written here.

Some device plugins look for the pod that they serve among the pending pods of their node, and read
its devices from annotations of their own. They must be given one pod at a time, and some of them
know an annotation of the node that is a lock. What cannot be served is a value. Source of keys,
formats and texts: Koordinator (deviceshare, DevicePluginAdaption).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from koord.core.device.model import Part, make_part
from koord.core.model.device_names import (
    AMD_GPU,
    CURRENT_NAME,
    DCU_GPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    TYPE_OF,
    DeviceType,
)
from koord.core.model.units import Amounts

VENDOR_LABEL: Final = "node.koordinator.sh/gpu-vendor"
MODEL_LABEL: Final = "node.koordinator.sh/gpu-model"
DRIVER_LABEL: Final = "node.koordinator.sh/gpu-driver-version"
ISOLATION_LABEL: Final = "koordinator.sh/gpu-isolation-provider"
"""Label of pods that need it and of nodes that have it."""
HAMI_CORE: Final = "HAMi-core"

NVIDIA: Final = "nvidia"
HUAWEI: Final = "huawei"
CAMBRICON: Final = "cambricon"
METAX: Final = "metax"
ASCEND_DUO: Final = "Ascend-310P3-300I-DUO"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor by its name in the label ``gpu-vendor``, its id on the PCI bus, and its DRA driver.

    ``cards`` are resources of its own that count whole cards; ``unshareable`` models have no parts.
    """

    name: str
    pci: str
    cards: tuple[str, ...] = ()
    unshareable: tuple[str, ...] = ()
    driver: str = ""


VENDORS: Final[Mapping[str, Vendor]] = {
    vendor.name: vendor
    for vendor in (
        Vendor(NVIDIA, "0x10de", (NVIDIA_GPU,), driver="gpu.nvidia.com"),
        Vendor("amd", "0x1002", (AMD_GPU,), driver="gpu.amd.com"),
        Vendor("hygon", "0x1d94", (DCU_GPU,)),
        Vendor(HUAWEI, "0x19e5", unshareable=(ASCEND_DUO,)),
        Vendor(CAMBRICON, "0xcabc", ("cambricon.com/mlu",)),
        Vendor(METAX, "0x9999"),
        Vendor("baidu", "0x1d22"),
        Vendor("iluvatar", "0x1e3e"),
    )
}
GPU_DRIVERS: Final = frozenset(vendor.driver for vendor in VENDORS.values() if vendor.driver)
"""Drivers of Dynamic Resource Allocation whose devices are GPUs."""
CLASS_OF: Final[Mapping[str, DeviceType]] = {
    **TYPE_OF,
    **{old: TYPE_OF[name] for old, name in CURRENT_NAME.items()},
    **{card: GPU for vendor in VENDORS.values() for card in vendor.cards},
}
"""Resource -> type of the devices that it counts, old names and cards of all vendors included."""


# --- models --------------------------------------------------------------------------------------

_BRAND: Final = re.compile(r"^nvidia[ -]", re.IGNORECASE)
_NVSWITCH: Final = ("H100", "H800", "H20")
"""Families of GPUs that have the built-in partition table."""


def normalise_model(model: str) -> str:
    """Return a model as in labels: ``NVIDIA A100-SXM4-80GB`` -> ``A100-SXM4-80GB``."""
    return _BRAND.sub("", model).replace(" ", "-")


def is_same_model(model: str, other_model: str) -> bool:
    """Whether two names are the same model, whatever their case and brand."""
    return normalise_model(model).casefold() == normalise_model(other_model).casefold()


def is_of_family(model: str, family: str) -> bool:
    """Whether a model is of a family, in any form factor: ``H100-80GB-HBM3`` is an ``H100``."""
    return normalise_model(model).casefold().split("-")[0] == family.casefold()


def has_nvswitch(vendor: str, model: str) -> bool:
    """Whether GPUs of a model have the built-in partition table, if their Device has none."""
    return vendor in {"", NVIDIA} and any(is_of_family(model, family) for family in _NVSWITCH)


def cannot_be_shared(vendor: str, model: str) -> bool:
    """Whether GPUs of a model have no parts."""
    listed_vendor = VENDORS.get(vendor)
    return listed_vendor is not None and any(
        is_same_model(model, name) for name in listed_vendor.unshareable
    )


# --- slices of NPUs ------------------------------------------------------------------------------

_Row: TypeAlias = tuple[int, int, int, int]
_310P: Final[Mapping[str, _Row]] = {
    "vir01": (1, 1, 12, 3),
    "vir02": (2, 2, 25, 6),
    "vir02_1c": (2, 1, 25, 6),
    "vir04": (4, 4, 50, 12),
    "vir04_3c": (4, 3, 50, 12),
    "vir04_3c_ndvpp": (4, 3, 0, 12),
    "vir04_4c_dvpp": (4, 4, 100, 12),
}
_910B1: Final[Mapping[str, _Row]] = {
    "vir03_1c_8g": (3, 1, 0, 8),
    "vir06_1c_16g": (6, 1, 0, 16),
    "vir12_3c_32g": (12, 3, 0, 32),
}
_ROWS: Final[Mapping[str, Mapping[str, _Row]]] = {
    "Ascend-310P": _310P,
    "Ascend-310P3": _310P,
    "Ascend-910": {
        "vir02": (2, 1, 0, 2),
        "vir04": (4, 1, 0, 4),
        "vir08": (8, 3, 0, 8),
        "vir16": (16, 7, 0, 16),
    },
    "Ascend-910B1": _910B1,
    "Ascend-910B2": _910B1,
    "Ascend-910B2C": _910B1,
    "Ascend-910B3": {
        "vir05_1c_16g": (5, 1, 0, 16),
        "vir10_3c_32g": (10, 3, 0, 32),
    },
    "Ascend-910B4": {
        "vir05_1c_8g": (5, 1, 25, 8),
        "vir10_3c_16g": (10, 3, 50, 16),
        "vir10_3c_16g_nm": (10, 3, 0, 16),
        "vir10_4c_16g_m": (10, 4, 100, 16),
    },
}


def _make_amounts(core: int, cpu: int, dvpp: int, gibibytes: int) -> Amounts:
    amounts = {NPU_CORE: core, NPU_CPU: cpu, NPU_DVPP: dvpp, GPU_MEMORY: gibibytes << 30}
    return {key: amount for key, amount in amounts.items() if amount}


TEMPLATES: Final[Mapping[str, Mapping[str, Amounts]]] = {
    f"huawei-{model}": {name: _make_amounts(*row) for name, row in rows.items()}
    for model, rows in _ROWS.items()
}
"""``vendor-model`` -> template -> amounts of one NPU: how cards are sliced without a ConfigMap."""


def index_templates(
    templates: Mapping[str, Mapping[str, Amounts]] = TEMPLATES,
) -> dict[str, dict[Part, str]]:
    """Return ``vendor-model`` -> amounts -> template; of equal ones the first by name."""
    return {
        model: {make_part(named[name]): name for name in sorted(named, reverse=True)}
        for model, named in templates.items()
    }


# --- device plugins ------------------------------------------------------------------------------

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


# --- annotations of device plugins ---------------------------------------------------------------

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


NO_HAND_OFF: Final = HandOff()
"""For pods whose devices no plugin reads from its own annotations."""


def hand_off(gpus: Gpus, vendor: str, model: str, provider: str, node: str) -> HandOff:
    """Return the annotations and labels to write for a pod with these GPUs.

    ``provider`` is the isolation provider that the pod asks for. What a plugin cannot serve is left
    out: a pod that needs the plugin is not placed there.
    """
    plugin = DEVICE_PLUGINS.get(vendor)
    if not gpus or (plugin is None and provider != HAMI_CORE):
        return NO_HAND_OFF
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    timestamps = NO_HAND_OFF.timestamps
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
