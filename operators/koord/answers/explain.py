"""Explains why a pod or a gang waits.

The unit is made by the same rules as in the queue and planned by the same planner on a cycle of the
current state; the explanation is its reason, together with a diagnosis of every node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from heapq import nlargest
from typing import Final, TypedDict

from koord.answers.devices import describe_reserved, find_holdings
from koord.answers.encoding import Encoded, encode
from koord.answers.pending import find_pending
from koord.answers.reason_context import ContextFinder
from koord.answers.redaction import HiddenName
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import Closed, InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.gang.cache import GangCache
from koord.core.gang.done import has_succeeded
from koord.core.gang.native import find_missing_quorum
from koord.core.gang.quorum import Ready, demands, find_quorum
from koord.core.gang.reasons import NotReady, Reached
from koord.core.gang.tally import find_refused
from koord.core.model.gangs import GangKey
from koord.core.model.plan import ObservedTopology, Plan, Unit
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import Planned, Reason, WaitingForForeignGate
from koord.core.model.topology_constraint import LayerConstraint, TopologyConstraint
from koord.core.model.units import format_amount
from koord.core.plugins.node_diagnosis import NodeDiagnosis, NodeOffer, find_closed, offers
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.topology.plugin import TopologySession
from koord.core.topology.strategy.observation import (
    DomainCapacity,
    domain_capacities,
    observe_gang_topology,
)

MOST_SHAPES: Final = 8
"""Different pods of a gang about which every node is asked: all members may be unlike others."""


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
    """The explanation of one pod. ``reason`` is None if the state explains it.

    ``refused`` is the unit for which the planner finds no place, ``closed`` are nodes that would
    have room for it.
    """

    standing: PlacementState
    reason: Reason | None = None
    offers: tuple[ShapeOffers, ...] = ()
    refused: Unit | None = None
    closed: tuple[Closed, ...] = ()


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

    ``network`` is None for a gang without topology constraint, and without a topology. ``refused``
    and ``closed`` are as of a pod.
    """

    standing: PlacementState
    quorum: Reached | NotReady
    reason: Reason | None
    offers: tuple[ShapeOffers, ...] = ()
    network: TopologyExplanation | None = None
    refused: Unit | None = None
    closed: tuple[Closed, ...] = ()
    not_asked: int = 0
    """Members that wait, and that are in none of the offers."""


def explain_pod(
    state: ClusterState, pod: Pod, scoring: Scoring, reclaim: ReclaimSetting = UNKNOWN
) -> PodExplanation:
    settled = _find_settled(pod)
    refused: Reason | None = find_refused((pod,))
    if refused is None and pod.gang is not None:
        refused = find_missing_quorum(state.gangs.gang(pod.gang.key), pod)
    if refused is not None:
        return PodExplanation(PlacementState.WAITING, refused)
    if settled is not None:
        return PodExplanation(settled, find_remark(state, pod))
    made = Ready((unit_of(pod),)) if pod.gang is None else demands(state.gangs, pod.gang.key)
    if isinstance(made, Ready) and pod.handling is Handling.FOREIGN_GATE:
        gate = WaitingForForeignGate(pod.key, pod.foreign_gates)
        return PodExplanation(PlacementState.WAITING, gate)
    cycle = _open_cycle(state)
    if not isinstance(made, Ready):
        diagnoses = _diagnose(state, cycle, (pod,))
        return PodExplanation(PlacementState.WAITING, made, _offers(state, diagnoses))
    units = tuple(unit for unit in made.units if pod in unit.pods)[:1]
    reason = next(
        (left_out_unit.reason for left_out_unit in made.left_out if pod in left_out_unit.pods), None
    )
    if units:
        reason = first_refusal(state, units, try_units(cycle, units, scoring), reclaim)
    is_placed = reason is not None and reason.is_placed
    diagnoses = _diagnose(state, cycle, (pod,))
    return PodExplanation(
        PlacementState.PLACEABLE if is_placed else PlacementState.WAITING,
        reason,
        _offers(state, diagnoses),
        None if is_placed else next(iter(units), None),
        _find_closed(state, cycle, diagnoses, reason),
    )


def find_remark(state: ClusterState, pod: Pod) -> Reason | None:
    """Return what is to be said of a pod with a node: whether room is held for others with it."""
    rooms = (plugin for plugin in state.plugins if isinstance(plugin, AwaitedRooms))
    return next((awaited.remark_on(pod) for awaited in rooms), None)


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
    quorum, made = find_quorum(book, key), demands(book, key)
    cycle, refused = _open_cycle(state), None
    waiting = tuple(book.tally(key).plannable.values())
    reason, where, standing = None, None, PlacementState.NOTHING_WAITS
    if has_succeeded(book, key):
        standing = PlacementState.ENDED
    elif not waiting and _is_being_evicted(book, key):
        standing = PlacementState.BEING_EVICTED
    elif not isinstance(made, Ready):
        reason, standing = made, PlacementState.WAITING
    elif made.units:
        outcome = try_units(cycle, made.units, scoring)
        reason = first_refusal(state, made.units, outcome, reclaim)
        refused = first_refused(made.units, outcome)
        standing = PlacementState.PLACEABLE if reason.is_placed else PlacementState.WAITING
        where = next((topology for p in outcome.placements for topology in p.topologies), None)
    elif left_out := [
        left_out_unit.reason for left_out_unit in made.left_out if left_out_unit.gang == key
    ]:
        reason, standing = left_out[0], PlacementState.WAITING
    if standing is PlacementState.NOTHING_WAITS:
        remarks = (find_remark(state, pod) for pod in book.members(key).values())
        reason = next(filter(None, remarks), None)
    diagnoses = _diagnose(state, cycle, waiting)
    return GangExplanation(
        standing=standing,
        quorum=quorum,
        reason=reason,
        offers=_offers(state, diagnoses),
        network=_view(state, cycle, key, waiting, where),
        refused=refused,
        closed=_find_closed(state, cycle, diagnoses, reason),
        not_asked=len(waiting) - sum(len(diagnosis.pods) for diagnosis in diagnoses),
    )


def _is_being_evicted(book: GangCache, key: GangKey) -> bool:
    """Whether nothing of a gang is left but members that are marked for eviction."""
    members = book.members(key).values()
    return not any(pod.is_alive for pod in members) and any(pod.is_being_evicted for pod in members)


def _open_cycle(state: ClusterState) -> Cycle:
    """Open the cycle of a question; it knows all waiting units, which compete for leftovers."""
    state.refresh()
    return state.open_cycle(lambda: find_pending(state))


def try_units(cycle: Cycle, units: Sequence[Unit], scoring: Scoring) -> Plan:
    """Plan units on a cycle, which is as before afterwards."""
    mark = cycle.checkpoint()
    outcome = plan(cycle, units, scoring)
    cycle.rollback(mark)
    return outcome


def _view(
    state: ClusterState,
    cycle: Cycle,
    key: GangKey,
    waiting: tuple[Pod, ...],
    where: ObservedTopology | None,
) -> TopologyExplanation | None:
    spec = state.gangs.spec(key)
    wish = None if spec is None else spec.topology
    tree = None if wish is None else state.topologies.tree(wish.topology)
    if wish is None or tree is None:
        return None
    living = [pod for pod in state.gangs.members(key).values() if pod.is_alive]
    like = waiting[:1] or sorted(living, key=lambda pod: pod.key)[:1]
    shape = cycle.shape_of(like[0]) if like else None
    placed = cycle.session(TopologySession).view.placed_members_of(key)
    members = [sibling.node for sibling in placed]
    unknown = tuple(
        layer_constraint.layer
        for layer_constraint in wish.layers
        if layer_constraint.layer not in tree.layers
    )
    where = where or observe_gang_topology(state.gangs, state.topologies, state.table.row_of, key)
    return TopologyExplanation(
        wish, where, tuple(domain_capacities(cycle, tree, shape, members)), unknown
    )


def first_refused(units: Iterable[Unit], outcome: Plan) -> Unit | None:
    """Return the unit that is refused first."""
    first = outcome.refusals[0].unit if outcome.refusals else None
    return next((unit for unit in units if unit.key == first), None)


def first_refusal(
    state: ClusterState, units: Iterable[Unit], outcome: Plan, reclaim: ReclaimSetting
) -> Reason:
    """Return the first reason with its context, or that all units are placed."""
    unit = first_refused(units, outcome)
    if unit is not None:
        preempting = find_preempting(state, unit.key)
        context = ContextFinder(state, reclaim, tries=1, is_once=True)
        return preempting or context.add(unit, outcome.refusals[0].reason)
    assignments = [
        assignment for placement in outcome.placements for assignment in placement.assignments
    ]
    nodes = {assignment.node for assignment in assignments}
    return Planned(len(assignments), len(nodes), waits=True)


def _diagnose(state: ClusterState, cycle: Cycle, pods: Sequence[Pod]) -> list[NodeDiagnosis]:
    """Ask every node about pods, once for those of one shape, of the most frequent shapes."""
    cycle.expect(pods)
    alike: dict[PodShape, list[Pod]] = {}
    for pod, shape in zip(pods, cycle.shapes_of(pods), strict=True):
        alike.setdefault(shape, []).append(pod)
    list_others = cache(lambda: tuple(state.pods_on_nodes()))
    chosen = nlargest(MOST_SHAPES, alike.items(), key=lambda item: len(item[1]))
    return [
        NodeDiagnosis(cycle, tuple(equal), shape, list_others)
        for shape, equal in sorted(chosen, key=lambda item: item[0].requests)
    ]


def _offers(state: ClusterState, diagnoses: Iterable[NodeDiagnosis]) -> tuple[ShapeOffers, ...]:
    return tuple(
        ShapeOffers(
            len(diagnosis.pods),
            diagnosis.shape.requests,
            tuple(_name_reserved(state, offer) for offer in offers(diagnosis)),
        )
        for diagnosis in diagnoses
    )


def _name_reserved(state: ClusterState, offer: NodeOffer) -> NodeOffer:
    """Say which reservations hold devices that a node lacks."""
    if offer.cause is None or not offer.cause.is_held:
        return offer
    held = describe_reserved(find_holdings(state, offer.node))
    return replace(offer, detail="; ".join(filter(None, (offer.detail, held)))) if held else offer


def _find_closed(
    state: ClusterState, cycle: Cycle, diagnoses: Iterable[NodeDiagnosis], reason: Reason | None
) -> tuple[Closed, ...]:
    """Find nodes that are closed to the first pod of a refusal."""
    first = state.pod_by_key(reason.first) if isinstance(reason, InsufficientNodes) else None
    if first is None:
        return ()
    made = next((diagnosis for diagnosis in diagnoses if first in diagnosis.pods), None)
    return find_closed(made or NodeDiagnosis(cycle, (first,), cycle.shape_of(first)))


class TopologyExplanationDocument(TypedDict):
    """The topology constraint of a gang, and where in the network its members are."""

    topology: str
    wish: list[Encoded[LayerConstraint]]
    unknownLayers: list[str]
    where: Encoded[ObservedTopology] | None
    domains: list[Encoded[DomainCapacity]]


@encode.register
def _(network: TopologyExplanation) -> TopologyExplanationDocument:
    return {
        "topology": network.wish.topology,
        "wish": encode(network.wish.layers),
        "unknownLayers": encode(network.unknown),
        "where": encode(network.where),
        "domains": encode(network.domains),
    }


class LayerGapDocument(TypedDict):
    """A layer, and how many of its domains a better placement may save."""

    layer: str
    domains: int


class ObservedTopologyDocument(TypedDict):
    """The lowest domain that holds all members, and how many domains have one."""

    layer: str
    domain: str
    domainsPerLayer: Mapping[str, int]
    optimal: bool
    gap: LayerGapDocument | None


@encode.register
def _(where: ObservedTopology) -> ObservedTopologyDocument:
    return {
        "layer": where.layer,
        "domain": "/".join(where.domain),
        "domainsPerLayer": dict(where.used),
        "optimal": where.is_optimal,
        "gap": None if where.gap is None else {"layer": where.gap[0], "domains": where.gap[1]},
    }


class DomainCapacityDocument(TypedDict):
    """What is free in a domain; ``offer`` is how many more pods fit."""

    layer: str
    domain: str
    nodes: int
    offer: int
    members: int
    free: Mapping[str, str]
    allocatable: Mapping[str, str]


@encode.register
def _(domain: DomainCapacity) -> DomainCapacityDocument:
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


ShortageDocument = TypedDict(  # noqa: UP013 - documents have "asked", and names in code have not
    "ShortageDocument", {"resource": str, "asked": str, "free": str}
)
"""A resource of which a node has not enough."""


class NodeOfferDocument(TypedDict):
    """How many pods fit on a node, or why none does."""

    node: str | None
    pods: int
    refusal: str | None
    detail: str | None
    short: list[ShortageDocument]


class ShapeOffersDocument(TypedDict):
    """The offers of all nodes for equal pods; ``requests`` are those of one."""

    pods: int
    requests: Mapping[str, str]
    fit: int
    nodes: list[NodeOfferDocument]


@encode.register
def _(offers: ShapeOffers) -> ShapeOffersDocument:
    return {
        "pods": offers.pods,
        "requests": {name: format_amount(name, amount) for name, amount in offers.requests},
        "fit": offers.fit,
        "nodes": _write_offers(offers.nodes),
    }


@encode.register
def _(offer: NodeOffer) -> NodeOfferDocument:
    return _write_offers((offer,))[0]


def _write_offers(offers: Iterable[NodeOffer]) -> list[NodeOfferDocument]:
    """Return offers as JSON has them: there are thousands, and few that differ in amounts."""
    amounts: dict[tuple[tuple[str, int, int], ...], list[ShortageDocument]] = {}
    documents: list[NodeOfferDocument] = []
    for offer in offers:
        short = amounts.get(offer.short)
        if short is None:
            short = amounts[offer.short] = [
                {
                    "resource": resource,
                    "asked": format_amount(resource, requested),
                    "free": format_amount(resource, free),
                }
                for resource, requested, free in offer.short
            ]
        documents.append(
            {
                "node": None if isinstance(offer.node, HiddenName) else offer.node,
                "pods": offer.pods,
                "refusal": offer.cause,
                "detail": offer.detail or None,
                "short": short,
            }
        )
    return documents
