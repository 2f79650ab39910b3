"""Which period a command of usage is about: up to now, in a time zone. Exits if there is none."""

from datetime import datetime

from koord.cli.common import ExitCode, fail
from koord.core.usage.periods import Period, PeriodError, find_period, find_zone
from koord.core.usage.segments import MS_PER_SECOND, Window


def choose_period(text: str, zone_name: str, now: float) -> Period:
    """Return a month or a day by its name, or this month; ``now`` is in seconds."""
    try:
        zone = find_zone(zone_name)
        period = find_period(text or f"{datetime.fromtimestamp(now, zone):%Y-%m}", zone)
    except PeriodError as error:
        fail(str(error), ExitCode.USAGE)
    window = period.window
    end = max(window.start, min(window.end, int(now * MS_PER_SECOND)))
    return Period(period.name, Window(window.start, end))


def format_span(ms: int) -> str:
    """Return milliseconds as people read them, rounded up to seconds."""
    minutes, seconds = divmod(-(-ms // MS_PER_SECOND), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min {seconds:02d} s"
