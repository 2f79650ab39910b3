"""Counts what is held while a process watches: counters that only grow.

A row is counted by its sum, so that time costs nothing: what a thousand pods of a row hold in an
hour is one multiplication. Rows stay once they are there, and there are few, whoever makes names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_ROWS: Final = 2_000
"""Of different names; what comes later is counted under no name."""


class UsageLabels(NamedTuple):
    """By what counters are told apart."""

    quota: str
    namespace: str
    model: str


NOBODY: Final = UsageLabels("", "", "")
"""The row of those for which there was no row left."""


@dataclass(slots=True)
class _CountedRow:
    """What is held now, in thousandths of GPUs, and what was until ``until`` (milliseconds)."""

    held: int
    milli_gpus: int
    until: int

    def count(self, now: int) -> None:
        if now > self.until:
            self.held += self.milli_gpus * (now - self.until)
            self.until = now


class UsageCounters:
    """Thousandths of GPUs times milliseconds, by row. Times are milliseconds since the epoch."""

    def __init__(self) -> None:
        self._rows: dict[UsageLabels, _CountedRow] = {}
        self._pods: dict[str, tuple[UsageLabels, int]] = {}

    def hold(self, uid: str, labels: UsageLabels, milli_gpus: int, now: int) -> None:
        """Count what a pod holds from now on, instead of what it held before."""
        if self._pods.get(uid) == (labels, milli_gpus):
            return
        self.release(uid, now)
        self._pods[uid] = (labels, milli_gpus)
        self._add(labels, milli_gpus, now)

    def release(self, uid: str, now: int) -> None:
        """Count a pod no longer; without effect if it is not counted."""
        labels, milli_gpus = self._pods.pop(uid, (NOBODY, 0))
        if milli_gpus:
            self._add(labels, -milli_gpus, now)

    def collect(self, now: int) -> Iterator[tuple[UsageLabels, int]]:
        """Yield each row, and what was held in it since this process began to count."""
        for labels, row in self._rows.items():
            row.count(now)
            yield labels, row.held

    def _add(self, labels: UsageLabels, milli_gpus: int, now: int) -> None:
        if labels not in self._rows and len(self._rows) >= MOST_ROWS:
            labels = NOBODY
        row = self._rows.setdefault(labels, _CountedRow(0, 0, now))
        row.count(now)
        row.milli_gpus += milli_gpus
