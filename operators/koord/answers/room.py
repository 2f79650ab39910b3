"""Where there is room for so many pods of so many GPUs, as the planner sees it; nothing is placed.

The shape is planned as a unit that nobody waits with, on the cluster as it is now. How many fit and
what one more node would change are counted with the same filters as for pods that wait.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final, TypedDict

from koord.answers.encoding import Encoded, encode
from koord.answers.explain import try_units
from koord.answers.pending import find_pending
from koord.core.autoscaler.nodes import could_hold
from koord.core.defrag.shapes import GpuShape, make_shape_unit
from koord.core.engine.cycle import Cycle
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Demand, Unit
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, class_of
from koord.core.plugins.node_diagnosis import NodeDiagnosis, NodeOffer, offers, rank_offer
from koord.core.topology.strategy.observation import DomainCapacity, domain_capacities

MOST_DOMAINS: Final = 20
MOST_NEAREST: Final = 5
WHOLE_CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class RoomQuestion:
    """The shape in question, and whose pods they would be: both may be empty."""

    shape: GpuShape
    namespace: str = ""
    quota: str = ""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """How many pods a node would get."""

    node: str
    pods: int


@dataclass(frozen=True, slots=True)
class LayerGang:
    """The most pods of the shape that fit into one domain of a layer."""

    layer: str
    pods: int


@dataclass(frozen=True, slots=True)
class DomainRoom:
    """A domain of the network into which all pods fit, and for how many more it has room."""

    topology: str
    layer: str
    domain: str
    spare: int


@dataclass(frozen=True, slots=True)
class NodesToAdd:
    """So many more empty nodes like that one would be enough."""

    like: str
    count: int


@dataclass(frozen=True, slots=True)
class ShapeRoom:
    """The room for a shape.

    ``fit`` is how many such pods fit now, counted per node; ``in_quota`` how many of those that are
    asked for the quota lets start, None if none is asked about. ``place`` is what the planner would
    choose; empty if not all fit, and then ``reason`` says why, and ``nearest`` which nodes take no
    pod and lack least.
    """

    shape: str
    fit: int
    in_quota: int | None
    place: tuple[NodeShare, ...]
    reason: Reason | None
    largest_gang: tuple[LayerGang, ...]
    domains: tuple[DomainRoom, ...]
    after_nodes: tuple[NodesToAdd, ...]
    nearest: tuple[NodeOffer, ...] = ()


def find_room(state: ClusterState, question: RoomQuestion) -> ShapeRoom:
    """Return the room for a shape."""
    state.refresh()
    unit = _make_unit(state, question)
    cycle = _open_cycle(state, unit)
    outcome = try_units(cycle, (unit,), Scoring())
    nodes = Counter(
        assignment.node for placement in outcome.placements for assignment in placement.assignments
    )
    first = unit.pods[0]
    diagnosis = NodeDiagnosis(cycle, (first,), cycle.shape_of(first))
    node_offers = offers(diagnosis)
    fit = sum(offer.pods for offer in node_offers)
    domains = tuple(_find_domains(state, cycle, diagnosis))
    return ShapeRoom(
        shape=str(question.shape),
        fit=fit,
        in_quota=_count_in_quota(state, unit) if question.quota else None,
        place=tuple(NodeShare(node, pods) for node, pods in sorted(nodes.items())),
        reason=outcome.refusals[0].reason if outcome.refusals else None,
        largest_gang=_find_largest(fit, domains),
        domains=_choose(domains, question.shape.pods),
        after_nodes=tuple(_find_nodes_to_add(state, question.shape, unit, node_offers, fit)),
        nearest=() if nodes else _find_nearest(node_offers),
    )


def _find_nearest(node_offers: list[NodeOffer]) -> tuple[NodeOffer, ...]:
    """Return the nodes that come closest to taking a pod; details may name pods of others."""
    full = (offer for offer in node_offers if not offer.pods)
    return tuple(replace(offer, detail="") for offer in nsmallest(MOST_NEAREST, full, rank_offer))


def _make_unit(state: ClusterState, question: RoomQuestion) -> Unit:
    unit = make_shape_unit(state, question.shape)
    pods = tuple(
        replace(pod, namespace=question.namespace, quota=question.quota) for pod in unit.pods
    )
    return Unit(unit.key, (Demand(unit.key, pods, len(pods)),), unit.key)


def _open_cycle(state: ClusterState, unit: Unit) -> Cycle:
    """Open a cycle in which the unit waits, too: shares follow what is asked for."""
    return state.open_cycle(lambda: [*find_pending(state), unit])


def _count_in_quota(state: ClusterState, unit: Unit) -> int:
    """Return the most of the pods that start together, by halving."""
    low, high = 0, len(unit.pods)
    while low < high:
        middle = (low + high + 1) // 2
        part = Unit(unit.key, (Demand(unit.key, unit.pods[:middle], middle),), unit.key)
        if try_units(_open_cycle(state, part), (part,), Scoring()).refusals:
            high = middle - 1
        else:
            low = middle
    return low


def _find_domains(
    state: ClusterState, cycle: Cycle, diagnosis: NodeDiagnosis
) -> Iterator[tuple[str, DomainCapacity]]:
    for topology in state.topologies:
        tree = state.topologies.tree(topology)
        if tree is not None:
            for domain in domain_capacities(cycle, tree, diagnosis.shape):
                yield topology, domain


def _find_largest(
    fit: int, domains: tuple[tuple[str, DomainCapacity], ...]
) -> tuple[LayerGang, ...]:
    largest = {WHOLE_CLUSTER: fit}
    for _, domain in domains:
        if domain.path:
            largest[domain.layer] = max(largest.get(domain.layer, 0), domain.offer)
    return tuple(LayerGang(layer, pods) for layer, pods in largest.items())


def _choose(domains: tuple[tuple[str, DomainCapacity], ...], pods: int) -> tuple[DomainRoom, ...]:
    """Return the domains that take all pods: the narrowest first, then the fullest."""
    fitting = sorted(
        (-len(domain.path), domain.offer - pods, topology, domain.path, domain.layer)
        for topology, domain in domains
        if domain.path and domain.offer >= pods
    )
    return tuple(
        DomainRoom(topology, layer, "/".join(path), spare)
        for _, spare, topology, path, layer in fitting[:MOST_DOMAINS]
    )


def _find_nodes_to_add(
    state: ClusterState, shape: GpuShape, unit: Unit, node_offers: list[NodeOffer], fit: int
) -> Iterator[NodesToAdd]:
    """Yield for each kind of node how many more of them would be enough, the fewest first."""
    lacking = shape.pods - fit
    pod_shape = unit.pods[0].shape
    kinds: dict[int, str] = {}
    for offer in node_offers:
        node = state.table.node_at(state.table.row_of[offer.node])
        if could_hold(node, pod_shape):
            requests = (request for request in pod_shape.requests if request[1])
            pods = min(node.allocatable.get(name, 0) // amount for name, amount in requests)
            kinds.setdefault(pods, offer.node)
    if lacking > 0:
        for pods, like in sorted(kinds.items(), reverse=True):
            yield NodesToAdd(like, -(-lacking // pods))


RoomRefusalDocument = TypedDict(
    "RoomRefusalDocument", {"code": str, "class": ReasonClass | None, "message": str}
)


class ShapeRoomDocument(TypedDict):
    """The room for a shape, and why there is not enough."""

    shape: str
    fits: bool
    fit: int
    inQuota: int | None
    place: list[Encoded[NodeShare]]
    reason: RoomRefusalDocument | None
    largestGang: list[Encoded[LayerGang]]
    domains: list[Encoded[DomainRoom]]
    afterNodes: list[Encoded[NodesToAdd]]
    nearest: list[Encoded[NodeOffer]]


@encode.register
def _(room: ShapeRoom) -> ShapeRoomDocument:
    reason = room.reason
    return {
        "shape": room.shape,
        "fits": bool(room.place),
        "fit": room.fit,
        "inQuota": room.in_quota,
        "place": encode(room.place),
        "reason": None
        if reason is None
        else {"code": reason.code, "class": class_of(reason.code), "message": reason.text()},
        "largestGang": encode(room.largest_gang),
        "domains": encode(room.domains),
        "afterNodes": encode(room.after_nodes),
        "nearest": encode(room.nearest),
    }
