"""How much of the GPUs of a node becomes free as pods leave, for whoever needs whole ones.

A GPU is free once all pods have left it that have a part of it. Each of them counts with an equal
part of it: so the sum over pods never says that fewer GPUs become free than do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koord.core.device.plugin import Devices
from koord.core.device.session import NAME
from koord.core.device.states import DeviceDemand, knows_devices
from koord.core.engine.cycle import Cycle
from koord.core.model.device_names import GPU
from koord.core.model.pods import PodShape

WHOLE_GPU: Final = 5040
"""A GPU, in parts: it can be divided by up to ten pods without a remainder."""


@dataclass(frozen=True, slots=True)
class GpuOccupancy:
    """What is free of the GPUs of a node, and what each pod (uid) keeps, in parts."""

    free: int
    kept: Mapping[str, int]


def count_whole_gpus(shape: PodShape) -> int:
    """Return how many whole GPUs a pod asks for; 0 if others may use the rest of them."""
    demand = shape.ask_of(NAME)
    gpus = demand.request.by_type.get(GPU) if isinstance(demand, DeviceDemand) else None
    return 0 if gpus is None or gpus.is_shared else len(gpus.parts)


def find_occupancy(plugin: Devices, cycle: Cycle, row: int) -> GpuOccupancy | None:
    """Return who keeps the GPUs of a row in a cycle; None if it is not known which there are."""
    state = int(plugin.state_of[row])
    if not knows_devices(state):
        return None
    ledger = plugin.states.ledger(state)
    healthy = {device.minor for device in ledger.inventory.of(GPU) if device.total}
    users: dict[int, list[str]] = {minor: [] for minor in healthy}
    for uid in plugin.allocations.on_row(row):
        for share in plugin.shares_of.get(uid, ()):
            if share.kind == GPU and share.minor in healthy and cycle.is_charged(uid):
                users[share.minor].append(uid)
    kept: dict[str, int] = {}
    for pods in users.values():
        for uid in pods:
            kept[uid] = kept.get(uid, 0) - (-WHOLE_GPU // len(pods))
    free = sum(not pods for pods in users.values())
    return GpuOccupancy(free * WHOLE_GPU, kept)
