"""The clock of the planner: time since the epoch, which lasts as long as it really takes.

Everything that the planner compares is in this time: creation times of objects, holds, back-offs.
The clock of the machine may be corrected at any moment. Corrected forwards, it is followed at once.
Corrected backwards, no time is lived through twice: this clock runs slower until the other one has
caught up, so that nothing lasts more than twice as long.
"""

import time
from collections.abc import Callable
from typing import Final

SLOWEST: Final = 0.5
"""How fast it runs, at least."""


class Clock:
    """Returns seconds since the epoch; no call returns less than the one before."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._now, self._read_at = wall(), steady()

    def __call__(self) -> float:
        read_before, self._read_at = self._read_at, self._steady()
        passed = self._read_at - read_before
        self._now = max(self._wall(), self._now + SLOWEST * passed)
        return self._now
