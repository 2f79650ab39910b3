"""Which nodes are drained first, and which of their pods go first.

A pod just large enough to end the overuse goes before larger and smaller ones, so that few pods go.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.core.balance.model import BalancePod
from koord.core.model.units import Amounts

_PER_MILLE: Final = 1000


def weigh_usage(used: Amounts, capacity: Amounts, weights: Mapping[str, int]) -> int:
    """Return how full a node is, from 0 to 1000, by its weighted resources."""
    total = weighted = 0
    for name, amount in used.items():
        weight = weights.get(name, 0)
        room = capacity.get(name, 0)
        total += weight
        if room > 0:
            weighted += weight * (_PER_MILLE * min(max(amount, 0), room) // room)
    return weighted // total if total else 0


def sort_pods(
    pods: Iterable[BalancePod], excess: Amounts, weights: Mapping[str, int]
) -> list[BalancePod]:
    """Return pods, who goes first first; ``excess`` is what is used too much, by resource."""
    return sorted(
        pods,
        key=lambda pod: (
            pod.rank,
            pod.usage is None,
            -rate_usage(pod.usage or {}, excess, weights),
            -pod.created,
            pod.uid,
        ),
    )


def rate_usage(usage: Amounts, excess: Amounts, weights: Mapping[str, int]) -> float:
    """Return how well a pod fits the overuse: at best 2, when it is just large enough."""
    total = sum(weights.get(name, 0) for name in excess)
    if not total:
        return 0.0
    score = 0.0
    for name, amount in excess.items():
        ratio = usage.get(name, 0) / amount if amount > 0 else 0.0
        score += weights.get(name, 0) * (ratio if ratio < 1 else 1 / ratio + 1)
    return score / total
