"""Places members of several shapes together, such as a master and its workers.

Shapes take room from each other, so the exact method for equal pods does not apply. Domains are
tried from the lowest layer up, and in each domain the shapes one after the other, in every order if
they are few; each shape is split exactly over what is left. The search is limited: then
the best so far is taken, or if there is none, the first domain that a gang may have. How far
the result may be from the best follows from a lower bound: the domains that each shape alone needs,
or that many pods with the smallest requests of all, or the sum of all requests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask, choose_tightest
from koord.core.model.plan import Assignment
from koord.core.model.pods import Pod
from koord.core.topology.capacity import Goal, sum_up
from koord.core.topology.solve import NoSplit
from koord.core.topology.strategy.domain_placer import DomainPlacer

MAX_PERMUTED: Final = 3
"""With more shapes than this, only two orders are tried."""
MAX_OFFERS: Final = 64
"""Domains of which the offer to all shapes together is computed."""
SEARCH_SHARE: Final = 1 / 3
"""The part of the steps of its unit that the search for a better placement takes: a gang may have a
thousand shapes."""

ByShape: TypeAlias = Sequence[Sequence[Pod]]
"""Pods, those of one shape together."""
Used: TypeAlias = tuple[int, ...]
"""Domains with a member per layer, in the order in which layers matter."""


@dataclass(frozen=True, slots=True)
class HeterogeneousPlacement:
    """Members with their nodes, and the layer and number of domains that a better one may save."""

    assignments: list[Assignment]
    gap: tuple[str, int] | None


def place_heterogeneous(placer: DomainPlacer, pods: ByShape) -> HeterogeneousPlacement | NoSplit:
    """Place all pods of all shapes, or return what the domains offer."""
    pods = sorted(pods, key=_has_affinity)
    bound = find_bound(placer, pods)
    if isinstance(bound, NoSplit):
        return bound
    best = _find_best(placer, pods, placer.goal, bound)
    if best is None:
        plain = placer.goal.without_multiples()
        is_multiple = plain != placer.goal and _find_best(placer, pods, plain, bound) is not None
        return NoSplit(placer.goal.must, _count_offers(placer, pods), is_multiple)
    used, assignments = best
    placer.place_again(assignments)
    return HeterogeneousPlacement(assignments, find_gap(placer, used, bound))


def find_bound(placer: DomainPlacer, pods: ByShape) -> Used | NoSplit:
    """Return a lower bound of the domains used; or the offers if one shape does not fit."""
    goal = placer.goal.without_multiples()
    bound: Used = ()
    for same in (*pods, _make_smallest(pods)):
        offers = placer.reach(placer.cycle.shape_of(same[0]))
        no_split = placer.split(placer.request(same, len(same), offers, goal))
        if isinstance(no_split, NoSplit):
            return no_split
        used = placer.used_with(no_split.shares)
        bound = max(bound, tuple(used[layer] for layer in goal.order))
    return max(bound, _count_needed(placer, pods))


def find_gap(placer: DomainPlacer, used: Used, bound: Used) -> tuple[str, int] | None:
    """Return the first layer at which more domains are used than needed, and how many more."""
    for layer, count, least in zip(placer.goal.order, used, bound, strict=True):
        if count != least:
            return placer.tree.layers[layer], count - least
    return None


def _count_needed(placer: DomainPlacer, pods: ByShape) -> Used:
    """Return how many of the largest domains of each layer have what all pods request."""
    table, used, rows = placer.cycle.table, placer.cycle.used, placer.tree.rows
    usable = np.zeros(len(rows), dtype=np.bool_)
    requested: dict[str, int] = {}
    for same in pods:
        shape = placer.cycle.shape_of(same[0])
        usable |= placer.reach(shape) > 0
        for name, amount in shape.requests:
            requested[name] = requested.get(name, 0) + amount * len(same)
    needed = dict.fromkeys(placer.goal.order, 1)
    for name, amount in requested.items():
        column = table.column(name)
        free = table.allocatable[column, rows] - used[column, rows]
        sums = sum_up(placer.tree, np.where(usable, np.maximum(free, 0), 0))
        for layer in needed:
            reach = np.cumsum(np.sort(sums[layer])[::-1])
            needed[layer] = max(needed[layer], int(np.searchsorted(reach, amount)) + 1)
    return tuple(needed.values())


def _make_smallest(pods: ByShape) -> Sequence[Pod]:
    """Return as many equal pods, with the least of all requests and all tolerations."""
    amounts = [dict(same[0].shape.requests) for same in pods]
    shared = set.intersection(*(set(amount) for amount in amounts))
    requests = tuple(sorted((name, min(amount[name] for amount in amounts)) for name in shared))
    first = pods[0][0]
    tolerations = tuple(dict.fromkeys(t for same in pods for t in same[0].shape.tolerations))
    shape = type(first.shape)(requests, tolerations=tolerations)
    return [replace(first, shape=shape, attraction="")] * sum(map(len, pods))


def _find_best(
    placer: DomainPlacer, pods: ByShape, goal: Goal, bound: Used
) -> tuple[Used, list[Assignment]] | None:
    search = _HeterogeneousSearch(placer, goal)
    orders = list(_orders(placer, pods))
    deepest_preferred = max(goal.prefer, default=0)
    for layer in range(placer.tree.depth, goal.must - 1, -1):
        if search.is_over and layer > goal.must:
            continue
        for domain in _choose_domains(placer, pods, layer):
            within = np.equal(placer.tree.domains_of(layer), domain)
            for order in orders:
                search.try_order(order, within)
                if search.best is not None and search.best[0] == bound:
                    return search.best
                if search.is_over and (search.best is not None or layer > goal.must):
                    break
            if search.is_over and (search.best is not None or layer > goal.must):
                break
        if search.best is not None and layer >= deepest_preferred:
            return search.best
    return search.best


def _choose_domains(placer: DomainPlacer, pods: ByShape, layer: int) -> Sequence[int]:
    tree = placer.tree
    fits = np.ones(tree.size(layer), dtype=np.bool_)
    room: Ints = np.zeros(tree.size(layer), dtype=np.int64)
    for same in pods:
        reach = placer.reach(placer.cycle.shape_of(same[0]))
        sums = sum_up(tree, np.minimum(reach, len(same)))[layer]
        fits &= sums >= len(same)
        room = room + sums
    fits &= sum_up(tree, placer.fixed)[layer] == len(placer.members)
    return choose_tightest(fits, room, tree.name_ranks(layer))[0]


def _orders(placer: DomainPlacer, pods: ByShape) -> Iterator[ByShape]:
    if len(pods) <= MAX_PERMUTED:
        yield from permutations(pods)
        return
    by_room = sorted(pods, key=lambda same: int(placer.reach(placer.cycle.shape_of(same[0])).sum()))
    yield sorted(by_room, key=_has_affinity)
    yield sorted(sorted(pods, key=len), key=_has_affinity)


def _has_affinity(pods: Sequence[Pod]) -> bool:
    """Whether such pods may fit only after others are placed."""
    constraints = pods[0].shape.constraints
    return constraints is not None and bool(constraints.affinity)


class _HeterogeneousSearch:
    """Tries one order of shapes after the other, and remembers the best."""

    def __init__(self, placer: DomainPlacer, goal: Goal) -> None:
        self._placer, self._goal = placer, goal
        steps = placer.cycle.steps
        self._ends_at = steps.taken + (steps.limit - steps.taken) * SEARCH_SHARE
        self.best: tuple[Used, list[Assignment]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether to be content with what is found."""
        return self._placer.cycle.steps.taken >= self._ends_at

    def try_order(self, pods: ByShape, within: Mask) -> None:
        """Place shape after shape in some nodes, and roll back."""
        mark = self._placer.cycle.checkpoint()
        placed = self._place(pods, within)
        used = self._placer.used()
        self._placer.cycle.rollback(mark)
        in_order = tuple(used[layer] for layer in self._goal.order)
        if placed is not None and (self.best is None or in_order < self.best[0]):
            self.best = in_order, placed

    def _place(self, pods: ByShape, within: Mask) -> list[Assignment] | None:
        placed: list[Assignment] = []
        plain = self._goal.without_multiples()
        for same in pods:
            goal = self._goal if same is pods[-1] else plain
            assignments = self._placer.place(same, len(same), goal=goal, within=within)
            if isinstance(assignments, NoSplit):
                return None
            placed += assignments
        return placed


def _count_offers(placer: DomainPlacer, pods: ByShape) -> tuple[tuple[int, int], ...]:
    """Return how many of all pods together fit in each domain of the required layer."""
    of_position = placer.tree.domains_of(placer.goal.must)
    plain = replace(placer.goal.without_multiples(), must=0)
    offers = []
    most = max(1, min(MAX_OFFERS, 1_000 // len(pods)))  # a gang may have a thousand shapes
    for domain in np.unique(of_position)[:most].tolist():
        mark = placer.cycle.checkpoint()
        within = np.equal(of_position, domain)
        placed = [placer.place(same, 1, goal=plain, within=within) for same in pods]
        placer.cycle.rollback(mark)
        sizes = (len(members) for members in placed if not isinstance(members, NoSplit))
        offers.append((domain, sum(sizes)))
    return tuple(offers)
