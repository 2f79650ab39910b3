"""How long units of a queue ran, by kind: what the next one of the kind is expected to take.

Bounded, and each user has his part. Nothing here knows pods, or where it is kept.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.queue.kinds_of_users import KindsOfUsers
from koord.core.queue.run_time import Estimate

MOST_KINDS: Final = 1000
"""Kinds of a queue that are remembered."""
WRITTEN_KINDS: Final = 200
"""Of those the most that a restart need not find again among pods that have ended."""
MOST_RUNS: Final = 8
"""Runs that are remembered of a kind."""
ENOUGH_RUNS: Final = 3
RECENT_RUNS: Final = 2
"""Of so many the mean is expected: recent runs tell more than all of them."""
LEAST_SECONDS: Final = 60
"""Shorter runs that failed tell nothing."""

COUNTED_PARTS: Final = 100
"""Runs of a user of which it is remembered what part of their limits they took."""
ENOUGH_PARTS: Final = 3
MOST_LINES: Final = 1000
"""Users of queues that are remembered: who ran nothing for longest is forgotten."""

RunKind: TypeAlias = tuple[str, str]
"""User, and what his runs of one kind share."""
UserLine: TypeAlias = tuple[str, str]
"""Queue, user."""


@dataclass(frozen=True, slots=True)
class KindRecord:
    """What is remembered of one kind; ``ended`` is when its last run had, since the epoch."""

    user: str
    kind: str
    seconds: tuple[int, ...]
    ended: int


class RunHistory:
    """The runs of one queue."""

    def __init__(self, records: Iterable[KindRecord] = ()) -> None:
        self._records: dict[RunKind, KindRecord] = {}
        self._kinds = KindsOfUsers()
        for record in sorted(records, key=lambda record: (record.ended, record.user, record.kind)):
            self._keep(record)
        self._before = {kind: record.ended for kind, record in self._records.items()}
        """Up to when runs were counted before a restart."""

    def note(self, kind: RunKind, seconds: int, ended: int, *, has_failed: bool) -> bool:
        """Remember a run; whether that was new."""
        if seconds <= 0 or (has_failed and seconds < LEAST_SECONDS):
            return False
        if ended <= self._before.get(kind, 0):
            return False
        before = self._records.get(kind)
        durations = (*(before.seconds if before else ()), seconds)[-MOST_RUNS:]
        self._keep(KindRecord(*kind, durations, max(ended, before.ended if before else 0)))
        return True

    def estimate(self, kind: RunKind) -> Estimate | None:
        """Return what the next run of a kind is expected to take; None: none has ended."""
        record = self._records.get(kind)
        if record is None:
            return None
        recent = record.seconds[-RECENT_RUNS:]
        is_enough = len(record.seconds) >= ENOUGH_RUNS
        return Estimate(-(-sum(recent) // len(recent)), 2 * max(record.seconds), is_enough)

    def records(self) -> Iterator[KindRecord]:
        """Yield what is worth most of what is remembered, in a fixed order."""
        for user, kinds in sorted(self._kinds.choose(WRITTEN_KINDS).items()):
            for kind in sorted(kinds):
                yield self._records[user, kind]

    def _keep(self, record: KindRecord) -> None:
        key = record.user, record.kind
        self._records[key] = record
        # What ran once may never come again.
        self._kinds.put(*key, (len(record.seconds) > 1, record.ended, record.kind))
        if len(self._records) > MOST_KINDS:
            del self._records[self._kinds.take_least(key)]


class PartsOfLimits:
    """What part of their limits the last runs took, by queue and user, whatever their kinds.

    Limits are set far above what runs take, so they say when something has ended at the latest, and
    little of when it is expected to. What goes on is none of those that had ended by then. What is
    not there any more is forgotten by a restart.
    """

    def __init__(self) -> None:
        self._parts: dict[UserLine, deque[int]] = {}
        """Queue, user -> parts in percent, rounded up; who ran something last is the last."""
        self._sorted: dict[UserLine, list[int]] = {}

    def note(self, line: UserLine, seconds: int, limit: int, *, has_failed: bool) -> None:
        """Remember a run with a limit."""
        if seconds <= 0 or (has_failed and seconds < LEAST_SECONDS):
            return
        parts = self._parts.pop(line, None)
        self._parts[line] = deque(maxlen=COUNTED_PARTS) if parts is None else parts
        self._parts[line].append(min(100, max(1, -(-100 * seconds // max(limit, 1)))))
        self._sorted.pop(line, None)
        if len(self._parts) > MOST_LINES:
            forgotten = next(iter(self._parts))
            del self._parts[forgotten]
            self._sorted.pop(forgotten, None)

    def expected_percent(self, line: UserLine, limit: int, ran: int = 0) -> int:
        """Return what part of its limit a run is expected to take that goes on after ``ran``.

        Times are in seconds. It is all, if little is known.
        """
        if line not in self._parts:
            return 100
        if line not in self._sorted:
            self._sorted[line] = sorted(self._parts[line])
        parts = self._sorted[line]
        first = bisect_right(parts, 100 * ran // max(limit, 1))
        lasting = len(parts) - first
        return parts[first + lasting // 2] if lasting >= ENOUGH_PARTS else 100
