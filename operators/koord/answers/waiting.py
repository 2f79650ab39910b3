"""What waits, as far as a reading of the cluster tells: the queue with what only operators know."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from koord.answers.queue_view import QueueEntry, QueuePlace, view_queue
from koord.answers.reading import KindName, Reading, Target, is_unknown, keep_known
from koord.answers.redaction import Sight, redact
from koord.answers.reports import ReportedReason, Reports
from koord.core.engine.scoring import Scoring
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason


def find_waiting(
    reading: Reading, target: Target, is_over: Callable[[], bool] | None = None
) -> tuple[QueueEntry, ...]:
    """Return what waits, as far as it can be known from what was read in the target's namespace.

    The operators' reason stands where ours is not certain, or cannot be found here. With
    ``is_over``, until that is true, it is foreseen when units start.
    """
    state, reports = reading.state, Reports(reading.reports, reading.leader)
    state.refresh()
    waiting_units = (
        reports.correct(
            waiting_unit, state, keep_known(waiting_unit.reason, reading, target.namespace)
        )
        for waiting_unit in view_queue(
            state, Scoring(), reading.reclaim, is_over if _is_whole(reading) else None
        )
    )
    if not _is_whole(reading):
        waiting_units = (_with_told(waiting_unit, reading) for waiting_unit in waiting_units)
    entries = hide_others(waiting_units, reading.sight)
    if reading.extent_of(KindName.PODS) is None and not is_unknown(reading, KindName.POD_GROUPS):
        return entries
    return tuple(sorted((_placed(entry, reading) for entry in entries), key=_order_of))


def _is_whole(reading: Reading) -> bool:
    """Whether all is known that decides when something starts."""
    kinds = (KindName.NODES, KindName.POD_GROUPS, KindName.QUOTAS)
    is_known = not any(is_unknown(reading, kind) for kind in kinds)
    return is_known and reading.extent_of(KindName.PODS) is None


def hide_others(entries: Iterable[QueueEntry], sight: Sight) -> tuple[QueueEntry, ...]:
    """Return what waits as somebody sees it who may list less than was read."""
    return tuple(_hide_names(entry, sight) for entry in entries)


def _hide_names(entry: QueueEntry, sight: Sight) -> QueueEntry:
    """Return what waits without what an asker may not see: amounts and places are no secret."""
    if sight.is_whole:
        return entry
    hidden = redact(entry, sight.hide)
    if any(map(sight.sees, entry.namespaces)):
        return hidden
    # It quotes a condition of theirs, or names what only they know: quotas, claims, topologies.
    reason = ReportedReason(entry.reason.code, "")
    return replace(hidden, reason=reason, quotas=entry.quotas if sight.quotas else ())


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
