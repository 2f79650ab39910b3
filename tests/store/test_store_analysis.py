"""The report of a store is that of its records, also of those from before its time."""

import json
import sqlite3

from tests.audit.test_analysis import Stream, analyse
from tests.store.stores import EPOCH, fill

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditScope
from koord.answers.envelope import GapCause
from koord.core.usage.segments import Window
from koord.store.analysis import analyse_store
from koord.store.days import DAY_MS, HOUR_MS
from koord.store.reading import Bounds

MINUTE = 60_000


def make_stream():
    stream = Stream()
    stream.refuse("old", to_text(EPOCH), position=1)
    stream.add("held", "Placed", to_text(EPOCH + MINUTE), position=9)
    stream.add("gone", "Placed", to_text(EPOCH + MINUTE), position=9)
    stream.add("gone", "Ended", to_text(EPOCH + 2 * MINUTE))
    for number in range(30):
        time = to_text(EPOCH + HOUR_MS + number * MINUTE)
        stream.refuse(f"u{number}", time, position=3 + number)
        stream.add(f"v{number}", "Placed", time, position=2)
    return stream


def test_a_store_gives_the_report_of_its_records(tmp_path):
    stream = make_stream()
    fill(tmp_path / "s", [json.dumps(each | {"mono": None}).encode() for each in stream.documents])
    window = Window(EPOCH + HOUR_MS, EPOCH + DAY_MS)
    stored = analyse_store(tmp_path / "s", window, AuditScope())
    assert stored.gaps == ()
    assert stored.report == analyse(stream.documents, window)
    longest = stored.report.waits.longest[0]
    assert (longest.unit, longest.waited_ms) == ("team-a/old", DAY_MS)
    assert [row.wait.unit for row in stored.report.starving] == ["team-a/old"]


def test_of_too_many_records_the_newest_are_analysed_and_a_gap_says_so(tmp_path):
    stream = make_stream()
    fill(tmp_path / "s", [json.dumps(each).encode() for each in stream.documents])
    window = Window(EPOCH, EPOCH + DAY_MS)
    stored = analyse_store(tmp_path / "s", window, AuditScope(), Bounds(rows=21))
    (gap,) = stored.gaps
    assert gap.because is GapCause.TOO_EXPENSIVE
    assert to_text(stored.report.window.start) in gap.unknown
    assert stored.report.coverage.records == 20
    assert analyse_store(tmp_path / "s", window, AuditScope(), Bounds(seconds=0.0)).gaps


def test_what_is_not_kept_any_more_is_a_gap(tmp_path):
    stream = make_stream()
    fill(tmp_path / "s", [json.dumps(each).encode() for each in stream.documents])
    window = Window(EPOCH - DAY_MS, EPOCH + HOUR_MS)
    assert analyse_store(tmp_path / "s", window, AuditScope()).gaps == ()
    with sqlite3.connect(tmp_path / "s") as connection:
        connection.execute("REPLACE INTO meta VALUES ('floor', ?)", (EPOCH,))
    connection.close()
    (gap,) = analyse_store(tmp_path / "s", window, AuditScope()).gaps
    assert (gap.because, gap.unknown) == (GapCause.NOT_STORED, f"what was before {to_text(EPOCH)}")
