"""Explains why a pod or a gang waits.

The unit is made by the same rules as in the queue and planned by the same planner on a cycle of the
current state; the explanation is its reason, together with a diagnosis of every node.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np

from koord.answers.devices import describe_reserved, find_holdings
from koord.answers.encoding import encode
from koord.answers.reason_context import ContextFinder
from koord.core.engine.arrays import Mask
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.labels import is_tolerated
from koord.core.engine.planner import plan
from koord.core.engine.queue import find_pending, unit_of
from koord.core.engine.reasons import Closed
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.gang.cache import GangCache
from koord.core.gang.done import has_succeeded
from koord.core.gang.quorum import NotReady, Ready, demands, find_quorum
from koord.core.gang.reasons import Reached
from koord.core.gang.tally import find_refused
from koord.core.model.gangs import GangKey, GangSpec
from koord.core.model.nodes import Node, Taint
from koord.core.model.plan import ObservedTopology, Plan, Unit
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import Planned, Reason, WaitingForForeignGate
from koord.core.model.topology_constraint import TopologyConstraint
from koord.core.model.units import format_amount
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.node_diagnosis import NodeDiagnosis, NodeOffer, offers
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.topology.plugin import TopologySession
from koord.core.topology.strategy.observation import (
    DomainCapacity,
    domain_capacities,
    observe_gang_topology,
)

_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


class PlacementState(StrEnum):
    """The state of the placement of a pod or gang."""

    WAITING = "Waiting"
    PLACEABLE = "Placeable"
    """It fits: the operators place it in their next cycle."""
    HELD_UP = "HeldUp"
    """It fits, but the writes of the operators fail; they retry."""
    BOUND = "Bound"
    BEING_EVICTED = "BeingEvicted"
    """It is marked for eviction by the operators, and still there."""
    ENDED = "Ended"
    DEGRADED = "Degraded"
    """It had started, and has fewer members than its minimum."""
    NOT_OURS = "NotOurs"
    """Neither the gate nor the scheduler name is ours: another scheduler places it."""
    NOTHING_WAITS = "NothingWaits"


@dataclass(frozen=True, slots=True)
class ShapeOffers:
    """The offers of all nodes for ``pods`` equal pods; ``requests`` are those of one."""

    pods: int
    requests: tuple[tuple[str, int], ...]
    nodes: tuple[NodeOffer, ...]

    @property
    def fit(self) -> int:
        """How many such pods fit, counted per node."""
        return sum(offer.pods for offer in self.nodes)


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """The explanation of one pod. ``reason`` is None if the state explains it."""

    pod: Pod
    standing: PlacementState
    reason: Reason | None
    offers: tuple[ShapeOffers, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyExplanation:
    """The topology constraint of a gang, its observed topology, and the capacity of each domain.

    ``where`` covers the placed members, or all members if the gang is placeable. ``unknown`` are
    the layers of the constraint that the topology does not have.
    """

    wish: TopologyConstraint
    where: ObservedTopology | None
    domains: tuple[DomainCapacity, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangExplanation:
    """The explanation of one gang: ``quorum`` counts missing members, ``reason`` is why it waits.

    ``network`` is None for a gang without topology constraint, and without a topology.
    """

    key: GangKey
    spec: GangSpec | None
    group: tuple[GangKey, ...]
    standing: PlacementState
    quorum: Reached | NotReady
    reason: Reason | None
    waiting: int
    bound: int
    offers: tuple[ShapeOffers, ...] = ()
    network: TopologyExplanation | None = None


def explain_pod(
    state: ClusterState, pod: Pod, scoring: Scoring, reclaim: ReclaimSetting = UNKNOWN
) -> PodExplanation:
    settled = _find_settled(pod)
    refused = find_refused((pod,))
    if refused is not None:
        return PodExplanation(pod, PlacementState.WAITING, refused)
    if settled is not None:
        return PodExplanation(pod, settled, None)
    made = Ready((unit_of(pod),)) if pod.gang is None else demands(state.gangs, pod.gang.key)
    if not isinstance(made, Ready):
        return PodExplanation(pod, PlacementState.WAITING, made, _offers(state, (pod,)))
    if pod.handling is Handling.FOREIGN_GATE:
        gate = WaitingForForeignGate(pod.key, pod.foreign_gates)
        return PodExplanation(pod, PlacementState.WAITING, gate)
    unit = next((unit for unit in made.units if pod in unit.pods), None)
    reason = next(
        (left_out_unit.reason for left_out_unit in made.left_out if pod in left_out_unit.pods), None
    )
    if unit is not None:
        reason = _plan_alone(state, unit, scoring, reclaim)
    is_placed = reason is not None and reason.is_placed
    standing = PlacementState.PLACEABLE if is_placed else PlacementState.WAITING
    return PodExplanation(pod, standing, reason, _offers(state, (pod,)))


def _find_settled(pod: Pod) -> PlacementState | None:
    """Return the state of a pod that is not to be placed by us; None if it is."""
    if pod.is_being_evicted:
        return PlacementState.BEING_EVICTED
    if pod.phase.is_terminal or pod.is_terminating:
        return PlacementState.ENDED
    if pod.node:
        return PlacementState.BOUND
    return PlacementState.NOT_OURS if pod.handling is Handling.NOT_OURS else None


def explain_gang(
    state: ClusterState,
    key: GangKey,
    scoring: Scoring,
    reclaim: ReclaimSetting = UNKNOWN,
) -> GangExplanation:
    book = state.gangs
    made = demands(book, key)
    tally = book.tally(key)
    reason, standing, waiting = None, PlacementState.NOTHING_WAITS, tuple(tally.plannable.values())
    where = observe_gang_topology(book, state.topologies, state.table.row_of, key)
    if has_succeeded(book, key):
        standing = PlacementState.ENDED
    elif _is_being_evicted(book, key):
        standing = PlacementState.BEING_EVICTED
    elif not isinstance(made, Ready):
        reason, standing = made, PlacementState.WAITING
    elif made.units:
        outcome = plan(_open_cycle(state), made.units, scoring)
        reason = first_refusal(state, made.units, outcome, reclaim)
        standing = PlacementState.PLACEABLE if reason.is_placed else PlacementState.WAITING
        where = next((topology for p in outcome.placements for topology in p.topologies), where)
    elif left_out := [
        left_out_unit.reason for left_out_unit in made.left_out if left_out_unit.gang == key
    ]:
        reason, standing = left_out[0], PlacementState.WAITING
    return GangExplanation(
        key=key,
        spec=book.spec(key),
        group=book.group(key).gangs,
        standing=standing,
        quorum=find_quorum(book, key),
        reason=reason,
        waiting=tally.waiting,
        bound=tally.bound_alive,
        offers=_offers(state, waiting),
        network=_view(state, key, waiting, where),
    )


def _is_being_evicted(book: GangCache, key: GangKey) -> bool:
    """Whether nothing of a gang is left but members that are marked for eviction."""
    members = book.members(key).values()
    return not any(pod.is_alive for pod in members) and any(pod.is_being_evicted for pod in members)


def _open_cycle(state: ClusterState) -> Cycle:
    """Open a cycle that knows all waiting units, which compete for leftovers of quotas."""
    state.refresh()
    return state.open_cycle(lambda: find_pending(state))


def _view(
    state: ClusterState, key: GangKey, waiting: tuple[Pod, ...], where: ObservedTopology | None
) -> TopologyExplanation | None:
    cycle = state.open_cycle()
    view = cycle.session(TopologySession).view
    wish = view.constraint_of(key)
    tree = None if wish is None else state.topologies.tree(wish.topology)
    if wish is None or tree is None:
        return None
    living = [pod for pod in state.gangs.members(key).values() if pod.is_alive]
    like = waiting[:1] or sorted(living, key=lambda pod: pod.key)[:1]
    shape = cycle.shape_of(like[0]) if like else None
    members = [sibling.node for sibling in view.placed_members_of(key)]
    unknown = tuple(
        layer_constraint.layer
        for layer_constraint in wish.layers
        if layer_constraint.layer not in tree.layers
    )
    return TopologyExplanation(
        wish, where, tuple(domain_capacities(cycle, tree, shape, members)), unknown
    )


def first_refusal(
    state: ClusterState, units: Iterable[Unit], outcome: Plan, reclaim: ReclaimSetting
) -> Reason:
    """Return the first reason with its context, or that all units are placed."""
    for refusal in outcome.refusals:
        preempting = find_preempting(state, refusal.unit)
        if preempting is not None:
            return preempting
        unit = next(unit for unit in units if unit.key == refusal.unit)
        return ContextFinder(state, reclaim, tries=1).add(unit, refusal.reason)
    assignments = [
        assignment for placement in outcome.placements for assignment in placement.assignments
    ]
    return Planned(len(assignments), len({assignment.node for assignment in assignments}))


def _plan_alone(
    state: ClusterState, unit: Unit, scoring: Scoring, reclaim: ReclaimSetting
) -> Reason:
    outcome = plan(_open_cycle(state), (unit,), scoring)
    return first_refusal(state, (unit,), outcome, reclaim)


def _offers(state: ClusterState, pods: tuple[Pod, ...]) -> tuple[ShapeOffers, ...]:
    cycle = state.open_cycle()
    alike: dict[PodShape, list[Pod]] = {}
    for pod in pods:
        alike.setdefault(cycle.shape_of(pod), []).append(pod)
    placed_pods = tuple(state.pods_on_nodes())
    return tuple(
        ShapeOffers(
            len(equal),
            shape.requests,
            tuple(_name_reserved(state, offer) for offer in offers(node_diagnosis)),
        )
        for shape, equal in sorted(alike.items(), key=lambda item: item[0].requests)
        for node_diagnosis in (NodeDiagnosis(cycle, equal[0], placed_pods),)
    )


def _name_reserved(state: ClusterState, offer: NodeOffer) -> NodeOffer:
    """Say which reservations hold devices that a node lacks."""
    if offer.cause is None or not offer.cause.is_held:
        return offer
    held = describe_reserved(find_holdings(state, offer.node))
    return replace(offer, detail="; ".join(filter(None, (offer.detail, held)))) if held else offer


def find_closed(snapshot: Cycle, shape: PodShape) -> tuple[Closed, ...]:
    """Find nodes that would take a pod of a shape but for one thing, the largest group first."""
    failing = [(cause, ~passed) for cause, _, passed in snapshot.checks(shape)]
    _count_cordon_once(failing, snapshot, shape)
    is_near = snapshot.table.is_live & (np.sum([rows for _, rows in failing], axis=0) == 1)
    closed_nodes: dict[tuple[Cause, str], list[str]] = defaultdict(list)
    for cause, rows in failing:
        if cause is NodeCause.RESOURCE:
            continue
        for row in np.flatnonzero(rows & is_near):
            node = snapshot.table.node_at(int(row))
            taints = _untolerated(node, shape) if cause is NodeCause.TAINT else ()
            detail = " ".join(f"{{{taint.key}: {taint.value}}}" for taint in taints)
            closed_nodes[cause, detail].append(node.name)
    closed = (Closed(*key, tuple(sorted(nodes))) for key, nodes in closed_nodes.items())
    return tuple(
        sorted(closed, key=lambda closed: (-len(closed.nodes), closed.cause, closed.detail))
    )


def _count_cordon_once(
    failing: Sequence[tuple[Cause, Mask]], snapshot: Cycle, shape: PodShape
) -> None:
    """Cordoning also taints: take a taint that goes with uncordoning for no cause of its own."""
    masks = dict(failing)
    cordoned = masks.get(NodeCause.UNSCHEDULABLE)
    tainted = masks.get(NodeCause.TAINT)
    if cordoned is None or tainted is None:
        return
    for row in np.flatnonzero(cordoned & tainted):
        node = snapshot.table.node_at(int(row)) if snapshot.table.is_live[row] else None
        if node and all(taint.key == _CORDON_TAINT for taint in _untolerated(node, shape)):
            tainted[row] = False


def _untolerated(node: Node, shape: PodShape) -> list[Taint]:
    return [
        taint
        for taint in node.taints
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations)
    ]


@encode.register
def _(network: TopologyExplanation) -> dict[str, Any]:
    return {
        "topology": network.wish.topology,
        "wish": encode(network.wish.layers),
        "unknownLayers": encode(network.unknown),
        "where": encode(network.where),
        "domains": encode(network.domains),
    }


@encode.register
def _(where: ObservedTopology) -> dict[str, Any]:
    return {
        "layer": where.layer,
        "domain": "/".join(where.domain),
        "domainsPerLayer": dict(where.used),
        "optimal": where.is_optimal,
        "gap": None if where.gap is None else {"layer": where.gap[0], "domains": where.gap[1]},
    }


@encode.register
def _(domain: DomainCapacity) -> dict[str, Any]:
    return {
        "layer": domain.layer,
        "domain": "/".join(domain.path),
        "nodes": domain.nodes,
        "offer": domain.offer,
        "members": domain.members,
        "free": {
            amount.resource: format_amount(amount.resource, amount.free)
            for amount in domain.amounts
        },
        "allocatable": {
            amount.resource: format_amount(amount.resource, amount.allocatable)
            for amount in domain.amounts
        },
    }


@encode.register
def _(offers: ShapeOffers) -> dict[str, Any]:
    return {
        "pods": offers.pods,
        "requests": {name: format_amount(name, amount) for name, amount in offers.requests},
        "fit": offers.fit,
        "nodes": encode(offers.nodes),
    }


@encode.register
def _(offer: NodeOffer) -> dict[str, Any]:
    return {
        "node": offer.node,
        "pods": offer.pods,
        "refusal": offer.cause,
        "detail": offer.detail or None,
        "short": [
            {
                "resource": resource,
                "asked": format_amount(resource, requested),
                "free": format_amount(resource, free),
            }
            for resource, requested, free in offer.short
        ],
    }
