"""When to look at something that keeps changing: after a quiet moment, but not much later."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BURST_SECONDS: Final = 0.05
"""Changes come in bursts: what arrives within this time is looked at in one go."""
_TICK: Final = 0.02


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for ``quiet`` seconds without a change, at most ``longest`` after the first change."""

    quiet: float
    longest: float


class Due:
    """The moment at which something that changed at ``first`` is to be looked at."""

    __slots__ = ("_latest", "at", "pause")

    def __init__(self, first: float, pause: Pause) -> None:
        self.pause = pause
        self._latest = first + pause.longest
        self.at = min(first + pause.quiet, self._latest)

    def put_off(self, now: float) -> None:
        """Note another change."""
        self.at = min(now + self.pause.quiet, self._latest)


async def rest(woken: asyncio.Event, dues: Iterable[Due], now: float) -> None:
    """Sleep until the first of ``dues``, or until something has changed and the burst is over."""
    first = min((due.at for due in dues), default=None)
    try:
        async with asyncio.timeout(None if first is None else max(first - now, _TICK)):
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()
    await asyncio.sleep(BURST_SECONDS)
