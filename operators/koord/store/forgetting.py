"""Removes what a store says of a namespace, or the name of a user; also while it is written.

In parts, each its own transaction. Where records went there is a gap that counts them: what is
missing is never hidden. Sums stay, those of a namespace without its jobs, those of a user without
the user. What was removed is in no free page of the file either, and not in its journal.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from koord.answers.audit import to_text
from koord.store import usage_sums
from koord.store.codec import Codec
from koord.store.database import open_for_reading, open_for_writing, read_codec, scrub
from koord.store.errors import StoreUnusableError
from koord.store.retention import SLICE_ROWS
from koord.store.rows import read_document, write_line
from koord.store.segments import SegmentWriter, decode_segment
from koord.store.writing import count_removal

_OF_NAMESPACE: Final = (
    "SELECT term, seq, at FROM record WHERE namespace = ? AND at < ? ORDER BY at LIMIT ?"
)
_USER_KEYS: Final = ("by", "user", "submittedBy")
"""Fields of records, and of their units, that name who did something."""


@dataclass(slots=True)
class Forgotten:
    """How many rows were removed, or lost a name."""

    records: int = 0
    segments: int = 0


def forget_namespace(path: Path, namespace: str, before: int) -> Forgotten:
    """Remove records and closed segments of a namespace from before a time (milliseconds)."""
    forgotten = Forgotten()
    with _open(path) as connection:
        codec = read_codec(connection)
        while True:
            with _transaction(connection):
                count = _remove_records(connection, codec, namespace, before)
                forgotten.records += count
            if not count:
                break
        while True:
            with _transaction(connection):
                count = connection.execute(
                    "DELETE FROM segment WHERE (uid, start) IN (SELECT uid, start FROM segment"
                    " WHERE namespace = ? AND until < ? AND is_open = 0 LIMIT ?)",
                    (namespace, before, SLICE_ROWS),
                ).rowcount
                forgotten.segments += count
            if not count:
                break
        with _transaction(connection):
            usage_sums.blank_jobs(connection, namespace, before)
        scrub(connection)
    return forgotten


def forget_user(path: Path, user: str) -> Forgotten:
    """Remove the name of a user from records and segments."""
    forgotten = Forgotten()
    with _open(path) as connection:
        codec = read_codec(connection)
        last = (-1, -1)
        while True:
            with _transaction(connection):
                rows = connection.execute(
                    "SELECT term, seq, body FROM record WHERE (term, seq) > (?, ?)"
                    " ORDER BY term, seq LIMIT ?",
                    (*last, SLICE_ROWS),
                ).fetchall()
                forgotten.records += sum(_blank(connection, codec, user, row) for row in rows)
            if not rows:
                break
            last = rows[-1][:2]
        with _transaction(connection):
            forgotten.segments = _blank_segments(connection, codec, user)
            # Sums are kept for longer than what they are the sums of.
            SegmentWriter(connection, codec).blank_user(user)
            usage_sums.blank_user(connection, user)
        scrub(connection)
    return forgotten


def _remove_records(
    connection: sqlite3.Connection, codec: Codec, namespace: str, before: int
) -> int:
    rows = connection.execute(_OF_NAMESPACE, (namespace, before, SLICE_ROWS)).fetchall()
    if not rows:
        connection.execute(
            "DELETE FROM name WHERE trace IN (SELECT trace FROM trace WHERE namespace = ?"
            " AND last < ?)",
            (namespace, before),
        )
        connection.execute(
            "DELETE FROM trace WHERE namespace = ? AND last < ?", (namespace, before)
        )
        count_removal(connection)
        return 0
    connection.executemany(
        "DELETE FROM record WHERE term = ? AND seq = ?", [row[:2] for row in rows]
    )
    for term in {row[0] for row in rows}:
        own = sorted(row[1:] for row in rows if row[0] == term)
        _insert_gap(connection, codec, term, own)
    return len(rows)


def _insert_gap(
    connection: sqlite3.Connection, codec: Codec, term: int, rows: list[tuple[int, int]]
) -> None:
    seq, at = rows[-1]
    document: dict[str, Any] = {
        "term": term,
        "seq": seq,
        "at": to_text(at),
        "mono": None,
        "kind": "Gap",
        "from": rows[0][0],
        "to": seq,
        "count": len(rows),
        "why": "Forgotten",
    }
    body = codec.deflate(write_line(document))
    connection.execute(
        "INSERT INTO record VALUES (?, ?, ?, 'Gap', '', '', '', '', ?)", (term, seq, at, body)
    )


def _blank(
    connection: sqlite3.Connection, codec: Codec, user: str, row: tuple[int, int, bytes]
) -> bool:
    """Remove a name from one record; what is damaged stays as it is."""
    term, seq, body = row
    try:
        document = read_document(codec.inflate(body))
    except ValueError:
        return False
    places = [document, document.get("unit")]
    hits = [
        (place, key)
        for place in places
        if isinstance(place, dict)
        for key in _USER_KEYS
        if place.get(key) == user
    ]
    for place, key in hits:
        place[key] = None
    if hits:
        connection.execute(
            "UPDATE record SET body = ? WHERE term = ? AND seq = ?",
            (codec.deflate(write_line(document)), term, seq),
        )
    return bool(hits)


def _blank_segments(connection: sqlite3.Connection, codec: Codec, user: str) -> int:
    rows = connection.execute("SELECT body FROM segment WHERE user = ?", (user,)).fetchall()
    writer, count = SegmentWriter(connection, codec), 0
    for (body,) in rows:
        with suppress(ValueError):
            segment = decode_segment(codec.inflate(body))
            writer.put([replace(segment, holder=replace(segment.holder, user=""))])
            count += 1
    return count


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    open_for_reading(path).close()  # forgetting makes no file
    with closing(open_for_writing(path)) as connection:
        try:
            yield connection
        except sqlite3.Error as error:
            raise StoreUnusableError(f"{path} cannot be written: {error}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
