"""What happened to a gang: a bounded list, newest last, kept in the status of its PodGroup.

Says nothing of the present: that is what conditions are for. Several operators add to it, each its
own kinds of episodes, so that none overwrites those of another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_EPISODES: Final = 8
"""Of one operator; older ones are dropped."""
MAX_WHY: Final = 512
DAY: Final = 86_400
MAX_BY: Final = 256
MAX_READ: Final = 32
"""Of all that is recorded: whoever may write a status may write anything."""


class Happened(StrEnum):
    """What can happen to a gang."""

    RECLAIMED = "Reclaimed"
    """Members were evicted because their quota used too much."""
    PREEMPTED = "Preempted"
    """Members were evicted for a unit of higher priority."""
    RESTARTED = "Restarted"
    """The members that were left were evicted, so that it starts again as a whole."""
    DEGRADED = "Degraded"
    """It had started, and fell below its minimum."""
    TIMED_OUT = "TimedOut"
    """It was complete, and waited longer for a place than it allows."""

    @property
    def is_eviction(self) -> bool:
        return self in _EVICTIONS


_EVICTIONS: Final = frozenset({Happened.RECLAIMED, Happened.PREEMPTED, Happened.RESTARTED})
_TAKEN: Final = frozenset({Happened.PREEMPTED, Happened.RECLAIMED})
OF_PLACEMENT: Final = _EVICTIONS
OF_POD_GROUPS: Final = frozenset(Happened) - _EVICTIONS
"""The kinds of episodes that each operator adds."""


@dataclass(frozen=True, slots=True, order=True)
class Episode:
    """One thing that happened, at ``time`` (whole seconds since the epoch); ``by`` may be empty."""

    time: int
    what: str
    why: str
    by: str = ""

    def text(self) -> str:
        return f"{self.what}: {self.note()}"

    def note(self) -> str:
        """Say why and, unless that says it, for whom, in whole sentences."""
        return (
            f"{self.why}. For {self.by}." if self.by and self.by not in self.why else f"{self.why}."
        )


def merge(recorded: Iterable[Episode], new: Iterable[Episode]) -> tuple[Episode, ...]:
    """Return the last episodes of both, oldest first; one per time and kind, the first of them."""
    first: dict[tuple[int, str], Episode] = {}
    for episode in (*recorded, *new):
        first.setdefault((episode.time, episode.what), episode)
    return tuple(sorted(first.values()))[-MAX_EPISODES:]


def count_preemptions(history: Iterable[Episode], now: float, gang: str) -> int:
    """Return how often others preempted members of a gang within the last day."""
    return _count(history, frozenset({Happened.PREEMPTED}), now, gang)


def count_losses(history: Iterable[Episode], now: float, gang: str) -> int:
    """Return how often others took the place of members of a gang within the last day."""
    return _count(history, _TAKEN, now, gang)


def _count(history: Iterable[Episode], kinds: frozenset[Happened], now: float, gang: str) -> int:
    """Count what pods of other namespaces have caused: a team must not spare itself by it."""
    own = f"{gang.partition('/')[0]}/"
    recent = (
        episode for episode in history if episode.what in kinds and now - DAY < episode.time <= now
    )
    return sum(not episode.by.startswith(own) for episode in recent)


def find_eviction(history: Iterable[Episode]) -> Episode | None:
    """Return the last eviction of members."""
    evictions = {str(happened) for happened in _EVICTIONS}
    return max((episode for episode in history if episode.what in evictions), default=None)
