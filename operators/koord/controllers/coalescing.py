"""Coalesces changes: something that keeps changing is due after a quiet moment, but not much later.

What is due, and what for, is not known here. Thousands of keys may be pending: no call goes over
all of them.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

_MAX_STALE: Final = 64
"""The heap may hold this many stale entries before it is rebuilt, whatever its size."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for ``quiet`` seconds without a change, at most ``longest`` after the first change."""

    quiet: float
    longest: float


_AT_ONCE: Final = Pause(0.0, 0.0)


@dataclass(slots=True)
class _Due:
    """When one key is due: at ``at``, which changes can delay until ``latest``.

    ``queued`` is the time of its entry in the heap, which may be earlier than ``at``: the entry is
    moved when it comes to the top.
    """

    pause: Pause
    at: float
    latest: float
    queued: float = 0.0


class Agenda(Generic[K]):
    """Keys, each with the time at which it is due (in seconds of any clock)."""

    def __init__(self) -> None:
        self._dues: dict[K, _Due] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()
        """Order heap entries of the same time, because keys need not be comparable."""

    def __len__(self) -> int:
        return len(self._dues)

    def put_off(self, key: K, now: float, pause: Pause) -> None:
        """Note a change. With another ``pause`` than before it counts as the first change."""
        due = self._dues.get(key)
        if due is None or due.pause is not pause:
            self._set(key, _Due(pause, now + pause.quiet, now + pause.longest))
        else:
            due.at = min(now + pause.quiet, due.latest)

    def look_at(self, key: K, at: float) -> None:
        """Make a key due at ``at`` unless it is due earlier."""
        due = self._dues.get(key)
        if due is None or due.at > at:
            self._set(key, _Due(_AT_ONCE, at, at))

    def drop(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._dues.pop(key, None)

    def first(self) -> float | None:
        """Return the time at which the first key is due, None if there is none."""
        while self._heap:
            queued, _, key = self._heap[0]
            due = self._dues.get(key)
            if due is not None and due.at <= queued == due.queued:
                return queued
            # Before it is queued again: that may rebuild the heap, and put another entry on top.
            heapq.heappop(self._heap)
            if due is not None and due.queued == queued:
                self._set(key, due)
        return None

    def take(self, now: float) -> list[K]:
        """Remove and return the keys that are due."""
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
        if len(self._heap) > 2 * len(self._dues) + _MAX_STALE:
            self._drop_stale_entries()

    def _drop_stale_entries(self) -> None:
        dues = self._dues
        self._heap = [
            entry for entry in self._heap if entry[2] in dues and dues[entry[2]].queued == entry[0]
        ]
        heapq.heapify(self._heap)
