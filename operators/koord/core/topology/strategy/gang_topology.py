"""Places gangs that ask something of the network: joins the trees, the room on nodes, the members.

Each wish of a unit is met by itself; all gangs of the group that wish the same gather together.
Members that must start are placed first; those beyond join them where that opens no new domain, and
then wherever the wish allows. A wish that cannot be met refuses the whole unit, with the offers of
the domains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.framework.cycle import Cycle
from koord.core.framework.plugin import Keep, StrategyResult
from koord.core.plan import Assignment, Demand, Gathered, Unit
from koord.core.pods import Pod, PodShape
from koord.core.reasons import Reason
from koord.core.topology.goal import Goal, make_goal
from koord.core.topology.reasons import (
    DomainOffer,
    MembersApart,
    MissingTopology,
    MultipleNotMet,
    NoDomainFits,
    UnknownLayer,
)
from koord.core.topology.solve import NoSplit
from koord.core.topology.strategy.domain_placer import DomainPlacer
from koord.core.topology.strategy.heterogeneous import Mixture, find_bound, find_gap, place_mixed
from koord.core.topology.strategy.outspent import count_outspent
from koord.core.topology.strategy.sub_groups import SubGroupPlacer, SubGroupRequest
from koord.core.topology.strategy.topology_view import TopologyView
from koord.core.topology.tree import TopologyTree
from koord.core.topology_constraint import GatherStrategy, PlacedMember, TopologyConstraint

MOST_OFFERS: Final = 5
"""Domains that a refusal names."""

DRAWN: Final = TopologyConstraint(())
"""The wish of pods that ask for no layer: to be near others, if there is room."""


@dataclass(frozen=True, slots=True)
class TopologyShare:
    """The demands of one unit that have topology constraints, by constraint."""

    strategy: "TopologyStrategy"
    unit: Unit
    constraints: dict[TopologyConstraint, list[Demand]]

    @property
    def demands(self) -> list[Demand]:
        return [demand for demands in self.constraints.values() for demand in demands]

    @property
    def is_required(self) -> bool:
        """Pods that are only attracted by others are placed anywhere if need be."""
        return any(one.layers or one.nest for one in self.constraints)

    def place(self) -> StrategyResult | Reason:
        return self.strategy.place(self.unit, self.constraints)


class TopologyStrategy:
    """Places the gangs of one planning cycle; later ones see where earlier ones went."""

    def __init__(self, snapshot: Cycle, view: TopologyView, keep: Keep) -> None:
        self._snapshot = snapshot
        self._view = view
        self._keep = keep
        self._placed: dict[tuple[str, TopologyConstraint], list[PlacedMember]] = {}

    def divide(self, unit: Unit) -> "TopologyShare | None":
        """Return the demands of a unit that have topology constraints; None if none has."""
        wishes = self._wishes(unit)
        return TopologyShare(self, unit, wishes) if wishes else None

    def _wishes(self, unit: Unit) -> dict[TopologyConstraint, list[Demand]]:
        divided: dict[TopologyConstraint, list[Demand]] = {}
        for demand in unit.demands:
            wish = self._wish_of(demand) or self._draw(demand)
            if wish is not None:
                divided.setdefault(wish, []).append(demand)
        return divided

    def _wish_of(self, demand: Demand) -> TopologyConstraint | None:
        """Return what is asked; where there is no tree, what is only preferred asks for nothing."""
        wish = self._view.wish_of(demand.gang)
        nest = self._view.nest_of(demand.gang)
        if nest is not None:
            nested = replace(wish or DRAWN, nest=demand.gang)
            is_asked = any(one.layer for one in nest.groups) or nested.layers_with(
                GatherStrategy.MUST
            )
            has_tree = self._view.topologies.tree(nested.topology) is not None
            return nested if is_asked or has_tree else None
        if wish is None or wish.layers_with(GatherStrategy.MUST):
            return wish
        return wish if self._view.topologies.tree(wish.topology) is not None else None

    def _draw(self, demand: Demand) -> TopologyConstraint | None:
        """Return a wish without demands if pods that others draw to them are all that is asked."""
        network = self._view
        if network.topologies.tree(DRAWN.topology) is None:
            return None
        selectors = {pod.attraction for pod in demand.pods}
        return DRAWN if len(selectors) == 1 and network.attracting(*selectors) else None

    def place(
        self, unit: Unit, wishes: dict[TopologyConstraint, list[Demand]]
    ) -> StrategyResult | Reason:
        """Place the demands that ask something of the network; the caller rolls back a refusal."""
        assignments: list[Assignment] = []
        gathered: list[Gathered] = []
        left_over: dict[str, Reason] = {}
        for wish, demands in wishes.items():
            met = self._meet(unit, wish, demands)
            if not isinstance(met, StrategyResult):
                return met
            assignments += met.assignments
            gathered += met.details
            left_over |= met.left_over
        return StrategyResult(assignments, tuple(gathered), left_over)

    def confirm(self, unit: Unit, placed: Sequence[Assignment]) -> None:
        """Remember where members went, for units of the same group that are decided later."""
        wishes = {demand.gang: self._wish_of(demand) for demand in unit.demands}
        for one in placed:
            wish = wishes.get(one.pod.gang.key) if one.pod.gang is not None else None
            if wish is not None:
                sibling = PlacedMember(one.node, one.pod.index, one.pod.name, one.pod.sub_group)
                self._placed.setdefault((unit.group, wish), []).append(sibling)

    def _meet(
        self, unit: Unit, wish: TopologyConstraint, demands: list[Demand]
    ) -> StrategyResult | Reason:
        if wish.nest:
            return self._meet_nested(unit, wish, demands)
        site = self._open_site(unit, wish, demands)
        if not isinstance(site, DomainPlacer):
            return site
        gathering = _Gathering(site, wish, demands, self._keep)
        refusal = gathering.find_apart() or gathering.place_required()
        if refusal is not None:
            return refusal
        left_over = gathering.place_surplus()
        if not gathering.assignments and left_over:
            return next(iter(left_over.values()))
        where = site.describe(wish.topology, gathering.find_gap())
        return StrategyResult(gathering.assignments, (where,) if where else (), left_over)

    def _meet_nested(
        self, unit: Unit, wish: TopologyConstraint, demands: list[Demand]
    ) -> StrategyResult | Reason:
        network = self._view
        nest, tree = network.nest_of(wish.nest), network.topologies.tree(wish.topology)
        if nest is None or tree is None:
            return MissingTopology(wish.topology, exists=wish.topology in network.topologies)
        asked = {one.layer for one in nest.groups if one.layer} | wish.layers_with(
            GatherStrategy.MUST
        )
        if unknown := asked - set(tree.layers):
            return UnknownLayer(wish.topology, tuple(sorted(unknown)), tree.layers[1:])
        placed = self._placed.get((unit.group, wish), ())
        siblings = [*network.siblings_of(wish.nest), *placed]
        goal = _goal_of_all(wish, tree)
        site = DomainPlacer(self._snapshot, self._view, tree, goal, siblings)
        required = [pod for demand in demands for pod in demand.pods[: demand.required]]
        bound = find_bound(site, _by_shape(site, required)) if required else ()
        nesting = SubGroupPlacer(self._snapshot, tree, nest, wish, siblings, self._place_one)
        found = nesting.place(demands)
        if not isinstance(found, list):
            return found
        for one in found:
            site.add(PlacedMember(one.node))
        least = (1,) * tree.depth if isinstance(bound, NoSplit) or not bound else bound
        used = site.used()
        gap = find_gap(site, tuple(used[layer] for layer in goal.order), least)
        where = site.describe(wish.topology, gap)
        left_over = nesting.left_over
        if not found and left_over:
            return next(iter(left_over.values()))
        return StrategyResult(found, (where,) if where else (), left_over)

    def _place_one(self, ask: SubGroupRequest) -> list[Assignment] | Reason:
        """Place the members of one sub-group in some nodes."""
        site = self._open_site_at(ask.wish, ask.siblings)
        if not isinstance(site, DomainPlacer):
            return site
        site.within = ask.within
        demand = ask.demand
        if not ask.takes_more:
            demand = replace(demand, pods=_first_required(demand))
        gathering = _Gathering(site, ask.wish, [demand], self._keep)
        refusal = gathering.find_apart() or gathering.place_required()
        if refusal is not None:
            return refusal
        if ask.takes_more:
            gathering.place_surplus()
        return gathering.assignments

    def _open_site(
        self, unit: Unit, wish: TopologyConstraint, demands: list[Demand]
    ) -> DomainPlacer | Reason:
        siblings = [
            *self._view.siblings_of(demands[0].gang),
            *self._placed.get((unit.group, wish), ()),
        ]
        return self._open_site_at(wish, siblings)

    def _open_site_at(
        self, wish: TopologyConstraint, siblings: Sequence[PlacedMember]
    ) -> DomainPlacer | Reason:
        topologies = self._view.topologies
        tree = topologies.tree(wish.topology)
        if tree is None:
            return MissingTopology(wish.topology, exists=wish.topology in topologies)
        goal = make_goal(wish, tree.layers)
        if isinstance(goal, frozenset):
            return UnknownLayer(wish.topology, tuple(sorted(goal)), tree.layers[1:])
        return DomainPlacer(self._snapshot, self._view, tree, goal, siblings)


class _Gathering:
    """The demands of one wish on their way to their places."""

    def __init__(
        self, site: DomainPlacer, wish: TopologyConstraint, demands: Sequence[Demand], keep: Keep
    ) -> None:
        self.site = site
        self.assignments: list[Assignment] = []
        self.gap: tuple[str, int] | None = None
        self._wish = wish
        self._demands = [self._keep_promises(demand, keep) for demand in demands]

    def _keep_promises(self, demand: Demand, keep: Keep) -> Demand:
        """Place released members where they were promised; return what is left of a demand."""
        kept = [one for pod in demand.pods if (one := keep(pod)) is not None]
        for one in kept:
            self.assignments.append(one)
            self.site.add(PlacedMember(one.node, one.pod.index, one.pod.name))
        uids = {one.pod.uid for one in kept}
        rest = tuple(pod for pod in demand.pods if pod.uid not in uids)
        return replace(demand, pods=rest, required=max(demand.required - len(kept), 0))

    def find_gap(self) -> tuple[str, int] | None:
        """Say by how much a better placement may have been missed."""
        if self.site.is_certain or self.gap is not None or not self.site.members:
            return self.gap
        used = self.site.used()
        order = self.site.goal.order
        return next(
            ((self.site.tree.layers[at], used[at] - 1) for at in order if used[at] > 1), None
        )

    def find_apart(self) -> MembersApart | None:
        """Say that members which have their place share no domain that they must share."""
        must, tree = self.site.goal.must, self.site.tree
        if not must:
            return None
        homes: dict[tuple[str, ...], str] = {(node,): node for node in self.site.outside}
        for member in self.site.members:
            row = self.site.snapshot.table.row_of[member.node]
            path = (*(tree.path_of_row(row) or ()), member.node)[:must]
            homes[path] = min(member.node, homes.get(path, member.node))
        # Nobody can join those who are outside the tree.
        if len(homes) < 2 and not self.site.outside:
            return None
        return MembersApart(self._wish.topology, tree.layers[must], tuple(sorted(homes.values())))

    def place_required(self) -> Reason | None:
        """Place the members that must start; say what is short if they do not fit."""
        if not any(demand.required for demand in self._demands):
            return None
        if len(self._demands) == 1 and len(_by_shape(self.site, self._demands[0].pods)) == 1:
            # One question: the required ones, and more of them if that opens no new domain.
            return self._place(self._demands[0].pods, self._demands[0].required)
        refusal: Reason | None = None
        for choose in (_first_required, _smallest_required):
            chosen = [pod for demand in self._demands for pod in choose(demand)]
            again = self._place(chosen, len(chosen))
            if again is None:
                return None
            refusal = refusal or again
        return refusal

    def place_surplus(self) -> dict[str, Reason]:
        """Place whom there is room for beyond the required ones; say why for the others."""
        reasons: dict[str, Reason] = {}
        for pods in _by_shape(self.site, self._waiting()):
            left = pods
            while left:
                reason = self._place(left, 1)
                if reason is not None:
                    reasons |= {pod.uid: reason for pod in left}
                    break
                placed = {one.pod.uid for one in self.assignments}
                left = [pod for pod in left if pod.uid not in placed]
        return reasons

    def _waiting(self) -> list[Pod]:
        placed = {one.pod.uid for one in self.assignments}
        pods = [pod for demand in self._demands for pod in demand.pods]
        return [pod for pod in pods if pod.uid not in placed]

    def _place(self, pods: Sequence[Pod], least: int) -> Reason | None:
        kinds = _by_shape(self.site, pods)
        is_uniform = len(kinds) == 1
        found = self.site.place(pods, least) if is_uniform else place_mixed(self.site, kinds)
        if isinstance(found, NoSplit):
            return self._explain(found, pods, least)
        if isinstance(found, Mixture):
            self.gap = self.gap or found.gap
            found = found.assignments
        self.assignments += found
        return None

    def _explain(self, refused: NoSplit, pods: Sequence[Pod], want: int) -> Reason:
        site, tree = self.site, self.site.tree
        offers = sorted(
            (DomainOffer(_path(site, refused.layer, one), offer) for one, offer in refused.offers),
            key=lambda offer: (-offer.offer, offer.path),
        )
        fit = min(max((offer.offer for offer in offers), default=0), len(pods) - 1)
        kind = MultipleNotMet if refused.is_multiple else NoDomainFits
        return kind(
            topology=self._wish.topology,
            layer=tree.layers[refused.layer],
            want=want,
            offers=tuple(offers[:MOST_OFFERS]),
            domains=len(offers),
            shortage=count_outspent(site.snapshot, pods, want, fit),
            multiples=tuple(self._wish.multiples.items()),
        )


def _goal_of_all(wish: TopologyConstraint, tree: TopologyTree) -> Goal:
    """Return what is preferred of a gang with sub-groups, taken as a whole."""
    preferred = tuple(one for one in wish.layers if one.strategy is GatherStrategy.PREFER)
    goal = make_goal(TopologyConstraint(preferred), tree.layers)
    if isinstance(goal, frozenset):
        raise TypeError("what is preferred need not exist")
    return goal.without_multiples()


def _by_shape(site: DomainPlacer, pods: Sequence[Pod]) -> list[list[Pod]]:
    kinds: dict[PodShape, list[Pod]] = {}
    for pod in pods:
        kinds.setdefault(site.shape_of(pod), []).append(pod)
    return list(kinds.values())


def _path(site: DomainPlacer, layer: int, domain: int) -> tuple[str, ...]:
    if layer < site.tree.depth:
        return site.tree.path_of(layer, domain)
    row = int(site.tree.rows[domain])
    return (*(site.tree.path_of_row(row) or ()), site.tree.name_of_row(row))


def _first_required(demand: Demand) -> tuple[Pod, ...]:
    return demand.pods[: demand.required]


def _smallest_required(demand: Demand) -> Sequence[Pod]:
    by_size = sorted(demand.pods, key=lambda pod: (max(n for _, n in pod.shape.requests), pod.key))
    return by_size[: demand.required]
