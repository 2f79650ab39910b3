"""How long units of a queue ran, by kind: what the next one of the kind is expected to take.

Bounded, and each user has his part: whoever has most kinds loses his oldest one. Rules Q19 and
Q21. Nothing here knows pods, or where it is kept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.queue.run_time import Estimate

MOST_KINDS: Final = 200
MOST_RUNS: Final = 8
"""Runs that are remembered of a kind."""
ENOUGH_RUNS: Final = 3
RECENT_RUNS: Final = 2
"""Of so many the mean is expected: recent runs tell more than all of them."""
LEAST_SECONDS: Final = 60
"""Shorter runs that failed tell nothing."""

RunKind: TypeAlias = tuple[str, str]
"""User, and what his runs of one kind share."""


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
        """Return what the next run of a kind is expected to take; None: too little is known."""
        record = self._records.get(kind)
        if record is None or len(record.seconds) < ENOUGH_RUNS:
            return None
        recent = record.seconds[-RECENT_RUNS:]
        return Estimate(-(-sum(recent) // len(recent)), 2 * max(record.seconds))

    def records(self) -> Iterator[KindRecord]:
        """Yield all that is remembered, in a fixed order."""
        for kind in sorted(self._records):
            yield self._records[kind]

    def _keep(self, record: KindRecord) -> None:
        self._records[record.user, record.kind] = record
        if len(self._records) <= MOST_KINDS:
            return
        counts = Counter(user for user, _ in self._records)
        most = max(counts.values())
        greediest = min(user for user, count in counts.items() if count == most)
        oldest = min(
            (kept.ended, kept.kind) for kept in self._records.values() if kept.user == greediest
        )
        del self._records[greediest, oldest[1]]
