"""Answers about usage over time: the value that ``koord usage report -o json`` prints.

From the store where something is kept, else from the pods that exist.
"""

import logging
from collections.abc import Callable
from typing import Final

from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.hidden_amounts import hide_in_usage
from koord.answers.usage import find_parents
from koord.answers.usage_report import make_report
from koord.answers.usage_sight import hide_others
from koord.core.usage.book import UsageBook
from koord.core.usage.periods import PeriodError, choose_period
from koord.core.usage.segments import Window
from koord.see.paging import InvalidQuery
from koord.see.route import Ask, NothingThere, WithGaps
from koord.see.snapshots import Gaps, Snapshot
from koord.store.errors import StoreError

USAGE_PARAMS: Final = {
    "month": "A month such as 2026-11, last, or a day such as 2026-11-25; this month by default.",
    "quota": "Only this quota and those below it.",
    "tz": "Time zone of months and days, such as Europe/Berlin; UTC by default.",
}
MOST_NAME: Final = 253
_NOT_KEPT: Final = AnswerGap(
    "usage over time",
    GapCause.NOT_STORED,
    "what deleted pods held, and what quotas were guaranteed and owed",
)
log = logging.getLogger(__name__)


def report_usage(snapshot: Snapshot, ask: Ask) -> WithGaps:
    return begin_usage_report(snapshot, ask)()


def begin_usage_report(snapshot: Snapshot, ask: Ask) -> Callable[[], WithGaps]:
    params, sight, source = ask.params, snapshot.reading.sight, snapshot.on_demand
    quota = params.get("quota", "")
    if max(map(len, params.values()), default=0) > MOST_NAME:
        raise InvalidQuery(f"at most {MOST_NAME} characters")
    try:
        period = choose_period(params.get("month", ""), params.get("tz", "UTC"), snapshot.at)
    except PeriodError as error:
        raise InvalidQuery(str(error)) from None
    if quota and not sight.sees_quota(quota):
        raise NothingThere(f"there is no ElasticQuota {quota}, or you may not see it")
    kept = None if source is None else source.read_usage
    existing = _Existing(snapshot, period.window) if kept is None else None

    def report() -> WithGaps:
        book = UsageBook(period.window)
        gaps: Gaps = (_NOT_KEPT,)
        if existing is not None:
            book = existing.book()
        elif kept is not None:
            try:
                book, gaps = kept(period.window), ()
            except StoreError as error:
                log.warning("The store cannot be read", extra={"problem": str(error)})
        seen = hide_in_usage(hide_others(book, sight), sight)
        return WithGaps(encode(make_report(seen, quota)), gaps)

    return report


class _Existing:
    """What is known of the pods that exist: taken from the state at once, summed up later."""

    def __init__(self, snapshot: Snapshot, window: Window) -> None:
        self._segments = snapshot.held
        self._above = find_parents(snapshot.reading.state)
        self._window = window

    def book(self) -> UsageBook:
        book = UsageBook(self._window, above=self._above)
        book.add_segments(self._segments)
        return book
