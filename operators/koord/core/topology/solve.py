"""How a gang of equal pods is split over the tree: the best way, or what every domain offers.

Criteria, each before all that follow:

1. requirements: the number of members, one domain of the required layer, whole multiples;
2. few domains at the preferred layers, the deepest first;
3. few domains at the other layers, the top one first;
4. many members, if there may be more than required, and then room for more of them later on;
5. attracting pods near by;
6. little room left in the domains that are used: of those that hold the whole gang, in the lowest
   first, then in those above it; then in those below, the upper ones first;
7. large shares first, then names.

Criteria 2 and 3 determine how deep the lowest domain is that holds the whole gang, so its layer is
found first, then the domain, and only that one is split. Where a layer *below* that one is
preferred, the layer does not follow from the offers alone and the costs of the whole tree decide.

A single member that joins others goes between its neighbours by index: :func:`find_insertion`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ints
from koord.core.topology.capacity import (
    Capacities,
    Goal,
    SplitRequest,
    fewest_nodes,
    measure_capacities,
)
from koord.core.topology.knapsack import (
    Costs,
    Distribution,
    DomainCosts,
    Spend,
    for_nothing,
    make_weights,
)
from koord.core.topology.tree import TopologyTree

OPERATIONS: Final = 100
"""What a split takes besides what its costs take, as operations on all nodes."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to place members. ``shares`` holds (row, new members) in the order to be filled."""

    shares: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class NoSplit:
    """The gang does not fit.

    ``offers`` holds (domain, offer) for each domain of ``layer``, the required one.
    ``is_multiple``: it would fit without multiples.
    """

    layer: int
    offers: tuple[tuple[int, int], ...]
    is_multiple: bool = False


def split(tree: TopologyTree, request: SplitRequest, spend: Spend = for_nothing) -> Split | NoSplit:
    """Find the best way to place between ``least`` and ``most`` equal pods.

    ``spend`` is called before work, with its size and the number of operations: it may raise.
    """
    spend(len(tree.rows), OPERATIONS)
    best = _SplitSearch(tree, request, spend).run()
    if best is not None:
        return best
    refused = explain_offers(tree, request)
    if max(request.goal.units) == 1:
        return refused
    plain = replace(request, goal=request.goal.without_multiples())
    return replace(refused, is_multiple=_SplitSearch(tree, plain, spend).run() is not None)


def count_used(tree: TopologyTree, positions: Ints) -> tuple[int, ...]:
    """Count, per layer, the domains of some positions."""
    layers = (tree.domains_of(layer)[positions] for layer in range(tree.depth + 1))
    return tuple(len(set(domains.tolist())) for domains in layers)


def explain_offers(tree: TopologyTree, request: SplitRequest) -> NoSplit:
    """Return what every domain of the required layer offers, each node taken for itself."""
    layer = request.goal.must
    free = measure_capacities(tree, request).free(layer)
    is_node = layer == tree.depth
    domains = [
        domain for domain in range(tree.size(layer)) if is_node or tree.nodes_in(layer, domain)
    ]
    return NoSplit(layer, tuple((domain, max(int(free[domain]), 0)) for domain in domains))


class _SplitSearch:
    """One gang on one tree; numbers of members include fixed ones."""

    def __init__(self, tree: TopologyTree, request: SplitRequest, spend: Spend) -> None:
        self.tree = tree
        self._spend = spend
        self.goal = request.goal
        self.capacities = measure_capacities(tree, request)
        self._costs_below: dict[int, DomainCosts] = {}
        self._best_opened: dict[int, int] = {}
        fixed = self.capacities.total_fixed
        unit = self.goal.units[0]
        self.first = -(-(fixed + max(request.least, 1)) // unit) * unit
        self.last = (fixed + request.most) // unit * unit

    def run(self) -> Split | None:
        """Return the best split; None if there is none."""
        if self.first > self.last or not len(self.tree.rows) or self._is_broken():
            return None
        lowest = self._find_lowest()
        if lowest is None:
            return None
        layer, candidates = lowest
        if self._is_all_needed(layer, candidates):
            return self._take_all(layer, int(candidates[0]))
        if layer < max(self.goal.prefer, default=0):
            layer, candidates = self._weigh_all()
        candidates, cost = self._cheapest(layer, candidates)
        members, candidates = self._fullest(layer, candidates, cost)
        candidates = self._tightest(layer, candidates)
        domain_costs = self._costs_of_split(layer, cost)
        if len(candidates) > 1:
            candidates = self._tightest_within(domain_costs, layer, candidates, members)
        distribution = Distribution(domain_costs, self.last)
        distribution.fill(layer, int(candidates[0]), members)
        rows = self.tree.rows
        return Split(tuple((int(rows[at]), count) for at, count in distribution.shares))

    def _is_broken(self) -> bool:
        """Whether fixed members alone make a multiple impossible."""
        if not self.capacities.total_fixed:
            return False
        pairs = zip(self.capacities.low, self.capacities.high, strict=True)
        return any(bool((low > high).any()) for low, high in pairs)

    def _is_all_needed(self, layer: int, candidates: Ints) -> bool:
        """Whether all room is needed: the only domain has exactly what is required."""
        if len(candidates) > 1 or max(self.goal.units) > 1 or self.first < self.last:
            return False
        shared = self._holding(self.goal.must)
        is_only = len(shared) == 1 and self.capacities.high[self.goal.must][shared[0]] == self.first
        return bool(is_only and self.capacities.high[layer][candidates[0]] == self.first)

    def _take_all(self, layer: int, domain: int) -> Split:
        """Take all room in a domain, in the order in which it would be distributed."""
        tree, capacities, depth = self.tree, self.capacities, self.tree.depth
        free = capacities.free(depth)
        inside = np.flatnonzero((tree.domains_of(layer) == domain) & (free > 0))
        keys: list[Ints] = []
        for deeper in range(depth, layer, -1):
            here = tree.domains_of(deeper)[inside]
            keys += [tree.name_ranks(deeper)[here], -capacities.free(deeper)[here]]
            if capacities.near is not None:
                keys.append(-capacities.near[deeper][here])
        order = inside[np.lexsort(keys)] if keys else inside
        return Split(tuple(zip(tree.rows[order].tolist(), free[order].tolist(), strict=True)))

    def _find_lowest(self) -> tuple[int, Ints] | None:
        """Return the deepest layer with domains that can hold the gang as a whole, and those."""
        for layer in range(self.tree.depth, self.goal.must - 1, -1):
            domains = self._holding(layer)
            if domains.size:
                return layer, domains
        return None

    def _holding(self, layer: int) -> Ints:
        """Return the domains of a layer that can hold the fixed members and the new ones."""
        capacities, total = self.capacities, self.capacities.total_fixed
        fits = capacities.high[layer] >= self.first
        if total:
            fits &= np.equal(capacities.fixed[layer], total)
            # Completing multiples may take more members than there are.
            fits &= capacities.low[layer] <= self.last
        return np.flatnonzero(fits)

    def _weigh_all(self) -> tuple[int, Ints]:
        """Find the lowest common domains by the costs of all domains that may hold the gang."""
        start = self.goal.must
        candidates, cost = self._cheapest(start, self._holding(start))
        used = self._used(start, cost)
        layer = max(lower for lower in range(start, self.tree.depth + 1) if used[lower] <= 1)
        return layer, candidates if layer == start else self._holding(layer)

    def _order_below(self, layer: int) -> list[int]:
        return [lower for lower in self.goal.order if lower > layer]

    def _domain_costs(self, layer: int) -> DomainCosts:
        """Return costs that count the domains opened below a layer."""
        domain_costs = self._costs_below.get(layer)
        if domain_costs is None:
            most = self.last - self.capacities.total_fixed
            order = self._order_below(layer)
            values = [("opening", lower, min(most, self.tree.size(lower))) for lower in order]
            weights = make_weights(values, self.tree.depth)
            domain_costs = DomainCosts(
                self.tree, self.capacities, self.goal.units, weights, self._spend
            )
            self._costs_below[layer] = domain_costs
        return domain_costs

    def _opened(self, layer: int, cost: int) -> dict[int, int]:
        """Decode from a cost how many domains of each layer below ``layer`` are opened."""
        weights = self._domain_costs(layer).weights
        opened = {}
        for lower in self._order_below(layer):
            opened[lower], cost = divmod(cost, weights.opening[lower])
        return opened

    def _used(self, layer: int, cost: int) -> dict[int, int]:
        fixed = self.capacities.fixed
        used = dict.fromkeys(range(layer + 1), 1)
        for lower, count in self._opened(layer, cost).items():
            used[lower] = count + int(np.count_nonzero(fixed[lower]))
        return used

    def _first_in(self, layer: int, domain: int) -> int:
        """Return the least sufficient number of members that a domain can hold."""
        unit = self.goal.units[0]
        low = int(self.capacities.low[layer][domain])
        return max(self.first, -(-low // unit) * unit)

    def _cheapest(self, layer: int, candidates: Ints) -> tuple[Ints, int]:
        if layer == self.tree.depth:
            return candidates, 0
        costs = self._costs(layer, candidates)
        least = costs.min()
        return candidates[costs == least], int(least)

    def _costs(self, layer: int, candidates: Ints) -> Costs:
        domain_costs = self._domain_costs(layer)
        weights = domain_costs.weights
        if layer == self.tree.depth - 1 and not self.capacities.total_fixed:
            unit = self.goal.units[-1]
            room = self.capacities.high[-1] // unit
            parents = self.tree.domains_of(layer)
            number = fewest_nodes(parents, room, self.first // unit, self.tree.size(layer))
            if number is not None:
                return weights.times(number[candidates], weights.opening[-1])
        bounds = self._bounds(layer, candidates)
        costs = weights.zeros(len(candidates)) + weights.unreachable
        best = weights.unreachable
        for at in np.argsort(bounds, kind="stable").tolist():
            if bounds[at] > best:
                break
            domain = int(candidates[at])
            costs[at] = domain_costs.cost(layer, domain, self._first_in(layer, domain), self.last)
            best = min(best, int(costs[at]))
        return costs

    def _bounds(self, layer: int, candidates: Ints) -> Costs:
        """Return a lower bound of the cost of each candidate: with its largest domains only."""
        weights = self._domain_costs(layer).weights
        bounds = weights.zeros(len(candidates))
        if self.capacities.total_fixed or len(candidates) == 1:
            return bounds
        above = np.arange(self.tree.size(layer))
        for lower in range(layer + 1, self.tree.depth + 1):
            above = above[self.tree.parents_of(lower)]
            unit = self.goal.units[lower]
            room = self.capacities.high[lower] // unit
            number = fewest_nodes(above, room, -(-self.first // unit), self.tree.size(layer))
            if number is not None:
                bounds += weights.times(number[candidates], weights.opening[lower])
        return bounds

    def _fullest(self, layer: int, candidates: Ints, cost: int) -> tuple[int, Ints]:
        """Return the most members that fit at that cost, and the candidates that hold them."""
        if self.first == self.last:
            return self.first, candidates
        most = np.array([self._most_in(layer, domain, cost) for domain in candidates.tolist()])
        return int(most.max()), candidates[most == most.max()]

    def _most_in(self, layer: int, domain: int, cost: int) -> int:
        unit, low = self.goal.units[0], int(self.capacities.low[layer][domain])
        high = min(int(self.capacities.high[layer][domain]), self.last) // unit * unit
        if layer == self.tree.depth:
            return high
        costs = self._domain_costs(layer).of(layer, domain, self.last)
        while costs[(high - low) // self.goal.units[layer]] > cost:
            high -= unit
        return high

    def _tightest(self, layer: int, candidates: Ints) -> Ints:
        """Return the candidates with the most attracting pods, and of those with the least room."""
        for key in self._keys(layer):
            if len(candidates) == 1:
                break
            values = key[candidates]
            candidates = candidates[values == values.min()]
        return candidates

    def _tightest_within(
        self, costs: DomainCosts, layer: int, candidates: Ints, members: int
    ) -> Ints:
        """Return the candidate with the least room left in domains used below it, then by name."""
        ordered = candidates[np.argsort(self.tree.name_ranks(layer)[candidates])]
        if layer == self.tree.depth:
            return ordered[:1]
        best, least = ordered[0], -1
        seen: set[bytes] = set()
        for domain in ordered.tolist():
            if self._is_like_another(layer, domain, seen):
                continue
            cost = costs.cost(layer, domain, members, self.last)
            if least < 0 or cost < least:
                best, least = domain, cost
            if cost == self._least_cost(costs, layer, members):
                break
        return np.array([best])

    def _least_cost(self, costs: DomainCosts, layer: int, members: int) -> int:
        """Return the least cost that a split may have: no room left in any domain."""
        below = range(layer + 1, self.tree.depth + 1)
        openings = sum(costs.weights.opening[lower] * self._best_opened[lower] for lower in below)
        return openings + sum(costs.weights.leftover) * (members - self.capacities.total_fixed)

    def _is_like_another(self, layer: int, domain: int, seen: set[bytes]) -> bool:
        """Whether the nodes right below a domain offer the same as those of an earlier one."""
        if layer < self.tree.depth - 1:
            return False
        rooms = np.sort(self.capacities.high[-1][self.tree.members_of(layer, domain)])
        mark = rooms[rooms > 0].tobytes()
        is_known = mark in seen and not self.capacities.total_fixed
        seen.add(mark)
        return is_known

    def _keys(self, layer: int) -> Iterator[Ints]:
        """Yield the sort keys of domains of a layer, the most important first; less is better."""
        if self.first < self.last:
            yield -np.minimum(self._within_reach(layer), self.last)
        if self.capacities.near is not None:
            yield from (-values for values in self._own_and_above(layer, self.capacities.near))
        free = tuple(self.capacities.free(upper) for upper in range(layer + 1))
        yield from self._own_and_above(layer, free)

    def _within_reach(self, layer: int) -> Ints:
        """Return, per domain of a layer, the capacity of the required domain that it is in."""
        above = np.arange(len(self.capacities.high[layer]))
        for upper in range(layer, self.goal.must, -1):
            above = self.tree.parents_of(upper)[above]
        return self.capacities.high[self.goal.must][above]

    def _own_and_above(self, layer: int, values: Sequence[Ints]) -> Iterator[Ints]:
        """Yield, per domain of a layer, its own value, then that of its parent, and so on."""
        yield values[layer]
        above = self.tree.parents_of(layer) if layer else None
        for upper in range(layer - 1, 0, -1):
            yield values[upper][above]
            above = self.tree.parents_of(upper)[above]

    def _costs_of_split(self, layer: int, cost: int) -> DomainCosts:
        """Return costs that count the domains opened below a layer, then the room left in them."""
        opened = {} if layer == self.tree.depth else self._opened(layer, cost)
        free = [
            int(self.capacities.free(lower).max(initial=0)) for lower in range(self.tree.depth + 1)
        ]
        values = [("opening", lower, count) for lower, count in opened.items()]
        values += [("leftover", lower, opened[lower] * free[lower]) for lower in sorted(opened)]
        weights = make_weights(values, self.tree.depth)
        self._best_opened = opened
        return DomainCosts(self.tree, self.capacities, self.goal.units, weights, self._spend)


def find_insertion(
    tree: TopologyTree, request: SplitRequest, neighbours: Sequence[int]
) -> Split | None:
    """Return the node of one more member next to its neighbours by index, given as positions.

    The criteria are those of :func:`split`, with one more before the number of members: few
    *breaks*, layers at which it is in another domain than a neighbour, the top layer first.
    Multiples are not supported.
    """
    fixed, goal = request.fixed, request.goal
    if fixed is None:
        raise ValueError("an insertion needs placed members")
    capacities = measure_capacities(tree, request)
    candidates = request.offers > 0
    if goal.must:
        has_all = np.equal(capacities.fixed[goal.must], capacities.total_fixed)
        candidates &= has_all[tree.domains_of(goal.must)]
    positions = np.flatnonzero(candidates)
    if not positions.size:
        return None
    for key in _insertion_keys(tree, goal, capacities, neighbours):
        if len(positions) == 1:
            break
        values = key[positions]
        positions = positions[values == values.min()]
    return Split(((int(tree.rows[positions[0]]), 1),))


def _insertion_keys(
    tree: TopologyTree, goal: Goal, capacities: Capacities, neighbours: Sequence[int]
) -> Iterator[Ints]:
    """Yield the sort keys per position, the most important first; less is better."""
    domains = {layer: tree.domains_of(layer) for layer in range(1, tree.depth + 1)}
    is_new = {layer: capacities.fixed[layer][of] == 0 for layer, of in domains.items()}
    free = {layer: capacities.free(layer)[of] for layer, of in domains.items()}
    for layer in goal.order:
        yield is_new[layer].astype(np.int64)
    for of in domains.values():
        yield np.sum([of != of[neighbour] for neighbour in neighbours], axis=0)
    for layer in domains:
        yield np.where(is_new[layer], free[layer], 0)
    for layer, of in domains.items():
        if capacities.near is not None:
            yield -capacities.near[layer][of]
        yield -free[layer]
        yield tree.name_ranks(layer)[of]
