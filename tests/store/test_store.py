"""Records in a store: what is read is what was written, in its order, whoever wrote when."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import wait
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.stores import (
    ALWAYS,
    EPOCH,
    FEW,
    fill,
    make_line,
    new_path,
    open_store,
    read_all,
)
from tests.support.laws import examples

from koord.answers.happenings import SeenObjects, Subject
from koord.answers.story import make_story
from koord.core.usage.segments import Window
from koord.store import reading as reading_module
from koord.store.errors import StoreBusyError, StoreError, StoreInUseError, StoreUnusableError
from koord.store.keeper import MOST_WAITING
from koord.store.reading import Bounds, StoreReader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "see.db"


TERMS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(-5000, 5000), max_size=6)), max_size=5
)


@given(TERMS)
@settings(max_examples=examples(FEW))
def test_what_is_read_is_what_was_written_by_term_and_number(terms):
    """Whatever the numbers of the terms are, and wherever their clocks stand."""
    written = []
    with new_path() as path:
        with open_store(path) as store:
            for number, (term, times) in enumerate(terms):
                lines = [make_line(seq, EPOCH + at) for seq, at in enumerate(times, 1)]
                store.append(term, f"leader-{number}", lines)
                written += lines
            store.flush()
        read = [each for each in read_all(path) if each["kind"] != "Gap"]
        assert read == list(map(json.loads, written))


def test_pages_that_come_twice_are_written_once(path):
    lines = [make_line(seq) for seq in range(1, 6)]
    fill(path, lines[:3])
    fill(path, lines)
    assert [each["seq"] for each in read_all(path)] == [1, 2, 3, 4, 5]
    with open_store(path) as store:
        position = store.read_position().result()
    assert (position.term, position.holder, position.seq) == (1, "leader-a", 5)


def test_the_end_of_a_term_that_nobody_has_read_is_a_gap(path):
    fill(path, [make_line(seq) for seq in (1, 2)], term=7)
    with open_store(path) as store:
        store.append(8, "leader-b", [make_line(1, EPOCH + 90_000, "Term")]).result()
    kinds = [(each["kind"], each["seq"]) for each in read_all(path)]
    assert kinds == [("Attempt", 1), ("Attempt", 2), ("Gap", 3), ("Term", 1)]
    gap = read_all(path)[2]
    assert (gap["from"], gap["to"], gap["count"]) == (3, None, None)


def test_a_lease_that_is_made_again_puts_no_record_before_older_ones(path):
    fill(path, [make_line(1, name="old")], term=7)
    with open_store(path) as store:
        store.append(0, "leader-b", [make_line(1, name="new")]).result()
        store.append(0, "leader-b", [make_line(2, name="new")]).result()
    names = [each["unit"]["key"] for each in read_all(path) if each["kind"] != "Gap"]
    assert names == ["team-a/old", "team-a/new", "team-a/new"]


def test_refusals_get_the_numbers_that_they_had_in_the_end(path):
    closed = {"seq": 1, "repeats": 117, "lastAt": "2026-11-25T07:10:00.400Z", "position": 4}
    fill(path, [make_line(1), make_line(2, kind="Placed", closed=closed)])
    first, _ = read_all(path)
    assert {name: first[name] for name in ("repeats", "lastAt", "position")} == {
        "repeats": 117,
        "lastAt": "2026-11-25T07:10:00.400Z",
        "position": 4,
    }


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b'{"term":1}',
        b'{"term":1,"seq":1,"at":"never","kind":"Seen"}',
        b'{"term":-1,"seq":1,"at":"2026-11-25T07:10:00.400Z","kind":"Seen"}',
        b'{"term":1,"seq":0,"at":"2026-11-25T07:10:00.400Z","kind":"Seen"}',
        b'{"term":1,"seq":99999999999999999999,"at":"2026-11-25T07:10:00.400Z","kind":"Seen"}',
        b'{"term":1,"seq":1,"at":"2026-11-25T07:10:00.400Z","kind":"Seen","unit":[]}',
        b'{"term":1,"seq":1,"at":"2026-11-25T07:10:00.400Z","kind":"S\\ud800"}',
        b"[" * 100_000,
        make_line(1, text="x" * 20_000),
    ],
)
def test_what_is_no_record_is_counted_and_costs_no_other(path, line):
    with open_store(path) as store:
        appended = store.append(1, "leader-a", [line, make_line(2)]).result()
    assert (appended.written, appended.invalid) == (1, 1)
    assert [each["seq"] for each in read_all(path)] == [2]


def test_a_unit_is_found_by_all_its_names(path):
    nodes = [{"node": "n1", "pods": 2, "names": ["train-0", "train-1"]}]
    pods = [{"name": "old-0", "uid": "a", "node": "n1"}]
    fill(
        path,
        [
            make_line(1, kind="Seen"),
            make_line(2, kind="Placed", nodes=nodes),
            make_line(3, kind="Seen", name="other"),
            make_line(4, kind="Evicted", pods=pods, name="other"),
        ],
    )
    reader = StoreReader(path)
    for name, kind in (("train", "Unit"), ("train-1", "Pod"), ("train-job", "Job"), ("train", "")):
        assert [each["seq"] for each in reader.story("team-a", name, kind).rows] == [1, 2]
    assert [each["seq"] for each in reader.story("team-a", "old-0").rows] == [3, 4]
    for namespace, name, kind in (("team-b", "train", ""), ("team-a", "train", "Pod")):
        assert not reader.story(namespace, name, kind).rows


def test_a_story_has_the_terms_and_gaps_since_its_first_record(path):
    fill(
        path,
        [
            make_line(1, EPOCH, "Term", unit=None, trace=""),
            make_line(2, EPOCH + 1, "Seen"),
            make_line(3, EPOCH + 2, "Seen", name="other"),
            make_line(4, EPOCH + 3, "Gap", unit=None, trace=""),
        ],
    )
    rows = StoreReader(path).story("team-a", "train").rows
    assert [each["seq"] for each in rows] == [2, 4]
    story = make_story(Subject("", "team-a", "train"), rows, SeenObjects(), EPOCH + 60_000)
    assert [each.what for each in story.happenings] == ["Seen"]
    assert not StoreReader(path).story("team-a", "none").rows


def test_units_that_went_on_are_carried_into_a_range(path):
    hour = 3_600_000
    fill(
        path,
        [
            make_line(1, EPOCH, "Seen", name="waits"),
            make_line(2, EPOCH, "Seen", name="ended"),
            make_line(3, EPOCH + 1, "Ended", name="ended"),
            make_line(4, EPOCH, "Seen", name="again"),
            make_line(5, EPOCH + 2, "Ended", name="again"),
            make_line(6, EPOCH + 3, name="again"),
            make_line(7, EPOCH + 2 * hour, "Ended", name="waits"),
        ],
    )
    window = Window(EPOCH + hour, EPOCH + 3 * hour)
    with StoreReader(path).visit(window) as visit:
        assert [each["seq"] for each in visit.carried()] == [1, 4, 5, 6]
        assert [each["seq"] for each in visit.records()] == [7]
        assert (visit.is_whole, visit.since, visit.until) == (True, window.start, window.end)


def test_a_visit_for_which_there_is_no_time_has_nothing_and_says_so(path, monkeypatch):
    """Also if time is over while SQLite still counts."""
    monkeypatch.setattr(reading_module, "_STEPS", 1)
    fill(path, [make_line(seq, EPOCH + seq) for seq in range(1, 9)])
    with StoreReader(path).visit(Window(EPOCH, EPOCH + 9), Bounds(seconds=0.0)) as visit:
        assert (visit.is_whole, visit.since) == (False, EPOCH + 9)
        assert not list(visit.records())


def test_of_too_many_records_the_newest_are_visited(path):
    fill(path, [make_line(seq, EPOCH + seq) for seq in range(1, 9)])
    with StoreReader(path).visit(Window(EPOCH, EPOCH + 9), Bounds(rows=3)) as visit:
        assert [each["seq"] for each in visit.records()] == [6, 7, 8]
        assert (visit.is_whole, visit.since) == (False, EPOCH + 6)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 8),
)
@settings(max_examples=examples(FEW))
def test_a_scan_that_is_cut_has_all_from_the_time_that_it_names(times, start, length, most):
    with new_path() as path:
        fill(path, [make_line(seq, EPOCH + at) for seq, at in enumerate(times, 1)])
        window = Window(EPOCH + start, EPOCH + start + length)
        scan = StoreReader(path).records(window, bounds=Bounds(rows=most))
        wanted = [seq for seq, at in enumerate(times, 1) if start <= at < start + length]
        read = [each["seq"] for each in scan.rows]
        assert scan.is_whole == (len(wanted) <= most)
        if scan.is_whole:
            assert read == wanted
        else:
            assert len(read) == most
            later = [seq for seq in wanted if EPOCH + times[seq - 1] > scan.since]
            assert set(later) <= set(read)


def test_a_scan_ends_with_its_time(path):
    fill(path, [make_line(seq) for seq in range(1, 2500)])
    scan = StoreReader(path).records(ALWAYS, bounds=Bounds(seconds=0.0))
    assert not scan.is_whole
    assert len(scan.rows) <= 1000


# --- two processes, bad files, full disks ----------------------------------------------------


def test_two_instances_do_not_write_one_store(path):
    with open_store(path), pytest.raises(StoreInUseError, match="is written by test"):
        open_store(path)
    open_store(path).close()


def test_a_writer_that_was_killed_leaves_its_store_to_the_next(path):
    code = (
        "import os, sys; from pathlib import Path; from tests.store.stores import *\n"
        "store = open_store(Path(sys.argv[1])); store.append(1, 'leader-a', [make_line(1)])\n"
        "store.flush(); os._exit(9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, path], check=False, env=os.environ)
    assert killed.returncode == 9
    with open_store(path) as store:
        store.append(1, "leader-a", [make_line(2)]).result()
    assert [each["seq"] for each in read_all(path)] == [1, 2]


def test_a_writer_on_another_machine_counts_as_long_as_it_renews(path):
    open_store(path).close()
    row = '{"holder":"koord-serve","host":"elsewhere","term":5,"at":%d}'
    with sqlite3.connect(path) as connection:
        connection.execute("REPLACE INTO meta VALUES ('writer', ?)", (row % (EPOCH - 5_000),))
    connection.close()
    with pytest.raises(StoreInUseError, match="koord-serve on elsewhere"):
        open_store(path)
    open_store(path, now=EPOCH / 1000 + 30).close()


def test_a_writer_whose_store_was_taken_writes_no_more(path):
    with open_store(path) as store:
        store.append(1, "leader-a", [make_line(1)]).result()
        row = '{"holder":"other","host":"elsewhere","term":99,"at":0}'
        with sqlite3.connect(path) as connection:
            connection.execute("REPLACE INTO meta VALUES ('writer', ?)", (row,))
        connection.close()
        with pytest.raises(StoreError, match="another process"):
            store.append(1, "leader-a", [make_line(2)]).result()
        with pytest.raises(StoreError, match="another process"):
            store.append(1, "leader-a", [make_line(2)])
        assert "another process" in store.health.problem
    assert [each["seq"] for each in read_all(path)] == [1]


def test_on_a_full_disk_reads_go_on_and_what_waits_is_written_later(path):
    with open_store(path) as store:
        store.append(1, "leader-a", [make_line(1)]).result()
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        large = [make_line(seq, text=os.urandom(4000).hex()) for seq in range(2, 20)]
        waiting = store.append(1, "leader-a", large)
        store.flush()
        health = store.health
        assert "full" in health.problem
        assert (health.failures, health.records, health.since) == (1, 1, EPOCH)
        assert not waiting.done()
        assert [each["seq"] for each in read_all(path)] == [1]
        for _ in range(MOST_WAITING - 1):
            store.append(1, "leader-a", [])
        with pytest.raises(StoreBusyError, match="full"):
            store.append(1, "leader-a", [])
        store.connection.execute("PRAGMA max_page_count = 1000000")
        store.flush()
        wait([waiting])
        assert (store.health.problem, store.health.refused) == ("", 1)
    assert [each["seq"] for each in read_all(path)] == list(range(1, 20))


def test_an_order_that_fails_is_undone_alone(path):
    def fail(writer):
        writer.set_meta("broken", 1)
        raise ValueError("no")

    with open_store(path) as store:
        futures = [store.append(1, "leader-a", [make_line(1)]), store.submit(fail)]
        store.flush()
        assert futures[0].result().written == 1
        with pytest.raises(ValueError, match="no"):
            futures[1].result()
        query = "SELECT count(*) FROM meta WHERE name = 'broken'"
        assert store.submit(lambda w: w.connection.execute(query).fetchone()).result() == (0,)


@pytest.mark.parametrize("content", [b"x" * 4096, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreUnusableError):
        open_store(path)
    with pytest.raises(StoreUnusableError):
        StoreReader(path).extent()
    assert path.read_bytes() == content


def test_a_database_of_something_else_or_of_another_version_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b)")
    with pytest.raises(StoreUnusableError, match="something else"):
        open_store(path)
    connection.execute("DROP TABLE a")
    connection.close()
    path.unlink()
    fill(path, [])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for use in (open_store, lambda path: StoreReader(path).extent()):
        with pytest.raises(StoreUnusableError, match="version 99"):
            use(path)


def test_what_does_not_exist_is_not_made_by_reading(path):
    with pytest.raises(StoreUnusableError, match="koord audit record"):
        StoreReader(path).records(ALWAYS)
    assert not path.exists()
    with pytest.raises(StoreUnusableError, match="cannot be opened"):
        open_store(path / "below")


def test_damaged_rows_are_left_out_and_counted(path):
    fill(path, [make_line(seq) for seq in (1, 2, 3)])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET body = x'00ff00ff' WHERE seq = 2")
    connection.close()
    scan = StoreReader(path).records(ALWAYS)
    assert ([each["seq"] for each in scan.rows], scan.damaged) == ([1, 3], 1)


def test_a_copy_is_read_where_nothing_can_be_written(path):
    fill(path, [make_line(1)])
    path.chmod(0o440)
    path.parent.chmod(0o550)
    try:
        assert [each["seq"] for each in read_all(path)] == [1]
    finally:
        path.parent.chmod(0o750)
