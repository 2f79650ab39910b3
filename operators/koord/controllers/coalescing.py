"""When to look at something that keeps changing: after a quiet moment, but not much later.

What is to be looked at, and what for, is not known here. Thousands of things may wait for their
moment: nothing goes over all of them.
"""

import asyncio
import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

BURST_SECONDS: Final = 0.05
"""Changes come in bursts: what arrives within this time is looked at in one go."""
_TICK: Final = 0.02
_FEW: Final = 64
"""So many moments that are out of date are no matter."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for ``quiet`` seconds without a change, at most ``longest`` after the first change."""

    quiet: float
    longest: float


_AT_ONCE: Final = Pause(0.0, 0.0)


@dataclass(slots=True)
class _Due:
    """When to look at one thing.

    ``at`` is the moment to look, ``latest`` the last one that it is put off to.

    ``queued`` is the moment under which it stands in the heap: by then somebody sees what ``at``
    has become.
    """

    pause: Pause
    at: float
    latest: float
    queued: float = 0.0


class Agenda(Generic[K]):
    """Keys of what is to be looked at, each with its moment (seconds of any clock)."""

    def __init__(self) -> None:
        self._dues: dict[K, _Due] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()
        """Tell apart what stands under the same moment."""

    def __len__(self) -> int:
        return len(self._dues)

    def put_off(self, key: K, now: float, pause: Pause) -> None:
        """Note a change. With another ``pause`` than before it is the first one."""
        due = self._dues.get(key)
        if due is None or due.pause is not pause:
            self._set(key, _Due(pause, now + pause.quiet, now + pause.longest))
        else:
            due.at = min(now + pause.quiet, due.latest)

    def look_at(self, key: K, at: float) -> None:
        """See to it that something is looked at by then."""
        due = self._dues.get(key)
        if due is None or due.at > at:
            self._set(key, _Due(_AT_ONCE, at, at))

    def drop(self, key: K) -> None:
        """Look at something no more."""
        self._dues.pop(key, None)

    def first(self) -> float | None:
        """Return the first moment, None if there is nothing to look at."""
        while self._heap:
            queued, _, key = self._heap[0]
            due = self._dues.get(key)
            if due is not None and due.queued == queued:
                if due.at <= queued:
                    return queued
                self._set(key, due)
            heapq.heappop(self._heap)
        return None

    def take(self, now: float) -> list[K]:
        """Return those whose moment has come, and look at them no more."""
        taken = []
        while (first := self.first()) is not None and first <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._dues[key]
            taken.append(key)
        return taken

    def _set(self, key: K, due: _Due) -> None:
        due.queued = due.at
        self._dues[key] = due
        heapq.heappush(self._heap, (due.at, next(self._numbers), key))
        if len(self._heap) > 2 * len(self._dues) + _FEW:
            self._clean_up()

    def _clean_up(self) -> None:
        """Throw out moments that something stands under no more."""
        dues = self._dues
        self._heap = [one for one in self._heap if one[2] in dues and dues[one[2]].queued == one[0]]
        heapq.heapify(self._heap)


async def rest(woken: asyncio.Event, until: float | None, now: float) -> None:
    """Sleep until a moment, or until something has changed and the burst is over."""
    try:
        async with asyncio.timeout(None if until is None else max(until - now, _TICK)):
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()
    await asyncio.sleep(BURST_SECONDS)
