"""Durations as Go writes them: ``90s``, ``1h30m``, ``0``.

Reservations and gangs state their patience this way. Nothing here knows what is waited for.
"""

import re
from decimal import Decimal
from math import ceil
from typing import Final

MAX_TEXT: Final = 64
DURATION_PATTERN: Final = "(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)"
"""A duration that lies ahead, for schemas; it has no sign."""

_DURATION: Final = re.compile(f"[+-]?{DURATION_PATTERN}", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)([a-zµμ]+)", re.ASCII)
_NANOSECONDS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_MAX_NANOSECONDS: Final = 2**63 - 1


def parse_duration_seconds(text: str) -> int | None:
    """Read a duration, rounded up to seconds; None if Go would not read it."""
    if len(text) > MAX_TEXT or not _DURATION.fullmatch(text):
        return None
    total = sum((Decimal(n) * _NANOSECONDS[unit] for n, unit in _PART.findall(text)), Decimal(0))
    if total > _MAX_NANOSECONDS:
        return None
    seconds = ceil(total / 10**9)
    return -seconds if text.startswith("-") else seconds


def is_positive_duration(text: str) -> bool:
    """Whether the text is a duration without a sign."""
    return parse_duration_seconds(text) is not None and text[0] not in "+-"
