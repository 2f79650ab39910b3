"""Where gangs are in the network, where their replacements may go, and what is free in each domain.

Read from nodes, members and used amounts, for statuses, held capacity and people; nothing is placed
here. Whether a better placement existed is known to the planner only, which records it on members.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.state_view import GangView
from koord.core.model.gangs import ROOT, GangKey, SubGroupTree
from koord.core.model.plan import ObservedTopology
from koord.core.model.pods import PodShape
from koord.core.model.topology_constraint import GatherStrategy, PlacedMember
from koord.core.topology.cache import TopologyCache
from koord.core.topology.capacity import sum_up
from koord.core.topology.solve import count_used
from koord.core.topology.strategy.topology_view import TopologyView
from koord.core.topology.tree import TopologyTree, describe_domains


def observe_gang_topology(
    gangs: GangView, topologies: TopologyCache, row_of: Mapping[str, int], gang: GangKey
) -> ObservedTopology | None:
    """Return where the members of a gang are, with those of gangs that are placed with it.

    None without a constraint, or if none of them is in the tree.
    """
    spec = gangs.spec(gang)
    constraint = None if spec is None else spec.topology
    tree = None if constraint is None else topologies.tree(constraint.topology)
    if constraint is None or tree is None:
        return None
    members = [
        pod
        for name in gangs.group(gang).gangs
        if (other := gangs.spec(name)) is not None and other.topology == constraint
        for pod in gangs.members(name).values()
        if pod.is_alive and pod.planned_node
    ]
    possible_rows = {row_of.get(pod.planned_node) for pod in members}
    rows = sorted(row for row in possible_rows if row is not None and row in tree)
    if not rows:
        return None
    gaps = {pod.recorded.gap for pod in members if pod.recorded is not None} - {""}
    return describe_rows(tree, constraint.topology, rows, _parse_gap(max(gaps, default="")))


def describe_rows(
    tree: TopologyTree, topology: str, rows: list[int], gap: tuple[str, int] | None
) -> ObservedTopology:
    """Return where nodes, given by ascending rows of the tree, are."""
    used = count_used(tree, tree.positions_of(rows))
    layer = max(at for at, count in enumerate(used) if count == 1)
    pairs = zip(tree.layers[1:], used[1:], strict=True)
    domain = tree.path_of_row(rows[0])[:layer]
    return ObservedTopology(topology, tree.layers[layer], domain, tuple(pairs), gap)


def _parse_gap(text: str) -> tuple[str, int] | None:
    """Read a recorded gap; None for none, and for text that is not ours."""
    layer, _, count = text.rpartition("+")
    return (layer, int(count)) if layer and count.isdecimal() else None


def count_by_position(cycle: Cycle, tree: TopologyTree, nodes: Mapping[str, int]) -> Ints:
    """Return numbers by node per position of the tree; nodes that are not in it do not count."""
    counts = np.zeros(len(tree.rows), dtype=np.int64)
    for node, count in nodes.items():
        row = cycle.table.row_of.get(node)
        if row is not None and row in tree:
            counts[np.searchsorted(tree.rows, row)] += count
    return counts


# Replacements


def find_replacement_domain(
    cycle: Cycle, view: TopologyView, gang: GangKey, sub_group: str = ROOT
) -> Mask | None:
    """Return the rows that replacements of lost members may use; None for all of them.

    A gang or sub-group that must share a domain has to stay in the one that its members are in.
    Multiples and preferences are checked when a replacement is placed.
    """
    constraint = view.constraint_of(gang) if gang else None
    if constraint is None:
        return None
    sub_groups, placed = view.sub_groups_of(gang), list(view.placed_members_of(gang))
    shared = [(layer, placed) for layer in sorted(constraint.layers_with(GatherStrategy.MUST))]
    if sub_groups is not None:
        shared += _shared_in(sub_groups, sub_group, placed)
    if not shared:
        return None
    rows = np.ones(len(cycle.table.nodes), dtype=np.bool_)
    tree = view.topologies.tree(constraint.topology)
    for layer, members in shared:
        at = None if tree is None else tree.index_of(layer)
        if tree is None or at is None:
            return np.zeros_like(rows)
        rows &= _find_common_domain(cycle, tree, at, members)
    return rows


def _shared_in(
    sub_groups: SubGroupTree, sub_group: str, placed: Sequence[PlacedMember]
) -> Iterator[tuple[str, list[PlacedMember]]]:
    """Yield the layers that a sub-group and its parents share, each with the placed members."""
    name = sub_groups.find(sub_group)
    while name != ROOT:
        group = sub_groups.by_name[name]
        members = [
            placed_member
            for placed_member in placed
            if sub_groups.is_in(placed_member.sub_group, name)
        ]
        if group.layer and members:
            yield group.layer, members
        name = group.parent


def _find_common_domain(
    cycle: Cycle, tree: TopologyTree, layer: int, members: Iterable[PlacedMember]
) -> Mask:
    """Return the rows of the domain that all members are in, none without such a domain."""
    counts = count_by_position(cycle, tree, Counter(member.node for member in members))
    of_position = tree.domains_of(layer)
    domains = np.unique(of_position[counts > 0])
    mask = np.zeros(len(cycle.table.nodes), dtype=np.bool_)
    if len(domains) == 1:
        mask[tree.rows[of_position == domains[0]]] = True
    return mask


# Capacity


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a resource a domain has, and how much of that is not requested."""

    resource: str
    free: int
    allocatable: int


@dataclass(frozen=True, slots=True)
class DomainCapacity:
    """One domain above the nodes. The root has an empty path.

    ``offer`` is how many more pods of the shape in question fit, ``members`` how many members of
    the gang in question it holds; 0 without a gang.
    """

    layer: str
    path: tuple[str, ...]
    nodes: int
    amounts: tuple[Amount, ...]
    offer: int = 0
    members: int = 0


def domain_capacities(
    cycle: Cycle,
    tree: TopologyTree,
    shape: PodShape | None = None,
    members: Sequence[str] = (),
) -> Iterator[DomainCapacity]:
    """Yield every domain above the nodes, depth first, children by name.

    ``members`` holds the node of each member of a gang.
    """
    offers = 0 * tree.rows if shape is None else cycle.room(shape)[tree.rows]
    offered = sum_up(tree, offers)
    held = sum_up(tree, count_by_position(cycle, tree, Counter(members)))
    amounts = list(_sum_amounts(cycle, tree))
    layers = range(tree.depth)
    numbers = {tree.path_of(at, domain): domain for at in layers for domain in _domains(tree, at)}
    for domain in describe_domains(tree):
        layer, number = len(domain.path), numbers[domain.path]
        yield DomainCapacity(
            layer=domain.layer,
            path=domain.path,
            nodes=domain.nodes,
            amounts=tuple(
                Amount(name, int(free[layer][number]), int(allocatable[layer][number]))
                for name, free, allocatable in amounts
            ),
            offer=int(offered[layer][number]),
            members=int(held[layer][number]),
        )


def _domains(tree: TopologyTree, layer: int) -> Iterator[int]:
    return (
        domain for domain in range(tree.size(layer)) if not layer or tree.nodes_in(layer, domain)
    )


def _sum_amounts(
    cycle: Cycle, tree: TopologyTree
) -> Iterator[tuple[str, tuple[Ints, ...], tuple[Ints, ...]]]:
    """Yield each resource that a node has, with free and allocatable amounts per layer."""
    table = cycle.table
    for name, column in table.columns.items():
        if table.allocatable[column].any():
            allocatable = table.allocatable[column, tree.rows]
            used = cycle.used[column, tree.rows]
            yield name, sum_up(tree, np.maximum(allocatable - used, 0)), sum_up(tree, allocatable)
