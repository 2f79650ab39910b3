"""The store of ``koord serve``: kept open, written from the feed and from looks, and read.

Whatever goes wrong with it is said and tried again, and keeps nobody from other answers: so a new
process may start while the one before it still writes the file. Knows no cluster and no HTTP.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import Subject
from koord.answers.health import HealthFinding, Severity, SickSubject
from koord.core.usage.book import UsageBook
from koord.core.usage.levels import UsageLook
from koord.core.usage.segments import Window
from koord.see.series import StoreSeries, StoreStanding
from koord.see.start_series import StartedSeries
from koord.store.analysis import RECORDS, StoredAnalysis, analyse_store
from koord.store.errors import StoreBusyError, StoreError
from koord.store.feed import FeedAddress, FeedFollower
from koord.store.keeper import RecordStore, StoreHealth
from koord.store.reading import DEFAULT_MS, Bounds, Document, Scan, StoreReader
from koord.store.retention import Keep
from koord.store.usage_reading import UsageReader
from koord.store.usage_recording import UsageRecorder

Find = Callable[[], Awaitable[FeedAddress]]
Look = Callable[[], Awaitable[UsageLook | None]]
"""Returns what pods, quotas and the cluster hold now; None if that is not known."""

HOLDER: Final = "koord serve"
LOOK_SECONDS: Final = 55.0
"""Between two looks: they and what writing takes are within the minute that a crash may lose."""
_FIRST_SECONDS: Final = 1.0
"""Between two tries of the first look."""
_RETRY_SECONDS: Final = 10.0
"""After the store could not be opened, or was lost."""
KEPT_SECONDS: Final = 60.0
"""How long a report is the answer to the same question."""
_DO_THIS: Final = "see whether its volume is there, is full, or is written by another process"
_MOST_KEPT: Final = 16
_LATELY_SECONDS: Final = 2.0
"""How long the records of the last day are those of now."""
_MOST_BOOKS: Final = 2
BOUNDS: Final = Bounds(20_000, 0.5)
"""Of what is read while others wait for their answers."""
BEHIND_SECONDS: Final = 30.0
"""From when on a feed that is not read to its end is a gap."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServedStore:
    """The store at ``path``; ``run`` writes it until it is cancelled."""

    path: Path
    keep: Keep
    _store: RecordStore | None = None
    _follower: FeedFollower[RecordStore] | None = None
    _problem: str = "it is not open yet"
    _since: float = field(default_factory=time.time)
    _failures: int = 0
    """Of this process, without those of the store that is open."""
    series: StoreSeries = field(init=False)
    starts: StartedSeries = field(default_factory=lambda: StartedSeries(int(time.time() * 1000)))
    _lately: tuple[float, tuple[Document, ...], tuple[AnswerGap, ...]] | None = None
    _reports: OrderedDict[tuple[int, AuditScope], tuple[float, StoredAnalysis]] = field(
        default_factory=OrderedDict
    )
    _books: OrderedDict[tuple[int, int, int], UsageBook] = field(default_factory=OrderedDict)
    """By begin and end of the period, and the minute in which it was read."""

    def __post_init__(self) -> None:
        self.series = StoreSeries(lambda: self.standing, StoreReader(self.path).extent)

    @property
    def problem(self) -> str:
        """Why nothing is written now; empty if it is."""
        store = self._store
        return self._problem if store is None else store.health.problem

    @property
    def since(self) -> float:
        """Since when there is a problem, in seconds since the epoch."""
        health = None if self._store is None else self._store.health
        return self._since if health is None or health.since is None else health.since / 1000

    def find_trouble(self) -> tuple[HealthFinding, ...]:
        """Return what is wrong with the store, for people."""
        problem = self.problem
        if not problem:
            return ()
        subject = SickSubject("Store", str(self.path))
        message = f"decisions and usage are not kept: {problem}"
        return (
            HealthFinding(subject, "NotWritten", Severity.ERROR, message, _DO_THIS, self.since),
        )

    @property
    def failures(self) -> int:
        """How often something could not be written, or the file not be opened."""
        store = self._store
        if store is None:
            return self._failures
        return self._failures + store.health.failures + store.health.refused

    @property
    def standing(self) -> StoreStanding:
        """How it is, for its series."""
        store, follower = self._store, self._follower
        return StoreStanding(
            not self.problem,
            self.failures,
            StoreHealth() if store is None else store.health,
            float("inf") if follower is None else follower.behind_seconds,
        )

    @property
    def feed_problem(self) -> str:
        """Why records of now are not read; empty if they are."""
        follower = self._follower
        if follower is None:
            return self._problem
        is_behind = follower.behind_seconds > BEHIND_SECONDS
        return follower.problem or ("what the leader records comes late" if is_behind else "")

    # --- writing ---------------------------------------------------------------------------------

    async def run(
        self, find: Find, look: Look, headers: Callable[[], Mapping[str, str]]
    ) -> NoReturn:
        """Write until cancelled; what fails is tried again."""
        while True:
            try:
                with RecordStore(self.path, HOLDER, self.keep) as store:
                    await self._write(
                        store, FeedFollower(store, find, headers, self.starts.read), look
                    )
            except StoreError as error:
                self._fail(str(error))
            except Exception:
                log.exception("Writing the store failed")
                self._fail("it cannot be written; the log says more")
            await asyncio.sleep(_RETRY_SECONDS)

    def _fail(self, problem: str) -> None:
        if problem != self._problem:
            self._problem, self._since = problem, time.time()
            log.warning("Cannot use the store", extra={"file": str(self.path), "why": problem})
        self._failures += 1

    async def _write(
        self, store: RecordStore, follower: FeedFollower[RecordStore], look: Look
    ) -> None:
        """Write until that is not possible any more; raises why."""
        self._store, self._follower = store, follower
        log.info("The store is open", extra={"file": str(self.path)})
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(follower.run())
                tasks.create_task(_record_usage(store, look))
                tasks.create_task(self.series.run())
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            self._failures, self._store, self._follower = self.failures, None, None
            self._problem, self._since = "it is closed", time.time()

    # --- reading, in any thread but one at a time ------------------------------------------------

    def read_story(self, subject: Subject) -> tuple[tuple[Document, ...], tuple[AnswerGap, ...]]:
        """Return the records of an object. Raises ``StoreError``."""
        scan = StoreReader(self.path).story(subject.namespace, subject.name, bounds=BOUNDS)
        return scan.rows, self._find_gaps(scan, scan.since)

    def list_records(self) -> tuple[tuple[Document, ...], tuple[AnswerGap, ...]]:
        """Return the records of the last day, the newest if there are many. Raises StoreError.

        For everybody who asks within seconds they are read once.
        """
        now = time.monotonic()
        if self._lately is None or self._lately[0] < now:
            end = int(time.time() * 1000)
            window = Window(end - DEFAULT_MS, end)
            scan = StoreReader(self.path).records(window, bounds=BOUNDS)
            self._lately = now + _LATELY_SECONDS, scan.rows, self._find_gaps(scan, window.start)
        return self._lately[1:]

    def analyse(self, seconds: int, scope: AuditScope) -> StoredAnalysis:
        """Return where time went in the last seconds. Raises ``StoreError``."""
        key, now = (seconds, scope), time.monotonic()
        until, kept = self._reports.get(key, (0.0, None))
        if kept is None or until < now:
            end = int(time.time() * 1000)
            kept = analyse_store(self.path, Window(end - seconds * 1000, end), scope)
            self._reports[key] = (now + KEPT_SECONDS, kept)
            self._reports.move_to_end(key)
            if len(self._reports) > _MOST_KEPT:
                self._reports.popitem(last=False)
        return StoredAnalysis(kept.report, (*kept.gaps, *self._find_late()))

    def read_usage(self, window: Window) -> UsageBook:
        """Return what was held in a period, as of a minute ago at most. Raises ``StoreError``."""
        minute = int(time.time() // KEPT_SECONDS)
        # That of a month of many jobs is large: of different ones few are kept.
        key = (window.start, window.end // int(1000 * KEPT_SECONDS), minute)
        book = self._books.get(key)
        if book is None:
            book = self._books[key] = UsageReader(self.path).read(window)
            if len(self._books) > _MOST_BOOKS:
                self._books.popitem(last=False)
        return book

    def _find_gaps(self, scan: Scan[Document], since: int) -> tuple[AnswerGap, ...]:
        gaps = []
        if not scan.is_whole:
            before = f"what was before {to_text(max(since, scan.since))}"
            gaps.append(AnswerGap(RECORDS, GapCause.TOO_EXPENSIVE, before))
        if scan.damaged:
            what = "what damaged rows of the store said"
            gaps.append(AnswerGap(RECORDS, GapCause.NOT_STORED, what))
        return (*gaps, *self._find_late())

    def _find_late(self) -> tuple[AnswerGap, ...]:
        return find_late(self.problem or self.feed_problem)


def find_late(problem: str) -> tuple[AnswerGap, ...]:
    """Return a gap where what is decided now does not arrive."""
    if not problem:
        return ()
    return (AnswerGap("records of now", GapCause.NO_FEED, "what was decided lately"),)


async def _record_usage(store: RecordStore, look: Look) -> NoReturn:
    """Write what pods hold, look by look. Raises ``StoreError``."""
    recorder = await asyncio.to_thread(UsageRecorder, store)
    has_looked = False
    while True:
        seen = await look()
        if seen is not None:
            try:
                # Comparing thousands of segments takes long: meanwhile answers go on.
                await asyncio.wrap_future(await asyncio.to_thread(recorder.look, seen))
            except StoreBusyError as error:
                log.warning("A look was not written", extra={"why": str(error)})
            has_looked = True
        await asyncio.sleep(LOOK_SECONDS if has_looked else _FIRST_SECONDS)
