"""Durations are read as Go reads them."""

import pytest

from koord.api.duration import InvalidDurationError, is_duration, parse_duration

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("0", 0), ("0s", 0), ("90s", 90 * SECOND), ("1h30m", 5400 * SECOND), ("1.5h", 5400 * SECOND),
     (".5s", SECOND // 2), ("1.s", SECOND), ("2µs", 2000), ("2μs", 2000), ("3us", 3000),
     ("1m1ms1ns", 60 * SECOND + 10**6 + 1), ("0.1ns", 0), ("24h0m0s", 86400 * SECOND)],
)  # fmt: skip
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "1", "00", "-1h", "+1h", "1d", "1 h", "h", ".", ".s", "1h\n", "1H", "9" * 40 + "s"]
)
def test_what_is_no_duration_is_named(text: str) -> None:
    assert not is_duration(text)
    with pytest.raises(InvalidDurationError) as refusal:
        parse_duration(text)
    assert repr(text[:32]) in str(refusal.value)
