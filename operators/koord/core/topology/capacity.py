"""How many members each domain can hold: offers of nodes summed up the tree, in whole multiples.

All numbers count *members*: those that are placed already (*fixed*) and new ones together, as a
multiple applies to their sum. Per domain, ``low`` is the least it holds (its fixed members, rounded
up to a multiple) and ``high`` the most. Every multiple of the layer's unit in between is possible,
because units nest: each domain's number is a sum of what the domains below can hold. Therefore
offers can be summed before anything is split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.model.topology_constraint import GatherStrategy, TopologyConstraint
from koord.core.topology.tree import TopologyTree


@dataclass(frozen=True, slots=True)
class Goal:
    """A topology constraint in numbers of layers: 0 is the root, the last one the nodes.

    ``must`` is the deepest layer of which all members share one domain; 0 for none. ``units``
    holds, per layer, the number of which the members in every domain must be a multiple: that of
    the layer itself, combined with those of the layers below.
    """

    must: int
    prefer: tuple[int, ...]
    units: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.units) - 1

    @property
    def order(self) -> tuple[int, ...]:
        """Layers in the order in which using fewer domains of them matters.

        First the preferred ones, the deepest first; then the others from the top.
        """
        preferred = sorted(set(self.prefer), reverse=True)
        remaining = [layer for layer in range(1, self.depth + 1) if layer not in preferred]
        return (*preferred, *remaining)

    def without_multiples(self) -> "Goal":
        return Goal(self.must, self.prefer, (1,) * len(self.units))


def make_goal(constraint: TopologyConstraint, layers: tuple[str, ...]) -> Goal | frozenset[str]:
    """Translate a constraint to numbers of layers, root first.

    Return the required layers that do not exist, if any; preferred ones are ignored then.
    """
    must = constraint.layers_with(GatherStrategy.MUST)
    if must - set(layers):
        return must - set(layers)
    number = {layer: at for at, layer in enumerate(layers)}
    prefer = constraint.layers_with(GatherStrategy.PREFER)
    return Goal(
        must=max((number[layer] for layer in must), default=0),
        prefer=tuple(number[layer] for layer in prefer if number.get(layer)),
        units=_join(constraint.multiples, layers),
    )


def _join(multiples: dict[str, int], layers: tuple[str, ...]) -> tuple[int, ...]:
    units = [1] * len(layers)
    below = 1
    for at in range(len(layers) - 1, -1, -1):
        below = units[at] = lcm(below, multiples.get(layers[at], 1))
    return tuple(units)


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """What to split: at least ``least`` new members, at most ``most``.

    ``offers`` (new members that a node takes), ``fixed`` (members on it) and ``near`` (pods on it
    that attract the members) are per position in the tree.
    """

    goal: Goal
    offers: Ints
    least: int
    most: int
    fixed: Ints | None = None
    near: Ints | None = None


@dataclass(frozen=True, slots=True)
class Capacities:
    """Per layer, arrays over its domains."""

    low: tuple[Ints, ...]
    high: tuple[Ints, ...]
    fixed: tuple[Ints, ...]
    near: tuple[Ints, ...] | None
    total_fixed: int

    def free(self, layer: int) -> Ints:
        """Return how many new members each domain of a layer can take."""
        return self.high[layer] - self.fixed[layer]


def measure_capacities(tree: TopologyTree, request: SplitRequest) -> Capacities:
    units = request.goal.units
    offers = np.minimum(request.offers, request.most)
    if request.fixed is None:
        sizes = map(tree.size, range(tree.depth + 1))
        fixed = low = tuple(np.zeros(size, dtype=np.int64) for size in sizes)
    else:
        offers = offers + request.fixed
        fixed = sum_up(tree, request.fixed)
        low = _sum_in_units(tree, request.fixed, units, _round_up)
    return Capacities(
        low=low,
        high=_sum_in_units(tree, offers, units, _round_down),
        fixed=fixed,
        near=None if request.near is None else sum_up(tree, request.near),
        total_fixed=0 if request.fixed is None else int(request.fixed.sum()),
    )


def _sum_in_units(
    tree: TopologyTree, values: Ints, units: tuple[int, ...], rounded: Callable[[Ints, int], Ints]
) -> tuple[Ints, ...]:
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


MAX_TABLE: Final = 1 << 21
"""Largest table that :func:`fewest_nodes` makes."""


def fewest_nodes(parents: Ints, room: Ints, need: int, size: int) -> Ints | None:
    """Return, for each of ``size`` domains, the least number of its nodes that hold ``need`` units.

    More than there are nodes where all of them do not suffice; None if the table would be too
    large.
    """
    width = need + 1
    if size * width > MAX_TABLE:
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
