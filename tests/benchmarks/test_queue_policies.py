"""The trace of queues: the same for a seed, and what is measured of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.queue_plot import draw
from benchmarks.queue_policies import CONTENDERS, Row, compare, measure, play, render
from benchmarks.queue_trace import CAPACITY, DAY, class_of, make_trace, offered, shake

TRACE = make_trace(7, 0.95, 0.15, 1.0)


def test_a_trace_is_the_same_for_a_seed_and_asks_for_its_load() -> None:
    assert make_trace(7, 0.95, 0.15, 1.0) == TRACE
    assert offered(make_trace(7, 0.95, 3, 1.0)) == pytest.approx(0.95, abs=0.02)
    asked = sum(unit.job.total * unit.duration for unit in TRACE.units)
    assert asked >= CAPACITY * 0.15 * DAY


def test_limits_are_never_below_the_run_time_and_none_are_drawn_if_not_asked_for() -> None:
    assert all(unit.job.limit and unit.job.limit >= unit.duration for unit in TRACE.units)
    assert not any(unit.job.limit for unit in make_trace(7, 0.95, 0.15, 0.0).units)


def test_shaken_submissions_move_by_a_minute_at_most() -> None:
    moved = zip(TRACE.units, shake(TRACE, 3).units, strict=True)
    assert all(abs(one.arrival - other.arrival) <= 60 for one, other in moved)


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.name)
def test_each_contender_starts_all(contender) -> None:
    few = replace(TRACE, units=TRACE.units[:60])
    simulation, seconds = play(contender, few)
    assert simulation.starts.keys() == {unit.job.key for unit in few.units}
    figures = measure(simulation, few, seconds)
    assert figures["utilisation"] <= 100
    assert contender.name in render([Row(contender.name, 0.95, 1.0, figures)])
    assert draw([(contender.name, figures)]).startswith("<svg")


def test_classes_are_by_size() -> None:
    assert {class_of(unit) for unit in TRACE.units} <= {"1", "2-8", "9-64", "> 64"}


def test_a_run_is_compared_with_greedy_if_that_lets_the_largest_jobs_wait() -> None:
    figures = {"wait p95 > 64": 30.0}
    assert compare(figures, {"wait p95 > 64": 60.0}) == figures | {"p95 to greedy": 0.5}
    assert compare(figures, {"wait p95 > 64": 0.0}) == figures
