"""The fair share of every quota: a pure function of the tree, the capacity and the demand.

Each resource is a problem of its own, so one that did not change keeps its answer. For each:

1. *Requests*, bottom up: a quota requests what its own pods and its children request; at least its
   min if it does not lend; of its parent at most its max.
2. *Guarantees*, bottom up, where use is guaranteed: at least what is used.
3. *Shares*, top down (``fair_share``): the capacity is divided among the top quotas, and the share
   of each among its children.

Arrays are resources (in the order of ``tree.keys``) by quotas (in the order of the tree's rows).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from koord.core.model.units import Amounts
from koord.core.quota.fair_share import (
    MAX_WEIGHT,
    Flags,
    Ints,
    LevelDemands,
    Rows,
    divide_levels,
    fits_int64,
    make_levels,
)
from koord.core.quota.model import NO_USAGE, QuotaName, QuotaRules, Usage, add_up
from koord.core.quota.tree import (
    QuotaTree,
    TreeDepth,
    collect,
    collect_foreign,
    find_excess,
    set_amount,
    sum_charges,
)

Pick: TypeAlias = Callable[[Usage], Amounts]


@dataclass(frozen=True, slots=True)
class ShareInput:
    """All that a solution depends on. ``total`` is what the root of the tree divides."""

    tree: QuotaTree
    total: Amounts
    usage: Mapping[QuotaName, Usage]
    rules: QuotaRules


@dataclass(frozen=True, slots=True)
class Results:
    """What was computed, each resources by rows.

    ``child_request`` is the bare demand of a quota's own pods and its children. ``request`` is at
    least min where the quota does not lend; ``limited`` is capped by max, too. ``allocated`` is
    what own pods use and children are guaranteed; ``guaranteed`` is at least min; both are zero
    where use is not guaranteed. ``minimum`` is min after scaling, ``share`` the fair share
    (Koordinator: runtime) where ``is_shared``.
    """

    child_request: Ints
    request: Ints
    limited: Ints
    allocated: Ints
    guaranteed: Ints
    minimum: Ints
    share: Ints
    is_shared: Flags


@dataclass(frozen=True, slots=True)
class Level:
    """The children of one parent and one resource: their claims, and what each gets.

    ``total`` is the parent's share, ``own`` the demand of its own pods.
    """

    first: int
    total: int
    own: int
    minimum: Sequence[int]
    guaranteed: Sequence[int]
    wants: Sequence[int]
    weights: Sequence[int]
    lends: Sequence[bool]
    scaled: Sequence[int]
    share: Sequence[int]


@dataclass(frozen=True)
class Solution:
    """The shares of one tree. Methods named for a quantity return it by resource, of one quota."""

    inputs: ShareInput
    demand: Ints
    used: Ints
    foreign: Ints | None
    """The part of ``used`` of other schedulers' pods; None if there is none."""
    results: Results

    @cached_property
    def used_with_children(self) -> Mapping[str, Sequence[int]]:
        """Resource -> what each quota and all below it are charged with, by row."""
        return self._by_resource(self._charges[0])

    @cached_property
    def foreign_with_children(self) -> Mapping[str, Sequence[int]]:
        """Resource -> the part of it of other schedulers' pods; empty if there are none."""
        foreign = self._charges[1]
        return {} if foreign is None else self._by_resource(foreign)

    @cached_property
    def _charges(self) -> tuple[Ints, Ints | None]:
        return sum_charges(self.inputs.tree, self.used, self.foreign)

    def _by_resource(self, amounts: Ints) -> Mapping[str, Sequence[int]]:
        return dict(zip(self.inputs.tree.keys, amounts.tolist(), strict=True))

    @cached_property
    def non_preemptible_used_with_children(self) -> Mapping[QuotaName, Amounts]:
        """The part of it that non-preemptible pods use, of quotas that have any."""
        return self._sum_up(lambda usage: usage.non_preemptible_used)

    @cached_property
    def non_preemptible_demand_with_children(self) -> Mapping[QuotaName, Amounts]:
        """The demand of non-preemptible pods of each quota and all below; not capped by max."""
        return self._sum_up(lambda usage: usage.non_preemptible_demand)

    def _sum_up(self, pick: Pick) -> Mapping[QuotaName, Amounts]:
        tree = self.inputs.tree
        total: dict[QuotaName, dict[str, int]] = {}
        for name, usage in self.inputs.usage.items():
            spec, own = tree.spec(name), pick(usage)
            if spec is None or not own:
                continue
            counted = {key: amount for key, amount in own.items() if key in spec.max}
            for above in tree.path(name):
                total[above] = add_up((total.get(above, {}), counted))
        return total

    def share(self, name: QuotaName) -> dict[str, int]:
        """Return the fair share, of the resources that the quota's max names."""
        row = self._row(name)
        is_given = self.results.is_shared[:, row] & self.inputs.tree.named[:, row]
        shares = zip(self.inputs.tree.keys, self.results.share[:, row].tolist(), strict=True)
        return {key: share for (key, share), given in zip(shares, is_given, strict=True) if given}

    def share_at(self, key: str, row: int) -> int | None:
        """Return the share of a row of one resource; None where nothing of it is divided."""
        at = self.inputs.tree.keys.index(key)
        return int(self.results.share[at, row]) if self.results.is_shared[at, row] else None

    def minimum(self, name: QuotaName) -> dict[str, int]:
        """Return min after scaling, of the resources that it names."""
        spec = self.inputs.tree.spec(name)
        scaled = self._column(self.results.minimum, name)
        return {key: scaled[key] for key in (spec.min if spec else ())}

    def request(self, name: QuotaName) -> dict[str, int]:
        return self._nonzero(self.results.request, name)

    def child_request(self, name: QuotaName) -> dict[str, int]:
        return self._nonzero(self.results.child_request, name)

    def limited(self, name: QuotaName) -> dict[str, int]:
        return self._nonzero(self.results.limited, name)

    def allocated(self, name: QuotaName) -> dict[str, int]:
        return self._nonzero(self.results.allocated, name)

    def guaranteed(self, name: QuotaName) -> dict[str, int]:
        return self._nonzero(self.results.guaranteed, name)

    def level(self, key: str, parent: int) -> Level | None:
        """Return what the children of a row claim of a resource, and get; None if nothing."""
        tree, results, rules = self.inputs.tree, self.results, self.inputs.rules
        at = tree.keys.index(key)
        first, end = tree.layout.children_of.get(parent, (0, 0))
        if not results.is_shared[at, first:end].any():
            return None

        def column(amounts: Ints) -> list[int]:
            return list(amounts[at, first:end].tolist())

        return Level(
            first=first,
            total=self.share_at(key, parent) or 0,
            own=int(self.demand[at, parent]) if rules.serves_own_pods_first else 0,
            minimum=column(tree.minimum),
            guaranteed=column(results.guaranteed),
            wants=column(results.limited),
            weights=column(tree.weight),
            lends=_lends(self.inputs)[first:end].tolist(),
            scaled=column(results.minimum),
            share=column(results.share),
        )

    def _row(self, name: QuotaName) -> int:
        return self.inputs.tree.layout.row_of[name]

    def _column(self, amounts: Ints, name: QuotaName) -> dict[str, int]:
        column = amounts[:, self._row(name)].tolist()
        return dict(zip(self.inputs.tree.keys, column, strict=True))

    def _nonzero(self, amounts: Ints, name: QuotaName) -> dict[str, int]:
        return {key: amount for key, amount in self._column(amounts, name).items() if amount}


class _OwnAmounts(NamedTuple):
    """What the own pods of every quota ask and use, of the resources that its max names."""

    demand: Ints
    used: Ints
    foreign: Ints | None


def solve(inputs: ShareInput, before: Solution | None = None) -> Solution:
    """Return the shares of all quotas; resources that are the same as ``before`` are taken over."""
    if before is not None and not _is_comparable(before.inputs, inputs):
        before = None
    own = _collect(inputs, before)
    changed = _find_changed(inputs, own, before)
    is_small = _fits_int64(inputs, own)
    results = before.results if before is not None else _make_results(own.demand.shape)
    for dtype, is_chosen in ((np.dtype(np.int64), is_small), (np.dtype(object), ~is_small)):
        rows = np.flatnonzero(changed & is_chosen)
        if rows.size:
            solved = _ShareSolver(inputs, own, rows, dtype).solve()
            results = solved if len(rows) == len(changed) else _merge(solved, rows, results)
    return Solution(inputs, *own, results)


class _ShareSolver:
    """Some resources of a tree that are solved together, in integers of one type."""

    def __init__(
        self, inputs: ShareInput, own: _OwnAmounts, at: Rows, dtype: np.dtype[Any]
    ) -> None:
        tree = inputs.tree
        selected = slice(None) if len(at) == len(tree.keys) else at

        def pick(amounts: Ints) -> Ints:
            picked: Ints = amounts[selected].astype(dtype, copy=False)
            return picked

        maximum = tree.maximum
        if maximum.dtype.hasobject and not dtype.hasobject:
            maximum = np.minimum(maximum, int(MAX_WEIGHT))  # more than any request
        self._rules, self._layout = inputs.rules, tree.layout
        self._demand, self._used = pick(own.demand), pick(own.used)
        self._foreign = None if own.foreign is None else pick(own.foreign)
        self._minimum, self._maximum, self._weight = map(pick, (tree.minimum, maximum, tree.weight))
        self._named, self._lends = tree.named[selected], _lends(inputs)
        keys = [tree.keys[position] for position in at]
        self._total = np.array([inputs.total.get(key, 0) for key in keys], dtype=dtype)
        self._is_known = np.array([key in inputs.total for key in keys], dtype=np.bool_)

    def solve(self) -> Results:
        child_request, request, limited = self._add_up_requests()
        allocated, guaranteed = self._add_up_guarantees()
        minimum, share = self._minimum.copy(), np.zeros_like(self._demand)
        is_shared = np.zeros(share.shape, dtype=np.bool_)
        share[:, 0], is_shared[:, 0] = self._total, self._is_known
        results = Results(
            child_request, request, limited, allocated, guaranteed, minimum, share, is_shared
        )
        for depth in self._layout.depths:
            self._divide(depth, results)
        return results

    def _add_up_requests(self) -> tuple[Ints, Ints, Ints]:
        child_request, request, limited = (self._demand.copy() for _ in range(3))
        for depth in reversed(self._layout.depths):
            rows = slice(depth.first, depth.end)
            bare = child_request[:, rows]
            least = np.maximum(bare, self._minimum[:, rows])
            request[:, rows] = requested = np.where(self._lends[rows], bare, least)
            capped = np.minimum(requested, self._maximum[:, rows])
            limited[:, rows] = capped = np.where(self._named[:, rows], capped, requested)
            child_request[:, depth.parents] += np.add.reduceat(capped, depth.starts, axis=1)
        request[:, 0] = limited[:, 0] = child_request[:, 0]
        return child_request, request, limited

    def _add_up_guarantees(self) -> tuple[Ints, Ints]:
        """Add up what must not be taken away: what is used, or the unscaled min if it is more.

        Of other schedulers' pods no more than ``max``: see ``sum_charges``.
        """
        if not self._rules.guarantees_usage:
            nothing = np.zeros_like(self._demand)
            return nothing, nothing
        allocated, guaranteed = self._used.copy(), self._used.copy()
        foreign = None if self._foreign is None else self._foreign.copy()
        for depth in reversed(self._layout.depths):
            rows = slice(depth.first, depth.end)
            kept = allocated[:, rows]
            if foreign is not None:
                part, named = foreign[:, rows], self._named[:, rows]
                excess = find_excess(kept, part, self._maximum[:, rows], named)
                kept = kept - excess
                foreign[:, depth.parents] += np.add.reduceat(part - excess, depth.starts, axis=1)
            least = np.maximum(kept, self._minimum[:, rows])
            guaranteed[:, rows] = least
            allocated[:, depth.parents] += np.add.reduceat(least, depth.starts, axis=1)
        guaranteed[:, 0] = allocated[:, 0]
        return allocated, guaranteed

    def _divide(self, depth: TreeDepth, results: Results) -> None:
        rules, rows, count = self._rules, slice(depth.first, depth.end), len(self._total)
        levels = make_levels(depth.starts, depth.end - depth.first, count)
        is_known = results.is_shared[:, depth.parents]
        own = self._demand[:, depth.parents]
        demands = LevelDemands(
            minimum=self._minimum[:, rows].ravel(),
            guaranteed=results.guaranteed[:, rows].ravel() if rules.guarantees_usage else None,
            wants=results.limited[:, rows].ravel(),
            weights=self._weight[:, rows].ravel(),
            lends=np.tile(self._lends[rows], count),
            own=(own if rules.serves_own_pods_first else np.zeros_like(own)).ravel(),
        )
        total = results.share[:, depth.parents].ravel()
        minimum, share = divide_levels(levels, total, demands, is_known.ravel() & rules.scales_min)
        # Of what the whole tree does not have, guarantees are given all the same.
        is_shared = is_known | (depth.parents == 0)
        if rules.shares_named_only:
            is_shared &= self._named[:, depth.parents]
        is_given = is_shared.ravel()[levels.of].reshape(count, -1)
        results.is_shared[:, rows] = is_given
        if is_given.all():
            results.minimum[:, rows] = minimum.reshape(count, -1)
            results.share[:, rows] = share.reshape(count, -1)
        else:
            results.minimum[:, rows][is_given] = minimum.reshape(count, -1)[is_given]
            results.share[:, rows][is_given] = share.reshape(count, -1)[is_given]


def _make_results(shape: tuple[int, ...]) -> Results:
    zeros = np.zeros(shape, dtype=np.int64)
    return Results(zeros, zeros, zeros, zeros, zeros, zeros, zeros, zeros.astype(np.bool_))


def _merge(solved: Results, rows: Rows, results: Results) -> Results:
    merged = []
    for field in fields(Results):
        new, amounts = getattr(solved, field.name), getattr(results, field.name)
        amounts = amounts.astype(np.result_type(amounts, new))
        amounts[rows] = new
        merged.append(amounts)
    return Results(*merged)


def _lends(inputs: ShareInput) -> Flags:
    lends = inputs.tree.lends
    return np.zeros_like(lends) if inputs.rules.guarantees_usage else lends


def _is_comparable(before: ShareInput, now: ShareInput) -> bool:
    return (
        before.rules == now.rules
        and before.tree.layout is now.tree.layout
        and before.tree.keys == now.tree.keys
    )


def _find_changed(inputs: ShareInput, own: _OwnAmounts, before: Solution | None) -> Flags:
    tree, total = inputs.tree, inputs.total
    if before is None:
        return np.ones(len(tree.keys), dtype=np.bool_)
    was = before.inputs.total
    changed = np.array([total.get(key) != was.get(key) for key in tree.keys], dtype=np.bool_)
    pairs = [(own.demand, before.demand)]
    if inputs.rules.guarantees_usage:
        nothing = np.zeros_like(own.used)
        foreign, foreign_before = (
            nothing if amounts is None else amounts for amounts in (own.foreign, before.foreign)
        )
        pairs += [(own.used, before.used), (foreign, foreign_before)]
    tree_before = before.inputs.tree
    if tree_before is not tree:
        pairs += [
            (tree.minimum, tree_before.minimum),
            (tree.maximum, tree_before.maximum),
            (tree.weight, tree_before.weight),
            (tree.named, tree_before.named),
            (np.tile(tree.lends, (len(tree.keys), 1)), tree_before.lends),
        ]
    for now, then in pairs:
        if now is not then:
            changed |= (now != then).any(axis=1)
    return changed


def _fits_int64(inputs: ShareInput, own: _OwnAmounts) -> Flags:
    tree = inputs.tree
    totals = (inputs.total.get(key, 0) for key in tree.keys)
    amounts = np.abs(np.array([float(total) for total in totals]))
    for array in (own.demand, own.used, tree.minimum):
        amounts += np.abs(array.astype(np.float64)).sum(axis=1)
    weights = np.abs(tree.weight.astype(np.float64)).sum(axis=1)
    pairs = zip(amounts, weights, strict=True)
    return np.array([fits_int64(*pair) for pair in pairs], dtype=np.bool_)


def _collect(inputs: ShareInput, before: Solution | None) -> _OwnAmounts:
    tree, usage = inputs.tree, inputs.usage
    demand_of = _demand if inputs.rules.counts_whole_units_only else _submitted
    foreign = collect_foreign(tree, usage, inputs.rules)
    if before is None or before.inputs.tree.named is not tree.named:
        return _OwnAmounts(collect(tree, usage, demand_of), collect(tree, usage, _used), foreign)
    was = before.inputs.usage
    changed = dict.fromkeys(was.keys() - usage.keys(), NO_USAGE)
    changed |= {
        name: quota_usage for name, quota_usage in usage.items() if was.get(name) is not quota_usage
    }
    return _OwnAmounts(
        _update(tree, before.demand, changed, demand_of),
        _update(tree, before.used, changed, _used),
        foreign,
    )


def _update(tree: QuotaTree, amounts: Ints, changed: Mapping[QuotaName, Usage], pick: Pick) -> Ints:
    is_copied = False
    for name, usage in changed.items():
        row, now = tree.layout.row_of.get(name, 0), pick(usage)
        for at, key in enumerate(tree.keys if row else ()):
            amount = now.get(key, 0) if tree.named[at, row] else 0
            if amounts[at, row] != amount:
                amounts = amounts if is_copied else amounts.copy()
                amounts, is_copied = set_amount(amounts, (at, row), amount), True
    return amounts


def _demand(usage: Usage) -> Amounts:
    return usage.demand


def _submitted(usage: Usage) -> Amounts:
    return usage.submitted


def _used(usage: Usage) -> Amounts:
    return usage.used
