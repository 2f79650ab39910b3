"""Records in memory are told as those of a file; so many are kept, and the last of the living."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.stores import ALWAYS, EPOCH, fill, make_line
from tests.store.test_store_analysis import make_stream

from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import GapCause
from koord.core.usage.segments import Window
from koord.store.analysis import analyse_store
from koord.store.days import DAY_MS, HOUR_MS
from koord.store.memory import KEPT_OF_LIVING, MemoryStore
from koord.store.reading import Bounds, StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(clock=lambda: EPOCH / 1000)
    yield made
    made.close()


def seqs(store: MemoryStore) -> list[int]:
    return [record["seq"] for record in store.records(ALWAYS).rows]


def test_it_tells_what_a_file_tells(store: MemoryStore, tmp_path: Path) -> None:
    lines = [json.dumps(each | {"mono": None}).encode() for each in make_stream().documents]
    closed = {"seq": 1, "repeats": 7, "lastAt": "2026-01-01T00:00:00Z", "position": 2}
    first = json.loads(lines[0])
    lines.append(
        make_line(
            len(lines) + 1,
            EPOCH + 3 * HOUR_MS,
            unit=first["unit"],
            trace=first["trace"],
            closed=closed,
        )
    )
    path = tmp_path / "see.db"
    fill(path, lines)
    fill(path, [make_line(1, EPOCH + 4 * HOUR_MS)], term=2)
    for term, each in ((1, lines), (2, [make_line(1, EPOCH + 4 * HOUR_MS)])):
        store.append(term, "leader-a", each).result()
    reader = StoreReader(path)
    assert store.records(ALWAYS).rows == reader.records(ALWAYS).rows
    for name in ("old", "u3", "gone", "train", "none"):
        told = store.story("team-a", name)
        assert told.rows == reader.story("team-a", name).rows, name
    window = Window(EPOCH + HOUR_MS, EPOCH + DAY_MS)
    of_file, found = analyse_store(path, window, AuditScope()), store.analyse(window, AuditScope())
    assert (found.report, found.gaps) == (of_file.report, ())
    assert store.read_position().result() is not None


def test_the_newest_are_kept_and_what_was_before_is_a_gap() -> None:
    store = MemoryStore(most_records=10)
    lines = [make_line(at, EPOCH + at, name=f"u{at}", kind="Ended") for at in range(1, 31)]
    store.append(1, "a", lines).result()
    assert seqs(store) == list(range(21, 31))
    assert store.story("team-a", "u5").rows == ()
    assert store.extent.first == EPOCH + 21
    window = Window(EPOCH, EPOCH + 100)
    assert [gap.because for gap in store.analyse(window, AuditScope()).gaps] == [
        GapCause.NOT_STORED
    ]
    assert store.records(ALWAYS, Bounds(rows=3)).is_whole is False


def test_the_last_records_of_a_unit_stay_until_it_is_over() -> None:
    store = MemoryStore(most_records=10)
    store.append(1, "a", [make_line(at, EPOCH + at) for at in range(1, 21)]).result()
    others = [make_line(20 + at, EPOCH + 20 + at, name="x", kind="Ended") for at in range(1, 12)]
    store.append(1, "a", others).result()
    told = [r["seq"] for r in store.story("team-a", "train").rows]
    assert told == list(range(21 - KEPT_OF_LIVING, 21))
    store.append(1, "a", [make_line(99, EPOCH + 99, kind="Ended")]).result()
    assert [r["seq"] for r in store.story("team-a", "train").rows] == [99]


def test_bytes_have_a_bound_however_many_units_live() -> None:
    store = MemoryStore(most_records=10, most_bytes=100_000)
    for at in range(1, 1001):
        store.append(1, "a", [make_line(at, EPOCH + at, name=f"u{at}")]).result()
    assert store.extent.bytes <= 100_000
    assert seqs(store)[-10:] == list(range(991, 1001))
    assert 10 < store.extent.records < 500


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["Attempt", "Ended"])), max_size=60),
    st.integers(1, 12),
)
def test_any_records_leave_what_was_said(units: list[tuple[int, str]], most: int) -> None:
    """The newest are there, and of each unit that lives its last ones; of others nothing."""
    store = MemoryStore(most_records=most)
    lines = [
        make_line(at, EPOCH + at, name=f"u{unit}", kind=kind)
        for at, (unit, kind) in enumerate(units, start=1)
    ]
    store.append(1, "a", lines).result()
    kept = set(range(max(1, len(units) - most + 1), len(units) + 1))
    for unit in {unit for unit, _ in units}:
        own = [at for at, (of, _) in enumerate(units, start=1) if of == unit]
        if units[own[-1] - 1][1] != "Ended":
            last_end = max((at for at in own if units[at - 1][1] == "Ended"), default=0)
            assert kept | {at for at in own[-KEPT_OF_LIVING:] if at > last_end} <= kept | set(
                seqs(store)
            )
    assert kept <= set(seqs(store))
    store.append(2, "b", [make_line(at, name="z", kind="Ended") for at in range(1, most + 1)])
    store.read_position().result()
    living = {f"u{unit}" for unit in range(5)}
    assert {name for _, name in store._by_name if name in living} == {
        f"u{unit}" for unit in range(5) if store.story("team-a", f"u{unit}").rows
    }
    store.close()


def test_lines_that_are_no_records_and_those_that_were_read_change_nothing(
    store: MemoryStore,
) -> None:
    lines = [make_line(1), b"{", make_line(2)]
    assert store.append(1, "a", lines).result().invalid == 1
    assert store.append(1, "a", lines).result().written == 0
    assert seqs(store) == [1, 2]
