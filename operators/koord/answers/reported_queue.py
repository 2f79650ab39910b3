"""The queue of a cluster that is followed: places by its order, reasons as the operators told them.

Nothing is planned, so that thousands of units that wait cost milliseconds whenever something has
changed. Of a unit of which nothing has changed the entry stays the same object. Who wants to know
why one unit waits now asks for its explanation, which is planned.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from koord.answers.pending import find_pending, find_queue
from koord.answers.queue_view import (
    QueueEntry,
    QueuePlace,
    gangs_of,
    make_entry,
    view_incomplete,
)
from koord.answers.reading import Reading, TargetKind
from koord.answers.reports import NOT_KNOWN, Reported, ReportedReason, SeenCondition
from koord.answers.standing import QueueStanding
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.gang.status import ConditionType
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.reasons import Reason

_GATED: Final = "SchedulingGated"
"""The API server's own reason for pods with gates: it says nothing of why they wait."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an entry is made of: while all of it is the same, so is the entry."""

    unit: Unit
    bindings: object
    report: SeenCondition | Reported | None
    standing: QueueStanding | None
    preempting: Reason | None
    place: QueuePlace

    def is_same(self, other: "_Parts") -> bool:
        return (
            self.unit is other.unit
            and self.bindings is other.bindings
            and self.report is other.report
            and self.standing is other.standing
            and self.place == other.place
            and self.preempting == other.preempting
        )


class ReportedQueue:
    """The entries of one state, of which those of unchanged units are kept."""

    def __init__(self) -> None:
        self._rows: dict[UnitKey, tuple[_Parts, QueueEntry]] = {}

    def view(self, reading: Reading) -> tuple[QueueEntry, ...]:
        """Return what waits: units in order, then what is not complete, by name."""
        state = reading.state
        queue, units = find_queue(state), find_pending(state)
        rows: dict[UnitKey, tuple[_Parts, QueueEntry]] = {}
        ahead = 0
        for position, unit in enumerate(units, start=1):
            parts = _find_parts(reading, unit, QueuePlace(position, ahead))
            kept = self._rows.get(unit.key)
            entry = kept[1] if kept and kept[0].is_same(parts) else _make_entry(state, parts)
            rows[unit.key] = parts, entry
            ahead += entry.gpus
        self._rows = rows
        return (*(entry for _, entry in rows.values()), *view_incomplete(state, queue))


def view_reported_queue(reading: Reading) -> tuple[QueueEntry, ...]:
    """Return what waits, without planning any of it."""
    followers = reading.state.followers
    follower = followers.get(ReportedQueue)
    if not isinstance(follower, ReportedQueue):
        follower = followers[ReportedQueue] = ReportedQueue()
    return follower.view(reading)


def _find_parts(reading: Reading, unit: Unit, place: QueuePlace) -> _Parts:
    state = reading.state
    return _Parts(
        unit,
        state.quotas.bindings_version,
        _find_report(reading, unit),
        _find_standing(reading.standings, gangs_of(unit)) if reading.standings else None,
        find_preempting(state, unit.key),
        place,
    )


def _find_report(reading: Reading, unit: Unit) -> SeenCondition | Reported | None:
    """Return what the operators told of a unit: on its PodGroups, else on a pod of it."""
    for gang in gangs_of(unit):
        details = reading.all_details.get((TargetKind.POD_GROUP, gang))
        condition = None if details is None else details.conditions.get(ConditionType.PLACED)
        if condition is not None and condition.status == "False":
            return condition
    reports = (reading.reports.get(pod.key) for pod in unit.pods)
    return next((each for each in reports if each is not None and each.reason != _GATED), None)


def _find_standing(
    standings: Mapping[GangKey, QueueStanding], gangs: Collection[GangKey]
) -> QueueStanding | None:
    return next((standings[gang] for gang in gangs if gang in standings), None)


def _make_entry(state: ClusterState, parts: _Parts) -> QueueEntry:
    report = parts.report
    reported = None if report is None else ReportedReason(report.reason, report.message)
    reason = parts.preempting or reported or NOT_KNOWN
    entry = make_entry(state, parts.unit, parts.place, reason)
    return replace(entry, standing=parts.standing)
