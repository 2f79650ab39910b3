"""What earlier runs tell of the next one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koord.core.queue.history import (
    COUNTED_PARTS,
    ENOUGH_PARTS,
    MOST_KINDS,
    MOST_LINES,
    MOST_RUNS,
    WRITTEN_KINDS,
    KindRecord,
    PartsOfLimits,
    RunHistory,
)
from koord.core.queue.run_time import Estimate

KIND = ("u", "train")


def note(history: RunHistory, *seconds: int, kind: tuple[str, str] = KIND) -> None:
    for at, each in enumerate(seconds):
        history.note(kind, each, 1000 + at, has_failed=False)


def test_three_runs_tell_the_mean_of_the_last_two_and_twice_the_longest() -> None:
    history = RunHistory()
    assert history.estimate(KIND) is None
    note(history, 100, 20)
    assert history.estimate(KIND) == Estimate(60, 200, is_enough=False)
    note(history, 100, 20, 31)
    assert history.estimate(KIND) == Estimate(26, 200)


def test_the_longest_is_that_of_the_last_eight() -> None:
    history = RunHistory()
    note(history, 999, *range(10, 10 + MOST_RUNS))
    assert history.estimate(KIND) == Estimate(17, 2 * 17)


def test_a_short_failure_tells_nothing() -> None:
    history = RunHistory()
    assert not history.note(KIND, 59, 1000, has_failed=True)
    assert history.note(KIND, 60, 1001, has_failed=True)
    assert history.note(KIND, 59, 1002, has_failed=False)


def test_a_run_counts_once_over_a_restart() -> None:
    history = RunHistory()
    note(history, 10, 20, 30)
    again = RunHistory(history.records())
    assert not again.note(KIND, 30, 1002, has_failed=False)
    assert [*again.records()] == [*history.records()]
    assert again.estimate(KIND) == history.estimate(KIND)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=400))
def test_nobody_pushes_out_what_is_known_of_others(runs: list[tuple[str, int]]) -> None:
    history = RunHistory()
    history.note(("quiet", "train"), 100, 1, has_failed=False)
    for at, (user, number) in enumerate(runs):
        history.note((user, f"k{number}"), 10, 10 + at, has_failed=False)
    for number in range(2 * MOST_KINDS):
        history.note(("loud", f"k{number}"), 10, 1000 + number, has_failed=False)
    kinds = [*history.records()]
    assert len(kinds) == WRITTEN_KINDS
    assert history.estimate(("quiet", "train")) is not None
    assert KindRecord("quiet", "train", (100,), 1) in kinds


def test_a_kind_that_came_again_is_kept_longer_than_those_that_ran_once() -> None:
    history = RunHistory()
    note(history, 100, 100)
    for number in range(2 * MOST_KINDS):
        history.note(("u", f"k{number}"), 10, 2000 + number, has_failed=False)
    assert history.estimate(KIND) == Estimate(100, 200, is_enough=False)
    assert history.estimate(("u", f"k{2 * MOST_KINDS - 1}")) is not None
    assert history.estimate(("u", "k0")) is None


def test_where_all_came_again_the_newest_kind_is_kept() -> None:
    history = RunHistory()
    for number in range(MOST_KINDS):
        for run in range(2):
            history.note(("u", f"k{number}"), 10, 2000 + 2 * number + run, has_failed=False)

    def is_kept(kind: str) -> bool:
        return history.estimate(("u", kind)) is not None

    assert history.note(("v", "new"), 10, 9000, has_failed=False)
    assert history.note(("u", "new"), 10, 9001, has_failed=False)
    kinds = {kind for kind in (*(f"k{at}" for at in range(MOST_KINDS)), "new") if is_kept(kind)}
    assert {"new", f"k{MOST_KINDS - 1}"} <= kinds
    assert not kinds & {"k0", "k1"}


LINE = ("team", "u")


def test_half_of_the_runs_took_no_more_of_their_limits_than_is_expected() -> None:
    parts = PartsOfLimits()
    for at in range(ENOUGH_PARTS - 1):
        parts.note(LINE, 10, 100, has_failed=False)
        assert parts.expected_percent(LINE, 100) == 100, at
    for seconds in (*[100] * 6, *[200] * 4, *[700] * 4, *[950] * 3):
        parts.note(LINE, seconds, 1000, has_failed=False)
    assert parts.expected_percent(LINE, 1000) == 20
    assert parts.expected_percent(("team", "other"), 1000) == 100


def test_what_goes_on_is_expected_as_those_that_went_on_as_long() -> None:
    parts = PartsOfLimits()
    for seconds in (*range(100, 600, 100), 800, 900, 1000):
        parts.note(LINE, seconds, 1000, has_failed=False)
    expected = [parts.expected_percent(LINE, 1000, ran) for ran in (0, 99, 150, 500, 800)]
    assert expected == [50, 50, 50, 90, 100]


def test_only_the_last_runs_count_and_no_short_failures() -> None:
    parts = PartsOfLimits()
    for seconds in (*[90] * COUNTED_PARTS, *[10] * COUNTED_PARTS):
        parts.note(LINE, seconds, 100, has_failed=False)
    for _ in range(COUNTED_PARTS):
        parts.note(LINE, 59, 60, has_failed=True)
        parts.note(LINE, 0, 60, has_failed=False)
    assert parts.expected_percent(LINE, 100) == 10


def test_who_ran_nothing_for_longest_is_forgotten_first() -> None:
    parts = PartsOfLimits()
    for at in range(MOST_LINES + 1):
        for _ in range(ENOUGH_PARTS):
            parts.note(("team", f"u{at}"), 50, 100, has_failed=False)
            parts.note(LINE, 50, 100, has_failed=False)
    assert parts.expected_percent(LINE, 100) == 50
    assert parts.expected_percent(("team", "u0"), 100) == 100
