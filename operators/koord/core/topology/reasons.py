"""Why a gang does not fit into a network topology."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.reasons import ASK, Reason, WakesOn
from koord.core.model.text import cut, listed, named, plural
from koord.core.model.topology_constraint import ROOT_LAYER


@dataclass(frozen=True, slots=True)
class DomainOffer:
    """How many members of a gang a domain of the network takes; the root has an empty path."""

    path: tuple[str, ...]
    offer: int


def _write_no_candidate(want: int, offers: str, fit: str) -> str:
    """Write the refusal as Koordinator does; it names no offers if there is no such domain."""
    no_candidate = "no candidate topology nodes can accommodate job"
    return f"{no_candidate}, desiredOfferSlot: {want}, {offers}, {fit}"


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
    topology: str
    layer: str
    want: int
    offers: tuple[DomainOffer, ...]
    domains: int
    shortage: InsufficientNodes
    multiples: tuple[tuple[str, int], ...] = ()
    untried: int = 0

    def _text(self) -> str:
        text = self._way_out()
        if len(self.offers) > 1:
            text = f"{text} Most room: {listed(self._write_offers())}."
        if not self.untried:
            return text
        return f"{text} Domains not tried for its sub-groups: {self.untried}."

    @abstractmethod
    def _way_out(self) -> str: ...

    def _write_offers(self) -> Iterator[str]:
        """Write ``block-1: 3``, with the whole path where names repeat."""
        names = [offer.path[-1] if offer.path else "" for offer in self.offers]
        for name, offer in zip(names, self.offers, strict=True):
            domain = name if names.count(name) == 1 else "/".join(offer.path)
            yield f"{cut(domain)}: {offer.offer}"

    def upstream(self) -> str:
        texts = sorted(
            f"topology topologyNode {self.layer}/{write_offer}"
            for write_offer in self._write_offers()
        )
        nodes = self.shortage.nodes
        fit = f"0/{nodes} nodes are available: {nodes} not in the topology."
        fit = self.shortage.fit_error() if texts else fit
        text = _write_no_candidate(self.want, ";".join(texts), fit)
        if not self.multiples:
            return text
        multiples = listed(f"{layer}={multiple}" for layer, multiple in self.multiples)
        return f"{text}; podCountMultiple constraints: {multiples}"


@dataclass(frozen=True, slots=True)
class NoDomainFits(_NoCandidate):
    """No domain of the layer that a gang must share, or of the whole topology, takes all of it."""

    code: ClassVar = "NoDomainFits"
    is_capacity: ClassVar = True
    is_unschedulable: ClassVar = True

    @property
    def culprit(self) -> str:
        return self.shortage.first

    def _way_out(self) -> str:
        if not self.domains:
            return f'No node is in the topology "{self.topology}"; check the node labels.'
        best = max((offer.offer for offer in self.offers), default=0)
        where = "the topology" if self.layer == ROOT_LAYER else f"one domain of {self.layer}"
        more = self.domains - len(self.offers)
        hidden = f" ({more} more domains, none larger)" if more > 0 else ""
        text = f"At most {best} of {plural(self.want, 'member')} fit in {where}{hidden}"
        if self.shortage.amount:
            text += f"; the next one, {self.shortage.first}, requests {self.shortage.amount}"
        return f"{text}."

    def _advice(self) -> Iterable[str]:
        best = max(self.offers, key=lambda domain_offer: domain_offer.offer, default=None)
        if best is None or self.layer == ROOT_LAYER:
            yield f"Request less, or {ASK} add nodes that have the labels of the topology."
            return
        missing = plural(self.want - best.offer, "more member")
        where = f"{self.layer} {'/'.join(best.path)}"
        yield f"Free room for {missing} in {where}, the domain with the most room."
        yield f"Or use a layer above {self.layer}, or PreferGather instead of MustGather."


@dataclass(frozen=True, slots=True)
class MultipleNotMet(_NoCandidate):
    """The gang would fit if the members per domain did not have to be whole multiples."""

    code: ClassVar = "MultipleNotMet"

    def _way_out(self) -> str:
        return (
            f"{plural(self.want, 'member')} would fit if the number of members in each domain "
            f"did not have to be a multiple ({self._multiples()})."
        )

    def _advice(self) -> Iterable[str]:
        yield f"Change the number of members, or podCountMultiple ({self._multiples()})."

    def _multiples(self) -> str:
        return listed(f"{layer}={multiple}" for layer, multiple in self.multiples)


@dataclass(frozen=True, slots=True)
class MembersApart(Reason):
    """Placed members do not share a domain of the layer that they must share."""

    code: ClassVar = "MembersApart"
    rests_on: ClassVar = frozenset({"nodes"})
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    topology: str
    layer: str
    nodes: tuple[str, ...]
    """Nodes of members, one per domain."""

    def _text(self) -> str:
        return (
            f"members run on {listed(self.nodes)}, which share no domain of {self.layer} in "
            f"topology {self.topology}, but the gang must be in one; correct the node labels, or "
            "restart the whole gang"
        )

    def _advice(self) -> Iterable[str]:
        yield (
            f"{ASK.capitalize()} correct the labels of {named(self.nodes)}, so that they share "
            f"one {self.layer}."
        )
        yield "Or delete all members: the gang then restarts in one domain."


@dataclass(frozen=True, slots=True)
class MissingTopology(Reason):
    """A gang names a network topology that does not exist, or was never valid."""

    code: ClassVar = "MissingTopology"
    rests_on: ClassVar = frozenset({"clusternetworktopologies"})
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    topology: str
    exists: bool

    def _text(self) -> str:
        if self.exists:
            what = "has no valid layers; see its conditions"
        else:
            what = "does not exist; create it, or remove the annotation"
        return f"no cluster network topology: ClusterNetworkTopology {self.topology} {what}"

    def _advice(self) -> Iterable[str]:
        verb = "Correct the layers of" if self.exists else "Create"
        yield f"{verb} ClusterNetworkTopology {self.topology}; koord topology lists what exists."


@dataclass(frozen=True, slots=True)
class UnknownLayer(Reason):
    """A gang must share layers that the topology does not have; ``existing`` are those it has.

    ``shortage`` says what the nodes lack for all members, None where that was not looked at.
    """

    code: ClassVar = "UnknownLayer"
    wakes_on: ClassVar = WakesOn.ANY_CHANGE
    topology: str
    layers: tuple[str, ...]
    existing: tuple[str, ...]
    shortage: InsufficientNodes | None = None

    def _text(self) -> str:
        names = listed(f'"{layer}"' for layer in self.layers)
        return (
            f"ClusterNetworkTopology {self.topology} has no layer {names}; its layers are "
            f"{listed(self.existing)}: correct the annotation (names are case-sensitive)"
        )

    def upstream(self) -> str:
        if self.shortage is None:
            return ""
        return _write_no_candidate(self.shortage.want, "", self.shortage.fit_error())

    def _advice(self) -> Iterable[str]:
        yield f"Use one of {named(self.existing)} instead of {named(self.layers)}."
