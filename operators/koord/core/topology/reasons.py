"""Why a gang does not fit into a network topology."""

from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, WakesOn
from koord.core.model.text import cut
from koord.core.model.topology_constraint import ROOT_LAYER


@dataclass(frozen=True, slots=True)
class DomainOffer:
    """How many members of a gang a domain of the network takes; the root has an empty path."""

    path: tuple[str, ...]
    offer: int


_NO_CANDIDATE: Final = "no candidate topology nodes can accommodate job, desiredOfferSlot:"
"""How Koordinator refuses; offers and what fits follow."""


@dataclass(frozen=True, slots=True)
class _NoCandidate(Reason):
    """No domain of the layer that a gang must share, or of the whole topology, takes all of it.

    ``want`` members must be placed together. ``offers`` are the largest ones of the ``domains``
    that the ``layer`` has. ``shortage`` says what the nodes lack for one more member beyond what
    they could take. ``multiples`` are those asked for, by layer. ``untried`` counts domains that
    might hold the sub-groups of the gang and were not tried: there were too many.
    """

    rests_on: ClassVar = frozenset({"nodes"})
    wakes_on: ClassVar = WakesOn.RELABELLED_NODES
    quotes: ClassVar = (
        "{no_candidate} {want}, {_topology_nodes}, {_fit}"
        "{multiples:?; podCountMultiple constraints: {multiples:list {0}={1}}}"
    )
    no_candidate: ClassVar = _NO_CANDIDATE
    most_room: ClassVar = (
        "{offers:| Most room: {_offers:list}.}"
        "{untried:? Domains not tried for its sub-groups: {untried}.}"
    )
    topology: str
    layer: str
    want: int
    offers: tuple[DomainOffer, ...]
    domains: int
    shortage: InsufficientNodes
    multiples: tuple[tuple[str, int], ...] = ()
    untried: int = 0

    @property
    def _offers(self) -> list[str]:
        """``block-1: 3``, with the whole path where names repeat."""
        names = [offer.path[-1] if offer.path else "" for offer in self.offers]
        return [
            f"{cut(name if names.count(name) == 1 else '/'.join(offer.path))}: {offer.offer}"
            for name, offer in zip(names, self.offers, strict=True)
        ]

    @property
    def _topology_nodes(self) -> str:
        return ";".join(
            sorted(f"topology topologyNode {self.layer}/{offer}" for offer in self._offers)
        )

    @property
    def _fit(self) -> str:
        nodes = self.shortage.nodes
        nowhere = f"0/{nodes} nodes are available: {nodes} not in the topology."
        return self.shortage.fit_error() if self.offers else nowhere


@dataclass(frozen=True, slots=True)
class NoDomainFits(_NoCandidate):
    """No domain of the layer that a gang must share, or of the whole topology, takes all of it."""

    code: ClassVar = "NoDomainFits"
    reason_class: ClassVar = ReasonClass.ROOM
    is_capacity: ClassVar = True
    is_unschedulable: ClassVar = True
    meaning: ClassVar = (
        "[network topology](topology.md): no domain of the layer that the gang must share takes "
        "all of it; the message has the largest offers and what the nodes lack"
    )
    way_out: ClassVar = "wait, ask for a higher layer or for less"
    says: ClassVar = (
        "{domains:?At most {_most} of {want:# member} fit in "
        "{_is_whole:?the topology|one domain of {layer}}"
        "{_others:? ({_others} more domains, none larger)}"
        "{shortage.amount:?; the next one, {shortage.first}, requests {shortage.amount}}"
        '|No node is in the topology "{topology}"; check the node labels}.{most_room:part}'
    )
    advises: ClassVar = (
        (
            "{_best:?Free room for {_lacking:# more member} in {layer} {_path}, the domain with "
            "the most room|Request less, or {ask} add nodes that have the labels of the topology}."
        ),
        "{_best:?Or use a layer above {layer}, or PreferGather instead of MustGather.}",
    )

    @property
    def culprit(self) -> str:
        return self.shortage.first

    @property
    def _is_whole(self) -> bool:
        return self.layer == ROOT_LAYER

    @property
    def _others(self) -> int:
        return max(0, self.domains - len(self.offers))

    @property
    def _best(self) -> DomainOffer | None:
        """The domain of the layer with the most room."""
        offers = () if self._is_whole else self.offers
        return max(offers, key=lambda domain_offer: domain_offer.offer, default=None)

    @property
    def _most(self) -> int:
        return max((offer.offer for offer in self.offers), default=0)

    @property
    def _lacking(self) -> int:
        return self.want - self._most

    @property
    def _path(self) -> str:
        return "" if self._best is None else "/".join(self._best.path)


@dataclass(frozen=True, slots=True)
class MultipleNotMet(_NoCandidate):
    """The gang would fit if the members in each domain did not have to be a whole multiple."""

    code: ClassVar = "MultipleNotMet"
    reason_class: ClassVar = ReasonClass.ROOM
    way_out: ClassVar = "change `podCountMultiple` or the number of members"
    says: ClassVar = (
        "{want:# member} would fit if the number of members in each domain did not have to be a "
        "multiple ({multiples:list {0}={1}}).{most_room:part}"
    )
    advises: ClassVar = (
        "Change the number of members, or podCountMultiple ({multiples:list {0}={1}}).",
    )


@dataclass(frozen=True, slots=True)
class MembersApart(Reason):
    """Placed members do not share a domain of the layer that they must share."""

    code: ClassVar = "MembersApart"
    reason_class: ClassVar = ReasonClass.ROOM
    rests_on: ClassVar = frozenset({"nodes"})
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    way_out: ClassVar = "correct the node labels, or restart the gang"
    says: ClassVar = (
        "members run on {nodes:list}, which share no domain of {layer} in topology {topology}, but "
        "the gang must be in one; correct the node labels, or restart the whole gang"
    )
    advises: ClassVar = (
        ("{ask:capital} correct the labels of {nodes:names}, so that they share one {layer}."),
        "Or delete all members: the gang then restarts in one domain.",
    )
    topology: str
    layer: str
    nodes: tuple[str, ...]
    """Nodes of members, one per domain."""


@dataclass(frozen=True, slots=True)
class MissingTopology(Reason):
    """The ClusterNetworkTopology does not exist, or never had valid layers."""

    code: ClassVar = "MissingTopology"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    rests_on: ClassVar = frozenset({"clusternetworktopologies"})
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    way_out: ClassVar = "create or correct it"
    says: ClassVar = (
        "no cluster network topology: ClusterNetworkTopology {topology} {exists:?has no valid "
        "layers; see its conditions|does not exist; create it, or remove the annotation}"
    )
    advises: ClassVar = (
        (
            "{exists:?Correct the layers of|Create} ClusterNetworkTopology {topology}; koord "
            "topology lists what exists."
        ),
    )
    topology: str
    exists: bool


@dataclass(frozen=True, slots=True)
class UnknownLayer(Reason):
    """The gang names a layer that the topology does not have.

    It must share such ``layers``; ``existing`` are those that there are. ``shortage`` says what the
    nodes lack for all members, None where that was not looked at.
    """

    code: ClassVar = "UnknownLayer"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    way_out: ClassVar = "correct the name (names are case-sensitive)"
    says: ClassVar = (
        'ClusterNetworkTopology {topology} has no layer {layers:list "{}"}; its layers are '
        "{existing:list}: correct the annotation (names are case-sensitive)"
    )
    quotes: ClassVar = "{shortage:?{no_candidate} {shortage.want}, , {shortage.fit_error()}}"
    no_candidate: ClassVar = _NO_CANDIDATE
    advises: ClassVar = ("Use one of {existing:names} instead of {layers:names}.",)
    topology: str
    layers: tuple[str, ...]
    existing: tuple[str, ...]
    shortage: InsufficientNodes | None = None
