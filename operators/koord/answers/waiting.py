"""What waits, as far as a reading of the cluster tells: the queue with what only operators know."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from koord.answers.in_steps import Steps, finish
from koord.answers.queue_sight import hide_others
from koord.answers.queue_view import QueueEntry, QueuePlace, view_queue
from koord.answers.reading import KindName, Reading, Target, is_unknown, keep_known
from koord.answers.reported_queue import view_reported_queue
from koord.answers.reports import NOT_KNOWN, Reports
from koord.core.engine.scoring import Scoring
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason


def find_waiting(
    reading: Reading, target: Target, is_over: Callable[[], bool] | None = None
) -> Sequence[QueueEntry]:
    """Return what waits, as far as it can be known from what was read in the target's namespace.

    Of a cluster that is listed once all is planned, and the operators' reason stands where ours is
    not certain, or cannot be found here. With ``is_over``, until that is true, it is foreseen when
    units start. Of one that is followed nothing is planned: what the operators reported is told.
    """
    return finish(find_waiting_in_steps(reading, target, is_over))


def find_waiting_in_steps(
    reading: Reading, target: Target, is_over: Callable[[], bool] | None = None
) -> Steps[Sequence[QueueEntry]]:
    """Do what ``find_waiting`` does, in short steps where nothing is planned."""
    reading.state.refresh()
    if reading.is_followed:
        waiting_units: Iterable[QueueEntry] = yield from view_reported_queue(reading)
        waiting_units = _keep_known(waiting_units, reading)
    else:
        waiting_units = _view_planned(reading, target, is_over)
    if reading.extent_of(KindName.PODS) is not None or is_unknown(reading, KindName.POD_GROUPS):
        placed = (_placed(entry, reading) for entry in waiting_units)
        waiting_units = sorted(placed, key=_order_of)
    if reading.sight.is_whole and isinstance(waiting_units, Sequence):
        return waiting_units
    return hide_others(waiting_units, reading.sight)


def _view_planned(
    reading: Reading, target: Target, is_over: Callable[[], bool] | None
) -> Iterable[QueueEntry]:
    state, reports = reading.state, Reports(reading.reports, reading.leader)
    is_whole = _is_whole(reading)
    for entry in view_queue(state, Scoring(), reading.reclaim, is_over if is_whole else None):
        reason = keep_known(entry.reason, reading, target.namespace)
        corrected = reports.correct(entry, state, reason)
        yield corrected if is_whole else _with_told(corrected, reading)


def _keep_known(entries: Iterable[QueueEntry], reading: Reading) -> Iterable[QueueEntry]:
    """Return entries without reasons that are not certain from what was read."""
    if _is_whole(reading):
        return entries
    return (
        replace(entry, reason=keep_known(entry.reason, reading, "") or NOT_KNOWN)
        for entry in entries
    )


def _is_whole(reading: Reading) -> bool:
    """Whether all is known that decides when something starts."""
    kinds = (KindName.NODES, KindName.POD_GROUPS, KindName.QUOTAS)
    is_known = not any(is_unknown(reading, kind) for kind in kinds)
    return is_known and reading.extent_of(KindName.PODS) is None


def _with_told(waiting_unit: QueueEntry, reading: Reading) -> QueueEntry:
    """Return what waits with what the operators told of its turn."""
    standings = (
        reading.standings[name] for name in waiting_unit.names if name in reading.standings
    )
    return replace(waiting_unit, standing=next(standings, None))


def _placed(waiting_unit: QueueEntry, reading: Reading) -> QueueEntry:
    """Return what waits with the place that the operators reported: from here none is known."""
    reported_places = (
        reading.places[name] for name in waiting_unit.names if name in reading.places
    )
    place = next(reported_places, QueuePlace(0, 0)) if waiting_unit.position else QueuePlace(0, 0)
    return replace(
        waiting_unit,
        position=place.position,
        gpus_ahead=place.gpus_ahead,
        quotas=waiting_unit.quotas or tuple(_find_quotas(waiting_unit, reading)),
    )


def _find_quotas(waiting_unit: QueueEntry, reading: Reading) -> list[str]:
    """Return the quotas that pods name by label, or those that list their namespace."""
    state = reading.state
    if waiting_unit.kind == "pod":
        pods = [pod for name in waiting_unit.names if (pod := state.pod_by_key(name)) is not None]
    else:
        pods = [pod for name in waiting_unit.names for pod in state.gangs.members(name).values()]
    named_ones = {pod.quota for pod in pods if pod.quota}
    quotas = reading.reported_quotas or ()
    bound = {
        each.view.summary.name for each in quotas if waiting_unit.namespaces & {*each.namespaces}
    }
    return sorted(named_ones or bound)


def _order_of(waiting_unit: QueueEntry) -> tuple[bool, int]:
    return (not waiting_unit.position, waiting_unit.position)


@dataclass(frozen=True, slots=True)
class JobSuspended(Reason):
    """``suspend`` holds the Job, so it has no pods yet."""

    code: ClassVar = "Suspended"
    reason_class: ClassVar = ReasonClass.HELD
    way_out: ClassVar = "set `spec.suspend` to false"
    says: ClassVar = "The Job is suspended, so it has no pods."
    advises: ClassVar = (
        (
            "To resume it: kubectl patch job -n {namespace} {name} "
            """-p '{{"spec":{{"suspend":false}}}}'"""
        ),
    )
    namespace: str
    name: str
