"""How many GPU hours quotas have used of this month, for their budgets. Months are those of UTC.

What goes on is counted from the objects that exist; of what has ended, a record is kept of each
quota that has a budget. So after a restart the same is known, but for pods that ended and were
deleted since the last record. Knows neither where records are kept nor who may start.
"""

from dataclasses import dataclass
from typing import Final

from koord.core.usage.periods import month_at
from koord.core.usage.segments import Window

RECORD_MS: Final = 60_000
"""How often a record is made anew."""


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """What is kept of a quota over a restart. Times are milliseconds since the epoch.

    ``used`` thousandths of GPUs times milliseconds of the month that begins at ``month`` were
    counted ``until`` then.
    """

    month: int
    used: int
    until: int


@dataclass(slots=True)
class _QuotaLine:
    """What a quota has used of ``month`` until ``until``, and holds since.

    Until ``counted`` somebody has counted before.
    """

    month: Window
    used: int
    until: int
    counted: int
    amount: int = 0

    def count(self, now: int) -> None:
        if now >= self.month.end:
            self.month = month_at(now).window
            self.used, self.until, self.counted = 0, self.month.start, self.month.start
        if now > self.until:
            self.used += self.amount * (now - self.until)
            self.until = now

    def used_at(self, now: int) -> int:
        if now >= self.month.end:
            return self.amount * (now - month_at(now).window.start)
        return self.used + self.amount * max(0, now - self.until)


@dataclass(frozen=True, slots=True)
class _HeldPart:
    """What a pod holds, of which quota, and since when that is counted."""

    quota: str
    milli_gpus: int
    start: int


class MonthlyUse:
    """What all quotas have used of this month. Times are milliseconds since the epoch."""

    def __init__(self) -> None:
        self._lines: dict[str, _QuotaLine] = {}
        self._held: dict[str, _HeldPart] = {}
        self._ended: set[str] = set()
        """Pods that have ended, still exist, and are counted."""

    def knows(self, quota: str) -> bool:
        """Whether anything of a quota is counted, so that it is too late to restore a record."""
        return quota in self._lines

    def restore(self, quota: str, record: BudgetRecord | None, now: int) -> None:
        """Begin to count a quota where an earlier process has stopped."""
        month = month_at(now).window
        start = month.start
        if record is None or record.month != start:
            self._lines[quota] = _QuotaLine(month, 0, start, start)
            return
        until = min(max(record.until, start), now)
        self._lines[quota] = _QuotaLine(month, max(0, record.used), until, until)

    def hold(self, uid: str, quota: str, milli_gpus: int, start: int, now: int) -> None:
        """Count what a pod holds from now on; of one that is new, also since it has begun."""
        before = self._held.get(uid)
        if before is not None and (before.quota, before.milli_gpus) == (quota, milli_gpus):
            return
        line = self._line_of(quota, now)
        if before is None:
            begin = min(max(start, line.counted), now)
            line.used += milli_gpus * (now - begin)
        else:
            begin = now
            self._stop(before, now)
        line.amount += milli_gpus
        self._held[uid] = _HeldPart(quota, milli_gpus, begin)

    def end(self, uid: str, at: int, now: int) -> None:
        """Count a pod no longer that has ended at a time; without effect if it is not counted."""
        part = self._held.pop(uid, None)
        if part is not None:
            self._stop(part, now)
            line = self._lines[part.quota]
            # It is said late: what was counted since is taken back, within this month.
            line.used -= part.milli_gpus * (now - min(max(at, part.start, line.month.start), now))

    def note_ended(
        self, uid: str, quota: str, milli_gpus: int, span: tuple[int, int], now: int
    ) -> None:
        """Count a pod that has ended, once, whether it was counted before or not."""
        if uid in self._ended:
            return
        self._ended.add(uid)
        start, end = span
        if uid not in self._held:
            self.hold(uid, quota, milli_gpus, start, now)
        self.end(uid, end, now)

    def forget(self, uid: str, now: int) -> None:
        """Count a pod no longer that is gone."""
        self._ended.discard(uid)
        self.end(uid, now, now)

    def used(self, quota: str, now: int) -> int:
        """Return thousandths of GPUs times milliseconds."""
        line = self._lines.get(quota)
        return 0 if line is None else line.used_at(now)

    def record(self, quota: str, now: int) -> BudgetRecord:
        """Return what is to be kept of a quota."""
        line = self._line_of(quota, now)
        return BudgetRecord(line.month.start, line.used, line.until)

    def _line_of(self, quota: str, now: int) -> _QuotaLine:
        if quota not in self._lines:
            self.restore(quota, None, now)
        line = self._lines[quota]
        line.count(now)
        return line

    def _stop(self, part: _HeldPart, now: int) -> None:
        line = self._lines[part.quota]
        line.count(now)
        line.amount -= part.milli_gpus
