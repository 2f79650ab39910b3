"""Figures of queues for series: what reserved room idles, what estimates are worth, what it costs.

Counts; decides nothing. Whoever shows the figures says what time it is while room is searched.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from koord.core.engine.state_view import StateView
from koord.core.model.plan import Unit
from koord.core.model.units import PODS
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.run_time import Knowledge
from koord.core.quota.model import TreeId

TreeResource: TypeAlias = tuple[TreeId, str]


@dataclass(slots=True)
class QueueFigures:
    """The figures since this process began."""

    idle: Counter[TreeResource] = field(default_factory=Counter)
    """Amounts times seconds for which reserved room was idle and refused to others."""
    searched: float = 0.0
    """Seconds that finding room to reserve has taken."""
    clock: Callable[[], float] = lambda: 0.0
    on_end: Callable[[Knowledge, float], None] = lambda *_: None
    """Called as a unit ends: how its run time was known, and what part of it was expected."""

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Count the time within."""
        began = self.clock()
        try:
            yield
        finally:
            self.searched += self.clock() - began

    def count_idle(
        self, heads: BlockedHeads, now: float, view: StateView, tree_of: Callable[[Unit], TreeId]
    ) -> None:
        """Count what was idle from when the heads are as of until now."""
        seconds = max(0, int(now - heads.at))
        for key, pods in heads.idle.items():
            unit = heads.blocked.get(key)
            if unit is not None and seconds:
                resource, amount = find_dominant(unit, view)
                self.idle[tree_of(unit), resource] += pods * amount * seconds


def find_dominant(unit: Unit, view: StateView) -> tuple[str, int]:
    """Return the resource of which a pod of a unit requests the largest part of all, and how much.

    Of several shapes the first counts.
    """
    requests: Mapping[str, int] = dict(unit.pods[0].shape.requests)
    table = view.table
    parts = [
        (amount / max(int(table.allocatable[table.columns[key]].sum()), 1), key, amount)
        for key, amount in requests.items()
        if amount and key != PODS and key in table.columns
    ]
    _, resource, amount = max(parts, default=(0.0, PODS, 1))
    return resource, amount
