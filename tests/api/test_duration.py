"""Durations are parsed as Go does, rounded up to seconds."""

import pytest

from koord.api.quantity import is_positive_duration, parse_duration_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), (".5s", 1), ("1.s", 1),
     ("1s1ns", 2), ("2µs", 1), ("2μs", 1), ("3us", 1), ("1m1ms", 61), ("24h0m0s", 86400),
     ("-5m", -300), ("+5m", 300), ("-0", 0)],
)  # fmt: skip
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration_seconds(text) == seconds
    assert is_positive_duration(text) == (text[0] not in "+-")


@pytest.mark.parametrize(
    "text",
    ["", "1", "00", "1d", "1 h", "h", ".", ".s", "1h\n", "1H", "9" * 64 + "s", "2562048h", "--1h"],
)
def test_durations_that_go_rejects(text: str) -> None:
    assert parse_duration_seconds(text) is None
    assert not is_positive_duration(text)
