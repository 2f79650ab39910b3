"""How a gang of equal pods is split over the tree: the best way, or what every domain offers.

What counts, each before all that follow:

1. what must be: the number of members, one domain of the layer to be gathered, whole multiples;
2. few domains at the layers that are to be gathered if possible, the deepest of them first;
3. few domains at the other layers, the top one first;
4. many members, if there may be more than must be, and then room for more of them later on;
5. pods near by that draw the members to them;
6. little room left in the domains that are used: of those that hold the whole gang, in the lowest
   first, then in those above it; then in those below, the upper ones first;
7. large shares first, then names.

Points 2 and 3 decide how deep the lowest domain is that holds the whole gang, so its layer is found
first, then the domain, and only that one is split. Where a layer *below* that one is to be gathered
if possible, the layer does not follow from the offers alone and the costs of the whole tree decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from koord.core.topology.capacity import SplitRequest, fewest_nodes, measure
from koord.core.topology.distribution import Shares
from koord.core.topology.split_cost import Costs, SplitCosts, make_weights
from koord.core.topology.tree import Ints, TopologyTree


@dataclass(frozen=True, slots=True)
class Split:
    """A way to place members. ``shares`` holds (row, new members) in the order to be filled.

    ``layer`` and ``domain`` name the lowest domain that holds the whole gang.
    """

    shares: tuple[tuple[int, int], ...]
    layer: int
    domain: int


@dataclass(frozen=True, slots=True)
class NoSplit:
    """The gang does not fit: what the domains of the layer that it must share offer it.

    ``offers`` holds (domain, offer), all of them. ``is_multiple`` says that it would fit if
    multiples did not matter.
    """

    layer: int
    offers: tuple[tuple[int, int], ...]
    is_multiple: bool = False


def split(tree: TopologyTree, ask: SplitRequest) -> Split | NoSplit:
    """Find the best way to place between ``least`` and ``most`` equal pods."""
    found = _Search(tree, ask).run()
    if found is None:
        return _explain(tree, ask)
    return found


def count_used(tree: TopologyTree, positions: Ints) -> tuple[int, ...]:
    """Count, per layer, the domains of some positions in the rows of the tree."""
    inner = (tree.domains_of(layer)[positions] for layer in range(tree.depth))
    return tuple(len(set(domains.tolist())) for domains in (*inner, positions))


def explain_offers(tree: TopologyTree, ask: SplitRequest) -> NoSplit:
    """Say what every domain that may be shared offers, each node taken for itself."""
    layer = ask.goal.must
    free = measure(tree, ask).free(layer)
    offers = ((one, max(int(free[one]), 0)) for one in _domains(tree, layer).tolist())
    return NoSplit(layer, tuple(offers))


def _explain(tree: TopologyTree, ask: SplitRequest) -> NoSplit:
    is_multiple = max(ask.goal.units) > 1 and _Search(tree, _loosened(ask)).run() is not None
    return replace(explain_offers(tree, ask), is_multiple=is_multiple)


def _loosened(ask: SplitRequest) -> SplitRequest:
    goal = ask.goal.without_multiples()
    return SplitRequest(goal, ask.offers, ask.least, ask.most, ask.fixed, ask.near)


def _domains(tree: TopologyTree, layer: int) -> Ints:
    if layer == tree.depth:
        return np.arange(len(tree.rows))
    found = [one for one in range(tree.size(layer)) if tree.nodes_in(layer, one)]
    return np.array(found, dtype=np.int64)


class _Search:
    """One gang on one tree; numbers of members include fixed ones."""

    def __init__(self, tree: TopologyTree, ask: SplitRequest) -> None:
        self.tree = tree
        self.ask = ask
        self.goal = ask.goal
        self.measures = measure(tree, ask)
        self._profiles_below: dict[int, SplitCosts] = {}
        self._best_opened: dict[int, int] = {}
        fixed = self.measures.total_fixed
        unit = self.goal.units[0]
        self.first = -(-(fixed + max(ask.least, 1)) // unit) * unit
        self.last = (fixed + ask.most) // unit * unit

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
        profiles = self._profiles_of_split(layer, cost)
        if len(candidates) > 1:
            candidates = self._tightest_within(profiles, layer, candidates, members)
        return self._share_out(profiles, layer, int(candidates[0]), members)

    def _is_broken(self) -> bool:
        """Whether fixed members alone make a multiple impossible."""
        if not self.measures.total_fixed:
            return False
        pairs = zip(self.measures.low, self.measures.high, strict=True)
        return any(bool((low > high).any()) for low, high in pairs)

    def _is_all_needed(self, layer: int, candidates: Ints) -> bool:
        """Whether every place there is must be taken: the only domain has no more than is asked."""
        if len(candidates) > 1 or max(self.goal.units) > 1 or self.first < self.last:
            return False
        shared = self._holding(self.goal.must)
        is_only = len(shared) == 1 and self.measures.high[self.goal.must][shared[0]] == self.first
        return bool(is_only and self.measures.high[layer][candidates[0]] == self.first)

    def _take_all(self, layer: int, domain: int) -> Split:
        """Take every place in a domain, in the order in which they would be shared out."""
        tree, measures, depth = self.tree, self.measures, self.tree.depth
        free = measures.free(depth)
        of_node = np.arange(len(free)) if layer == depth else tree.domains_of(layer)
        inside = np.flatnonzero((of_node == domain) & (free > 0))
        keys: list[Ints] = []
        for one in range(depth, layer, -1):
            here = inside if one == depth else tree.domains_of(one)[inside]
            keys += [tree.name_ranks(one)[here], -measures.free(one)[here]]
            if measures.near is not None:
                keys.append(-measures.near[one][here])
        order = inside[np.lexsort(keys)] if keys else inside
        rows, counts = tree.rows[order].tolist(), free[order].tolist()
        return Split(tuple(zip(rows, counts, strict=True)), layer, domain)

    def _find_lowest(self) -> tuple[int, Ints] | None:
        """Return the deepest layer with domains that can hold the gang as a whole, and those."""
        for layer in range(self.tree.depth, self.goal.must - 1, -1):
            found = self._holding(layer)
            if found.size:
                return layer, found
        return None

    def _holding(self, layer: int) -> Ints:
        """Return the domains of a layer that can hold all members there are, and the new ones."""
        measures, total = self.measures, self.measures.total_fixed
        fits = measures.high[layer] >= self.first
        if total:
            fits &= np.equal(measures.fixed[layer], total)
            # What it must hold to complete multiples may be more than was asked for.
            fits &= measures.low[layer] <= self.last
        return np.flatnonzero(fits)

    def _weigh_all(self) -> tuple[int, Ints]:
        """Find the lowest common domains by the costs of everything that may hold the gang."""
        start = self.goal.must
        candidates, cost = self._cheapest(start, self._holding(start))
        used = self._used(start, cost)
        layer = max(one for one in range(start, self.tree.depth + 1) if used[one] <= 1)
        return layer, candidates if layer == start else self._holding(layer)

    def _order_below(self, layer: int) -> list[int]:
        return [one for one in self.goal.order if one > layer]

    def _profiles(self, layer: int) -> SplitCosts:
        """Return profiles that count opened domains below a layer."""
        known = self._profiles_below.get(layer)
        if known is None:
            most = self.last - self.measures.total_fixed
            order = self._order_below(layer)
            values = [("opening", one, min(most, self._size(one))) for one in order]
            weights = make_weights(values, self.tree.depth)
            known = SplitCosts(self.tree, self.measures, self.goal.units, weights)
            self._profiles_below[layer] = known
        return known

    def _size(self, layer: int) -> int:
        return len(self.tree.rows) if layer == self.tree.depth else self.tree.size(layer)

    def _opened(self, layer: int, cost: int) -> dict[int, int]:
        """Read from a cost how many domains of each layer below one are opened."""
        weights = self._profiles(layer).weights
        opened = {}
        for one in self._order_below(layer):
            opened[one], cost = divmod(cost, weights.opening[one])
        return opened

    def _used(self, layer: int, cost: int) -> dict[int, int]:
        """Return how many domains of each layer hold a member."""
        fixed = self.measures.fixed
        used = dict.fromkeys(range(layer + 1), 1)
        for one, count in self._opened(layer, cost).items():
            used[one] = count + int(np.count_nonzero(fixed[one]))
        return used

    def _first_in(self, layer: int, domain: int) -> int:
        """Return the least number of members that is enough and that a domain can hold."""
        unit = self.goal.units[0]
        low = int(self.measures.low[layer][domain])
        return max(self.first, -(-low // unit) * unit)

    def _cheapest(self, layer: int, candidates: Ints) -> tuple[Ints, int]:
        """Return the candidates that cost least, and the cost."""
        if layer == self.tree.depth:
            return candidates, 0
        costs = self._costs(layer, candidates)
        least = costs.min()
        return candidates[costs == least], int(least)

    def _costs(self, layer: int, candidates: Ints) -> Costs:
        profiles = self._profiles(layer)
        if layer == self.tree.depth - 1 and not self.measures.total_fixed:
            unit = self.goal.units[-1]
            room = self.measures.high[-1] // unit
            parents = self.tree.domains_of(layer)
            number = fewest_nodes(parents, room, self.first // unit, self.tree.size(layer))
            if number is not None:
                return profiles.weights.times(number[candidates], profiles.weights.opening[-1])
        bounds = self._bounds(layer, candidates)
        costs = profiles.weights.zeros(len(candidates)) + profiles.weights.unreachable
        best = profiles.weights.unreachable
        for at in np.argsort(bounds, kind="stable").tolist():
            if bounds[at] > best:
                break
            one = int(candidates[at])
            costs[at] = profiles.cost(layer, one, self._first_in(layer, one), self.last)
            best = min(best, int(costs[at]))
        return costs

    def _bounds(self, layer: int, candidates: Ints) -> Costs:
        """Return what each candidate costs at least: as many domains as the largest ones make."""
        weights = self._profiles(layer).weights
        bounds = weights.zeros(len(candidates))
        if self.measures.total_fixed or len(candidates) == 1:
            return bounds
        above = np.arange(self.tree.size(layer))
        for one in range(layer + 1, self.tree.depth + 1):
            above = above[self.tree.parents_of(one)]
            unit = self.goal.units[one]
            room = self.measures.high[one] // unit
            number = fewest_nodes(above, room, -(-self.first // unit), self.tree.size(layer))
            if number is not None:
                bounds += weights.times(number[candidates], weights.opening[one])
        return bounds

    def _fullest(self, layer: int, candidates: Ints, cost: int) -> tuple[int, Ints]:
        """Return the most members that can be held at that cost, and where they can."""
        if self.first == self.last:
            return self.first, candidates
        most = np.array([self._most_in(layer, one, cost) for one in candidates.tolist()])
        return int(most.max()), candidates[most == most.max()]

    def _most_in(self, layer: int, domain: int, cost: int) -> int:
        unit, low = self.goal.units[0], int(self.measures.low[layer][domain])
        high = min(int(self.measures.high[layer][domain]), self.last) // unit * unit
        if layer == self.tree.depth:
            return high
        profile = self._profiles(layer).of(layer, domain, self.last)
        while profile[(high - low) // self.goal.units[layer]] > cost:
            high -= unit
        return high

    def _tightest(self, layer: int, candidates: Ints) -> Ints:
        """Return the candidates with the most pods near by, and the least room of those."""
        for key in self._keys(layer):
            if len(candidates) == 1:
                break
            values = key[candidates]
            candidates = candidates[values == values.min()]
        return candidates

    def _tightest_within(
        self, profiles: SplitCosts, layer: int, candidates: Ints, members: int
    ) -> Ints:
        """Return the candidate with the least room left in what is used below it, then by name."""
        ordered = candidates[np.argsort(self.tree.name_ranks(layer)[candidates])]
        if layer == self.tree.depth:
            return ordered[:1]
        best, least = ordered[0], -1
        seen: set[bytes] = set()
        for one in ordered.tolist():
            if self._is_like_another(layer, one, seen):
                continue
            cost = profiles.cost(layer, one, members, self.last)
            if least < 0 or cost < least:
                best, least = one, cost
            if cost == self._least_cost(profiles, layer, members):
                break
        return np.array([best])

    def _least_cost(self, profiles: SplitCosts, layer: int, members: int) -> int:
        """Return what a split costs at least: no domain with room left in it."""
        below = range(layer + 1, self.tree.depth + 1)
        openings = sum(profiles.weights.opening[one] * self._best_opened[one] for one in below)
        return openings + sum(profiles.weights.leftover) * (members - self.measures.total_fixed)

    def _is_like_another(self, layer: int, domain: int, seen: set[bytes]) -> bool:
        """Whether the nodes right below a domain offer the same as those of one seen before."""
        if layer < self.tree.depth - 1:
            return False
        rooms = np.sort(self.measures.high[-1][self.tree.members_of(layer, domain)])
        mark = rooms[rooms > 0].tobytes()
        is_known = mark in seen and not self.measures.total_fixed
        seen.add(mark)
        return is_known

    def _keys(self, layer: int) -> Iterator[Ints]:
        """Yield what decides between domains of a layer first, per domain; less is better."""
        if self.first < self.last:
            yield -np.minimum(self._within_reach(layer), self.last)
        if self.measures.near is not None:
            yield from (-values for values in self._own_and_above(layer, self.measures.near))
        free = tuple(self.measures.free(one) for one in range(layer + 1))
        yield from self._own_and_above(layer, free)

    def _within_reach(self, layer: int) -> Ints:
        """Return, per domain of a layer, how many members may ever be placed along with it."""
        above = np.arange(len(self.measures.high[layer]))
        for one in range(layer, self.goal.must, -1):
            above = self.tree.parents_of(one)[above]
        return self.measures.high[self.goal.must][above]

    def _own_and_above(self, layer: int, values: Sequence[Ints]) -> Iterator[Ints]:
        """Yield, per domain of a layer, its own value, then that of its parent, and so on."""
        yield values[layer]
        above = self.tree.parents_of(layer) if layer else None
        for one in range(layer - 1, 0, -1):
            yield values[one][above]
            above = self.tree.parents_of(one)[above]

    def _profiles_of_split(self, layer: int, cost: int) -> SplitCosts:
        """Return profiles that count opened domains below a layer, and then the room left there."""
        opened = {} if layer == self.tree.depth else self._opened(layer, cost)
        free = [int(self.measures.free(one).max(initial=0)) for one in range(self.tree.depth + 1)]
        values = [("opening", one, count) for one, count in opened.items()]
        values += [("leftover", one, opened[one] * free[one]) for one in sorted(opened)]
        weights = make_weights(values, self.tree.depth)
        self._best_opened = opened
        return SplitCosts(self.tree, self.measures, self.goal.units, weights)

    def _share_out(self, profiles: SplitCosts, layer: int, domain: int, members: int) -> Split:
        """Split one domain at the least cost."""
        shares = Shares(profiles, self.last)
        shares.fill(layer, domain, members)
        rows = self.tree.rows
        return Split(tuple((int(rows[at]), count) for at, count in shares.found), layer, domain)
