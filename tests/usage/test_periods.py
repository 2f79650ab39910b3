"""Periods of time zones: days of 25 hours, months of the calendar."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.usage.instants import CARD

from koord.core.usage.periods import (
    PeriodError,
    Step,
    choose_period,
    find_period,
    find_zone,
    split,
)
from koord.core.usage.segments import Holder, Window, make_segment
from koord.core.usage.tables import By, format_hours, tabulate

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from([UTC, BERLIN, ZoneInfo("Asia/Kolkata"), ZoneInfo("Australia/Lord_Howe")])
HOUR = 3_600_000


def test_the_day_on_which_clocks_go_back_has_25_hours() -> None:
    day = find_period("2026-10-25", BERLIN)
    card = make_segment("u", Holder("a", "p"), 0, day.window.end * 2, CARD)
    assert format_hours(tabulate([card], By.NAMESPACE, day.window).total.held) == "25.000"
    utc = find_period("2026-10-25")
    assert format_hours(tabulate([card], By.NAMESPACE, utc.window).total.held) == "24.000"
    hours = list(split(day.window, Step.HOUR, BERLIN))
    assert len(hours) == 25
    assert len({hour.name for hour in hours}) == 25
    assert all(hour.window.milliseconds == HOUR for hour in hours)


@pytest.mark.parametrize(
    ("text", "days"), [("2026-02", 28), ("2028-02", 29), ("2026-12", 31), ("2026-11-25", 1)]
)
def test_months_and_days_of_the_calendar(text: str, days: int) -> None:
    period = find_period(text)
    assert period.window.milliseconds == days * 24 * HOUR
    assert len(list(split(period.window, Step.DAY))) == days


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-02-30", "november", "2026-11-25-01"])
def test_what_is_no_period_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PeriodError, match="2026-11"):
        find_period(text)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "", "Europe/Berlin\0"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(PeriodError, match="no time zone"):
        find_zone(name)


def test_too_many_periods_are_refused() -> None:
    year = Window(0, 2 * 366 * 24 * HOUR)
    with pytest.raises(PeriodError, match="choose longer ones"):
        list(split(year, Step.HOUR))


@given(st.integers(0, 2 * 10**9), st.integers(0, 40 * 24 * 3_600), st.sampled_from(Step), ZONES)
def test_periods_follow_each_other_without_a_gap(
    start: int, seconds: int, step: Step, zone: ZoneInfo
) -> None:
    window = Window(start * 1_000, (start + seconds) * 1_000)
    periods = list(split(window, step, zone))
    ends = [window.start, *(period.window.end for period in periods)]
    assert [period.window.start for period in periods] == ends[:-1]
    assert ends[-1] == window.end
    assert all(period.window.milliseconds > 0 for period in periods)
    for period in periods[1:]:
        first = datetime.fromtimestamp(period.window.start / 1_000, zone)
        assert step is Step.HOUR or (first.hour, first.minute) == (0, 0)


def test_last_is_the_month_before_in_its_zone() -> None:
    new_year = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).timestamp()
    assert choose_period("last", "UTC", new_year).name == "2026-11"
    assert choose_period("last", "Europe/Berlin", new_year).name == "2026-12"
    with pytest.raises(PeriodError, match="nor last"):
        choose_period("9999-12", "UTC", new_year)
