"""Where a single member goes that joins others: to its neighbours by index, if all else is equal.

The same order of what counts as in ``solve``; between opening few domains and everything after it
stands one more point: few *breaks*, layers at which it is in another domain than the members right
before and after it, the top layer first.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from koord.core.topology.capacity import SplitRequest, measure
from koord.core.topology.solve import Split, count_used
from koord.core.topology.tree import Ints, TopologyTree


def find_slot(tree: TopologyTree, ask: SplitRequest, neighbours: Sequence[int]) -> Split | None:
    """Return the place of one more member; ``neighbours`` are rows. Multiples are not looked at."""
    if ask.fixed is None:
        raise ValueError("a member without siblings has no slot")
    measures = measure(tree, ask)
    candidates = ask.offers > 0
    if ask.goal.must and ask.goal.must < tree.depth:
        home = np.flatnonzero(measures.fixed[ask.goal.must] == measures.total_fixed)
        candidates &= np.isin(tree.domains_of(ask.goal.must), home)
    elif ask.goal.must:
        candidates &= ask.fixed == measures.total_fixed
    positions = np.flatnonzero(candidates)
    if not positions.size:
        return None
    for key in _keys(tree, ask, neighbours, measures.fixed, measures.near):
        if len(positions) == 1:
            break
        values = key[positions]
        positions = positions[values == values.min()]
    position = int(positions[0])
    used = count_used(tree, np.union1d(positions[:1], np.flatnonzero(ask.fixed)))
    layer = max(one for one in range(tree.depth + 1) if used[one] == 1)
    row = int(tree.rows[position])
    domain = position if layer == tree.depth else tree.number_of(layer, row)
    return Split(((row, 1),), layer, domain)


def _keys(
    tree: TopologyTree,
    ask: SplitRequest,
    neighbours: Sequence[int],
    fixed: tuple[Ints, ...],
    near: tuple[Ints, ...] | None,
) -> Iterator[Ints]:
    """Yield what decides, per position in the rows of the tree; less is better."""
    layers = range(1, tree.depth + 1)
    is_new = {layer: (_per_row(tree, layer, fixed[layer]) == 0) for layer in layers}
    for layer in ask.goal.order:
        yield is_new[layer].astype(np.int64)
    for layer in layers:
        here = _domain_of_rows(tree, layer)
        yield sum(
            ((here != _domain_of(tree, layer, row)).astype(np.int64) for row in neighbours),
            np.zeros(len(here), dtype=np.int64),
        )
    free = measure(tree, ask)
    for layer in layers:
        yield np.where(is_new[layer], _per_row(tree, layer, free.free(layer)), 0)
    for layer in layers:
        if near is not None:
            yield -_per_row(tree, layer, near[layer])
        yield -_per_row(tree, layer, free.free(layer))
        yield _per_row(tree, layer, tree.name_ranks(layer))


def _per_row(tree: TopologyTree, layer: int, values: Ints) -> Ints:
    return values if layer == tree.depth else values[tree.domains_of(layer)]


def _domain_of_rows(tree: TopologyTree, layer: int) -> Ints:
    return tree.rows if layer == tree.depth else tree.domains_of(layer)


def _domain_of(tree: TopologyTree, layer: int, row: int) -> int:
    return row if layer == tree.depth else tree.number_of(layer, row)
