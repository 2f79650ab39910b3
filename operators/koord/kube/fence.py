"""Who may write, and until when: asked at the last moment before a write leaves this process.

A process that was stopped, swapped out or cut off cannot know that another one leads by now. So
leadership is not remembered as a fact but as a time that runs out, and whoever renews it moves that
time. For those who write, a closed fence is like a server that cannot be reached: they try again,
and either the lease is renewed or this process ends. Nothing here knows how leadership is won.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from koord.kube.errors import ConnectionLost


class LeadershipLost(Exception):  # noqa: N818 - what it says is what is wrong
    """Another process leads, or may: this one ends.

    Not one of the errors of the API: nothing that handles those may catch it and go on.
    """


class FenceClosed(ConnectionLost):
    """A write did not leave this process, because another one may lead."""

    def __init__(self) -> None:
        super().__init__("nothing is written before the lease is renewed", sent=False)


def read_clock() -> float:
    """Return seconds that never go back, and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Fence:
    """Closed at first. What is written through it passes only while it is open."""

    clock: Callable[[], float] = read_clock
    _until: float = float("-inf")

    def open_until(self, until: float) -> None:
        """Let writes pass until a moment of ``clock``."""
        self._until = until

    def close(self) -> None:
        """Let nothing pass any more."""
        self._until = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether a write may leave now."""
        return self.clock() < self._until

    def check(self) -> None:
        """Raise ``FenceClosed`` if a write must not leave now."""
        if not self.is_open:
            raise FenceClosed
