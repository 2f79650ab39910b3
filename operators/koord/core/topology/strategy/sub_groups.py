"""Places gangs with sub-groups: each sub-group in a domain of its own, inside that of its parent.

Sub-groups are placed from the top of their tree down. One that asks for a layer tries its domains,
the ones with the least room first, and within each of them what is below it, the largest first; the
lowest sub-groups are split exactly. The number of domains that are tried is bounded, so a way may
be missed in principle, and the refusal counts those that were not tried; equal sub-groups of equal
pods are always placed if they can be. Multiples hold within each sub-group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.framework.cycle import Cycle
from koord.core.gang.reasons import GangCount, MissingMembers
from koord.core.gang.sub_group_tree import ROOT, SubGroupTree
from koord.core.plan import Assignment, Demand
from koord.core.pods import PodShape
from koord.core.reasons import Reason
from koord.core.topology.capacity import sum_up
from koord.core.topology.reasons import MultipleNotMet, NoDomainFits
from koord.core.topology.tree import Ints, TopologyTree
from koord.core.topology_constraint import (
    GatherStrategy,
    LayerConstraint,
    PlacedMember,
    TopologyConstraint,
)

MOST_DOMAINS: Final = 24
"""How many domains are tried for a sub-group that others are part of: the roomiest is the last."""
MOST_FAILED: Final = 10 * MOST_DOMAINS
"""After so many in vain, only the roomiest one is tried of any further sub-group."""


@dataclass(frozen=True, slots=True)
class SubGroupRequest:
    """The members of one sub-group, where they may go, and who of them is there already."""

    demand: Demand
    wish: TopologyConstraint
    within: Mask
    siblings: Sequence[PlacedMember]
    takes_more: bool
    """Whether to place as many as there is room for, and not just those that are required."""


PlaceOne = Callable[[SubGroupRequest], "list[Assignment] | Reason"]
"""Places members of one sub-group."""


@dataclass(slots=True)
class SubGroupPlacer:
    """The demands of one gang with sub-groups on their way to their places."""

    snapshot: Cycle
    tree: TopologyTree
    nest: SubGroupTree
    wish: TopologyConstraint
    siblings: Sequence[PlacedMember]
    place_one: PlaceOne
    left_over: dict[str, Reason] = field(default_factory=dict)
    is_settled: bool = False
    """Whether all that is required has its place, so that others may have what is left."""
    _before: Sequence[PlacedMember] = ()
    _failed: int = 0
    """Domains that were tried in vain."""

    def __post_init__(self) -> None:
        self._before = self.siblings

    def place(self, demands: Sequence[Demand]) -> list[Assignment] | Reason:
        """Place what is required of all; then each of the other sub-groups, whole."""
        for demand in demands:
            if demand.required > len(demand.pods):
                return self._tell_missing(demand)
        everywhere = np.ones(len(self.tree.rows), dtype=np.bool_)
        needed = {one.sub_group: one for one in demands if one.required}
        placed = self._place_group(ROOT, everywhere, needed)
        if not isinstance(placed, list):
            return placed
        self.is_settled = True
        for demand in demands:
            placed += self._place_more(demand, everywhere, placed)
        return placed

    def _tell_missing(self, demand: Demand) -> MissingMembers:
        name = f"{demand.gang}/{demand.sub_group}"
        return MissingMembers((GangCount(name, len(demand.pods), demand.required),))

    def _place_more(
        self, demand: Demand, everywhere: Mask, placed: Sequence[Assignment]
    ) -> list[Assignment]:
        """Place members that are not required, at least as many as are of use."""
        has_place = {one.pod.uid for one in placed}
        rest = tuple(pod for pod in demand.pods if pod.uid not in has_place)
        if not rest:
            return []
        least = 1 if demand.required else max(demand.least, 1)
        wanted = replace(demand, pods=rest, required=least)
        mark = self.snapshot.checkpoint()
        self.siblings = [*self._before, *map(_sibling_of, placed)]
        found: list[Assignment] | Reason = (
            self._tell_missing(wanted)
            if wanted.required > len(wanted.pods)
            else self._place_group(ROOT, everywhere, {demand.sub_group: wanted})
        )
        if isinstance(found, list):
            return found
        self.snapshot.rollback(mark)
        self.left_over |= {pod.uid: found for pod in rest}
        return []

    def _place_group(
        self, name: str, within: Mask, needed: dict[str, Demand]
    ) -> list[Assignment] | Reason:
        """Place a sub-group and all below it, in one domain of the layer that it asks for."""
        parts = self._parts(name, needed)
        if not parts:
            return []
        layer = self._layer_of(name)
        if parts == [name]:
            return self._place_own(name, layer, within, needed[name])
        refusal: Reason | None = None
        domains, untried = self._domains(name, layer, within, needed)
        for domain in domains:
            mark = self.snapshot.checkpoint()
            placed = self._place_parts(parts, name, domain, needed)
            if isinstance(placed, list):
                return placed
            self.snapshot.rollback(mark)
            self._failed += 1
            refusal = refusal or placed
        if refusal is None:
            # No domain has room for all: say what they offer to the members, taken together.
            demands = self._demands_in(name, needed)
            together = [pod for one in demands for pod in one.pods[: one.required]]
            whole = replace(demands[0], pods=tuple(together), required=len(together))
            refused = self._place_own(name, layer, within, whole)
            if not isinstance(refused, list):
                return refused
            raise AssertionError("a domain that holds all of a sub-group was not tried")
        return _count_untried(refusal, untried)

    def _place_parts(
        self, parts: Sequence[str], name: str, domain: Mask, needed: dict[str, Demand]
    ) -> list[Assignment] | Reason:
        placed: list[Assignment] = []
        for part in parts:
            found = (
                self._place_own(part, 0, domain, needed[part])
                if part == name
                else self._place_group(part, domain, needed)
            )
            if not isinstance(found, list):
                return found
            placed += found
        return placed

    def _place_own(
        self, name: str, layer: int, within: Mask, demand: Demand
    ) -> list[Assignment] | Reason:
        asked = self.wish.layers
        if layer:
            shared = self.tree.layers[layer]
            own = LayerConstraint(shared, GatherStrategy.MUST, self.wish.multiples.get(shared, 1))
            asked = (*(one for one in asked if one.layer != shared), own)
        wish = TopologyConstraint(asked, self.wish.topology)
        ask = SubGroupRequest(demand, wish, within, self._living(name), takes_more=self.is_settled)
        return self.place_one(ask)

    def _layer_of(self, name: str) -> int:
        """Return the layer that a sub-group must share, 0 for none; for the gang, its own wish."""
        if name != ROOT:
            return self.tree.index_of(self.nest.by_name[name].layer) or 0
        must = (self.tree.index_of(one) or 0 for one in self.wish.layers_with(GatherStrategy.MUST))
        return max(must, default=0)

    def _parts(self, name: str, needed: dict[str, Demand]) -> list[str]:
        """Return what is to be placed in a sub-group: parts of it, the largest first, then it."""
        sizes = {
            one.name: sum(len(demand.pods) for demand in self._demands_in(one.name, needed))
            for one in self.nest.below[name]
        }
        parts = [part for part, size in sizes.items() if size]
        parts.sort(key=lambda part: -sizes[part])
        return [*parts, *([name] if name in needed else [])]

    def _demands_in(self, name: str, needed: dict[str, Demand]) -> list[Demand]:
        own = [needed[name]] if name in needed else []
        parts = (self._demands_in(one.name, needed) for one in self.nest.below[name])
        return own + [demand for part in parts for demand in part]

    def _living(self, name: str) -> list[PlacedMember]:
        """Return the members of a sub-group, and of those below it, that have their place."""
        names = self.nest.names_in(name)
        return [one for one in self.siblings if self.nest.home_of(one.sub_group) in names]

    def _domains(
        self, name: str, layer: int, within: Mask, needed: dict[str, Demand]
    ) -> tuple[list[Mask], int]:
        """Return the nodes of domains that may hold a sub-group, and how many are left out.

        Those with the least room come first; the last is the one with the most.
        """
        if not layer:
            return [within], 0
        of_node = (
            np.arange(len(self.tree.rows))
            if layer == self.tree.depth
            else self.tree.domains_of(layer)
        )
        allowed = self._homes(name, of_node)
        fits: Mask | None = None
        room = np.zeros(0, dtype=np.int64)
        for shape, count in self._shapes(name, needed).items():
            offers = np.where(within, self.snapshot.possible_room(shape)[self.tree.rows], 0)
            sums = sum_up(self.tree, np.minimum(offers, count))[layer]
            fits = sums >= count if fits is None else fits & (sums >= count)
            room = room + sums if room.size else sums
        found = np.flatnonzero(fits) if fits is not None else np.arange(0)
        if allowed is not None:
            found = found[np.isin(found, allowed)]
        order = np.lexsort((self.tree.name_ranks(layer)[found], room[found]))
        ranked = found[order].tolist()
        most = MOST_DOMAINS if self._failed < MOST_FAILED else 1
        chosen = ranked if len(ranked) <= most else [*ranked[: most - 1], ranked[-1]]
        return [within & np.equal(of_node, one) for one in chosen], len(ranked) - len(chosen)

    def _homes(self, name: str, of_node: Ints) -> Ints | None:
        """Return the domain that a sub-group is in already, none if its members are apart.

        None stands for a sub-group without members.
        """
        rows = [self.snapshot.table.row_of.get(one.node) for one in self._living(name)]
        known = {row for row in rows if row is not None}
        inside = np.isin(self.tree.rows, list(known))
        if not known:
            return None
        found = np.unique(of_node[inside])
        is_apart = len(found) > 1 or np.count_nonzero(inside) < len(known)
        return found[:0] if is_apart else found

    def _shapes(self, name: str, needed: dict[str, Demand]) -> dict[PodShape, int]:
        counts: dict[PodShape, int] = {}
        for demand in self._demands_in(name, needed):
            for pod in demand.pods[: demand.required]:
                shape = self.snapshot.shape_of(pod)
                counts[shape] = counts.get(shape, 0) + 1
        return counts


def _count_untried(refusal: Reason, untried: int) -> Reason:
    if isinstance(refusal, NoDomainFits | MultipleNotMet):
        return replace(refusal, untried=refusal.untried + untried)
    return refusal


def _sibling_of(one: Assignment) -> PlacedMember:
    pod = one.pod
    return PlacedMember(one.node, pod.index, pod.name, pod.sub_group)
