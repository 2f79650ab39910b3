"""Offers fall slowly and rise once a higher value is confirmed; when nodes are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.colocation.nodes import NOW

from koord.core.colocation.publishing import find_degradation, needs_sync
from koord.core.colocation.steadiness import SteadyInput, SteadyValue, steady
from koord.core.colocation.strategy import Strategy
from koord.core.load.model import NodeLoad

CPU = "kubernetes.io/batch-cpu"


def offers(*rounds: tuple[int, float], is_short: bool = False) -> list[int]:
    """Return what a node of 100 CPUs offers, for computed values and seconds between rounds."""
    value, shown = None, []
    for number, (computed, elapsed) in enumerate(rounds):
        given_round = SteadyInput(computed, 100_000, elapsed, number, is_short)
        value = steady(value, given_round)
        shown.append(value.value)
    return shown


def test_the_first_value_counts() -> None:
    assert offers((25_000, 60)) == [25_000]


def test_a_fall_takes_a_fifth_of_the_capacity_per_minute() -> None:
    assert offers(
        (70_000, 60), (5_000, 60), (5_000, 30), (5_000, 60), (5_000, 60), (5_000, 60)
    ) == [
        70_000,
        50_000,
        40_000,
        20_000,
        5_000,
        5_000,
    ]


def test_a_pause_does_not_save_up_falls() -> None:
    assert offers((70_000, 60), (5_000, 600)) == [70_000, 50_000]


def test_a_fall_counts_at_once_where_the_node_is_short() -> None:
    assert offers((70_000, 60), (5_000, 60), is_short=True) == [70_000, 5_000]


def test_a_rise_counts_once_the_next_report_confirms_it() -> None:
    assert offers((10_000, 60), (30_000, 60), (28_000, 60)) == [10_000, 10_000, 28_000]
    assert offers((10_000, 60), (30_000, 60), (9_000, 60), (30_000, 60)) == [
        10_000,
        10_000,
        9_000,
        9_000,
    ]


def test_one_report_read_twice_confirms_nothing() -> None:
    once = SteadyInput(30_000, 100_000, 60, 1.0)
    value = steady(SteadyValue(10_000), once)
    value = steady(value, once)
    assert value.value == 10_000
    assert steady(value, SteadyInput(30_000, 100_000, 60, 2.0)).value == 30_000


@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(0, 600, allow_nan=False)), min_size=1))
def test_offers_stay_between_what_was_and_what_is_computed(
    rounds: list[tuple[int, float]],
) -> None:
    shown = offers(*rounds)
    for before, after, (computed, elapsed) in zip(shown, shown[1:], rounds[1:], strict=False):
        assert min(before, computed) <= after <= max(before, computed)
        assert before - after <= 20_000 * min(elapsed, 60) / 60


@pytest.mark.parametrize(
    ("old", "new", "is_written"),
    [
        (25_000, 27_500, False),
        (25_000, 27_501, True),
        (25_000, 22_500, False),
        (0, 1, True),
        (0, 0, False),
        (None, 0, True),
        (0, None, True),
        (None, None, False),
    ],
)
def test_small_differences_are_not_written(
    old: int | None,
    new: int | None,
    is_written: bool,  # noqa: FBT001 - a table
) -> None:
    assert needs_sync({CPU: old}, {CPU: new}, Strategy(), 1e9) is is_written


def test_after_a_time_small_differences_are_written_where_that_is_asked_for() -> None:
    strategy = Strategy(update_time_threshold_seconds=300)
    assert not needs_sync({CPU: 25_000}, {CPU: 25_001}, strategy, 300)
    assert needs_sync({CPU: 25_000}, {CPU: 25_001}, strategy, 301)
    assert not needs_sync({CPU: 25_000}, {CPU: 25_000}, strategy, 301)


def test_a_report_counts_for_exactly_the_time_it_may() -> None:
    strategy = Strategy()
    assert find_degradation(NodeLoad("n", updated=NOW - 900), strategy, NOW) is None
    old = find_degradation(NodeLoad("n", updated=NOW - 901), strategy, NOW)
    assert old is not None
    assert old.describe("Mid") == (
        "degrade node Mid resource because of abnormal nodeMetric, reason: degradedByMidResource; "
        "the report is 901 s old"
    )
    for report in (None, NodeLoad("n"), NodeLoad("n", updated=NOW, is_reported=False)):
        assert find_degradation(report, strategy, NOW) is not None
