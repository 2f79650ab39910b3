"""Names of resources: those that are known, and what a misspelled one probably means."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

KNOWN_RESOURCES: Final = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "nvidia.com/gpu",
    "amd.com/gpu",
    "dcu.com/gpu",
    "huawei.com/npu-core",
    "koordinator.sh/gpu",
    "koordinator.sh/gpu.shared",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
    "koordinator.sh/fpga",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "kubernetes.io/mid-memory",
)
_LIKENESS: Final = 0.75
_NEARLY: Final = 0.93
"""Vendors have more names than are known: ``nvidia.com/gpu.shared`` is no mistake."""
_FREE: Final = ("hugepages-", "attachable-volumes-")
"""Beginnings of names without prefix that Kubernetes has any number of."""


def find_nearest_resource(name: str, resources: Iterable[str]) -> str:
    """Return the resource that ``name`` may stand for, with or without prefix; empty if none."""
    names = sorted(resources, key=_order_of)
    if close := get_close_matches(name, names, 1, _LIKENESS):
        return close[0]
    bare = name.rpartition("/")[2].lower()
    for candidate in names:
        if candidate.rpartition("/")[2] in {bare, bare.removesuffix("s")}:
            return candidate
    return ""


def find_meant(name: str) -> str:
    """Return the known resource of which ``name`` is a misspelling; empty if it is none."""
    if name in KNOWN_RESOURCES or name.startswith(_FREE):
        return ""
    if "/" not in name:
        return find_nearest_resource(name, KNOWN_RESOURCES)
    return next(iter(get_close_matches(name.lower(), KNOWN_RESOURCES, 1, _NEARLY)), "")


def _order_of(name: str) -> tuple[int, str]:
    """Sort key: the resources that are asked for most come first."""
    is_known = name in KNOWN_RESOURCES
    return (KNOWN_RESOURCES.index(name) if is_known else len(KNOWN_RESOURCES), name)
