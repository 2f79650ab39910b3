"""How many members every domain can hold: offers summed up the tree, in whole multiples.

Everything counts *members*, those that have a place already (*fixed*) and new ones together: a
multiple is a matter of all of them. Per domain, ``low`` is what it holds at least (its fixed
members, rounded up to a multiple) and ``high`` what it can hold at most. In between, every multiple
of the layer's unit can be reached: units nest, so each domain adds up from what those below add up
to. That is why offers can be summed before anything is split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord.core.topology.goal import Goal
from koord.core.topology.tree import Ints, TopologyTree


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """What to split: at least ``least`` new members, at most ``most``.

    ``offers`` (new members that a node takes), ``fixed`` (members on it) and ``near`` (pods on it
    that draw the members to them) run parallel to the rows of the tree.
    """

    goal: Goal
    offers: Ints
    least: int
    most: int
    fixed: Ints | None = None
    near: Ints | None = None


@dataclass(frozen=True, slots=True)
class Capacities:
    """Per layer, an array over its domains (for the last layer, over the rows of the tree)."""

    low: tuple[Ints, ...]
    high: tuple[Ints, ...]
    fixed: tuple[Ints, ...]
    near: tuple[Ints, ...] | None
    total_fixed: int

    def free(self, layer: int) -> Ints:
        """Return how many new members every domain of a layer can take."""
        return self.high[layer] - self.fixed[layer]


def measure(tree: TopologyTree, ask: SplitRequest) -> Capacities:
    """Sum offers up the tree."""
    units = ask.goal.units
    offers = np.minimum(ask.offers, ask.most)
    if ask.fixed is None:
        sizes = [*map(tree.size, range(tree.depth)), len(offers)]
        fixed = low = tuple(np.zeros(size, dtype=np.int64) for size in sizes)
    else:
        offers = offers + ask.fixed
        fixed = sum_up(tree, ask.fixed)
        low = _sum_in_units(tree, ask.fixed, units, _round_up)
    return Capacities(
        low=low,
        high=_sum_in_units(tree, offers, units, _round_down),
        fixed=fixed,
        near=None if ask.near is None else sum_up(tree, ask.near),
        total_fixed=0 if ask.fixed is None else int(ask.fixed.sum()),
    )


def _sum_in_units(
    tree: TopologyTree, values: Ints, units: tuple[int, ...], rounded: Callable[[Ints, int], Ints]
) -> tuple[Ints, ...]:
    """Sum values up the tree, each sum rounded to the unit of its layer."""
    sums = [rounded(values, units[-1])]
    for layer in range(tree.depth - 1, -1, -1):
        sums.append(rounded(_lift(tree, layer, sums[-1]), units[layer]))
    return tuple(reversed(sums))


def sum_up(tree: TopologyTree, values: Ints) -> tuple[Ints, ...]:
    """Return, per layer, the sums over the domains."""
    sums = [values]
    for layer in range(tree.depth - 1, -1, -1):
        sums.append(_lift(tree, layer, sums[-1]))
    return tuple(reversed(sums))


def _lift(tree: TopologyTree, layer: int, values: Ints) -> Ints:
    """Sum values of the layer below into the domains of a layer."""
    sums = np.zeros(tree.size(layer), dtype=np.int64)
    np.add.at(sums, tree.parents_of(layer + 1), values)
    return sums


def _round_up(values: Ints, unit: int) -> Ints:
    return values if unit == 1 else -(-values // unit) * unit


def _round_down(values: Ints, unit: int) -> Ints:
    return values if unit == 1 else values // unit * unit


MOST_COUNTED: Final = 1 << 21
"""Largest table that :func:`fewest_nodes` makes."""


def fewest_nodes(parents: Ints, room: Ints, need: int, size: int) -> Ints | None:
    """Return, for each of ``size`` domains, how few nodes hold ``need`` units, all at once.

    Larger than the number of nodes where they do not; None if the question is too large.
    """
    width = need + 1
    if size * width > MOST_COUNTED:
        return None
    table = np.bincount(parents * width + np.minimum(room, need), minlength=size * width)
    table = table.reshape(size, width)[:, :0:-1]
    rooms = np.arange(need, 0, -1)
    counts, reach = table.cumsum(axis=1), (table * rooms).cumsum(axis=1)
    domains, at = np.arange(size), (reach >= need).argmax(axis=1)
    room_at = rooms[at]
    last = table[domains, at]
    missing = need - reach[domains, at] + last * room_at
    fewest: Ints = counts[domains, at] - last - (-missing // room_at)
    return np.where(reach[:, -1] >= need, fewest, len(parents) + 1)
