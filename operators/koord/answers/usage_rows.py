"""Usage as rows of plain fields: for CSV, JSON lines and data frames, and back again.

A row says the same in every format: names, whole numbers in their own units, and hours beside them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koord.answers.audit import to_ms
from koord.answers.gpus import MILLI, MOST_GPUS
from koord.core.model.text import format_time
from koord.core.model.units import CPU, MEMORY
from koord.core.usage.segments import (
    MS_PER_SECOND,
    EndBasis,
    Flag,
    Holder,
    Segment,
    Window,
)
from koord.core.usage.tables import UsageTable, format_hours

Row = Mapping[str, str | int | None]

MOST_NAME: Final = 512
_MOST_NUMBER: Final = 1 << 53
_LATEST: Final = 253402300799999
"""The last millisecond that a calendar has."""
_HOLDER: Final = ("namespace", "pod", "quota", "user", "owner", "node", "model", "band")


def list_rows(table: UsageTable) -> Iterator[Row]:
    """Yield the rows of a table."""
    start, end = _format_ms(table.window.start), _format_ms(table.window.end)
    for row in table.rows:
        yield {
            "from": start,
            "to": end,
            str(table.by): row.name,
            "heldMilliGpuMs": row.held,
            "gpuHours": format_hours(row.held),
            "pods": row.pods,
        }


def list_columns(by: str) -> tuple[str, ...]:
    """Return the fields of the rows of a table."""
    return ("from", "to", by, "heldMilliGpuMs", "gpuHours", "pods")


SEGMENT_COLUMNS: Final = (
    *("uid", *_HOLDER, "from", "to", "end", "milliGpus", "heldMilliGpuMs", "gpuHours"),
    *("cpu", "memory", "uncertainMs", "flags", "cause", "by", "checkpointed"),
)
"""Fields of a segment: ``cpu`` in thousandths, ``memory`` in bytes."""


def list_segments(segments: Iterator[Segment], window: Window) -> Iterator[Row]:
    """Yield the parts of segments that are in a window, a row each."""
    for segment in window.clip_all(segments):
        amounts = dict(segment.amounts)
        yield {
            "uid": segment.uid,
            **{name: getattr(segment.holder, name) for name in _HOLDER},
            "from": _format_exactly(segment.start),
            "to": _format_exactly(segment.end),
            "end": str(segment.basis),
            "milliGpus": segment.milli_gpus,
            "heldMilliGpuMs": segment.held,
            "gpuHours": format_hours(segment.held),
            "cpu": amounts.get(CPU, 0),
            "memory": amounts.get(MEMORY, 0),
            "uncertainMs": segment.uncertain,
            "flags": " ".join(segment.flags),
            "cause": segment.cause,
            "by": segment.by,
            "checkpointed": _format_exactly(segment.checkpointed) if segment.checkpointed else "",
        }


def read_segment(row: Mapping[str, Any]) -> Segment:
    """Return the segment of a row; raise ``ValueError``, which names the field, if it is none.

    Needed are ``uid``, ``namespace``, ``pod``, ``from``, ``to`` and ``milliGpus``.
    """
    uid, namespace, pod = (_name_of(row, field) for field in ("uid", "namespace", "pod"))
    for field, name in (("uid", uid), ("namespace", namespace), ("pod", pod)):
        if not name:
            raise ValueError(f"{field} is missing")
    start, end = (_time_of(row, field) for field in ("from", "to"))
    if end < start:
        raise ValueError("to is before from")
    amounts = {name: _number_of(row, name, 0) for name in (CPU, MEMORY)}
    basis = _name_of(row, "end") or str(EndBasis.STATUS)
    if basis not in set(EndBasis):
        raise ValueError(f"end is {basis!r}; it is one of {', '.join(EndBasis)}")
    return Segment(
        uid=uid,
        holder=Holder(**{name: _name_of(row, name) for name in _HOLDER}),
        start=start,
        end=end,
        milli_gpus=min(_number_of(row, "milliGpus"), MOST_GPUS * MILLI),
        basis=EndBasis(basis),
        amounts=tuple(sorted((name, n) for name, n in amounts.items() if n)),
        flags=tuple(Flag(flag) for flag in _name_of(row, "flags").split() if flag in set(Flag)),
        uncertain=_number_of(row, "uncertainMs", 0),
        cause=_name_of(row, "cause"),
        by=_name_of(row, "by"),
        checkpointed=_time_of(row, "checkpointed") if row.get("checkpointed") else 0,
    )


def _name_of(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field) or ""
    if not (isinstance(value, str) and len(value) <= MOST_NAME):
        raise ValueError(f"{field} is no text of at most {MOST_NAME} characters")
    return value


def _number_of(row: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = row.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_NUMBER:
        raise ValueError(f"{field} is no whole number from 0 up to 2^53")
    return value


def _time_of(row: Mapping[str, Any], field: str) -> int:
    value = row.get(field)
    at = to_ms(value) if isinstance(value, str) else None
    if at is None or not 0 <= at <= _LATEST:
        raise ValueError(f"{field} is no time such as 2026-11-25T08:00:00Z")
    return at


def _format_ms(ms: int) -> str:
    return format_time(ms / MS_PER_SECOND)


def _format_exactly(ms: int) -> str:
    """Return a time with its thousandths of a second, if there are any."""
    seconds, thousandths = divmod(ms, MS_PER_SECOND)
    text = format_time(seconds)
    return f"{text.removesuffix('Z')}.{thousandths:03d}Z" if thousandths else text
