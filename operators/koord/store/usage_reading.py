"""What a store knows of a period, as a book: sums by hour, and what goes on.

What is closed is in the hours. Where a period begins or ends within an hour, or for jobs within a
day, that part is read from the segments themselves.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from koord.core.usage.book import (
    BookKey,
    BookSum,
    LossKey,
    OwnerKey,
    UsageBook,
    book_part,
    key_of,
    owner_of,
)
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.quota_time import QuotaTime
from koord.core.usage.segments import Segment, Window
from koord.store.database import open_for_reading, read_codec
from koord.store.days import DAY_MS, HOUR_MS, day_of, read_floor
from koord.store.errors import StoreUnusableError
from koord.store.segments import decode_amounts, decode_segment
from koord.store.usage_sums import IS_LONG, UsageWatch, What, has_table, read_watch

_TREE: Final = "usage_quotas"
_SUMS: Final = (
    "SELECT quota, namespace, user, model, band, sum(held), sum(estimated) FROM hour"
    " WHERE hour >= ? AND hour < ? GROUP BY quota, namespace, user, model, band"
)
_AMOUNTS: Final = (
    "SELECT quota, namespace, user, model, band, amounts FROM hour WHERE hour >= ? AND hour < ?"
)
_NAMES: Final = "quota, namespace, name, part"
_PART: Final = (
    "SELECT until, uid, start, body FROM segment WHERE is_open = 0"
    " AND (until, uid, start) > (?, ?, ?) AND start < ? ORDER BY until, uid, start LIMIT ?"
)
_AT_ONCE: Final = 2000
_LAST_UID: Final = "\U0010ffff"
"""After all uids: with it, what ends at an instant is before what is read."""
_ENDS_SOON: Final = "is_open = 0 AND until > :start AND until <= :late AND start < :end"
_ENDS_LATER: Final = f"{IS_LONG} AND +is_open = 0 AND until > :late AND start < :end"
"""The plus keeps SQLite from taking the index of all segments."""
_CLOSED: Final = " UNION ALL ".join(
    f"SELECT body FROM segment WHERE {condition}"  # noqa: S608 - texts of these modules
    for condition in (_ENDS_SOON, _ENDS_LATER)
)
"""What overlaps a span: segments that end within a day of it, and those that are longer than a day.

By the end alone it would be all that has ended since.
"""


@dataclass(frozen=True, slots=True)
class UsageReader:
    """Reads the file at ``path``. Raises ``StoreUnusableError``."""

    path: Path

    def read(self, window: Window, *, with_amounts: bool = False) -> UsageBook:
        """Return the book of a period; CPUs and memory of it only ``with_amounts``."""
        with closing(open_for_reading(self.path)) as connection:
            try:
                return _read(connection, window, with_amounts=with_amounts)
            except sqlite3.Error as error:
                raise StoreUnusableError(f"{self.path} cannot be read: {error}") from error

    def segments(self, window: Window) -> Iterator[Segment]:
        """Yield the segments of a period, those that go on first, then by their end; not cut.

        In parts, between which nothing is read: however long somebody takes to write millions of
        them elsewhere, the writer is not held up, and memory is needed for one part.
        """
        with closing(open_for_reading(self.path)) as connection:
            codec, watch = read_codec(connection), read_watch(connection)
            try:
                going_on = [
                    segment
                    for segment in _open_segments(connection, watch)
                    if segment.end > window.start and segment.start < window.end
                ]
                yield from going_on
                yielded = {(segment.uid, segment.start) for segment in going_on}
                last: tuple[int, str, int] = (window.start, _LAST_UID, 0)
                while part := connection.execute(_PART, (*last, window.end, _AT_ONCE)).fetchall():
                    for _, uid, start, body in part:
                        if (uid, start) not in yielded:  # it may have ended meanwhile
                            yield decode_segment(codec.inflate(body))
                    last = part[-1][:3]
            except sqlite3.Error as error:
                raise StoreUnusableError(f"{self.path} cannot be read: {error}") from error

    def watch(self) -> UsageWatch:
        """Return since when and until when somebody wrote."""
        with closing(open_for_reading(self.path)) as connection:
            return read_watch(connection)


def read_tree(connection: sqlite3.Connection) -> dict[str, str]:
    """Return which quota is above which, of all that were ever seen."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_TREE,)).fetchone()
    with suppress(msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return msgspec.json.decode(row[0], type=dict[str, str]) if row else {}
    return {}


def encode_tree(above: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the row of the table ``meta`` that keeps it: name and value."""
    return _TREE, msgspec.json.encode(above)


def _read(connection: sqlite3.Connection, window: Window, *, with_amounts: bool) -> UsageBook:
    watch = read_watch(connection)
    hours, days = (_find_whole(window, step, watch) for step in (HOUR_MS, DAY_MS))
    book = UsageBook(window, above=read_tree(connection))
    if watch.since:
        book.unseen = window.milliseconds
    if has_table(connection):
        _SumReader(connection, book, hours, days).read()
    else:
        days = Window(hours.end, hours.end)  # segments of somebody who makes no sums of days
    _read_hours(connection, book, _find_edges(hours, days))
    if with_amounts:
        _read_amounts(connection, book, hours)
    _read_segments(connection, book, hours, days)
    for segment in _open_segments(connection, watch):
        part = book_part(segment, window)
        if part.held or part.amounts:
            book.add(key_of(segment.holder), part)
            book.owners[owner_of(segment.holder)] += part.held
    return book


def _read_hours(connection: sqlite3.Connection, book: UsageBook, spans: Iterator[Window]) -> None:
    for span in spans:
        for *key, held, estimated in connection.execute(_SUMS, (span.start, span.end)):
            book.add(BookKey(*key), BookSum(held, estimated))


def _read_amounts(connection: sqlite3.Connection, book: UsageBook, hours: Window) -> None:
    for *key, text in connection.execute(_AMOUNTS, (hours.start, hours.end)):
        book.add(BookKey(*key), BookSum(amounts=Counter(decode_amounts(text))))


def _read_segments(
    connection: sqlite3.Connection, book: UsageBook, hours: Window, days: Window
) -> None:
    """Add what of closed segments is in no whole hour; of jobs, in no whole day."""
    for edge in _find_edges(book.window, hours):
        for segment in _closed_segments(connection, edge):
            book.add(key_of(segment.holder), book_part(segment, edge))
    for edge in _find_edges(book.window, days):
        day = Window(day_of(edge.start), day_of(edge.start) + DAY_MS)
        is_most = edge.end <= day.end and 2 * edge.milliseconds > DAY_MS
        # Of most of a day, as of a month in another zone, what is missing is quicker to read.
        if is_most and has_table(connection) and day.start >= read_floor(connection):
            _SumReader(connection, book, hours, day).read_owners()
            for missing in _find_edges(day, edge):
                _add_owners(connection, book, missing, -1)
        else:
            _add_owners(connection, book, edge, 1)
    for owner in [owner for owner, held in book.owners.items() if not held]:
        del book.owners[owner]


def _add_owners(connection: sqlite3.Connection, book: UsageBook, window: Window, sign: int) -> None:
    for segment in _closed_segments(connection, window):
        book.owners[owner_of(segment.holder)] += sign * book_part(segment, window).held


@dataclass(frozen=True, slots=True)
class _SumReader:
    """Adds to a book the sums that are kept beside the hours. Their hours count as a whole."""

    connection: sqlite3.Connection
    book: UsageBook
    hours: Window
    days: Window

    def read(self) -> None:
        book = self.book
        for quota, namespace, user, part, amount in self._of_days(What.HELD, _NAMES):
            book.add(_key_of(quota, namespace, user, part), BookSum(held=amount))
        for quota, namespace, user, part, amount in self._of_days(What.ESTIMATED, _NAMES):
            book.add(_key_of(quota, namespace, user, part), BookSum(estimated=amount))
        self.read_owners()
        self._read_levels()
        for quota, namespace, owner, part, amount in self._of_hours(What.LOST, _NAMES):
            cause, basis, by = (*part.split("/", 2), "", "")[:3]
            book.losses[LossKey(quota, namespace, owner, cause, basis, by)] += amount
        for _, amount in self._of_hours(What.UNCERTAIN, "what"):
            book.uncertain += amount
        for quota, amount in self._of_hours(What.ADJUSTED, "quota"):
            book.adjusted[quota] += amount
        for _, amount in self._of_hours(What.WATCHED, "what"):
            book.unseen = max(0, book.window.milliseconds - amount)

    def read_owners(self) -> None:
        """Add what jobs held in the days."""
        for quota, name, model, amount in self._of_days(What.OWNER, "quota, name, part"):
            self.book.owners[OwnerKey(quota, name, model)] += amount

    def _read_levels(self) -> None:
        parts: dict[str, Counter[str]] = {}
        for quota, part, amount in self._of_both(What.QUOTA_DAY, What.QUOTA, "quota, part"):
            if part in QuotaTime.__dataclass_fields__:
                parts.setdefault(quota, Counter())[part] += amount
        self.book.quotas = {quota: QuotaTime(**amounts) for quota, amounts in parts.items()}
        states = {str(state): state for state in GpuState}
        for model, part, amount in self._of_both(What.CLUSTER_DAY, What.CLUSTER, "name, part"):
            if part in states:
                self.book.cluster_of(model)[states[part]] += amount

    def _of_both(self, day: What, hour: What, columns: str) -> Iterator[Any]:
        """Yield sums of the whole days, and of the hours that are in none of them."""
        yield from self._select(day, columns, self.days)
        for span in _find_edges(self.hours, self.days):
            yield from self._select(hour, columns, span)

    def _of_days(self, what: What, columns: str) -> Iterator[Any]:
        return self._select(what, columns, self.days)

    def _of_hours(self, what: What, columns: str) -> Iterator[Any]:
        return self._select(what, columns, self.hours)

    def _select(self, what: What, columns: str, window: Window) -> Iterator[Any]:
        query = (
            f"SELECT {columns}, sum(amount) FROM usage_sum"  # noqa: S608 - columns of this module
            f" WHERE what = ? AND hour >= ? AND hour < ? GROUP BY {columns}"
        )
        yield from self.connection.execute(query, (str(what), window.start, window.end))


def _key_of(quota: str, namespace: str, user: str, part: str) -> BookKey:
    band, _, model = part.partition("/")
    return BookKey(quota, namespace, user, model, band)


def _find_whole(window: Window, step: int, watch: UsageWatch) -> Window:
    """Return the whole hours, or days, of a window; the last one may go on."""
    start = -(-window.start // step) * step
    end = window.end if watch.seen <= window.end else window.end // step * step
    return Window(start, max(start, end))


def _find_edges(window: Window, whole: Window) -> Iterator[Window]:
    """Yield what of a window is in no whole hour, or day."""
    for start, end in ((window.start, min(whole.start, window.end)), (whole.end, window.end)):
        if max(start, window.start) < end:
            yield Window(max(start, window.start), end)


def _closed_segments(connection: sqlite3.Connection, window: Window) -> Iterator[Segment]:
    codec = read_codec(connection)
    values = {"start": window.start, "end": window.end, "late": window.end + DAY_MS}
    for (body,) in connection.execute(_CLOSED, values):
        yield decode_segment(codec.inflate(body))


def _open_segments(connection: sqlite3.Connection, watch: UsageWatch) -> Iterator[Segment]:
    """Yield what goes on, until somebody looked last."""
    codec = read_codec(connection)
    for (body,) in connection.execute("SELECT body FROM segment WHERE is_open = 1"):
        segment = decode_segment(codec.inflate(body))
        yield replace(segment, end=max(segment.end, watch.seen))
