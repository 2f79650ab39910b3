"""Keeps pods off nodes that are about to go, and knows the nodes that are coming.

A node that an autoscaler or a cloud is about to take says so by a taint. Pods that tolerate every
taint would be placed there all the same, and lost with it; a gang with them. Where no node has such
a taint, this costs nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from typing_extensions import override

from koord.core.autoscaler.nodes import (
    could_hold,
    find_end,
    is_starting,
    is_young,
    may_start,
    type_of,
)
from koord.core.autoscaler.options import AutoscalerOptions
from koord.core.autoscaler.reasons import NodesMayCome, NoKindSuits
from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import FilterReach, Growing, Plugin
from koord.core.engine.reasons import NewNodes
from koord.core.model.nodes import Node
from koord.core.model.pods import PodShape

NAME: Final = "autoscaler"
LEAVING: Final = Cause(
    "NodeLeaving",
    13,
    "node(s) are about to be taken out of the cluster ({detail})",
    "Wait: {nodes} are about to go, and others may come.",
    by_detail=True,
)


@dataclass(frozen=True, slots=True)
class StartingNode:
    """A node that has come and cannot be used yet; ``node`` offers what will be free of it.

    Unless it ``is_closed`` to all pods, only those wait for it that request what it is ``lacking``:
    it has none of what device plugins add until these have started. Another node of its type shows
    what it will have.
    """

    node: Node
    is_closed: bool
    lacking: frozenset[str]

    def is_awaited_by(self, shape: PodShape) -> bool:
        """Whether it will take a pod of a shape, and does not yet."""
        is_shut = self.is_closed or any(name in self.lacking for name, _ in shape.requests)
        return is_shut and could_hold(self.node, shape)

    def without(self, shape: PodShape) -> "StartingNode":
        """Return it as it is with a pod of a shape."""
        free = dict(self.node.allocatable)
        for name, n in shape.requests:
            free[name] = free.get(name, 0) - n
        return replace(self, node=replace(self.node, allocatable=free))


class ElasticNodes(Plugin):
    """The nodes that are about to go, and those that have come just now."""

    name = NAME

    def __init__(self, options: AutoscalerOptions | None = None) -> None:
        self._options = options or AutoscalerOptions()
        self._leaving: dict[int, str] = {}
        """Row -> the taint that says it."""
        self._young: dict[int, Node] = {}

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        end = find_end(node)
        if end:
            self._leaving[row] = end
        else:
            self._leaving.pop(row, None)
        # What is read at the start is judged later: nobody has said yet what time it is.
        if is_young(node, self.view.now) or not self.view.now:
            self._young[row] = node
        else:
            self._young.pop(row, None)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._leaving.pop(row, None)
        self._young.pop(row, None)

    def find_starting(self) -> list[StartingNode]:
        """Return the nodes that have come and cannot be used yet, oldest first."""
        now = self.view.now
        self._young = {row: node for row, node in self._young.items() if is_young(node, now)}
        if not self._young:
            return []
        complete = self._find_complete_of_types()
        starting = []
        for row, node in self._young.items():
            full = complete.get(type_of(node), {})
            lacking = {name: n for name, n in full.items() if not node.allocatable.get(name)}
            is_closed = is_starting(node, now)
            if is_closed or (lacking and may_start(node, now)):
                offered = {**node.allocatable, **lacking}
                free = {name: n - self._used(row, name) for name, n in offered.items()}
                as_it_will_be = replace(node, allocatable=free)
                starting.append(StartingNode(as_it_will_be, is_closed, frozenset(lacking)))
        return sorted(starting, key=lambda coming: (coming.node.created, coming.node.name))

    def find_coming(self, shape: PodShape) -> tuple[str, ...]:
        """Return the nodes that will take pods of a shape, and do not yet."""
        starting = self.find_starting()
        return tuple(each.node.name for each in starting if each.is_awaited_by(shape))

    def _used(self, row: int, resource: str) -> int:
        column = self.view.table.columns.get(resource)
        return 0 if column is None else int(self.view.table.used[column, row])

    def _find_complete_of_types(self) -> dict[str, Mapping[str, int]]:
        """Return, by the type of young nodes, what the nodes of it offer that has most of all."""
        types = {type_of(node) for node in self._young.values()} - {""}
        most: dict[str, Mapping[str, int]] = {}
        for node in self.view.table.nodes if types else ():
            kind = "" if node is None else type_of(node)
            if node is not None and kind in types:
                before = most.get(kind, {})
                most[kind] = node.allocatable if _count(node) > len(before) else before
        return most

    @override
    def open(self, cycle: Cycle) -> "NewNodesSession | None":
        if self._leaving:
            return ElasticNodesSession(self._leaving, cycle.table, self._options)
        return NewNodesSession(self._options) if self._options.is_on else None


def _count(node: Node) -> int:
    return sum(n > 0 for n in node.allocatable.values())


def find_elastic(plugins: Iterable[Plugin]) -> ElasticNodes | None:
    """Return the plugin; Koordinator has none."""
    return next((plugin for plugin in plugins if isinstance(plugin, ElasticNodes)), None)


class NewNodesSession(Growing):
    """The kinds of nodes that may come, in one cycle."""

    name = NAME

    def __init__(self, options: AutoscalerOptions) -> None:
        self._options = options

    @override
    def new_nodes(self, shape: PodShape) -> NewNodes | None:
        if not self._options.is_on:
            return None
        suits = any(could_hold(kind, shape) for kind in self._options.kinds)
        return NodesMayCome() if suits else NoKindSuits()


class ElasticNodesSession(NewNodesSession):
    """The nodes that are about to go, too."""

    reach = FilterReach.NOTHING

    def __init__(
        self, leaving: dict[int, str], table: NodeTable, options: AutoscalerOptions
    ) -> None:
        super().__init__(options)
        self._leaving = leaving
        self._limits = np.full(len(table.nodes), NO_LIMIT, dtype=np.int64)
        self._limits[list(leaving)] = 0

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        yield LEAVING, self._limits[rows]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        return self._leaving.get(row, "") if cause is LEAVING else ""
