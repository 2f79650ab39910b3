"""Reads the cluster, or a store, and prints what GPUs were held: what ``koord usage`` does.

Not imported for ``--help``.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import RenderableType

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerHead, AnswerSource
from koord.answers.gaps import head_of, list_warnings
from koord.answers.reading import Reading
from koord.answers.usage import GpuUsage, find_segments, view_book, view_usage
from koord.answers.usage_rows import (
    SEGMENT_COLUMNS,
    list_columns,
    list_rows,
    list_segments,
)
from koord.cli.cluster import read_without_target, refuse_gaps, refuse_unknown_namespace
from koord.cli.common import ExitCode, Output, fail, warn
from koord.cli.output import make_table, print_in
from koord.cli.usage_files import write_rows
from koord.cli.usage_options import UsageOutput
from koord.cli.usage_period import choose_period, format_span
from koord.core.model.text import format_time
from koord.core.usage.segments import MS_PER_SECOND, Segment, Window
from koord.core.usage.tables import By, format_hours, tabulate
from koord.domains.placement import NODES, PODS
from koord.store.errors import StoreError
from koord.store.usage_reading import UsageReader

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
    store: Path | None = None
    """Read instead of the cluster."""
    is_by_segment: bool = False
    """There is a row for each segment."""


_DOCUMENTS: Final = frozenset({UsageOutput.JSON, UsageOutput.ANSWER, UsageOutput.YAML})
"""These have CPUs and memory, too."""
_FILES: Final = frozenset({UsageOutput.CSV, UsageOutput.JSONL, UsageOutput.PARQUET})


def show(request: UsageRequest, kubeconfig: str, context: str, output: UsageOutput) -> None:
    now = time.time()
    window = choose_period(request.period, request.zone, now).window
    if request.is_by_segment and output not in _FILES:
        fail("--segments needs --output csv, jsonl or parquet", ExitCode.USAGE)
    if request.store is not None:
        _show_store(request, request.store, window, output)
        return
    if request.by is By.USER and not request.user_label:
        fail(
            "--by user needs --user-label, the label of pods that names their user", ExitCode.USAGE
        )
    reading, target = read_without_target(kubeconfig, context, request.namespace)
    refuse_gaps(reading, PODS, NODES)
    refuse_unknown_namespace(reading, request.namespace)
    for warning in list_warnings(reading, target):
        warn(warning)
    if request.is_by_segment:
        write_rows(list_segments(_find(reading, request, now), window), SEGMENT_COLUMNS, output)
        return
    usage = view_usage(reading.state, _find(reading, request, now), request.by, window)
    if output in _FILES:
        write_rows(list_rows(usage.table), list_columns(request.by), output)
        return
    print_in(
        Output(str(output)),
        head_of("Usage", reading, target),
        document=lambda: encode(usage),
        names=lambda: (f"{request.by}/{row.name}" for row in usage.table.rows),
        text=lambda: make_parts(usage),
    )


def _show_store(request: UsageRequest, path: Path, window: Window, output: UsageOutput) -> None:
    try:
        reader = UsageReader(path)
        if request.is_by_segment:
            segments = _only_in(request.namespace, reader.segments(window))
            write_rows(list_segments(segments, window), SEGMENT_COLUMNS, output)
            return
        if request.by is By.NODE:
            segments = _only_in(request.namespace, reader.segments(window))
            usage = GpuUsage(tabulate(segments, By.NODE, window))
        else:
            book = reader.read(window, with_amounts=output in _DOCUMENTS)
            usage = view_book(book, request.by, request.namespace)
    except StoreError as error:
        fail(str(error), ExitCode.UNREADABLE)
    if output in _FILES:
        write_rows(list_rows(usage.table), list_columns(request.by), output)
        return
    head = AnswerHead("Usage", time.time(), source=AnswerSource.STORED)
    print_in(
        Output(str(output)),
        head,
        document=lambda: encode(usage),
        names=lambda: (f"{request.by}/{row.name}" for row in usage.table.rows),
        text=lambda: make_parts(usage),
    )


def _find(reading: Reading, request: UsageRequest, now: float) -> Iterator[Segment]:
    segments = find_segments(reading.state, now, request.user_label)
    return _only_in(request.namespace, segments)


def _only_in(namespace: str, segments: Iterator[Segment]) -> Iterator[Segment]:
    return (segment for segment in segments if namespace in {"", segment.holder.namespace})


def make_parts(usage: GpuUsage) -> Iterator[RenderableType]:
    table = usage.table
    start, end = (format_time(ms / MS_PER_SECOND) for ms in (table.window.start, table.window.end))
    missing = " Deleted pods are missing." if usage.is_of_objects else ""
    yield f"From {start} to {end}.{missing}"
    if not table.rows:
        yield "No pod that is known held anything then."
        return
    yield ""
    yield from _make_table(usage)
    yield ""
    who = "Pods" if table.total.pods is None else f"{table.total.pods} pods"
    yield f"{who} held GPUs for {format_hours(table.total.held)} hours."
    if usage.unseen:
        yield f"Nobody watched for {format_span(usage.unseen)}: of that time less may be known."
    if table.estimated:
        yield (
            f"{format_hours(table.estimated)} hours of these are an estimate: pods that ask for "
            "memory in bytes count as whole GPUs."
        )
    if table.skewed:
        yield f"{table.skewed} pods ended before they began, by clocks that differ: they count 0."


def _make_table(usage: GpuUsage) -> Iterator[RenderableType]:
    counted = ("PODS",) if usage.table.total.pods is not None else ()  # no store counts them
    numbers = (_HELD, *((_BELOW,) if usage.quotas else ()), *counted)
    rows = make_table(str(usage.table.by).upper(), *numbers, right=numbers)
    for quota in usage.quotas:
        name = f"{'  ' * quota.depth}{quota.own.name or '(none)'}"
        held = (format_hours(quota.own.held), format_hours(quota.held))
        rows.add_row(name, *held, *(str(quota.own.pods or "") for _ in counted))
    for row in () if usage.quotas else usage.table.rows:
        rows.add_row(
            row.name or "(none)", format_hours(row.held), *(_count(row.pods) for _ in counted)
        )
    yield rows


def _count(pods: int | None) -> str:
    return "" if pods is None else str(pods)
