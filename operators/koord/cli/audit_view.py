"""Says where waiting time went: what ``koord audit analyse`` does.

Not imported for ``--help``.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from koord.answers.audit import to_ms, to_text
from koord.answers.audit_analysis import AuditAnalysis, AuditScope
from koord.answers.audit_report import AuditReport, LongWait, Spread, WaitsOf
from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, AnswerHead, AnswerSource, GapCause
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.connection import open_client
from koord.cli.feed_records import find_address, read_feed
from koord.cli.leases import read_leader
from koord.cli.output import make_table, print_in
from koord.core.model.text import format_age, plural
from koord.core.usage.segments import Window
from koord.core.usage.tables import format_hours
from koord.kube.errors import KubeError
from koord.store.analysis import RECORDS, analyse_store
from koord.store.errors import StoreError
from koord.store.reading import MOST_MS

_MOST_SHOWN: Final = 10
_BAR: Final = 24


@dataclass(frozen=True, slots=True)
class AnalyseRequest:
    """What was asked; ``since`` are seconds. Without a ``store`` the feed is read."""

    store: Path | None
    since: float
    namespace: str = ""
    quota: str = ""
    feed: str = ""

    @property
    def scope(self) -> AuditScope:
        return AuditScope(self.namespace, self.quota)


@dataclass(frozen=True, slots=True)
class _Analysis:
    report: AuditReport
    head: AnswerHead


def show(request: AnalyseRequest, kubeconfig: str, context: str, output: Output) -> None:
    now = time.time()
    end = int(now * 1000)
    if not 0 < request.since * 1000 <= MOST_MS:
        fail("--since may be 31d at most", ExitCode.USAGE)
    window = Window(end - int(request.since * 1000), end)
    try:
        if request.store is not None:
            stored = analyse_store(request.store, window, request.scope)
            head = AnswerHead("AuditReport", now, AnswerSource.STORED, gaps=stored.gaps)
            analysis = _Analysis(stored.report, head)
        else:
            analysis = asyncio.run(_analyse_feed(request, window, now, kubeconfig, context))
    except (StoreError, KubeError) as error:
        fail(str(error), ExitCode.UNREADABLE)
    for gap in analysis.head.gaps:
        warn(f"{gap.missing}: {gap.then}")
    report = analysis.report
    print_in(
        output,
        analysis.head,
        document=lambda: encode(report),
        names=lambda: (wait.unit for wait in report.waits.longest),
        text=lambda: make_parts(report),
    )


async def _analyse_feed(
    request: AnalyseRequest, window: Window, now: float, kubeconfig: str, context: str
) -> _Analysis:
    async with open_client(kubeconfig, context) as (client, _):
        leader = await read_leader(client)
    feed = await read_feed(find_address(leader, request.feed), leader)
    if feed.problem:
        fail(
            f"{feed.problem}: give --feed, or --store with a file of koord audit record",
            ExitCode.UNREADABLE,
        )
    since = max(window.start, _find_first(feed.records))
    analysis = AuditAnalysis(Window(min(since, window.end), window.end), request.scope)
    analysis.add_all(feed.records)
    gaps: tuple[AnswerGap, ...] = ()
    if since > window.start:
        gaps = (AnswerGap(RECORDS, GapCause.NOT_STORED, f"what was before {to_text(since)}"),)
    head = AnswerHead(
        "AuditReport",
        now,
        AnswerSource.STORED,
        None if leader is None else leader.holder or None,
        None if leader is None else leader.term,
        gaps,
    )
    return _Analysis(analysis.report(), head)


def _find_first(records: Sequence[Mapping[str, Any]]) -> int:
    """Return since when the records of a feed are whole: those after its last gap."""
    first = 0
    for record in records:
        at = to_ms(record.get("at")) or 0
        if record.get("kind") == "Gap":
            first = max(first, at)
    oldest = to_ms(records[0].get("at")) if records else None
    return max(first, oldest or 0)


# --- as text -------------------------------------------------------------------------------------


def make_parts(report: AuditReport) -> Iterator[RenderableType]:
    """Yield a report as text."""
    window, waits = report.window, report.waits
    span = f"{to_text(window.start)[:19]}Z to {to_text(window.end)[:19]}Z"
    yield Text(
        f"{plural(waits.units, 'unit')} waited, {waits.waiting} still do; {span}", style="bold"
    )
    yield ""
    yield from _make_phases(report)
    for title, rows in (
        ("WAITED IN", waits.by_phase),
        ("QUOTA", waits.by_quota),
        ("PODS", waits.by_size),
        ("CLASS", waits.by_band),
    ):
        yield from _make_waits(title, rows)
    yield from _make_longest("Waited longest", waits.longest)
    yield from _make_blockers(report)
    yield from _make_starving(report)
    yield from _make_work(report)


def _make_phases(report: AuditReport) -> Iterator[RenderableType]:
    table = make_table("PHASE", "TIME", "SHARE", "", right=("TIME", "SHARE"))
    for phase in report.phases:
        bar = "█" * max(1, _BAR * phase.share // 10_000)
        table.add_row(phase.phase, _format(phase.ms), f"{phase.share / 100:.1f} %", bar)
    if report.phases:
        yield table


def _make_waits(title: str, rows: Sequence[WaitsOf]) -> Iterator[RenderableType]:
    if not rows:
        return
    yield ""
    right = ("UNITS", "MEDIAN", "9 OF 10", "LONGEST")
    table = make_table(title, *right, right=right)
    for row in rows[:_MOST_SHOWN]:
        table.add_row(row.name or "none", str(row.waits.count), *_list_times(row.waits))
    yield table


def _make_longest(title: str, waits: Sequence[LongWait]) -> Iterator[RenderableType]:
    if not waits:
        return
    yield ""
    yield Text(title, style="bold")
    table = make_table(
        "UNIT", "WAITED", "PODS", "NOW", "WHY", "OVERTAKEN", right=("WAITED", "PODS", "OVERTAKEN")
    )
    for wait in waits[:_MOST_SHOWN]:
        table.add_row(
            wait.unit,
            _format(wait.waited_ms),
            str(wait.pods),
            wait.phase or "over",
            wait.code,
            str(wait.overtaken),
        )
    yield table


def _make_blockers(report: AuditReport) -> Iterator[RenderableType]:
    blockers = report.blockers
    if not blockers.units:
        return
    yield ""
    total = format_hours(blockers.total_milli_gpu_ms)
    yield Text(f"Held what others waited for ({total} GPU hours were waited)", style="bold")
    table = make_table("UNIT", "GPU HOURS", "SHARE", right=("GPU HOURS", "SHARE"))
    for row in blockers.units[:_MOST_SHOWN]:
        table.add_row(row.unit, format_hours(row.milli_gpu_ms), f"{row.share / 100:.1f} %")
    yield table


def _make_starving(report: AuditReport) -> Iterator[RenderableType]:
    starving = [each.wait for each in report.starving]
    title = "Starve: overtaken by many, or ten times the median wait of their size"
    yield from _make_longest(title, starving)


def _make_work(report: AuditReport) -> Iterator[RenderableType]:
    retries, preemption = report.retries, report.preemption
    writes, coverage = report.writes, report.coverage
    table = make_table("", "")
    table.add_row(
        "Planned",
        f"{retries.placed} placed, {retries.attempts} refused ({retries.repeats} of them again for "
        f"the same reason), {retries.plan_micros / 1e6:.1f} s in {plural(retries.plans, 'plan')}",
    )
    for cause in retries.causes[:3]:
        table.add_row("", f"{cause.cause}: {_format(cause.node_ms)} of nodes")
    if preemption.plans or preemption.victims:
        took, after = preemption.victims_took, preemption.bound_after
        table.add_row(
            "Evicted",
            f"{plural(preemption.victims, 'pod')} in {plural(preemption.plans, 'plan')}, "
            f"{preemption.invalidated} in vain; at most "
            f"{format_hours(preemption.lost_milli_gpu_ms)} GPU hours lost; victims took "
            f"{_format(took.p50_ms)} (median), then {_format(after.p50_ms)} until bound",
        )
    for victim in preemption.repeated[:3]:
        table.add_row("", f"{victim.unit} was evicted {victim.times} times")
    table.add_row(
        "Written",
        f"{plural(writes.binds, 'pod')} bound, {plural(writes.refused, 'write')} refused, of "
        f"{writes.unknown} nobody knows",
    )
    for failure in writes.failures[:3]:
        table.add_row("", f"{failure.count} times {failure.status}: {failure.message}")
    missing = "an unknown number" if coverage.missing is None else str(coverage.missing)
    gaps = f", {plural(coverage.gaps, 'gap')} ({missing} missing)" if coverage.gaps else ""
    jumps = f", the clock jumped {coverage.clock_jumps} times" if coverage.clock_jumps else ""
    table.add_row(
        "Records",
        f"{coverage.records}; {_count_leaders(len(coverage.terms))} began to lead{gaps}{jumps}",
    )
    yield table


def _count_leaders(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _list_times(waits: Spread) -> tuple[str, ...]:
    return tuple(map(_format, (waits.p50_ms, waits.p90_ms, waits.max_ms)))


def _format(ms: int) -> str:
    return format_age(ms / 1000) if ms >= 10_000 else f"{ms / 1000:.1f}s"
