"""Prints rows as a table, and writes them as JSON."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

_COLUMNS = (
    "scenario",
    "pods",
    "nodes",
    "ceiling/s",
    "pods/s",
    "share",
    "writes/pod",
    "p50 ms",
    "p99 ms",
    "CPU ms/pod",
    "pace ms",
    "share/pace",
    "CPU/pace",
    "idle CPU",
    "RSS MiB",
    "noise",
)


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(rows), indent=2)
    path.write_bytes(text + b"\n")


def show(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column(_COLUMNS[0], no_wrap=True)
    for title in _COLUMNS[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        if row.pods_per_s is not None:
            table.add_row(*_cells_of(row))
    console.print(table, crop=False, no_wrap=True)
    for row in rows:
        if row.first_bind_ms is not None and row.ms_per_object is not None:
            objects = f"{row.nodes + row.residents} objects"
            text = f"first bind after {row.first_bind_ms:.0f} ms, {row.ms_per_object:.3f} ms each"
            console.print(f"{row.name}: {objects}, {text}", highlight=False)


def _cells_of(row: Row) -> list[str]:
    return [
        row.name,
        str(row.pods),
        str(row.nodes),
        _show(row.ceiling_pods_per_s, 0),
        _show(row.pods_per_s, 0),
        _show_share(row),
        _show(row.writes_per_pod, 2),
        _show(row.p50_ms, 0),
        _show(row.p99_ms, 0),
        _show(row.cpu_ms_per_pod, 2),
        _show(row.pace_ms, 2),
        "" if row.share_by_pace is None else f"{row.share_by_pace:.0%}",
        _show(row.cpu_by_pace, 3),
        "" if row.idle_cpu is None else f"{row.idle_cpu:.1%}",
        _show(row.rss_mib, 0),
        _show(row.noise, 2),
    ]


def _show(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _show_share(row: Row) -> str:
    if row.share is None or row.share_spread is None:
        return ""
    text = f"{row.share:.0%}"
    if row.repetitions == 1:
        return text
    return f"{text} ({row.share_spread.least:.0%}-{row.share_spread.most:.0%})"
