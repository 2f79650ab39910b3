"""The status of a topology, computed from its layers and nodes. Needs no clock."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from koord.core.model.text import MAX_TEXT, cut, listed, plural
from koord.core.topology.cache import TopologyCache
from koord.core.topology.layers import InvalidLayers, Layer
from koord.core.topology.tree import TopologyDomain, TopologyTree, describe_domains

MAX_DOMAINS: Final = 2000
"""Domains that a status lists: the API server limits the size of an object."""
MAX_LEFT_OUT: Final = 20
MAX_DUPLICATES: Final = 5


class Readiness(StrEnum):
    """Whether there is a tree to place gangs by."""

    BUILT = "Built"
    INVALID_LAYERS = "InvalidLayers"
    NO_NODES = "NoNodes"


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """The status of one topology.

    ``problem`` is set if the layers as written are invalid; ``has_tree`` is whether the last valid
    ones are used then. ``twins`` are (layer, name) of domains with several parents.
    """

    readiness: Readiness
    problem: InvalidLayers | None
    has_tree: bool
    layers: tuple[str, ...]
    nodes: int
    domains: tuple[TopologyDomain, ...]
    hidden_domains: int
    left_out: tuple[tuple[str, str], ...]
    left_out_count: int
    twins: tuple[tuple[str, str], ...]
    valid: tuple[Layer, ...]
    """The layers in use, to be kept in the status."""

    def describe(self) -> str:
        """Return whether there is a tree, its size, and its irregularities."""
        parts = []
        if self.problem is not None:
            kept = "the last valid layers stay active" if self.has_tree else "there is no tree"
            parts.append(f"{self.problem.describe()}; {kept}")
        if self.has_tree:
            parts.append(
                f"{plural(self.nodes, 'node')} in {plural(len(self.layers), 'layer')}: "
                f"{listed(self.layers)}"
            )
        if self.left_out_count:
            named = listed(f"{name} ({layer})" for name, layer in self.left_out)
            nodes = plural(self.left_out_count, "node")
            parts.append(f"{nodes} without a label for a layer are left out: {named}")
        if self.twins:
            named = listed(f"{layer} {name}" for layer, name in self.twins)
            parts.append(f"different domains with the same name under different parents: {named}")
        if self.hidden_domains:
            parts.append(f"{plural(self.hidden_domains, 'more domain')} not listed")
        return cut("; ".join(parts), MAX_TEXT)


def observe_topology(topologies: TopologyCache, name: str) -> TopologyStatus:
    problem, tree = topologies.problem(name), topologies.tree(name)
    if tree is None:
        return TopologyStatus(Readiness.INVALID_LAYERS, problem, False, (), 0, (), 0, (), 0, (), ())
    readiness = Readiness.BUILT if len(tree) else Readiness.NO_NODES
    domains = tuple(islice(describe_domains(tree), MAX_DOMAINS))
    return TopologyStatus(
        readiness=Readiness.INVALID_LAYERS if problem is not None else readiness,
        problem=problem,
        has_tree=True,
        layers=tree.layers[1:],
        nodes=len(tree),
        domains=domains,
        hidden_domains=max(_count_domains(tree) - len(domains), 0),
        left_out=tuple(sorted(tree.left_out.items())[:MAX_LEFT_OUT]),
        left_out_count=len(tree.left_out),
        twins=_find_twins(domains),
        valid=tree.chain,
    )


def _count_domains(tree: TopologyTree) -> int:
    sizes = (tree.size(layer) for layer in range(1, tree.depth))
    layers = enumerate(sizes, start=1)
    return 1 + sum(bool(tree.nodes_in(at, domain)) for at, size in layers for domain in range(size))


def _find_twins(domains: tuple[TopologyDomain, ...]) -> tuple[tuple[str, str], ...]:
    counts = Counter((domain.layer, domain.name) for domain in domains)
    twins = sorted(domain for domain, count in counts.items() if count > 1)
    return tuple(twins[:MAX_DUPLICATES])
