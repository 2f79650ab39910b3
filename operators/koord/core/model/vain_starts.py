"""Pauses after starts in vain: each failure in a row doubles what its unit waits."""

from dataclasses import dataclass
from hashlib import blake2s
from typing import Final

FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
MOST_FAILURES: Final = 16
JITTER: Final = 0.1
"""Pauses are longer or shorter by up to this part, so that units do not come back together."""


@dataclass(frozen=True, slots=True)
class VainStarts:
    """How often in a row something was started in vain, and when that was the last time."""

    count: int
    at: float

    def until(self, key: str) -> float:
        """Return when ``key`` may be tried again."""
        return self.at + pause_after(self.count, key)


def count_failure(before: VainStarts | None, now: float) -> VainStarts:
    """Return the failures with one more."""
    count = 0 if before is None else before.count
    return VainStarts(min(count + 1, MOST_FAILURES), now)


def pause_after(failures: int, key: str) -> float:
    """Return how long something waits after so many failures: doubling, differently for each."""
    count = min(failures, MOST_FAILURES)
    pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (count - 1), LONGEST_PAUSE_SECONDS)
    digest = blake2s(f"{key}\0{count}".encode(), digest_size=2).digest()
    part = int.from_bytes(digest, "big") / 0xFFFF
    return round(pause * (1 - JITTER + 2 * JITTER * part))
