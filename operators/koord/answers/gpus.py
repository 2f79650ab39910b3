"""How many GPUs a request takes, as people count them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from koord.core.device.allocation import AllocatedDevices
from koord.core.model.device_names import (
    CARDS,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    WHOLE,
)
from koord.core.model.pods import Pod
from koord.core.model.units import Amounts
from koord.core.usage.slices import SEVENTHS, measure_slices

MILLI: Final = 1_000
"""One GPU, in thousandths."""
MOST_GPUS: Final = 1_024
"""That one pod is taken to hold: no node has as many. Whoever names a node in a pod may ask for any
number, and sums of all others stay what they are."""
_OF_HUNDREDTH: Final = MILLI // WHOLE
_MIG: Final = re.compile(r"nvidia\.com/mig-([1-7])g\.")
"""A slice of a GPU (MIG), and how many sevenths of its computing it has."""


def count_gpus(requests: Amounts) -> int:
    """Return how many GPUs the request of a pod takes, in whole ones: a share counts as one.

    More than ``MOST_GPUS`` are counted as that.
    """
    return min(count_gpus_of_many(requests), MOST_GPUS)


def count_gpus_of_many(requests: Amounts) -> int:
    """Return how many GPUs are requested by any number of pods together."""
    cards = sum(requests.get(name, 0) for name in CARDS)
    shares = max(requests.get(KOORD_GPU, 0), requests.get(GPU_CORE, 0))
    return cards or -(-shares // WHOLE)


@dataclass(frozen=True, slots=True)
class MilliGpus:
    """Thousandths of GPUs: for sums and bills, in which a share counts as what it is."""

    amount: int
    is_estimate: bool = False
    """It asks for memory in bytes, and which part of a GPU that is nobody knows."""
    slices: int = 0
    """How many sevenths of GPUs are counted in ``amount``, as the first of a GPU."""

    def with_slices(self, milli: int) -> int:
        """Return the amount where it is known how much its slices are."""
        return self.amount - measure_slices(self.slices) + milli


def measure_gpus(pod: Pod) -> MilliGpus:
    """Return what a pod holds of GPUs: what it was given, else what it asks for.

    Of a part of a GPU the larger share counts, that of computing or that of memory.
    """
    given = [
        measure_part(dict(share.part))
        for allocation in pod.allocations
        if isinstance(allocation, AllocatedDevices)
        for share in allocation.shares
        if share.kind == GPU
    ]
    if given:
        return MilliGpus(min(sum(given), MOST_GPUS * MILLI))
    return _measure_shape(pod.shape.requests)


@lru_cache(maxsize=4_096)
def _measure_shape(requests: tuple[tuple[str, int], ...]) -> MilliGpus:
    """Measure what pods of one shape ask for: there are thousands of them."""
    return measure_request(dict(requests))


def measure_request(requests: Amounts) -> MilliGpus:
    """Return what a request asks for; memory of unknown share counts as whole GPUs.

    Slices count by the sevenths of their computing, as if they were the first of a GPU. More than
    ``MOST_GPUS`` are counted as that.
    """
    cards = min(sum(requests.get(name, 0) for name in CARDS), MOST_GPUS)
    slices = min(count_slices(requests), (MOST_GPUS - cards) * SEVENTHS)
    if cards or slices:
        return MilliGpus(cards * MILLI + measure_slices(slices), slices=slices)
    if share := measure_part(requests):
        return MilliGpus(min(share, MOST_GPUS * MILLI))
    if not requests.get(GPU_MEMORY):
        return MilliGpus(0)
    gpus = min(max(requests.get(GPU_SHARED, 0), 1), MOST_GPUS)
    return MilliGpus(gpus * MILLI, is_estimate=True)


def count_slices(amounts: Amounts) -> int:
    """Return how many sevenths of GPUs slices (MIG) are together."""
    return sum(_sevenths_of(name) * amount for name, amount in amounts.items())


@lru_cache(maxsize=1_024)
def _sevenths_of(resource: str) -> int:
    size = _MIG.match(resource)
    return int(size[1]) if size else 0


def measure_part(amounts: Mapping[str, int]) -> int:
    """Return what a part of a GPU is in thousandths: the larger of its shares."""
    shares = (amounts.get(name, 0) for name in (KOORD_GPU, GPU_CORE, GPU_MEMORY_RATIO))
    return max(shares) * _OF_HUNDREDTH
