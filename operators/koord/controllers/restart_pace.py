"""How often restarts of gangs are tried: what one namespace can cost the API server.

A restart that is not allowed costs requests, and whoever owns the gang decides whether it is
allowed. So a gang pauses after each one, longer every time, whatever it looks like meanwhile. All
gangs of a namespace share a number of restarts per minute.
"""

from dataclasses import dataclass, field
from typing import Final

from koord.core.model.gangs import GangKey

MOST_PER_MINUTE: Final = 60
"""Restarts of one namespace, tried or carried out."""
LONGEST_PAUSE_SECONDS: Final = 120.0
WINDOW_SECONDS: Final = 60.0
REMEMBERED_SECONDS: Final = 3600.0
"""How long it counts that a gang could not be restarted: others come first."""
_MOST_FAILURES: Final = 16


@dataclass(slots=True)
class _Pause:
    failures: int
    until: float


@dataclass(slots=True)
class _Window:
    ends: float
    tried: int = 0


@dataclass(slots=True)
class RestartPace:
    """All times are in seconds of the caller's clock."""

    _pauses: dict[GangKey, _Pause] = field(default_factory=dict)
    _windows: dict[str, _Window] = field(default_factory=dict)
    """Namespace -> its restarts within the current minute."""

    def wait_until(self, gang: GangKey, now: float) -> float:
        """Return until when a gang must not be tried; a time that has passed if it may be."""
        pause, window = self._pauses.get(gang), self._windows.get(_namespace_of(gang))
        until = pause.until if pause is not None else now
        if window is not None and window.ends > now and window.tried >= MOST_PER_MINUTE:
            until = max(until, window.ends)
        return until

    def count_failures(self, gang: GangKey) -> int:
        """Return how often in a row a gang could not be restarted."""
        pause = self._pauses.get(gang)
        return 0 if pause is None else pause.failures

    def note_try(self, gang: GangKey, now: float) -> None:
        self._drop_old(now)
        namespace = _namespace_of(gang)
        window = self._windows.setdefault(namespace, _Window(now + WINDOW_SECONDS))
        window.tried += 1

    def note_end(self, gang: GangKey, now: float, first_pause: float, *, is_done: bool) -> float:
        """Note how a try ended; return when the gang is looked at again."""
        if is_done:
            self._pauses.pop(gang, None)
            return now + first_pause
        pause = self._pauses.setdefault(gang, _Pause(0, 0.0))
        pause.until = now + min(first_pause * 2.0**pause.failures, LONGEST_PAUSE_SECONDS)
        pause.failures = min(pause.failures + 1, _MOST_FAILURES)
        return pause.until

    def _drop_old(self, now: float) -> None:
        ended = [name for name, window in self._windows.items() if window.ends <= now]
        for name in ended:
            del self._windows[name]
        if not ended:
            return
        since = now - REMEMBERED_SECONDS
        self._pauses = {key: pause for key, pause in self._pauses.items() if pause.until > since}


def _namespace_of(gang: GangKey) -> str:
    return gang.partition("/")[0]
