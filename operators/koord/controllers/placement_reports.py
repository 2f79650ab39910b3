"""What placement says of objects that wait, for the authors of their status: reports and attempts.

Placement writes no status of a custom resource where the operator of the kind runs beside it: that
operator says all in one patch. Where it runs in another process, ``on_news`` writes the report.

The count of failed attempts of a gang continues over restarts, because it starts from the status.
Users may read where their gang stands in the queue, but not all that waits.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.answers.queue_view import QueuePlace, rank_units
from koord.answers.standing import QueueStanding
from koord.controllers.status_author import read_condition
from koord.core.engine.queue import Queue
from koord.core.gang.cache import GangCache
from koord.core.gang.status import ConditionType
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit
from koord.kube.objects import ObjectRef
from koord.kube.status import StatusPatch, conditions_of


@dataclass(frozen=True, slots=True)
class Attempts:
    """Number, and time of the last (seconds since the epoch; 0: none since the process started)."""

    count: int = 0
    last: float = 0.0
    place: QueuePlace | None = None
    """Where it stands in the order of planning."""
    standing: QueueStanding | None = None
    """Where it stands in its queue, and when it is expected to start; None: not seen."""

    def has_moved(self, since: "Attempts") -> bool:
        """Whether there is something new to say of its place."""
        standing, before = self.standing, since.standing
        if standing is None or before is None:
            return self.place != since.place or standing is not before
        return standing.worth_a_write != before.worth_a_write


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

    def last_position(self, gang: GangKey) -> int | None:
        """Return its position at the last look."""
        place = self._places.get(gang)
        return None if place is None else place.position


_FIELDS: Final = ("attempts", "lastAttemptTime", "queuePosition", "gpusAhead", "queue")
_ONLY_REPORTED: Final = frozenset(
    {ConditionType.PLACED, ConditionType.QUOTA_RESERVED, ConditionType.QUEUED, "Preempting"}
)


@dataclass(slots=True)
class PlacementReports:
    """The last report on each object; ``on_news`` is called with each new one.

    ``is_there`` tells by uid whether an object exists.
    """

    is_there: Callable[[str], bool]
    on_news: Callable[[ObjectRef], None] = field(default=lambda _: None)
    _reports: OrderedDict[str, StatusPatch] = field(default_factory=OrderedDict)
    """By uid; urgent until it is taken."""

    def submit(self, ref: ObjectRef, patch: StatusPatch) -> None:
        """Take a report; it replaces the last one on the same object."""
        self._reports[ref.uid] = replace(patch, is_urgent=True)
        self._reports.move_to_end(ref.uid)
        # Two others are looked at each time, so at most about half of them are gone.
        for _ in range(min(2, len(self._reports))):
            uid = next(iter(self._reports))
            self._reports.move_to_end(uid)
            if not self.is_there(uid):
                del self._reports[uid]
        self.on_news(ref)

    def take(self, uid: str) -> StatusPatch | None:
        """Return the last report on an object: urgent if it is new; None if there is none."""
        report = self._reports.get(uid)
        if report is not None and report.is_urgent:
            self._reports[uid] = replace(report, is_urgent=False)
        return report


def read_gang_report(status: Mapping[str, Any]) -> StatusPatch:
    """Return what the status of a PodGroup shows of a report by an earlier process."""
    fields = {name: status[name] for name in _FIELDS if name in status}
    if not fields:
        return StatusPatch()
    conditions = (
        condition
        for condition in map(read_condition, conditions_of(status).values())
        if condition.type in _ONLY_REPORTED
        and not (condition.type == ConditionType.PLACED and condition.status)
    )
    return StatusPatch(tuple(conditions), fields)
