"""The domains of a network topology, and what is free in each: for people. Decides nothing."""

from dataclasses import dataclass

from koord.core.engine.state import ClusterState
from koord.core.topology.status import observe_topology
from koord.core.topology.strategy.observation import DomainCapacity, domain_capacities
from koord.core.topology.tree import TopologyTree


@dataclass(frozen=True, slots=True)
class NodeLeftOut:
    """A node outside of the tree, for it has no label of a layer."""

    node: str
    missing_layer: str


@dataclass(frozen=True, slots=True)
class TopologyCapacity:
    """A topology as its nodes are now."""

    topology: str
    readiness: str
    layers: tuple[str, ...]
    nodes: int
    domains: tuple[DomainCapacity, ...]
    left_out: tuple[NodeLeftOut, ...]


def view_topology(state: ClusterState, name: str, tree: TopologyTree) -> TopologyCapacity:
    status = observe_topology(state.topologies, name)
    return TopologyCapacity(
        name,
        status.readiness,
        tuple(status.layers),
        status.nodes,
        tuple(domain_capacities(state.open_cycle(), tree)),
        tuple(NodeLeftOut(node, layer) for node, layer in sorted(tree.left_out.items())),
    )
