"""What became of all GPUs of a cluster over time: every GPU is in one state at every instant.

So the states add up to capacity times time, exactly. Nodes that come and go change the capacity at
the time at which they did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from koord.core.usage.segments import Window


class GpuState(StrEnum):
    """What a GPU is; a part of a GPU that is shared has a state of its own."""

    USED = "used"
    RESERVED = "reserved"
    """Held by a reservation, and used by no pod."""
    IDLE = "idle"
    UNUSABLE = "unusable"
    """Free, and no pod can take it: what else it needs of its node is used up, or taints."""
    BROKEN = "broken"
    DOWN = "down"
    """Of a node that is not ready or cordoned."""


@dataclass(frozen=True, slots=True)
class ClusterLevel:
    """Thousandths of GPUs by state, from ``at`` (milliseconds) on."""

    at: int
    milli_gpus: Mapping[GpuState, int]


@dataclass(frozen=True, slots=True)
class ClusterTime:
    """Thousandths of GPUs times milliseconds, by state. ``unseen`` milliseconds nobody watched."""

    window: Window
    held: Mapping[GpuState, int]
    unseen: int = 0

    @property
    def capacity(self) -> int:
        return sum(self.held.values())


def integrate_cluster(levels: Iterable[ClusterLevel | int], window: Window) -> ClusterTime:
    """Return the cluster's time in a window.

    ``levels`` are in the order of their times; a number is the time from which on nobody watched.
    What was before the first level nobody saw.
    """
    held: Counter[GpuState] = Counter()
    unseen = 0
    current: ClusterLevel | int = window.start
    for level in (*levels, None):
        end = window.end if level is None else _at(level)
        start = max(_at(current), window.start)
        span = max(0, min(end, window.end) - start)
        if isinstance(current, int):
            unseen += span
        else:
            for state, amount in current.milli_gpus.items():
                held[state] += amount * span
        if level is not None:
            current = level
    return ClusterTime(window, {state: held[state] for state in GpuState}, unseen)


def _at(level: ClusterLevel | int) -> int:
    return level if isinstance(level, int) else level.at
