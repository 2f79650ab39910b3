"""The tree of quotas as arrays, so that a whole level is a slice; and sums over it.

Rows are breadth first, siblings by name: children stand after their parent and next to each other.
Row 0 is the virtual root. Only valid quotas come here (see ``catalog``); nothing is checked.

Nobody can refuse what other schedulers placed: the owner of a pod names a node, or another
scheduler. A quota is charged with all such pods, and its parent only up to the quota's ``max``. So
a quota takes no more from its siblings than its ``max`` allows, whatever its users create.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from koord.core.model.units import Amounts
from koord.core.quota.fair_share import MAX_WEIGHT, Flags, Ints, Rows
from koord.core.quota.model import BUILT_IN, NOTHING, ROOT, QuotaName, QuotaRules, QuotaSpec, Usage


@dataclass(frozen=True, slots=True)
class TreeDepth:
    """All levels whose parents are equally deep: children are the rows from ``first`` to ``end``.

    ``parents`` are rows, ``starts`` the first child of each, counted from ``first``.
    """

    parents: Rows
    starts: Rows
    first: int
    end: int


@dataclass(frozen=True)
class Layout:
    """Parents and children by row. ``levels`` holds (parent, first, end) of rows with children."""

    names: tuple[QuotaName, ...]
    parent: tuple[int, ...]
    levels: tuple[tuple[int, int, int], ...]

    @cached_property
    def row_of(self) -> Mapping[QuotaName, int]:
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def children_of(self) -> Mapping[int, tuple[int, int]]:
        """Row -> its children, from the first to before the end."""
        return {parent: (first, end) for parent, first, end in self.levels}

    @cached_property
    def depths(self) -> tuple[TreeDepth, ...]:
        depths = []
        at, end = 0, 1
        while at < len(self.levels):
            levels = [level for level in self.levels[at:] if level[0] < end]
            parents, starts, ends = zip(*levels, strict=True)
            first, end = starts[0], ends[-1]
            depths.append(TreeDepth(np.array(parents), np.array(starts) - first, first, end))
            at += len(levels)
        return tuple(depths)

    def path(self, row: int) -> list[int]:
        """Return the rows from ``row`` up to, and without, the root."""
        rows = []
        while row:
            rows.append(row)
            row = self.parent[row]
        return rows

    def sum_up(self, own: Ints) -> Ints:
        """Add every row's own amount (last axis) to all rows above it."""
        total = own.copy()
        for depth in reversed(self.depths):
            below = total[..., depth.first : depth.end]
            total[..., depth.parents] += np.add.reduceat(below, depth.starts, axis=-1)
        return total


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """One tree: layout, specs by row (None for the root), and arrays of resources by row.

    ``named`` tells whether the max of a quota names the resource. ``keys`` are the resources that
    any quota names, sorted.
    """

    layout: Layout
    specs: tuple[QuotaSpec | None, ...]
    keys: tuple[str, ...]
    lends: Flags = field(compare=False)
    minimum: Ints = field(compare=False)
    maximum: Ints = field(compare=False)
    weight: Ints = field(compare=False)
    named: Flags = field(compare=False)

    def spec(self, name: QuotaName) -> QuotaSpec | None:
        row = self.layout.row_of.get(name)
        return None if row is None else self.specs[row]

    def path(self, name: QuotaName) -> tuple[QuotaName, ...]:
        """Return the names from a quota up to and with the root; an unknown one is alone."""
        row = self.layout.row_of.get(name)
        if row is None:
            return (name,)
        above = (self.layout.names[ancestor] for ancestor in self.layout.path(row))
        return (*above, ROOT)

    def children(self, name: QuotaName) -> tuple[QuotaName, ...]:
        row = self.layout.row_of.get(name, -1)
        first, end = self.layout.children_of.get(row, (0, 0))
        return self.layout.names[first:end]


def make_tree(specs: Iterable[QuotaSpec]) -> QuotaTree:
    """Lay out the quotas of one tree; those that hang on none of the others are left out."""
    children: dict[QuotaName, list[QuotaSpec]] = {}
    for spec in sorted(specs, key=lambda spec: spec.name):
        if spec.name not in BUILT_IN:
            children.setdefault(spec.parent, []).append(spec)
    rows: list[QuotaSpec] = []
    parent = [0]
    levels = []
    at = 0
    while at <= len(rows):
        mine = children.get(rows[at - 1].name if at else ROOT, [])
        if mine:
            levels.append((at, len(rows) + 1, len(rows) + 1 + len(mine)))
            rows += mine
            parent += [at] * len(mine)
        at += 1
    names = (ROOT, *(spec.name for spec in rows))
    return _fill(Layout(names, tuple(parent), tuple(levels)), rows)


def replace_spec(tree: QuotaTree, spec: QuotaSpec) -> QuotaTree:
    row = tree.layout.row_of[spec.name]
    before = tree.specs[row]
    specs = [quota for quota in (*tree.specs[:row], spec, *tree.specs[row + 1 :]) if quota]
    if before is None or (before.parent, before.tree_id) != (spec.parent, spec.tree_id):
        return make_tree(specs)
    if before.max.keys() != spec.max.keys():
        return _fill(tree.layout, specs)
    lends = tree.lends.copy()
    lends[row] = spec.lends
    return replace(
        tree,
        specs=(None, *specs),
        lends=lends,
        minimum=_with_row(tree.minimum, row, tree.keys, spec.min),
        maximum=_with_row(tree.maximum, row, tree.keys, spec.max),
        weight=_with_row(tree.weight, row, tree.keys, spec.share_weight()),
    )


def make_ints(amounts: Sequence[Sequence[int]]) -> Ints:
    """Return an array of int64, or of Python integers if any amount does not fit."""
    try:
        return np.array(amounts, dtype=np.int64)
    except OverflowError:
        return np.array(amounts, dtype=object)


def set_amount(amounts: Ints, at: tuple[int, int], amount: int) -> Ints:
    try:
        amounts[at] = amount
    except OverflowError:
        amounts = amounts.astype(object)
        amounts[at] = amount
    return amounts


def collect(
    tree: QuotaTree, usage: Mapping[QuotaName, Usage], pick: Callable[[Usage], Amounts]
) -> Ints:
    """Return an amount of every quota's own pods, of the resources that its max names."""
    columns = {key: [0] * len(tree.specs) for key in tree.keys}
    for name, own in usage.items():
        row = tree.layout.row_of.get(name, 0)
        spec = tree.specs[row]
        if spec is None:
            continue
        for key, amount in pick(own).items():
            if key in spec.max:
                columns[key][row] = amount
    return make_ints([*columns.values()]).reshape(len(columns), len(tree.specs))


def _with_row(amounts: Ints, row: int, keys: Sequence[str], now: Mapping[str, int]) -> Ints:
    changed = amounts.copy()
    for at, key in enumerate(keys):
        changed = set_amount(changed, (at, row), now.get(key, 0))
    return changed


def _fill(layout: Layout, specs: Sequence[QuotaSpec]) -> QuotaTree:
    keys = tuple(sorted({key for spec in specs for key in spec.max}))

    def columns(pick: Callable[[QuotaSpec], Mapping[str, int]]) -> Ints:
        amounts = [pick(spec) for spec in specs]
        rows = [[0, *(amount.get(key, 0) for amount in amounts)] for key in keys]
        return make_ints(rows).reshape(len(keys), len(specs) + 1)

    named = np.ones((len(keys), len(specs) + 1), dtype=np.bool_)
    for row, spec in enumerate(specs, start=1):
        if len(spec.max) < len(keys):
            named[:, row] = [key in spec.max for key in keys]
    return QuotaTree(
        layout,
        (None, *specs),
        keys,
        np.array([True, *(spec.lends for spec in specs)]),
        columns(lambda spec: spec.min),
        columns(lambda spec: spec.max),
        columns(lambda spec: spec.share_weight()),
        named,
    )


def pass_on(used: int, foreign: int, most: int | None) -> tuple[int, int]:
    """Return what a quota charges to its parent, and the part of it of other schedulers' pods."""
    cut = 0 if most is None else min(foreign, max(0, used - most))
    return used - cut, foreign - cut


def find_excess(total: Ints, foreign: Ints, maximum: Ints, named: Flags) -> Ints:
    """Return what quotas do not charge to their parents; see ``pass_on``."""
    if maximum.dtype.hasobject and not total.dtype.hasobject:
        maximum = np.minimum(maximum, int(MAX_WEIGHT)).astype(total.dtype)
    excess: Ints = np.where(named, np.minimum(foreign, np.maximum(total - maximum, 0)), 0)
    return excess


def collect_foreign(
    tree: QuotaTree, usage: Mapping[QuotaName, Usage], rules: QuotaRules
) -> Ints | None:
    """Return what other schedulers' pods use of every quota; None if nothing."""
    if not rules.restricts_use or not any(own.foreign_used for own in usage.values()):
        return None
    foreign = collect(tree, usage, lambda own: own.foreign_used)
    return foreign if foreign.any() else None


def sum_charges(tree: QuotaTree, used: Ints, foreign: Ints | None) -> tuple[Ints, Ints | None]:
    """Return what every quota is charged with, and other schedulers' part of that, by row."""
    if foreign is None:
        return tree.layout.sum_up(used), None
    if foreign.dtype.hasobject != used.dtype.hasobject:
        used, foreign = used.astype(object), foreign.astype(object)
    total, part = used.copy(), foreign.copy()
    for depth in reversed(tree.layout.depths):
        rows = slice(depth.first, depth.end)
        excess = find_excess(
            total[:, rows], part[:, rows], tree.maximum[:, rows], tree.named[:, rows]
        )
        total[:, depth.parents] += np.add.reduceat(total[:, rows] - excess, depth.starts, axis=1)
        part[:, depth.parents] += np.add.reduceat(part[:, rows] - excess, depth.starts, axis=1)
    return total, part


def find_uncharged(tree: QuotaTree, usage: Mapping[QuotaName, Usage], rules: QuotaRules) -> Amounts:
    """Return what pods of a tree use that its root is not charged with."""
    foreign = collect_foreign(tree, usage, rules)
    if foreign is None:
        return NOTHING
    used = collect(tree, usage, lambda own: own.used)
    charged, _ = sum_charges(tree, used, foreign)
    uncharged = used.sum(axis=1) - charged[:, 0]
    return {
        key: amount for key, amount in zip(tree.keys, uncharged.tolist(), strict=True) if amount
    }
