"""Members of several kinds, such as a master and its workers: placed together, kind by kind.

Kinds take room from each other, so the exact method for equal pods does not carry over. Domains are
tried from the lowest layer up, and in each domain the kinds one after the other, in every order if
they are few; each kind is split exactly over what the ones before it left. The number of tries is
bounded. How far the result may be from the best is known from a bound: no kind alone, and no crowd
of the smallest pods that there could be, does with fewer domains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final, TypeAlias

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.plan import Assignment
from koord.core.pods import Pod
from koord.core.topology.capacity import sum_up
from koord.core.topology.goal import Goal
from koord.core.topology.solve import NoSplit, split
from koord.core.topology.strategy.domain_placer import DomainPlacer

MOST_DOMAINS: Final = 24
"""How many domains of a layer are tried."""
MOST_PERMUTED: Final = 3
"""With more kinds than this, only two orders are tried."""
MOST_TOLD: Final = 64
"""Of how many domains the offer to all kinds together is found out."""

Kinds: TypeAlias = Sequence[Sequence[Pod]]
Worth: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Members of several kinds with their nodes, and how far that may be from the best."""

    assignments: list[Assignment]
    gap: tuple[str, int] | None


def place_mixed(site: DomainPlacer, kinds: Kinds) -> Mixture | NoSplit:
    """Place all pods of all kinds, or say what the domains offer."""
    kinds = sorted(kinds, key=_seeks_company)
    bound = find_bound(site, kinds)
    if isinstance(bound, NoSplit):
        return bound
    best = _find_best(site, kinds, site.goal, bound)
    if best is None:
        plain = site.goal.without_multiples()
        is_multiple = plain != site.goal and _find_best(site, kinds, plain, bound) is not None
        return NoSplit(site.goal.must, _tell_offers(site, kinds), is_multiple)
    worth, assignments = best
    for one in assignments:
        site.restore(one)
    return Mixture(assignments, find_gap(site, worth, bound))


def find_bound(site: DomainPlacer, kinds: Kinds) -> Worth | NoSplit:
    """Return domains that must be used at least, in the order in which they count."""
    goal = site.goal.without_multiples()
    bound: Worth = ()
    for pods in (*kinds, _crowd(kinds)):
        offers = site.reach(site.shape_of(pods[0]))
        found = split(site.tree, site.ask(pods, len(pods), offers, goal))
        if isinstance(found, NoSplit):
            return found
        used = site.used_with(found)
        bound = max(bound, tuple(used[layer] for layer in goal.order))
    return max(bound, _needed(site, kinds))


def _needed(site: DomainPlacer, kinds: Kinds) -> Worth:
    """Return how many of the largest domains of each layer have as much as all pods ask for."""
    snapshot, rows = site.snapshot, site.tree.rows
    usable = np.zeros(len(rows), dtype=np.bool_)
    wanted: dict[str, int] = {}
    for pods in kinds:
        shape = site.shape_of(pods[0])
        usable |= site.reach(shape) > 0
        for name, amount in shape.requests:
            wanted[name] = wanted.get(name, 0) + amount * len(pods)
    needed = dict.fromkeys(site.goal.order, 1)
    for name, amount in wanted.items():
        column = snapshot.table.column(name)
        free = snapshot.table.allocatable[column, rows] - snapshot.used[column, rows]
        sums = sum_up(site.tree, np.where(usable, np.maximum(free, 0), 0))
        for layer in needed:
            reach = np.cumsum(np.sort(sums[layer])[::-1])
            needed[layer] = max(needed[layer], int(np.searchsorted(reach, amount)) + 1)
    return tuple(needed.values())


def _crowd(kinds: Kinds) -> Sequence[Pod]:
    """Return as many pods as there are, each as small and as easy to please as any of them is."""
    amounts = [dict(pods[0].shape.requests) for pods in kinds]
    shared = set.intersection(*(set(one) for one in amounts))
    requests = tuple(sorted((name, min(one[name] for one in amounts)) for name in shared))
    first = kinds[0][0]
    tolerant = tuple(dict.fromkeys(t for pods in kinds for t in pods[0].shape.tolerations))
    shape = type(first.shape)(requests, tolerations=tolerant)
    return [replace(first, shape=shape, attraction="")] * sum(map(len, kinds))


def _find_best(
    site: DomainPlacer, kinds: Kinds, goal: Goal, bound: Worth
) -> tuple[Worth, list[Assignment]] | None:
    best: tuple[Worth, list[Assignment]] | None = None
    deepest_wish = max(goal.prefer, default=0)
    for layer in range(site.tree.depth, goal.must - 1, -1):
        for within in _domains(site, kinds, layer):
            for order in _orders(site, kinds):
                found = _try(site, order, goal, within)
                if found is not None and (best is None or found[0] < best[0]):
                    best = found
                if best is not None and best[0] == bound:
                    return best
        if best is not None and layer >= deepest_wish:
            return best
    return best


def _domains(site: DomainPlacer, kinds: Kinds, layer: int) -> Iterator[Mask]:
    """Yield the nodes of domains that may hold all, those with the least room first."""
    tree = site.tree
    fits = None
    room = np.zeros(0, dtype=np.int64)
    for pods in kinds:
        sums = sum_up(tree, np.minimum(site.reach(site.shape_of(pods[0])), len(pods)))[layer]
        enough = sums >= len(pods)
        fits = enough if fits is None else fits & enough
        room = sums if not room.size else room + sums
    if fits is None:
        return
    if site.members:
        fits &= sum_up(tree, site.fixed)[layer] == len(site.members)
    found = np.flatnonzero(fits)
    order = np.lexsort((tree.name_ranks(layer)[found], room[found]))
    for domain in found[order][:MOST_DOMAINS].tolist():
        if layer == tree.depth:
            yield np.arange(len(tree.rows)) == domain
        else:
            yield np.equal(tree.domains_of(layer), domain)


def _orders(site: DomainPlacer, kinds: Kinds) -> Iterator[Kinds]:
    if len(kinds) <= MOST_PERMUTED:
        yield from permutations(kinds)
        return
    by_room = sorted(kinds, key=lambda pods: int(site.reach(site.shape_of(pods[0])).sum()))
    yield sorted(by_room, key=_seeks_company)
    yield sorted(sorted(kinds, key=len), key=_seeks_company)


def _seeks_company(pods: Sequence[Pod]) -> bool:
    """Whether such pods may have to wait for others to be placed."""
    constraints = pods[0].shape.constraints
    return constraints is not None and bool(constraints.affinity)


def _try(
    site: DomainPlacer, kinds: Kinds, goal: Goal, within: Mask
) -> tuple[Worth, list[Assignment]] | None:
    """Place kind after kind in some nodes and take everything back; say what it was worth."""
    mark = site.snapshot.checkpoint()
    placed: list[Assignment] = []
    plain = goal.without_multiples()
    for at, pods in enumerate(kinds):
        is_last = at == len(kinds) - 1
        found = site.place(pods, len(pods), goal=goal if is_last else plain, within=within)
        if isinstance(found, NoSplit):
            break
        placed += found
    used = site.used()
    site.snapshot.rollback(mark)
    site.forget(len(placed))
    if len(placed) < sum(map(len, kinds)):
        return None
    return tuple(used[layer] for layer in goal.order), placed


def _tell_offers(site: DomainPlacer, kinds: Kinds) -> tuple[tuple[int, int], ...]:
    """Say how many of all pods together each domain takes that they must share."""
    layer = site.goal.must
    plain = replace(site.goal.without_multiples(), must=0)
    offers = []
    for within in _all_domains(site, layer):
        mark = site.snapshot.checkpoint()
        placed = 0
        for pods in kinds:
            found = site.place(pods, 1, goal=plain, within=within)
            placed += 0 if isinstance(found, NoSplit) else len(found)
        site.snapshot.rollback(mark)
        site.forget(placed)
        inside = int(np.flatnonzero(within)[0])
        domain = inside if layer == site.tree.depth else int(site.tree.domains_of(layer)[inside])
        offers.append((domain, placed))
    return tuple(offers)


def _all_domains(site: DomainPlacer, layer: int) -> Iterator[Mask]:
    tree = site.tree
    of_node = np.arange(len(tree.rows)) if layer == tree.depth else tree.domains_of(layer)
    for domain in np.unique(of_node)[:MOST_TOLD].tolist():
        yield np.equal(of_node, domain)


def find_gap(site: DomainPlacer, worth: Worth, bound: Worth) -> tuple[str, int] | None:
    """Return the first layer of which fewer domains might do, and how many fewer."""
    for layer, used, least in zip(site.goal.order, worth, bound, strict=True):
        if used != least:
            return site.tree.layers[layer], used - least
    return None
