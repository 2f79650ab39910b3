"""Keeps pods off nodes that go out of service before the pods would end.

A pod with a time limit may use a node until then, as queues know limits. Others are kept off from a
lead time before the start. Pods that run already stay: nothing is evicted here. What
pods say of their end they can only lie about to their own cost.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import FilterReach, Plugin, Session
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod, PodShape
from koord.core.model.selectors import LabelSelector, is_selected
from koord.core.model.text import format_time
from koord.core.queue.plugin import Queues

NAME: Final = "maintenance"
MAINTENANCE: Final = Cause(
    "NodeMaintenance",
    14,
    "node(s) go into maintenance at {detail}",
    "Wait until {nodes} are back, or give the pods an activeDeadlineSeconds that ends before.",
    by_detail=True,
)


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """When some nodes are out of service; times in seconds since the epoch.

    ``selector`` None selects none besides ``nodes``. ``lead`` is how many seconds before the start
    pods without a known end are kept off.
    """

    name: str
    start: float
    end: float
    nodes: frozenset[str] = frozenset()
    selector: LabelSelector = None
    lead: float = 3600.0
    uid: str = ""
    generation: int = 0

    def covers(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is one of them."""
        return name in self.nodes or (
            self.selector is not None and is_selected(labels, self.selector)
        )

    def keeps_off(self, now: float, seconds: float | None) -> bool:
        """Whether a pod may not start now that ends after ``seconds``; None: nobody knows."""
        if now >= self.end:
            return False
        until = now + (self.lead if seconds is None else seconds)
        return now >= self.start or until > self.start


class Maintenances(Plugin):
    """All windows of a cluster, and the rows of their nodes."""

    name = NAME

    def __init__(self) -> None:
        self.windows: dict[str, MaintenanceWindow] = {}
        self._nodes: dict[int, Node] = {}
        self._rows: dict[str, Ints] | None = {}
        """Window -> its rows; None: to be found again."""
        self._seen_at = 0.0

    def upsert(self, window: MaintenanceWindow) -> None:
        self.remove(window)
        self.windows[window.name] = window
        self._rows = None

    def remove(self, window: MaintenanceWindow) -> None:
        """Forget a window; what its nodes kept off is tried again."""
        before = self.windows.pop(window.name, None)
        self._rows = None
        if before is not None:
            self.view.note_freed(self.nodes_of(before))

    def nodes_of(self, window: MaintenanceWindow) -> list[str]:
        """Return the nodes that a window is about."""
        nodes = self._nodes.values()
        return [node.name for node in nodes if window.covers(node.name, node.labels)]

    def find_out_of_service(self, now: float) -> set[str]:
        """Return the nodes that are in a window by now."""
        begun = (window for window in self.windows.values() if window.start <= now < window.end)
        return {node for window in begun for node in self.nodes_of(window)}

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self._nodes[row] = node
        self._rows = None if self.windows else self._rows

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._nodes.pop(row, None)
        self._rows = None if self.windows else self._rows

    @override
    def next_due(self) -> float | None:
        ends = (window.end for window in self.windows.values())
        return min((end for end in ends if end > self.view.now), default=None)

    @override
    def advance(self, now: float) -> list[str]:
        since, self._seen_at = self._seen_at, now
        over = [window for window in self.windows.values() if since < window.end <= now]
        return [node for window in over for node in self.nodes_of(window)]

    @override
    def absorb(self) -> None:
        if self._rows is None:
            self._rows = {
                window.name: np.array(
                    [
                        row
                        for row, node in self._nodes.items()
                        if window.covers(node.name, node.labels)
                    ],
                    dtype=np.int64,
                )
                for window in self.windows.values()
            }

    @override
    def open(self, cycle: Cycle) -> "MaintenanceSession | None":
        rows = self._rows or {}
        windows = [
            (window, rows[window.name])
            for window in self.windows.values()
            if cycle.now < window.end and rows.get(window.name, np.empty(0)).size
        ]
        limits = self.view.plugin(Queues).limits
        return MaintenanceSession(cycle, windows, limits.lasts) if windows else None


class MaintenanceSession(Session):
    """The windows of one cycle that are not over, with their rows."""

    name = NAME
    reach = FilterReach.ROW

    def __init__(
        self,
        cycle: Cycle,
        windows: Iterable[tuple[MaintenanceWindow, Ints]],
        lasts: Callable[[Pod], int | None],
    ) -> None:
        self._cycle, self._lasts = cycle, lasts
        self._windows = {window.name: (window, rows) for window, rows in windows}

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        lasts, now = self._lasts(pod), self._cycle.now
        names = tuple(
            name for name, (window, _) in self._windows.items() if window.keeps_off(now, lasts)
        )
        return names or None

    @override
    def concerns(self, shape: PodShape) -> bool:
        return shape.ask_of(NAME) is not None

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        names = self._names_of(shape)
        if names:
            limits = np.full(len(self._cycle.table.nodes), NO_LIMIT, dtype=np.int64)
            for name in names:
                limits[self._windows[name][1]] = 0
            yield MAINTENANCE, limits[rows]

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        windows = (self._windows[name] for name in self._names_of(shape))
        starts = [window.start for window, rows in windows if row in rows]
        return format_time(min(starts)) if cause is MAINTENANCE and starts else ""

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        time = self.detail(cause, shape, row)
        node = self._cycle.table.node_at(row).name
        return f"node {node} goes into maintenance at {time}" if time else ""

    def _names_of(self, shape: PodShape) -> tuple[str, ...]:
        return cast("tuple[str, ...]", shape.ask_of(NAME) or ())
