"""Where gangs stand in the queue, for their status: users may read that, and not all that waits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from koord.answers.queue_view import QueuePlace, rank_units
from koord.core.engine.queue import Queue
from koord.core.model.gangs import GangKey

KEPT_SECONDS: Final = 2.0
"""Places are computed at most this often; statuses are written about as late."""


@dataclass(slots=True)
class QueuePlaces:
    """The places of all gangs that wait, as of the last look."""

    queue: Queue
    clock: Callable[[], float]
    _places: dict[GangKey, QueuePlace] = field(default_factory=dict)
    _until: float = float("-inf")

    def of(self, gang: GangKey) -> QueuePlace | None:
        now = self.clock()
        if now >= self._until:
            self._until = now + KEPT_SECONDS
            self._places = {}
            for place, unit in rank_units(self.queue.pending()):
                for demand in unit.demands:
                    if demand.gang:
                        self._places.setdefault(demand.gang, place)
        return self._places.get(gang)
