"""Nodes whose kubelet rejected pods that the planner had placed there, and when to try them again.

The kubelet knows what the planner does not, such as a broken device. So a node is avoided after a
rejection, by pods of the same shape and namespace only: neither other pods nor other tenants wait
for it. The back-off doubles with each further rejection and ends when the node changes. Nothing
here reads a clock; rejections count from the next :meth:`Rejections.advance` on.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import FilterReach, Plugin, Session
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod, PodShape
from koord.core.model.text import plural
from koord.core.plugins.causes import NodeCause

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
FORGOTTEN_SECONDS: Final = 600.0
"""This long after a back-off the next rejection counts as the first."""
MOST_PER_NAMESPACE: Final = 1024
"""Shapes times nodes that are remembered; the oldest are forgotten first."""

MOST_NOTED: Final = 4096
"""Rejections between two cycles that count."""

Subject: TypeAlias = tuple[str, PodShape]
"""Namespace and shape: the pods that avoid a node."""


@dataclass(slots=True)
class _Backoff:
    count: int
    until: float


class Rejections(Plugin):
    """The back-offs in the cluster; times are seconds since the epoch."""

    name = "rejections"

    def __init__(self) -> None:
        self._counted_at = 0.0
        self._noted: deque[Pod] = deque(maxlen=MOST_NOTED)
        self._backoffs: dict[str, dict[tuple[PodShape, str], _Backoff]] = {}
        """Namespace -> shape and node -> its back-off, over or not; the oldest first."""
        self._due: float | None = None

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        """Note a pod when it is rejected; counts if we had placed it."""
        is_new = pod.rejection and (before is None or not before.rejection)
        if is_new and pod.node and pod.recorded is not None:
            self._noted.append(pod)

    @override
    def advance(self, now: float) -> set[str]:
        since, self._counted_at = self._counted_at, now
        if not self._noted and (self._due is None or now < self._due):
            return set()
        for pod in self._noted:
            # What was there at the start happened then; clocks of nodes are not relied on later.
            self._count(pod, now if since else min(now, max(pod.started, pod.created)))
        self._noted.clear()
        ends = [
            (backoff.until, node)
            for backoffs in self._backoffs.values()
            for (_, node), backoff in backoffs.items()
        ]
        self._due = min((until for until, _ in ends if until > now), default=None)
        return {node for until, node in ends if since < until <= now}

    @override
    def next_due(self) -> float | None:
        return self._counted_at if self._noted else self._due

    def find(self, subject: Subject, node: str) -> _Backoff | None:
        return self._backoffs.get(subject[0], {}).get((subject[1], node))

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self.remove_node(row, node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._backoffs = {
            namespace: {key: backoff for key, backoff in backoffs.items() if key[1] != name}
            for namespace, backoffs in self._backoffs.items()
        }

    @override
    def open(self, cycle: Cycle) -> "RejectionsSession | None":
        avoided: dict[Subject, list[int]] = {}
        for namespace, backoffs in self._backoffs.items():
            for (shape, node), backoff in backoffs.items():
                row = cycle.table.row_of.get(node)
                if backoff.until > self.view.now and row is not None:
                    avoided.setdefault((namespace, shape), []).append(row)
        return RejectionsSession(self, cycle.table, avoided) if avoided else None

    def _count(self, pod: Pod, at: float) -> None:
        backoffs = self._backoffs.setdefault(pod.namespace, {})
        before = backoffs.pop((pod.shape, pod.node), None)
        is_recent = before is not None and at < before.until + FORGOTTEN_SECONDS
        count = before.count + 1 if before is not None and is_recent else 1
        delay = min(FIRST_SECONDS * 2.0 ** min(count - 1, 16), LONGEST_SECONDS)
        backoffs[pod.shape, pod.node] = _Backoff(count, at + delay)
        if len(backoffs) > MOST_PER_NAMESPACE:
            del backoffs[next(iter(backoffs))]


class RejectionsSession(Session):
    """The nodes to avoid in one cycle."""

    name = Rejections.name
    reach = FilterReach.NOTHING

    def __init__(
        self, plugin: Rejections, table: NodeTable, avoided: dict[Subject, list[int]]
    ) -> None:
        self._plugin = plugin
        self._table = table
        self._avoided = avoided

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        subject = (pod.namespace, pod.shape)
        return subject if subject in self._avoided else None

    def open_rows(self, pod: Pod) -> Mask | None:
        """Return the rows that pods like this one do not avoid; None: all."""
        avoided = self._avoided.get((pod.namespace, pod.shape))
        if avoided is None:
            return None
        rows = np.ones(len(self._table.nodes), dtype=np.bool_)
        rows[avoided] = False
        return rows

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        subject = _subject_of(shape)
        if subject is None:
            return
        limits = np.full(len(self._table.nodes), NO_LIMIT, dtype=np.int64)
        limits[self._avoided[subject]] = 0
        yield NodeCause.REJECTED, limits[rows]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        subject = _subject_of(shape)
        backoff = subject and self._plugin.find(subject, self._table.node_at(row).name)
        if not backoff:
            return ""
        seconds = int(backoff.until - self._plugin.view.now) + 1
        return f"{plural(backoff.count, 'time')}, tried again in {seconds} s"


def _subject_of(shape: PodShape) -> Subject | None:
    return cast("Subject | None", shape.ask_of(Rejections.name))
