"""Makes a report of the records of a time: one pass over them, in their order.

Knows no store and no feed: whoever has records hands them over. Records of before the time say how
units stood when it began. A document may lack anything.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.audit import to_ms
from koord.answers.audit_contention import Blame, Overtaking, Pool, Rivals
from koord.answers.audit_report import (
    AuditReport,
    Blocker,
    BlockerReport,
    CauseTime,
    LongWait,
    PhaseTime,
    RetryReport,
    Starving,
    WaitReport,
    WaitsOf,
    share_of,
    spread,
)
from koord.answers.audit_units import (
    LARGEST,
    SIZES,
    UnitLife,
    is_waiting,
    sum_waits,
)
from koord.answers.audit_work import WorkCounts
from koord.answers.happenings import number_of
from koord.answers.story import Phase, PhaseSpan
from koord.core.model.reason_class import ReasonClass
from koord.core.model.units import PODS, is_extended
from koord.core.usage.segments import Window

MOST_ROWS: Final = 20
"""Of each list of a report."""
OVERTAKEN: Final = 20
"""So often overtaken is a unit that starves."""
TIMES_MEDIAN: Final = 10
"""So many times the median of its size is a wait that is too long."""
LEAST_UNITS: Final = 5
"""Of one size, for a median to say anything."""
KNOWN_AFTER_MS: Final = 600_000
"""By when a leader has recorded all that waits, after it began."""
_ENDS_WAIT: Final = frozenset({"Running", "Ended", "Gone", "Evicted"})


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Of which units a report is; empty: of all."""

    namespace: str = ""
    quota: str = ""

    def has(self, unit: UnitLife) -> bool:
        return (not self.namespace or unit.namespace == self.namespace) and (
            not self.quota or unit.quota == self.quota
        )


@dataclass(slots=True)
class _Refusal:
    """Why nodes refuse a unit, and since when."""

    since: int
    causes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _UnitWait:
    """Where the time of a unit went in a window, and how long it has waited: there, and in all."""

    unit: UnitLife
    spans: tuple[PhaseSpan, ...]
    within: int
    whole: int


@dataclass(slots=True)
class AuditAnalysis:
    """Takes records in, by (term, seq), and makes a report of a window."""

    window: Window
    scope: AuditScope = AuditScope()
    starves_from: int = OVERTAKEN
    units: dict[str, UnitLife] = field(default_factory=dict)
    _led_since: int = 0
    """When the last leader began."""
    _now: int = 0
    _has_begun: bool = False
    _overtaking: Overtaking = field(default_factory=Overtaking)
    _blame: Blame = field(default_factory=Blame)
    _work: WorkCounts = field(default_factory=WorkCounts)
    _causes: Counter[str] = field(default_factory=Counter)
    _refusals: dict[str, _Refusal] = field(default_factory=dict)
    _ancestors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Quota -> those above it that have refused."""

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record in; what is no record changes nothing."""
        at = to_ms(record.get("at"))
        if at is None or at >= self.window.end:
            return
        self._now = max(self._now, at)
        is_within = at >= self.window.start
        if is_within and not self._has_begun:
            self._begin()
        if record.get("kind") == "Term":
            self._led_since = at
        if is_within:
            self._work.add_process(record, at)
        described, trace = record.get("unit"), record.get("trace")
        if not isinstance(described, Mapping) or not isinstance(trace, str):
            return
        unit = self.units.get(trace) or self._begin_unit(trace, described, record, at)
        began = unit.bound
        unit.add(record, described, at)
        if is_within and self.scope.has(unit):
            self._work.add_unit(record, unit, at, began)
        self._react(str(record.get("kind")), record, unit, at)

    def _begin(self) -> None:
        self._has_begun = True
        self._blame.begin(self.window.start)

    def _begin_unit(
        self, trace: str, described: Mapping[str, Any], record: Mapping[str, Any], at: int
    ) -> UnitLife:
        created = min(at, to_ms(record.get("firstAt")) or at)
        key, namespace = str(described.get("key")), str(described.get("namespace"))
        unit = self.units[trace] = UnitLife(trace, key, namespace, created)
        return unit

    # --- who waits for whom ----------------------------------------------------------------------

    def _react(self, kind: str, record: Mapping[str, Any], unit: UnitLife, at: int) -> None:
        trace = unit.trace
        if kind == "Attempt":
            self._refuse(record, unit, at)
        elif kind == "Complete":
            self._overtaking.restart(trace)
        elif kind == "Placed":
            self._stop_waiting(trace)
            position = record.get("position")
            place = position if isinstance(position, int) else None
            if at >= self.window.start:
                self._overtaking.place(trace, unit.kinds, unit.quota, place)
            unit.bound = at
            self._blame.hold(trace, self._list_held(unit), self._now)
        elif kind in _ENDS_WAIT:
            self._stop_waiting(trace)
            if kind != "Running" and _goes_whole(record, unit):
                unit.bound = None
                self._blame.release(trace, self._now)

    def _refuse(self, record: Mapping[str, Any], unit: UnitLife, at: int) -> None:
        trace, kind = unit.trace, record.get("class")
        fields = record.get("fields")
        fields = fields if isinstance(fields, Mapping) else {}
        path = fields.get("topo")
        if isinstance(path, list) and path:
            self._learn_quotas([str(name) for name in path])
        self._settle_causes(trace)
        self._refusals[trace] = _Refusal(max(at, self.window.start), _read_causes(record))
        position = record.get("position")
        place = position if isinstance(position, int) else None
        everywhere = kind == ReasonClass.ROOM
        rivals = Rivals(unit.kinds, None if everywhere else unit.quota)
        self._overtaking.wait(trace, rivals, place)
        self._blame.wait(trace, _find_pool(kind, fields, unit), unit.milli_gpus, self._now)

    def _stop_waiting(self, trace: str) -> None:
        self._settle_causes(trace)
        self._overtaking.leave(trace)
        self._blame.wait(trace, None, 0, self._now)

    def _settle_causes(self, trace: str) -> None:
        refusal, unit = self._refusals.pop(trace, None), self.units[trace]
        if refusal is None or not self.scope.has(unit):
            return
        lasted = max(0, min(self._now, self.window.end) - refusal.since)
        for cause, nodes in refusal.causes:
            self._causes[cause] += nodes * lasted

    def _learn_quotas(self, path: list[str]) -> None:
        for number, name in enumerate(path):
            above = {*self._ancestors.get(name, ()), *path[:number]}
            self._ancestors[name] = tuple(sorted(above))

    def _list_held(self, unit: UnitLife) -> Iterator[tuple[Pool, int]]:
        quotas = dict.fromkeys(("", unit.quota, *self._ancestors.get(unit.quota, ())))
        for resource, amount in unit.asks:
            if resource != PODS:
                for quota in quotas:
                    yield (resource, quota), amount

    # --- the report ------------------------------------------------------------------------------

    def report(self, until: int | None = None) -> AuditReport:
        """Return what the records say; ``until`` if those after it are not among them."""
        if until is not None:
            self.window = Window(self.window.start, min(self.window.end, until))
        if not self._has_begun:
            self._begin()
        self._now = max(self._now, self.window.end)
        for trace in list(self._refusals):
            self._settle_causes(trace)
        self._end_lost()
        waits = [
            _make_unit_wait(unit, self.window)
            for unit in self.units.values()
            if self.scope.has(unit)
        ]
        work = self._work
        return AuditReport(
            self.window,
            self.scope.namespace,
            self.scope.quota,
            self._report_waits([wait for wait in waits if wait.within]),
            _sum_phases(wait.spans for wait in waits),
            RetryReport(
                work.attempts,
                work.repeats,
                work.placed,
                len(work.plans),
                sum(work.plans.values()),
                tuple(CauseTime(*row) for row in _first(self._causes)),
            ),
            self._report_blockers(),
            self._find_starving([wait for wait in waits if wait.whole]),
            work.report_preemption(),
            work.report_writes(),
            work.report_coverage(),
        )

    def _end_lost(self) -> None:
        """End units that have waited under an earlier leader and are not known to the last one.

        It records again whatever waits; these were deleted while nobody led.
        """
        if self.window.end < self._led_since + KNOWN_AFTER_MS:
            return
        for unit in self.units.values():
            is_lost = unit.over is None and unit.last < self._led_since
            if is_lost and is_waiting(unit.phase_at_end(self.window)):
                unit.over = self._led_since

    def _report_waits(self, waits: list[_UnitWait]) -> WaitReport:
        by_phase: dict[str, list[int]] = {}
        for wait in waits:
            times: Counter[Phase] = Counter()
            for span in wait.spans:
                times[span.phase] += span.ms
            for phase, ms in times.items():
                if is_waiting(phase):
                    by_phase.setdefault(phase, []).append(ms)
        longest = sorted(waits, key=_by_wait)[:MOST_ROWS]
        return WaitReport(
            len(waits),
            sum(is_waiting(wait.unit.phase_at_end(self.window)) for wait in waits),
            tuple(WaitsOf(phase, spread(by_phase[phase])) for phase in Phase if phase in by_phase),
            _group(waits, lambda unit: unit.quota)[:MOST_ROWS],
            tuple(sorted(_group(waits, lambda unit: unit.size), key=lambda row: _rank(row.name))),
            _group(waits, lambda unit: unit.band),
            tuple(map(self._tell, longest)),
        )

    def _tell(self, wait: _UnitWait) -> LongWait:
        unit = wait.unit
        phase = unit.phase_at_end(self.window)
        return LongWait(
            unit.key,
            unit.namespace,
            unit.trace,
            unit.pods,
            unit.quota,
            wait.whole,
            "" if phase is None else str(phase),
            unit.code,
            is_waiting(phase),
            self._overtaking.count(unit.trace),
        )

    def _report_blockers(self) -> BlockerReport:
        blamed = self._blame.end(self.window.end)
        total = self._blame.total
        rows = [
            Blocker(unit.key, unit.namespace, trace, ms, share_of(ms, total))
            for trace, ms in blamed.items()
            if self.scope.has(unit := self.units[trace])
        ]
        rows.sort(key=lambda row: (-row.milli_gpu_ms, row.unit, row.trace))
        return BlockerReport(total, self._blame.unattributed, tuple(rows[:MOST_ROWS]))

    def _find_starving(self, waits: list[_UnitWait]) -> tuple[Starving, ...]:
        times: dict[str, list[int]] = {}
        for wait in waits:
            times.setdefault(wait.unit.size, []).append(wait.whole)
        medians = {size: spread(each).p50_ms for size, each in times.items()}
        starving = []
        for wait in waits:
            size = wait.unit.size
            median, count = medians[size], len(times[size])
            is_slow = count >= LEAST_UNITS and wait.whole > TIMES_MEDIAN * median
            overtaken = self._overtaking.count(wait.unit.trace)
            if is_slow or overtaken >= self.starves_from:
                row = (-overtaken, *_by_wait(wait)), wait, median, is_slow
                starving.append(row)
        starving.sort(key=lambda row: row[0])
        return tuple(
            Starving(self._tell(wait), median, -order[0] >= self.starves_from, is_slow)
            for order, wait, median, is_slow in starving[:MOST_ROWS]
        )


def _make_unit_wait(unit: UnitLife, window: Window) -> _UnitWait:
    spans = unit.spans(window)
    within = sum_waits(spans)
    if unit.created >= window.start:
        return _UnitWait(unit, spans, within, within)
    whole = sum_waits(unit.spans(Window(unit.created, window.end)))
    return _UnitWait(unit, spans, within, whole)


def _by_wait(wait: _UnitWait) -> tuple[int, str, str]:
    return -wait.whole, wait.unit.key, wait.unit.trace


def _rank(size: str) -> int:
    names = [*(name for name, _ in SIZES), LARGEST]
    return names.index(size)


def _group(waits: Iterable[_UnitWait], name_of: Callable[[UnitLife], str]) -> tuple[WaitsOf, ...]:
    groups: dict[str, list[int]] = {}
    for wait in waits:
        groups.setdefault(name_of(wait.unit), []).append(wait.within)
    rows = [WaitsOf(name, spread(times)) for name, times in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.waits.p50_ms * row.waits.count, row.name)))


def _sum_phases(spans: Iterable[tuple[PhaseSpan, ...]]) -> tuple[PhaseTime, ...]:
    totals: Counter[Phase] = Counter()
    for each in spans:
        for span in each:
            totals[span.phase] += span.ms
    whole = totals.total()
    return tuple(
        PhaseTime(phase, totals[phase], share_of(totals[phase], whole))
        for phase in Phase
        if totals[phase]
    )


def _first(counts: Counter[str]) -> list[tuple[str, int]]:
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return [row for row in rows if row[1]][:MOST_ROWS]


def _goes_whole(record: Mapping[str, Any], unit: UnitLife) -> bool:
    """Whether nothing of a unit is left after an eviction or end."""
    return record.get("kind") != "Evicted" or number_of(record, "count") >= unit.pods


def _read_causes(record: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    nodes = record.get("nodes")
    causes = nodes.get("causes") if isinstance(nodes, Mapping) else None
    return tuple(
        (str(cause.get("cause")), number_of(cause, "nodes"))
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, Mapping)
    )


def _find_pool(kind: object, fields: Mapping[str, Any], unit: UnitLife) -> Pool | None:
    """Return what a refused unit lacks: a resource of nodes or of a quota."""
    if kind == ReasonClass.ROOM:
        resource = str(fields.get("resource") or "") or next(
            (name for name, _ in unit.asks if is_extended(name)), ""
        )
        return (resource, "") if resource else None
    if kind == ReasonClass.QUOTA:
        short, path = fields.get("shortages"), fields.get("topo")
        first = short[0] if isinstance(short, list) and short else None
        resource = str(first.get("resource") or "") if isinstance(first, Mapping) else ""
        quota = str(path[0]) if isinstance(path, list) and path else unit.quota
        return (resource, quota) if resource else None
    return None
