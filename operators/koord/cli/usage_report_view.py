"""Prints the report of a period as Markdown, HTML or JSON: what ``koord usage report`` does.

Not imported for ``--help``. Names of others are escaped in both forms, so that none of them is a
link, not even an address that readers of Markdown make one, a picture or a script.
"""

import html
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from koord.answers.encoding import encode
from koord.answers.usage import find_parents, find_segments
from koord.answers.usage_report import AmountLine, QuotaLine, UsageReport, make_report
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, fail, write_document
from koord.cli.output import encode_json
from koord.cli.usage_options import ReportOutput
from koord.cli.usage_period import choose_period, format_span
from koord.core.model.text import format_time
from koord.core.usage.book import UsageBook
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.periods import Period
from koord.core.usage.segments import MS_PER_SECOND
from koord.core.usage.tables import format_hours
from koord.domains.placement import NODES, PODS
from koord.plain_text import escape_line
from koord.store.errors import StoreError
from koord.store.usage_reading import UsageReader

_MOST_PRICE: Final = Decimal(1_000_000_000)
_NOBODY: Final = "(none)"
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What is asked for; ``prices`` as they were written, an empty quota is all of them."""

    month: str
    quota: str
    prices: tuple[str, ...]
    zone: str
    user_label: str
    store: Path | None


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table; all columns but the first ``names`` are numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of a report: its title, sentences, and perhaps a table."""

    title: str
    sentences: tuple[str, ...] = ()
    table: ReportTable | None = None


def show(request: ReportRequest, kubeconfig: str, context: str, output: ReportOutput) -> None:
    now = time.time()
    period = choose_period(request.month, request.zone, now)
    prices = parse_prices(request.prices)
    book = _read(request, period, now, kubeconfig, context)
    report = make_report(book, request.quota, prices)
    if request.quota and not report.quotas:
        names = sorted({*book.quotas, *book.above, *(key.quota for key in book.sums)} - {""})
        more = " and others" if len(names) > _MOST_NAMED else ""
        choice = f"; there are {', '.join(names[:_MOST_NAMED])}{more}" if names else ""
        fail(f"quota {request.quota} is not known, and held nothing then{choice}", ExitCode.USAGE)
    if output is ReportOutput.JSON:
        write_document(f"{encode_json(encode(report)).decode()}\n")
        return
    sections = list(make_sections(report, period.name, request))
    write = write_html if output is ReportOutput.HTML else write_markdown
    write_document(write(sections))


def parse_prices(texts: Sequence[str]) -> Mapping[str, Decimal]:
    """Return prices by model; exits if one is none."""
    prices: dict[str, Decimal] = {}
    for text in texts:
        model, equals, number = text.rpartition("=")
        try:
            price = Decimal(number)
        except InvalidOperation:
            price = Decimal(-1)
        if not (equals and model and price.is_finite() and 0 <= price <= _MOST_PRICE):
            fail(f"--price {text}: it is MODEL=PRICE, such as H100=2.50", ExitCode.USAGE)
        prices[model] = price
    return prices


def _read(
    request: ReportRequest, period: Period, now: float, kubeconfig: str, context: str
) -> UsageBook:
    if request.store is not None:
        try:
            return UsageReader(request.store).read(period.window)
        except StoreError as error:
            fail(str(error), ExitCode.UNREADABLE)
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, PODS, NODES)
    book = UsageBook(period.window, above=find_parents(reading.state))
    book.add_segments(find_segments(reading.state, now, request.user_label))
    return book


def make_sections(
    report: UsageReport, period: str, request: ReportRequest
) -> Iterator[ReportSection]:
    """Yield what the report says; a part of which nothing is known is left out."""
    start, end = (
        format_time(ms / MS_PER_SECOND) for ms in (report.window.start, report.window.end)
    )
    who = f" of {report.quota}" if report.quota else ""
    cost = "" if report.cost is None else f" That costs {report.cost}."
    when = f"From {start} to {end} ({request.zone})."
    what = "Hours are hours of one GPU, held, whether busy or not."
    sum_up = f"Pods held GPUs for {format_hours(report.held)} hours.{cost}"
    yield ReportSection(f"GPU usage{who} in {period}", (f"{when} {what}", sum_up))
    yield from _tell_share(report)
    yield from _tell_amounts("Namespaces", "Namespace", report.namespaces)
    yield from _tell_amounts("Users", "User", report.users, report.other_users)
    yield from _tell_amounts("Jobs", "Job", report.owners, report.other_owners)
    yield from _tell_amounts("Models", "Model", report.models)
    yield from _tell_losses(report)
    yield from _tell_cluster(report)
    yield ReportSection("How exact this is", tuple(_tell_exactness(report, request)))


def _tell_share(report: UsageReport) -> Iterator[ReportSection]:
    watched = [line for line in report.quotas if line.time is not None]
    top = next((line for line in watched if line.quota == report.quota), None)
    sentences = () if top is None else tuple(_judge(top))
    if not report.quotas:
        return
    yield ReportSection("Share", sentences, _make_quota_table(report.quotas))


def _judge(line: QuotaLine) -> Iterator[str]:
    """Say in words whether a quota got its share."""
    time = line.time
    if time is None:
        return
    yield (
        f"{line.quota} was guaranteed {format_hours(time.guaranteed)} hours. It used "
        f"{format_hours(time.within_min)} of them, asked for {format_hours(time.owed)} more and "
        f"did not get them, and did not ask for {format_hours(time.idle_min)}."
    )
    if time.borrowed:
        yield f"It borrowed {format_hours(time.borrowed)} hours beyond its guarantee."
    if time.owed:
        yield f"So it did not get all of its share: {format_hours(time.owed)} hours are missing."
    else:
        yield "So it got its share whenever it asked for it."


def _make_quota_table(quotas: Sequence[QuotaLine]) -> ReportTable:
    has_cost = any(line.cost is not None for line in quotas)
    headings = (
        *("Quota", "Own pods", "With those below", "Guaranteed", "Borrowed", "Owed", "Idle"),
        *("Lent", *(("Cost",) if has_cost else ())),
    )
    rows = []
    for line in quotas:
        time = line.time
        amounts = (
            ("",) * 6
            if time is None
            else (
                *map(format_hours, (time.used, time.guaranteed, time.borrowed)),
                *map(format_hours, (time.owed, time.idle_min, time.lent)),
            )
        )
        cost = (_format_cost(line.cost),) if has_cost else ()
        name = f"{'· ' * line.depth}{line.quota or _NOBODY}"
        rows.append((name, format_hours(line.held), *amounts, *cost))
    return ReportTable(headings, tuple(rows))


def _tell_amounts(
    title: str, heading: str, lines: Sequence[AmountLine], unnamed: int = 0
) -> Iterator[ReportSection]:
    if not lines:
        return
    has_cost = any(line.cost is not None for line in lines)
    rows = [
        (
            line.name or _NOBODY,
            format_hours(line.held),
            *((_format_cost(line.cost),) if has_cost else ()),
        )
        for line in lines
    ]
    if unnamed:
        rows.append(("(others)", format_hours(unnamed), *(("",) if has_cost else ())))
    headings = (heading, "Hours", *(("Cost",) if has_cost else ()))
    yield ReportSection(title, (), ReportTable(headings, tuple(rows)))


def _tell_losses(report: UsageReport) -> Iterator[ReportSection]:
    if not report.losses:
        yield ReportSection("Lost", ("Nothing is known to be lost to evictions.",))
        return
    total = sum(line.lost for line in report.losses)
    rows = tuple(
        (
            line.cause,
            line.by or _NOBODY,
            _BASIS.get(line.basis, line.basis),
            format_hours(line.lost),
        )
        for line in report.losses
    )
    sentence = (
        f"{format_hours(total)} hours were lost with pods that were evicted, at most: where a job "
        "does not say when it saved its work, all since it began."
    )
    table = ReportTable(("Cause", "For", "Known", "Hours"), rows, names=3)
    yield ReportSection("Lost", (sentence,), table)
    yield from _tell_amounts("Lost, by job", "Job", report.losers)


_BASIS: Final = {"Checkpoint": "since it was saved", "AtMost": "at most"}


def _tell_cluster(report: UsageReport) -> Iterator[ReportSection]:
    if not report.cluster:
        return
    rows = tuple(
        (
            model,
            *(format_hours(states.get(state, 0)) for state in GpuState),
            format_hours(sum(states.values())),
        )
        for model, states in sorted(report.cluster.items())
    )
    headings = ("Model", *(state.capitalize() for state in GpuState), "All")
    yield ReportSection("All GPUs", (), ReportTable(headings, rows))


def _tell_exactness(report: UsageReport, request: ReportRequest) -> Iterator[str]:
    if request.store is None:
        yield (
            "Made of pods that exist: deleted ones are missing, and what quotas were guaranteed "
            "and owed is not known. A store has both."
        )
    elif report.unseen is None:
        yield "Nobody wrote down when somebody watched: what is missing is not known."
    elif report.unseen:
        yield f"Nobody watched for {format_span(report.unseen)}: of that time less may be known."
    else:
        yield "Somebody watched all the time."
    yield f"Ends of pods may differ by {format_span(report.uncertain)} altogether."
    if report.estimated:
        yield (
            f"{format_hours(report.estimated)} hours are an estimate: pods that ask for memory in "
            "bytes count as whole GPUs."
        )
    if report.adjusted:
        yield (
            f"{format_hours(report.adjusted)} hours of closed periods were told since, and are not "
            "in the tables."
        )
    if report.cost is not None and report.unpriced:
        yield f"{format_hours(report.unpriced)} hours are of models without a price."


def _format_cost(cost: Decimal | None) -> str:
    return "" if cost is None else str(cost)


def write_markdown(sections: Sequence[ReportSection]) -> str:
    """Return the report as Markdown."""
    lines: list[str] = []
    for at, section in enumerate(sections):
        lines += [f"{'##' if at else '#'} {_plain(section.title)}", ""]
        for sentence in section.sentences:
            lines += [_plain(sentence), ""]
        if section.table is not None:
            table = section.table
            marks = ["---" if at < table.names else "--:" for at in range(len(table.headings))]
            lines += [_line(table.headings), _line(marks), *map(_line, table.rows), ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


_MARK: Final = re.compile(r"[\\`*_\[\]<>|#!~&]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""What Markdown takes for a mark, and what makes addresses of a text links."""


def _plain(text: str) -> str:
    """Escape what Markdown would take for a mark."""
    return _MARK.sub(lambda mark: f"\\{mark[0]}", escape_line(text))


_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}th,td{border-bottom:1px solid #ccc;"
    "padding:.25em .75em;text-align:right}th.n,td.n{text-align:left}"
)


def write_html(sections: Sequence[ReportSection]) -> str:
    """Return the report as one file of HTML, without scripts and anything from elsewhere."""
    title = html.escape(sections[0].title) if sections else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
    ]
    for at, section in enumerate(sections):
        level = "h2" if at else "h1"
        parts.append(f"<{level}>{_html(section.title)}</{level}>")
        parts += [f"<p>{_html(sentence)}</p>" for sentence in section.sentences]
        if section.table is not None:
            parts.append(_html_table(section.table))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _html(text: str) -> str:
    return html.escape(escape_line(text))


def _html_table(table: ReportTable) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        marks = (' class="n"' if at < table.names else "" for at in range(len(cells)))
        inner = "".join(
            f"<{tag}{mark}>{_html(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return f"<table><thead>{row(table.headings, 'th')}</thead><tbody>{body}</tbody></table>"
