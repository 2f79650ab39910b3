"""What it costs a domain to hold so and so many members: the knapsack over the tree.

A *profile* is an array: entry ``u`` is the least cost of holding ``low + u * unit`` members. Costs
are sums over the domains below that new members open, so profiles of children combine by min-plus
convolution. Two properties make that cheap. Profiles never fall, because members can be left out
one unit at a time; so a child is described by the few places where its profile rises. And nodes
differ only in how many members they take, so that they are handled by that number.

Costs are weighed into one integer. *Opening* a domain costs the weight of its layer; *leftover*
charges in addition what an opened domain could have taken. Domains that hold a fixed member are
open already and cost nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from koord.core.topology.capacity import Capacities
from koord.core.topology.tree import Ints, TopologyTree

Costs: TypeAlias = npt.NDArray[Any]
"""``int64``, or Python's integers where the weights of many layers do not fit."""

MOST_AT_ONCE: Final = 1 << 18
"""Sums that are held at a time: more would leave the caches of the processor."""
MOST: Final = 1 << 60
"""More than any cost that fits 64 bits: what cannot be reached."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Per layer, what opening a domain costs, and what each place in it costs."""

    opening: tuple[int, ...]
    leftover: tuple[int, ...]
    is_wide: bool = False
    """Whether costs need more than 64 bits."""

    @property
    def unreachable(self) -> int:
        """A cost above all others."""
        return MOST << 2048 if self.is_wide else MOST

    def zeros(self, size: int) -> Costs:
        """Return costs of nothing."""
        return np.zeros(size, dtype=object if self.is_wide else np.int64)

    def times(self, numbers: Ints, price: int) -> Costs:
        """Return the costs of so many at a price each."""
        return (numbers.astype(object) if self.is_wide else numbers) * price


def make_weights(values: Iterable[tuple[str, int, int]], depth: int) -> Weights:
    """Weigh costs against each other, the most important first.

    Each is named as (``opening`` or ``leftover``, layer, the most that it comes to): what comes
    later never outweighs one unit of what comes before.
    """
    weights = {"opening": [0] * (depth + 1), "leftover": [0] * (depth + 1)}
    total = 0
    for kind, layer, most in reversed(list(values)):
        weights[kind][layer] = total + 1
        total += (total + 1) * most
    opening, leftover = weights["opening"], weights["leftover"]
    return Weights(tuple(opening), tuple(leftover), is_wide=total >= MOST >> 12)


class SplitCosts:
    """Profiles of the domains of a tree, each made when it is first asked for."""

    def __init__(
        self, tree: TopologyTree, measures: Capacities, units: tuple[int, ...], weights: Weights
    ) -> None:
        self.tree = tree
        self.measures = measures
        self.units = units
        self.weights = weights
        self._known: dict[tuple[int, int], Costs] = {}

    def of(self, layer: int, domain: int, most: int) -> Costs:
        """Return the profile of a domain, as far as ``most`` members."""
        found = self._known.get((layer, domain))
        if found is None:
            found = self._known[layer, domain] = self._make(layer, domain, most)
        return found

    def cost(self, layer: int, domain: int, members: int, most: int) -> int:
        """Return the cost of a number of members, which must be one that the domain can hold."""
        low = int(self.measures.low[layer][domain])
        return int(self.of(layer, domain, most)[(members - low) // self.units[layer]])

    def below(self, layer: int, domain: int) -> Ints:
        """Return the domains (or positions of nodes) below one that can hold any member."""
        found = self.tree.members_of(layer, domain)
        return found[self.measures.high[layer + 1][found] > 0]

    def _make(self, layer: int, domain: int, most: int) -> Costs:
        high = min(int(self.measures.high[layer][domain]), most)
        low = int(self.measures.low[layer][domain])
        steps = np.arange(max(high - low, 0) // self.units[layer] + 1)
        if layer == self.tree.depth:
            costs = self.weights.zeros(len(steps))
        else:
            members = self.below(layer, domain)
            base = int(self.measures.low[layer + 1][members].sum())
            inner = (low + self.units[layer] * steps - base) // self.units[layer + 1]
            costs = self._combined(layer, members, inner, most)
        if not self.measures.fixed[layer][domain]:
            costs[(low + steps) > 0] += self._opening(layer, domain)
        return costs

    def _opening(self, layer: int, domain: int) -> int:
        free = int(self.measures.free(layer)[domain]) if self.weights.leftover[layer] else 0
        return self.weights.opening[layer] + self.weights.leftover[layer] * free

    def _combined(self, layer: int, members: Ints, inner: Ints, most: int) -> Costs:
        """Return the least costs of holding ``inner`` units above the least below a domain."""
        size = int(inner[-1]) + 1
        if layer + 1 == self.tree.depth:
            return self.nodes(members).costs(size, self.weights)[inner]
        costs = self.weights.zeros(size)
        costs[1:] = self.weights.unreachable
        for member in members.tolist():
            costs = combine(costs, self.of(layer + 1, member, most))
        return costs[inner]

    def nodes(self, positions: Ints) -> "Nodes":
        """Return the nodes at some positions as the knapsack sees them."""
        unit = self.units[-1]
        low, high = self.measures.low[-1][positions], self.measures.high[-1][positions]
        room = (high - low) // unit
        is_open = self.measures.fixed[-1][positions] > 0
        return Nodes(
            positions=positions,
            room=room,
            is_open=is_open,
            step=self.weights.leftover[-1] * unit,
            opening=self.weights.opening[-1],
        )


def combine(costs: Costs, profile: Costs) -> Costs:
    """Return the least cost per number of units if a child may take some of them.

    ``costs`` reads as the cost of *at least* so many units, which is the same for what never falls.
    """
    ends = np.append(np.flatnonzero(profile[1:] != profile[:-1]), len(profile) - 1)
    enough = int(np.searchsorted(ends, len(costs) - 1)) + 1
    return take_best(costs, ends[:enough], profile[ends[:enough]])


def take_best(costs: Costs, reaches: Ints, prices: Costs) -> Costs:
    """Return the least cost per number of units if, for a price, up to so many are taken off it."""
    best: Costs | None = None
    size = len(costs)
    padded = np.concatenate([np.full(size, costs[0], dtype=costs.dtype), costs])
    # Row r of the windows is ``costs`` moved up by ``size - r``: views of one array, not copies.
    windows = as_strided(padded, (size + 1, size), padded.strides * 2, writeable=False)
    step = max(MOST_AT_ONCE // size, 1)
    for first in range(0, len(reaches), step):
        moved = windows[size - np.minimum(reaches[first : first + step], size)]
        moved += prices[first : first + step, None]
        least = moved.min(axis=0)
        best = least if best is None else np.minimum(best, least)
    if best is None:
        raise ValueError("there is at least the choice to take none")
    return best


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes below one domain, by how many units they take.

    Open ones cost nothing. Of the others each costs ``opening``, and ``step`` per unit of its room.
    """

    positions: Ints
    room: Ints
    is_open: npt.NDArray[np.bool_]
    step: int
    opening: int

    @property
    def open_room(self) -> int:
        """Units that open nodes take."""
        return int(self.room[self.is_open].sum())

    def classes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the sizes of nodes that are not open, largest first, and how many there are."""
        sizes, counts = np.unique(self.room[~self.is_open & (self.room > 0)], return_counts=True)
        return sizes[::-1].tolist(), counts[::-1].tolist()

    def costs(self, size: int, weights: Weights) -> Costs:
        """Return the costs of 0 … ``size - 1`` units."""
        costs = weights.zeros(size)
        start = min(self.open_room, size - 1)
        sizes, counts = self.classes()
        if size - 1 - start and sizes:
            costs[start:] = self.suffixes(sizes, counts, size - start, weights)[0]
        return costs

    def suffixes(
        self, sizes: Sequence[int], counts: Sequence[int], size: int, weights: Weights
    ) -> list[Costs]:
        """Return costs of at least 0 to ``size - 1`` units: of all classes, of all but one, …."""
        if not self.step or len(sizes) == 1:
            return self._by_number(sizes, counts, size, weights)
        costs = weights.zeros(size)
        costs[1:] = weights.unreachable
        found = [costs]
        for room, count in zip(reversed(sizes), reversed(counts), strict=True):
            taken = np.arange(min(count, -(-(size - 1) // room)) + 1)
            prices = weights.times(taken, self.opening + self.step * room)
            costs = np.minimum(take_best(costs, taken * room, prices), weights.unreachable)
            found.append(costs)
        return found[::-1]

    def _by_number(
        self, sizes: Sequence[int], counts: Sequence[int], size: int, weights: Weights
    ) -> list[Costs]:
        """As :meth:`suffixes`, if only their number counts: take the largest."""
        found = []
        for first in range(len(sizes) + 1):
            costs = weights.zeros(size)
            costs[1:] = weights.unreachable
            rooms = np.repeat(sizes[first:], counts[first:]).astype(np.int64)
            reach = np.minimum(np.cumsum(rooms), size - 1) if len(rooms) else rooms
            wanted = np.arange(1, (int(reach[-1]) if len(reach) else 0) + 1)
            number = np.searchsorted(reach, wanted) + 1
            price = self.opening + self.step * (sizes[0] if sizes else 0)
            costs[1 : len(wanted) + 1] = weights.times(number, price)
            found.append(costs)
            if not self.step:
                break
        return found
