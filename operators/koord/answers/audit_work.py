"""What was tried, evicted and written in a time, counted as records tell of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.audit_report import (
    CountOf,
    CoverageReport,
    FailedWrites,
    PreemptionSummary,
    RepeatedVictim,
    TermBegin,
    WriteReport,
    spread,
)
from koord.answers.audit_units import UnitLife
from koord.answers.happenings import number_of

MOST_ROWS: Final = 20
MOST_MESSAGES: Final = 1000
"""Different messages of refused writes that are counted apart."""
JUMP_MS: Final = 1000
_CARRIED_OUT: Final = frozenset({"Bound", "Ended"})
"""Ends of plans as they are meant."""


@dataclass(slots=True)
class WorkCounts:
    """Counts of one window. Takes in each record once."""

    attempts: int = 0
    repeats: int = 0
    placed: int = 0
    plans: dict[tuple[object, int], int] = field(default_factory=dict)
    """(Term, cycle) -> microseconds of the plan of all units of that cycle."""
    records: int = 0
    _binds: int = 0
    _failures: Counter[tuple[int, str]] = field(default_factory=Counter)
    _unnamed: int = 0
    _evicting: int = 0
    _victims: int = 0
    _outcomes: Counter[str] = field(default_factory=Counter)
    _evictions: Counter[str] = field(default_factory=Counter)
    _names: dict[str, tuple[str, str]] = field(default_factory=dict)
    _lost: int = 0
    _took: list[int] = field(default_factory=list)
    _gone_at: dict[str, int] = field(default_factory=dict)
    _bound_after: list[int] = field(default_factory=list)
    _gaps: int = 0
    _missing: int | None = 0
    _terms: list[TermBegin] = field(default_factory=list)
    _jumps: int = 0
    _clock: tuple[object, int, int] | None = None
    """Term, time and milliseconds of the term of the record before."""

    def add_process(self, record: Mapping[str, Any], at: int) -> None:
        """Take in what a record says of the operators themselves."""
        kind = record.get("kind")
        self.records += kind != "Gap"
        if kind == "Gap":
            count = record.get("count")
            self._gaps += 1
            is_counted = self._missing is not None and isinstance(count, int)
            self._missing = (
                (self._missing or 0) + number_of(record, "count") if is_counted else None
            )
        elif kind == "Term":
            self._terms.append(TermBegin(at, str(record.get("holder"))))
        mono, term = record.get("mono"), record.get("term")
        if isinstance(mono, int):
            before = self._clock
            if before is not None and before[0] == term:
                self._jumps += abs((at - before[1]) - (mono - before[2])) > JUMP_MS
            self._clock = term, at, mono

    def add_unit(
        self, record: Mapping[str, Any], unit: UnitLife, at: int, bound: int | None
    ) -> None:
        """Take in what a record says of a unit, which held room since ``bound``."""
        kind = record.get("kind")
        if kind == "Attempt":
            self._add_attempt(record)
        elif kind == "Placed":
            self.placed += 1
        elif kind == "Committed":
            self._add_writes(record, unit, at)
        elif kind == "Preempting":
            self._add_plan(record)
        elif kind == "VictimGone":
            self._took.append(number_of(record, "tookMs"))
            if not number_of(record, "left"):
                self._gone_at[unit.trace] = at
        elif kind == "Evicted":
            self._add_eviction(record, unit, at, bound)

    def _add_attempt(self, record: Mapping[str, Any]) -> None:
        repeats = number_of(record, "repeats")
        if number_of(record, "attempt"):
            self.attempts += 1 + repeats
            self.repeats += repeats
            cycle = record.get("term"), number_of(record, "cycle")
            self.plans[cycle] = number_of(record, "cycleMicros")

    def _add_writes(self, record: Mapping[str, Any], unit: UnitLife, at: int) -> None:
        self._binds += number_of(record, "binds")
        self._unnamed += number_of(record, "moreFailures")
        failures = record.get("failures")
        for failure in failures if isinstance(failures, list) else ():
            if isinstance(failure, Mapping):
                key = number_of(failure, "status"), str(failure.get("message"))
                if key in self._failures or len(self._failures) < MOST_MESSAGES:
                    self._failures[key] += 1
                else:
                    self._unnamed += 1
        gone_at = self._gone_at.pop(unit.trace, None)
        if gone_at is not None:
            self._bound_after.append(max(0, at - gone_at))

    def _add_plan(self, record: Mapping[str, Any]) -> None:
        outcome = record.get("outcome")
        if outcome:
            self._outcomes[str(outcome)] += 1
        else:
            self._evicting += 1
            self._victims += number_of(record, "victims")

    def _add_eviction(
        self, record: Mapping[str, Any], unit: UnitLife, at: int, bound: int | None
    ) -> None:
        self._evictions[unit.trace] += 1
        self._names[unit.trace] = unit.key, unit.namespace
        if bound is not None and unit.pods:
            count = min(number_of(record, "count"), unit.pods)
            self._lost += unit.milli_gpus * count // unit.pods * max(0, at - bound)

    def report_preemption(self) -> PreemptionSummary:
        repeated = [
            RepeatedVictim(*self._names[trace], count)
            for trace, count in self._evictions.items()
            if count > 1
        ]
        repeated.sort(key=lambda victim: (-victim.times, victim.unit))
        outcomes = sorted(self._outcomes.items(), key=lambda row: (-row[1], row[0]))
        return PreemptionSummary(
            self._evicting,
            sum(count for name, count in outcomes if name not in _CARRIED_OUT),
            self._victims,
            tuple(CountOf(*row) for row in outcomes),
            tuple(repeated[:MOST_ROWS]),
            self._lost,
            spread(self._took),
            spread(self._bound_after),
        )

    def report_writes(self) -> WriteReport:
        rows = sorted(self._failures.items(), key=lambda row: (-row[1], row[0]))
        unknown = sum(count for (status, _), count in rows if not status)
        return WriteReport(
            self._binds,
            sum(count for _, count in rows) - unknown + self._unnamed,
            unknown,
            tuple(FailedWrites(*key, count) for key, count in rows[:MOST_ROWS]),
        )

    def report_coverage(self) -> CoverageReport:
        terms = tuple(self._terms[-MOST_ROWS:])
        return CoverageReport(self.records, self._gaps, self._missing, terms, self._jumps)
