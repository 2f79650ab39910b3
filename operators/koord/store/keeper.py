"""The store as a process holds it: one thread writes, a batch per second.

Whoever hands something over gets a future, and what is not written yet waits in memory, within a
bound. If the disk is full or fails, nothing is lost by that: the batch is written when there is
room again, and meanwhile whoever waits for the future reads no further. Reads go on.
"""

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final, Self, TypeVar

from koord.core.usage.segments import Segment
from koord.isolation import must_end
from koord.store import retention
from koord.store.database import (
    MOST_JOURNAL_BYTES,
    describe_error,
    measure_bytes,
    measure_journal,
    open_for_writing,
    read_codec,
)
from koord.store.errors import (
    StoreBusyError,
    StoreError,
    StoreInUseError,
    StoreUnusableError,
)
from koord.store.lock import RENEW_SECONDS, WriterLock
from koord.store.retention import Keep
from koord.store.writing import Appended, FeedPosition, StoreWriter

T = TypeVar("T")

log = logging.getLogger(__name__)

BATCH_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 10.0
"""After a batch could not be written."""
MOST_WAITING: Final = 64
"""Orders that wait; the feed hands over one at a time."""
MOST_HELD_UP_BYTES: Final = 1 << 30
"""Of the journal while somebody reads what was before; then nothing more is written."""
CLEANING_SECONDS: Final = 60.0
"""How often days are looked for that are to be removed."""
_FULL: Final = "more than the bytes that it may take, all of them of today"
_HELD_UP: Final = "the journal beside it grows, because somebody has been reading for long"
_NOT_OF_ORDERS: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)
"""Errors of what was to be written; all others are of the file, or of the disk."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How a store is. ``problem`` is empty if it is written; ``since`` are milliseconds."""

    problem: str = ""
    since: int | None = None
    failures: int = 0
    """Batches that could not be written, each time that it was tried."""
    refused: int = 0
    """Orders that were not taken because too many waited."""
    records: int = 0
    """Records that were written by this process."""
    invalid: int = 0
    """Lines that were no records."""
    late: int = 0
    """Records of days that had been removed."""
    bytes: int = 0


@dataclass(slots=True)
class _StoreOrder:
    run: Callable[[StoreWriter], Any]
    future: "Future[Any]" = field(default_factory=Future)


class RecordStore:
    """Writes the file at ``path``; ``holder`` names the process. ``close`` or ``with`` ends it.

    Raises ``StoreUnusableError`` and ``StoreInUseError``. ``clock`` returns seconds.
    """

    def __init__(
        self,
        path: Path,
        holder: str,
        keep: Keep | None = None,
        clock: Callable[[], float] = time.time,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        self.path, self._keep, self._clock = path, keep or Keep(), clock
        self._batch_seconds = batch_seconds
        self.connection = open_for_writing(path)
        self._lock = WriterLock(path, holder)
        try:
            self._lock.take(self.connection, self._now())
            self._writer = StoreWriter(self.connection, read_codec(self.connection))
        except BaseException as error:
            self.connection.close()
            if isinstance(error, sqlite3.Error):
                problem = describe_error(error)
                raise StoreUnusableError(f"{path} cannot be used: {problem}") from error
            raise
        self._orders: deque[_StoreOrder] = deque()
        self._changed = Condition()
        self._is_hurried = self._is_closing = False
        self._cleaned_at = self._renewed_at = float("-inf")
        self._has_more_to_remove = False
        self._problem, self._since = "", 0
        self._failures = self._refused = self._bytes = 0
        self._counts = Appended()
        self._thread = Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for those who have something to keep ------------------------------------------------

    def append(self, term: int, holder: str, lines: Iterable[bytes]) -> "Future[Appended]":
        """Write records of a leader, in their order; done once they are on the disk."""
        kept = tuple(lines)

        def write(writer: StoreWriter) -> Appended:
            return writer.append(term, holder, kept)

        return self.submit(write)

    def put_segments(self, segments: Iterable[Segment]) -> "Future[None]":
        """Write segments, open ones and closed ones; the same uid and start replaces."""
        kept = tuple(segments)

        def write(writer: StoreWriter) -> None:
            writer.segments.put(kept)

        return self.submit(write)

    def rebuild_hours(self) -> "Future[None]":
        """Make the sums by hour anew."""
        return self.submit(lambda writer: writer.segments.rebuild_hours())

    def read_position(self) -> "Future[FeedPosition | None]":
        """Return up to where the feed was read, once all that waits is written."""
        return self.submit(lambda writer: writer.read_position())

    def submit(self, run: Callable[[StoreWriter], T]) -> "Future[T]":
        """Have something done in the next transaction. Raises ``StoreBusyError``, ``StoreError``.

        It may run again if that fails.
        """
        order = _StoreOrder(run)
        with self._changed:
            if self._is_closing:
                raise StoreError(self._problem or f"{self.path} is closed")
            if len(self._orders) >= MOST_WAITING:
                self._refused += 1
                raise StoreBusyError(self._problem or f"{self.path} is not written fast enough")
            self._orders.append(order)
            self._changed.notify_all()
        return order.future

    def flush(self) -> None:
        """Wait until what was handed over so far is written, or cannot be."""
        with self._changed:
            waiting, failures = [order.future for order in self._orders], self._failures
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: all(map(Future.done, waiting)) or self._failures > failures
            )

    def close(self) -> None:
        """Write what waits, once, and end the thread."""
        with self._changed:
            self._is_closing = self._is_hurried = True
            self._changed.notify_all()
        self._thread.join()
        self._lock.give_back(self.connection)
        self.connection.close()

    @property
    def health(self) -> StoreHealth:
        counts = self._counts
        return StoreHealth(
            self._problem,
            self._since if self._problem else None,
            self._failures,
            self._refused,
            counts.written,
            counts.invalid,
            counts.late,
            self._bytes,
        )

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            orders = self._collect()
            is_written = self._write(orders)
            if not self._is_closing:
                self._clean()
                if not orders:
                    self._renew()
            with self._changed:
                self._changed.notify_all()
            if self._is_closing and (not is_written or not self._orders):
                self._give_up()
                return

    def _collect(self) -> list[_StoreOrder]:
        """Wait for the next batch: a second after the last one, or longer if that failed."""
        pause = RETRY_SECONDS if self._problem else self._batch_seconds
        until = time.monotonic() + pause
        with self._changed:
            while not self._is_hurried:
                left = until - time.monotonic()
                if left <= 0 and (self._orders or self._is_due()):
                    break
                pause = min(self._seconds_to_cleaning(), self._seconds_to_renewal())
                self._changed.wait(left if left > 0 else pause)
            self._is_hurried = False
            return list(self._orders)

    def _is_due(self) -> bool:
        return min(self._seconds_to_cleaning(), self._seconds_to_renewal()) <= 0

    def _seconds_to_cleaning(self) -> float:
        pause = self._batch_seconds if self._has_more_to_remove else CLEANING_SECONDS
        return max(0.0, self._cleaned_at + pause - time.monotonic())

    def _seconds_to_renewal(self) -> float:
        return max(0.0, self._renewed_at + RENEW_SECONDS - time.monotonic())

    def _write(self, orders: list[_StoreOrder]) -> bool:
        if not orders:
            return True
        try:
            if retention.is_too_large(self.connection, self._keep, self._now()):
                raise sqlite3.OperationalError(_FULL)
            self._shorten_journal()
            results = self._transact(lambda: [self._try(order) for order in orders])
        except sqlite3.Error as error:
            self._fail(describe_error(error))
            return False
        except StoreInUseError as error:
            self._fail(str(error))
            self._is_closing = True
            return False
        self._problem = ""
        with self._changed:
            for _ in orders:
                self._orders.popleft()
        for order, result in zip(orders, results, strict=True):
            self._count(result)
            with suppress(InvalidStateError):  # whoever asked does not wait any more
                if isinstance(result, Exception):
                    order.future.set_exception(result)
                else:
                    order.future.set_result(result)
        return True

    def _shorten_journal(self) -> None:
        """Empty a journal that readers have let grow; refuse to write while that cannot be done."""
        if measure_journal(self.path) <= MOST_JOURNAL_BYTES:
            return
        is_held_up, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        most = min(self._keep.most_bytes, MOST_HELD_UP_BYTES)
        if is_held_up and measure_journal(self.path) > most:
            raise sqlite3.OperationalError(_HELD_UP)

    def _renew(self) -> None:
        """Show that this process still writes, also if there is nothing to be written."""
        if self._seconds_to_renewal() > 0:
            return
        try:
            self._transact(lambda: None)
        except sqlite3.Error as error:
            self._fail(describe_error(error))
        except StoreInUseError as error:
            self._fail(str(error))
            self._is_closing = True

    def _transact(self, run: Callable[[], T]) -> T:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            self._lock.check(self.connection, self._now())
            result = run()
            self.connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have ended it already
                self.connection.execute("ROLLBACK")
            raise
        self._renewed_at = time.monotonic()
        return result

    def _try(self, order: _StoreOrder) -> object:
        """Return what an order does, or why it cannot; it alone is then undone."""
        self.connection.execute("SAVEPOINT order_")
        try:
            result = order.run(self._writer)
        except Exception as error:
            is_of_file = isinstance(error, sqlite3.Error) and not isinstance(error, _NOT_OF_ORDERS)
            if is_of_file or must_end(error):
                raise
            self.connection.execute("ROLLBACK TO order_")
            self.connection.execute("RELEASE order_")
            return error
        self.connection.execute("RELEASE order_")
        return result

    def _count(self, result: object) -> None:
        if isinstance(result, Appended):
            counts = self._counts
            self._counts = Appended(
                counts.written + result.written,
                counts.invalid + result.invalid,
                counts.late + result.late,
            )

    def _fail(self, problem: str) -> None:
        is_new, self._problem = not self._problem, problem
        if is_new:
            self._since = self._now()
            log.warning("Cannot write the store", extra={"file": str(self.path), "why": problem})
        self._failures += 1  # last: whoever waits for it reads the rest

    def _give_up(self) -> None:
        with self._changed:
            orders, self._is_closing = list(self._orders), True
            self._orders.clear()
        for order in orders:
            with suppress(InvalidStateError):
                order.future.set_exception(StoreError(self._problem or f"{self.path} is closed"))

    def _clean(self) -> None:
        """Remove some rows of days that are not kept; those that waited longest come first."""
        if not self._is_due():
            return
        self._cleaned_at, now = time.monotonic(), self._now()

        def clean() -> int:
            floor = retention.find_floor(self.connection, self._keep, now)
            retention.set_floor(self.connection, floor)
            return retention.remove_some(self.connection, now)

        try:
            self._has_more_to_remove = self._transact(clean) > 0
            self._bytes = measure_bytes(self.connection) + measure_journal(self.path)
        except sqlite3.Error as error:
            self._fail(describe_error(error))
        except StoreInUseError as error:
            self._fail(str(error))

    def _now(self) -> int:
        return int(self._clock() * 1000)
