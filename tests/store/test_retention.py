"""Days go whole, the oldest first; what is to be forgotten goes with a gap that counts it."""

from __future__ import annotations

import os
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
from tests.store.test_segments import make
from tests.support.laws import examples

from koord.core.usage.segments import EndBasis
from koord.store import keeper, retention
from koord.store.database import open_for_writing
from koord.store.days import DAY_MS, HOUR_MS, day_of
from koord.store.errors import StoreUnusableError
from koord.store.forgetting import forget_namespace, forget_user
from koord.store.reading import StoreReader
from koord.store.retention import Keep

if TYPE_CHECKING:
    from pathlib import Path

LARGE = 1 << 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "see.db"


def days_of(path: Path) -> list[int]:
    rows = StoreReader(path).records(ALWAYS).rows
    return [(each["seq"] - 1) // 50 for each in rows]


def clean(connection, keep, now, slices, most=3):
    """Remove in parts, as the writer does, and stop in the middle of it."""
    for _ in range(slices):
        connection.execute("BEGIN IMMEDIATE")
        retention.set_floor(connection, retention.find_floor(connection, keep, now))
        retention.remove_some(connection, now, most)
        connection.execute("COMMIT")


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from([0, LARGE]),
    st.integers(0, 9),
)
@settings(max_examples=examples(FEW))
def test_a_day_is_there_as_a_whole_or_not_at_all(days, today, keep, most_bytes, slices):
    """Whatever is too old or too large, and wherever the removal stops."""
    with new_path() as path:
        lines = [
            make_line(seq, EPOCH + day * DAY_MS + seq * HOUR_MS, name=f"u{seq}")
            for seq, day in enumerate(days, 1)
        ]
        fill(path, lines)
        connection = open_for_writing(path)
        now = EPOCH + today * DAY_MS + HOUR_MS
        clean(connection, Keep(keep * DAY_MS, most_bytes), now, slices)
        connection.close()
        kept = [each["seq"] for each in read_all(path)]
        left = {days[seq - 1] for seq in kept}
        assert kept == [seq for seq, day in enumerate(days, 1) if day in left]
        assert left >= {day for day in days if day >= today}, "today stays"
        if slices:
            assert all(day >= today - keep for day in left)
        assert left == {day for day in days if day >= min(left, default=9)}, "the oldest go first"


def test_all_that_is_said_of_an_old_day_goes(path):
    old, new = EPOCH, EPOCH + 40 * DAY_MS
    fill(path, [make_line(1, old, name="old"), make_line(2, new, name="new")])
    with open_store(path) as store:
        segments = [make("a", 0, 10), make("b", 40 * DAY_MS, 10)]
        segments.append(make("c", 0, 10, basis=EndBasis.OPEN))
        store.put_segments(segments).result()
    connection = open_for_writing(path)
    clean(connection, Keep(), new, 8, most=100)
    counts = [
        connection.execute(query).fetchone()[0]
        for query in (
            "SELECT count(*) FROM record",
            "SELECT count(*) FROM trace",
            "SELECT count(*) FROM name",
            "SELECT count(*) FROM segment",
            "SELECT count(*) FROM hour",
        )
    ]
    assert counts == [1, 1, 2, 2, 2]
    connection.close()
    reader = StoreReader(path)
    assert not reader.story("team-a", "old").rows
    assert [each["seq"] for each in reader.story("team-a", "new").rows] == [2]


def test_the_writer_removes_days_by_itself(path):
    fill(path, [make_line(1), make_line(2, EPOCH + 40 * DAY_MS)])
    with open_store(path, now=EPOCH / 1000 + 40 * 86_400) as store:
        while len(read_all(path)) > 1:
            store.flush()
    assert [each["seq"] for each in read_all(path)] == [2]


def test_records_of_days_that_were_removed_do_not_come_back(path):
    fill(path, [make_line(1, EPOCH)])
    connection = open_for_writing(path)
    connection.execute("REPLACE INTO meta VALUES ('floor', ?)", (EPOCH + DAY_MS,))
    connection.close()
    assert not read_all(path)
    with open_store(path) as store:
        appended = store.append(1, "leader-a", [make_line(2), make_line(3, EPOCH + DAY_MS)])
        assert (appended.result().late, appended.result().written) == (1, 1)
    assert [each["seq"] for each in read_all(path)] == [3]


def test_a_file_that_is_too_large_loses_its_oldest_days_until_it_is_not(path):
    lines = [
        make_line(50 * day + number + 1, EPOCH + day * DAY_MS, text=os.urandom(3000).hex())
        for day in range(3)
        for number in range(50)
    ]
    fill(path, lines)
    size = StoreReader(path).extent().bytes
    connection = open_for_writing(path)
    clean(connection, Keep(400 * DAY_MS, size * 4 // 5), EPOCH + 2 * DAY_MS, 9, most=40)
    connection.close()
    assert set(days_of(path)) == {1, 2}
    assert StoreReader(path).extent().bytes <= size * 4 // 5


def test_if_today_alone_is_too_large_writing_stops_until_tomorrow(path, monkeypatch):
    monkeypatch.setattr(keeper, "CLEANING_SECONDS", 0.0)  # nobody waits for the second look
    keep = Keep(most_bytes=1)
    with open_store(path, keep=keep) as store:
        waiting = store.append(1, "leader-a", [make_line(1)])
        store.flush()
        while not store.health.problem and waiting.done():
            waiting = store.append(1, "leader-a", [make_line(2)])
            store.flush()
        assert "today" in store.health.problem


# --- forgetting ------------------------------------------------------------------------------


def test_what_is_forgotten_of_a_namespace_leaves_a_gap_that_counts_it(path):
    lines = [make_line(seq, EPOCH + seq, namespace="team-a") for seq in range(1, 6)]
    lines.append(make_line(6, EPOCH + 6, namespace="team-b"))
    lines.append(make_line(7, EPOCH + 7, namespace="team-a"))
    fill(path, lines)
    with open_store(path) as store:
        store.put_segments([make("a", 0, 5), make("b", HOUR_MS, 5)]).result()
        before = sum(hour.held for hour in StoreReader(path).hours(ALWAYS).rows)
        forgotten = forget_namespace(path, "team-a", EPOCH + 7)
        assert (forgotten.records, forgotten.segments) == (5, 1)
        kinds = [(each["kind"], each["seq"]) for each in read_all(path)]
        assert kinds == [("Gap", 5), ("Attempt", 6), ("Attempt", 7)]
        gap = read_all(path)[0]
        assert (gap["from"], gap["to"], gap["count"], gap["why"]) == (1, 5, 5, "Forgotten")
        assert sum(hour.held for hour in StoreReader(path).hours(ALWAYS).rows) == before
        # It goes on to be written, and found by its names.
        store.append(1, "leader-a", [make_line(8, EPOCH + 8, namespace="team-a")]).result()
        assert [each["seq"] for each in StoreReader(path).story("team-a", "train").rows] == [7, 8]
        forget_namespace(path, "team-a", EPOCH + 100)
        assert not StoreReader(path).story("team-a", "train").rows
        store.append(1, "leader-a", [make_line(9, EPOCH + 9, namespace="team-a")]).result()
    assert [each["seq"] for each in StoreReader(path).story("team-a", "train").rows] == [9]
    assert sum(each["count"] for each in read_all(path) if each["kind"] == "Gap") == 7


def test_who_a_user_was_is_forgotten_and_what_was_held_stays(path):
    flags = make_line(1, kind="Flags", flag="s", by="ann", unit=None)
    fill(path, [flags, make_line(2, kind="Flags", flag="f", by="bob", unit=None)])
    with open_store(path) as store:
        store.put_segments([make("a", 0, 5), make("b", 0, 5, user="bob")]).result()
    forgotten = forget_user(path, "ann")
    assert (forgotten.records, forgotten.segments) == (1, 1)
    assert [each["by"] for each in read_all(path)] == [None, "bob"]
    reader = StoreReader(path)
    assert [each.holder.user for each in reader.segments(ALWAYS).rows] == ["", "bob"]
    assert {hour.key.user: hour.held for hour in reader.hours(ALWAYS).rows} == {
        "": 5000,
        "bob": 5000,
    }
    assert b"ann" not in b"".join(each.read_bytes() for each in path.parent.iterdir())


def test_forgetting_makes_no_file(path):
    with pytest.raises(StoreUnusableError, match="there is no store"):
        forget_user(path, "ann")
    assert not path.exists()


def test_days_begin_at_midnight_in_utc():
    assert (day_of(EPOCH), day_of(EPOCH + DAY_MS - 1), day_of(EPOCH - 1)) == (
        EPOCH,
        EPOCH,
        EPOCH - DAY_MS,
    )
