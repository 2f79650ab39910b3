"""What lasts of turns from cycle to cycle: who was refused for want of room, and what that gives.

A value of the planner's queue; whose turn it is, and what is reserved, is decided elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any, TypeAlias

from koord.core.model.plan import Unit, UnitKey
from koord.core.queue.order import Aging
from koord.core.queue.protection import HeadProtection
from koord.core.queue.usage import Ledger

PriorityLine: TypeAlias = tuple[str, str, int]
"""Queue, user, priority: among equals the first of each ages."""


@dataclass(slots=True)
class BlockedHeads:
    """Who is blocked, since when, and what is reserved for whom."""

    blocked: dict[UnitKey, Unit] = field(default_factory=dict)
    """Units that were refused for want of room, or behind others."""
    protections: dict[UnitKey, HeadProtection] = field(default_factory=dict)
    idle: Mapping[UnitKey, int] = field(default_factory=dict)
    """Units of which reserved room is idle and was refused to others -> room for how many pods."""
    at: float = 0.0
    """As of when."""
    line_heads: dict[UnitKey, int] = field(default_factory=dict)
    """Unit that is the first of its line -> since when."""
    used_at_start: Mapping[UnitKey, Mapping[str, Ledger]] = field(default_factory=dict)
    """Unit that others gave way to -> what its quotas use when it starts at the latest."""
    firsts: list[Unit] | None = None
    """Of ``blocked`` those that matter to others; None: to be found."""

    def drop(self, units: Iterable[UnitKey]) -> None:
        """Forget units that wait no longer."""
        for key in units:
            self.firsts = None
            self.blocked.pop(key, None)
            self.protections.pop(key, None)

    def place_of(self, key: UnitKey) -> int | None:
        """Return the place of a unit among those whose reserved room has refused others."""
        protection = self.protections.get(key)
        return protection.refused_at if protection and protection.reserved else None

    def head_since(self, key: UnitKey) -> int | None:
        """Return since when a unit is the first of its queue, or of its line."""
        protection = self.protections.get(key)
        return self.line_heads.get(key) if protection is None else protection.first_since

    def copy(self) -> "BlockedHeads":
        protections = {key: copy(protection) for key, protection in self.protections.items()}
        return replace(
            self,
            blocked=dict(self.blocked),
            protections=protections,
            line_heads=dict(self.line_heads),
        )

    def find_firsts(
        self,
        queue_of: Callable[[Unit], str],
        depth_of: Callable[[str], int],
        rank: Callable[[Unit], Any],
    ) -> None:
        """Find those that others may wait for: the first of each queue, and all protected ones."""
        by_queue: dict[str, list[Unit]] = {}
        for unit in self.blocked.values():
            by_queue.setdefault(queue_of(unit), []).append(unit)
        firsts = {
            unit.key: unit
            for queue, units in by_queue.items()
            for unit in nsmallest(depth_of(queue), units, key=rank)
        }
        firsts |= {key: self.blocked[key] for key in self.protections}
        self.firsts = list(firsts.values())

    def note_lines(self, line_of: Callable[[Unit], PriorityLine], now: int) -> None:
        """Note since when units are the first of their line.

        Not since they wait: who submits a thousand jobs must not age a thousand of them.
        """
        firsts: dict[PriorityLine, Unit] = {}
        for unit in self.blocked.values():
            line = line_of(unit)
            first = firsts.get(line)
            if first is None or (unit.since, unit.key) < (first.since, first.key):
                firsts[line] = unit
        before = self.line_heads
        self.line_heads = {
            first.key: before.get(first.key, max(now, int(first.since)))
            for first in firsts.values()
        }

    def next_tiers(
        self, aging_of: Callable[[Unit], Aging], now: int
    ) -> Iterable[tuple[UnitKey, int]]:
        """Yield when firsts of lines gain a tier."""
        for key, since in self.line_heads.items():
            unit = self.blocked.get(key)
            step = None if unit is None else aging_of(unit).next_step(since, now)
            if step is not None:
                yield key, step
