"""The tree of quotas as flat columns, so that a whole level is a slice of a list.

Rows are breadth first, siblings by name: children stand after their parent and next to each other.
Row 0 is the virtual root. Only valid quotas come here (see ``book``); nothing is checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from koord.core.quota.model import BUILT_IN, ROOT, QuotaName, QuotaSpec

NO_LIMIT: Final = 1 << 128
"""Stands in a column of limits where a quota does not name the resource: above every amount."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """What the quotas declare for one resource, by row. ``named``: it stands in the quota's max."""

    minimum: Sequence[int]
    maximum: Sequence[int]
    weight: Sequence[int]
    named: Sequence[bool]


@dataclass(frozen=True)
class Layout:
    """Who is whose child. ``levels`` holds, for each row with children, (row, first, end)."""

    names: tuple[QuotaName, ...]
    parent: tuple[int, ...]
    levels: tuple[tuple[int, int, int], ...]

    @cached_property
    def row_of(self) -> Mapping[QuotaName, int]:
        """Name -> row."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def children_of(self) -> Mapping[int, tuple[int, int]]:
        """Row -> its children, from the first to before the end."""
        return {parent: (first, end) for parent, first, end in self.levels}

    def path(self, row: int) -> list[int]:
        """Return the rows from ``row`` up to, and without, the root."""
        rows = []
        while row:
            rows.append(row)
            row = self.parent[row]
        return rows


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """One tree: layout, specs by row (None for the root), and a column for each resource."""

    layout: Layout
    specs: tuple[QuotaSpec | None, ...]
    lends: Sequence[bool]
    columns: Mapping[str, KeyColumn]

    def spec(self, name: QuotaName) -> QuotaSpec | None:
        """Return the spec of a quota of this tree."""
        row = self.layout.row_of.get(name)
        return None if row is None else self.specs[row]

    def path(self, name: QuotaName) -> tuple[QuotaName, ...]:
        """Return the names from a quota up to and with the root; an unknown one is alone."""
        row = self.layout.row_of.get(name)
        if row is None:
            return (name,)
        above = (self.layout.names[one] for one in self.layout.path(row))
        return (*above, ROOT)

    def children(self, name: QuotaName) -> tuple[QuotaName, ...]:
        """Return the names of a quota's children, sorted."""
        row = self.layout.row_of.get(name)
        level = next((one for one in self.layout.levels if one[0] == row), None)
        return self.layout.names[level[1] : level[2]] if level else ()


def make_tree(specs: Iterable[QuotaSpec]) -> QuotaTree:
    """Lay out the quotas of one tree; those that hang on none of the others are left out."""
    children: dict[QuotaName, list[QuotaSpec]] = {}
    for spec in sorted(specs, key=lambda spec: spec.name):
        if spec.name not in BUILT_IN:
            children.setdefault(spec.parent, []).append(spec)
    rows: list[QuotaSpec | None] = [None]
    parent = [0]
    levels = []
    at = 0
    while at < len(rows):
        parent_spec = rows[at]
        mine = children.get(parent_spec.name if parent_spec else ROOT, [])
        if mine:
            levels.append((at, len(rows), len(rows) + len(mine)))
            rows += mine
            parent += [at] * len(mine)
        at += 1
    names = (ROOT, *(spec.name for spec in rows if spec))
    return _fill(Layout(names, tuple(parent), tuple(levels)), tuple(rows))


def replace_spec(tree: QuotaTree, spec: QuotaSpec) -> QuotaTree:
    """Return the tree with other numbers for one quota, keeping what they do not touch."""
    row = tree.layout.row_of[spec.name]
    before = tree.specs[row]
    specs = (*tree.specs[:row], spec, *tree.specs[row + 1 :])
    if before is None or _has_other_shape(before, spec):
        return make_tree(one for one in specs if one)
    lends = tree.lends
    if before.lends is not spec.lends:
        lends = [*lends[:row], spec.lends, *lends[row + 1 :]]
    columns = dict(tree.columns)
    for key in _changed_keys(before, spec):
        known = columns.get(key)
        columns[key] = _column(key, specs) if known is None else _with_row(known, row, spec, key)
    return replace(tree, specs=specs, lends=lends, columns=_without_unnamed(columns))


def _has_other_shape(before: QuotaSpec, after: QuotaSpec) -> bool:
    return (before.parent, before.tree_id) != (after.parent, after.tree_id)


def _changed_keys(before: QuotaSpec, after: QuotaSpec) -> list[str]:
    pairs = (
        (before.min, after.min),
        (before.max, after.max),
        (before.share_weight(), after.share_weight()),
    )
    keys = {*before.max, *after.max}
    return sorted(
        key for key in keys if any(one.get(key) != other.get(key) for one, other in pairs)
    )


def _fill(layout: Layout, specs: tuple[QuotaSpec | None, ...]) -> QuotaTree:
    keys = sorted({key for spec in specs if spec for key in spec.max})
    columns = {key: _column(key, specs) for key in keys}
    return QuotaTree(layout, specs, [spec is None or spec.lends for spec in specs], columns)


def _with_row(column: KeyColumn, row: int, spec: QuotaSpec, key: str) -> KeyColumn:
    return KeyColumn(
        minimum=[*column.minimum[:row], spec.min.get(key, 0), *column.minimum[row + 1 :]],
        maximum=[*column.maximum[:row], spec.max.get(key, NO_LIMIT), *column.maximum[row + 1 :]],
        weight=[*column.weight[:row], spec.share_weight().get(key, 0), *column.weight[row + 1 :]],
        named=[*column.named[:row], key in spec.max, *column.named[row + 1 :]],
    )


def _column(key: str, specs: Sequence[QuotaSpec | None]) -> KeyColumn:
    declared = [spec for spec in specs if spec]
    return KeyColumn(
        minimum=[0, *(spec.min.get(key, 0) for spec in declared)],
        maximum=[NO_LIMIT, *(spec.max.get(key, NO_LIMIT) for spec in declared)],
        weight=[0, *(spec.share_weight().get(key, 0) for spec in declared)],
        named=[True, *(key in spec.max for spec in declared)],
    )


def _without_unnamed(columns: dict[str, KeyColumn]) -> dict[str, KeyColumn]:
    return {key: column for key, column in columns.items() if any(column.named[1:])}
