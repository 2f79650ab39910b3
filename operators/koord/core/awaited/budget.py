"""How many stand-ins are made for a namespace per second.

Whoever may write an owner may change it all the time, and each change makes all of them again.
Knows no pods.
"""

from typing import Final

from koord.core.model.gangs import GangKey
from koord.core.suspend.lines import MOST_IN_LINE

PAUSE_SECONDS: Final = 1.0


class StandInBudget:
    """What namespaces have made lately, and who waits until more may be made."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, int]] = {}
        """Namespace -> since when it counts, and how many stand-ins it has made since."""
        self._waiting: dict[GangKey, float] = {}

    def spend(self, gang: GangKey, namespace: str, count: int, now: float) -> bool:
        """Count stand-ins that are to be made; False: later, as too many were made already."""
        since, made = self._made.get(namespace, (now, 0))
        if not since <= now < since + PAUSE_SECONDS:  # the clock may be set back
            since, made = now, 0
        if made and made + count > MOST_IN_LINE:
            self._waiting[gang] = since + PAUSE_SECONDS
            return False
        self._made[namespace] = since, made + count
        return True

    def take_due(self, now: float) -> set[GangKey]:
        """Return the gangs for which stand-ins may be made by now."""
        for namespace in [
            name for name, (at, _) in self._made.items() if at + PAUSE_SECONDS <= now
        ]:
            del self._made[namespace]
        due = {gang for gang, at in self._waiting.items() if not now < at <= now + PAUSE_SECONDS}
        for gang in due:
            del self._waiting[gang]
        return due

    def dues(self) -> list[float]:
        return list(self._waiting.values())
