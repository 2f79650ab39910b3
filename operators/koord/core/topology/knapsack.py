"""The knapsack over the tree: what each number of members costs a domain, and the cheapest split.

The *costs* of a domain are an array: entry ``u`` is the least cost of holding ``low + u * unit``
members. A cost is a sum over the domains below that new members open, so the costs of children
combine by min-plus convolution. Two properties make that cheap. Costs never fall, because members
can be left out one unit at a time; so a child is described by the few places where its costs rise.
And nodes differ only in how many members they take, so they are grouped by that number.

Costs of different layers are weighted into one integer. *Opening* a domain costs the weight of its
layer; *leftover* charges in addition what an opened domain could have taken. Domains that hold a
fixed member are open already and cost nothing.

:class:`Distribution` walks back from the costs of a domain to what each node holds. Among splits of
equal cost, the first child takes as many as it can, then the second: children with more attracting
pods come first, then those with more room, then by name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from koord.core.engine.arrays import Ints, Mask
from koord.core.topology.capacity import Capacities
from koord.core.topology.tree import TopologyTree

Costs: TypeAlias = npt.NDArray[Any]
"""``int64``, or Python's integers where the weights of many layers do not fit."""

MAX_AT_ONCE: Final = 1 << 18
"""Sums that are computed at a time: more would not fit the caches of the processor."""
OPERATIONS: Final = 50
"""What combining costs once takes, as operations on all of its numbers of members."""
MAX_COST: Final = 1 << 60
"""Above all costs that fit 64 bits: the cost of the impossible."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Per layer, what opening a domain costs, and what each place in it costs."""

    opening: tuple[int, ...]
    leftover: tuple[int, ...]
    is_wide: bool = False
    """Whether costs need more than 64 bits."""

    @property
    def unreachable(self) -> int:
        return MAX_COST << 2048 if self.is_wide else MAX_COST

    def zeros(self, size: int) -> Costs:
        return np.zeros(size, dtype=object if self.is_wide else np.int64)

    def times(self, numbers: Ints, price: int) -> Costs:
        return (numbers.astype(object) if self.is_wide else numbers) * price


def make_weights(values: Iterable[tuple[str, int, int]], depth: int) -> Weights:
    """Make weights so that lesser costs never add up to one unit of a more important one.

    ``values`` holds (``opening`` or ``leftover``, layer, the largest possible number), the most
    important first.
    """
    weights = {"opening": [0] * (depth + 1), "leftover": [0] * (depth + 1)}
    total = 0
    for kind, layer, most in reversed(list(values)):
        weights[kind][layer] = total + 1
        total += (total + 1) * most
    opening, leftover = weights["opening"], weights["leftover"]
    return Weights(tuple(opening), tuple(leftover), is_wide=total >= MAX_COST >> 12)


Spend: TypeAlias = Callable[[int, int], None]


def for_nothing(_size: int, _operations: int) -> None:
    """Count no work."""


class DomainCosts:
    """The costs of the domains of a tree, each computed on first use.

    ``spend`` is called with the size and the number of operations that are about to begin.
    """

    def __init__(
        self,
        tree: TopologyTree,
        capacities: Capacities,
        units: tuple[int, ...],
        weights: Weights,
        spend: Spend = for_nothing,
    ) -> None:
        self._spend = spend
        self.tree = tree
        self.capacities = capacities
        self.units = units
        self.weights = weights
        self._costs: dict[tuple[int, int], Costs] = {}

    def of(self, layer: int, domain: int, most: int) -> Costs:
        """Return the costs of a domain, up to ``most`` members."""
        costs = self._costs.get((layer, domain))
        if costs is None:
            costs = self._costs[layer, domain] = self._make(layer, domain, most)
        return costs

    def cost(self, layer: int, domain: int, members: int, most: int) -> int:
        """Return the cost of a number of members, which must be one that the domain can hold."""
        low = int(self.capacities.low[layer][domain])
        return int(self.of(layer, domain, most)[(members - low) // self.units[layer]])

    def below(self, layer: int, domain: int) -> Ints:
        """Return the domains right below one that can hold any member."""
        members = self.tree.members_of(layer, domain)
        return members[self.capacities.high[layer + 1][members] > 0]

    def _make(self, layer: int, domain: int, most: int) -> Costs:
        high = min(int(self.capacities.high[layer][domain]), most)
        low = int(self.capacities.low[layer][domain])
        steps = np.arange(max(high - low, 0) // self.units[layer] + 1)
        if layer == self.tree.depth:
            costs = self.weights.zeros(len(steps))
        else:
            members = self.below(layer, domain)
            base = int(self.capacities.low[layer + 1][members].sum())
            inner = (low + self.units[layer] * steps - base) // self.units[layer + 1]
            costs = self._combined(layer, members, inner, most)
        if not self.capacities.fixed[layer][domain]:
            costs[(low + steps) > 0] += self._opening(layer, domain)
        return costs

    def _opening(self, layer: int, domain: int) -> int:
        free = int(self.capacities.free(layer)[domain]) if self.weights.leftover[layer] else 0
        return self.weights.opening[layer] + self.weights.leftover[layer] * free

    def _combined(self, layer: int, members: Ints, inner: Ints, most: int) -> Costs:
        """Return the least costs of holding ``inner`` units above the least below a domain."""
        size = int(inner[-1]) + 1
        is_of_nodes = layer + 1 == self.tree.depth
        self._spend(size, OPERATIONS * (1 if is_of_nodes else len(members)))
        if is_of_nodes:
            return self.nodes(members).costs(size, self.weights)[inner]
        costs = self.weights.zeros(size)
        costs[1:] = self.weights.unreachable
        for member in members.tolist():
            costs = combine(costs, self.of(layer + 1, member, most))
        return costs[inner]

    def nodes(self, positions: Ints) -> "Nodes":
        unit = self.units[-1]
        low, high = self.capacities.low[-1][positions], self.capacities.high[-1][positions]
        room = (high - low) // unit
        is_open = self.capacities.fixed[-1][positions] > 0
        return Nodes(
            positions=positions,
            room=room,
            is_open=is_open,
            step=self.weights.leftover[-1] * unit,
            opening=self.weights.opening[-1],
        )


def combine(costs: Costs, child: Costs) -> Costs:
    """Return the least cost per number of units if a child may take some of them.

    ``costs`` are read as those of *at least* a number of units, which are equal as costs never
    fall.
    """
    ends = np.append(np.flatnonzero(child[1:] != child[:-1]), len(child) - 1)
    enough = int(np.searchsorted(ends, len(costs) - 1)) + 1
    return take_best(costs, ends[:enough], child[ends[:enough]])


def take_best(costs: Costs, reaches: Ints, prices: Costs) -> Costs:
    """Return the least cost per number of units if up to ``reaches`` cost ``prices`` instead."""
    best: Costs | None = None
    size = len(costs)
    padded = np.concatenate([np.full(size, costs[0], dtype=costs.dtype), costs])
    # Row r of the windows is ``costs`` moved up by ``size - r``: views of one array, not copies.
    windows = as_strided(padded, (size + 1, size), padded.strides * 2, writeable=False)
    step = max(MAX_AT_ONCE // size, 1)
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
    is_open: Mask
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
        """Return costs of at least 0 … ``size - 1`` units, of all classes, without the first, …."""
        if not self.step or len(sizes) == 1:
            return self._by_number(sizes, counts, size, weights)
        costs = weights.zeros(size)
        costs[1:] = weights.unreachable
        suffixes = [costs]
        for room, count in zip(reversed(sizes), reversed(counts), strict=True):
            taken = np.arange(min(count, -(-(size - 1) // room)) + 1)
            prices = weights.times(taken, self.opening + self.step * room)
            costs = np.minimum(take_best(costs, taken * room, prices), weights.unreachable)
            suffixes.append(costs)
        return suffixes[::-1]

    def _by_number(
        self, sizes: Sequence[int], counts: Sequence[int], size: int, weights: Weights
    ) -> list[Costs]:
        """As :meth:`suffixes` where only the number of nodes matters: take the largest."""
        suffixes = []
        for first in range(len(sizes) + 1):
            costs = weights.zeros(size)
            costs[1:] = weights.unreachable
            rooms = np.repeat(sizes[first:], counts[first:]).astype(np.int64)
            reach = np.minimum(np.cumsum(rooms), size - 1) if len(rooms) else rooms
            wanted = np.arange(1, (int(reach[-1]) if len(reach) else 0) + 1)
            number = np.searchsorted(reach, wanted) + 1
            price = self.opening + self.step * (sizes[0] if sizes else 0)
            costs[1 : len(wanted) + 1] = weights.times(number, price)
            suffixes.append(costs)
            if not self.step:
                break
        return suffixes


class Distribution:
    """Collects (position, new members) in the order to be filled."""

    def __init__(self, costs: DomainCosts, most: int) -> None:
        self.shares: list[tuple[int, int]] = []
        self._costs = costs
        self._capacities = costs.capacities
        self._most = most

    def fill(self, layer: int, domain: int, members: int) -> None:
        """Give a domain a number of members, which must be one that it can hold."""
        depth = self._costs.tree.depth
        if layer == depth:
            self._give(domain, members - int(self._capacities.fixed[-1][domain]))
            return
        below = self._costs.below(layer, domain)
        low = int(self._capacities.low[layer + 1][below].sum())
        units = (members - low) // self._costs.units[layer + 1]
        if layer + 1 == depth:
            self._fill_nodes(below, units)
        else:
            self._fill_domains(layer + 1, below, units)

    def _give(self, position: int, members: int) -> None:
        if members:
            self.shares.append((position, members))

    def _order(self, layer: int, domains: Ints) -> Ints:
        keys = [self._costs.tree.name_ranks(layer)[domains]]
        keys.append(-self._capacities.free(layer)[domains])
        if self._capacities.near is not None:
            keys.append(-self._capacities.near[layer][domains])
        return domains[np.lexsort(keys)]

    def _fill_domains(self, layer: int, domains: Ints, units: int) -> None:
        """Split units, beyond the least that each must hold, over domains of a layer."""
        ordered = self._order(layer, domains).tolist()
        children = [self._costs.of(layer, domain, self._most) for domain in ordered]
        costs = self._costs.weights.zeros(units + 1)
        costs[1:] = self._costs.weights.unreachable
        suffixes = [costs]
        for child in reversed(children):
            suffixes.append(combine(suffixes[-1], child))
        suffixes.reverse()
        for domain, child, whole, following in zip(
            ordered, children, suffixes, suffixes[1:], strict=False
        ):
            share = _largest(child, int(whole[units]), following, units)
            units -= share
            low = int(self._capacities.low[layer][domain])
            members = low + share * self._costs.units[layer]
            if members:
                self.fill(layer, domain, members)

    def _fill_nodes(self, positions: Ints, units: int) -> None:
        """Split units over nodes: open ones take all they can, the others as chosen."""
        nodes = self._costs.nodes(self._order(self._costs.tree.depth, positions))
        chosen = self._choose_nodes(nodes, max(units - nodes.open_room, 0))
        unit = self._costs.units[-1]
        for position, room, is_open in zip(
            nodes.positions.tolist(), nodes.room.tolist(), nodes.is_open.tolist(), strict=True
        ):
            if not units and not self._capacities.total_fixed:
                break
            share = 0
            if is_open or chosen.get(room, 0):
                share = min(room, units)
                units -= share
            if not is_open and share:
                chosen[room] -= 1
            low = int(self._capacities.low[-1][position] - self._capacities.fixed[-1][position])
            self._give(position, low + share * unit)

    def _choose_nodes(self, nodes: Nodes, units: int) -> dict[int, int]:
        """Return room -> number of nodes with that room to open."""
        sizes, counts = nodes.classes()
        if not units or not sizes:
            return {}
        if len(sizes) == 1:
            return {sizes[0]: -(-units // sizes[0])}
        suffixes = nodes.suffixes(sizes, counts, units + 1, self._costs.weights)
        chosen: dict[int, int] = {}
        for at, (room, count) in enumerate(zip(sizes, counts, strict=True)):
            price = nodes.opening + nodes.step * room
            whole, following = int(suffixes[at][units]), suffixes[at + 1]
            taken = min(count, -(-units // room))
            while int(following[max(units - taken * room, 0)]) + taken * price != whole:
                taken -= 1
            chosen[room] = taken
            units = max(units - taken * room, 0)
        return chosen


def _largest(child: Costs, whole: int, following: Costs, units: int) -> int:
    """Return the most units that a child can take at the least cost of the whole."""
    most = min(len(child) - 1, units)
    with_rest = child[: most + 1] + following[units - most : units + 1][::-1]
    return int(np.flatnonzero(with_rest == whole)[-1])
