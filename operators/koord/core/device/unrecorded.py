"""What pods use of GPUs without a record of which ones they are.

Other schedulers write no record, nor can one be believed that the owner of a pod wrote. Cards are
given out by the kubelet, so they are counted one by one. Of pods that use parts the sum counts, on
the fewest devices that can hold it: many small parts would take whole nodes from others otherwise.
Knows no ledger.
"""

from typing import NamedTuple

from koord.caches import cached_by_text
from koord.core.model.device_names import (
    CARDS,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    WHOLE,
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
