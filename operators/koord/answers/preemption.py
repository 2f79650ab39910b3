"""What evictions have to do with the target of ``koord explain``: one or two sentences of advice.

A waiting unit may be preempting already, or would preempt, or others are evicted because its quota
is entitled to their room; a victim makes room for somebody.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from koord.answers.encoding import encode
from koord.answers.pending import find_pending
from koord.answers.reading import Reading, ReportedPreemption, Target, TargetDetails, TargetKind
from koord.api.keys import operators
from koord.core.engine.holds import assume_holds
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import find_candidates
from koord.core.eviction.model import Exempt, Preemption, VictimUnit
from koord.core.eviction.preemption import find_left, find_preempting, name_of, write_victims
from koord.core.eviction.reasons import NobodyLower
from koord.core.eviction.search import (
    NO_CONTEXT,
    PreemptionContext,
    PreemptionOptions,
    plan_preemption,
)
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import format_age, named, plural
from koord.core.plugins.nominations import Nominations
from koord.core.quota.entitlement import UnmetEntitlement

_MOST_LEAVING: Final = 3
"""Terminating pods that are named one by one."""


def hint_at_preemption(
    reading: Reading, target: Target, reason: Reason | None, refused: Unit | None, now: float
) -> tuple[str, ...]:
    """Return what is worth saying at ``now``.

    ``reason`` is why the target waits, ``refused`` its unit for which the planner finds no place.
    """
    state = reading.state
    if refused is None:
        victims = tuple(_find_victims(state, target))
        return tuple(_tell_victims(reading, victims, now)) if victims else ()
    if reason is None or not reason.is_capacity:
        return ()
    if isinstance(reason.context, UnmetEntitlement) and reason.context.leaving:
        leaving = (state.pod_by_key(key) for key in reason.context.leaving)
        return (_write_leaving(reading, (pod for pod in leaving if pod is not None), now),)
    return tuple(_tell_preemptor(reading, refused, target, now))


def _find_victims(state: ClusterState, target: Target) -> Iterator[Pod]:
    """Yield what is evicted of the target: the pod, or all of a gang of which none stays."""
    if target.is_planned_alone:
        pod = state.pod_by_key(target.key)
        if pod is not None and pod.is_marked:
            yield pod
        return
    members = state.gangs.members(target.key).values()
    if not any(pod.is_alive for pod in members):
        yield from (pod for pod in members if pod.is_being_evicted)


def find_unit(state: ClusterState, target: Target) -> Unit | None:
    """Return the waiting unit of a pod or gang, if it is complete."""

    def is_meant(unit: Unit) -> bool:
        if target.is_planned_alone:
            return any(pod.key == target.key for pod in unit.pods)
        return any(demand.gang == target.key for demand in unit.demands)

    return next((unit for unit in find_pending(state) if is_meant(unit)), None)


def find_plan(
    state: ClusterState,
    unit: Unit,
    settings: ReportedPreemption | None,
    context: PreemptionContext = NO_CONTEXT,
) -> Preemption | Reason:
    """Return the plan that the operators would make for a unit, or why they would make none.

    ``settings`` has their settings; None if they are not known: then the defaults count.
    """
    preempting = find_preempting(state, unit.key)
    if preempting is not None:
        return preempting
    holds = assume_holds(state, context.now)
    context = replace(
        context,
        prepare=lambda cycle: holds.reserve(cycle, unit, Scoring()),
        pending=lambda: find_pending(state),
    )
    settings = settings or ReportedPreemption()
    options = PreemptionOptions(settings.min_runtime, settings.max_per_day)
    return plan_preemption(state, unit, options, _exempt(state.nominations, settings), context)


def _exempt(nominations: Nominations, settings: ReportedPreemption) -> Exempt:
    leaving = {pod.uid for nomination in nominations for pod in nomination.victims}
    return Exempt(terminating=leaving, patience=settings.patience)


def _tell_victims(reading: Reading, pods: Sequence[Pod], now: float) -> Iterator[str]:
    by = pods[0].preempted_by
    if by is not None:
        yield (
            f"It is preempted by {by.preemptor or 'a pod of higher priority'} (plan "
            f"{by.plan_id}), which takes its place. What its owner creates in its place starts "
            "when there is room."
        )
    else:
        mark = (reading.details or TargetDetails()).conditions.get(operators.OVER_ENTITLEMENT)
        why = f": {mark.message.rstrip('.')}" if mark is not None and mark.message else ""
        yield f"It is evicted because its quota uses more than its share{why}."
    yield _write_leaving(reading, pods, now)
    if any(pod.ends_until > now and not pod.gone_by for pod in pods):
        yield "Until then it may save its work, and stays if its room is not needed any more."


def _write_leaving(reading: Reading, pods: Iterable[Pod], now: float) -> str:
    """Say of pods that terminate how long that may take, and what keeps them."""
    by_end = sorted(pods, key=lambda pod: (not pod.gone_by, pod.gone_by, pod.key))
    names = [f"{pod.title} ({_describe_end(reading, pod, now)})" for pod in by_end]
    return f"Still there: {named(names, _MOST_LEAVING)}."


def _describe_end(reading: Reading, pod: Pod, now: float) -> str:
    if not pod.gone_by:
        left = pod.ends_until - now
        if left <= 0:
            return "marked, and about to be deleted"
        return f"may end by itself within {format_age(left)}"
    late = now - pod.gone_by
    time = f"due {format_age(late)} ago" if late > 0 else f"within {format_age(-late)}"
    held = reading.finalizers.get(pod.key, ())
    return f"{time}; {plural(len(held), 'finalizer')} {named(held)}" if held else time


def write_whether_on(settings: ReportedPreemption | None, victims: Collection[Pod]) -> str:
    """Say whether the operators do what is planned here."""
    if not victims:
        return "there is room for it by now, so the operators place it in any case"
    if settings is None:
        return "the operators do so unless preemption.enabled is off"
    return "the operators do so" if settings.enabled else "they do not: preemption.enabled is false"


def _tell_preemptor(reading: Reading, unit: Unit, target: Target, now: float) -> Iterator[str]:
    state, settings = reading.state, reading.preemption
    nominations = state.nominations
    exempt = _exempt(nominations, settings or ReportedPreemption())
    nomination = nominations.find(unit.key)
    if nomination is not None:
        nodes = named(sorted({assignment.node for assignment in nomination.assignments}))
        yield f"Room on {nodes} is kept for it (plan {nomination.plan_id})."
        if left := find_left(state, nomination):
            yield _write_leaving(reading, left, now)
        return
    if find_candidates(state, unit, exempt).is_nobody:
        return  # the planner has no place for it: no search would find more
    outcome = find_plan(state, unit, settings, PreemptionContext(now))
    if isinstance(outcome, Preemption):
        nodes = named(sorted({pod.node for pod in outcome.pods}))
        kind = "pg" if target.kind is TargetKind.POD_GROUP else target.kind.lower()
        yield (
            f"Preempting {write_victims(outcome.victims)} ({plural(len(outcome.pods), 'pod')}) "
            f"frees {nodes}; {write_whether_on(settings, outcome.pods)}. "
            f"koord preempt {kind}/{target.name} --dry-run shows the plan."
        )
    elif not isinstance(outcome, NobodyLower):
        yield f"Nobody is preempted for it: {outcome.text(compat=state.gangs.compat)}"


@dataclass(frozen=True, slots=True)
class PreemptionAnswer:
    """Whom a waiting unit would preempt, or why nobody; ``settings`` are None if not known."""

    unit: Unit
    outcome: Preemption | Reason
    settings: ReportedPreemption | None


@encode.register
def _(answer: PreemptionAnswer) -> dict[str, Any]:
    unit, reason = answer.unit, answer.outcome
    enabled = None if answer.settings is None else answer.settings.enabled
    head = {"preemptor": name_of(unit), "priority": unit.priority, "enabled": enabled}
    if not isinstance(reason, Preemption):
        return {
            **head,
            "preempts": False,
            "reason": str(reason.code),
            "message": reason.text(),
            "advice": list(reason.advice()),
        }
    return {
        **head,
        "preempts": True,
        "plan": reason.placement.plan_id,
        "placements": {
            assignment.pod.title: assignment.node for assignment in reason.placement.assignments
        },
        "victims": [_describe(victim) for victim in reason.victims],
        "cost": asdict(reason.cost),
        "certificate": asdict(reason.certificate),
        "alternatives": [
            {"victims": [_describe(victim) for victim in other.victims], "cost": asdict(other.cost)}
            for other in reason.alternatives
        ],
    }


def _describe(unit: VictimUnit) -> dict[str, Any]:
    return {
        "kind": str(unit.kind),
        "name": unit.name,
        "priority": unit.priority,
        "pods": [{"pod": pod.title, "node": pod.node} for pod in unit.pods],
    }
