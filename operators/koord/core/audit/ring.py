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
MOST_SKETCHED: Final = 1024
"""Records that nobody has read and that keep the pods of their units; of more the oldest do not."""
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
        self._sketched: deque[AuditRecord] = deque()
        """Records whose units nobody has asked for, the oldest first."""
        self._lock = Lock()

    def begin(self, term: int) -> None:
        """Begin a term: what was recorded before is not kept."""
        with self._lock:
            self._records.clear()
            self._numbers.clear()
            self._bytes.clear()
            self._live.clear()
            self._sketched.clear()
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
        namespace, size, about = "", estimate_size(record.body), record.sketch or record.unit
        record.size = size
        if about is not None:
            namespace = about.namespace
            if self._live:
                record.closed = self._close(about.trace)
            if record.kind is RecordKind.ATTEMPT:
                self._live[about.trace] = record
                if len(self._live) > MOST_LIVE:
                    del self._live[next(iter(self._live))]
        if record.sketch is not None:
            self._sketched.append(record)
            if len(self._sketched) > MOST_SKETCHED:
                self._sketched.popleft().finish()
        with self._lock:
            number = self.last = self.last + 1
            self.made += 1
            record.term, record.seq = self.term or 0, number
            self._records[number] = record
            numbers = self._numbers.get(namespace)
            if numbers is None:
                numbers = self._numbers[namespace] = deque()
            numbers.append(number)
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
            record.finish()
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
            about = record.sketch or record.unit
            if about is not None and self._live.get(about.trace) is record:
                del self._live[about.trace]
            record.forget()
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
