"""Keeps pods off nodes that are about to go, and knows the nodes that are coming.

A node that an autoscaler or a cloud is about to take says so by a taint. Pods that tolerate every
taint would be placed there all the same, and lost with it; a gang with them. Where no node has such
a taint, this costs nothing.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from typing_extensions import override

from koord.core.autoscaler.nodes import find_end, is_starting, is_young
from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import FilterReach, Plugin, Session
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


class ElasticNodes(Plugin):
    """The nodes that are about to go, and those that have come just now."""

    name = NAME

    def __init__(self) -> None:
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
        if is_young(node, self.view.now):
            self._young[row] = node
        else:
            self._young.pop(row, None)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._leaving.pop(row, None)
        self._young.pop(row, None)

    def find_starting(self) -> list[Node]:
        """Return the nodes that have come and cannot be used yet, oldest first."""
        now = self.view.now
        for row, node in list(self._young.items()):
            if not is_young(node, now):
                del self._young[row]
        starting = [node for node in self._young.values() if is_starting(node, now)]
        return sorted(starting, key=lambda node: (node.created, node.name))

    @override
    def open(self, cycle: Cycle) -> "ElasticNodesSession | None":
        return ElasticNodesSession(self._leaving, cycle.table) if self._leaving else None


class ElasticNodesSession(Session):
    """The nodes that are about to go, in one cycle."""

    name = NAME
    reach = FilterReach.NOTHING

    def __init__(self, leaving: dict[int, str], table: NodeTable) -> None:
        self._leaving = leaving
        self._limits = np.full(len(table.nodes), NO_LIMIT, dtype=np.int64)
        self._limits[list(leaving)] = 0

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        yield LEAVING, self._limits[rows]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        return self._leaving.get(row, "") if cause is LEAVING else ""
