"""What is used of the devices of one node: an immutable value.

A ledger with more or less use is another ledger; equal ones are equal values, so that undo is to
keep the old one and answers can be remembered by ledger. Usage of devices that the node no longer
has, and beyond what a device has, is kept and gives nothing free.

Of pods without a record nobody knows which GPUs they use: other schedulers write none, nor can one
be believed that the owner of a pod wrote. Cards are given out by the kubelet, so they are counted
one by one. Of pods that use parts the sum counts, on the fewest devices that can hold it: many
small parts would take whole nodes from others otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from koord.caches import cached_by_text
from koord.core.device.model import (
    DeviceKey,
    DeviceShare,
    Inventory,
    Minors,
    Part,
    make_part,
    minors_of,
)
from koord.core.model.device_names import (
    CARDS,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    WHOLE,
    DeviceType,
)


class UnrecordedUse(NamedTuple):
    """Whole cards, and the sums of the hundredths and bytes of parts."""

    cards: int = 0
    hundredths: int = 0
    memory: int = 0

    def plus(self, other: "UnrecordedUse", count: int = 1) -> "UnrecordedUse":
        pairs = zip(self, other, strict=True)
        return UnrecordedUse(*(mine + count * more for mine, more in pairs))

    def count_devices(self, memory: int) -> int:
        """Return the fewest GPUs, of so many bytes each, that can hold it."""
        by_memory = -(-self.memory // memory) if memory else min(self.memory, 1)
        return self.cards + max(-(-self.hundredths // WHOLE), by_memory)


NOTHING_UNRECORDED = UnrecordedUse()


@cached_by_text()
def find_unrecorded(requested: tuple[tuple[str, int], ...]) -> UnrecordedUse:
    """Return what a pod without a record may use; how large a part of an NPU is, nobody knows."""
    requests = dict(requested)
    cards = sum(requests.get(name, 0) for name in CARDS) or min(requests.get(NPU_CORE, 0), 1)
    hundredths = max(
        *(requests.get(name, 0) for name in (KOORD_GPU, GPU_CORE, GPU_MEMORY_RATIO)),
        requests.get(GPU_SHARED, 0),  # a hundredth of each at least
    )
    if cards:
        return UnrecordedUse(max(cards, -(-hundredths // WHOLE)))
    return UnrecordedUse(0, hundredths, requests.get(GPU_MEMORY, 0))


class DeviceLedger:
    """Use per device: amounts, taken virtual functions, and who has its switch alone.

    ``unrecorded`` is what pods use of GPUs without a record of which ones.
    """

    def __init__(
        self,
        inventory: Inventory,
        used: Mapping[DeviceKey, "Use"] | None = None,
        unrecorded: UnrecordedUse = NOTHING_UNRECORDED,
        *,
        is_exact: bool = True,
    ) -> None:
        self.inventory = inventory
        self.used: Mapping[DeviceKey, Use] = used or {}
        self.unrecorded = unrecorded
        self.is_exact = is_exact
        """Whether the free ratio of a GPU follows from its free bytes."""

    @cached_property
    def _identity(self) -> tuple[int, frozenset[tuple[DeviceKey, "Use"]], UnrecordedUse]:
        return id(self.inventory), frozenset(self.used.items()), self.unrecorded

    @cached_property
    def foreign(self) -> int:
        """Number of whole GPUs that are left free for what is ``unrecorded``."""
        gpus = self.inventory.of(GPU) if self.unrecorded.memory else ()
        memory = max((dict(gpu.total).get(GPU_MEMORY, 0) for gpu in gpus), default=0)
        return self.unrecorded.count_devices(memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceLedger) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def with_shares(self, shares: Iterable[DeviceShare], count: int = 1) -> "DeviceLedger":
        """Return the ledger with shares given (1) or taken back (-1)."""
        used = dict(self.used)
        for share in shares:
            key = (share.kind, share.minor)
            use = used.get(key, UNUSED).with_share(share, count)
            if use == UNUSED:
                used.pop(key, None)
            else:
                used[key] = use
        return DeviceLedger(self.inventory, used, self.unrecorded, is_exact=self.is_exact)

    def with_inventory(self, inventory: Inventory) -> "DeviceLedger":
        return DeviceLedger(inventory, self.used, self.unrecorded, is_exact=self.is_exact)

    def with_unrecorded(self, use: UnrecordedUse, count: int = 1) -> "DeviceLedger":
        """Return the ledger with use of which nobody knows where (-1: without it)."""
        unrecorded = self.unrecorded.plus(use, count)
        return DeviceLedger(self.inventory, self.used, unrecorded, is_exact=self.is_exact)

    def use_of(self, kind: DeviceType, minor: int) -> "Use":
        return self.used.get((kind, minor), UNUSED)

    def minors_in_use(self, kind: DeviceType) -> Minors:
        """Return the devices of a type that are used, in whole or in part."""
        return minors_of(
            device.minor
            for device in self.inventory.of(kind)
            if self.use_of(kind, device.minor).users
        )

    @cached_property
    def free(self) -> Mapping[DeviceKey, dict[str, int]]:
        """What is free of each device; unhealthy ones have nothing."""
        return {
            (kind, device.minor): self._free_of(dict(device.total), self.use_of(kind, device.minor))
            for kind, devices in self.inventory.devices
            for device in devices
        }

    def _free_of(self, total: dict[str, int], use: "Use") -> dict[str, int]:
        if not use.amounts:
            return total
        used = dict(use.amounts)
        free = {key: max(0, amount - used.get(key, 0)) for key, amount in total.items()}
        memory = total.get(GPU_MEMORY, 0)
        if self.is_exact and memory and GPU_MEMORY_RATIO in free:
            by_bytes = free[GPU_MEMORY] * total[GPU_MEMORY_RATIO] // memory
            free[GPU_MEMORY_RATIO] = min(free[GPU_MEMORY_RATIO], by_bytes)
        return free


@dataclass(frozen=True, slots=True)
class Use:
    """What is used of one device.

    ``users`` is the number of shares given of it, ``exclusive`` how many of them keep its PCIe
    switch for themselves.
    """

    amounts: Part = ()
    functions: frozenset[int] = frozenset()
    users: int = 0
    exclusive: int = 0

    def with_share(self, share: DeviceShare, count: int) -> "Use":
        amounts = dict(self.amounts)
        for key, amount in share.part:
            amounts[key] = amounts.get(key, 0) + count * amount
        taken = frozenset(share.functions)
        return Use(
            make_part({key: amount for key, amount in amounts.items() if amount}),
            self.functions | taken if count > 0 else self.functions - taken,
            self.users + count,
            self.exclusive + count * share.is_exclusive,
        )


UNUSED: Final = Use()


def complete(part: Part, total: Mapping[str, int]) -> Part:
    """Return the part of a GPU with both its memory and its ratio (source: Koordinator).

    Bytes and ratio are rounded down. Without a total there is nothing to complete with.
    """
    amounts = dict(part)
    memory = total.get(GPU_MEMORY, 0)
    if not memory or (GPU_MEMORY in amounts) == (GPU_MEMORY_RATIO in amounts):
        return part
    if GPU_MEMORY in amounts:
        amounts[GPU_MEMORY_RATIO] = amounts[GPU_MEMORY] * WHOLE // memory
    else:
        amounts[GPU_MEMORY] = amounts[GPU_MEMORY_RATIO] * memory // WHOLE
    return make_part(amounts)
