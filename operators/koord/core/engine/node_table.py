"""Nodes as a struct of arrays: one row per node, one column array per resource.

Rows are reused, never moved; row numbers have no meaning outside this table. Results that must not
depend on the order of arrival are sorted by ``name_rank``. Does not know units or plans.

Only resources that a node has, or had, get a column. Pods may request any other name, and each one
would cost a number per node for ever, so those share the column ``ON_NO_NODE``.

A plugin may have columns of its own for other amounts, such as an estimate of what pods really use.
It writes both arrays there; what a cycle charges to them, its session says (``Charging.demand``).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from koord.caches import MIB, BoundedCache, size_of
from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cause import Cause
from koord.core.engine.labels import LabelColumns
from koord.core.model.nodes import Node
from koord.core.model.pods import PodShape
from koord.core.model.units import CPU, MEMORY, PODS

_FIRST_ROWS = 64
_FIRST_COLUMNS = 8
_MAX_VECTORS = 4 * MIB
"""Bytes."""
ON_NO_NODE: Final = 0
"""The column of all resources that no node has. Each request for one is counted as 1."""
UNLIMITED: Final = 1 << 62
"""The allocatable amount of a plugin's column where it limits nothing: everywhere, at first."""


class RequestVector:
    """The requests of one shape as column numbers and amounts; without zero amounts.

    Those in columns of plugins come after the ``resources``.
    """

    __slots__ = ("amounts", "columns", "resources")

    def __init__(self, resources: tuple[str, ...], columns: list[int], amounts: list[int]) -> None:
        self.resources = resources
        self.columns = columns
        self.amounts = amounts

    def items(self) -> Iterator[tuple[str, int, int]]:
        """Yield (resource, column, amount)."""
        return zip(self.resources, self.columns, self.amounts, strict=False)

    def items_of_plugins(self) -> Iterator[tuple[int, int]]:
        """Yield (column, amount) in columns of plugins."""
        first = len(self.resources)
        return zip(self.columns[first:], self.amounts[first:], strict=True)

    def with_amounts(self, amounts: Iterable[tuple[int, int]]) -> "RequestVector":
        """Return the vector with further (column, amount) in columns of plugins."""
        more = [(column, amount) for column, amount in amounts if amount > 0]
        columns = [*self.columns, *(column for column, _ in more)]
        return RequestVector(self.resources, columns, [*self.amounts, *(n for _, n in more)])


class NodeTable:
    """Allocatable and used amounts, labels and taints of every node.

    ``epoch`` grows whenever labels, taints, schedulability or the set of nodes change: results that
    depend on those alone may be cached for one epoch.
    """

    def __init__(self) -> None:
        self.columns: dict[str, int] = {PODS: 1, CPU: 2, MEMORY: 3}
        """Resource that a node has or had -> its column; the first column is ``ON_NO_NODE``."""
        self.causes: dict[int, Cause] = {}
        """Column of a plugin -> why a node with too little of it is refused."""
        self.allocatable: Ints = np.zeros((_FIRST_COLUMNS, _FIRST_ROWS), dtype=np.int64)
        self.used: Ints = np.zeros((_FIRST_COLUMNS, _FIRST_ROWS), dtype=np.int64)
        self.is_live: Mask = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.nodes: list[Node | None] = [None] * _FIRST_ROWS
        self.row_of: dict[str, int] = {}
        self.labels = LabelColumns(_FIRST_ROWS)
        self.epoch = 0
        self._free_rows: list[int] = list(range(_FIRST_ROWS - 1, -1, -1))
        self._vectors: BoundedCache[tuple[tuple[str, int], ...], RequestVector] = BoundedCache(
            _MAX_VECTORS
        )
        self._rank: Ints | None = None

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def name_rank(self) -> Ints:
        """Row -> position of its node among all node names in order."""
        if self._rank is None:
            self._rank = np.full(len(self.nodes), np.iinfo(np.int64).max, dtype=np.int64)
            for rank, name in enumerate(sorted(self.row_of)):
                self._rank[self.row_of[name]] = rank
        return self._rank

    def node_at(self, row: int) -> Node:
        node = self.nodes[row]
        if node is None:
            raise KeyError(row)
        return node

    def live_rows(self) -> Iterator[tuple[str, int]]:
        """Yield (node name, row), sorted by name."""
        for name in sorted(self.row_of):
            yield name, self.row_of[name]

    def upsert(
        self, node: Node, shapes_on: Callable[[str], Iterable[PodShape]] = lambda _: ()
    ) -> int:
        """Add or replace a node; return its row. Used amounts stay as they are.

        If the node is the first with a resource, rows with pods that request it are charged again:
        ``shapes_on`` returns the shapes of the pods on a node.
        """
        row = self.row_of.get(node.name)
        before = None if row is None else self.nodes[row]
        if row is None:
            row = self._take_row(node.name)
        self.nodes[row] = node
        if before is None or before.allocatable != node.allocatable:
            self._add_columns(node, shapes_on)
            self._write_allocatable(row, node)
        if before is None or not _has_same_spec(before, node):
            self.labels.write(row, node)
            self.epoch += 1
        return row

    def remove(self, name: str) -> int | None:
        """Remove a node; return its row, or None if it was unknown."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self.nodes[row] = None
        self.is_live[row] = False
        self.allocatable[:, row] = 0
        self.allocatable[[*self.causes], row] = UNLIMITED
        self.used[:, row] = 0
        self.labels.clear(row)
        self._free_rows.append(row)
        self._rank = None
        self.epoch += 1
        return row

    def vector(self, shape: PodShape) -> RequestVector:
        """Return the request vector of a shape."""
        request_vector = self._vectors.get(shape.requests)
        if request_vector is None:
            requests = [(name, amount) for name, amount in shape.requests if amount > 0]
            columns = [self.column(name) for name, _ in requests]
            amounts = [
                1 if column == ON_NO_NODE else amount
                for column, (_, amount) in zip(columns, requests, strict=True)
            ]
            request_vector = RequestVector(tuple(name for name, _ in requests), columns, amounts)
            self._vectors.keep(shape.requests, request_vector, 2 * size_of(shape.requests))
        return request_vector

    def column(self, resource: str) -> int:
        """Return the column of a resource; ``ON_NO_NODE`` if no node has it."""
        return self.columns.get(resource, ON_NO_NODE)

    def add_column(self, cause: Cause) -> int:
        """Return a new column for a plugin, which is to have nothing but what that writes there.

        Node by node the plugin sets ``allocatable`` and keeps ``used`` current. A node that is
        removed starts again without a limit.
        """
        column = self._take_column()
        self.causes[column] = cause
        self.allocatable[column] = UNLIMITED
        return column

    def charge(self, row: int, shape: PodShape, count: int) -> None:
        """Add the requests of ``count`` pods of a shape to a row (negative: subtract)."""
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count

    def _add_columns(self, node: Node, shapes_on: Callable[[str], Iterable[PodShape]]) -> None:
        added = [name for name in node.allocatable if name not in self.columns]
        for name in added:
            self.columns[name] = self._take_column()
        if not added:
            return
        self._vectors.clear()
        for row in np.flatnonzero(self.used[ON_NO_NODE]).tolist():
            self.used[self._of_resources(), row] = 0
            for shape in shapes_on(self.node_at(row).name):
                self.charge(row, shape, 1)

    def _take_column(self) -> int:
        column = 1 + len(self.columns) + len(self.causes)
        if column >= len(self.allocatable):
            self.allocatable = np.vstack([self.allocatable, np.zeros_like(self.allocatable)])
            self.used = np.vstack([self.used, np.zeros_like(self.used)])
        return column

    def _of_resources(self) -> list[int]:
        return [ON_NO_NODE, *self.columns.values()]

    def _take_row(self, name: str) -> int:
        if not self._free_rows:
            self._grow()
        row = self._free_rows.pop()
        self.row_of[name] = row
        self.is_live[row] = True
        self._rank = None
        return row

    def _grow(self) -> None:
        rows = len(self.nodes)
        self.allocatable = np.hstack([self.allocatable, np.zeros_like(self.allocatable)])
        self.allocatable[[*self.causes], rows:] = UNLIMITED
        self.used = np.hstack([self.used, np.zeros_like(self.used)])
        self.is_live = np.hstack([self.is_live, np.zeros_like(self.is_live)])
        self.nodes.extend([None] * rows)
        self.labels.grow(2 * rows)
        self._free_rows.extend(range(2 * rows - 1, rows - 1, -1))

    def _write_allocatable(self, row: int, node: Node) -> None:
        columns = [(self.column(name), amount) for name, amount in node.allocatable.items()]
        self.allocatable[self._of_resources(), row] = 0
        for column, amount in columns:
            self.allocatable[column, row] = amount


def _has_same_spec(before: Node, after: Node) -> bool:
    return (
        before.taints == after.taints
        and before.is_unschedulable == after.is_unschedulable
        and before.is_terminating == after.is_terminating
        and before.labels == after.labels
    )
