"""What people are told of a place in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koord.answers.standing import Lookout, make_standings
from koord.core.engine.reasons import InsufficientNodes
from koord.core.queue.eta import Ending, Forecast
from koord.core.queue.promises import Certainty
from koord.core.queue.reasons import HeldByOwner, TooManyRunning
from koord.core.queue.run_time import Knowledge
from koord.core.queue.turns import OPEN, TIMED, StartReservation, Turn

if TYPE_CHECKING:
    from koord.core.model.reasons import Reason

NOON = 1_767_268_800  # 2026-01-01T12:00:00Z
GPU = "nvidia.com/gpu"
FULL = InsufficientNodes(2, 0, 4, (), "default/g-0", GPU, 8, 2)


def tell(
    turn: Turn, forecast: Forecast | None = None, refusal: Reason | None = FULL
) -> tuple[str, str, Certainty]:
    """Return state, text and certainty."""
    forecasts = {} if forecast is None else {turn.unit: forecast}
    refusals = {} if refusal is None else {turn.unit: refusal}
    standing = make_standings([turn], Lookout(NOON, forecasts, refusals), {"llm": 14})[turn.unit]
    return standing.state, standing.text(), standing.certainty


def reserve(kind: str, basis: Knowledge) -> StartReservation:
    return StartReservation(kind, NOON + 7450, NOON - 60, {"n1": 1, "n2": 1}, {basis: 1})


def turn(reservation: StartReservation | None = None) -> Turn:
    return Turn("u", "llm", 3, 2, {GPU: 24}, NOON - 600, reservation)


def test_a_promise_names_its_room_and_what_it_waits_for() -> None:
    ends = (Ending("default/train-a", (), NOON + 7320.0, Knowledge.DECLARED),)
    forecast = Forecast(NOON + 7440.0, Knowledge.DECLARED, ends)
    state, text, certainty = tell(turn(reserve(TIMED, Knowledge.DECLARED)), forecast)
    assert (state, certainty) == ("Reserved", Certainty.PROMISED)
    assert text == (
        "Position 3 of 14 in llm (2 ahead compete, 24 GPUs). Starts no later than 14:05 UTC: "
        "reserved on n1, n2, waits for default/train-a (limit ends 14:02 UTC)."
    )


def test_without_reserved_room_it_is_estimated() -> None:
    state, text, certainty = tell(turn(), Forecast(NOON + 90.0, Knowledge.DECLARED))
    assert (state, certainty) == ("WaitingForNodes", Certainty.ESTIMATED)
    assert text.endswith("Expected to start at 12:02 UTC (estimated).")


def test_reserved_room_behind_an_estimate_is_no_promise() -> None:
    _, text, certainty = tell(turn(reserve(TIMED, Knowledge.STATED)))
    assert certainty is Certainty.ESTIMATED
    assert "Starts no later than" in text


def test_without_known_ends_it_is_said_what_is_lacking() -> None:
    lacking = Forecast(None, Knowledge.NONE, (), FULL)
    state, text, certainty = tell(turn(reserve(OPEN, Knowledge.NONE)), lacking)
    assert (state, certainty) == ("Reserved", Certainty.UNKNOWN)
    assert text.endswith(
        "Room is held for it on n1, n2. It needs 2 more empty nodes. When it starts is not known."
    )


@pytest.mark.parametrize("forecast", [Forecast(NOON + 60.0), None])
def test_what_is_kept_back_has_no_start(forecast: Forecast | None) -> None:
    held = Turn("u", "llm", 0, 0, {})
    state, text, certainty = tell(held, forecast, HeldByOwner())
    assert (state, certainty) == ("Held", Certainty.UNKNOWN)
    assert "start" not in text
    limit = TooManyRunning("llm", "", 2, 2, "maxRunning")
    assert tell(turn(), forecast, limit)[0] == "MaxRunning"


def test_what_never_fits_says_so() -> None:
    never = Forecast(None, Knowledge.NONE, (), FULL, FULL)
    state, text, _ = tell(turn(), never)
    assert state == "NeverFits"
    assert text.startswith("It would not start even if nothing else ran: Room for 0 of 2 pods.")


def test_what_was_not_refused_yet_is_at_its_position() -> None:
    assert tell(turn(), None, None)[0] == "AtPosition"


def test_another_day_is_named() -> None:
    _, text, _ = tell(turn(), Forecast(NOON + 100_000.0, Knowledge.HISTORY))
    assert "2026-01-02 16:00 UTC (estimated)" in text
