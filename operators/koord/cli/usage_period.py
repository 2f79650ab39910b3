"""Which period a command of usage is about: up to now, in a time zone. Exits if there is none."""

from koord.cli.common import ExitCode, fail
from koord.core.usage import periods
from koord.core.usage.periods import Period, PeriodError
from koord.core.usage.segments import MS_PER_SECOND


def choose_period(text: str, zone_name: str, now: float) -> Period:
    """Return a month or a day by its name, or this month; ``now`` is in seconds."""
    try:
        return periods.choose_period(text, zone_name, now)
    except PeriodError as error:
        fail(str(error), ExitCode.USAGE)


def format_span(ms: int) -> str:
    """Return milliseconds as people read them, rounded up to seconds."""
    minutes, seconds = divmod(-(-ms // MS_PER_SECOND), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min {seconds:02d} s"
