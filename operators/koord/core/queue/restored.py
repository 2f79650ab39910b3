"""Room that an earlier process has reserved, as statuses tell it: it is reserved again.

A status may say anything, so it decides nothing beyond what its unit might have had reserved: room
on nodes that it names, from the first time at which the unit fits there. Knows no turns.
"""

from collections import Counter
from collections.abc import Sequence

from koord.core.model.gangs import QueueMemory
from koord.core.queue.planned_room import PlannedRoom
from koord.core.queue.reserved_limits import PlannedStart
from koord.core.queue.room import Reserved, UnitAsk
from koord.core.queue.settings import QueueSettings


class EarlierRoom:
    """What was reserved before this process; ``waiting``: units by queue and priority."""

    def __init__(self, room: PlannedRoom, waiting: Counter[tuple[str, int]]) -> None:
        self._room, self._waiting = room, waiting

    def note_waiting(self, queue: str, priority: int) -> None:
        """Note that a unit waits: it had its turn before those that follow."""
        self._waiting[queue, priority] += 1

    def find(
        self,
        memory: QueueMemory,
        job: UnitAsk,
        priority: int,
        settings: QueueSettings,
        beside: Sequence[Reserved],
    ) -> PlannedStart | None:
        """Return what to reserve for a unit; None: nothing.

        Whoever had room reserved has some as others of higher priority come, and only then may not
        be one of the first of its queue: the same, or other room if those have taken that.
        """
        before = sum(
            count
            for (queue, other), count in self._waiting.items()
            if queue == job.quota and other <= priority
        )
        if not memory.places or before >= settings.reserve_depth:
            return None
        room = self._room
        return (
            room.find_again(job, beside, dict(memory.places), memory.latest)
            or room.find_start(job, beside)
            or room.hold_open(job, beside, None)
        )
