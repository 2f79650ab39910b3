"""Failed placement attempts of gangs and their places in the queue, for their status.

The count of attempts continues over restarts, because it starts from the status.

Users may read where their gang stands in the queue, but not all that waits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from koord.answers.queue_view import QueuePlace, rank_units
from koord.core.engine.queue import Queue
from koord.core.gang.cache import GangCache
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit


@dataclass(frozen=True, slots=True)
class Attempts:
    """Number, and time of the last (seconds since the epoch; 0: none since the process started)."""

    count: int = 0
    last: float = 0.0
    place: QueuePlace | None = None
    """Where it stands in the queue."""


class AttemptCounter:
    """Failed attempts of every gang with a PodGroup since it was last placed."""

    def __init__(self, gangs: GangCache) -> None:
        self._gangs = gangs
        self._attempts: dict[GangKey, Attempts] = {}

    def of(self, gang: GangKey) -> Attempts:
        attempts = self._attempts.get(gang)
        if attempts is not None:
            return attempts
        pod_group = self._gangs.pod_group(gang)
        return Attempts((pod_group.attempts if pod_group is not None else None) or 0)

    def fail(self, unit: Unit, now: float) -> None:
        for gang in self._gangs_of(unit):
            self._attempts[gang] = Attempts(self.of(gang).count + 1, now)

    def succeed(self, unit: Unit) -> None:
        for gang in self._gangs_of(unit):
            self._attempts[gang] = Attempts()

    def drop_gone(self, changed: Iterable[GangKey]) -> None:
        for gang in changed:
            if gang not in self._gangs:
                self._attempts.pop(gang, None)

    def _gangs_of(self, unit: Unit) -> list[GangKey]:
        gangs = (demand.gang for demand in unit.demands)
        return [gang for gang in gangs if self._gangs.pod_group(gang) is not None]


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
