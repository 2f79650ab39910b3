"""What is asked of a store. Every scan has a range of time, and ends after so many rows or seconds.

Each question has a connection of its own, so that they may come from any thread and process. A row
that is damaged is counted and left out.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from koord.core.usage.segments import Segment, Window
from koord.store.codec import Codec
from koord.store.database import measure_bytes, open_for_reading, read_codec
from koord.store.days import DAY_MS, read_floor
from koord.store.errors import StoreUnusableError
from koord.store.rows import read_document
from koord.store.segments import HourKey, HourSum, decode_amounts, decode_segment

T = TypeVar("T")
Document = Mapping[str, Any]

MOST_ROWS: Final = 200_000
MOST_SECONDS: Final = 2.0
DEFAULT_MS: Final = DAY_MS
MOST_MS: Final = 31 * DAY_MS
_AT_ONCE: Final = 1000
_STEPS: Final = 10_000
"""Of SQLite, after which the clock is looked at."""
MOST_TRACES: Final = 64
MOST_OF_NO_UNIT: Final = 2000
_RECORDS: Final = "SELECT term, seq, at, body FROM record WHERE at >= ? AND at < ? ORDER BY at DESC"
_RECORDS_OF_ONE: Final = (
    "SELECT term, seq, at, body FROM record WHERE namespace = ? AND at >= ? AND at < ?"
    " ORDER BY at DESC"
)
_CARRIED: Final = (
    "SELECT record.term, record.seq, record.body FROM trace CROSS JOIN record"
    " ON record.trace = trace.trace AND record.at >= ? AND record.at < ?"
    " WHERE trace.first < ? AND (trace.over IS NULL OR trace.over >= ?)"
)
_RANGES: Final = (
    "SELECT term, min(seq), max(seq) FROM record WHERE at >= ? AND at < ?"
    " GROUP BY term ORDER BY term"
)
_FIRST_OF_LAST: Final = (
    "SELECT at FROM record WHERE at >= ? AND at < ? ORDER BY at DESC LIMIT 1 OFFSET ?"
)
_IN_ORDER: Final = (
    "SELECT at, body FROM record WHERE term = ? AND seq BETWEEN ? AND ? AND at >= ? AND at < ?"
    " ORDER BY seq"
)
_UNITS: Final = (
    "SELECT DISTINCT trace.trace FROM name JOIN trace ON trace.trace = name.trace"
    " WHERE name.namespace = ? AND name.name = ? AND (? = '' OR name.kind = ?)"
    " ORDER BY trace.last DESC LIMIT ?"
)
_STORY: Final = (
    "SELECT term, seq, at, body FROM record WHERE trace = ? AND at >= ? ORDER BY at DESC"
)
_OF_NO_UNIT: Final = (
    "SELECT term, seq, body FROM record WHERE namespace = '' AND at >= ? ORDER BY at DESC"
)
_SEGMENTS: Final = "SELECT body FROM segment WHERE until >= ? AND start < ? ORDER BY uid, start"
_SEGMENTS_OF_ONE: Final = (
    "SELECT body FROM segment WHERE namespace = ? AND until >= ? AND start < ? ORDER BY uid, start"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a scan ends. ``rows`` is how many are read at most."""

    rows: int = MOST_ROWS
    seconds: float = MOST_SECONDS


WHOLE: Final = Bounds(1 << 62, float("inf"))
"""For tests and for copies: no bounds."""


@dataclass(frozen=True, slots=True)
class Scan(Generic[T]):
    """What was read, in its order. ``since``: all of the range from then on is in it.

    ``is_whole`` says whether that is the range that was asked for. ``damaged`` rows are left out.
    """

    rows: tuple[T, ...]
    since: int
    is_whole: bool = True
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class StoreExtent:
    """What there is: times of the first and the last record, and how much it takes."""

    records: int
    first: int | None
    last: int | None
    segments: int
    bytes: int
    floor: int


@dataclass(slots=True)
class _Reading:
    """One question: it ends when its time is over."""

    connection: sqlite3.Connection
    bounds: Bounds
    codec: Codec = field(init=False)
    floor: int = field(init=False)
    damaged: int = 0
    is_cut: bool = False
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self.codec, self.floor = read_codec(self.connection), read_floor(self.connection)
        self._until = time.monotonic() + self.bounds.seconds
        self.connection.set_progress_handler(self._is_over, _STEPS)

    def _is_over(self) -> bool:
        return time.monotonic() >= self._until

    def rows(self, query: str, parameters: tuple[object, ...], most: int) -> Iterator[Any]:
        """Yield rows until the bounds are reached."""
        try:
            cursor = self.connection.execute(query, parameters)
            count = 0
            while page := cursor.fetchmany(_AT_ONCE):
                for row in page:
                    if count >= most:
                        self.is_cut = True
                        return
                    count += 1
                    yield row
                if self._is_over():
                    self.is_cut = True
                    return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            self.is_cut = True

    def decode(self, body: bytes, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(self.codec.inflate(body))
        except ValueError:
            self.damaged += 1
            return None


class Visit:
    """The records of a range of time, by (term, seq), after those of units that go on into it.

    If there are more than the bounds allow, the newest count: all since ``since``. If time is over
    before all are read, ``until`` is the time of the last one.
    """

    def __init__(self, reading: _Reading, window: Window) -> None:
        self._reading, self._window = reading, window
        start = max(window.start, reading.floor)
        self.since, self.until = start, window.end
        self._ranges: list[tuple[int, int, int]] = []
        # The newest are counted first: that takes no longer however many there are.
        for (last,) in reading.rows(_FIRST_OF_LAST, (start, window.end, reading.bounds.rows), 1):
            self.since = last + 1
        self._ranges += reading.rows(_RANGES, (self.since, window.end), 1 << 62)
        if reading.is_cut:
            self._ranges, self.since = [], window.end
        self.is_whole = self.since == start

    @property
    def damaged(self) -> int:
        return self._reading.damaged

    def carried(self) -> Iterator[Document]:
        """Yield the records from before of units that were not over then; not all if too many."""
        reading, at = self._reading, self.since
        values = (reading.floor, at, at, at)
        rows = sorted(reading.rows(_CARRIED, values, reading.bounds.rows))
        self.is_whole &= not reading.is_cut
        for _, _, body in rows:
            document = reading.decode(body, read_document)
            if document is not None:
                yield document

    def records(self) -> Iterator[Document]:
        """Yield the records of the range."""
        reading, latest = self._reading, self.since
        for term, first, last in self._ranges:
            values = (term, first, last, self.since, self._window.end)
            for at, body in reading.rows(_IN_ORDER, values, reading.bounds.rows):
                document = reading.decode(body, read_document)
                latest = max(latest, at)
                if document is not None:
                    yield document
            if reading.is_cut:
                self.is_whole, self.until = False, latest
                return


@dataclass(frozen=True, slots=True)
class StoreReader:
    """Reads the file at ``path``. All methods raise ``StoreUnusableError``."""

    path: Path

    def records(
        self,
        window: Window,
        namespace: str = "",
        bounds: Bounds = Bounds(),
    ) -> Scan[Document]:
        """Return the records of a range of time, perhaps of a namespace, by (term, seq).

        If the bounds are reached, the newest are in it.
        """
        with self._open(bounds) as reading:
            start = max(window.start, reading.floor)
            query, first = (_RECORDS_OF_ONE, (namespace,)) if namespace else (_RECORDS, ())
            values = (*first, start, window.end)
            rows: list[tuple[int, int, Document]] = []
            since = start
            for term, seq, at, body in reading.rows(query, values, bounds.rows):
                document = reading.decode(body, read_document)
                if document is not None:
                    rows.append((term, seq, document))
                since = at
            return _make_scan(reading, rows, since if reading.is_cut else start)

    @contextmanager
    def visit(
        self,
        window: Window,
        bounds: Bounds = Bounds(),
    ) -> Iterator[Visit]:
        """Yield all records of a range of time, one by one: for sums over many."""
        with self._open(bounds) as reading:
            yield Visit(reading, window)

    def story(
        self,
        namespace: str,
        name: str,
        kind: str = "",
        bounds: Bounds = Bounds(),
    ) -> Scan[Document]:
        """Return the records of units that have, or had, a name; those of the latest units.

        Since the first of them also those about no unit: terms, gaps, and changes of quotas.
        ``kind``: ``Unit``, ``Pod``, or that of an owner; empty for any.
        """
        with self._open(bounds) as reading:
            floor = reading.floor
            values = (namespace, name, kind, kind, MOST_TRACES)
            names = list(reading.rows(_UNITS, values, MOST_TRACES))
            rows: list[tuple[int, int, Document]] = []
            first = 1 << 62
            for (trace,) in names:
                most = bounds.rows - len(rows)
                for term, seq, at, body in reading.rows(_STORY, (trace, floor), most):
                    document = reading.decode(body, read_document)
                    first = min(first, at)
                    if document is not None:
                        rows.append((term, seq, document))
            if rows:
                for term, seq, body in reading.rows(_OF_NO_UNIT, (first,), MOST_OF_NO_UNIT):
                    document = reading.decode(body, read_document)
                    if document is not None:
                        rows.append((term, seq, document))
            return _make_scan(reading, rows, floor)

    def segments(
        self,
        window: Window,
        namespace: str = "",
        bounds: Bounds = Bounds(),
    ) -> Scan[Segment]:
        """Return the segments that are in a range of time, by (uid, start); they are not cut."""
        with self._open(bounds) as reading:
            query, first = (_SEGMENTS_OF_ONE, (namespace,)) if namespace else (_SEGMENTS, ())
            values = (*first, window.start, window.end)
            return self._read_segments(reading, query, values, window.start)

    def open_segments(self) -> Scan[Segment]:
        """Return those that went on when they were written last."""
        with self._open(WHOLE) as reading:
            query = "SELECT body FROM segment WHERE is_open = 1 ORDER BY uid, start"
            return self._read_segments(reading, query, (), 0)

    def hours(
        self,
        window: Window,
        bounds: Bounds = Bounds(),
    ) -> Scan[HourSum]:
        """Return the sums of closed segments of all hours that begin in a range of time."""
        with self._open(bounds) as reading:
            query = "SELECT * FROM hour WHERE hour >= ? AND hour < ? ORDER BY hour DESC"
            sums: list[HourSum] = []
            for *key, held, estimated, amounts in reading.rows(
                query, (window.start, window.end), bounds.rows
            ):
                decoded = tuple(decode_amounts(amounts).items())
                sums.append(HourSum(HourKey(*key), held, estimated, decoded))
            sums.sort(key=lambda hour: hour.key)
            since = sums[0].key.hour if reading.is_cut and sums else window.start
            return Scan(tuple(sums), since, not reading.is_cut)

    def extent(self) -> StoreExtent:
        """Return what there is."""
        with self._open(WHOLE) as reading:
            floor = reading.floor
            count, first, last = reading.connection.execute(
                "SELECT count(*), min(at), max(at) FROM record WHERE at >= ?", (floor,)
            ).fetchone()
            (segments,) = reading.connection.execute("SELECT count(*) FROM segment").fetchone()
            size = measure_bytes(reading.connection)
            return StoreExtent(count, first, last, segments, size, floor)

    def _read_segments(
        self, reading: _Reading, query: str, values: tuple[object, ...], since: int
    ) -> Scan[Segment]:
        rows = [
            segment
            for (body,) in reading.rows(query, values, reading.bounds.rows)
            if (segment := reading.decode(body, decode_segment)) is not None
        ]
        return Scan(tuple(rows), since, not reading.is_cut, reading.damaged)

    @contextmanager
    def _open(self, bounds: Bounds) -> Iterator[_Reading]:
        with closing(open_for_reading(self.path)) as connection:
            try:
                yield _Reading(connection, bounds)
            except sqlite3.Error as error:
                raise StoreUnusableError(f"{self.path} cannot be read: {error}") from error


def _make_scan(
    reading: _Reading, rows: list[tuple[int, int, Document]], since: int
) -> Scan[Document]:
    rows.sort(key=lambda row: row[:2])
    documents = tuple(document for _, _, document in rows)
    return Scan(documents, since, not reading.is_cut, reading.damaged)
