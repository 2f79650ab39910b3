"""For how long room was idle for units that did not start after all, by user.

Whoever deletes a unit, holds it back or changes it, and makes another, has no more than one unit
that waits: for how long its room was idle counts for the next one, until he has rested.
"""

from collections.abc import Callable, Collection
from typing import TypeAlias

from koord.core.model.plan import Unit, UnitKey
from koord.core.queue.blocked_heads import BlockedHeads

UserOfUnit: TypeAlias = Callable[[Unit], tuple[str, int]]
"""Returns the user of a unit, and for how long nothing is reserved after too long a hold."""


class VainHolds:
    """All users; a restart forgets them."""

    def __init__(self, user_of: UserOfUnit) -> None:
        self._user_of = user_of
        self._idle: dict[str, tuple[int, float]] = {}
        """User -> seconds, and until when they count."""

    def follow(
        self, before: BlockedHeads, heads: BlockedHeads, started: Collection[UnitKey]
    ) -> None:
        """Count what is protected no longer and has not started; what is so now begins with it."""
        now = heads.at
        self._idle = {user: kept for user, kept in self._idle.items() if kept[1] > now}
        for key in before.protections.keys() - heads.protections.keys() - set(started):
            seconds = before.protections[key].idle_time
            seconds += int(now - before.at) if key in before.idle else 0
            if seconds:
                user, pause = self._user_of(before.blocked[key])
                self._idle[user] = (max(seconds, self._of(user)), now + pause)
        if self._idle:
            for key in heads.protections.keys() - before.protections.keys():
                protection = heads.protections[key]
                idle = self._of(self._user_of(heads.blocked[key])[0])
                protection.idle_time = max(protection.idle_time, idle)

    def _of(self, user: str) -> int:
        return self._idle.get(user, (0, 0.0))[0]
