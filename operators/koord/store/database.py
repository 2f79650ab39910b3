"""Opens the file of a store, for the one who writes and for those who read.

Nothing is attached to it, and no function or schema of the file is trusted: a store may be a copy
that somebody else has made.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from koord.store.codec import Codec
from koord.store.errors import StoreUnusableError
from koord.store.schema import APPLICATION, DICTIONARY, TABLES, VERSION

BUSY_SECONDS: Final = 5.0
"""How long a statement waits for another process; only ``forget`` writes beside the writer."""
_CACHE_KIB: Final = 16 * 1024
MOST_JOURNAL_BYTES: Final = 64 << 20
"""Of the journal, once nobody reads what was before."""
_READS_ONLY: Final = 0o640


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open or create a store. Raises ``StoreUnusableError``."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _READS_ONLY))
        connection = _connect(path, "rw")
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusableError(f"{path} cannot be opened: {describe_error(error)}") from error
    try:
        if connection.execute("PRAGMA schema_version").fetchone()[0] == 0:
            _create(connection)
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA journal_size_limit = {MOST_JOURNAL_BYTES}")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise StoreUnusableError(f"{path} cannot be used: {describe_error(error)}") from error
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a store that exists; nothing can be written. Raises ``StoreUnusableError``."""
    if not path.is_file():
        raise StoreUnusableError(f"there is no store {path}: koord audit record writes one")
    connection = None
    try:
        connection = _connect(path, "ro")
        connection.execute("PRAGMA query_only = ON")
        _check(connection, path)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise StoreUnusableError(f"{path} cannot be read: {describe_error(error)}") from error
        raise
    return connection


def scrub(connection: sqlite3.Connection) -> None:
    """Leave nothing of removed rows on the disk: neither in free pages nor in the journal.

    While somebody reads, the journal keeps what it has until the next time.
    """
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def measure_journal(path: Path) -> int:
    """Return how many bytes the journal beside a store takes."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def read_codec(connection: sqlite3.Connection) -> Codec:
    row = connection.execute("SELECT value FROM meta WHERE name = 'dictionary'").fetchone()
    return Codec(bytes(row[0]) if row else b"")


def measure_bytes(connection: sqlite3.Connection) -> int:
    """Return how many bytes of the file are in use."""
    count, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (count - free) * size


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    with suppress(sqlite3.Error):  # what is no database says so where it is checked
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA schema_version").fetchone()[0] == 0:
            for table in TABLES:
                connection.execute(table)
            connection.execute("INSERT INTO meta VALUES ('dictionary', ?)", (DICTIONARY,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application, version = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise StoreUnusableError(f"{path} is a database of something else: choose another file")
    if version != VERSION:
        raise StoreUnusableError(
            f"{path} has tables of version {version}, and this program knows version {VERSION}: "
            "use the program that wrote it, or another file"
        )


def describe_error(error: Exception) -> str:
    """Return what is wrong with a file, and a way out where only people have one."""
    if getattr(error, "sqlite_errorcode", None) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return f"{error}: move the file away, and a new one is made"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
