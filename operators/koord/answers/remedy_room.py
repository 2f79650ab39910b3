"""Remedies that make room without new nodes: time, other constraints, evictions and moves.

Each function looks whether it is worth a trial, has it tried, and says what was seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
from typing import Any, Final

from koord.answers.edits import Edit, Trial
from koord.answers.moves import MoveQuestion, ask_moves
from koord.answers.preemption import find_plan, find_unit
from koord.answers.remedies import Remedy, RemedyActor, RemedyKind, Verified
from koord.answers.remedy_trial import ClosedNodes, RemedySearch
from koord.core.defrag.model import MovePlan
from koord.core.defrag.reasons import MovesNotSearched
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext
from koord.core.model.constraints import PodConstraints
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named, plural
from koord.core.model.topology_constraint import GatherStrategy
from koord.core.queue.endings import find_endings
from koord.core.queue.eta import Ending
from koord.core.queue.plugin import Queues

MOST_PODS: Final = 20_000
"""In a cluster with more it takes most of a second to look for moves."""
MOST_SOURCES: Final = 4096
"""Gangs and single pods that use what is lacking of which it is looked up when they end."""
MOST_ENDINGS: Final = 200
"""Units that run of which it is tried what their ends would change."""
_ENDINGS_AT_ONCE: Final = 256
_ENDS: Final = "Wait for the ends of what runs"
_MOST_NAMED: Final = 3
_MOST_IN_CHANGE: Final = 16


def wait_for(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try as few of the next ends as are enough: of what is known to end, in order of time."""
    if not reason.is_capacity or search.is_over():
        return
    endings = _find_next_endings(search, reason)
    if endings is None:
        yield Remedy(RemedyKind.WAIT_FOR, RemedyActor.TIME, _ENDS, verified=Verified.NOT_TRIED)
    if not endings:
        return
    count, seen = search.find_first_endings([ending.pods for ending in endings])
    if count is None and seen is Verified.NO:
        return  # not all that runs is known to end: waiting for more may help
    chosen = endings if count is None else endings[:count]
    until = format_time(max(ending.end or 0.0 for ending in chosen))
    names = [search.hide(ending.name) for ending in chosen]
    whom = f"{named(names[:_MOST_NAMED])}{_count_more(len(names))}"
    yield Remedy(
        RemedyKind.WAIT_FOR,
        RemedyActor.TIME,
        f"Wait until {whom} {'has' if len(names) == 1 else 'have'} ended, expected by {until}"
        if count is not None
        else _ENDS,
        {"units": names[:_MOST_IN_CHANGE], "count": len(names), "until": until},
        verified=seen,
    )


def _count_more(names: int) -> str:
    return f" and {names - _MOST_NAMED} more" if names > _MOST_NAMED else ""


def _find_next_endings(search: RemedySearch, reason: Reason) -> list[Ending] | None:
    """Return what is known to end, the first ends first; None if that takes too long.

    What has nothing of the resource that is lacking makes no room.
    """
    state, resource = search.state, ""
    if isinstance(reason, InsufficientNodes):
        resource = reason.resource
    running = _find_users(state, resource)
    if running is None:
        return None
    run_time_of = state.plugin(Queues).limits.run_time_of_running
    endings = []
    for number, ending in enumerate(find_endings(running.values(), run_time_of, state.now)):
        if number % _ENDINGS_AT_ONCE == 0 and search.is_over():
            return None
        if ending.end is not None:
            endings.append(ending)
    return nsmallest(MOST_ENDINGS, endings, key=lambda ending: (ending.end, ending.name))


def _find_users(state: ClusterState, resource: str) -> Mapping[str, Pod] | None:
    """Return what is on nodes and uses a resource, and all else that ends with it, by uid.

    None if that is more than is looked at.
    """
    singles: dict[str, Pod] = {}
    gangs: set[GangKey] = set()
    for pod in state.pods.values():
        if not pod.planned_node or (resource and not _uses(pod.shape, resource)):
            continue
        if pod.gang is None:
            singles[pod.uid] = pod
        else:
            gangs.add(pod.gang.key)
        if len(singles) + len(gangs) > MOST_SOURCES:
            return None
    members = (pod for gang in gangs for pod in state.gangs.members(gang).values())
    return singles | {pod.uid: pod for pod in members}


@lru_cache(maxsize=1024)
def _uses(shape: PodShape, resource: str) -> bool:
    return any(name == resource and amount for name, amount in shape.requests)


# --- constraints ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WithoutTopology:
    """A PodGroup does not say what its members have to share."""

    group: ObservedPodGroup

    def apply(self, trial: Trial) -> None:
        spec = replace(self.group.spec, topology=None)
        trial.put_group(replace(self.group, spec=spec, generation=self.group.generation + 1))


@dataclass(frozen=True, slots=True)
class _WithoutConstraint:
    """Pods have none of some constraints."""

    pods: tuple[Pod, ...]
    fields: tuple[str, ...]

    def apply(self, trial: Trial) -> None:
        for pod in self.pods:
            trial.put_pod(replace(pod, shape=_without(pod, self.fields)))


def _without(pod: Pod, fields: tuple[str, ...]) -> PodShape:
    shape, none = pod.shape, PodConstraints()
    own: dict[str, Any] = {
        name: None if name == "terms" else () for name in fields if hasattr(shape, name)
    }
    of_constraints = {name: getattr(none, name) for name in fields if name not in own}
    if of_constraints and shape.constraints is not None:
        own["constraints"] = replace(shape.constraints, **of_constraints)
    return replace(shape, **own)


_CONSTRAINTS: Final = (
    ("spread", "the topology spread constraints", ("spread",)),
    ("podAffinity", "the affinity to other pods", ("affinity",)),
    ("podAntiAffinity", "the anti-affinity to other pods", ("anti_affinity",)),
    ("nodeAffinity", "the node selector and node affinity", ("node_selector", "terms")),
)
"""What is relaxed, in words, and the fields of a shape, or of its constraints."""


def relax(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try each constraint by itself that the gang or its pods have."""
    if not reason.is_capacity:
        return
    for constraint, words, change, edit in _find_constraints(search):
        yield Remedy(
            RemedyKind.RELAX,
            RemedyActor.OWNER,
            f"Drop {words}",
            {"constraint": constraint, **change},
            verified=search.judge(edit),
            edits=(edit,),
        )


def _find_constraints(
    search: RemedySearch,
) -> Iterator[tuple[str, str, dict[str, list[str]], Edit]]:
    group = search.state.gangs.pod_group(search.gang) if search.gang else None
    wish = None if group is None else group.spec.topology
    if group is not None and wish is not None:
        layers = sorted(wish.layers_with(GatherStrategy.MUST))
        if layers:
            words = f"the constraint that its members share one {named(layers)}"
            yield "topology", words, {"layers": layers}, _WithoutTopology(group)
    pods = search.pods()
    for constraint, words, fields in _CONSTRAINTS:
        if any(_has(pod, name) for pod in pods for name in fields):
            yield constraint, f"{words} of the pods", {}, _WithoutConstraint(pods, fields)


def _has(pod: Pod, field: str) -> bool:
    constraints = pod.shape.constraints or PodConstraints()
    return bool(getattr(pod.shape, field, None) or getattr(constraints, field, None))


# --- evictions and moves -------------------------------------------------------------------------


def preempt(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Tell whom the operators would preempt, if they do that."""
    settings = search.reading.preemption
    if settings is None or not settings.enabled or not reason.is_capacity or search.is_over():
        return
    unit = find_unit(search.state, search.target)
    context = PreemptionContext(search.state.now)
    plan = None if unit is None else find_plan(search.state, unit, settings, context)
    if isinstance(plan, Preemption):
        victims = tuple(search.hide(victim.name) for victim in plan.victims)
        yield Remedy(
            RemedyKind.PREEMPT,
            RemedyActor.TIME,
            f"Wait: the operators preempt {named(victims)}",
            {"pods": len(plan.pods)},
            victims,
        )


def defragment(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try moves of pods that run, where enough is free, but not together."""
    unit = find_unit(search.state, search.target) if _is_scattered(search.state, reason) else None
    if unit is None:
        return
    moves = "Move pods that run to other nodes"
    if search.is_over() or len(search.state.pods) > MOST_PODS:
        yield _defragment(moves, Verified.NOT_TRIED)
        return
    reading = search.reading
    question = MoveQuestion(
        search.state, reading.preemption, now=search.state.now, migration=reading.migration
    )
    plan = ask_moves(question, unit, str(search.target.kind)).outcome
    if isinstance(plan, MovePlan):
        if plan.moves:
            names = tuple(search.hide(move.pod.key) for move in plan.moves)
            steps = [
                {"pod": name, "from": move.source, "to": move.target}
                for name, move in zip(names, plan.moves, strict=True)
            ][:_MOST_IN_CHANGE]
            sentence = (
                f"Move {plural(len(names), 'pod')} to other nodes ({named(names[:_MOST_NAMED])}"
                f"{_count_more(len(names))}), as far as disruption budgets allow it"
            )
            yield _defragment(sentence, Verified.YES, {"moves": len(names), "steps": steps}, names)
    else:
        is_late = isinstance(plan, MovesNotSearched)
        yield _defragment(moves, Verified.NOT_TRIED if is_late else Verified.NO)


def _defragment(
    sentence: str,
    seen: Verified,
    change: dict[str, object] | None = None,
    affects: tuple[str, ...] = (),
) -> Remedy:
    by = RemedyActor.CLUSTER_ADMIN
    return Remedy(RemedyKind.DEFRAGMENT, by, sentence, change or {}, affects, seen)


def _is_scattered(state: ClusterState, reason: Reason) -> bool:
    """Whether so much is free in all as is lacking, though not where it is needed."""
    if not isinstance(reason, InsufficientNodes) or not reason.more_nodes:
        return False
    column = state.table.columns.get(reason.resource)
    if column is None or not reason.request:
        return False
    free = (state.table.allocatable[column] - state.table.used[column]).clip(min=0)
    return int(free[state.table.is_live].sum()) >= reason.request * reason.want
