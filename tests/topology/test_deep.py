"""Trees of sixteen layers: costs do not fit 64 bits, the result is the same."""

from __future__ import annotations

import numpy as np

from koord.core.model.topology_constraint import NODE_LAYER
from koord.core.topology.capacity import Goal, SplitRequest
from koord.core.topology.knapsack import make_weights
from koord.core.topology.layers import InvalidLayers, Layer, order_layers
from koord.core.topology.solve import NoSplit, split
from koord.core.topology.tree import TopologyTree

DEPTH = 15


def make_tree(nodes: int) -> TopologyTree:
    """Make a tree in which every layer halves the nodes while there are two."""
    names = [f"L{at}" for at in range(DEPTH)]
    layers = [Layer(name, above, (name,)) for name, above in zip(names, ["", *names], strict=False)]
    chain = order_layers([*layers, Layer(NODE_LAYER, names[-1])])
    assert not isinstance(chain, InvalidLayers)
    tree = TopologyTree(chain)
    for row in range(nodes):
        labels = {name: str(row >> max(8 - at, 1)) for at, name in enumerate(names)}
        tree.upsert(row, f"n{row:03}", labels)
    return tree


def test_sixteen_layers_need_wide_costs() -> None:
    values = [("opening", layer, 600) for layer in range(1, DEPTH + 2)]
    assert make_weights(values, DEPTH + 1).is_wide
    assert not make_weights(values[:4], DEPTH + 1).is_wide


def test_deep_tree_is_split_like_a_flat_one() -> None:
    tree = make_tree(600)
    offers = np.array([1 + row % 3 for row in range(600)])[tree.rows]
    goal = Goal(0, (2, DEPTH), (1,) * (tree.depth + 1))
    found = split(tree, SplitRequest(goal, offers, 700, 700))
    assert not isinstance(found, NoSplit)
    assert sum(count for _, count in found.shares) == 700
    rows = [row for row, _ in found.shares]
    # A third of the pairs takes five, a third four: a hundred and fifty pairs take seven hundred.
    assert len({row >> 1 for row in rows}) == 150
