"""Usage in a store: what is read of it is what was seen, wherever time is cut."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples
from tests.usage.instants import CARD, at, between, hold
from typer.testing import CliRunner

from koord.answers.usage_report import make_report
from koord.cli.main import app
from koord.cli.usage_store import import_segments
from koord.core.usage.book import HOUR_MS, tabulate_book
from koord.core.usage.cluster_time import ClusterLevel, GpuState, integrate_cluster
from koord.core.usage.following import LOOK_MS
from koord.core.usage.late import Correction, correct
from koord.core.usage.levels import UsageLevels, UsageLook
from koord.core.usage.quota_time import QuotaLevel
from koord.core.usage.segments import EndBasis, Segment, Window
from koord.core.usage.tables import By, format_hours, tabulate
from koord.store import usage_sums
from koord.store.keeper import RecordStore
from koord.store.usage_reading import UsageReader
from koord.store.usage_recording import UsageRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable

BYS = (By.QUOTA, By.NAMESPACE, By.USER, By.OWNER, By.MODEL, By.BAND)
BASE = at("00:00")
NAMED = b'{"uid": "u", "namespace": "n", "pod": "p", "from": "2026-11-25T08:00:00Z", '


def open_store(path: Path) -> RecordStore:
    """Return a store whose clock is that of the tests: it keeps what is of then."""
    return RecordStore(path, "test", clock=lambda: at("23:00") / 1_000, batch_seconds=0.0)


def put(store: RecordStore, segments: Iterable[Segment]) -> None:
    def write(writer: object) -> None:
        usage_sums.prepare(writer.connection)
        usage_sums.put_segments(writer, segments)
        usage_sums.note_watch(writer, BASE)
        usage_sums.note_watch(writer, BASE + 30 * HOUR_MS)

    store.submit(write).result()


SPANS = st.lists(
    st.tuples(
        st.integers(0, 29 * HOUR_MS),
        st.integers(0, 3 * HOUR_MS),
        st.integers(0, 8_000),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
        st.sampled_from([EndBasis.STATUS, EndBasis.OPEN]),
    ),
    max_size=6,
)


@settings(max_examples=examples(12))
@given(SPANS, st.lists(st.integers(0, 30 * HOUR_MS), min_size=3, max_size=3).map(sorted))
def test_tables_of_a_store_are_those_of_its_segments_and_time_can_be_cut_anywhere(
    spans: list[tuple[int, int, int, str, str, EndBasis]], cuts: list[int]
) -> None:
    segments = [
        replace(
            hold(f"p{number}", held, "00:00", "00:00", quota=quota, owner=f"team-a/{owner}"),
            start=BASE + start,
            # What goes on does so until somebody looked last.
            end=BASE + (30 * HOUR_MS if basis is EndBasis.OPEN else start + length),
            basis=basis,
        )
        for number, (start, length, held, quota, owner, basis) in enumerate(spans)
    ]
    first, middle, last = (BASE + cut for cut in cuts)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "usage.db"
        with open_store(path) as store:
            put(store, segments)
            put(store, segments[:2])  # written again, it counts once
        books = {
            window: UsageReader(path).read(window)
            for window in (Window(first, middle), Window(middle, last), Window(first, last))
        }
    for window, book in books.items():
        for by in BYS:
            exact = {row.name: row.held for row in tabulate(segments, by, window).rows if row.held}
            table = tabulate_book(book, by)
            assert {row.name: row.held for row in table.rows if row.held} == exact
            assert table.total.held == sum(exact.values())


def test_a_quota_that_was_owed_and_one_that_borrowed(tmp_path: Path) -> None:
    """Quota b waits with 256 GPUs, of which a uses 64 beyond its own 448, for ten minutes."""
    path, changed = tmp_path / "usage.db", at("08:10")

    def look_at(now: int) -> UsageLook:
        before = now < changed
        b = QuotaLevel(now, 0 if before else 256 * CARD, 256 * CARD, 256 * CARD)
        a = QuotaLevel(now, (512 if before else 448) * CARD, 448 * CARD, 512 * CARD)
        cluster = {"H100": {GpuState.USED: a.used + b.used, GpuState.IDLE: 192 * CARD}}
        pods = [hold("a-0", 448 * CARD, "08:00", "08:00", quota="a")]
        extra = hold("a-1", 64 * CARD, "08:00", "08:00", quota="a")
        late = hold("b-0", 256 * CARD, "08:10", "08:10", quota="b")
        pods.append(extra if before else late)
        open_pods = tuple(replace(pod, basis=EndBasis.OPEN) for pod in pods)
        return UsageLook(open_pods, UsageLevels(now, {"a": a, "b": b}, cluster), {"a": "", "b": ""})

    levels = []
    with open_store(path) as store:
        recorder = UsageRecorder(store)
        for now in range(at("08:00"), at("09:00") + 1, LOOK_MS):
            look = look_at(now)
            levels.append(ClusterLevel(now, look.levels.cluster["H100"]))
            recorder.look(look).result()
    hour = between("08:00", "09:00")
    report = make_report(UsageReader(path).read(hour))
    lines = {line.quota: line for line in report.quotas}
    assert (lines["b"].held, lines["b"].time.owed) == (768_000_000_000, 153_600_000_000)
    assert (lines["a"].held, lines["a"].time.borrowed) == (1_651_200_000_000, 38_400_000_000)
    assert (format_hours(lines["a"].held), format_hours(lines["b"].held)) == ("458.667", "213.333")
    assert report.unseen == 0
    # Every GPU is in one state at every instant.
    exact = integrate_cluster(levels, hour)
    assert report.cluster["H100"] == Counter(exact.held)
    assert sum(report.cluster["H100"].values()) == exact.capacity


def test_after_a_crash_the_report_says_how_long_nobody_looked(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    pod = replace(hold("w", CARD, "08:00", "08:00"), basis=EndBasis.OPEN)
    for start, end in (("08:00", "08:30"), ("08:45", "09:00")):
        with open_store(path) as store:
            recorder = UsageRecorder(store)
            for now in range(at(start), at(end) + 1, LOOK_MS):
                seen = (pod,) if now <= at("08:30") else ()
                recorder.look(UsageLook(seen, UsageLevels(now))).result()
    book = UsageReader(path).read(between("08:00", "09:00"))
    (row,) = tabulate_book(book, By.NAMESPACE).rows
    assert row.held == CARD * 30 * 60_000
    assert (book.unseen, book.uncertain) == (15 * 60_000, 15 * 60_000)


def test_what_is_told_late_of_a_closed_period_counts_now(tmp_path: Path) -> None:
    """Half of it lies before anybody watched: that counts where it was."""
    path, now = tmp_path / "usage.db", at("00:00", 30)
    late = replace(hold("w", CARD, "00:00", "01:00", quota="a"), start=at("23:30", 24))
    late = replace(late, basis=EndBasis.STATUS)
    with open_store(path) as store:
        put(store, [])
        for told in (1, 0):  # told again, it counts once
            assert store.submit(partial(import_segments, [late], now)).result() == told
    reader = UsageReader(path)
    closed = reader.read(between("00:00", "01:00"))
    assert tabulate_book(closed, By.QUOTA).total.held == 0
    before = reader.read(Window(at("23:00", 24), BASE))
    assert tabulate_book(before, By.QUOTA).total.held == CARD * 30 * 60_000
    assert reader.read(Window(now, now + HOUR_MS)).adjusted == {"a": CARD * HOUR_MS}


def test_what_is_told_within_two_days_counts_where_it_was() -> None:
    told = hold("w", CARD, "08:00", "09:00")
    assert correct(told, BASE, at("23:00")) == Correction((told,), 0)
    assert correct(told, 0, at("08:00", 30)) == Correction((told,), 0)
    assert correct(told, at("08:30"), at("08:00", 30)).adjusted == told.held // 2


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.cli.usage_view.time.time", lambda: at("12:00", 26) / 1_000)


def run(*arguments: str):
    return CliRunner().invoke(app, ["usage", *arguments], catch_exceptions=False)


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    path = tmp_path / "usage.db"
    victim = replace(
        hold("ft-0", 8 * CARD, "06:00", "07:42", quota="research", model="H100", user="ada"),
        cause="Preempted",
        by="team-b/high",
        checkpointed=at("07:30"),
        basis=EndBasis.DELETED,
    )
    with open_store(path) as store:
        put(store, [victim, replace(hold("=x|<b>", CARD, "06:00", "07:00"), basis=EndBasis.STATUS)])
    return path


def test_commands_read_a_store(store_file: Path) -> None:
    csv = run("2026-11-25", "--store", str(store_file), "--by", "user", "-o", "csv").stdout
    assert (
        csv.splitlines()[1] == "2026-11-25T00:00:00Z,2026-11-26T00:00:00Z,ada,48960000000,13.600,"
    )
    rows = [
        json.loads(line)
        for line in run(
            "2026-11-25", "--store", str(store_file), "--segments", "-o", "jsonl"
        ).stdout.splitlines()
    ]
    assert {row["cause"] for row in rows} == {"Preempted", ""}
    node = json.loads(
        run("2026-11-25", "--store", str(store_file), "--by", "node", "-o", "json").stdout
    )
    assert node["total"]["held"] == 48_960_000_000 + CARD * HOUR_MS


def test_a_report_says_who_used_what_and_what_was_lost(store_file: Path) -> None:
    asked = ("report", "--month", "2026-11-25", "--store", str(store_file))
    text = run(*asked, "--price", "H100=2.50").stdout
    assert "| research | 13.600 |" in text
    assert "| ada | 13.600 | 34.00 |" in text
    assert "| Preempted | team-b/high | since it was saved | 1.600 |" in text
    assert "<b>" not in text
    page = run(*asked, "-o", "html").stdout
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    report = json.loads(run(*asked, "-o", "json").stdout)
    assert sum(row["held"] for row in report["owners"]) == report["held"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("report", "--price", "H100=cheap"), "MODEL=PRICE"),
        (("report", "--price", "=1"), "MODEL=PRICE"),
        (("--store", "/nowhere/usage.db"), "no store"),
        (("--segments",), "csv, jsonl or parquet"),
        (("report", "--quota", "nobody"), "nobody is not known"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(
    store_file: Path, arguments: tuple[str, ...], text: str
) -> None:
    more = () if "--store" in arguments else ("--store", str(store_file))
    answer = run(*arguments, *more)
    assert answer.exit_code in {2, 3}
    assert text in answer.output


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"uid": "u", "namespace": "n", "pod": "p", "from": "x", "to": "y", "milliGpus": 1}',
        NAMED + b'"to": "2026-11-25T07:00:00Z", "milliGpus": 1}',
        NAMED + b'"to": "2026-11-25T09:00:00Z", "milliGpus": 1e99}',
        b'{"uid": {}, "namespace": "n", "pod": "p"}',
        b"[" * 9_000,
    ],
)
def test_a_line_that_is_no_segment_is_named(store_file: Path, tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(line)
    answer = run("import", str(file), "--store", str(store_file))
    assert answer.exit_code == 2
    assert "bad.jsonl:1" in answer.output.replace("\n", "")


def test_sums_that_are_made_anew_are_what_they_were(store_file: Path) -> None:
    window = between("00:00", "12:00")
    before = UsageReader(store_file).read(window)
    assert run("rebuild", "--store", str(store_file)).exit_code == 0
    assert UsageReader(store_file).read(window) == before


def test_parquet_names_the_extra_that_it_needs(store_file: Path, monkeypatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("koord.cli.usage_files.import_module", refuse)
    answer = run("2026-11-25", "--store", str(store_file), "-o", "parquet")
    assert answer.exit_code == 2
    assert "koord-operators[parquet]" in answer.output.replace("\n", "")
