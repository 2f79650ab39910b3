"""Vendors of accelerators: their cards, their models, and how those can be shared.

Pure data with a few comparisons: a new vendor is a new entry of ``VENDORS``. What device plugins
read is in ``device_plugins``; nothing here chooses devices.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.device.model import Part, make_part
from koord.core.model.device_names import (
    AMD_GPU,
    CURRENT_NAME,
    DCU_GPU,
    GPU,
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
