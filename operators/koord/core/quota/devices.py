"""What a pod's devices count as: one GPU has several names, and a quota may name any of them.

Cards (``nvidia.com/gpu``) are whole devices, shares (``koordinator.sh/gpu-core`` and others) are
hundredths of one. Two halves are one where they are counted in shares; in cards, each pod's share
is rounded up. Memory in bytes has no other name: it depends on the model. Koordinator counts each
name by itself, so a quota in cards does not see shares.
"""

from typing import Final

from koord.core.quota.model import QuotaRules
from koord.core.units import Amounts

PERCENT: Final = 100
_CARDS: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
_GPU: Final = "koordinator.sh/gpu"
_CORE: Final = "koordinator.sh/gpu-core"
_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
_SHARES: Final = (_GPU, _CORE, _RATIO)
_OLD: Final = "kubernetes.io/"
_NEW: Final = "koordinator.sh/"
_RENAMED: Final = ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")


def count_devices(request: Amounts, rules: QuotaRules) -> Amounts:
    """Return what a pod asks under every name that its devices have."""
    if not rules.counts_device_shares or not any(_is_device(key) for key in request):
        return request
    counted = dict(request)
    for name in _RENAMED:
        if _OLD + name in request:
            counted.setdefault(_NEW + name, request[_OLD + name])
    cards = sum(counted.get(name, 0) for name in _CARDS)
    whole = max(counted.get(_GPU, 0), PERCENT * cards)
    shares = {name: counted.get(name, whole) for name in (_CORE, _RATIO)}
    shares[_GPU] = max(whole, *shares.values())
    counted |= {name: share for name, share in shares.items() if share}
    if not cards and shares[_GPU]:
        # Nobody knows the vendor before the pod has its node: shares count as cards of any.
        counted |= dict.fromkeys(_CARDS, -(-shares[_GPU] // PERCENT))
    return counted


def _is_device(key: str) -> bool:
    return key in _CARDS or key.startswith((_NEW, _OLD))
