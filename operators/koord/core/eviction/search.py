"""The search for victims: which running units have to go so that a waiting unit can start.

The only judge of a fit is the planner itself, on a cycle of its own: victims are removed, the unit
is planned, and everything is rolled back. The search is bounded by steps of the planner, so the
same cluster gives the same answer on any machine. It evicts nobody.

A unit that has to share a domain of the network is searched room for in one domain after the other
(a *region*). In each, units are taken into account pool by pool, so that the dearest are left out
if possible: bounds decide which pools may be enough; nothing is tried for that.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from koord.core.engine.arrays import Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import Candidates, find_candidates
from koord.core.eviction.covering import choose_cover, empty_rows, find_cover, grow
from koord.core.eviction.model import (
    NOBODY,
    Alternative,
    Certificate,
    Cost,
    Costs,
    Exempt,
    Moment,
    Preemption,
    VictimUnit,
)
from koord.core.eviction.reasons import (
    NobodyLower,
    NotAQuestionOfRoom,
    OnlySurplus,
    PreemptionNever,
    PreemptionNotHelpful,
    Protection,
    SearchTooExpensive,
    TerminationStuck,
    VictimsProtected,
    WaitsForTermination,
)
from koord.core.eviction.refinement import find_cheapest, reprieve
from koord.core.eviction.trials import Guarantees, Room, Trials, VictimSearch, VictimSet, pods_of
from koord.core.model.budgets import Budget
from koord.core.model.patience import describe_hanging
from koord.core.model.plan import Placement, Unit
from koord.core.model.pods import Handling
from koord.core.model.reasons import Reason
from koord.core.model.topology_constraint import GatherStrategy
from koord.core.topology.reasons import MultipleNotMet
from koord.core.topology.tree import OUTSIDE, Path, TopologyTree


@dataclass(frozen=True, slots=True)
class Region:
    """Rows where room is made for the whole unit; None: anywhere. ``path`` names the domain."""

    rows: Mask | None = None
    path: Path = ()


ANYWHERE: Final = Region()


def find_regions(state: ClusterState, unit: Unit) -> list[Region]:
    """Return the domains of the lowest layer that all members must share, by path."""
    constraints = {demand.constraint for demand in unit.demands}
    if len(constraints) != 1 or any(demand.sub_groups is not None for demand in unit.demands):
        return [ANYWHERE]
    (constraint,) = constraints
    if constraint is None:
        return [ANYWHERE]
    tree = state.topologies.tree(constraint.topology)
    names = constraint.layers_with(GatherStrategy.MUST)
    if tree is None or not names or not names.issubset(tree.layers):
        return [ANYWHERE]
    layer = max(tree.layers.index(name) for name in names)
    if layer == tree.depth or not layer:
        return [ANYWHERE]
    regions = _split(tree, layer, len(state.table.nodes))
    placed = _rows_of_members(state, unit)
    if placed:
        regions = [
            region for region in regions if region.rows is not None and region.rows[placed].all()
        ]
    return sorted(regions, key=lambda region: region.path) or [ANYWHERE]


def _split(tree: TopologyTree, layer: int, count: int) -> list[Region]:
    domains = np.full(count, OUTSIDE)
    domains[tree.rows] = tree.domains_of(layer)
    return [
        Region(domains == domain, tree.path_of(layer, domain))
        for domain in np.unique(domains[tree.rows]).tolist()
    ]


def _rows_of_members(state: ClusterState, unit: Unit) -> list[int]:
    """Return the rows of members on nodes, with which the others must share a domain."""
    gangs = {gang for demand in unit.demands for gang in demand.placed_with}
    nodes = {
        pod.planned_node
        for gang in gangs
        for pod in state.gangs.members(gang).values()
        if pod.is_alive and not pod.is_plannable
    }
    return sorted(state.table.row_of[node] for node in nodes if node in state.table.row_of)


def find_pools(search: VictimSearch, rows: Mask | None) -> Iterator[list[int]]:
    """Yield positions of units that may be enough for room on ``rows``, the cheapest pool first.

    Without units that disruption budgets protect, before those with them; without whole gangs,
    before those with them; then up to the lowest priority that may be enough, and all.
    """
    prices = search.prices
    for with_protected in (False, True):
        for with_gangs in (False, True):
            pool = [
                at
                for at, price in enumerate(prices)
                if (with_protected or not price.violations) and (with_gangs or not price.gangs)
            ]
            if not _may_be_enough(search, pool, rows):
                continue
            limits = sorted({prices[at].priority for at in pool})
            first = _find_first(search, pool, limits, rows)
            for limit in dict.fromkeys((*limits[first : first + 2], limits[-1])):
                yield [at for at in pool if prices[at].priority <= limit]


def _find_first(
    search: VictimSearch, pool: Sequence[int], limits: Sequence[int], rows: Mask | None
) -> int:
    """Return the position of the lowest priority up to which units may be enough."""
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        below = [at for at in pool if search.prices[at].priority <= limits[middle]]
        if _may_be_enough(search, below, rows):
            high = middle
        else:
            low = middle + 1
    return low


def _may_be_enough(search: VictimSearch, pool: Sequence[int], rows: Mask | None) -> bool:
    return bool(pool) and search.room.is_enough(search.room.freed(pool), rows)


MOST_ALTERNATIVES: Final = 3
MOST_STEPS: Final = 300_000_000
"""Steps of the planner that one search may take."""


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """Settings of the search; ``min_runtime`` and ``max_per_day`` as in ``Moment``."""

    min_runtime: float = 0.0
    max_per_day: int = 0
    most_steps: int = MOST_STEPS
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """What the search has to know that is not in the state.

    ``now`` is seconds since the epoch. ``prepare`` charges room to the cycle that is held for
    others. ``pending`` returns the complete waiting units in order, as for any cycle.
    """

    now: float = 0.0
    budgets: tuple[Budget, ...] = ()
    prepare: Callable[[Cycle], object] | None = None
    pending: Callable[[], Iterable[Unit]] = tuple


DEFAULT_OPTIONS: Final = PreemptionOptions()
NO_CONTEXT: Final = PreemptionContext()


def plan_preemption(
    state: ClusterState,
    unit: Unit,
    options: PreemptionOptions = DEFAULT_OPTIONS,
    exempt: Exempt = NOBODY,
    context: PreemptionContext = NO_CONTEXT,
) -> Preemption | Reason:
    """Return the cheapest victims for a unit that does not fit, or why there are none."""
    reason = _find_blocking_reason(unit)
    if reason is not None:
        return reason
    state.refresh()
    moment = Moment(context.now, options.min_runtime, options.max_per_day)
    candidates = find_candidates(state, unit, replace(exempt, moment=moment))
    with closing(state.open_cycle(context.pending)) as cycle:
        if context.prepare is not None:
            context.prepare(cycle)
        trials = Trials(cycle, unit, options.scoring, options.most_steps)
        guarantees = partial(Guarantees, state, unit)
        return find_victims(state, trials, candidates, Costs(context.budgets), guarantees)


def find_victims(
    state: ClusterState,
    trials: Trials,
    candidates: Candidates,
    costs: Costs,
    make_guarantees: Callable[[], Guarantees],
) -> Preemption | Reason:
    """Return the cheapest of the candidates for the unit of the trials, or why there are none.

    The cycle is as before afterwards, but without the candidates that are terminating.
    """
    return _VictimFinder(state, trials, candidates, costs, make_guarantees).run()


def _find_blocking_reason(unit: Unit) -> Reason | None:
    """Return why a unit may not preempt at all."""
    for pod in unit.pods:
        if pod.never_preempts:
            return PreemptionNever(pod.key, pod.handling is Handling.RESERVE)
    for demand in unit.demands:
        if demand.native is not None and demand.native.never_preempts:
            return PreemptionNever(demand.pods[0].key)
    if not unit.required:
        return OnlySurplus(unit.demands[0].gang)
    return None


class _VictimFinder:
    def __init__(
        self,
        state: ClusterState,
        trials: Trials,
        candidates: Candidates,
        costs: Costs,
        make_guarantees: Callable[[], Guarantees],
    ) -> None:
        self._state = state
        self._trials = trials
        self._candidates = candidates
        self._costs = costs
        self._make_guarantees = make_guarantees
        self._unit = trials.unit

    def run(self) -> Preemption | Reason:
        without = self._trials.plan(())
        if isinstance(without, Placement):
            return self._need_nobody(without)
        if self._candidates.terminating and not self._has_waited():
            self._trials.remove_for_good(self._candidates.terminating)
            without = self._trials.plan(())
        if isinstance(without, Placement):
            return self._wait_for(without)
        if not without.is_capacity and not isinstance(without, MultipleNotMet):
            return NotAQuestionOfRoom(without)
        reason = self._find()
        return self._explain_hanging(reason) if isinstance(reason, Reason) else reason

    def _has_waited(self) -> bool:
        """Whether the unit has waited already for pods that hang now, and would fit without them.

        Then the room of others that leave counts as used: they may hang as well, one by one.
        """
        patience, since = self._candidates.patience, self._unit.since
        hanging = [pod for pod in self._candidates.hanging if patience.was_waited_for(pod, since)]
        return bool(hanging) and self._trials.fits_without(hanging)

    def _wait_for(self, placement: Placement) -> WaitsForTermination:
        nodes = {assignment.node for assignment in placement.assignments}
        terminating = self._candidates.terminating
        pods = [pod for pod in terminating if pod.planned_node in nodes] or terminating
        until = min(map(self._candidates.patience.leaves_by, pods))
        return WaitsForTermination(tuple(sorted(pod.key for pod in pods)), until)

    def _find(self) -> Preemption | Reason:
        """Choose victims, if possible without pods that hang as others did for this unit."""
        guarantees = self._make_guarantees()
        allowed = [unit for unit in self._candidates.units if guarantees.allows((unit,))]
        if not allowed:
            return self._explain_nobody()
        trusted = [unit for unit in allowed if not self._is_suspect(unit)]
        if trusted and len(trusted) < len(allowed):
            preemption = self._choose(trusted, guarantees)
            if isinstance(preemption, Preemption):
                return preemption
        return self._choose(allowed, guarantees)

    def _is_suspect(self, unit: VictimUnit) -> bool:
        suspect = self._candidates.suspect
        return bool(unit.doubts) and any(pod.namespace in suspect for pod in unit.pods)

    def _choose(self, allowed: Sequence[VictimUnit], guarantees: Guarantees) -> Preemption | Reason:
        search = self._make_search(allowed, guarantees)
        if search is None:
            return self._explain_not_helpful(allowed)
        solutions = self._find_quickly(search)
        best = min(solutions, key=lambda solution: solution.cost, default=None)
        best, is_cheapest = find_cheapest(search, best)
        if best is None:
            return self._explain_not_helpful(allowed)
        costlier = [solution for solution in solutions if solution.cost > best.cost]
        costlier.sort(key=lambda solution: solution.cost)
        return Preemption(
            self._unit.key,
            best.victims,
            best.placement,
            best.cost,
            Certificate(best.is_minimal, is_cheapest, self._trials.cycle.steps.taken),
            tuple(Alternative(other.victims, other.cost) for other in costlier[:MOST_ALTERNATIVES]),
        )

    def _make_search(
        self, units: Sequence[VictimUnit], guarantees: Guarantees
    ) -> VictimSearch | None:
        """Return the problem with the units that may help; None if bounds say that none do."""
        cycle, unit = self._trials.cycle, self._unit
        ordered = self._costs.sort(units)
        room = Room(cycle, unit, ordered)
        freed = room.freed(range(len(ordered)))
        if not room.is_enough(freed):
            return None
        if _depends_on_rows_alone(unit, ordered):
            useful_rows = room.useful_rows(freed)
            useful = [
                at
                for at, loads in enumerate(room.loads)
                if guarantees.shares_quota(ordered[at]) or any(useful_rows[row] for row, _ in loads)
            ]
            ordered, room = [ordered[at] for at in useful], room.only(useful)
        return VictimSearch(ordered, self._trials, room, self._costs, guarantees)

    def _find_quickly(self, search: VictimSearch) -> list[VictimSet]:
        """Return minimal solutions, one per region that is worth it."""
        solutions: list[VictimSet] = []
        for offer in _in_order(search, find_regions(self._state, self._unit)):
            best = min((solution.cost for solution in solutions), default=None)
            if len(solutions) > 1 and best is not None and offer.cost >= best:
                return solutions
            for pool in offer.pools:
                solution = find_cover(search, pool, offer.region.rows)
                if solution is not None:
                    solutions.append(reprieve(search, solution))
                    break
            if self._trials.is_over:
                return solutions
        if not solutions:
            last = empty_rows(search) or grow(search)
            solutions = [reprieve(search, last)] if last is not None else []
        return solutions

    def _need_nobody(self, placement: Placement) -> Preemption:
        certificate = Certificate(is_minimal=True, is_cheapest=True, steps=0)
        return Preemption(self._unit.key, (), placement, self._costs.of(()), certificate)

    def _explain_hanging(self, otherwise: Reason) -> Reason:
        """Say which pods are in the way that should have gone, if it is they."""
        hanging, trials = self._candidates.hanging, self._trials
        if not hanging or trials.is_over:
            return otherwise
        trials.remove_for_good(hanging)
        if not trials.fits(()) and not trials.fits(self._candidates.units):
            return otherwise
        return TerminationStuck(describe_hanging(hanging))

    def _explain_nobody(self) -> Reason:
        lowest = min(pod.priority for pod in self._unit.pods)
        # Those that are left are kept by the guarantees of their quotas.
        units = self._candidates.units
        pods = len(pods_of(units))
        protected = self._candidates.protected + (((Protection.QUOTA, pods),) if pods else ())
        if protected:
            return VictimsProtected(lowest, protected, self._make_guarantees().explain(units))
        return NobodyLower(lowest, self._candidates.running)

    def _explain_not_helpful(self, units: Sequence[VictimUnit]) -> Reason:
        if self._trials.is_over:
            return SearchTooExpensive(len(units), self._trials.cycle.steps.taken)
        reason = self._trials.plan(units)
        if isinstance(reason, Placement):
            return self._explain_nobody()  # not all of them may go together
        return PreemptionNotHelpful(len(pods_of(units)), reason, self._candidates.protected)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A region, the units that may make room there, and what the victims there will about cost."""

    region: Region
    pools: list[list[int]]
    cost: Cost
    tie: tuple[int, int]


def _in_order(search: VictimSearch, regions: Sequence[Region]) -> list[_Offer]:
    """Return the regions that may be enough, the cheapest first, then the tightest."""
    room = search.room
    emptied = room.freed(range(len(search.units)))
    offers = []
    for at, region in enumerate(regions):
        pools = list(find_pools(search, region.rows))
        if not pools:
            continue
        cover: list[int] | None = []
        if len(regions) > 1:
            cover = choose_cover(search, pools[0], region.rows)
        if cover is not None:
            cost = search.costs.of([search.units[position] for position in cover])
            size = sum(room.sum(want, emptied, region.rows) for want in room.wants)
            offers.append(_Offer(region, pools, cost, (size, at)))
    return sorted(offers, key=lambda offer: (offer.cost, offer.tie))


def _depends_on_rows_alone(unit: Unit, units: Sequence[VictimUnit]) -> bool:
    """Whether evicting a pod makes room on its own node alone."""
    pods = itertools.chain(unit.pods, *(unit.pods for unit in units))
    return all(pod.shape.constraints is None and not pod.claims for pod in pods)
