"""The queue for people: everything that waits, in the order in which it is planned.

Nothing is decided here: units and their order are those of the queue, and reasons come from one
plan of all of them, on the state as it is. Where the cluster is followed they come from reports
(``reported_queue``).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypedDict, TypeVar

from koord.answers.encoding import Encoded, encode
from koord.answers.gpus import count_gpus
from koord.answers.outlook import Look, decide_turns, view_standings
from koord.answers.pending import find_pending, find_queue
from koord.answers.planned_units import plan_waiting, remember_plan
from koord.answers.reason_context import ContextFinder
from koord.answers.standing import QueueStanding
from koord.core.engine.queue import Queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.gang.done import count_needed
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import InternalError, Planned, Reason, class_of
from koord.core.model.text import format_time
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.isolation import Isolation

_ISOLATED: Final = Isolation("answers")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a unit in the order of planning, from 1, and what those before it ask for."""

    position: int
    gpus_ahead: int


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One unit that waits, or a gang or pod of which no unit can be made yet.

    ``position`` counts from 1 in the order of planning; 0: it is not planned yet. ``names`` are the
    PodGroups or the one pod (``namespace/name``) of it. ``since`` is in seconds since the epoch.
    ``gpus_ahead`` is what all units before it ask for together.
    """

    position: int
    kind: str
    names: tuple[str, ...]
    pods: int
    required: int
    reason: Reason
    since: float
    quotas: tuple[str, ...] = ()
    gpus: int = 0
    gpus_ahead: int = 0
    priority: int = 0
    is_repair: bool = False
    standing: QueueStanding | None = None
    """Where it stands in its queue, and when it is expected to start."""
    placed: int = 0
    """How many of its pods would get nodes now, whatever the reason says of the others."""

    @property
    def starts(self) -> bool:
        """Whether as many pods would get nodes as have to."""
        return self.placed >= max(self.required, 1)

    @property
    def namespaces(self) -> set[str]:
        return {name.partition("/")[0] for name in self.names}

    def move_to(self, position: int, gpus_ahead: int) -> "QueueEntry":
        """Return it at another place: as ``replace`` does, in half the time, for there are many."""
        if position == self.position and gpus_ahead == self.gpus_ahead:
            return self
        return QueueEntry(
            position,
            self.kind,
            self.names,
            self.pods,
            self.required,
            self.reason,
            self.since,
            self.quotas,
            self.gpus,
            gpus_ahead,
            self.priority,
            self.is_repair,
            self.standing,
            self.placed,
        )

    def is_moved(self, before: "QueueEntry") -> bool:
        """Whether it is the same as before, or the same at another place."""
        return self is before or (
            before.names is self.names
            and before.reason is self.reason
            and before.standing is self.standing
            and before.quotas is self.quotas
            and (before.pods, before.required, before.gpus, before.since)
            == (self.pods, self.required, self.gpus, self.since)
            and (before.priority, before.is_repair) == (self.priority, self.is_repair)
        )


def view_queue(
    state: ClusterState,
    scoring: Scoring,
    reclaim: ReclaimSetting = UNKNOWN,
    is_over: Callable[[], bool] | None = None,
) -> tuple[QueueEntry, ...]:
    """Return what waits: units in order, then what is not complete, by name.

    With ``is_over``, until that is true, it is foreseen when units start.
    """
    queue, units = find_queue(state), find_pending(state)
    if is_over is not None:
        decide_turns(Look(state, units, scoring=scoring))
    planned = plan_waiting(state.open_cycle(lambda: units), state, units, scoring)
    remember_plan(state, units, planned)
    contexts = ContextFinder(state, reclaim, is_once=True)
    reasons = {
        key: find_preempting(state, key) or reason
        for key, reason in planned.complete(units, contexts.add).items()
    }
    placed = planned.count_placed()
    for placement in planned.placements:
        nodes = {assignment.node for assignment in placement.assignments}
        reasons.setdefault(
            placement.unit, Planned(len(placement.assignments), len(nodes), waits=True)
        )
    standings: Mapping[str, QueueStanding] = {}
    if is_over is not None:
        standings = view_standings(Look(state, units, reasons, scoring, is_over))
    return (
        *_view_units(state, units, (reasons, standings, placed)),
        *view_incomplete(state, queue),
    )


def rank_units(units: Iterable[Unit]) -> Iterator[tuple[QueuePlace, Unit]]:
    """Yield units, which are in order, with their places."""
    ahead = 0
    for position, unit in enumerate(units, start=1):
        yield QueuePlace(position, ahead), unit
        ahead += gpus_of(unit)


def gpus_of(unit: Unit) -> int:
    """Return how many GPUs the pods of a unit ask for."""
    if len(unit.pods) == 1:
        return _gpus_of(unit.pods[0].shape.requests)
    shapes = Counter(pod.shape.requests for pod in unit.pods)
    return sum(_gpus_of(requests) * pods for requests, pods in shapes.items())


@lru_cache(maxsize=1024)
def _gpus_of(requests: tuple[tuple[str, int], ...]) -> int:
    return count_gpus(dict(requests))


def _view_units(
    state: ClusterState,
    units: list[Unit],
    outcomes: tuple[Mapping[str, Reason], Mapping[str, QueueStanding], Mapping[str, int]],
) -> Iterator[QueueEntry]:
    """Yield units in order; ``outcomes`` are reasons, standings, and counts."""
    reasons, standings, placed = outcomes
    for place, unit in rank_units(units):
        reason = reasons.get(unit.key)
        if reason is not None:
            yield replace(
                make_entry(state, unit, place, reason),
                standing=standings.get(unit.key),
                placed=placed.get(unit.key, 0),
            )


def gangs_of(unit: Unit) -> tuple[GangKey, ...]:
    """Return the gangs that a unit has members of; none for a single pod."""
    return tuple(dict.fromkeys(demand.gang for demand in unit.demands if demand.gang))


def make_entry(state: ClusterState, unit: Unit, place: QueuePlace, reason: Reason) -> QueueEntry:
    """Return the row of a unit."""
    gangs = gangs_of(unit)
    return QueueEntry(
        position=place.position,
        kind="podgroup" if gangs else "pod",
        names=gangs or (unit.pods[0].key,),
        pods=len(unit.pods),
        required=unit.required,
        reason=reason,
        since=unit.since,
        quotas=_quotas_of(state, unit.pods),
        gpus=gpus_of(unit),
        gpus_ahead=place.gpus_ahead,
        priority=unit.priority,
        is_repair=unit.is_repair,
    )


@dataclass(frozen=True, slots=True)
class IncompleteSource:
    """Pods that wait, and of which no unit can be made; ``name`` is that of their gang, or pod."""

    kind: str
    name: str
    pods: tuple[Pod, ...]
    required: int
    reason: Reason


def find_incomplete(state: ClusterState, queue: Queue) -> Iterator[IncompleteSource]:
    """Yield what is not complete and has pods that wait, by name."""
    for source, reason in sorted(queue.waiting.items()):
        single = state.pods.get(source)
        if single is not None:
            yield from _find_waiting_of(("pod", single.key), (single,), 1, reason)
            continue
        members = state.gangs.members(source).values()
        needs = 1 if state.gangs.spec(source) is None else count_needed(state.gangs, source)
        yield from _find_waiting_of(("podgroup", source), members, needs, reason)
    for gang in sorted(queue.left_out):
        for part in queue.left_out[gang]:
            yield from _find_waiting_of(("podgroup", gang), part.pods, len(part.pods), part.reason)


def _find_waiting_of(
    source: tuple[str, str], pods: Iterable[Pod], required: int, reason: Reason
) -> Iterator[IncompleteSource]:
    waiting = tuple(pod for pod in pods if pod.is_waiting)
    if waiting:
        yield IncompleteSource(*source, waiting, required, reason)


def view_incomplete(state: ClusterState, queue: Queue) -> Iterator[QueueEntry]:
    """Yield what is not complete and has pods that wait, by name: that takes no plan."""
    for source in find_incomplete(state, queue):
        yield QueueEntry(
            position=0,
            kind=source.kind,
            names=(source.name,),
            pods=len(source.pods),
            required=source.required,
            reason=source.reason,
            since=min(pod.created for pod in source.pods),
            quotas=_quotas_of(state, source.pods),
            gpus=sum(count_gpus(dict(pod.shape.requests)) for pod in source.pods),
            priority=max(pod.priority for pod in source.pods),
        )


def _quotas_of(state: ClusterState, pods: tuple[Pod, ...]) -> tuple[str, ...]:
    if not state.quotas.is_in_use:
        return ()
    return tuple(sorted({name for pod in pods if (name := state.quotas.quota_of(pod))}))


def without_details(entry: QueueEntry) -> QueueEntry:
    """Return an entry as which one is shown that cannot be, so that all others are shown."""
    error = InternalError(_ISOLATED.error_of(entry.names))
    return replace(entry, reason=error, quotas=(), standing=None)


def show_safely(
    entry: QueueEntry, show: Callable[[QueueEntry], T], instead: Callable[[QueueEntry], T]
) -> T:
    """Show one of many that wait; ``instead`` shows it where that fails."""
    shown = _ISOLATED.call(entry.names, show, entry)
    return instead(without_details(entry)) if shown is None else shown


QueueEntryDocument = TypedDict(
    "QueueEntryDocument",
    {
        "position": int | None,
        "kind": str,
        "names": list[str | None],
        "pods": int,
        "required": int,
        "reason": str,
        "class": ReasonClass | None,
        "message": str,
        "since": str,
        "quotas": list[str | None],
        "gpus": int,
        "gpusAhead": int,
        "priority": int,
        "isRepair": bool,
        "turn": Encoded[QueueStanding] | None,
    },
)


@encode.register
def _(waiting_unit: QueueEntry) -> QueueEntryDocument:
    return show_safely(waiting_unit, _encode_entry, _encode_entry)


def _encode_entry(waiting_unit: QueueEntry) -> QueueEntryDocument:
    return {
        "position": waiting_unit.position or None,
        "kind": waiting_unit.kind,
        "names": encode(waiting_unit.names),
        "pods": waiting_unit.pods,
        "required": waiting_unit.required,
        "reason": waiting_unit.reason.code,
        "class": class_of(waiting_unit.reason.code),
        "message": waiting_unit.reason.text(),
        "since": format_time(waiting_unit.since),
        "quotas": list(waiting_unit.quotas),
        "gpus": waiting_unit.gpus,
        "gpusAhead": waiting_unit.gpus_ahead,
        "priority": waiting_unit.priority,
        "isRepair": waiting_unit.is_repair,
        "turn": encode(waiting_unit.standing),
    }
