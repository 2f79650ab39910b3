"""What lasts of turns from cycle to cycle: who was refused for want of room, and what that gives.

A value of the planner's queue; whose turn it is, and what is reserved, is decided elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any

from koord.core.model.plan import Unit, UnitKey
from koord.core.queue.blocked_units import BlockedUnits, PriorityLine
from koord.core.queue.order import Aging
from koord.core.queue.protection import HeadProtection
from koord.core.queue.room import Reserved
from koord.core.queue.usage import Ledger


@dataclass(slots=True)
class BlockedHeads:
    """Who is blocked, since when, and what is reserved for whom."""

    blocked: BlockedUnits = field(default_factory=BlockedUnits)
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
            self.blocked.remove(key)
            self.protections.pop(key, None)

    def place_of(self, key: UnitKey) -> int | None:
        """Return the place of a unit among those whose reserved room has refused others."""
        protection = self.protections.get(key)
        return protection.refused_at if protection and protection.reserved else None

    def promised(self, key: UnitKey) -> Reserved | None:
        """Return what is reserved for a unit from a known time on."""
        protection = self.protections.get(key)
        reserved = None if protection is None else protection.reserved
        return None if reserved is None or reserved.is_open else reserved

    def head_since(self, key: UnitKey) -> int | None:
        """Return since when a unit is the first of its queue, or of its line."""
        protection = self.protections.get(key)
        return self.line_heads.get(key) if protection is None else protection.first_since

    def copy(self) -> "BlockedHeads":
        protections = {key: copy(protection) for key, protection in self.protections.items()}
        return replace(
            self,
            blocked=self.blocked.copy(),
            protections=protections,
            line_heads=dict(self.line_heads),
        )

    def look_through(
        self,
        depth_of: Callable[[str], int],
        rank_in: Callable[[str], Callable[[Unit], Any]],
        waits: Callable[[Unit], bool],
        now: int,
    ) -> None:
        """Find the first of each queue, and since when units are the first of their line.

        Not since they wait: who submits a thousand jobs must not age a thousand of them. In a line
        units of equal rank otherwise come by time, so the first few of each are enough.
        """
        candidates: dict[str, list[Unit]] = {}
        heads: dict[PriorityLine, Unit] = {}
        for line in self.blocked.lines():
            units = self.blocked.take_firsts(line, depth_of(line[0]), waits)
            if units:
                heads[line] = units[0]
                candidates.setdefault(line[0], []).extend(units)
        firsts = {
            unit.key: unit
            for queue, units in candidates.items()
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
