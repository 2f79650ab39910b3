"""One process writes a store: a lock of the system, and a row in the file that says who does.

The lock ends with its process, whatever becomes of that. Where several machines share the file,
locks may not reach from one to the other: there the row counts, as long as it is renewed. Whoever
takes it raises its number, and each transaction checks it, so that two never write in turn.
"""

import fcntl
import json
import os
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from errno import EACCES, EAGAIN
from pathlib import Path
from typing import Any, Final

from koord.store.errors import StoreInUseError

LOCK_SECONDS: Final = 20
"""After which a row of another machine that is not renewed counts no more."""
RENEW_SECONDS: Final = 5


class WriterLock:
    """The right to write to a store; ``take`` raises ``StoreInUseError`` if somebody has it."""

    def __init__(self, path: Path, holder: str) -> None:
        self._path, self._holder = path, holder
        self._host = socket.gethostname()
        self._descriptor = -1
        self._renewed = 0
        self.term = 0
        """How often the right was taken, by anybody."""

    def take(self, connection: sqlite3.Connection, now: int) -> None:
        """Take the right; ``now`` in milliseconds."""
        self._lock_file(connection)
        try:
            connection.execute("BEGIN IMMEDIATE")
            row = _read(connection)
            self._refuse_another(row, now)
            self.term = int(row.get("term", 0)) + 1
            self._write(connection, now)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            self._unlock_file()
            raise

    def _refuse_another(self, row: Mapping[str, Any], now: int) -> None:
        if row.get("host", self._host) == self._host:
            return
        # A time that lies ahead tells of a clock that is wrong, and of nobody who writes.
        if abs(now - row["at"]) < LOCK_SECONDS * 1000:
            raise StoreInUseError(
                f"{self._path} is written by {row.get('holder')} on {row['host']}: end that "
                f"process, and wait {LOCK_SECONDS} seconds if it ended by force"
            )

    def check(self, connection: sqlite3.Connection, now: int) -> None:
        """Make sure, inside a transaction, that nobody else has taken the right since."""
        if self.is_lost(connection):
            raise StoreInUseError(f"{self._path} is written by another process now")
        if now - self._renewed >= RENEW_SECONDS * 1000 or now < self._renewed:
            self._write(connection, now)

    def is_lost(self, connection: sqlite3.Connection) -> bool:
        return int(_read(connection).get("term", 0)) != self.term

    def give_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if self.term and not self.is_lost(connection):
                self._write(connection, 0)
        self._unlock_file()

    def _write(self, connection: sqlite3.Connection, now: int) -> None:
        row = {"holder": self._holder, "host": self._host, "term": self.term, "at": now}
        connection.execute("REPLACE INTO meta VALUES ('writer', ?)", (json.dumps(row),))
        self._renewed = now

    def _lock_file(self, connection: sqlite3.Connection) -> None:
        path = self._path.with_name(f"{self._path.name}.writer")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {EAGAIN, EACCES}:
                return  # no locks on this file system: the row counts
            self._unlock_file()
            holder = _read(connection).get("holder", "another process")
            raise StoreInUseError(
                f"{self._path} is written by {holder}: end that process, or choose another file"
            ) from error

    def _unlock_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read(connection: sqlite3.Connection) -> Mapping[str, Any]:
    row = connection.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()
    try:
        value = json.loads(row[0]) if row else {}
        return {**value, "term": int(value["term"]), "at": int(value["at"])} if value else {}
    except (KeyError, TypeError, ValueError):
        return {}
