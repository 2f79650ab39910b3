"""Namespaces in which room was held in vain: their Jobs are tried one after the other for a while.

Whoever never makes the pods of his Jobs holds nearly nothing, however many Jobs he has, and
whatever he does with them. A restart forgets it.
"""

from collections.abc import Callable

from koord.core.model.vain_starts import (
    LONGEST_PAUSE_SECONDS,
    VainStarts,
    count_failure,
    pause_after,
)
from koord.core.suspend.lines import MOST_IN_LINE


class Probation:
    """How often in a row room was held in vain, by namespace; ``is_held``: whether it is there."""

    def __init__(self, is_held: Callable[[str], bool]) -> None:
        self._is_held = is_held
        self._vain: dict[str, VainStarts] = {}
        self._most: dict[str, int] = {}
        """Namespace -> what was said of it last."""

    def of(self, namespace: str) -> VainStarts | None:
        return self._vain.get(namespace)

    def fail(self, namespace: str, now: float) -> None:
        self._vain[namespace] = count_failure(self._vain.get(namespace), now)

    def succeed(self, namespace: str) -> None:
        self._vain.pop(namespace, None)

    def most_of(self, namespace: str, now: float) -> int:
        """Return how many Jobs of a line may be planned: none, then one, and all later on."""
        vain = self._vain.get(namespace)
        if vain is None:
            return MOST_IN_LINE
        pause = pause_after(vain.count, namespace)
        if self._is_held(namespace) or now < vain.at + pause:
            return 0
        return 1 if now < vain.at + 2 * pause else MOST_IN_LINE

    def take_changed(self, now: float) -> list[str]:
        """Return the namespaces of which something else is true by now."""
        for namespace, vain in list(self._vain.items()):
            if now > vain.at + 2 * LONGEST_PAUSE_SECONDS:
                del self._vain[namespace]
        most = {namespace: self.most_of(namespace, now) for namespace in self._vain}
        before, self._most = self._most, most
        return [name for name in most | before if most.get(name) != before.get(name)]

    def dues(self, now: float) -> list[float]:
        """Return when something else will be true of a namespace."""
        pauses = ((vain.at, pause_after(vain.count, name)) for name, vain in self._vain.items())
        times = [time for at, pause in pauses for time in (at + pause, at + 2 * pause)]
        return [time for time in times if time > now]
