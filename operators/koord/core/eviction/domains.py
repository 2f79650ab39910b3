"""The domains of the network in which room may be made for a unit that has to share one."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.engine.arrays import Mask
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Unit
from koord.core.model.topology_constraint import GatherStrategy
from koord.core.topology.tree import OUTSIDE, Path, TopologyTree


@dataclass(frozen=True, slots=True)
class Region:
    """Rows where room is made for the whole unit; None: anywhere. ``path`` names the domain."""

    rows: Mask | None = None
    path: Path = ()


ANYWHERE: Final = Region()


def find_regions(state: ClusterState, unit: Unit) -> list[Region]:
    """Return the domains of the lowest layer that all members must share, by path."""
    constraints = {demand.constraint for demand in unit.demands}
    if len(constraints) != 1 or any(demand.sub_groups is not None for demand in unit.demands):
        return [ANYWHERE]
    (constraint,) = constraints
    if constraint is None:
        return [ANYWHERE]
    tree = state.topologies.tree(constraint.topology)
    names = constraint.layers_with(GatherStrategy.MUST)
    if tree is None or not names or not names.issubset(tree.layers):
        return [ANYWHERE]
    layer = max(tree.layers.index(name) for name in names)
    if layer == tree.depth or not layer:
        return [ANYWHERE]
    regions = _split(tree, layer, len(state.table.nodes))
    placed = _rows_of_members(state, unit)
    if placed:
        regions = [
            region for region in regions if region.rows is not None and region.rows[placed].all()
        ]
    return sorted(regions, key=lambda region: region.path) or [ANYWHERE]


def _split(tree: TopologyTree, layer: int, count: int) -> list[Region]:
    domains = np.full(count, OUTSIDE)
    domains[tree.rows] = tree.domains_of(layer)
    return [
        Region(domains == domain, tree.path_of(layer, domain))
        for domain in np.unique(domains[tree.rows]).tolist()
    ]


def _rows_of_members(state: ClusterState, unit: Unit) -> list[int]:
    """Return the rows of members on nodes, with which the others must share a domain."""
    gangs = {gang for demand in unit.demands for gang in demand.placed_with}
    nodes = {
        pod.planned_node
        for gang in gangs
        for pod in state.gangs.members(gang).values()
        if pod.is_alive and not pod.is_plannable
    }
    return sorted(state.table.row_of[node] for node in nodes if node in state.table.row_of)
