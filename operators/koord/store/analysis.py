"""The report of decisions as a store tells it: one value for commands and for whoever serves it."""

from dataclasses import dataclass
from pathlib import Path

from koord.answers.audit import to_text
from koord.answers.audit_analysis import OVERTAKEN, AuditAnalysis, AuditScope
from koord.answers.audit_report import AuditReport
from koord.answers.envelope import AnswerGap, GapCause
from koord.core.model.text import plural
from koord.core.usage.segments import Window
from koord.store.reading import Bounds, StoreReader, Visit

RECORDS = "records of decisions"


@dataclass(frozen=True, slots=True)
class StoredAnalysis:
    """A report, and what is missing in it."""

    report: AuditReport
    gaps: tuple[AnswerGap, ...]


def analyse_store(
    path: Path,
    window: Window,
    scope: AuditScope,
    bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
    starves_from: int = OVERTAKEN,
) -> StoredAnalysis:
    """Return the report of a range of time; of too many records, of the newest.

    Raises ``StoreError``.
    """
    with StoreReader(path).visit(window, bounds) as visit:
        analysis = AuditAnalysis(Window(visit.since, window.end), scope, starves_from)
        analysis.add_all(visit.carried())
        analysis.add_all(visit.records())
        report = analysis.report(visit.until)
        return StoredAnalysis(report, tuple(_find_gaps(visit, window)))


def _find_gaps(visit: Visit, window: Window) -> list[AnswerGap]:
    gaps = []
    since, until = to_text(visit.since), to_text(visit.until)
    if not visit.is_whole:
        span = f"what was before {since} or after {until}"
        gaps.append(AnswerGap(RECORDS, GapCause.TOO_EXPENSIVE, span))
    elif visit.since > window.start:
        gaps.append(AnswerGap(RECORDS, GapCause.NOT_STORED, f"what was before {since}"))
    if visit.damaged:
        what = f"what {plural(visit.damaged, 'damaged row')} of the file said"
        gaps.append(AnswerGap(RECORDS, GapCause.NOT_STORED, what))
    return gaps
