"""Records of decisions in memory: what is kept where no file is named, until the process ends.

So many records and bytes, the newest; of units that are not over always the last few, as long as
bytes allow: there may be any number of units. One thread takes records in, others read meanwhile.
Knows no usage, which is worth nothing without a past.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditAnalysis, AuditScope
from koord.answers.envelope import AnswerGap, GapCause
from koord.core.usage.segments import Window
from koord.store.analysis import RECORDS, StoredAnalysis
from koord.store.codec import Codec
from koord.store.reading import MOST_OF_NO_UNIT, MOST_TRACES, WHOLE, Bounds, Document, Scan
from koord.store.reading import StoreExtent as Extent
from koord.store.rows import ClosedRow, RecordRow, close_line, parse_line, read_document
from koord.store.schema import DICTIONARY
from koord.store.writing import Appended, FeedPosition, follow_term

MOST_RECORDS: Final = 50_000
MOST_BYTES: Final = 64 << 20
KEPT_OF_LIVING: Final = 16
MOST_NAMES_EACH: Final = 2048
"""Names of one unit, those of its pods among them."""
_ROW_BYTES: Final = 400
"""What a record takes beside its body, about."""
_NAME_BYTES: Final = 300

_Key = tuple[int, int]
"""Term and number of a record."""
_Name = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True)
class _KeptRecord:
    key: _Key
    at: int
    trace: str
    namespace: str
    body: bytes


@dataclass(slots=True)
class _UnitRecords:
    """The records of a unit, oldest first, and when it was over."""

    first: int
    over: int | None = None
    rows: deque[_KeptRecord] = field(default_factory=deque)
    names: set[_Name] = field(default_factory=set)


class MemoryStore:
    """All records; ``clock`` returns seconds since the epoch."""

    def __init__(
        self,
        most_records: int = MOST_RECORDS,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most_records, self._most_bytes = most_records, most_bytes
        self._codec = Codec(DICTIONARY)
        self._lock = Lock()
        self._newest: OrderedDict[_Key, _KeptRecord] = OrderedDict()
        self._of_living: OrderedDict[_Key, _KeptRecord] = OrderedDict()
        """Older than the newest ones, and among the last of a unit that goes on."""
        self._units: dict[str, _UnitRecords] = {}
        self._by_name: dict[_Name, dict[str, None]] = {}
        self._position: FeedPosition | None = None
        self._bytes = 0
        self._since = int(clock() * 1000)
        """From when on all records are here."""
        self._has_begun = False
        self.counts = Appended()
        self._writer = ThreadPoolExecutor(1, "records")

    # --- for whoever reads the feed ------------------------------------------------------------

    def append(self, term: int, holder: str, lines: Iterable[bytes]) -> "Future[Appended]":
        """Take in records of a leader, in their order."""
        kept = tuple(lines)
        return self._writer.submit(lambda: self._append(term, holder, kept))

    def read_position(self) -> "Future[FeedPosition | None]":
        """Return up to where the feed was read."""
        return self._writer.submit(lambda: self._position)

    def close(self) -> None:
        self._writer.shutdown(wait=False, cancel_futures=True)

    def _append(self, term: int, holder: str, lines: tuple[bytes, ...]) -> Appended:
        position, end = follow_term(self._position, term, holder)
        appended = Appended()
        rows = [] if end is None else [end]
        for line in lines:
            try:
                row = replace(parse_line(line), term=position.place)
            except ValueError:
                appended.invalid += 1
                continue
            if row.seq > position.seq:
                position = replace_position(position, row)
                rows.append(row)
        bodies = [self._codec.deflate(row.line) for row in rows]
        with self._lock:
            for row, body in zip(rows, bodies, strict=True):
                self._insert(row, body)
            self._position = position
        appended.written = len(rows)
        self.counts = Appended(
            self.counts.written + appended.written, self.counts.invalid + appended.invalid
        )
        return appended

    # --- what is kept, under the lock ----------------------------------------------------------

    def _insert(self, record: RecordRow, body: bytes) -> None:
        row = _KeptRecord(
            (record.term, record.seq), record.at, record.trace, record.namespace, body
        )
        self._since = self._since if self._has_begun else record.at
        self._has_begun = True
        self._newest[row.key] = row
        self._bytes += _size_of(row)
        if record.trace:
            self._add_to_unit(record, row)
        if record.closed is not None:
            self._close((record.term, record.closed.seq), record.trace, record.closed)
        while len(self._newest) > self._most_records:
            self._leave(self._newest.popitem(last=False)[1])
        while self._bytes > self._most_bytes and (oldest := self._of_living or self._newest):
            self._drop(oldest.popitem(last=False)[1])

    def _add_to_unit(self, record: RecordRow, row: _KeptRecord) -> None:
        unit = self._units.setdefault(record.trace, _UnitRecords(record.at))
        unit.rows.append(row)
        unit.over = record.at if record.is_over else None
        for name in record.names:
            pair = name.namespace, name.name
            if pair not in unit.names and len(unit.names) < MOST_NAMES_EACH:
                unit.names.add(pair)
                self._by_name.setdefault(pair, {})[record.trace] = None
                self._bytes += _NAME_BYTES
        while unit.rows[0].key in self._of_living and (
            unit.over is not None or len(unit.rows) > KEPT_OF_LIVING
        ):
            self._drop(self._of_living.pop(unit.rows[0].key))

    def _close(self, key: _Key, trace: str, closed: ClosedRow) -> None:
        """Put the last numbers of a refusal into its record."""
        row = self._newest.get(key) or self._of_living.get(key)
        if row is not None and row.trace == trace:
            self._bytes -= len(row.body)
            row.body = self._codec.deflate(close_line(self._codec.inflate(row.body), closed))
            self._bytes += len(row.body)

    def _leave(self, row: _KeptRecord) -> None:
        """Keep a record that is not of the newest any more, or drop it."""
        unit = self._units.get(row.trace)
        if unit is not None and unit.over is None and len(unit.rows) <= KEPT_OF_LIVING:
            self._of_living[row.key] = row
        else:
            self._drop(row)

    def _drop(self, row: _KeptRecord) -> None:
        self._bytes -= _size_of(row)
        self._since = max(self._since, row.at + 1)
        unit = self._units.get(row.trace)
        if unit is None:
            return
        unit.rows.popleft()  # records go in the order in which they came
        if unit.rows:
            return
        del self._units[row.trace]
        self._bytes -= _NAME_BYTES * len(unit.names)
        for name in unit.names:
            traces = self._by_name[name]
            del traces[row.trace]
            if not traces:
                del self._by_name[name]

    # --- reading, in any thread ----------------------------------------------------------------

    def records(self, window: Window, bounds: Bounds = WHOLE) -> Scan[Document]:
        """Return the records of a range of time by (term, seq); of too many the newest."""
        with self._lock:
            since = max(window.start, self._since)
            rows = [row for row in self._all() if window.start <= row.at < window.end]
        return self._decode(rows, since, bounds)

    def story(self, namespace: str, name: str, bounds: Bounds = WHOLE) -> Scan[Document]:
        """Return the records of the latest units of a name, and those about no unit since then."""
        with self._lock:
            traces = self._by_name.get((namespace, name), {})
            latest = sorted(traces, key=lambda trace: self._units[trace].rows[-1].at)
            rows = [row for trace in latest[-MOST_TRACES:] for row in self._units[trace].rows]
            since, first = self._since, min((row.at for row in rows), default=1 << 62)
            of_none = [row for row in self._newest.values() if not row.trace and row.at >= first]
        return self._decode([*rows, *of_none[-MOST_OF_NO_UNIT:]], since, bounds)

    def analyse(self, window: Window, scope: AuditScope) -> StoredAnalysis:
        """Return the report of a range of time, as far as its records are here."""
        with self._lock:
            start = min(max(window.start, self._since), window.end)
            carried = {
                trace
                for trace, unit in self._units.items()
                if unit.first < start and (unit.over is None or unit.over >= start)
            }
            rows = [row for row in self._all() if row.at >= start or row.trace in carried]
        analysis = AuditAnalysis(Window(start, window.end), scope)
        analysis.add_all(self._decode(rows, start, WHOLE).rows)
        gaps = find_forgotten(start) if start > window.start else ()
        return StoredAnalysis(analysis.report(window.end), gaps)

    @property
    def extent(self) -> Extent:
        """What there is; ``first`` is from when on all of it is."""
        with self._lock:
            count, since = len(self._newest) + len(self._of_living), self._since
            last = next(reversed(self._newest.values()), None)
            size = self._bytes
        is_empty = last is None
        return Extent(
            count, None if is_empty else since, None if last is None else last.at, 0, size, since
        )

    def _all(self) -> Iterable[_KeptRecord]:
        return [*self._of_living.values(), *self._newest.values()]

    def _decode(self, rows: list[_KeptRecord], since: int, bounds: Bounds) -> Scan[Document]:
        """Return documents in order; those of the newest rows if there are too many."""
        until, is_whole = time.monotonic() + bounds.seconds, True
        chosen: list[tuple[_Key, int, Document]] = []
        for row in sorted(rows, key=lambda row: row.at, reverse=True):
            if len(chosen) >= bounds.rows or time.monotonic() >= until:
                is_whole, since = False, max(since, chosen[-1][1] if chosen else since)
                break
            document = read_document(self._codec.inflate(row.body))
            chosen.append((row.key, row.at, document))
        chosen.sort(key=lambda row: row[0])
        return Scan(tuple(document for _, _, document in chosen), since, is_whole)


def find_forgotten(since: int) -> tuple[AnswerGap, ...]:
    """Return the gap of what was before the first record that is here."""
    before = f"what was before {to_text(since)}"
    return (AnswerGap(RECORDS, GapCause.NOT_STORED, before),)


def replace_position(position: FeedPosition, row: RecordRow) -> FeedPosition:
    return FeedPosition(position.term, position.holder, position.place, row.seq, row.at)


def _size_of(row: _KeptRecord) -> int:
    return len(row.body) + _ROW_BYTES
