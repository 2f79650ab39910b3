"""What was held, by quota, namespace, user, job, model, node or class of priority.

Rows of a table add up to its total in thousandths of GPUs times milliseconds; hours are rounded for
each number that is shown, and never added up afterwards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from koord.core.usage.segments import Flag, Holder, Segment, Window

MILLI_GPU_MS_PER_HOUR: Final = 1_000 * 3_600 * 1_000
"""One GPU for one hour."""
HOUR_DIGITS: Final = 3


class By(StrEnum):
    """What a table has a row for."""

    QUOTA = "quota"
    NAMESPACE = "namespace"
    USER = "user"
    OWNER = "owner"
    MODEL = "model"
    NODE = "node"
    BAND = "band"


ROW_OF: Final[Mapping[By, Callable[[Holder], str]]] = MappingProxyType(
    {
        By.QUOTA: lambda holder: holder.quota,
        By.NAMESPACE: lambda holder: holder.namespace,
        By.USER: lambda holder: holder.user,
        By.OWNER: lambda holder: holder.owner or f"{holder.namespace}/{holder.pod}",
        By.MODEL: lambda holder: holder.model,
        By.NODE: lambda holder: holder.node,
        By.BAND: lambda holder: holder.band,
    }
)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What was held under one name: thousandths of GPUs times milliseconds, and by how many pods.

    None: nobody has counted them.
    """

    name: str
    held: int
    pods: int | None
    amounts: tuple[tuple[str, int], ...] = ()
    """Other resources, each times milliseconds."""


@dataclass(frozen=True, slots=True)
class UsageTable:
    """The rows with the most first. ``uncertain`` milliseconds of ends are not known exactly."""

    by: By
    window: Window
    rows: tuple[UsageRow, ...]
    total: UsageRow
    uncertain: int = 0
    estimated: int = 0
    """Of what is held, as far as the number of GPUs is an estimate."""
    skewed: int = 0
    """Pods that ended before they began, by clocks that differ."""


def tabulate(segments: Iterable[Segment], by: By, window: Window) -> UsageTable:
    """Return what was held in a window."""
    held: Counter[str] = Counter()
    pods: dict[str, set[str]] = {}
    amounts: dict[str, Counter[str]] = {}
    estimated = uncertain = 0
    skewed: set[str] = set()
    row_of = ROW_OF[by]
    for segment in segments:
        if Flag.CLOCK_SKEW in segment.flags and window.start <= segment.start < window.end:
            skewed.add(segment.uid)
        part = window.clip(segment)
        if part is None:
            continue
        name = row_of(part.holder)
        held[name] += part.held
        pods.setdefault(name, set()).add(part.uid)
        counts = amounts.setdefault(name, Counter())
        for resource, amount in part.amounts:
            counts[resource] += amount * part.milliseconds
        if Flag.ESTIMATED in part.flags:
            estimated += part.held
        uncertain += part.uncertain
    rows = [
        UsageRow(name, held[name], len(uids), tuple(sorted(amounts[name].items())))
        for name, uids in pods.items()
    ]
    rows.sort(key=lambda row: (-row.held, row.name))
    return UsageTable(by, window, tuple(rows), _sum(rows, pods), uncertain, estimated, len(skewed))


def _sum(rows: Iterable[UsageRow], pods: Mapping[str, set[str]]) -> UsageRow:
    rows = tuple(rows)
    amounts: Counter[str] = Counter()
    for row in rows:
        amounts.update(dict(row.amounts))
    return UsageRow(
        "",
        sum(row.held for row in rows),
        len(set[str]().union(*pods.values())),
        tuple(sorted(amounts.items())),
    )


def format_hours(held: int) -> str:
    """Return thousandths of GPUs times milliseconds as hours of a GPU: ``0.250``.

    Rounded half to even.
    """
    unit = 10**HOUR_DIGITS
    number, left = divmod(abs(held) * unit, MILLI_GPU_MS_PER_HOUR)
    number += 2 * left > MILLI_GPU_MS_PER_HOUR or (
        2 * left == MILLI_GPU_MS_PER_HOUR and number % 2 == 1
    )
    sign = "-" if held < 0 and number else ""
    return f"{sign}{number // unit:d}.{number % unit:0{HOUR_DIGITS}d}"
