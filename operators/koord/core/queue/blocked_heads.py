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
    lines: dict[UnitKey, PriorityLine] = field(default_factory=dict)
    """Unit that is blocked -> its line, as of its last refusal, or to be found."""
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
            self.lines.pop(key, None)

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
            lines=dict(self.lines),
            line_heads=dict(self.line_heads),
        )

    def look_through(
        self,
        line_of: Callable[[Unit], PriorityLine],
        depth_of: Callable[[str], int],
        rank_in: Callable[[str], Callable[[Unit], Any]],
        now: int,
    ) -> None:
        """Find the first of each queue, and since when units are the first of their line.

        Not since they wait: who submits a thousand jobs must not age a thousand of them.
        """
        by_queue: dict[str, list[Unit]] = {}
        heads: dict[PriorityLine, Unit] = {}
        lines = self.lines
        for key, unit in self.blocked.items():
            line = lines.get(key)
            if line is None:
                line = lines[key] = line_of(unit)
            by_queue.setdefault(line[0], []).append(unit)
            head = heads.get(line)
            if head is None or (unit.since, key) < (head.since, head.key):
                heads[line] = unit
        firsts = {
            unit.key: unit
            for queue, units in by_queue.items()
            for unit in nsmallest(depth_of(queue), units, key=rank_in(queue))
        }
        firsts |= {key: self.blocked[key] for key in self.protections}
        self.firsts = list(firsts.values())
        before = self.line_heads
        self.line_heads = {
            head.key: before.get(head.key, max(now, int(head.since))) for head in heads.values()
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
