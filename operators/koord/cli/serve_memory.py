"""What ``koord serve`` keeps without a file: the last records of decisions, in its memory.

They are read from the feed of the leader, where it serves one. Knows no cluster and no HTTP.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import Subject
from koord.cli.serve_store import BEHIND_SECONDS, BOUNDS, Find, Look, find_late
from koord.core.usage.segments import Window
from koord.see.series import StoreSeries, StoreStanding
from koord.see.start_series import StartedSeries
from koord.store.analysis import RECORDS, StoredAnalysis
from koord.store.feed import FeedFollower
from koord.store.keeper import StoreHealth
from koord.store.memory import MemoryStore, find_forgotten
from koord.store.reading import DEFAULT_MS, Document, Scan


class ServedMemory:
    """Records in memory; ``run`` reads the feed until it is cancelled."""

    read_usage = None
    """What was held before is not kept."""

    def __init__(self, records: MemoryStore | None = None) -> None:
        self._records = records or MemoryStore()
        self._follower: FeedFollower[MemoryStore] | None = None
        self.starts = StartedSeries(int(time.time() * 1000))
        self.series = StoreSeries(lambda: self._standing, lambda: self._records.extent)

    async def run(
        self, find: Find, _: Look | None, headers: Callable[[], Mapping[str, str]]
    ) -> NoReturn:
        """Read until cancelled; what fails is tried again."""
        follower = self._follower = FeedFollower(self._records, find, headers, self.starts.read)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(follower.run())
                tasks.create_task(self.series.run())
        finally:
            self._records.close()
        raise AssertionError("both go on for ever")

    def find_trouble(self) -> tuple[()]:
        """Nothing is written that could fail."""
        return ()

    @property
    def feed_problem(self) -> str:
        """Why records of now are not read; empty if they are."""
        follower = self._follower
        if follower is None:
            return "it is not read yet"
        is_behind = follower.behind_seconds > BEHIND_SECONDS
        return follower.problem or ("what the leader records comes late" if is_behind else "")

    @property
    def _standing(self) -> StoreStanding:
        counts, follower = self._records.counts, self._follower
        health = StoreHealth(records=counts.written, invalid=counts.invalid)
        behind = float("inf") if follower is None else follower.behind_seconds
        return StoreStanding(is_written=True, failures=0, health=health, feed_seconds=behind)

    def read_story(self, subject: Subject) -> tuple[tuple[Document, ...], tuple[AnswerGap, ...]]:
        """Return the records of an object."""
        scan = self._records.story(subject.namespace, subject.name, BOUNDS)
        return scan.rows, self._find_gaps(scan, 0)

    def list_records(self) -> tuple[tuple[Document, ...], tuple[AnswerGap, ...]]:
        """Return the records of the last day, the newest if there are many."""
        end = int(time.time() * 1000)
        scan = self._records.records(Window(end - DEFAULT_MS, end), BOUNDS)
        return scan.rows, self._find_gaps(scan, end - DEFAULT_MS)

    def analyse(self, seconds: int, scope: AuditScope) -> StoredAnalysis:
        """Return where time went in the last seconds."""
        end = int(time.time() * 1000)
        stored = self._records.analyse(Window(end - seconds * 1000, end), scope)
        return StoredAnalysis(stored.report, (*stored.gaps, *find_late(self.feed_problem)))

    def _find_gaps(self, scan: Scan[Document], start: int) -> tuple[AnswerGap, ...]:
        gaps: tuple[AnswerGap, ...] = find_forgotten(scan.since) if scan.since > start else ()
        if not scan.is_whole:
            gaps = (AnswerGap(RECORDS, GapCause.TOO_EXPENSIVE, gaps[0].unknown),)
        return (*gaps, *find_late(self.feed_problem))
