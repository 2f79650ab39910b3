"""From what a domain holds to what each node holds: the way back through the profiles.

Among splits that cost the same, the first child takes as much as it can, then the second: children
with more pods near by come first, then those with more room, then by name.
"""

import numpy as np

from koord.core.topology.split_cost import Costs, Nodes, SplitCosts, combine
from koord.core.topology.tree import Ints


class Shares:
    """Collects (position in the rows of the tree, new members), in the order to be filled."""

    def __init__(self, profiles: SplitCosts, most: int) -> None:
        self.found: list[tuple[int, int]] = []
        self._profiles = profiles
        self._measures = profiles.measures
        self._most = most

    def fill(self, layer: int, domain: int, members: int) -> None:
        """Give a domain so many members, which must be a number that it can hold."""
        depth = self._profiles.tree.depth
        if layer == depth:
            self._give(domain, members - int(self._measures.fixed[-1][domain]))
            return
        below = self._profiles.below(layer, domain)
        low = int(self._measures.low[layer + 1][below].sum())
        units = (members - low) // self._profiles.units[layer + 1]
        if layer + 1 == depth:
            self._fill_nodes(below, units)
        else:
            self._fill_domains(layer + 1, below, units)

    def _give(self, position: int, members: int) -> None:
        if members:
            self.found.append((position, members))

    def _order(self, layer: int, domains: Ints) -> Ints:
        keys = [self._profiles.tree.name_ranks(layer)[domains]]
        keys.append(-self._measures.free(layer)[domains])
        if self._measures.near is not None:
            keys.append(-self._measures.near[layer][domains])
        return domains[np.lexsort(keys)]

    def _fill_domains(self, layer: int, domains: Ints, units: int) -> None:
        """Split units, beyond the least that each must hold, over domains of a layer."""
        ordered = self._order(layer, domains).tolist()
        profiles = [self._profiles.of(layer, one, self._most) for one in ordered]
        costs = self._profiles.weights.zeros(units + 1)
        costs[1:] = self._profiles.weights.unreachable
        suffixes = [costs]
        for profile in reversed(profiles):
            suffixes.append(combine(suffixes[-1], profile))
        suffixes.reverse()
        for domain, profile, whole, rest in zip(
            ordered, profiles, suffixes, suffixes[1:], strict=False
        ):
            share = _largest(profile, int(whole[units]), rest, units)
            units -= share
            low = int(self._measures.low[layer][domain])
            members = low + share * self._profiles.units[layer]
            if members:
                self.fill(layer, domain, members)

    def _fill_nodes(self, positions: Ints, units: int) -> None:
        """Split units over nodes: open ones take all that they can, then those that fit best."""
        nodes = self._profiles.nodes(self._order(self._profiles.tree.depth, positions))
        chosen = self._choose_nodes(nodes, max(units - nodes.open_room, 0))
        unit = self._profiles.units[-1]
        for position, room, is_open in zip(
            nodes.positions.tolist(), nodes.room.tolist(), nodes.is_open.tolist(), strict=True
        ):
            if not units and not self._measures.total_fixed:
                break
            share = 0
            if is_open or chosen.get(room, 0):
                share = min(room, units)
                units -= share
            if not is_open and share:
                chosen[room] -= 1
            low = int(self._measures.low[-1][position] - self._measures.fixed[-1][position])
            self._give(position, low + share * unit)

    def _choose_nodes(self, nodes: Nodes, units: int) -> dict[int, int]:
        """Return how many nodes of which room are opened."""
        sizes, counts = nodes.classes()
        if not units or not sizes:
            return {}
        if len(sizes) == 1:
            return {sizes[0]: -(-units // sizes[0])}
        suffixes = nodes.suffixes(sizes, counts, units + 1, self._profiles.weights)
        chosen: dict[int, int] = {}
        for at, (room, count) in enumerate(zip(sizes, counts, strict=True)):
            price = nodes.opening + nodes.step * room
            whole, rest = int(suffixes[at][units]), suffixes[at + 1]
            taken = min(count, -(-units // room))
            while int(rest[max(units - taken * room, 0)]) + taken * price != whole:
                taken -= 1
            chosen[room] = taken
            units = max(units - taken * room, 0)
        return chosen


def _largest(profile: Costs, whole: int, rest: Costs, units: int) -> int:
    """Return the most units that a child can take at the least cost of the whole."""
    most = min(len(profile) - 1, units)
    with_rest = profile[: most + 1] + rest[units - most : units + 1][::-1]
    return int(np.flatnonzero(with_rest == whole)[-1])
