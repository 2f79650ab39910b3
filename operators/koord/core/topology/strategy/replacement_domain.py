"""Where a started gang is at home: the nodes that its replacements may go to.

A gang, or a sub-group, that must share a domain of the network shares the one in which its members
are. What is said here is no plan: multiples and preferences are looked at when a replacement is
placed.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.framework.cycle import Cycle
from koord.core.gang.model import GangKey
from koord.core.gang.sub_group_tree import ROOT, SubGroupTree
from koord.core.topology.strategy.topology_view import TopologyView
from koord.core.topology.tree import TopologyTree
from koord.core.topology_constraint import GatherStrategy, PlacedMember


def find_home(
    snapshot: Cycle, network: TopologyView, gang: GangKey, sub_group: str = ROOT
) -> Mask | None:
    """Return the rows that replacements may go to; None if every one will do."""
    wish = network.wish_of(gang) if gang else None
    if wish is None:
        return None
    nest, siblings = network.nest_of(gang), list(network.siblings_of(gang))
    shared = [(layer, siblings) for layer in sorted(wish.layers_with(GatherStrategy.MUST))]
    if nest is not None:
        shared += _shared_in(nest, sub_group, siblings)
    if not shared:
        return None
    home = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    tree = network.topologies.tree(wish.topology)
    for layer, members in shared:
        at = None if tree is None else tree.index_of(layer)
        home &= (
            np.zeros_like(home)
            if tree is None or at is None
            else _find(snapshot, tree, at, members)
        )
    return home


def _shared_in(
    nest: SubGroupTree, sub_group: str, siblings: Iterable[PlacedMember]
) -> Iterator[tuple[str, list[PlacedMember]]]:
    """Yield the layers that a sub-group and those above it share, each with who shares it."""
    siblings = list(siblings)
    name = nest.home_of(sub_group)
    while name != ROOT:
        group = nest.by_name[name]
        inside = nest.names_in(name)
        members = [one for one in siblings if nest.home_of(one.sub_group) in inside]
        if group.layer and members:
            yield group.layer, members
        name = group.parent


def _find(snapshot: Cycle, tree: TopologyTree, layer: int, members: Iterable[PlacedMember]) -> Mask:
    """Return the rows of the domain that all members are in, none if it is not one."""
    rows = [snapshot.table.row_of.get(one.node) for one in members]
    of_rows = tree.rows if layer == tree.depth else tree.domains_of(layer)
    inside = np.isin(tree.rows, [row for row in rows if row is not None])
    domains = np.unique(of_rows[inside])
    found = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    if len(domains) == 1:
        found[tree.rows[of_rows == domains[0]]] = True
    return found
