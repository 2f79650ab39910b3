"""Keeps offers steady: they fall slowly and rise once a higher value is confirmed.

A sudden fall has batch pods evicted that the next report would have room for, and a sudden rise has
pods started that the next one has none for. Where a node is short of the resource, a fall counts at
once. Times are in seconds of any clock.
"""

from dataclasses import dataclass
from typing import Final

FALL_PERCENT: Final = 20
"""How much of its capacity an offer of a node falls per minute at most."""
MINUTE: Final = 60.0
SHORT_PERCENT: Final = 65
"""Use of a node, in percent of its capacity, above which a fall counts at once: from there on node
agents take CPUs from batch pods by default."""


@dataclass(frozen=True, slots=True)
class SteadyValue:
    """What is offered of one resource; ``confirming`` is a higher value that has to be seen again.

    ``round`` identifies the report that ``confirming`` comes from.
    """

    value: int
    confirming: int | None = None
    round: float = 0.0


@dataclass(frozen=True, slots=True)
class SteadyInput:
    """A computed value and what decides about it; ``elapsed`` is since the round before."""

    computed: int
    capacity: int
    elapsed: float
    round: float
    is_short: bool = False


def steady(before: SteadyValue | None, given: SteadyInput) -> SteadyValue:
    """Return what is offered after a round; None before the first one, whose value counts."""
    computed = given.computed
    if before is None:
        return SteadyValue(computed)
    if computed < before.value:
        return SteadyValue(computed if given.is_short else _fall(before.value, given))
    if computed == before.value:
        return SteadyValue(computed)
    if before.confirming is None:
        return SteadyValue(before.value, computed, given.round)
    if before.round == given.round:
        # The same report: nothing is confirmed by reading it twice.
        return SteadyValue(before.value, min(before.confirming, computed), given.round)
    return SteadyValue(min(before.confirming, computed))


def _fall(value: int, given: SteadyInput) -> int:
    elapsed = min(MINUTE, max(0.0, given.elapsed))
    step = given.capacity * FALL_PERCENT * int(elapsed * 1000) // int(100 * MINUTE * 1000)
    return max(given.computed, value - step)
