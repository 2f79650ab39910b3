"""What went wrong in other stores, as users have reported it, played against this one."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.store.stores import (
    ALWAYS,
    EPOCH,
    fill,
    make_line,
    new_path,
    open_store,
    read_all,
)
from tests.store.test_segments import make

from koord.core.usage.levels import UsageLevels, UsageLook
from koord.core.usage.segments import EndBasis, Window
from koord.store import keeper, lock, retention, usage_reading, usage_sums
from koord.store.database import measure_journal, open_for_writing
from koord.store.days import DAY_MS, HOUR_MS
from koord.store.errors import StoreInUseError, StoreUnusableError
from koord.store.forgetting import forget_namespace, forget_user
from koord.store.keeper import RecordStore
from koord.store.lock import WriterLock
from koord.store.reading import StoreReader
from koord.store.retention import Keep
from koord.store.usage_reading import UsageReader
from koord.store.usage_recording import UsageRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from koord.core.usage.segments import Segment
    from koord.store.writing import StoreWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "see.db"


def clean(path: Path, keep: Keep, now: int, most: int = 1) -> None:
    """Clean as the writer does, until nothing is left to be removed."""
    with closing(open_for_writing(path)) as connection:
        while True:
            connection.execute("BEGIN IMMEDIATE")
            retention.set_floor(connection, retention.find_floor(connection, keep, now))
            count = retention.remove_some(connection, now, most)
            connection.execute("COMMIT")
            if not count:
                return


def put_usage(store: RecordStore, segments: Iterable[Segment]) -> None:
    """Write segments with all their sums, as the recorder of usage does."""

    def write(writer: StoreWriter) -> None:
        usage_sums.prepare(writer.connection)
        usage_sums.put_segments(writer, segments)
        usage_sums.note_watch(writer, EPOCH)
        usage_sums.note_watch(writer, EPOCH + 10 * DAY_MS)

    store.submit(write).result()


def read_files(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


# --- a clock that is wrong once removes all that is kept by age ---------------------------------


def test_a_clock_that_jumps_ahead_removes_nothing(path: Path) -> None:
    fill(path, [make_line(1), make_line(2, EPOCH + DAY_MS)])
    with open_store(path) as store:
        store.put_segments([make("a", 0, HOUR_MS)]).result()
    clean(path, Keep(), EPOCH + 3650 * DAY_MS)
    assert [each["seq"] for each in read_all(path)] == [1, 2]
    assert len(StoreReader(path).segments(ALWAYS).rows) == 1
    assert StoreReader(path).hours(ALWAYS).rows


def test_days_grow_old_by_what_is_recorded(path: Path) -> None:
    fill(path, [make_line(1), make_line(2, EPOCH + 31 * DAY_MS)])
    clean(path, Keep(), EPOCH + 3650 * DAY_MS)
    assert [each["seq"] for each in read_all(path)] == [2]


def test_a_clock_that_was_ahead_once_is_billed_to_nobody(path: Path) -> None:
    running = make("a", 0, 60_000, basis=EndBasis.OPEN)
    with open_store(path) as store:
        recorder = UsageRecorder(store)
        for minutes in (1, 24 * 60, 2, 3):
            now = EPOCH + minutes * 60_000
            look = UsageLook((replace(running, end=now),), UsageLevels(now, {}, {}), {})
            recorder.look(look).result()
    book = UsageReader(path).read(Window(EPOCH, EPOCH + 2 * DAY_MS))
    assert sum(part.held for part in book.sums.values()) == 1000 * 3 * 60_000


# --- a bound of bytes removes far more than is needed --------------------------------------------


def test_a_file_that_is_too_large_loses_no_more_days_than_it_has_to(path: Path) -> None:
    fill(path, [make_line(1, EPOCH + 9 * DAY_MS)])
    with open_store(path) as store:
        segments = [make(f"{day}-{n}", day * DAY_MS, 10) for day in range(10) for n in range(40)]
        store.put_segments(segments).result()
    most = StoreReader(path).extent().bytes - 1
    clean(path, Keep(400 * DAY_MS, most), EPOCH + 9 * DAY_MS)
    left = {(each.start - EPOCH) // DAY_MS for each in StoreReader(path).segments(ALWAYS).rows}
    assert left == set(range(1, 10))
    assert StoreReader(path).extent().bytes <= most


# --- what was deleted is still there: in sums, in free pages, in the journal ---------------------


def test_a_user_who_is_forgotten_is_in_no_sum_either(path: Path) -> None:
    with open_store(path) as store:
        kept, other = make("a", HOUR_MS, HOUR_MS), make("b", 0, HOUR_MS, user="bob")
        put_usage(store, [kept, other, make("old", 0, HOUR_MS)])
        # Segments are kept for days, their sums for more than a year.
        store.submit(
            lambda writer: writer.connection.execute("DELETE FROM segment WHERE uid = 'old'")
        ).result()
    before = UsageReader(path).read(Window(EPOCH, EPOCH + DAY_MS))
    forget_user(path, "ann")
    after = UsageReader(path).read(Window(EPOCH, EPOCH + DAY_MS))
    assert {key.user for key in after.sums} == {"", "bob"}
    assert sum(row.held for row in after.sums.values()) == sum(
        row.held for row in before.sums.values()
    )
    assert {hour.key.user for hour in StoreReader(path).hours(ALWAYS).rows} == {"", "bob"}
    assert b"ann" not in read_files(path)


def test_a_namespace_that_is_forgotten_leaves_no_names_behind(path: Path) -> None:
    holder = replace(make("a", 0, 10).holder, namespace="secret-ns", owner="secret-ns/secret-job")
    with open_store(path) as store:
        lines = [
            make_line(seq, EPOCH + seq, namespace="secret-ns", name=f"secret-{seq}")
            for seq in range(1, 40)
        ]
        store.append(1, "leader-a", [*lines, make_line(40, EPOCH + 40)]).result()
        secret = replace(make("a", 0, HOUR_MS), holder=holder)
        put_usage(store, [secret, make("b", 0, HOUR_MS)])
        owners = UsageReader(path).read(Window(EPOCH, EPOCH + DAY_MS)).owners
        forget_namespace(path, "secret-ns", EPOCH + 2 * DAY_MS)
        after = UsageReader(path).read(Window(EPOCH, EPOCH + DAY_MS)).owners
        assert sum(after.values()) == sum(owners.values())
        assert {key.owner for key in after} == {"", "team-a/train"}
        written = read_files(path)
    assert b"secret-job" not in written
    assert b"secret-1" not in written


# --- the journal grows for as long as somebody reads ---------------------------------------------


def test_a_reader_that_stays_cannot_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MOST_JOURNAL_BYTES", 1 << 16)
    monkeypatch.setattr(keeper, "MOST_HELD_UP_BYTES", 1 << 18)
    monkeypatch.setattr(keeper, "RETRY_SECONDS", 0.0)
    lines = [make_line(seq, text=os.urandom(3000).hex()) for seq in range(1, 301)]
    with new_path() as path, open_store(path) as store:
        store.connection.execute("PRAGMA busy_timeout = 1")
        store.append(1, "leader-a", lines[:1]).result()
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM record").fetchone()
            store.append(1, "leader-a", lines[1:200]).result()
            size = measure_journal(path)
            waiting = store.append(1, "leader-a", lines[200:])
            store.flush()
            assert "reading" in store.health.problem
            assert measure_journal(path) == size
        waiting.result()
        store.flush()
        assert not store.health.problem
        store.append(1, "leader-a", [make_line(301)]).result()
        assert measure_journal(path) < size
        assert len(read_all(path)) == 301


def test_an_export_that_nobody_takes_in_holds_up_nobody(path: Path) -> None:
    with open_store(path) as store:
        put_usage(store, [make(f"p{n}", n, 10) for n in range(2500)])
        export = UsageReader(path).segments(ALWAYS)
        assert next(export).uid == "p0"
        busy, *_ = store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy
        assert len([*export]) == 2499


# --- a question reads all that there is ----------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        usage_reading._CLOSED,
        usage_reading._PART,
        usage_reading._SUMS,
        *retention._REMOVALS,
        *retention._OLD,
        *retention._OLDEST,
    ],
)
def test_what_is_asked_often_is_found_by_an_index(path: Path, query: str) -> None:
    with closing(open_for_writing(path)) as connection:
        usage_sums.prepare(connection)
        names = re.findall(r":([a-z]+)", query)
        values = dict.fromkeys(names, 1) if names else (1,) * query.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert [step for step in plan if step.startswith("SEARCH")]
    assert not [step for step in plan if step.startswith("SCAN")], plan
    assert ("segment_long" in " ".join(plan)) == (query is usage_reading._CLOSED)


@pytest.mark.parametrize("start", [0, 1, 23])
@pytest.mark.parametrize("length", [1, 13, 24, 70])
def test_what_jobs_held_is_the_same_however_days_are_cut(start: int, length: int) -> None:
    """Most of a day is its sum without the other part of it; some pods run for days."""
    lengths = (HOUR_MS, 30 * HOUR_MS, 3 * DAY_MS, HOUR_MS // 7)
    segments = [
        make(f"{at}-{n}", at * HOUR_MS + n, milliseconds)
        for at in range(0, 60, 7)
        for n, milliseconds in enumerate(lengths[: 1 + at % 4])
    ]
    window = Window(EPOCH + start * HOUR_MS, EPOCH + (start + length) * HOUR_MS)
    with new_path() as path, open_store(path) as store:
        put_usage(store, segments)
        book = UsageReader(path).read(window)
    assert sum(book.owners.values()) == sum(part.held for part in window.clip_all(segments))


# --- a database that is malformed ------------------------------------------------------------


def damage(path: Path, pages: int) -> None:
    """Overwrite all pages of a file after the first ones."""
    size = path.stat().st_size
    assert size > 4096 * pages
    with path.open("r+b") as file:
        file.seek(4096 * pages)
        file.write(b"\xff" * (size - 4096 * pages))


@pytest.mark.parametrize("pages", [0, 2])
def test_a_file_that_is_malformed_says_the_way_out(path: Path, pages: int) -> None:
    fill(path, [make_line(1)])
    damage(path, pages)
    with pytest.raises(StoreUnusableError, match="move the file away"):
        open_store(path)


def test_rows_that_cannot_be_written_for_damage_are_a_problem_of_the_file(path: Path) -> None:
    fill(path, [make_line(seq, name=f"u{seq}") for seq in range(1, 2000)])
    damage(path, 40)
    with open_store(path) as store:
        store.append(1, "leader-a", [make_line(5000, name="new")])
        store.flush()
        assert "move the file away" in store.health.problem


# --- locked for ever after a restart, or by two at once -------------------------------------------


def test_a_writer_on_another_machine_that_is_idle_keeps_its_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to write for longer than the right lasts without being renewed."""
    monkeypatch.setattr(keeper, "RENEW_SECONDS", 0.01)
    clock = [EPOCH / 1000]
    with RecordStore(path, "first", None, lambda: clock[0], batch_seconds=0.0) as store:
        store.append(1, "leader-a", [make_line(1)]).result()
        clock[0] += 60.0
        with closing(open_for_writing(path)) as connection:
            query = "SELECT value FROM meta WHERE name = 'writer'"
            while str(int(clock[0] * 1000)) not in connection.execute(query).fetchone()[0]:
                pass
            other = WriterLock(path.with_name("elsewhere"), "second")
            other._host = "another-machine"
            with pytest.raises(StoreInUseError, match="first"):
                other.take(connection, int(clock[0] * 1000))


def test_a_right_that_was_taken_with_a_clock_ahead_is_not_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_for_writing(path)) as connection:
        other = WriterLock(path.with_name("elsewhere"), "dead")
        other._host = "another-machine"
        other.take(connection, EPOCH + 2 * lock.LOCK_SECONDS * 1000)
    with open_store(path) as store:
        assert store.append(1, "leader-a", [make_line(1)]).result().written == 1
