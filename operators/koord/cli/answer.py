"""The answer to "why does it wait?" as a value: what the core explains, and what was reported.

Made from a reading of the cluster and nothing else, so that it can be made of any.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from koord.api.keys import operators
from koord.cli.cluster import Reading, Sighting, Target, TargetKind
from koord.cli.hints import find_hints
from koord.cli.history import History, look_back
from koord.cli.missing_rights import (
    are_nodes_unknown,
    are_settings_unknown,
    describe_missing,
    keep_founded,
    warn_of_gaps,
)
from koord.core.advice import find_closed
from koord.core.explain import (
    PlacementState,
    ShapeOffers,
    TopologyExplanation,
    explain_gang,
    explain_pod,
)
from koord.core.framework.reasons import InsufficientNodes
from koord.core.framework.scoring import Scoring
from koord.core.gang.model import BadValue, GangKey
from koord.core.gang.quorum import count_members
from koord.core.gang.reasons import GangCount, MissingMembers, Reached
from koord.core.gang.status import MemberCounts, observe
from koord.core.pods import Handling, Pod
from koord.core.reasons import BindFailed, Reason
from koord.core.state import ClusterState


class Missing(LookupError):  # noqa: N818 - what it says is what is wrong
    """What was asked about does not exist, or cannot be understood."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A reason in the words of conditions and events, and the reason itself."""

    message: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is, or is promised to; ``plan_id`` is empty if it was not placed by us."""

    node: str
    is_bound: bool
    plan_id: str = ""
    group: str = ""
    member_count: int = 0


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """The gang: how many members the gangs of its group have and need, where its own are.

    Gangs of which no settings are known are left out of ``group``. ``ignored`` are settings of the
    gang itself that cannot be used; it starts without them.
    """

    key: GangKey
    group: tuple[GangCount, ...]
    members: MemberCounts
    plan_id: str
    nodes: tuple[str, ...]
    ignored: tuple[BadValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that can be told about a pod or a gang.

    ``is_reported_on`` says whether running operators would write conditions on the object. ``add``
    is the YAML that the pod, or other members of its gang, lack to be ours.
    """

    target: Target
    standing: PlacementState
    history: History = field(default_factory=History)
    reason: Explained | None = None
    is_reported_on: bool = False
    place: Place | None = None
    gang: GangAnswer | None = None
    offers: tuple[ShapeOffers, ...] = ()
    network: TopologyExplanation | None = None
    advice: tuple[str, ...] = ()
    add: str = ""
    warnings: tuple[str, ...] = ()


_ADD: Final = f"""\
spec:
  schedulerName: {operators.SCHEDULER_NAME}
  schedulingGates:
    - name: {operators.PLACEMENT_GATE}
"""


def make_answer(reading: Reading, target: Target, now: float) -> Explanation:
    """Answer for ``target`` at ``now`` (seconds since the epoch). Raises ``Missing``."""
    make = _answer_for_pod if target.kind is TargetKind.POD else _answer_for_gang
    answer = make(reading, target, now)
    return replace(answer, warnings=tuple(warn_of_gaps(reading, target)))


def _answer_for_pod(reading: Reading, target: Target, now: float) -> Explanation:
    state = reading.state
    pod = state.pod_by_key(target.key)
    if pod is None:
        raise Missing(describe_missing(reading, target, (one.key for one in state.pods.values())))
    explanation = explain_pod(state, pod, Scoring())
    reason = keep_founded(explanation.reason, reading, target.namespace)
    standing = explanation.standing
    sighting = reading.sighting or Sighting()
    is_stranger = standing is PlacementState.NOT_OURS and pod.recorded is None
    history = look_back(target.kind, standing, sighting, created=pod.created)
    return Explanation(
        target=target,
        standing=_weigh(standing, history),
        history=history,
        reason=None if reason is None else Explained(reason.text_for(pod.key), reason),
        is_reported_on=pod.handling is not Handling.NOT_OURS,
        place=_place_of(pod),
        gang=None if pod.gang is None else _gang_of(reading, pod.gang.key, now),
        offers=() if are_nodes_unknown(reading) else explanation.offers,
        advice=(
            *(f"The key {slip.key} {slip.problem}." for slip in sighting.slips),
            *(_advise_stranger(sighting) if is_stranger else _advise(state, reason)),
        ),
        add=_ADD if is_stranger or _has_strangers(reason) else "",
    )


def _answer_for_gang(reading: Reading, target: Target, now: float) -> Explanation:
    state = reading.state
    if target.key not in state.book:
        raise Missing(describe_missing(reading, target, state.book.keys()))
    explanation = explain_gang(state, target.key, Scoring())
    reason = keep_founded(explanation.reason, reading, target.namespace)
    standing = explanation.standing
    pod_group = state.book.pod_group(target.key)
    history = look_back(
        target.kind,
        standing,
        reading.sighting or Sighting(),
        created=0.0 if pod_group is None else pod_group.created,
        is_complete=isinstance(explanation.quorum, Reached),
    )
    return Explanation(
        target=target,
        standing=_weigh(standing, history),
        history=history,
        reason=None if reason is None else Explained(reason.text(), reason),
        is_reported_on=pod_group is not None,
        gang=_gang_of(reading, target.key, now),
        offers=() if are_nodes_unknown(reading) else explanation.offers,
        network=None if are_nodes_unknown(reading) else explanation.network,
        advice=_advise(state, reason),
        add=_ADD if _has_strangers(reason) else "",
    )


def _weigh(standing: PlacementState, history: History) -> PlacementState:
    """Return the standing in the light of what was reported: only who writes knows of refusals."""
    said = history.reported
    is_held_up = said is not None and said.reason == BindFailed.code
    return (
        PlacementState.HELD_UP if is_held_up and standing is PlacementState.PLACEABLE else standing
    )


def _advise(state: ClusterState, reason: Reason | None) -> tuple[str, ...]:
    if reason is None:
        return ()
    return (*find_hints(state, reason), *_advice_of(state, reason))


def _advice_of(state: ClusterState, reason: Reason) -> tuple[str, ...]:
    if isinstance(reason, InsufficientNodes):
        first = state.pod_by_key(reason.first)
        if first is not None:
            snapshot = state.open_cycle()
            return reason.advice(find_closed(snapshot, snapshot.shape_of(first)))
    return reason.advice()


def _has_strangers(reason: Reason | None) -> bool:
    return isinstance(reason, MissingMembers) and any(one.strangers for one in reason.gangs)


def _advise_stranger(sighting: Sighting) -> tuple[str, ...]:
    scheduler = sighting.scheduler or "another scheduler"
    owners = ", ".join(owner for owner in sighting.owners if not owner.startswith("Node/"))
    place = f"the pod template of {owners}" if owners else "the pod"
    lacking = "It has neither our scheduling gate nor our scheduler name"
    add = f"To have it placed by the operators, add this to {place} and have it created anew"
    return (
        f"{lacking}; {scheduler} is to place it.",
        f"{add}: a pod that exists can be given neither.",
    )


def _place_of(pod: Pod) -> Place | None:
    plan = pod.recorded
    if plan is not None and pod.node in {"", plan.node}:
        return Place(plan.node, bool(pod.node), plan.plan_id, plan.group, plan.member_count)
    return Place(pod.node, is_bound=True) if pod.node else None


def _gang_of(reading: Reading, key: GangKey, now: float) -> GangAnswer | None:
    book = reading.state.book
    spec = book.spec(key)
    if spec is None and are_settings_unknown(reading):
        return None
    counts = tuple(count for count in count_members(book, key) if book.spec(count.gang))
    status = observe(book, key, now)
    ignored = () if spec is None else spec.bad_values
    return GangAnswer(key, counts, status.members, status.plan_id, status.nodes, ignored)
