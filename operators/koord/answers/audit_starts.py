"""How long each unit has waited when it starts, for what, and how often it was overtaken.

Made of records one by one, as they come, for figures that go on for months: of a unit that has
started, or is over, nothing is kept. Knows no store and no series.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.audit import to_ms
from koord.answers.audit_contention import Overtaking, Rivals
from koord.answers.audit_units import UnitLife, is_waiting
from koord.answers.story import Phase, split_phases
from koord.core.model.reason_class import ReasonClass

MOST_UNITS: Final = 1 << 16
"""That are followed; of more the oldest are forgotten."""
_ENDS: Final = frozenset({"Ended", "Gone", "Evicted"})


@dataclass(frozen=True, slots=True)
class StartedUnit:
    """A unit of which all members that it needs run: milliseconds by phase until then.

    ``overtaken`` is how many units that stood behind it were placed before it.
    """

    phases: Mapping[Phase, int]
    overtaken: int

    @property
    def waited(self) -> int:
        """Milliseconds until it was bound."""
        return sum(ms for phase, ms in self.phases.items() if is_waiting(phase))

    @property
    def mostly(self) -> Phase:
        """For what it waited longest; ``Deciding`` if it did not wait."""
        waits = {phase: ms for phase, ms in self.phases.items() if is_waiting(phase)}
        return max(waits, key=lambda phase: waits[phase], default=Phase.DECIDING)


@dataclass(slots=True)
class StartFinder:
    """Finds starts from ``since`` on (milliseconds); records of before say how units stood."""

    since: int = 0
    _units: dict[str, UnitLife] = field(default_factory=dict)
    _overtaking: Overtaking = field(default_factory=Overtaking)

    def add(self, record: Mapping[str, Any]) -> StartedUnit | None:
        """Take a record in; return a unit that it says has started. No record changes nothing."""
        at, described, trace = to_ms(record.get("at")), record.get("unit"), record.get("trace")
        if at is None or not isinstance(described, Mapping) or not isinstance(trace, str):
            return None
        kind, unit = str(record.get("kind")), self._units.get(trace)
        if unit is None:
            if kind in _ENDS or kind == "Running":
                return None
            unit = self._begin(trace, described, record, at)
        unit.add(record, described, at)
        self._react(kind, record, unit, at)
        if kind in _ENDS:
            self._forget(trace)
        if kind != "Running" or unit.bound is None:
            return None
        phases: Counter[Phase] = Counter()
        for span in split_phases(unit.created, unit.marks.marks, at):
            phases[span.phase] += span.ms
        started = StartedUnit(phases, self._overtaking.count(trace))
        self._forget(trace)
        return started if at >= self.since else None

    def _begin(
        self, trace: str, described: Mapping[str, Any], record: Mapping[str, Any], at: int
    ) -> UnitLife:
        if len(self._units) >= MOST_UNITS:
            self._forget(next(iter(self._units)))
        created = min(at, to_ms(record.get("firstAt")) or at)
        key, namespace = str(described.get("key")), str(described.get("namespace"))
        unit = self._units[trace] = UnitLife(trace, key, namespace, created)
        return unit

    def _react(self, kind: str, record: Mapping[str, Any], unit: UnitLife, at: int) -> None:
        position, trace = record.get("position"), unit.trace
        place = position if isinstance(position, int) else None
        if kind == "Attempt":
            everywhere = record.get("class") == ReasonClass.ROOM
            rivals = Rivals(unit.kinds, None if everywhere else unit.quota)
            self._overtaking.wait(trace, rivals, place)
        elif kind == "Complete":
            self._overtaking.restart(trace)
        elif kind == "Placed":
            self._overtaking.place(trace, unit.kinds, unit.quota, place)
            unit.bound = at

    def _forget(self, trace: str) -> None:
        self._units.pop(trace, None)
        self._overtaking.restart(trace)
