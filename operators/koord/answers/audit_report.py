"""What decisions say of a time: who waited for what, and for whom; what was tried in vain. Values.

Times are whole milliseconds, shares ten-thousandths, GPUs thousandths. Lists are cut to the first
of their order; sums are of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from koord.answers.audit import to_text
from koord.answers.encoding import Encoded, encode
from koord.answers.redaction import NameKind, Sight
from koord.core.usage.segments import Window

WHOLE_SHARE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something took, of ``count``: the median, the ninth decile, the longest."""

    count: int = 0
    p50_ms: int = 0
    p90_ms: int = 0
    max_ms: int = 0


@dataclass(frozen=True, slots=True)
class WaitsOf:
    """How long units waited that have something in common."""

    name: str
    waits: Spread


@dataclass(frozen=True, slots=True)
class LongWait:
    """A unit that waited, in all for ``waited_ms``; ``phase`` and ``code`` are the last ones.

    ``overtaken`` counts units that were placed in that time although they were behind it.
    """

    unit: str
    namespace: str
    trace: str
    pods: int
    quota: str
    waited_ms: int
    phase: str
    code: str
    is_waiting: bool
    overtaken: int


@dataclass(frozen=True, slots=True)
class WaitReport:
    """Waits of units in a time; ``waiting`` of the ``units`` did so in the end."""

    units: int
    waiting: int
    by_phase: tuple[WaitsOf, ...]
    by_quota: tuple[WaitsOf, ...]
    by_size: tuple[WaitsOf, ...]
    by_band: tuple[WaitsOf, ...]
    longest: tuple[LongWait, ...]


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """How long all units together were in a phase."""

    phase: str
    ms: int
    share: int


@dataclass(frozen=True, slots=True)
class CauseTime:
    """Why nodes refused, and for how long: nodes times milliseconds."""

    cause: str
    node_ms: int


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What was planned: ``attempts`` in vain, ``repeats`` of them with the same result."""

    attempts: int
    repeats: int
    placed: int
    plans: int
    """Plans in which something was refused for another reason than before, or placed."""
    plan_micros: int
    causes: tuple[CauseTime, ...]


@dataclass(frozen=True, slots=True)
class Blocker:
    """A unit that held what others waited for: their GPUs times the time, as far as it counts."""

    unit: str
    namespace: str
    trace: str
    milli_gpu_ms: int
    share: int


@dataclass(frozen=True, slots=True)
class BlockerReport:
    """``total`` is what was waited for room or quota; nobody known held the ``unattributed``."""

    total_milli_gpu_ms: int
    unattributed_milli_gpu_ms: int
    units: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class Starving:
    """A unit that was overtaken often, or waits much longer than others of its size."""

    wait: LongWait
    median_ms: int
    is_overtaken: bool
    is_slow: bool


@dataclass(frozen=True, slots=True)
class RepeatedVictim:
    """A unit that was evicted more than once."""

    unit: str
    namespace: str
    times: int


@dataclass(frozen=True, slots=True)
class CountOf:
    """How often something was."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class PreemptionSummary:
    """Plans that evict for others. ``lost``: at most so much was computed in vain by victims."""

    plans: int
    invalidated: int
    victims: int
    outcomes: tuple[CountOf, ...]
    repeated: tuple[RepeatedVictim, ...]
    lost_milli_gpu_ms: int
    victims_took: Spread
    bound_after: Spread
    """From when the last victim was gone until the unit was bound."""


@dataclass(frozen=True, slots=True)
class FailedWrites:
    """Writes that the API server refused; status 0: it did not answer."""

    status: int
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What was written to pods; of ``unknown`` writes nobody knows what became."""

    binds: int
    refused: int
    unknown: int
    failures: tuple[FailedWrites, ...]


@dataclass(frozen=True, slots=True)
class TermBegin:
    """When a process began to lead."""

    at: int
    holder: str


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """How far records tell the whole: ``missing`` of them are known, None if some are not counted.

    ``clock_jumps`` counts when the clock of a leader went another way than time.
    """

    records: int
    gaps: int
    missing: int | None
    terms: tuple[TermBegin, ...]
    clock_jumps: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the decisions of a time say; of one namespace or quota, if one is named."""

    window: Window
    namespace: str
    quota: str
    waits: WaitReport
    phases: tuple[PhaseTime, ...]
    retries: RetryReport
    blockers: BlockerReport
    starving: tuple[Starving, ...]
    preemption: PreemptionSummary
    writes: WriteReport
    coverage: CoverageReport

    @property
    def total_ms(self) -> int:
        """How long all units together were there."""
        return sum(phase.ms for phase in self.phases)


def hide_names(report: AuditReport, sight: Sight) -> AuditReport:
    """Return a report in which an asker learns no name that is not for him to see."""

    def hide(unit: str) -> str:
        return sight.hide(NameKind.UNIT, unit)

    def hide_wait(wait: LongWait) -> LongWait:
        if sight.sees(wait.namespace):
            return wait
        return replace(wait, unit=hide(wait.unit), namespace="", trace="", quota="")

    waits, blockers, preemption = report.waits, report.blockers, report.preemption
    return replace(
        report,
        waits=replace(
            waits,
            by_quota=waits.by_quota if sight.quotas else (),
            longest=tuple(map(hide_wait, waits.longest)),
        ),
        blockers=replace(
            blockers,
            units=tuple(
                blocker
                if sight.sees(blocker.namespace)
                else replace(blocker, unit=hide(blocker.unit), namespace="", trace="")
                for blocker in blockers.units
            ),
        ),
        starving=tuple(replace(each, wait=hide_wait(each.wait)) for each in report.starving),
        preemption=replace(
            preemption,
            repeated=tuple(
                victim for victim in preemption.repeated if sight.sees(victim.namespace)
            ),
        ),
        writes=report.writes if sight.namespaces is None else replace(report.writes, failures=()),
        coverage=report.coverage
        if sight.namespaces is None
        else replace(report.coverage, terms=()),
    )


class TermBeginDocument(TypedDict):
    """When a process began to lead."""

    at: str
    holder: str


AuditReportDocument = TypedDict(
    "AuditReportDocument",
    {
        "from": str,
        "to": str,
        "namespace": str | None,
        "quota": str | None,
        "waits": Encoded[WaitReport],
        "phases": list[Encoded[PhaseTime]],
        "totalMs": int,
        "retries": Encoded[RetryReport],
        "blockers": Encoded[BlockerReport],
        "starving": list[Encoded[Starving]],
        "preemption": Encoded[PreemptionSummary],
        "writes": Encoded[WriteReport],
        "coverage": Encoded[CoverageReport],
    },
)


@encode.register
def _(term: TermBegin) -> TermBeginDocument:
    return {"at": to_text(term.at), "holder": term.holder}


@encode.register
def _(report: AuditReport) -> AuditReportDocument:
    return {
        "from": to_text(report.window.start),
        "to": to_text(report.window.end),
        "namespace": report.namespace or None,
        "quota": report.quota or None,
        "waits": encode(report.waits),
        "phases": encode(report.phases),
        "totalMs": report.total_ms,
        "retries": encode(report.retries),
        "blockers": encode(report.blockers),
        "starving": encode(report.starving),
        "preemption": encode(report.preemption),
        "writes": encode(report.writes),
        "coverage": encode(report.coverage),
    }


def spread(times: Sequence[int]) -> Spread:
    """Return how long something took; the nearest rank counts."""
    if not times:
        return Spread()
    ordered = sorted(times)

    def rank(percent: int) -> int:
        return ordered[-(-percent * len(ordered) // 100) - 1]

    return Spread(len(ordered), rank(50), rank(90), ordered[-1])


def share_of(part: int, whole: int) -> int:
    """Return a part in ten-thousandths, rounded down."""
    return WHOLE_SHARE * part // whole if whole else 0
