"""The cluster at one moment, on which a planner may try things: place, checkpoint, roll back.

A snapshot copies what planning changes (used amounts, host ports, who is near whom) and shares what
it does not. It answers which nodes take a shape, and how many pods of it. It does not choose.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from koord.core.constraints import PodConstraints, PodSelector, VolumeConstraints
from koord.core.framework.arrays import Ints, Mask
from koord.core.framework.node_table import NodeTable, RequestVector
from koord.core.framework.reasons import NodeRefusal
from koord.core.plugins.host_ports import HostPorts
from koord.core.plugins.pod_affinity import AffinityBase, PodAffinityState
from koord.core.plugins.pod_affinity_filter import affinity_limits
from koord.core.plugins.reasons import VolumeNotReady
from koord.core.plugins.topology_spread import spread_limits
from koord.core.plugins.volumes import Volume, VolumeCache, VolumeClaim, volume_limits
from koord.core.pods import Pod, PodShape
from koord.core.reasons import NeedsKubeScheduler
from koord.core.topology.strategy.topology_view import NO_NETWORK

if TYPE_CHECKING:
    from koord.core.quota.session import QuotaSession


class Checkpoint(NamedTuple):
    """How much has been done: pods placed, and quotas charged."""

    placed: int
    charged: int


_MANY: Final = 8
"""From so many rows on, arithmetic on arrays is faster than row by row."""

_PASSING: Final = frozenset({NodeRefusal.POD_AFFINITY, NodeRefusal.SPREAD})
"""What pods that are placed elsewhere may put an end to."""

_Resolved: TypeAlias = tuple[PodShape, tuple[PodSelector, ...], VolumeConstraints | None]


_Undo: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]
"""The inverse of one change: a function and its arguments."""


class Cycle:
    """Used amounts, ports and neighbours of all nodes, with an undo log.

    ``version`` grows with every change, rollbacks included: equal versions mean equal answers.
    ``confined`` restricts shapes to some rows for as long as it is set.
    """

    def __init__(
        self,
        table: NodeTable,
        ports: HostPorts,
        neighbourhood: AffinityBase,
        volumes: VolumeCache,
    ) -> None:
        self.table = table
        self.used: Ints = table.used.copy()
        self.quotas: QuotaSession | None = None
        """What quotas say; None where there are none."""
        self.version = 0
        self.network = NO_NETWORK
        self.around = PodAffinityState(neighbourhood, table)
        self.confined: Mapping[PodShape, Mask] = {}
        self._ports = ports
        self._ports_are_ours = False
        self._volumes = volumes
        self._taken: set[str] = set()
        self._resolved: dict[_Resolved, PodShape] = {}
        self._log: list[_Undo] = []

    def checkpoint(self) -> Checkpoint:
        """Return a mark to roll back to."""
        return Checkpoint(len(self._log), self.quotas.checkpoint() if self.quotas else 0)

    def rollback(self, mark: Checkpoint) -> None:
        """Undo everything since ``mark``: placed pods, charges, and all that was logged."""
        while len(self._log) > mark.placed:
            undo, arguments = self._log.pop()
            undo(*arguments)
        if self.quotas is not None:
            self.quotas.rollback(mark.charged)

    def place(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Put ``count`` pods of a shape on a row. The caller has asked :meth:`room` before."""
        self._log.append((self._apply, (row, shape, -count)))
        self._apply(row, shape, count)

    def place_each(self, shape: PodShape, counts: Mapping[int, int]) -> None:
        """Put pods of a shape on many rows, row -> how many."""
        if len(counts) < _MANY or shape.host_ports or not shape.is_alone:
            for row, count in counts.items():
                self.place(shape, row, count)
            return
        self.version += 1
        self._log += [(self._apply, (row, shape, -count)) for row, count in counts.items()]
        rows = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts))
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, rows] += amount * times

    def log(self, undo: Callable[..., object], *arguments: object) -> None:
        """Have :meth:`rollback` call ``undo`` with these arguments: the inverse of a change."""
        self._log.append((undo, arguments))

    @contextmanager
    def only(self, rows: Mapping[PodShape, Mask]) -> Iterator[None]:
        """Restrict shapes to some rows for the duration of a ``with`` block."""
        before, self.confined = self.confined, rows
        try:
            yield
        finally:
            self.confined = before

    def note(self, constraints: PodConstraints) -> None:
        """Learn what pods ask of others, before any of those others is placed."""
        self.around.note(constraints)

    def shape_of(self, pod: Pod) -> PodShape:
        """Return the shape of a pod with what only the cluster can tell; equal ones are one."""
        is_confined = self.quotas is not None and self.quotas.confines
        shape = self.quotas.confine(pod) if self.quotas and is_confined else pod.shape
        if shape.constraints is not None:
            self.around.note(shape.constraints)
        elif self.around.is_quiet and not pod.claims:
            return shape
        sought_by = self.around.sought_by(pod.profile)
        volumes = self._volumes.constraints(pod) if pod.claims else None
        key = (shape, sought_by, volumes)
        resolved = self._resolved.get(key)
        if resolved is None:
            resolved = self._resolved[key] = shape.resolved(sought_by, volumes)
        return resolved

    def shapes_of(self, pods: Sequence[Pod]) -> list[PodShape]:
        """Return :meth:`shape_of` of each; what they ask of others has been noted."""
        if not self.around.is_quiet or (self.quotas is not None and self.quotas.confines):
            return [self.shape_of(pod) for pod in pods]
        return [self.shape_of(pod) if pod.claims else pod.shape for pod in pods]

    def volume_obstacle(self, pod: Pod) -> VolumeNotReady | NeedsKubeScheduler | None:
        """Return what is the matter with the volumes of a pod, wherever it may go."""
        return self._volumes.obstacle(pod) if pod.claims else None

    def bound_volumes(self, pod: Pod) -> Iterator[tuple[VolumeClaim, Volume]]:
        """Yield the claims of a pod that are bound, each with its volume."""
        return self._volumes.bound(pod)

    def is_reactive(self, shape: PodShape) -> bool:
        """Whether a pod of the shape, once placed, changes where the next of them may go."""
        if shape.volumes is not None and shape.volumes.exclusive:
            return True
        constraints = shape.constraints
        return constraints is not None and any(
            pods in shape.sought_by for pods in constraints.selectors
        )

    def room(self, shape: PodShape) -> Ints:
        """Return, per row, how many more pods of the shape may go there (and nowhere else)."""
        room = self.capacity(shape)
        for _, limits in self.limits(shape):
            np.minimum(room, limits, out=room)
        return room

    def reach(self, shape: PodShape) -> Ints:
        """Return :meth:`room` as it may become: others may yet come near, and spread even out."""
        reach = self.capacity(shape)
        for cause, limits in self.limits(shape):
            if cause not in _PASSING:
                np.minimum(reach, limits, out=reach)
        return reach

    def capacity(self, shape: PodShape) -> Ints:
        """Return :meth:`room` as far as other pods and volumes do not matter."""
        copies = self._copies(self.vector(shape), self.used)
        copies[~self.table.eligible(shape)] = 0
        if shape.host_ports:
            np.minimum(copies, self._port_room(shape), out=copies)
        confined = self.confined.get(shape) if self.confined else None
        if confined is not None:
            copies[~confined] = 0
        return copies

    def limits(self, shape: PodShape) -> Iterator[tuple[NodeRefusal, Ints]]:
        """Yield (cause, how many more pods per row) for each rule on volumes and other pods."""
        if shape.volumes is not None:
            yield from volume_limits(shape.volumes, self.table.labels, self._is_taken)
        if shape.constraints is not None:
            yield from spread_limits(shape, self.around)
        if shape.constraints is not None or shape.sought_by:
            yield from affinity_limits(shape, self.around)

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
        ) and all(limits[row] for _, limits in self.limits(shape))

    def holds(self, shape: PodShape, node: str) -> bool:
        """Whether a node can keep a pod of the shape that already counts as used on it."""
        row = self.table.row_of.get(node)
        if row is None or not self.table.eligible(shape)[row]:
            return False
        columns = self.vector(shape).columns
        return bool((self.used[columns, row] <= self.table.allocatable[columns, row]).all())

    def checks(self, shape: PodShape) -> Iterator[tuple[NodeRefusal, str, Mask]]:
        """Yield every check in the order of kube-scheduler as (cause, resource, rows that pass).

        There is one resource check per resource, and a node may fail several of them.
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
        for refusal, limits in self.limits(shape):
            yield refusal, "", limits > 0

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

    def _is_taken(self, claim: str) -> bool:
        return claim in self._taken or claim in self._volumes.in_use

    def _apply(self, row: int, shape: PodShape, count: int) -> None:
        self.version += 1
        vector = self.vector(shape)
        for column, amount in zip(vector.columns, vector.amounts, strict=True):
            self.used[column, row] += amount * count
        if shape.host_ports:
            if not self._ports_are_ours:
                self._ports, self._ports_are_ours = self._ports.copy(), True
            self._ports.charge(row, shape.host_ports, count)
        if shape.constraints is not None or shape.sought_by or shape.volumes is not None:
            self.around.apply(shape, row, count)
            self._take(shape.volumes, is_taken=count > 0)

    def _take(self, volumes: VolumeConstraints | None, *, is_taken: bool) -> None:
        for claim in () if volumes is None else volumes.exclusive:
            if is_taken:
                self._taken.add(claim)
            else:
                self._taken.discard(claim)
