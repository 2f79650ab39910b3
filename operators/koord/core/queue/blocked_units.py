"""The units that were refused for want of room, or behind others, by line in the order of time.

So the first of each line are found however many wait: a tenant may have ten thousand. A copy costs
nothing until one of both changes. Knows no turns, and nothing of what is reserved.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from typing import TypeAlias

from koord.core.model.plan import Unit, UnitKey

PriorityLine: TypeAlias = tuple[str, str, int]
"""Queue, user, priority: among equals the first of each ages."""


class BlockedUnits:
    """All that are blocked, each in its line as of its last refusal."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, Unit] = {}
        self._line_of: dict[UnitKey, PriorityLine] = {}
        self._lines: dict[PriorityLine, list[tuple[float, UnitKey]]] = {}
        self._is_shared = False
        """Whether a copy has the same content: whoever changes it makes its own before."""

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._units

    def __getitem__(self, key: UnitKey) -> Unit:
        return self._units[key]

    def get(self, key: UnitKey) -> Unit | None:
        return self._units.get(key)

    def queue_of(self, key: UnitKey) -> str | None:
        """Return the queue of a unit as of its last refusal; None: it is not blocked."""
        line = self._line_of.get(key)
        return None if line is None else line[0]

    def put(self, unit: Unit, line: PriorityLine) -> None:
        """Add a unit, or place it anew."""
        self.remove(unit.key)
        self._make_own()
        self._units[unit.key] = unit
        self._line_of[unit.key] = line
        insort(self._lines.setdefault(line, []), (unit.since, unit.key))

    def remove(self, key: UnitKey) -> None:
        """Remove a unit, if it is there."""
        if key not in self._units:
            return
        self._make_own()
        unit, line = self._units.pop(key), self._line_of.pop(key)
        units = self._lines[line]
        del units[bisect_left(units, (unit.since, key))]
        if not units:
            del self._lines[line]

    def lines(self) -> list[PriorityLine]:
        """Return all lines."""
        return list(self._lines)

    def count_lines(self) -> Counter[tuple[str, int]]:
        """Return how many units there are by queue and priority."""
        counts: Counter[tuple[str, int]] = Counter()
        for (queue, _, priority), units in self._lines.items():
            counts[queue, priority] += len(units)
        return counts

    def take_firsts(
        self, line: PriorityLine, most: int, waits: Callable[[Unit], bool]
    ) -> list[Unit]:
        """Return the first units of a line; those before that wait no longer are removed."""
        firsts = list(self._firsts(line, most))
        while gone := [unit.key for unit in firsts if not waits(unit)]:
            for key in gone:
                self.remove(key)
            firsts = list(self._firsts(line, most))
        return firsts

    def _firsts(self, line: PriorityLine, most: int) -> Iterator[Unit]:
        return (self._units[key] for _, key in self._lines.get(line, ())[:most])

    def copy(self) -> "BlockedUnits":
        """Return the same as of now."""
        self._is_shared = True
        return copy(self)

    def _make_own(self) -> None:
        if self._is_shared:
            self._units, self._line_of = dict(self._units), dict(self._line_of)
            self._lines = {line: units.copy() for line, units in self._lines.items()}
            self._is_shared = False
