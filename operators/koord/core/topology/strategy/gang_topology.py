"""The strategy of the planner for gangs with topology constraints.

Each constraint of a unit is met by itself; all gangs of the group with the same constraint are
placed together. Required members are placed first; surplus ones join them where that opens no new
domain, and then wherever the constraint allows. A constraint that cannot be met refuses the whole
unit, with the offers of the domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import PlaceRecorded, StrategyResult
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.shortage import explain_shortage
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Assignment, Demand, ObservedTopology, Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.topology_constraint import GatherStrategy, PlacedMember, TopologyConstraint
from koord.core.topology.capacity import Goal, make_goal
from koord.core.topology.reasons import (
    DomainOffer,
    MembersApart,
    MissingTopology,
    MultipleNotMet,
    NoDomainFits,
    UnknownLayer,
)
from koord.core.topology.solve import NoSplit
from koord.core.topology.strategy.domain_placer import DomainPlacer, as_member, sort_members
from koord.core.topology.strategy.heterogeneous import (
    HeterogeneousPlacement,
    find_bound,
    find_gap,
    place_heterogeneous,
)
from koord.core.topology.strategy.sub_groups import SubGroupPlacer, SubGroupRequest
from koord.core.topology.strategy.topology_view import ATTRACTED, TopologyView
from koord.core.topology.tree import TopologyTree

MAX_OFFERS: Final = 5
"""Domains that a refusal names."""


@dataclass(frozen=True, slots=True)
class TopologyShare:
    """The demands of one unit that have topology constraints, by constraint."""

    strategy: "TopologyStrategy"
    by_constraint: dict[TopologyConstraint, list[Demand]]

    @property
    def demands(self) -> list[Demand]:
        return [demand for demands in self.by_constraint.values() for demand in demands]

    @property
    def is_required(self) -> bool:
        """Pods that are only attracted by others may be placed anywhere."""
        return any(
            topology_constraint.layers or topology_constraint.gang
            for topology_constraint in self.by_constraint
        )

    def place(self) -> StrategyResult | Reason:
        return self.strategy.place(self.by_constraint)


class TopologyStrategy:
    """Places the gangs of one planning cycle; later ones see where earlier ones went.

    ``placed`` holds, by gang, the members that were placed in this cycle.
    """

    def __init__(
        self,
        cycle: Cycle,
        view: TopologyView,
        place_recorded: PlaceRecorded,
        placed: dict[GangKey, list[PlacedMember]],
    ) -> None:
        self._cycle = cycle
        self._view = view
        self._place_recorded = place_recorded
        self._placed = placed

    def divide(self, unit: Unit) -> TopologyShare | None:
        """Return the demands of a unit that this strategy places; None for none."""
        divided: dict[TopologyConstraint, list[Demand]] = {}
        for demand in unit.demands:
            constraint = self._view.required_constraint_of(demand.gang)
            if constraint is None and self._is_attracted(demand):
                constraint = ATTRACTED
            if constraint is not None:
                divided.setdefault(constraint, []).append(demand)
        return TopologyShare(self, divided) if divided else None

    def _is_attracted(self, demand: Demand) -> bool:
        selectors = {pod.attraction for pod in demand.pods}
        has_tree = self._view.topologies.tree(ATTRACTED.topology) is not None
        return has_tree and len(selectors) == 1 and bool(self._view.attracting_pods(*selectors))

    def place(self, divided: dict[TopologyConstraint, list[Demand]]) -> StrategyResult | Reason:
        """Place demands by constraint; the caller rolls back a refusal."""
        assignments: list[Assignment] = []
        topologies: list[ObservedTopology] = []
        left_over: dict[str, Reason] = {}
        for constraint, demands in divided.items():
            placed = self._placed_members_of(demands[0].gang)
            place = self._place_sub_groups if constraint.gang else self._place_together
            met = place(constraint, demands, placed)
            if not isinstance(met, StrategyResult):
                return met
            if not met.assignments and met.left_over:
                return next(iter(met.left_over.values()))
            assignments += met.assignments
            topologies += met.details
            left_over |= met.left_over
        return StrategyResult(assignments, tuple(topologies), left_over)

    def _placed_members_of(self, gang: GangKey) -> list[PlacedMember]:
        members = list(self._view.placed_members_of(gang))
        if self._placed:
            # The started gangs of a group are another unit than those that wait.
            for name in self._view.placed_with(gang):
                members += self._placed.get(name, ())
        return members

    def confirm(self, unit: Unit, placed: Sequence[Assignment]) -> None:
        """Remember where members went, for units of the same group that are decided later."""
        gangs = {
            demand.gang
            for demand in unit.demands
            if self._view.required_constraint_of(demand.gang) is not None
        }
        for assignment in placed:
            if assignment.pod.gang is not None and assignment.pod.gang.key in gangs:
                members = self._placed.setdefault(assignment.pod.gang.key, [])
                members.append(as_member(assignment))
                self._cycle.undo.push(members.pop)

    def _place_together(
        self, constraint: TopologyConstraint, demands: list[Demand], placed: list[PlacedMember]
    ) -> StrategyResult | Reason:
        placer = self._make_placer(constraint, placed)
        if isinstance(placer, UnknownLayer):
            pods = [pod for demand in demands for pod in demand.pods]
            want = max(sum(demand.required for demand in demands), 1)
            return replace(placer, shortage=_explain_full_nodes(self._cycle, pods, want, 0))
        if not isinstance(placer, DomainPlacer):
            return placer
        attempt = _ConstraintAttempt(placer, constraint, demands, self._place_recorded)
        refusal = attempt.find_apart() or attempt.place_required()
        if refusal is not None:
            return refusal
        left_over = attempt.place_surplus()
        where = placer.observe(constraint.topology, attempt.find_gap())
        return StrategyResult(attempt.assignments, (where,) if where else (), left_over)

    def _place_sub_groups(
        self, constraint: TopologyConstraint, demands: list[Demand], placed: list[PlacedMember]
    ) -> StrategyResult | Reason:
        view, topology = self._view, constraint.topology
        sub_groups, tree = view.sub_groups_of(constraint.gang), view.topologies.tree(topology)
        if sub_groups is None or tree is None:
            return MissingTopology(topology, exists=topology in view.topologies)
        layers = {group.layer for group in sub_groups.groups if group.layer}
        layers |= constraint.layers_with(GatherStrategy.MUST)
        if unknown := layers - set(tree.layers):
            return UnknownLayer(topology, tuple(sorted(unknown)), tree.layers[1:])
        goal = _preferred_goal(constraint, tree)
        placer = DomainPlacer(self._cycle, self._view, tree, goal, placed)
        required = [pod for demand in demands for pod in demand.pods[: demand.required]]
        bound = find_bound(placer, _by_shape(self._cycle, required)) if required else ()
        of_gang = SubGroupPlacer(
            self._cycle, tree, sub_groups, constraint, placed, self._place_sub_group
        )
        reason = of_gang.place(demands)
        if not isinstance(reason, list):
            return reason
        placer.add(map(as_member, reason))
        least = (1,) * tree.depth if isinstance(bound, NoSplit) or not bound else bound
        used = placer.used()
        gap = find_gap(placer, tuple(used[layer] for layer in goal.order), least)
        where = placer.observe(topology, gap)
        return StrategyResult(reason, (where,) if where else (), of_gang.left_over)

    def _place_sub_group(self, request: SubGroupRequest) -> list[Assignment] | Reason:
        """Place the members of one sub-group in some nodes."""
        placer = self._make_placer(request.constraint, request.placed)
        if not isinstance(placer, DomainPlacer):
            return placer
        placer.allowed = request.within
        demand = request.demand
        if not request.with_surplus:
            demand = replace(demand, pods=demand.pods[: demand.required])
        attempt = _ConstraintAttempt(placer, request.constraint, [demand], self._place_recorded)
        refusal = attempt.find_apart() or attempt.place_required()
        if refusal is not None:
            return refusal
        if request.with_surplus:
            attempt.place_surplus()
        return attempt.assignments

    def _make_placer(
        self, constraint: TopologyConstraint, placed: Sequence[PlacedMember]
    ) -> DomainPlacer | Reason:
        topologies = self._view.topologies
        tree = topologies.tree(constraint.topology)
        if tree is None:
            return MissingTopology(constraint.topology, exists=constraint.topology in topologies)
        goal = make_goal(constraint, tree.layers)
        if isinstance(goal, frozenset):
            return UnknownLayer(constraint.topology, tuple(sorted(goal)), tree.layers[1:])
        return DomainPlacer(self._cycle, self._view, tree, goal, placed)


class _ConstraintAttempt:
    """One attempt to meet a constraint: first the required members of its demands, then more."""

    def __init__(
        self,
        placer: DomainPlacer,
        constraint: TopologyConstraint,
        demands: Sequence[Demand],
        place_recorded: PlaceRecorded,
    ) -> None:
        self.assignments: list[Assignment] = []
        self._placer = placer
        self._constraint = constraint
        self._gap: tuple[str, int] | None = None
        self._demands = [self._place_released(demand, place_recorded) for demand in demands]

    def _place_released(self, demand: Demand, place_recorded: PlaceRecorded) -> Demand:
        """Place released members on their recorded nodes; return what is left of a demand."""
        kept = [
            assignment for pod in demand.pods if (assignment := place_recorded(pod)) is not None
        ]
        self.assignments += kept
        self._placer.add(map(as_member, kept))
        uids = {assignment.pod.uid for assignment in kept}
        unplaced = tuple(pod for pod in demand.pods if pod.uid not in uids)
        return replace(demand, pods=unplaced, required=max(demand.required - len(kept), 0))

    def find_gap(self) -> tuple[str, int] | None:
        """Return the layer and number of domains that a better placement may save."""
        placer = self._placer
        if placer.is_exact or self._gap is not None or not placer.members:
            return self._gap
        used, layers = placer.used(), placer.tree.layers
        return next(((layers[at], used[at] - 1) for at in placer.goal.order if used[at] > 1), None)

    def find_apart(self) -> MembersApart | None:
        """Return the reason if placed members do not share the domain that they must share."""
        placer, tree = self._placer, self._placer.tree
        must = placer.goal.must
        if not must:
            return None
        nodes: dict[tuple[str, ...], str] = {(node,): node for node in placer.outside}
        for member in placer.members:
            domain = tree.path_of_row(placer.cycle.table.row_of[member.node])[:must]
            nodes[domain] = min(member.node, nodes.get(domain, member.node))
        # Nobody can join members outside the tree.
        if len(nodes) < 2 and not placer.outside:
            return None
        apart = tuple(sorted(nodes.values()))
        return MembersApart(self._constraint.topology, tree.layers[must], apart)

    def place_required(self) -> Reason | None:
        """Place the required members; return why they do not fit."""
        if not any(demand.required for demand in self._demands):
            return None
        demands, cycle = self._demands, self._placer.cycle
        if len(demands) == 1 and len(_by_shape(cycle, demands[0].pods)) == 1:
            # One request: the required ones, and more of them if that opens no new domain.
            return self._place(demands[0].pods, demands[0].required)
        refusal: Reason | None = None
        for choose in (Demand.first_required, Demand.smallest_required):
            chosen = [pod for demand in demands for pod in choose(demand)]
            refused = self._place(chosen, len(chosen))
            if refused is None:
                return None
            refusal = refusal or refused
        return refusal

    def place_surplus(self) -> dict[str, Reason]:
        """Place as many more members as there is room for; return uid -> reason of the others."""
        reasons: dict[str, Reason] = {}
        pods = [pod for demand in self._demands for pod in demand.pods]
        for same in _by_shape(self._placer.cycle, self._unplaced(pods)):
            while left := self._unplaced(same):
                reason = self._place(left, 1)
                if reason is not None:
                    reasons |= {pod.uid: reason for pod in left}
                    break
        return reasons

    def _unplaced(self, pods: Sequence[Pod]) -> list[Pod]:
        placed = {assignment.pod.uid for assignment in self.assignments}
        return [pod for pod in pods if pod.uid not in placed]

    def _place(self, pods: Sequence[Pod], least: int) -> Reason | None:
        by_shape = _by_shape(self._placer.cycle, pods)
        no_split = (
            self._placer.place(pods, least)
            if len(by_shape) == 1
            else place_heterogeneous(self._placer, by_shape)
        )
        if isinstance(no_split, NoSplit):
            return self._explain(no_split, pods, least)
        if isinstance(no_split, HeterogeneousPlacement):
            self._gap = self._gap or no_split.gap
            no_split = no_split.assignments
        self.assignments += no_split
        return None

    def _explain(self, refused: NoSplit, pods: Sequence[Pod], want: int) -> Reason:
        tree = self._placer.tree
        offers = sorted(
            (
                DomainOffer(tree.path_of(refused.layer, domain), offer)
                for domain, offer in refused.offers
            ),
            key=lambda offer: (-offer.offer, offer.path),
        )
        fit = min(max((offer.offer for offer in offers), default=0), len(pods) - 1)
        kind = MultipleNotMet if refused.is_multiple else NoDomainFits
        return kind(
            topology=self._constraint.topology,
            layer=tree.layers[refused.layer],
            want=want,
            offers=tuple(offers[:MAX_OFFERS]),
            domains=len(offers),
            shortage=_explain_full_nodes(self._placer.cycle, pods, want, fit),
            multiples=tuple(self._constraint.multiples.items()),
        )


def _explain_full_nodes(
    cycle: Cycle, pods: Sequence[Pod], want: int, fit: int
) -> InsufficientNodes:
    """Say what nodes lack for one more pod after each has taken as many of ``pods`` as it can.

    Nodes that take ``want`` or more lack nothing. At best ``fit`` members are placed; the one after
    them is the first without a node. Koordinator counts the same way.
    """
    first = sort_members(pods)[fit]
    shape = cycle.shape_of(first)
    room = np.minimum(cycle.capacity(shape), want)
    mark = cycle.checkpoint()
    cycle.fill_amounts(shape, room)
    reason = explain_shortage(cycle, want, first, fit=fit)
    cycle.rollback(mark)
    return replace(reason, more_nodes=0)


def _preferred_goal(constraint: TopologyConstraint, tree: TopologyTree) -> Goal:
    """Return the preferences of a gang with sub-groups, taken as a whole."""
    preferred = tuple(
        layer for layer in constraint.layers if layer.strategy is GatherStrategy.PREFER
    )
    goal = make_goal(TopologyConstraint(preferred), tree.layers)
    if isinstance(goal, frozenset):
        raise TypeError("preferred layers need not exist")
    return goal.without_multiples()


def _by_shape(cycle: Cycle, pods: Sequence[Pod]) -> list[list[Pod]]:
    by_shape: dict[PodShape, list[Pod]] = {}
    for pod in pods:
        by_shape.setdefault(cycle.shape_of(pod), []).append(pod)
    return list(by_shape.values())
