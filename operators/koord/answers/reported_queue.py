"""The queue of a cluster that is followed: places by its order, reasons as the operators told them.

Nothing is planned, so that thousands of units that wait cost milliseconds whenever something has
changed. Of a unit of which nothing has changed the entry stays the same object. Who wants to know
why one unit waits now asks for its explanation, which is planned.
"""

from dataclasses import dataclass, replace
from typing import Final

from koord.answers.in_steps import Steps
from koord.answers.pending import find_pending, find_queue
from koord.answers.placed_entries import EntryHolder, PlacedEntries, SingleEntry
from koord.answers.queue_view import (
    QueueEntry,
    QueuePlace,
    gangs_of,
    make_entry,
    view_incomplete,
)
from koord.answers.reading import Reading, TargetKind
from koord.answers.reports import NOT_KNOWN, Reported, ReportedReason, SeenCondition, make_report
from koord.answers.standing import QueueStanding
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.gang.status import ConditionType
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.reasons import Reason
from koord.isolation import Isolation

_ISOLATED: Final = Isolation("answers")
_GATED: Final = "SchedulingGated"
"""The API server's own reason for pods with gates: it says nothing of why they wait."""
STEP_UNITS: Final = 2000
"""That are looked at in one step. One that is new counts for several."""
_NEW_UNIT: Final = 10


@dataclass(slots=True)
class _ReportedRow:
    """A unit, and its entry with what that was made of: while it is the same, so is the entry."""

    unit: Unit
    gangs: tuple[GangKey, ...]
    pods: tuple[str, ...]
    bindings: object
    report: SeenCondition | Reported | None
    standing: QueueStanding | None
    preempting: Reason | None
    entry: QueueEntry


class ReportedQueue:
    """The entries of one state, of which those of unchanged units are kept."""

    def __init__(self) -> None:
        self._rows: dict[UnitKey, _ReportedRow] = {}

    def view(self, reading: Reading) -> Steps[PlacedEntries]:
        """Return what waits: units in order, then what is not complete, by name."""
        state = reading.state
        queue = find_queue(state)
        yield
        units = find_pending(state)
        yield
        preempting = {each.unit for each in state.nominations}
        bindings = state.quotas.bindings_version
        rows, ahead, before, done = dict[UnitKey, _ReportedRow](), list[int](), 0, 0
        for unit in units:
            if done >= STEP_UNITS:
                yield
                done = 0
            done += 1
            row = self._rows.get(unit.key)
            if row is None or row.unit is not unit or row.bindings is not bindings:
                place = QueuePlace(len(rows) + 1, before)
                row = _ISOLATED.call(unit.key, _make_row, state, unit, bindings, place)
                done += _NEW_UNIT
            if row is None:
                continue
            victims = find_preempting(state, unit.key) if unit.key in preempting else None
            _update(row, reading, victims)
            rows[unit.key] = row
            ahead.append(before)
            before += row.entry.gpus
        self._rows = rows
        yield
        incomplete = [SingleEntry(entry) for entry in view_incomplete(state, queue)]
        holders: list[EntryHolder] = [*rows.values(), *incomplete]
        none = [0] * len(incomplete)
        return PlacedEntries(holders, [*range(1, len(rows) + 1), *none], [*ahead, *none])


def view_reported_queue(reading: Reading) -> Steps[PlacedEntries]:
    """Return what waits, without planning any of it."""
    return reading.state.follower(ReportedQueue, ReportedQueue).view(reading)


def _make_row(state: ClusterState, unit: Unit, bindings: object, place: QueuePlace) -> _ReportedRow:
    entry = make_entry(state, unit, place, NOT_KNOWN)
    pods = tuple(pod.key for pod in unit.pods)
    return _ReportedRow(unit, gangs_of(unit), pods, bindings, None, None, None, entry)


def _update(row: _ReportedRow, reading: Reading, preempting: Reason | None) -> None:
    """Bring an entry up to date with what the operators told of its unit."""
    report = _find_report(row, reading)
    standings = reading.standings
    gangs = row.gangs and [gang for gang in row.gangs if gang in standings]
    standing = standings[gangs[0]] if gangs else None
    if (
        report is row.report
        and standing is row.standing
        and (preempting is row.preempting or preempting == row.preempting)
    ):
        return
    row.report, row.standing, row.preempting = report, standing, preempting
    if report is not None and not isinstance(report, Reported):
        report = make_report(report)
    reported = None if report is None else ReportedReason(report.reason, report.message)
    reason = preempting or reported or NOT_KNOWN
    row.entry = replace(row.entry, reason=reason, standing=standing)


def _find_report(row: _ReportedRow, reading: Reading) -> SeenCondition | Reported | None:
    """Return what the operators told of a unit: on its PodGroups, else on a pod of it."""
    for gang in row.gangs:
        details = reading.all_details.get((TargetKind.POD_GROUP, gang))
        condition = None if details is None else details.conditions.get(ConditionType.PLACED)
        if condition is not None and condition.status == "False":
            return condition
    for pod in row.pods:
        report = reading.reports.get(pod)
        if report is not None and report.reason != _GATED:
            return report
    return None
