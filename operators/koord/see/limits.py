"""What askers may take: requests, streams, answers that are waited for.

Of each, of all, and of each crowd: whoever may create ServiceAccounts in a namespace has as many
names as she likes, so those of one namespace share what is a quarter of all. Knows no HTTP.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from koord.see.access import Asker
from koord.see.buckets import BURST, PER_SECOND, Bucket, Buckets

CROWD: Final = 4
"""A crowd takes at most one in so many."""
MOST_STREAMS: Final = 100
MOST_PLANS: Final = 16
"""Answers that take a plan or more, are asked for and not given yet."""
MOST_QUEUED: Final = 256
"""All answers that are asked for and not given yet."""


class TooMuch(Exception):  # noqa: N818 - says what is wrong
    """Somebody asks for more than may be taken."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What askers may take, all of them and each."""

    per_second: float = 200.0
    """Requests of all; of one so many as ``buckets`` says."""
    streams: int = MOST_STREAMS
    streams_each: int = MOST_STREAMS
    waiting_each: int = MOST_QUEUED
    """Answers that one asker waits for."""


@dataclass(slots=True)
class Seats:
    """Takes in so many at a time, named by ``what`` for people."""

    what: str
    most: int
    most_each: int
    _taken: Counter[Hashable] = field(default_factory=Counter)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def seat(self, asker: Asker) -> Iterator[None]:
        """Hold one for an asker. Raises ``TooMuch``."""
        own, crowd = ("asker", asker.key), ("crowd", asker.crowd)
        keys = (own,) if asker.crowd is None else (own, crowd)
        if self._count >= self.most:
            raise TooMuch(f"{self.most} {self.what}")
        if self._taken[own] >= self.most_each:
            raise TooMuch(f"{self.most_each} {self.what} of yours")
        if self._taken[crowd] >= max(1, self.most // CROWD):
            raise TooMuch(f"{self._taken[crowd]} {self.what} of ServiceAccounts of this namespace")
        self._taken.update(keys)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._taken -= Counter(keys)


class RequestRates:
    """How many requests may be made now; whoever asks too much takes nothing from others."""

    def __init__(self, per_second: float) -> None:
        self._all = Bucket(per_second=per_second, burst=per_second)
        self._each = Buckets()
        crowd = max(PER_SECOND, per_second / CROWD)
        self._crowds = Buckets(crowd, max(BURST, 3 * crowd))

    def take(self, asker: Asker) -> None:
        """Count a request. Raises ``TooMuch``."""
        if not self._each.take(asker.key):
            raise TooMuch(f"at most {PER_SECOND} requests per second")
        if asker.crowd is not None and not self._crowds.take(asker.crowd):
            raise TooMuch("too many requests by ServiceAccounts of this namespace")
        if not self._all.take():
            raise TooMuch("the server has more requests than it can answer")
