"""Removes the oldest days of a store, whole, when they are too old or all is too large.

In parts, each its own transaction, so that what is new is written between them. The day of today
stays whatever it takes: if it alone is too large, nothing more is written until it is over.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from koord.store.database import measure_bytes
from koord.store.days import DAY_MS, HOUR_MS, day_of, find_present, read_floor
from koord.store.segments import MOST_HOURS
from koord.store.writing import count_removal

SLICE_ROWS: Final = 2000
"""Rows that are removed in one transaction."""
_SLICE_PAGES: Final = 1000
_REMOVALS: Final = (
    "DELETE FROM record WHERE (term, seq) IN (SELECT term, seq FROM record WHERE at < ? LIMIT ?)",
    (
        "DELETE FROM segment WHERE (uid, start) IN"
        " (SELECT uid, start FROM segment WHERE is_open = 0 AND until < ? LIMIT ?)"
    ),
)
_OLD: Final = (
    "SELECT 1 FROM record WHERE at < ? LIMIT 1",
    "SELECT 1 FROM segment WHERE is_open = 0 AND until < ? LIMIT 1",
)
_OLDEST: Final = (
    "SELECT min(at) FROM record WHERE at >= ?",
    "SELECT min(until) FROM segment WHERE is_open = 0 AND until >= ?",
)
_UNITS: Final = "SELECT trace FROM trace WHERE last < ? LIMIT ?"


@dataclass(frozen=True, slots=True)
class Keep:
    """For how long rows are kept, in milliseconds, and how many bytes they may take."""

    ms: int = 30 * DAY_MS
    most_bytes: int = 5 << 30


def find_floor(connection: sqlite3.Connection, keep: Keep, now: int) -> int:
    """Return when the first day begins that is to be kept now."""
    present = find_present(connection, now)
    floor = max(read_floor(connection), day_of(present - keep.ms))
    today = day_of(present)
    if measure_bytes(connection) <= keep.most_bytes or has_old_rows(connection, floor):
        return min(floor, today)
    rows = (connection.execute(query, (floor,)).fetchone()[0] for query in _OLDEST)
    oldest = min((day_of(at) for at in rows if at is not None), default=today)
    return min(max(floor, oldest + DAY_MS), today)


def is_too_large(connection: sqlite3.Connection, keep: Keep, now: int) -> bool:
    """Whether today alone takes more than all may."""
    today = day_of(find_present(connection, now))
    return read_floor(connection) >= today and measure_bytes(connection) > keep.most_bytes


def set_floor(connection: sqlite3.Connection, floor: int) -> None:
    """Remove days for readers; in a transaction. It never goes back."""
    if floor > read_floor(connection):
        connection.execute("REPLACE INTO meta VALUES ('floor', ?)", (floor,))


def has_old_rows(connection: sqlite3.Connection, floor: int) -> bool:
    """Whether something of days before the floor is still to be removed."""
    has_rows = any(connection.execute(query, (floor,)).fetchone() for query in _OLD)
    return has_rows or _read_swept(connection) < floor


def remove_some(connection: sqlite3.Connection, now: int, most: int = SLICE_ROWS) -> int:
    """Remove rows of days before the floor; in a transaction. Return how many went."""
    floor = read_floor(connection)
    for removal in _REMOVALS:
        count = connection.execute(removal, (floor, most)).rowcount
        if count:
            return count
    count = _remove_units(connection, floor, most)
    if count:
        return count
    count = connection.execute(
        "DELETE FROM hour WHERE hour < ?",
        (day_of(find_present(connection, now) - MOST_HOURS * HOUR_MS),),
    ).rowcount
    connection.execute(f"PRAGMA incremental_vacuum({_SLICE_PAGES})").fetchall()
    return count


def _read_swept(connection: sqlite3.Connection) -> int:
    """Return the floor below which no unit is left: there is no index by which to look for them."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'swept'").fetchone()
    return int(row[0]) if row else 0


def _remove_units(connection: sqlite3.Connection, floor: int, most: int) -> int:
    if _read_swept(connection) >= floor:
        return 0
    traces = connection.execute(_UNITS, (floor, most)).fetchall()
    if not traces:
        connection.execute("REPLACE INTO meta VALUES ('swept', ?)", (floor,))
    if traces:
        connection.executemany("DELETE FROM name WHERE trace = ?", traces)
        connection.executemany("DELETE FROM trace WHERE trace = ?", traces)
        count_removal(connection)
    return len(traces)
