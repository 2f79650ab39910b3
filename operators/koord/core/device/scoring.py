"""Scores of devices and of nodes by what is used of them, from 0 to 100 per type.

Source: Koordinator (deviceshare, scoringStrategy).
"""

from collections.abc import Mapping
from typing import Final

from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import DeviceRequest, DeviceRules, DeviceScoring, TypeRequest
from koord.core.model.device_names import (
    FPGA_SHARE,
    GPU,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA_SHARE,
)
from koord.core.model.units import Amounts

MOST: Final = 100
DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    GPU_MEMORY_RATIO: 1,
    GPU_MEMORY: 1,
    RDMA_SHARE: 1,
    FPGA_SHARE: 1,
}


def score(total: Amounts, free: Amounts, request: Amounts, scoring: DeviceScoring) -> int:
    """Return the points for amounts of which ``request`` is to be taken."""
    points = weights = 0
    for key, weight in scoring.weights.items():
        whole = total.get(key, 0)
        if whole <= 0:
            continue
        used = whole - free.get(key, 0) + request.get(key, 0)
        if scoring.packs:
            value = min(used, whole) * MOST // whole
        else:
            value = (whole - used) * MOST // whole if used <= whole else 0
        points += weight * value
        weights += weight
    return points // weights if weights else 0


def score_node(
    ledger: DeviceLedger, request: DeviceRequest, scoring: DeviceScoring, rules: DeviceRules
) -> int:
    """Return the sum of the points of all types that are asked for."""
    return sum(_score_type(ledger, type_, scoring, rules) for type_ in request.types)


def _score_type(
    ledger: DeviceLedger, request: TypeRequest, scoring: DeviceScoring, rules: DeviceRules
) -> int:
    total: dict[str, int] = {}
    free: dict[str, int] = {}
    requested: dict[str, int] = {}
    devices = ledger.inventory.of(request.kind)
    for device in devices:
        _add(total, dict(device.total))
        _add(free, ledger.free[request.kind, device.minor])
    if not rules.counts_all_devices:
        return score(total, free, dict(request.parts[0]), scoring)
    healthy = next((dict(device.total) for device in devices if device.total), {})
    for part in request.parts:
        _add(requested, dict(complete(part, healthy) if request.kind == GPU else part))
    return score(total, free, requested, scoring)


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        total[key] = total.get(key, 0) + amount
