"""Sums of amounts that were looked at again and again: of quotas and of the whole cluster.

Between two looks an amount counts as what it was at the first of them. What nobody looked at for
longer than a minute is not claimed to be anything.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from koord.core.usage.book import split_hours
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.following import LOOK_MS
from koord.core.usage.quota_time import QuotaLevel, QuotaTime, hold_level
from koord.core.usage.segments import Segment, Window


@dataclass(frozen=True, slots=True)
class UsageLevels:
    """What was seen at an instant: quotas by name, GPUs by model and state."""

    at: int
    quotas: Mapping[str, QuotaLevel] = field(default_factory=dict)
    cluster: Mapping[str, Mapping[GpuState, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageLook:
    """What one look has seen: a segment of each pod with a node, amounts, and the tree of quotas.

    ``above`` says which quota is above which.
    """

    segments: tuple[Segment, ...]
    levels: UsageLevels
    above: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LevelSums:
    """The amounts times milliseconds of a part of an hour, all of which was watched."""

    window: Window
    quotas: Mapping[str, QuotaTime]
    cluster: Mapping[str, Counter[GpuState]]


def integrate_levels(before: UsageLevels, now: int) -> Iterator[LevelSums]:
    """Yield what was, by hour, from one look to the next, or until a minute after it."""
    for window in split_hours(Window(before.at, min(now, before.at + LOOK_MS))):
        ms = window.milliseconds
        yield LevelSums(
            window,
            {name: hold_level(level, ms) for name, level in before.quotas.items()},
            {
                model: Counter({state: amount * ms for state, amount in states.items()})
                for model, states in before.cluster.items()
            },
        )
