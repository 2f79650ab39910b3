"""The answer to "why does it wait?" as a value: the core's explanation and the reported conditions.

Made from a reading of the cluster only, so that tests can make it from any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from koord.answers.explain import PlacementState, explain_gang, explain_pod
from koord.answers.explanation import Explained, Explanation, GangAnswer, History, PodPlace
from koord.answers.gaps import list_warnings
from koord.answers.hints import (
    find_gate_hints,
    find_help,
    find_hints,
    find_owner_hints,
    find_qos_hints,
    hint_at_gates,
)
from koord.answers.leaders import Leader
from koord.answers.preemption import hint_at_preemption
from koord.answers.reading import (
    KindName,
    Reading,
    Target,
    TargetDetails,
    TargetKind,
    TargetNotFoundError,
    describe_missing,
    is_unknown,
    keep_known,
)
from koord.answers.redaction import redact
from koord.answers.reports import (
    Reported,
    ReportedReason,
    Reports,
    find_better,
    find_standing,
    make_report,
)
from koord.answers.summary import find_owner
from koord.api.keys import operators
from koord.core.engine.reasons import Closed, InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.gang.quorum import count_members
from koord.core.gang.reasons import BelowMin, GangCount, MissingMembers, Reached
from koord.core.gang.status import ConditionType, GangStatus, observe
from koord.core.gang.sub_group_members import first_incomplete
from koord.core.model.gang_history import find_eviction
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time

_MOST_SUB_GROUPS: Final = 20
"""Sub-groups that are listed."""
_TRUE: Final = "True"
_FALSE: Final = "False"

_Signs: TypeAlias = tuple[tuple[str, str], ...]
"""(Condition type, status) that show a state, in the order of precedence."""


_WAITING_POD: Final[_Signs] = ((operators.PLACED, _FALSE),)
_INCOMPLETE_GANG: Final[_Signs] = ((ConditionType.QUORUM_REACHED, _FALSE),)
_WAITING_GANG: Final[_Signs] = (
    (ConditionType.PLACED, _FALSE),
    (ConditionType.QUORUM_REACHED, _TRUE),
)
_WAITING_RESERVATION: Final[_Signs] = (("Scheduled", _FALSE),)
_SIGNS: Final[Mapping[tuple[str, PlacementState], _Signs]] = {
    (TargetKind.POD, PlacementState.WAITING): _WAITING_POD,
    (TargetKind.POD, PlacementState.PLACEABLE): _WAITING_POD,
    (TargetKind.POD, PlacementState.BOUND): (("PodScheduled", _TRUE),),
    (TargetKind.RESERVATION, PlacementState.WAITING): _WAITING_RESERVATION,
    (TargetKind.RESERVATION, PlacementState.PLACEABLE): _WAITING_RESERVATION,
    (TargetKind.RESERVATION, PlacementState.BOUND): (("Ready", _TRUE),),
    (TargetKind.POD_GROUP, PlacementState.WAITING): _WAITING_GANG,
    (TargetKind.POD_GROUP, PlacementState.PLACEABLE): _WAITING_GANG,
    (TargetKind.POD_GROUP, PlacementState.DEGRADED): ((ConditionType.DEGRADED, _TRUE),),
    (TargetKind.POD_GROUP, PlacementState.NOTHING_WAITS): ((ConditionType.BOUND, _TRUE),),
}
_SINCE_CREATION: Final = {PlacementState.WAITING, PlacementState.PLACEABLE, PlacementState.NOT_OURS}
_AFTER_EVICTION: Final = (
    "The owner of the members creates new ones, and they wait like any other gang.",
    "A Job counts evicted pods as failed, unless its podFailurePolicy ignores DisruptionTarget.",
)
_ADD: Final = f"""\
spec:
  schedulerName: {operators.SCHEDULER_NAME}
  schedulingGates:
    - name: {operators.PLACEMENT_GATE}
"""


def make_answer(reading: Reading, target: Target, now: float) -> Explanation:
    """Answer for ``target`` at ``now`` (seconds since the epoch); may raise the error above."""
    if not _sees(reading, target):
        raise TargetNotFoundError(describe_missing(reading, target, ()))
    make = _answer_for_pod if target.is_planned_alone else _answer_for_gang
    answer, refused = make(reading, target, now)
    if not reading.sight.nodes:  # both name nodes in their sentences
        answer = replace(answer, advice=(), network=None)
    return replace(
        answer if reading.sight.is_whole else redact(answer, reading.sight.hide),
        advice=(*_hint_at_preemption(reading, answer, refused, now), *answer.advice),
        warnings=list_warnings(reading, target),
        is_led=reading.leader is None or bool(reading.leader.holder),
    )


def _sees(reading: Reading, target: Target) -> bool:
    sight = reading.sight
    return sight.sees(target.namespace) or target.key in sight.units


def _hint_at_preemption(
    reading: Reading, answer: Explanation, refused: Unit | None, now: float
) -> tuple[str, ...]:
    is_whole = reading.extent_of(KindName.PODS) is None and reading.sight.is_whole
    if is_unknown(reading, KindName.NODES) or not is_whole:
        return ()
    reason = answer.reason.reason if answer.reason is not None else None
    return hint_at_preemption(reading, answer.target, reason, refused, now)


_Answer: TypeAlias = tuple[Explanation, Unit | None]
"""An answer, and the unit for which the planner finds no place."""


def _answer_for_pod(reading: Reading, target: Target, now: float) -> _Answer:
    state = reading.state
    pod = state.pod_by_key(target.key)
    if pod is None and target.kind is TargetKind.RESERVATION:  # it exists, and needs no room
        return Explanation(target, PlacementState.ENDED), None
    if pod is None:
        raise TargetNotFoundError(
            describe_missing(reading, target, (pod.key for pod in state.pods.values()))
        )
    explanation = explain_pod(state, pod, Scoring(), reading.reclaim)
    reason = keep_known(explanation.reason, reading, target.namespace)
    standing = explanation.standing
    details = reading.details or TargetDetails()
    is_foreign = standing is PlacementState.NOT_OURS and pod.recorded is None
    history = read_history(target.kind, standing, details, created=pod.created)
    standing, reason = _correct(standing, reason, history, reading.leader)
    answer = Explanation(
        target=target,
        standing=standing,
        history=history,
        reason=None
        if reason is None
        else Explained(reason.text_for(pod.key, compat=state.gangs.compat), reason),
        is_reported_on=pod.handling is not Handling.NOT_OURS,
        place=_place_of(pod),
        gang=None
        if pod.gang is None
        else _gang_of(reading, observe(state.gangs, pod.gang.key, now)),
        offers=() if is_unknown(reading, KindName.NODES) else explanation.offers,
        advice=(
            *(f"The key {slip.key} {slip.problem}." for slip in details.slips),
            *details.agent_notes,
            *(
                _advise_foreign(pod, details)
                if is_foreign
                else _advise(reading, reason, explanation.closed)
            ),
            *find_qos_hints(pod),
        ),
        add=_ADD if is_foreign or _has_foreign_members(reason) else "",
        owner=find_owner((pod,)),
        closed=explanation.closed,
    )
    return answer, explanation.refused


def _answer_for_gang(reading: Reading, target: Target, now: float) -> _Answer:
    state, key = reading.state, target.key
    if key not in state.gangs:
        raise TargetNotFoundError(describe_missing(reading, target, state.gangs.keys()))
    explanation = explain_gang(state, key, Scoring(), reading.reclaim)
    reason = keep_known(explanation.reason, reading, target.namespace)
    standing, waits = explanation.standing, None
    status, pod_group = observe(state.gangs, key, now), state.gangs.pod_group(key)
    below = _find_degraded(status)
    is_evicted = standing is PlacementState.BEING_EVICTED
    if below is not None and not is_evicted:
        standing, waits, reason = PlacementState.DEGRADED, reason, below
    episodes = () if pod_group is None else pod_group.history
    history = read_history(
        target.kind,
        standing,
        reading.details or TargetDetails(),
        created=0.0 if pod_group is None else pod_group.created,
        is_complete=below is not None or isinstance(explanation.quorum, Reached),
    )
    if history.reported is None and is_unknown(reading, KindName.POD_GROUPS):
        reports = Reports(reading.reports, reading.leader)
        history = replace(history, reported=reports.on_gang(state, key))
    standing, reason = _correct(standing, reason, history, reading.leader)
    advice = _advise(reading, waits or reason, explanation.closed)
    was_evicted = find_eviction(episodes) is not None
    if is_evicted or (was_evicted and isinstance(waits or reason, MissingMembers)):
        advice = _AFTER_EVICTION
    elif isinstance(below, BelowMin) and below.refused is not None:
        advice = below.advice()
    elif isinstance(below, BelowMin) and (waits is None or isinstance(waits, MissingMembers)):
        advice = find_owner_hints(state, key, below)
    answer = Explanation(
        target=target,
        standing=standing,
        history=history,
        reason=None
        if reason is None
        else Explained(reason.text(compat=state.gangs.compat), reason),
        waits=None if waits is None else Explained(waits.text(compat=state.gangs.compat), waits),
        is_reported_on=pod_group is not None,
        gang=_gang_of(reading, status),
        offers=() if is_unknown(reading, KindName.NODES) else explanation.offers,
        not_asked=0 if is_unknown(reading, KindName.NODES) else explanation.not_asked,
        network=None if is_unknown(reading, KindName.NODES) else explanation.network,
        advice=advice,
        episodes=episodes,
        add=_ADD if _has_foreign_members(waits or reason) else "",
        owner=find_owner(state.gangs.members(key).values()),
        closed=explanation.closed,
    )
    return answer, explanation.refused


def _find_degraded(status: GangStatus) -> Reason | None:
    """Return why a started gang is below its minimum; None if it is not."""
    degraded = (
        condition
        for condition in status.conditions
        if condition[0] is ConditionType.DEGRADED and condition[1]
    )
    return next((reason for _, _, reason in degraded), None)


def _correct(
    standing: PlacementState, reason: Reason | None, history: History, leader: Leader | None
) -> tuple[PlacementState, Reason | None]:
    """Return standing and reason with what only the operators know."""
    better = find_better(standing, reason, history.reported, leader)
    return (standing, reason) if better is None else (find_standing(standing, better), better)


def _advise(reading: Reading, reason: Reason | None, closed: Sequence[Closed]) -> tuple[str, ...]:
    if reason is None:
        return ()
    if gates := find_gate_hints(reading.state, reason):
        return gates
    hints: tuple[str, ...] = ()
    if reading.sight.is_whole:  # they are about everybody, and are texts already
        hints = find_hints(reading.state, reason, reading.ignored, reading.reclaim)
    if isinstance(reason, ReportedReason) and not hints:
        return tuple(filter(None, (find_help(reason.code),)))
    if isinstance(reason, InsufficientNodes):
        return (*hints, *reason.advice(closed))
    return (*hints, *reason.advice())


def _has_foreign_members(reason: Reason | None) -> bool:
    return isinstance(reason, MissingMembers) and any(gang.strangers for gang in reason.gangs)


def _advise_foreign(pod: Pod, details: TargetDetails) -> tuple[str, ...]:
    if gates := hint_at_gates(pod.foreign_gates):
        return gates
    scheduler = details.scheduler or "another scheduler"
    owners = ", ".join(owner for owner in details.owners if not owner.startswith("Node/"))
    place = f"the pod template of {owners}" if owners else "the pod"
    return (
        f"It has neither our scheduling gate nor our scheduler name, so {scheduler} places it.",
        f"To have the operators place it, add this to {place} and create the pod again.",
    )


def _place_of(pod: Pod) -> PodPlace | None:
    plan = pod.recorded
    if plan is not None and plan.node and pod.node in {"", plan.node}:
        return PodPlace(plan.node, bool(pod.node), plan.plan_id, plan.group, plan.member_count)
    return PodPlace(pod.node, is_bound=True) if pod.node else None


def _gang_of(reading: Reading, status: GangStatus) -> GangAnswer | None:
    book, key = reading.state.gangs, status.key
    spec = book.spec(key)
    if spec is None and is_unknown(reading, KindName.POD_GROUPS):
        return None
    places = [_place_of(pod) for pod in book.members(key).values()]
    counts = tuple(count for count in count_members(book, key) if book.spec(count.gang))
    counts += tuple(
        GangCount(
            f"{key}/{sub_group_count.name}", sub_group_count.present, sub_group_count.min_member
        )
        for sub_group_count in first_incomplete(status.sub_groups, _MOST_SUB_GROUPS)
    )
    ignored = () if spec is None else spec.bad_values
    by_others = sum(place is not None and not place.plan_id for place in places)
    return GangAnswer(key, counts, status.members, status.plan_id, status.nodes, ignored, by_others)


def read_history(
    kind: str,
    standing: PlacementState,
    details: TargetDetails,
    *,
    created: float,
    is_complete: bool = True,
) -> History:
    """Read the history; a gang that is not complete waits for members, not for nodes."""
    signs = _SIGNS.get((kind, standing), ()) if is_complete else _INCOMPLETE_GANG
    return History(_find_since(signs, details, created, standing), _find_report(signs, details))


def _find_since(
    signs: _Signs, details: TargetDetails, created: float, standing: PlacementState
) -> str:
    for kind, status in signs:
        condition = details.conditions.get(kind)
        if condition is not None and condition.status == status and condition.last_transition_time:
            return condition.last_transition_time
    if standing not in _SINCE_CREATION or not created:
        return ""
    return format_time(created)


def _find_report(signs: _Signs, details: TargetDetails) -> Reported | None:
    for kind, _ in signs:
        condition = details.conditions.get(kind)
        if condition is not None and condition.reason:
            return make_report(condition)
    return None
