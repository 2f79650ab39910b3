"""How many requests may be made: as many at once as a bucket holds, then so many per second.

Pure but for the clock; knows no HTTP.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

PER_SECOND: Final = 20
BURST: Final = 60
MOST_BUCKETS: Final = 4096


@dataclass(slots=True)
class Bucket:
    """How many requests may still be made; ``clock`` is monotonic."""

    clock: Callable[[], float] = time.monotonic
    per_second: float = PER_SECOND
    burst: float = BURST
    left: float = -1.0
    at: float = 0.0

    def __post_init__(self) -> None:
        self.left, self.at = self.burst, self.clock()

    def take(self) -> bool:
        return self.take_up_to(1) == 1

    def take_up_to(self, count: int) -> int:
        """Return how many of so many may be made."""
        now = self.clock()
        self.left = min(self.burst, self.left + max(0.0, now - self.at) * self.per_second)
        self.at = now
        taken = min(count, int(self.left))
        self.left -= taken
        return taken


@dataclass(slots=True)
class Buckets:
    """One bucket for each key; of too many the one that was used longest ago is new again."""

    per_second: float = PER_SECOND
    burst: float = BURST
    clock: Callable[[], float] = time.monotonic
    _by_key: OrderedDict[Hashable, Bucket] = field(default_factory=OrderedDict)

    def take(self, key: Hashable) -> bool:
        return self.take_up_to(key, 1) == 1

    def take_up_to(self, key: Hashable, count: int) -> int:
        """Return how many of so many may be made with a key."""
        bucket = self._by_key.get(key)
        if bucket is None:
            bucket = self._by_key[key] = Bucket(self.clock, self.per_second, self.burst)
        self._by_key.move_to_end(key)
        if len(self._by_key) > MOST_BUCKETS:
            self._by_key.popitem(last=False)
        return bucket.take_up_to(count)
