"""Days of a store, in UTC: what is kept is whole days, and the first of them is its floor.

A day is removed for readers at once, by raising the floor; its rows go afterwards, in parts.
"""

import sqlite3
from typing import Final

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000


def day_of(at: int) -> int:
    """Return when the day of an instant begins, in milliseconds since the epoch."""
    return at - at % DAY_MS


def find_present(connection: sqlite3.Connection, now: int) -> int:
    """Return the time by which rows grow old: ``now``, or a day after the newest record.

    A clock that is wrong for a moment, as after a boot without a battery, must not make all days
    old at once; what the leader has recorded was dated by another one.
    """
    newest = connection.execute("SELECT max(at) FROM record").fetchone()[0]
    return now if newest is None else min(now, int(newest) + DAY_MS)


def read_floor(connection: sqlite3.Connection) -> int:
    """Return when the first day that is kept begins; 0 if none was removed."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'floor'").fetchone()
    return int(row[0]) if row else 0
