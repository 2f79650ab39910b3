"""What nodes offer to batch and mid pods, term by term: for people. Decides nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koord.core.colocation.decide import OfferedByNode, OfferState, decide_offer, published_on
from koord.core.colocation.formula import compute_batch
from koord.core.colocation.measured import RESOURCES, add_up_pods
from koord.core.colocation.node_facts import facts_of
from koord.core.colocation.terms import AmountTermKind, Breakdown
from koord.core.colocation.zones import split_by_zone
from koord.core.engine.state import ClusterState
from koord.core.numa.model import find_own
from koord.core.numa.plugin import Numa

_TEXTS: Final[Mapping[AmountTermKind, str]] = {
    AmountTermKind.CAPACITY: "capacity of the node",
    AmountTermKind.MARGIN: "margin that is kept free",
    AmountTermKind.SYSTEM: "used beside pods",
    AmountTermKind.HOST_APPLICATIONS: "used by host applications of higher class",
    AmountTermKind.RESERVED: "reserved for the system",
    AmountTermKind.USED: "used by pods of higher class",
    AmountTermKind.EXCLUSIVE: "CPUs that pods have for themselves",
    AmountTermKind.UNMEASURED: "requests of pods that no report shows yet",
    AmountTermKind.DANGLING: "used by pods that have just gone",
    AmountTermKind.REQUESTED: "requests of pods of higher class",
    AmountTermKind.PEAK: "use or request of pods of higher class, whichever is more",
    AmountTermKind.RECLAIMABLE: "what pods of class prod will not need",
    AmountTermKind.IN_USE: "of which this is in use now",
    AmountTermKind.UNALLOCATED: "part of what pods of class prod do not request",
    AmountTermKind.STATIC_PART: "fixed part of the node",
    AmountTermKind.PRESSURE: "what would bring the node to where pods are evicted",
    AmountTermKind.FLOOR: "nothing is offered below zero",
    AmountTermKind.LIMIT: "what exceeds the limit of the strategy",
    AmountTermKind.NORMALIZATION: "what faster CPUs are worth more",
    AmountTermKind.THIRD_PARTY: "used by others, such as YARN",
    AmountTermKind.HELD_BACK: "published step by step",
}
_PROMISED: Final = "what is promised beyond the capacity"


@dataclass(frozen=True, slots=True)
class OfferedTerm:
    """A term of an amount, and what it is."""

    kind: str
    amount: int
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedResource:
    """What a node offers of one resource by its formula, and what is published now.

    Amounts are milli-CPU and bytes; ``published`` None: the node does not have the resource.
    """

    resource: str
    amount: int
    published: int | None
    terms: tuple[OfferedTerm, ...]


@dataclass(frozen=True, slots=True)
class ExplainedZone:
    """What one NUMA node of a node leaves to batch pods. It is not published."""

    number: int
    resources: tuple[ExplainedResource, ...]


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """What a node offers, and who decides that.

    ``sources`` are those that have a say in the settings, the last word first; ``ignored`` select
    the node, too, and do not count. ``problems`` are annotations and labels that cannot be read.
    ``zones`` are its NUMA nodes, where it has several.
    """

    node: str
    state: str
    sources: tuple[str, ...]
    ignored: tuple[str, ...]
    problems: tuple[str, ...]
    reason: str
    resources: tuple[ExplainedResource, ...]
    zones: tuple[ExplainedZone, ...] = ()

    @property
    def is_meant(self) -> bool:
        """Whether anybody wants the node to offer something."""
        return self.state != OfferState.OFF


def explain_node(state: ClusterState, name: str, now: float) -> ExplainedNode | None:
    """Return what a node offers at a time of the epoch; None for an unknown node."""
    offer = decide_offer(state, name, now)
    if offer is None:
        return None
    node = state.table.node_at(state.table.row_of[name])
    resolved = offer.resolved
    return ExplainedNode(
        name,
        str(offer.state),
        resolved.sources,
        resolved.overridden,
        facts_of(node).problems,
        _tell(offer),
        tuple(_explain(offer.breakdowns, published_on(node))),
        tuple(_explain_zones(state, offer)),
    )


def explain_nodes(state: ClusterState, now: float) -> tuple[ExplainedNode, ...]:
    """Return what every node offers, by name."""
    explained = (explain_node(state, name, now) for name in sorted(state.table.row_of))
    return tuple(node for node in explained if node is not None)


def _tell(offer: OfferedByNode) -> str:
    match offer.state:
        case OfferState.OFF:
            return "nothing is offered: no valid settings with enable: true select the node"
        case OfferState.UNKNOWN:
            return "the settings are invalid, and were never valid: the node stays as it is"
        case OfferState.DEGRADED if offer.degradation is not None:
            return offer.degradation.describe("Batch")
        case _:
            return ""


def _explain_zones(state: ClusterState, offer: OfferedByNode) -> Iterator[ExplainedZone]:
    report = state.plugin(Numa).reports.get(offer.node)
    if offer.state is not OfferState.PUBLISHED or offer.seen is None or report is None:
        return
    zones = {number: dict(amounts) for number, amounts in report.zones}
    if len(zones) < 2:
        return
    zones_of = {
        pod.key: [share.number for share in own.shares]
        for pod in state.pods_on(offer.node)
        if (own := find_own(pod.allocations)) is not None
    }
    strategy, compat = offer.resolved.strategy, state.gangs.compat
    for number, part in split_by_zone(offer.seen, zones, zones_of).items():
        pods = add_up_pods(part)
        computed = (
            compute_batch(name, part, pods[name], strategy, compat=compat) for name in RESOURCES
        )
        yield ExplainedZone(number, tuple(_explain(computed, {})))


def _explain(
    breakdowns: Iterable[Breakdown], published: Mapping[str, int | None]
) -> Iterator[ExplainedResource]:
    for each in breakdowns:
        terms = tuple(
            OfferedTerm(str(term.kind), term.amount, _text_of(term.kind, term.amount))
            for term in each.terms
        )
        yield ExplainedResource(each.resource, each.value, published.get(each.resource), terms)


def _text_of(kind: AmountTermKind, amount: int) -> str:
    return _PROMISED if kind is AmountTermKind.MARGIN and amount > 0 else _TEXTS[kind]
