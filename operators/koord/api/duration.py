"""Durations as Go writes them: ``90s``, ``1h30m``, ``0``.

Reservations and gangs state their patience this way. Only durations that lie ahead are of use, so
there is no sign.
"""

import re
from fractions import Fraction
from typing import Final

MAX_TEXT: Final = 32
DURATION_PATTERN: Final = "(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)"

_DURATION: Final = re.compile(DURATION_PATTERN, re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)([a-zµμ]+)", re.ASCII)
_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


class InvalidDurationError(ValueError):
    """The text is no duration; the message names it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:MAX_TEXT]!r} is not a duration; write it like 90s, 15m or 1h30m")


def is_duration(text: str) -> bool:
    """Whether `parse_duration` takes the text."""
    return len(text) <= MAX_TEXT and _DURATION.fullmatch(text) is not None


def parse_duration(text: str) -> int:
    """Return the duration in nanoseconds; what is finer is cut off, as Go does."""
    if not is_duration(text):
        raise InvalidDurationError(text)
    parts = _PART.findall(text)
    return int(sum(Fraction(f"0{amount}") * _NANOSECONDS[unit] for amount, unit in parts))
