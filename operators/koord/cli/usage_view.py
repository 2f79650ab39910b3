"""Reads the cluster and prints what GPUs were held: what ``koord usage`` does.

Not imported for ``--help``.
"""

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.console import RenderableType

from koord.answers.encoding import encode
from koord.answers.gaps import head_of, list_warnings
from koord.answers.reading import Reading
from koord.answers.usage import GpuUsage, find_segments, list_cells, view_usage
from koord.cli.cluster import read_without_target, refuse_gaps, refuse_unknown_namespace
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.output import make_console, make_table, print_in
from koord.cli.usage import UsageOutput
from koord.core.model.text import format_time
from koord.core.usage.periods import PeriodError, find_period, find_zone
from koord.core.usage.segments import MS_PER_SECOND, Window
from koord.core.usage.tables import By, format_hours
from koord.domains.placement import NODES, PODS
from koord.plain_text import escape_line

_HELD = "HELD (GPU h)"
_BELOW = "WITH THOSE BELOW"


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """What is asked for; an empty period is this month, an empty namespace all of them."""

    period: str
    by: By
    zone: str
    user_label: str
    namespace: str


def show(request: UsageRequest, kubeconfig: str, context: str, output: UsageOutput) -> None:
    now = time.time()
    window = _find_window(request, now)
    if request.by is By.USER and not request.user_label:
        fail(
            "--by user needs --user-label, the label of pods that names their user", ExitCode.USAGE
        )
    reading, target = read_without_target(kubeconfig, context, request.namespace)
    refuse_gaps(reading, PODS, NODES)
    refuse_unknown_namespace(reading, request.namespace)
    for warning in list_warnings(reading, target):
        warn(warning)
    usage = _view(reading, request, window, now)
    if output is UsageOutput.CSV:
        make_console().file.write(write_csv(usage))
        return
    print_in(
        Output(str(output)),
        head_of("Usage", reading, target),
        document=lambda: encode(usage),
        names=lambda: (f"{request.by}/{row.name}" for row in usage.table.rows),
        text=lambda: make_parts(usage),
    )


def _find_window(request: UsageRequest, now: float) -> Window:
    """Return the period up to now; exits if there is none."""
    try:
        zone = find_zone(request.zone)
        this_month = f"{datetime.fromtimestamp(now, zone):%Y-%m}"
        window = find_period(request.period or this_month, zone).window
    except PeriodError as error:
        fail(str(error), ExitCode.USAGE)
    return Window(window.start, max(window.start, min(window.end, int(now * MS_PER_SECOND))))


def _view(reading: Reading, request: UsageRequest, window: Window, now: float) -> GpuUsage:
    segments = (
        segment
        for segment in find_segments(reading.state, now, request.user_label)
        if request.namespace in {"", segment.holder.namespace}
    )
    return view_usage(reading.state, segments, request.by, window)


def write_csv(usage: GpuUsage) -> str:
    """Return the table as CSV; no name in it is a formula to spreadsheets, or steers a terminal."""
    text = io.StringIO()
    csv.writer(text).writerows(
        [_plain_cell(cell) for cell in line] for line in list_cells(usage.table)
    )
    return text.getvalue()


def _plain_cell(cell: str) -> str:
    text = escape_line(cell)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text


def make_parts(usage: GpuUsage) -> Iterator[RenderableType]:
    table = usage.table
    start, end = (format_time(ms / MS_PER_SECOND) for ms in (table.window.start, table.window.end))
    yield f"From {start} to {end}. Deleted pods are missing."
    if not table.rows:
        yield "No pod that exists held anything then."
        return
    yield ""
    yield from _make_table(usage)
    yield ""
    yield f"{table.total.pods} pods held GPUs for {format_hours(table.total.held)} hours."
    if table.estimated:
        yield (
            f"{format_hours(table.estimated)} hours of these are an estimate: pods that ask for "
            "memory in bytes count as whole GPUs."
        )
    if table.skewed:
        yield f"{table.skewed} pods ended before they began, by clocks that differ: they count 0."


def _make_table(usage: GpuUsage) -> Iterator[RenderableType]:
    heading = str(usage.table.by).upper()
    if usage.quotas:
        rows = make_table(heading, _HELD, _BELOW, "PODS", right=(_HELD, _BELOW, "PODS"))
        for quota in usage.quotas:
            rows.add_row(
                f"{'  ' * quota.depth}{quota.own.name or '(none)'}",
                format_hours(quota.own.held),
                format_hours(quota.held),
                str(quota.own.pods or ""),
            )
    else:
        rows = make_table(heading, _HELD, "PODS", right=(_HELD, "PODS"))
        for row in usage.table.rows:
            rows.add_row(row.name or "(none)", format_hours(row.held), str(row.pods))
    yield rows
