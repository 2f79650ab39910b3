"""What is written to a store, inside transactions of its one writer.

Whoever begins and ends transactions is ``keeper``. A record is written once, and again only when it
is known how often a refusal was repeated.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from koord.answers.audit import to_text
from koord.store.codec import Codec
from koord.store.days import read_floor
from koord.store.rows import NameRow, RecordRow, close_line, parse_line, write_line
from koord.store.segments import SegmentWriter

MOST_REMEMBERED: Final = 1 << 16
"""Names that are known to be written, so that each is not written with every record."""


class FeedPosition(msgspec.Struct, frozen=True):
    """How far the feed of a leader was read.

    ``term`` and ``holder`` are what the leader says; ``place`` is the term under which its records
    stand here, ``seq`` the last one, and ``at`` its time.
    """

    term: int
    holder: str
    place: int
    seq: int = 0
    at: int = 0


@dataclass(slots=True)
class Appended:
    """What became of records: ``late`` ones belong to days that were removed already."""

    written: int = 0
    invalid: int = 0
    late: int = 0


@dataclass(slots=True)
class StoreWriter:
    """Writes rows with one connection."""

    connection: sqlite3.Connection
    codec: Codec
    segments: SegmentWriter = field(init=False)
    _names: dict[NameRow, None] = field(default_factory=dict)
    """Written names, the latest last."""
    _forgotten: int = -1

    def __post_init__(self) -> None:
        self.segments = SegmentWriter(self.connection, self.codec)

    def read_position(self) -> FeedPosition | None:
        row = self.connection.execute("SELECT value FROM meta WHERE name = 'feed'").fetchone()
        try:
            return msgspec.json.decode(row[0], type=FeedPosition) if row else None
        except msgspec.DecodeError:
            return None

    def append(self, term: int, holder: str, lines: Iterable[bytes]) -> Appended:
        """Write records of a leader; what was written before is not written again.

        A leader whose number is not above that of the one before, because its Lease is a new one,
        is placed after it all the same. What the one before made and nobody read is a gap.
        """
        position, end = follow_term(self.read_position(), term, holder)
        if end is not None:
            self._insert(end)
        appended, floor = Appended(), read_floor(self.connection)
        self._forget_names()
        for line in lines:
            try:
                row = replace(parse_line(line), term=position.place)
            except ValueError:
                appended.invalid += 1
                continue
            position = FeedPosition(
                term, holder, position.place, max(row.seq, position.seq), row.at
            )
            if row.at < floor:
                appended.late += 1
                continue
            appended.written += self._insert(row)
        self.set_meta("feed", msgspec.json.encode(position))
        return appended

    def set_meta(self, name: str, value: bytes | int) -> None:
        self.connection.execute("REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _insert(self, row: RecordRow) -> bool:
        cursor = self.connection.execute(
            "INSERT OR IGNORE INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.term,
                row.seq,
                row.at,
                row.kind,
                row.namespace,
                row.trace,
                row.unit,
                row.code,
                self.codec.deflate(row.line),
            ),
        )
        if not cursor.rowcount:
            return False
        if row.trace:
            self.connection.execute(
                _UPSERT_TRACE,
                (row.trace, row.namespace, row.at, row.at, row.at if row.is_over else None),
            )
        self._insert_names(row.names)
        if row.closed is not None:
            self._close(row)
        return True

    def _insert_names(self, names: Iterable[NameRow]) -> None:
        for name in names:
            if name in self._names:
                continue
            self.connection.execute("INSERT OR IGNORE INTO name VALUES (?, ?, ?, ?)", name)
            self._names[name] = None
            if len(self._names) > MOST_REMEMBERED:
                del self._names[next(iter(self._names))]

    def _close(self, row: RecordRow) -> None:
        closed = row.closed
        if closed is None:
            return
        key = (row.term, closed.seq, row.trace)
        stored = self.connection.execute(
            "SELECT body FROM record WHERE term = ? AND seq = ? AND trace = ?", key
        ).fetchone()
        if stored is None:
            return
        try:
            line = close_line(self.codec.inflate(stored[0]), closed)
        except ValueError:
            return  # a damaged row is what readers find it to be
        self.connection.execute(
            "UPDATE record SET body = ? WHERE term = ? AND seq = ? AND trace = ?",
            (self.codec.deflate(line), *key),
        )

    def _forget_names(self) -> None:
        """Forget which names are written if somebody has removed some."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = 'removals'").fetchone()
        removals = int(row[0]) if row else 0
        if removals != self._forgotten:
            self._names.clear()
            self._forgotten = removals


_UPSERT_TRACE: Final = (
    "INSERT INTO trace VALUES (?, ?, ?, ?, ?) ON CONFLICT (trace) DO UPDATE SET"
    " first = min(first, excluded.first), last = max(last, excluded.last), over = excluded.over"
)


def count_removal(connection: sqlite3.Connection) -> None:
    """Tell the writer, in the same transaction, that names were removed."""
    connection.execute(
        "INSERT INTO meta VALUES ('removals', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


def follow_term(
    before: FeedPosition | None, term: int, holder: str
) -> tuple[FeedPosition, RecordRow | None]:
    """Return where records of a leader go on, and the gap that stands before them, if any.

    ``before`` is how far the feed was read.
    """
    if before is None:
        return FeedPosition(term, holder, term), None
    if (before.term, before.holder) == (term, holder):
        return before, None
    return FeedPosition(term, holder, max(term, before.place + 1)), _make_end(before)


def _make_end(before: FeedPosition) -> RecordRow:
    """Return the gap at the end of a term: how many records nobody has read is not known."""
    number = before.seq + 1
    document = {
        "term": before.term,
        "seq": number,
        "at": to_text(before.at),
        "mono": None,
        "kind": "Gap",
        "from": number,
        "to": None,
        "count": None,
    }
    return RecordRow(before.place, number, before.at, "Gap", "", "", "", "", write_line(document))
