"""The cluster at one moment, on which a planner may try things: place, checkpoint, roll back.

A snapshot copies what planning changes (used amounts, host ports) and shares what it does not. It
answers which nodes take a shape, and how many pods of it. It does not choose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from koord.core.placement.ports import HostPorts
from koord.core.placement.table import Ints, Mask, NodeTable, RequestVector
from koord.core.pods import PodShape
from koord.core.reasons import NodeRefusal

if TYPE_CHECKING:
    from koord.core.placement.quota_gate import QuotaGate

Checkpoint: TypeAlias = int


@dataclass(frozen=True, slots=True)
class _Placed:
    row: int
    shape: PodShape
    count: int


class Snapshot:
    """Used amounts and ports of all nodes, with an undo log.

    ``version`` grows with every change, rollbacks included: equal versions mean equal answers.
    """

    def __init__(self, table: NodeTable, ports: HostPorts) -> None:
        self.table = table
        self.used: Ints = table.used.copy()
        self.quotas: QuotaGate | None = None
        """What quotas say; None where there are none."""
        self.version = 0
        self._ports = ports
        self._ports_are_ours = False
        self._log: list[_Placed] = []

    def checkpoint(self) -> Checkpoint:
        """Return a mark to roll back to."""
        return len(self._log)

    def rollback(self, mark: Checkpoint) -> None:
        """Undo everything placed since ``mark``."""
        while len(self._log) > mark:
            placed = self._log.pop()
            self._apply(placed.row, placed.shape, -placed.count)

    def place(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Put ``count`` pods of a shape on a row. The caller has asked :meth:`room` before."""
        self._log.append(_Placed(row, shape, count))
        self._apply(row, shape, count)

    def room(self, shape: PodShape) -> Ints:
        """Return, per row, how many more pods of the shape fit."""
        copies = self._copies(self.vector(shape), self.used)
        copies[~self.table.eligible(shape)] = 0
        if shape.host_ports:
            np.minimum(copies, self._port_room(shape), out=copies)
        return copies

    def room_when_empty(self, shape: PodShape) -> Ints:
        """Return, per row, how many pods of the shape fit on the node with nothing else on it."""
        copies = self._copies(self.vector(shape), None)
        copies[~self.table.eligible(shape)] = 0
        if shape.host_ports:
            np.minimum(copies, 1, out=copies)
        return copies

    def room_at(self, shape: PodShape, row: int) -> bool:
        """Whether one more pod of the shape fits on the row."""
        if not self.table.eligible(shape)[row] or (
            shape.host_ports and not self._port_room(shape)[row]
        ):
            return False
        vector = self.vector(shape)
        return all(
            self.table.allocatable[column, row] - self.used[column, row] >= amount
            for column, amount in zip(vector.columns, vector.amounts, strict=True)
        )

    def holds(self, shape: PodShape, node: str) -> bool:
        """Whether a node can keep a pod of the shape that already counts as used on it."""
        row = self.table.row_of.get(node)
        if row is None or not self.table.eligible(shape)[row]:
            return False
        columns = self.vector(shape).columns
        return bool((self.used[columns, row] <= self.table.allocatable[columns, row]).all())

    def checks(self, shape: PodShape) -> Iterator[tuple[NodeRefusal, str, Mask]]:
        """Yield every check in order as (cause, resource, rows that pass).

        The resource checks come last, one per resource; a node may fail several of them.
        """
        for refusal, rows in self.table.static_checks(shape):
            yield refusal, "", rows
        if shape.host_ports:
            yield NodeRefusal.HOST_PORT, "", self._port_room(shape) > 0
        vector = self.vector(shape)
        for name, column, amount in zip(
            vector.resources,
            vector.columns,
            vector.amounts,
            strict=True,
        ):
            free = self.table.allocatable[column] - self.used[column]
            yield NodeRefusal.RESOURCE, name, free >= amount

    def vector(self, shape: PodShape) -> RequestVector:
        """Return the request vector of a shape, with a column here for each of its resources."""
        vector = self.table.vector(shape)
        missing = len(self.table.allocatable) - len(self.used)
        if missing:  # the shape asked for a resource that was never seen before
            more = np.zeros((missing, self.used.shape[1]), dtype=np.int64)
            self.used = np.vstack([self.used, more])
        return vector

    def _copies(self, vector: RequestVector, used: Ints | None) -> Ints:
        copies: Ints | None = None
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            free = self.table.allocatable[column]
            if used is not None:
                free = free - used[column]
            fits = free // amount
            copies = fits if copies is None else np.minimum(copies, fits, out=copies)
        if copies is None:
            raise ValueError("a shape asks for at least one pod slot")
        return np.maximum(copies, 0, out=copies)

    def _port_room(self, shape: PodShape) -> Ints:
        room = np.ones(len(self.table.nodes), dtype=np.int64)
        room[self._ports.rows_in_conflict(shape.host_ports)] = 0
        return room

    def _apply(self, row: int, shape: PodShape, count: int) -> None:
        self.version += 1
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count
        if shape.host_ports:
            if not self._ports_are_ours:
                self._ports, self._ports_are_ours = self._ports.copy(), True
            self._ports.charge(row, shape.host_ports, count)
