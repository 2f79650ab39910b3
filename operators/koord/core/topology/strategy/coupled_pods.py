"""Members that matter to each other beyond the network, by affinity or spread: placed one by one.

Where one of them may go depends on where the others went, so that offers cannot be added up.
Domains are tried from the lowest layer up, and each is filled as any other unit would be. The first
that takes all is it: good, and not known to be the best.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from koord.core.framework.allocator import Allocator, RowShare
from koord.core.framework.cycle import Cycle
from koord.core.framework.scoring import Scoring
from koord.core.pods import PodShape
from koord.core.topology.capacity import SplitRequest, sum_up
from koord.core.topology.goal import Goal
from koord.core.topology.tree import Ints, TopologyTree

MOST_DOMAINS: Final = 24
"""How many domains of a layer are tried."""


def fill_domain(
    snapshot: Cycle, tree: TopologyTree, shape: PodShape, ask: SplitRequest
) -> list[RowShare]:
    """Place as many as one domain takes, or nothing if none takes as many as must be."""
    fixed = np.zeros(len(ask.offers), dtype=np.int64) if ask.fixed is None else ask.fixed
    least = max(ask.least, 1)
    for rows in _candidates(tree, ask.goal, least, ask.offers, fixed):
        mark = snapshot.checkpoint()
        mask = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
        mask[rows] = True
        with snapshot.only({shape: mask}):
            shares = Allocator(snapshot, Scoring()).fill(shape, ask.most)
        placed = sum(share.count for share in shares)
        if placed >= least and _keeps_multiples(tree, ask.goal, fixed, shares):
            return shares
        snapshot.rollback(mark)
    return []


def _candidates(
    tree: TopologyTree, goal: Goal, least: int, offers: Ints, fixed: Ints
) -> Iterator[Ints]:
    """Yield the rows of domains that may take so many, lowest layer and least room first."""
    members = int(fixed.sum())
    for layer in range(tree.depth, goal.must - 1, -1):
        room, here = sum_up(tree, offers)[layer], sum_up(tree, fixed)[layer]
        found = np.flatnonzero((room >= least) & np.equal(here, members))
        order = np.lexsort((tree.name_ranks(layer)[found], room[found]))
        for domain in found[order][:MOST_DOMAINS].tolist():
            if layer == tree.depth:
                inside = np.arange(len(tree.rows)) == domain
            else:
                inside = np.equal(tree.domains_of(layer), domain)
            yield tree.rows[inside & (offers > 0)]


def _keeps_multiples(
    tree: TopologyTree, goal: Goal, fixed: Ints, shares: Sequence[RowShare]
) -> bool:
    total = fixed.copy()
    for share in shares:
        total[np.searchsorted(tree.rows, share.row)] += share.count
    sums = sum_up(tree, total)
    return not any((one % unit).any() for one, unit in zip(sums, goal.units, strict=True))
