"""Keeps the last records of the present term, within a number and an amount of memory.

One thread appends, others read. If there is no room the oldest records go, and who would have read
them gets a gap in their place that says how many; nobody who decides waits for a reader.
"""

from collections import deque
from itertools import islice
from threading import Lock

from koord.core.audit.records import Attempt, AuditRecord, ClosedAttempt, RecordGap, RecordKind
from koord.core.model.reasons import Reason

MOST_LIVE = 1 << 16
"""Units whose last refusal is remembered; of more the oldest are forgotten."""


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
        self._records: deque[AuditRecord] = deque()
        self._bytes = 0
        self._dropped_at = 0
        self._live: dict[str, AuditRecord] = {}
        """Trace of a unit -> its last record, while that is a refusal."""
        self._lock = Lock()

    def begin(self, term: int) -> None:
        """Begin a term: what was recorded before is not kept."""
        with self._lock:
            self._records.clear()
            self._live.clear()
            self.term, self.last, self._bytes = term, 0, 0

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
        if record.unit is not None:
            record.closed = self._close(record.unit.trace)
            if record.kind is RecordKind.ATTEMPT:
                self._live[record.unit.trace] = record
                if len(self._live) > MOST_LIVE:
                    del self._live[next(iter(self._live))]
        with self._lock:
            self.last += 1
            self.made += 1
            record.term, record.seq = self.term or 0, self.last
            self._records.append(record)
            self._bytes += record.size
            while len(self._records) > self._most or (
                self._bytes > self._most_bytes and len(self._records) > 1
            ):
                oldest = self._records.popleft()
                self._bytes -= oldest.size
                self._dropped_at = oldest.at
                self.dropped += 1

    def read(self, after: int, limit: int) -> list[AuditRecord]:
        """Return up to ``limit`` records with numbers above ``after``; a gap counts as one."""
        with self._lock:
            if not self._records or limit < 1 or after >= self.last:
                return []
            first, term = self._records[0].seq, self.term or 0
            records: list[AuditRecord] = []
            if after < first - 1:
                gap = RecordGap(after + 1, first - 1, first - 1 - after)
                at = self._dropped_at
                records.append(AuditRecord(RecordKind.GAP, None, gap, at, term=term, seq=first - 1))
            start = max(0, after + 1 - first)
            records += islice(self._records, start, start + limit - len(records))
            return records

    def _close(self, trace: str) -> ClosedAttempt | None:
        record = self._live.pop(trace, None)
        attempt = None if record is None else record.body
        if record is None or not isinstance(attempt, Attempt) or not attempt.repeats:
            return None
        return ClosedAttempt(record.seq, attempt.repeats, attempt.last_at, attempt.position)
