"""What a node is to offer now, from the state of the cluster: one function for all who ask.

The operator publishes it, the status and the command line explain it. What was offered before
(``OfferPast``) is the caller's, and only the operator has one: without it the computed amounts are
returned as they are. Nothing is written here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from koord.core.colocation.formula import (
    BATCH,
    MID,
    PUBLISHED,
    compute_batch,
    compute_mid,
)
from koord.core.colocation.measured import (
    RESOURCES,
    ColocatedNode,
    CountedPod,
    add_up_pods,
)
from koord.core.colocation.node_facts import facts_of
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.colocation.publishing import Degradation, Offer, find_degradation
from koord.core.colocation.steadiness import SHORT_PERCENT, SteadyInput, SteadyValue, steady
from koord.core.colocation.strategy import (
    ClusterColocation,
    ResolvedStrategy,
    Strategy,
    resolve,
)
from koord.core.colocation.terms import AmountTerm, AmountTermKind, Breakdown
from koord.core.engine.state import ClusterState
from koord.core.load.options import own_limits_of
from koord.core.load.plugin import Loads
from koord.core.model.koordinator_class import (
    QOS_LABEL,
    KoordinatorClass,
    find_class,
    is_best_effort,
)
from koord.core.model.nodes import Node
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.units import CPU, MEMORY, Amounts
from koord.core.slo_config.plugin import SloConfigs

COLOCATION_KEY = "colocation-config"
_NO_PODS = frozenset({Handling.RESERVE, Handling.STAND_IN})
_BATCH_NAMES = frozenset(BATCH.values())
_EXCLUSIVE_QOS = "LSE"


class OfferState(StrEnum):
    """What becomes of a node."""

    PUBLISHED = "Published"
    """It offers what was computed."""
    DEGRADED = "Degraded"
    """Nobody knows what it uses, so it offers nothing to batch pods."""
    OFF = "Off"
    """It is not to offer anything."""
    UNKNOWN = "Unknown"
    """Its settings are invalid, and were never valid: it is left as it is."""


@dataclass(slots=True)
class OfferPast:
    """What a node has offered so far: by resource, and when its last round was."""

    values: dict[str, SteadyValue] = field(default_factory=dict)
    at: float = 0.0
    size: tuple[str, Amounts] = ("", {})
    """The node of that round, by its uid, and what it had."""
    pods: list[Pod] = field(default_factory=list)
    """The pods of that round, and how they count: most stay from one to the next."""
    counted: tuple[CountedPod, ...] = ()

    def note_size(self, uid: str, capacity: Amounts) -> None:
        """Forget the values if it is another node of the name, or one that has become smaller.

        What it had offered by then, it does not have.
        """
        before, had = self.size
        is_smaller = any(capacity.get(name, 0) < had.get(name, 0) for name in RESOURCES)
        if before and (before != uid or is_smaller):
            self.values.clear()
        self.size = uid, capacity


@dataclass(frozen=True, slots=True)
class OfferedByNode:
    """What a node is to offer, and how that comes about.

    ``amounts`` has None for resources that the node is not to have. ``breakdowns`` say how the
    others come about. ``is_changing`` says that another round without any change may differ.
    """

    node: str
    state: OfferState
    amounts: Offer
    resolved: ResolvedStrategy
    breakdowns: tuple[Breakdown, ...] = ()
    degradation: Degradation | None = None
    is_changing: bool = False
    until: float | None = None
    """When its report becomes too old, in seconds since the epoch."""
    seen: ColocatedNode | None = field(default=None, repr=False, compare=False)
    """What it was computed from."""


def decide_offer(
    state: ClusterState, name: str, now: float, past: OfferPast | None = None
) -> OfferedByNode | None:
    """Return what a node is to offer at a time (since the epoch); None for an unknown node.

    With a ``past``, which is updated, offers are steady unless the cluster follows Koordinator.
    """
    row = state.table.row_of.get(name)
    if row is None:
        return None
    node, compat = state.table.node_at(row), state.gangs.compat
    facts, pods = facts_of(node), state.pods_on(name)
    configs = state.plugin(SloConfigs)
    settings = configs.of(ClusterColocation)
    policies = state.plugin(ColocationPolicies).policies.values()
    resolved = resolve(node.labels, facts.own_fields, policies, settings)
    if not resolved.strategy.enable:
        if not resolved.policy and settings is None and _is_invalid(configs):
            return OfferedByNode(name, OfferState.UNKNOWN, {}, resolved)
        return OfferedByNode(name, OfferState.OFF, _reset(PUBLISHED, pods), resolved)
    report = state.plugin(Loads).of(name)
    degradation = find_degradation(report, resolved.strategy, now)
    raw = own_limits_of(node).raw_allocatable
    seen = ColocatedNode(
        node.capacity or node.allocatable,
        {**node.allocatable, **dict(raw)} if raw else node.allocatable,
        _count(pods, past, compat=compat),
        None if degradation is not None else report,
        dict(facts.reserved),
        facts.faster,
        dict(facts.third_party),
    )
    breakdowns = tuple(_compute(seen, resolved.strategy, degradation, compat=compat))
    until = None
    if report is not None and degradation is None:
        until = report.updated + resolved.strategy.degrade_time_minutes * 60
    is_changing = False
    if past is not None and not compat:
        past.note_size(node.uid, seen.capacity)
        round_id = 0.0 if report is None else report.updated
        before, past.at = past.at, now
        elapsed = now - before if before else 60.0
        breakdowns = tuple(_hold_back(each, seen, past, elapsed, round_id) for each in breakdowns)
        is_changing = any(each.amount_of(AmountTermKind.HELD_BACK) for each in breakdowns)
    amounts: dict[str, int | None] = {each.resource: each.value for each in breakdowns}
    missing = [resource for resource in PUBLISHED if resource not in amounts]
    if past is not None:
        for resource in missing:
            past.values.pop(resource, None)
    return OfferedByNode(
        name,
        OfferState.DEGRADED if degradation is not None else OfferState.PUBLISHED,
        {**amounts, **_reset(missing, pods)},
        resolved,
        breakdowns,
        degradation,
        is_changing,
        until,
        seen,
    )


def _is_invalid(configs: SloConfigs) -> bool:
    return configs.config is not None and COLOCATION_KEY in configs.config.problems


def _compute(
    node: ColocatedNode, strategy: Strategy, degradation: Degradation | None, *, compat: bool
) -> Iterator[Breakdown]:
    """Yield what can be computed; without a report only a static part of mid resources can."""
    pods = add_up_pods(node)
    is_promised = strategy.is_mid_static and not compat
    for resource in RESOURCES:
        if degradation is None:
            yield compute_batch(resource, node, pods[resource], strategy, compat=compat)
        if degradation is None or is_promised:
            yield compute_mid(resource, node, pods[resource], strategy, compat=compat)


def _hold_back(
    computed: Breakdown, node: ColocatedNode, past: OfferPast, elapsed: float, round_id: float
) -> Breakdown:
    resource = CPU if computed.resource in {BATCH[CPU], MID[CPU]} else MEMORY
    if computed.amount_of(AmountTermKind.STATIC_PART):
        return computed
    report, capacity = node.report, node.capacity.get(resource, 0)
    used = 0 if report is None else report.usage.get(resource, 0)
    given = SteadyInput(
        computed.value, capacity, elapsed, round_id, used * 100 > capacity * SHORT_PERCENT
    )
    after = steady(past.values.get(computed.resource), given)
    past.values[computed.resource] = after
    held_back = after.value - computed.value
    if not held_back:
        return computed
    term = AmountTerm(AmountTermKind.HELD_BACK, held_back)
    return Breakdown(computed.resource, (*computed.terms, term))


def _reset(resources: Iterable[str], pods: Iterable[Pod]) -> dict[str, int | None]:
    """Return what becomes of resources that are offered no more.

    While pods that use one are on the node it is 0: a kubelet rejects pods of a resource that its
    node does not have.
    """
    requested = {name for pod in pods for name, _ in pod.shape.requests}
    return {resource: 0 if resource in requested else None for resource in resources}


def _count(pods: list[Pod], past: OfferPast | None, *, compat: bool) -> tuple[CountedPod, ...]:
    if past is not None and past.pods == pods:
        return past.counted
    counted = tuple(count_pods(pods, compat=compat))
    if past is not None:
        past.pods, past.counted = pods, counted
    return counted


def count_pods(pods: Iterable[Pod], *, compat: bool) -> Iterator[CountedPod]:
    """Yield the pods of a node as they count; those of mid resources with these, unless compat."""
    for pod in pods:
        if pod.handling in _NO_PODS or pod.phase.is_terminal or not pod.node:
            continue
        requests, best_effort = _read_shape(pod.shape, not compat)
        labels = pod.profile.labels
        of = find_class(labels, pod.priority, is_best_effort=best_effort)
        if not compat and best_effort and _uses_batch(pod.shape):
            of = KoordinatorClass.BATCH  # what its labels say, its owner may change at any time
        yield CountedPod(
            pod.key,
            of,
            requests,
            labels.get(QOS_LABEL) == _EXCLUSIVE_QOS,
            compat or pod.is_accepted,
        )


def _uses_batch(shape: PodShape) -> bool:
    return any(amount and name in _BATCH_NAMES for name, amount in shape.requests)


@lru_cache(maxsize=4096)
def _read_shape(shape: PodShape, with_mid: bool) -> tuple[Amounts, bool]:  # noqa: FBT001 - of a cache
    """Return what pods of a shape request, and whether they are BestEffort; nobody changes it."""
    requests = dict(shape.requests)
    counted = {
        resource: requests.get(resource, 0) + (requests.get(MID[resource], 0) if with_mid else 0)
        for resource in RESOURCES
    }
    return counted, is_best_effort(shape, {})


def published_on(node: Node) -> Offer:
    """Return the batch and mid resources that a node has, both in capacity and in allocatable.

    None for one that is only in one of them: a kubelet drops it sooner or later.
    """
    return {
        name: amount if node.capacity.get(name) == amount else None
        for name in PUBLISHED
        if (amount := node.allocatable.get(name, node.capacity.get(name))) is not None
    }
