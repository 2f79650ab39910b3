"""Room for pods of DaemonSets that kube-scheduler is about to bind: new nodes are not filled first.

Whoever creates a pod says who owns it and where it must go. So this room costs others little: it is
kept from pods of the same or a lower priority alone, for a short time after the pod was created,
and of what every node has, not of devices. Nothing is charged; afterwards pods take it as if the
daemon did not exist, and kube-scheduler decides by priority, as ever.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import FilterReach, Plugin, Session
from koord.core.model.pods import Pod, PodShape
from koord.core.model.units import CPU, MEMORY, PODS
from koord.core.plugins.causes import NodeCause

KEPT_SECONDS: Final = 30.0
"""How long after its creation kube-scheduler may take to bind such a pod."""
_KEPT: Final = frozenset({CPU, MEMORY, PODS, "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class _Daemon:
    """A pod that is awaited on a node until a time, in seconds since the epoch."""

    node: str
    priority: int
    shape: PodShape
    until: float


class AwaitedDaemons(Plugin):
    """The awaited pods of a cluster."""

    name = "daemons"

    def __init__(self) -> None:
        self._awaited: dict[str, _Daemon] = {}
        self._due: float | None = None
        """No later than the first of them ends; None: none is awaited."""

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if not pod.reserved_node or not pod.is_waiting:
            daemon = self._awaited.pop(pod.uid, None)
            if daemon is not None and pod.node != daemon.node:
                self.view.note_freed((daemon.node,))
            return
        until = pod.created + KEPT_SECONDS
        self._awaited[pod.uid] = _Daemon(pod.reserved_node, pod.priority, pod.shape, until)
        self._due = until if self._due is None else min(self._due, until)

    @override
    def forget(self, uid: str) -> None:
        daemon = self._awaited.pop(uid, None)
        if daemon is not None:
            self.view.note_freed((daemon.node,))

    @override
    def advance(self, now: float) -> set[str]:
        if self._due is None or now < self._due:
            return set()
        over = {uid: daemon.node for uid, daemon in self._awaited.items() if daemon.until <= now}
        for uid in over:
            del self._awaited[uid]
        self._due = min((daemon.until for daemon in self._awaited.values()), default=None)
        return set(over.values())

    @override
    def next_due(self) -> float | None:
        return self._due

    @override
    def open(self, cycle: Cycle) -> "AwaitedDaemonsSession | None":
        awaited = [daemon for daemon in self._awaited.values() if daemon.until > cycle.now]
        return AwaitedDaemonsSession(cycle, awaited) if awaited else None


class AwaitedDaemonsSession(Session):
    """The awaited pods in one cycle."""

    name = AwaitedDaemons.name
    reach = FilterReach.ROW

    def __init__(self, cycle: Cycle, awaited: Iterable[_Daemon]) -> None:
        self._cycle = cycle
        self._awaited = tuple(awaited)
        self._priorities = sorted({daemon.priority for daemon in self._awaited})
        self._held: dict[int, Mapping[int, Ints]] = {}
        """Lowest priority that counts -> column of a resource -> what is kept of it, per row."""

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        at = bisect_left(self._priorities, pod.priority)
        return self._priorities[at] if at < len(self._priorities) else None

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        lowest = cast("int | None", shape.ask_of(self.name))
        if lowest is None:
            return
        table, used = self._cycle.table, self._cycle.used
        held_for = self._held_for(lowest)
        limits = np.full(used.shape[1], NO_LIMIT, dtype=np.int64)[rows]
        for _, column, amount in self._cycle.vector(shape).items():
            if column in held_for:
                kept = held_for[column][rows]
                free = table.allocatable[column, rows] - used[column, rows] - kept
                room = np.where(kept > 0, np.maximum(free, 0) // amount, NO_LIMIT)
                np.minimum(limits, room, out=limits)
        yield NodeCause.DAEMON, limits

    def _held_for(self, lowest: int) -> Mapping[int, Ints]:
        held = self._held.get(lowest)
        if held is None:
            held = self._held[lowest] = self._sum_up(lowest)
        return held

    def _sum_up(self, lowest: int) -> Mapping[int, Ints]:
        sums: dict[int, Ints] = {}
        for daemon in self._awaited:
            row = self._cycle.table.row_of.get(daemon.node)
            if daemon.priority < lowest or row is None or not self._may_run(daemon.shape, row):
                continue
            for key, column, amount in self._cycle.vector(daemon.shape).items():
                if key in _KEPT and column not in sums:
                    sums[column] = np.zeros(self._cycle.used.shape[1], dtype=np.int64)
                if key in _KEPT:
                    sums[column][row] += amount
        return sums

    def _may_run(self, shape: PodShape, row: int) -> bool:
        """Whether the node is large enough: otherwise the pod can never run there."""
        allocatable = self._cycle.table.allocatable
        return all(
            allocatable[column, row] >= amount
            for _, column, amount in self._cycle.vector(shape).items()
        )
