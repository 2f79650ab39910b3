"""Pools: in which order units are taken into account, so that the dearest are left out if possible.

Bounds decide which pools may be enough; nothing is tried here.
"""

from collections.abc import Iterator, Sequence

from koord.core.engine.arrays import Mask
from koord.core.eviction.problem import VictimSearch


def find_pools(search: VictimSearch, rows: Mask | None) -> Iterator[list[int]]:
    """Yield positions of units that may be enough for room on ``rows``, the cheapest pool first.

    Without units that disruption budgets protect, before those with them; without whole gangs,
    before those with them; then up to the lowest priority that may be enough, and all.
    """
    prices = search.prices
    for with_protected in (False, True):
        for with_gangs in (False, True):
            pool = [
                at
                for at, price in enumerate(prices)
                if (with_protected or not price.violations) and (with_gangs or not price.gangs)
            ]
            if not _may_be_enough(search, pool, rows):
                continue
            limits = sorted({prices[at].priority for at in pool})
            first = _find_first(search, pool, limits, rows)
            for limit in dict.fromkeys((*limits[first : first + 2], limits[-1])):
                yield [at for at in pool if prices[at].priority <= limit]


def _find_first(
    search: VictimSearch, pool: Sequence[int], limits: Sequence[int], rows: Mask | None
) -> int:
    """Return the position of the lowest priority up to which units may be enough."""
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        below = [at for at in pool if search.prices[at].priority <= limits[middle]]
        if _may_be_enough(search, below, rows):
            high = middle
        else:
            low = middle + 1
    return low


def _may_be_enough(search: VictimSearch, pool: Sequence[int], rows: Mask | None) -> bool:
    return bool(pool) and search.room.is_enough(search.room.freed(pool), rows)
