"""The tree of a topology with what is free in each domain: for people who look at it.

Sums only; nothing is decided.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from koord.core.framework.cycle import Cycle
from koord.core.pods import PodShape
from koord.core.topology.capacity import sum_up
from koord.core.topology.describe import describe_domains
from koord.core.topology.tree import Ints, TopologyTree


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a resource a domain has, and how much of it nobody has asked for."""

    resource: str
    free: int
    allocatable: int


@dataclass(frozen=True, slots=True)
class DomainCapacity:
    """One domain above the nodes. The root has an empty path.

    ``offer`` is how many more pods of the kind in question it takes, ``members`` how many of the
    gang in question it holds; 0 if no gang is.
    """

    layer: str
    path: tuple[str, ...]
    nodes: int
    amounts: tuple[Amount, ...]
    offer: int = 0
    members: int = 0


def survey(
    snapshot: Cycle,
    tree: TopologyTree,
    shape: PodShape | None = None,
    members: Sequence[str] = (),
) -> Iterator[DomainCapacity]:
    """Yield every domain above the nodes, depth first, children by name.

    ``members`` holds the node of each member of a gang.
    """
    rows = tree.rows
    offers = np.zeros(len(rows), dtype=np.int64) if shape is None else snapshot.room(shape)[rows]
    sums = {
        "offer": sum_up(tree, offers),
        "members": sum_up(tree, _count(snapshot, tree, members)),
    }
    amounts = [(name, *_sum(snapshot, tree, name)) for name in _resources(snapshot)]
    numbers = {tree.path_of(at, one): one for at in range(tree.depth) for one in _live(tree, at)}
    for domain in describe_domains(tree):
        layer, number = len(domain.path), numbers[domain.path]
        yield DomainCapacity(
            layer=domain.layer,
            path=domain.path,
            nodes=domain.nodes,
            amounts=tuple(
                Amount(name, int(free[layer][number]), int(all_of_it[layer][number]))
                for name, free, all_of_it in amounts
            ),
            offer=int(sums["offer"][layer][number]),
            members=int(sums["members"][layer][number]),
        )


def _live(tree: TopologyTree, layer: int) -> Iterator[int]:
    return (one for one in range(tree.size(layer)) if not layer or tree.nodes_in(layer, one))


def _resources(snapshot: Cycle) -> list[str]:
    """Return the resources that some node has, in the order of columns."""
    table = snapshot.table
    return [name for name, column in table.columns.items() if table.allocatable[column].any()]


def _sum(
    snapshot: Cycle, tree: TopologyTree, resource: str
) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    column = snapshot.table.columns[resource]
    allocatable = snapshot.table.allocatable[column, tree.rows]
    used = snapshot.used[column, tree.rows] if column < len(snapshot.used) else 0
    return sum_up(tree, np.maximum(allocatable - used, 0)), sum_up(tree, allocatable)


def _count(snapshot: Cycle, tree: TopologyTree, members: Sequence[str]) -> Ints:
    counts = np.zeros(len(tree.rows), dtype=np.int64)
    for node in members:
        row = snapshot.table.row_of.get(node)
        if row is not None and tree.path_of_row(row) is not None:
            counts[np.searchsorted(tree.rows, row)] += 1
    return counts
