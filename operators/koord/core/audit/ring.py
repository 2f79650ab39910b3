"""Keeps the last records of the present term, within a number and an amount of memory.

One thread appends, others read. If there is no room, the namespace that has the most records loses
its oldest ones: whoever makes and deletes objects all day pushes out no history but its own. Who
would have read them gets a gap in their place that says how many; nobody who decides waits for a
reader.
"""

from bisect import bisect_right
from collections import deque
from threading import Lock
from typing import Final

from koord.core.audit.records import (
    Attempt,
    AuditRecord,
    ClosedAttempt,
    RecordGap,
    RecordKind,
    estimate_size,
)
from koord.core.model.reasons import Reason

MOST_LIVE: Final = 1 << 16
"""Units whose last refusal is remembered; of more the oldest are forgotten."""
DROPPED_AT_ONCE: Final = 64
"""So that looking for the namespace that has the most costs little."""


class Ring:
    """Records of one term, numbered from 1 without holes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.term: int | None = None
        """The term that is being recorded; None before the first."""
        self.last = 0
        """The number of the last record of the term."""
        self.made = 0
        """How many records were made, in all terms."""
        self.dropped = 0
        """How many records had no room, in all terms."""
        self._most, self._most_bytes = most, most_bytes
        self._records: dict[int, AuditRecord] = {}
        """By number, in order."""
        self._numbers: dict[str, deque[int]] = {}
        """Namespace -> the numbers of its records, in order."""
        self._bytes: dict[str, int] = {}
        """Namespace -> about how many bytes its records take."""
        self._all_bytes = 0
        self._live: dict[str, AuditRecord] = {}
        """Trace of a unit -> its last record, while that is a refusal."""
        self._lock = Lock()

    def begin(self, term: int) -> None:
        """Begin a term: what was recorded before is not kept."""
        with self._lock:
            self._records.clear()
            self._numbers.clear()
            self._bytes.clear()
            self._live.clear()
            self.term, self.last, self._all_bytes = term, 0, 0

    def repeat(self, trace: str, reason: Reason, at: int, position: int | None) -> bool:
        """Count a refusal to the last record of a unit, if that is an equal one; else False."""
        record = self._live.get(trace)
        attempt = None if record is None else record.body
        if not isinstance(attempt, Attempt) or not attempt.is_repeated_by(reason):
            return False
        attempt.repeats += 1
        attempt.last_at, attempt.position = at, position
        return True

    def append(self, record: AuditRecord) -> None:
        """Keep a record, with the next number."""
        namespace, size = "", estimate_size(record.body)
        record.size = size
        if record.unit is not None:
            namespace = record.unit.namespace
            if self._live:
                record.closed = self._close(record.unit.trace)
            if record.kind is RecordKind.ATTEMPT:
                self._live[record.unit.trace] = record
                if len(self._live) > MOST_LIVE:
                    del self._live[next(iter(self._live))]
        with self._lock:
            self.last += 1
            self.made += 1
            record.term, record.seq = self.term or 0, self.last
            self._records[self.last] = record
            numbers = self._numbers.get(namespace)
            if numbers is None:
                numbers = self._numbers[namespace] = deque()
            numbers.append(self.last)
            self._bytes[namespace] = self._bytes.get(namespace, 0) + size
            self._all_bytes += size
            while self._all_bytes > self._most_bytes or len(self._records) > self._most:
                if len(self._records) <= 1:
                    break
                self._drop_some()

    def read(self, after: int, limit: int) -> list[AuditRecord]:
        """Return up to ``limit`` records with numbers above ``after``; a gap counts as one."""
        if after >= self.last or limit < 1:
            return []
        with self._lock:
            numbers, kept = list(self._records), list(self._records.values())
            term, last = self.term or 0, self.last
        records: list[AuditRecord] = []
        for record in kept[bisect_right(numbers, after) :]:
            if record.seq > after + 1:
                records.append(_make_gap(term, after + 1, record.seq - 1, record.at))
            records.append(record)
            after = record.seq
            if len(records) >= limit:
                return records[:limit]
        if after < last:
            records.append(_make_gap(term, after + 1, last, records[-1].at if records else 0))
        return records

    def _drop_some(self) -> None:
        """Drop the oldest records of the namespace that takes the most, as many as are needed."""
        greediest = max(self._bytes, key=self._bytes.__getitem__)
        numbers = self._numbers[greediest]
        most = max(1, min(DROPPED_AT_ONCE, self._most // 8, len(numbers) - 1))
        for _ in range(most):
            record = self._records.pop(numbers.popleft())
            self._bytes[greediest] -= record.size
            self._all_bytes -= record.size
            self.dropped += 1
            if record.unit is not None and self._live.get(record.unit.trace) is record:
                del self._live[record.unit.trace]
        if not numbers:
            del self._numbers[greediest], self._bytes[greediest]

    def _close(self, trace: str) -> ClosedAttempt | None:
        record = self._live.pop(trace, None)
        attempt = None if record is None else record.body
        if record is None or not isinstance(attempt, Attempt) or not attempt.repeats:
            return None
        return ClosedAttempt(record.seq, attempt.repeats, attempt.last_at, attempt.position)


def _make_gap(term: int, begin: int, end: int, at: int) -> AuditRecord:
    gap = RecordGap(begin, end, end - begin + 1)
    return AuditRecord(RecordKind.GAP, None, gap, at, term=term, seq=end)
