"""How certain a start is, how exact it is told, and why it moved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.queue.promises import (
    Certainty,
    Competitor,
    MoveCause,
    PromiseBasis,
    PromiseMove,
    explain_move,
    judge_certainty,
    round_start,
)
from koord.core.queue.run_time import Knowledge

HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("level", "is_reserved", "is_covered", "certainty"),
    [
        (Knowledge.DECLARED, True, True, Certainty.PROMISED),
        (Knowledge.DECLARED, True, False, Certainty.PROMISED),
        (Knowledge.DECLARED, False, True, Certainty.ESTIMATED),
        (Knowledge.STATED, True, True, Certainty.ESTIMATED),
        (Knowledge.HISTORY, False, True, Certainty.ESTIMATED),
        (Knowledge.HISTORY, True, False, Certainty.GUESS),
        (Knowledge.DEFAULT, True, True, Certainty.GUESS),
        (Knowledge.NONE, True, True, Certainty.UNKNOWN),
    ],
)
def test_certainty(
    level: Knowledge, *, is_reserved: bool, is_covered: bool, certainty: Certainty
) -> None:
    assert judge_certainty(level, is_reserved=is_reserved, is_covered=is_covered) is certainty


@pytest.mark.parametrize(
    ("wait", "told"),
    [
        (1, 60),
        (60, 60),
        (3599, 3600),
        (3601, 3900),
        (6 * HOUR - 1, 6 * HOUR),
        (DAY + 1, DAY + HOUR),
    ],
)
def test_a_start_is_told_the_less_exactly_the_later_it_is(wait: int, told: int) -> None:
    assert round_start(DAY, DAY + wait) == DAY + told


@given(st.integers(0, 10**10), st.floats(0, 10**7))
def test_a_start_is_never_told_to_be_earlier(now: int, wait: float) -> None:
    assert now + wait <= round_start(now, now + wait) < now + wait + HOUR + 1


AHEAD = Competitor("u", "team", 5, lasts=60.0, pods=1)
PROMISE = PromiseBasis(
    1000,
    "team",
    5,
    ("n0", "n1"),
    {"default/r": (900.0, Knowledge.DECLARED)},
    {"u": AHEAD},
    quota_edits=1,
    asks=AHEAD,
)
USABLE = {"n0", "n1", "n2"}


def after(**changes: object) -> PromiseBasis:
    values = {
        name: getattr(PROMISE, name)
        for name in PromiseBasis.__dataclass_fields__
        if name != "start"
    }
    return PromiseBasis(**{"start": 2000, **values, **changes})  # type: ignore[arg-type]


def other(name: str, **about: object) -> dict[str, Competitor]:
    return {name: Competitor(name, **{"queue": "team", "priority": 5, **about})}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "usable", "cause", "by"),
    [
        (after(), {"n0"}, MoveCause.NODE, "n1"),
        (
            after(ends={"default/r": (960.0, Knowledge.DECLARED)}),
            USABLE,
            MoveCause.LATE_END,
            "default/r",
        ),
        (after(ahead=other("x", priority=9)), USABLE, MoveCause.HIGHER_PRIORITY, "x"),
        (
            after(ahead=other("x", queue="other", is_guaranteed=True)),
            USABLE,
            MoveCause.GUARANTEE,
            "x",
        ),
        (after(ahead=other("x", queue="other")), USABLE, MoveCause.LOAD, "x"),
        (after(ahead=other("x", queue="other", tier=1)), USABLE, MoveCause.AGE, "x"),
        (after(ahead=other("x", tier=1), tier=1), USABLE, MoveCause.LOAD, "x"),
        (after(ahead=other("x", is_repair=True)), USABLE, MoveCause.REPAIR, "x"),
        (after(quota_edits=2), USABLE, MoveCause.QUOTA_CHANGED, "team"),
        (after(lost_place=(MoveCause.PREEMPTED, "x")), USABLE, MoveCause.PREEMPTED, "x"),
        (after(start=None, is_hold_expired=True), USABLE, MoveCause.HOLD_EXPIRED, ""),
        (after(asks=Competitor("own", "team", lasts=61.0)), USABLE, MoveCause.ESTIMATE, "own"),
        (after(ahead=other("u", lasts=61.0)), USABLE, MoveCause.ESTIMATE, "u"),
        (after(ahead=other("u", lasts=60.0, pods=2)), USABLE, MoveCause.ESTIMATE, "u"),
        (after(ahead=other("u", lasts=60.0)), USABLE, MoveCause.OTHER, ""),
        (after(), USABLE, MoveCause.OTHER, ""),
    ],
)
def test_a_promise_moves_later_for_a_cause(
    now: PromiseBasis, usable: set[str], cause: MoveCause, by: str
) -> None:
    assert explain_move(PROMISE, now, usable) == PromiseMove(1000, now.start, cause, by)


@pytest.mark.parametrize(
    ("about", "cause"),
    [({"is_guaranteed": True}, MoveCause.GUARANTEE), ({}, MoveCause.LOAD)],
)
def test_who_has_passed_another_one_ahead_moves_promises_as_well(
    about: dict[str, Any], cause: MoveCause
) -> None:
    first, second = other("x", queue="a"), other("y", queue="b", **about)
    before = after(start=1000, ahead=first | second)
    assert explain_move(before, after(ahead=second | first), USABLE) == PromiseMove(
        1000, 2000, cause, "y"
    )
    assert explain_move(before, after(ahead=first | second), USABLE) == PromiseMove(
        1000, 2000, MoveCause.OTHER
    )


def test_an_outrun_estimate_is_no_late_end() -> None:
    before = after(start=1000, ends={"r": (900.0, Knowledge.HISTORY)})
    now = after(ends={"r": (1800.0, Knowledge.HISTORY)})
    assert explain_move(before, now, USABLE) == PromiseMove(1000, 2000, MoveCause.ESTIMATE, "r")


def test_moves_earlier_are_silent_and_without_a_promise_nothing_moves() -> None:
    assert explain_move(PROMISE, after(start=1000), set()) is None
    assert explain_move(PROMISE, after(start=500), set()) is None
    assert explain_move(after(start=None), after(), set()) is None
