"""What is noted of promises and of starts that are foreseen."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.queue_policies import CONTENDERS, limit_of, measure, play
from benchmarks.queue_trace import make_trace

TRACE = make_trace(7, 0.95, 0.3, 1.0)
OURS = next(contender for contender in CONTENDERS if contender.name == "Backfill")


def test_starts_are_foreseen_and_looking_ahead_changes_nothing() -> None:
    plain, _ = play(OURS, TRACE)
    watched, seconds = play(OURS, TRACE, limit_of)
    assert watched.starts == plain.starts
    figures = measure(watched, TRACE, seconds)
    assert figures["foreseen"] > 0
    assert 0 <= figures["eta coverage"] <= 100


def test_without_arrivals_and_with_true_durations_starts_are_as_foreseen() -> None:
    units = [
        replace(unit, arrival=0, job=replace(unit.job, limit=unit.duration)) for unit in TRACE.units
    ]
    trace = replace(TRACE, units=tuple(units[:150]))
    watched, _ = play(OURS, trace, limit_of)
    assert watched.foreseen
    for key, foreseen in watched.foreseen.items():
        assert watched.starts[key] == foreseen.start


def test_no_promise_moves_without_a_cause() -> None:
    watched, _ = play(OURS, TRACE)
    assert watched.promises
    assert watched.promise_figures()["moved by Other"] == 0
