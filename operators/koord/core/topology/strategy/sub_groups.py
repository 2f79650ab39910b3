"""Places gangs with sub-groups: each sub-group in a domain of its own, inside that of its parent.

Sub-groups are placed from the top of their tree down. One that must share a domain tries those with
the least room first, and within each of them places the sub-groups below it, the largest first; the
lowest sub-groups are split exactly. The number of tries is limited, so a placement may be missed,
and the refusal counts the domains that were not tried; equal sub-groups of equal pods are always
placed if they can be. Multiples apply to each sub-group by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from koord.core.engine.arrays import MAX_DOMAINS, Ints, Mask, choose_tightest
from koord.core.engine.cycle import Cycle
from koord.core.gang.reasons import GangCount, MissingMembers
from koord.core.model.gangs import ROOT, SubGroupTree
from koord.core.model.plan import Assignment, Demand
from koord.core.model.pods import PodShape
from koord.core.model.reasons import Reason
from koord.core.model.topology_constraint import (
    GatherStrategy,
    LayerConstraint,
    PlacedMember,
    TopologyConstraint,
)
from koord.core.topology.capacity import sum_up
from koord.core.topology.reasons import MultipleNotMet, NoDomainFits
from koord.core.topology.strategy.domain_placer import as_member
from koord.core.topology.tree import TopologyTree

MAX_FAILED: Final = 10 * MAX_DOMAINS
"""After this many failed domains, only the one with the most room is tried of each sub-group."""


@dataclass(frozen=True, slots=True)
class SubGroupRequest:
    """The members of one sub-group to place, the nodes allowed, and its members placed already.

    ``with_surplus``: place as many as there is room for, not just those that are required.
    """

    demand: Demand
    constraint: TopologyConstraint
    within: Mask
    placed: Sequence[PlacedMember]
    with_surplus: bool


PlaceSubGroup = Callable[[SubGroupRequest], "list[Assignment] | Reason"]


@dataclass(slots=True)
class SubGroupPlacer:
    """Places the demands of one gang with sub-groups; ``placed`` holds its members on nodes."""

    cycle: Cycle
    tree: TopologyTree
    sub_groups: SubGroupTree
    constraint: TopologyConstraint
    placed: Sequence[PlacedMember]
    place_sub_group: PlaceSubGroup
    left_over: dict[str, Reason] = field(default_factory=dict)
    """uid of a surplus pod -> why it was not placed."""
    _has_required: bool = False
    """Whether all that is required is placed, so that surplus may be."""
    _failed: int = 0

    def place(self, demands: Sequence[Demand]) -> list[Assignment] | Reason:
        """Place what is required of all, then the surplus."""
        for demand in demands:
            if demand.required > len(demand.pods):
                return _missing_members(demand)
        everywhere = np.ones(len(self.tree.rows), dtype=np.bool_)
        required = {demand.sub_group: demand for demand in demands if demand.required}
        placed = self._place_group(ROOT, everywhere, required)
        if not isinstance(placed, list):
            return placed
        self._has_required = True
        before = self.placed
        for demand in demands:
            self.placed = [*before, *map(as_member, placed)]
            placed += self._place_surplus(
                demand, everywhere, {assignment.pod.uid for assignment in placed}
            )
        return placed

    def _place_surplus(
        self, demand: Demand, everywhere: Mask, placed: set[str]
    ) -> list[Assignment]:
        """Place members that are not required."""
        surplus = tuple(pod for pod in demand.pods if pod.uid not in placed)
        if not surplus:
            return []
        wanted = replace(demand, pods=surplus, required=1)
        mark = self.cycle.checkpoint()
        reason = self._place_group(ROOT, everywhere, {demand.sub_group: wanted})
        if isinstance(reason, list):
            return reason
        self.cycle.rollback(mark)
        self.left_over |= {pod.uid: reason for pod in surplus}
        return []

    def _place_group(
        self, name: str, within: Mask, demands: Mapping[str, Demand]
    ) -> list[Assignment] | Reason:
        """Place a sub-group and all below it, in one domain of its layer."""
        parts = self._order_parts(name, demands)
        if not parts:
            return []
        layer = self._layer_of(name)
        if parts == [name]:
            return self._place_own(name, layer, within, demands[name])
        refusal: Reason | None = None
        domains, untried = self._choose_domains(name, layer, within, demands)
        for domain in domains:
            mark = self.cycle.checkpoint()
            placed = self._place_parts(parts, name, domain, demands)
            if isinstance(placed, list):
                return placed
            self.cycle.rollback(mark)
            self._failed += 1
            refusal = refusal or placed
        if refusal is None:
            # No domain has room for all: report what they offer to the members together.
            inside = self._demands_in(name, demands)
            pods = tuple(pod for demand in inside for pod in demand.pods[: demand.required])
            whole = replace(inside[0], pods=pods, required=len(pods))
            refused = self._place_own(name, layer, within, whole)
            if not isinstance(refused, list):
                return refused
            raise AssertionError("a domain that holds all of a sub-group was not tried")
        if isinstance(refusal, NoDomainFits | MultipleNotMet):
            return replace(refusal, untried=refusal.untried + untried)
        return refusal

    def _place_parts(
        self, parts: Sequence[str], name: str, domain: Mask, demands: Mapping[str, Demand]
    ) -> list[Assignment] | Reason:
        placed: list[Assignment] = []
        for part in parts:
            reason = (
                self._place_own(part, 0, domain, demands[part])
                if part == name
                else self._place_group(part, domain, demands)
            )
            if not isinstance(reason, list):
                return reason
            placed += reason
        return placed

    def _place_own(
        self, name: str, layer: int, within: Mask, demand: Demand
    ) -> list[Assignment] | Reason:
        """Place members in one domain of a layer."""
        layers = self.constraint.layers
        if layer:
            shared = self.tree.layers[layer]
            multiple = self.constraint.multiples.get(shared, 1)
            other_constraints = (
                layer_constraint for layer_constraint in layers if layer_constraint.layer != shared
            )
            layers = (*other_constraints, LayerConstraint(shared, GatherStrategy.MUST, multiple))
        constraint = TopologyConstraint(layers, self.constraint.topology)
        placed = self._placed_in(name)
        return self.place_sub_group(
            SubGroupRequest(demand, constraint, within, placed, with_surplus=self._has_required)
        )

    def _layer_of(self, name: str) -> int:
        """Return the layer that a sub-group must share, 0 for none."""
        if name != ROOT:
            return self.tree.index_of(self.sub_groups.by_name[name].layer) or 0
        must = self.constraint.layers_with(GatherStrategy.MUST)
        return max((self.tree.index_of(name) or 0 for name in must), default=0)

    def _order_parts(self, name: str, demands: Mapping[str, Demand]) -> list[str]:
        """Return the parts of a sub-group with demands, the largest first, then itself."""
        sizes = {
            sub_group.name: sum(
                len(demand.pods) for demand in self._demands_in(sub_group.name, demands)
            )
            for sub_group in self.sub_groups.below[name]
        }
        parts = sorted(
            (part for part, size in sizes.items() if size), key=lambda part: -sizes[part]
        )
        return [*parts, *([name] if name in demands else [])]

    def _demands_in(self, name: str, demands: Mapping[str, Demand]) -> list[Demand]:
        own = [demands[name]] if name in demands else []
        parts = (
            self._demands_in(sub_group.name, demands) for sub_group in self.sub_groups.below[name]
        )
        return own + [demand for part in parts for demand in part]

    def _placed_in(self, name: str) -> list[PlacedMember]:
        """Return the placed members of a sub-group and of those below it."""
        return [
            placed_member
            for placed_member in self.placed
            if self.sub_groups.is_in(placed_member.sub_group, name)
        ]

    def _choose_domains(
        self, name: str, layer: int, within: Mask, demands: Mapping[str, Demand]
    ) -> tuple[list[Mask], int]:
        """Return the nodes of domains that may hold a sub-group, and how many are left out."""
        if not layer:
            return [within], 0
        of_position = self.tree.domains_of(layer)
        fits = self._allowed_domains(name, layer)
        room: Ints = np.zeros(self.tree.size(layer), dtype=np.int64)
        for shape, count in self._shapes(name, demands).items():
            reach = np.where(within, self.cycle.possible_room(shape)[self.tree.rows], 0)
            sums = sum_up(self.tree, np.minimum(reach, count))[layer]
            fits &= sums >= count
            room = room + sums
        most = MAX_DOMAINS if self._failed < MAX_FAILED else 1
        ranks = self.tree.name_ranks(layer)
        chosen, untried = choose_tightest(fits, room, ranks, most, with_roomiest=True)
        return [within & np.equal(of_position, domain) for domain in chosen], untried

    def _allowed_domains(self, name: str, layer: int) -> Mask:
        """Return the domain of the placed members, none if they share none; all without any."""
        allowed = np.ones(self.tree.size(layer), dtype=np.bool_)
        row_of = self.cycle.table.row_of
        rows = {
            row_of[placed_member.node]
            for placed_member in self._placed_in(name)
            if placed_member.node in row_of
        }
        if not rows:
            return allowed
        inside = [row for row in rows if row in self.tree]
        domains = np.unique(self.tree.domains_of(layer)[self.tree.positions_of(inside)])
        allowed[:] = False
        if len(domains) == 1 and len(inside) == len(rows):
            allowed[domains] = True
        return allowed

    def _shapes(self, name: str, demands: Mapping[str, Demand]) -> dict[PodShape, int]:
        counts: dict[PodShape, int] = {}
        for demand in self._demands_in(name, demands):
            for pod in demand.pods[: demand.required]:
                shape = self.cycle.shape_of(pod)
                counts[shape] = counts.get(shape, 0) + 1
        return counts


def _missing_members(demand: Demand) -> MissingMembers:
    name = f"{demand.gang}/{demand.sub_group}"
    return MissingMembers((GangCount(name, len(demand.pods), demand.required),))
