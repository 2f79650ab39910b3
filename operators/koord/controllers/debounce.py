"""When to look at something that keeps changing: after a quiet moment, but not much later."""

from dataclasses import dataclass


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
