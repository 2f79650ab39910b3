"""Hours, days and months of a time zone, as spans of milliseconds.

A day of a zone can have 23 or 25 hours; a month is what its calendar says. What is held is added up
over the milliseconds of a period, so that neither matters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from koord.core.usage.segments import MS_PER_SECOND, Window

MOST_PERIODS: Final = 10_000
"""More than a year of hours."""
LAST: Final = "last"
"""The month before this one."""
_MONTH_PARTS: Final = 2


class PeriodError(ValueError):
    """No period, or no time zone; says what was given and what would be right."""


class Step(StrEnum):
    """How long the periods are into which time is split."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Period:
    """A window with the name that people give it in their time zone."""

    name: str
    window: Window


def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name, such as ``Europe/Berlin``."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise PeriodError(f"{name!r} is no time zone; for example: UTC, Europe/Berlin") from error


def find_period(text: str, zone: tzinfo = UTC) -> Period:
    """Return the month ``2026-11`` or the day ``2026-11-25`` of a time zone."""
    parts = text.split("-")
    is_day = len(parts) > _MONTH_PARTS
    try:
        first = date.fromisoformat(text if is_day else f"{text}-01")
        after = first + timedelta(days=1) if is_day else _month_after(first)
        return Period(text, Window(_ms_of(first, zone), _ms_of(after, zone)))
    except (ValueError, OverflowError) as error:  # beyond the calendar, too
        raise PeriodError(
            f"{text!r} is neither a month such as 2026-11, nor last, nor a day such as 2026-11-25"
        ) from error


def month_at(ms: int, zone: tzinfo = UTC) -> Period:
    """Return the month in which an instant is."""
    first = datetime.fromtimestamp(ms / MS_PER_SECOND, zone).date().replace(day=1)
    return find_period(f"{first:%Y-%m}", zone)


def choose_period(text: str, zone_name: str, now: float) -> Period:
    """Return a month or a day by its name, or this month; of one that goes on, up to now.

    ``last`` is the month before. ``now`` is in seconds since the epoch. Raises ``PeriodError``.
    """
    zone = find_zone(zone_name)
    today = datetime.fromtimestamp(now, zone).date()
    month = today.replace(day=1) - timedelta(days=1) if text == LAST else today
    period = find_period(f"{month:%Y-%m}" if text in {"", LAST} else text, zone)
    window = period.window
    end = max(window.start, min(window.end, int(now * MS_PER_SECOND)))
    return Period(period.name, Window(window.start, end))


def split(window: Window, step: Step, zone: tzinfo = UTC) -> Iterator[Period]:
    """Yield the periods that a window is in, the first and the last cut to it."""
    start = window.start
    for _ in range(MOST_PERIODS):
        if start >= window.end:
            return
        name, end = _period_at(start, step, zone)
        yield Period(name, Window(start, min(end, window.end)))
        start = end
    raise PeriodError(f"that is more than {MOST_PERIODS} periods; choose longer ones")


def _period_at(ms: int, step: Step, zone: tzinfo) -> tuple[str, int]:
    """Return the name of the period in which an instant is, and when it ends."""
    at = datetime.fromtimestamp(ms / MS_PER_SECOND, zone)
    if step is Step.HOUR:
        # By seconds since the epoch: an hour that the clocks repeat is two hours.
        offset = int((at.utcoffset() or timedelta()).total_seconds() * MS_PER_SECOND) % _HOUR
        return f"{at:%Y-%m-%d %H:00%z}", (ms + offset) // _HOUR * _HOUR + _HOUR - offset
    if step is Step.DAY:
        return f"{at:%Y-%m-%d}", _ms_of(at.date() + timedelta(days=1), zone)
    return f"{at:%Y-%m}", _ms_of(_month_after(at.date().replace(day=1)), zone)


_HOUR: Final = 3_600 * MS_PER_SECOND


def _month_after(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def _ms_of(day: date, zone: tzinfo) -> int:
    """Return when a day begins in a time zone."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    return int(midnight.timestamp()) * MS_PER_SECOND
