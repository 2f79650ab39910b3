"""Counts what is held while a process watches: counters that only grow.

A row is counted by its sum, so that time costs nothing: what a thousand pods of a row hold in an
hour is one multiplication. Rows stay once they are there, and there are few, whoever makes names.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

MOST_ROWS: Final = 2_000
"""Of different names; what comes later is counted under no name."""


class UsageKind(StrEnum):
    """What is counted of GPUs."""

    HELD = "held"
    RESERVED = "reserved"
    """Held by a reservation, and used by no pod."""
    BORROWED = "borrowed"
    """Used by a quota and those below it, beyond what it is guaranteed."""
    OWED = "owed"
    """Guaranteed to a quota, asked for, and not used."""
    IDLE = "idle"
    """Guaranteed to a quota, and neither used nor asked for."""
    LENT = "lent"
    """What others use of that."""
    WAITING = "waiting"
    """Asked for by pods that wait for a quota, for room, for their turn or for others to end."""
    LOST = "lost"
    """Held by pods that were evicted, since they last saved their work."""


class UsageLabels(NamedTuple):
    """By what counters of GPUs are told apart."""

    quota: str
    namespace: str
    model: str
    kind: str = UsageKind.HELD


class ResourceLabels(NamedTuple):
    """By what counters of other resources are told apart."""

    quota: str
    namespace: str
    resource: str


NOBODY: Final = UsageLabels("", "", "")
"""The row of those for which there was no row left; there is one of each kind."""

Labels = TypeVar("Labels", UsageLabels, ResourceLabels)
Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _CountedRow:
    """What is held now, and what was until ``until`` (milliseconds)."""

    held: int
    amount: int
    until: int

    def count(self, now: int) -> None:
        if now > self.until:
            self.held += self.amount * (now - self.until)
            self.until = now


class UsageCounters(Generic[Labels]):
    """Amounts times milliseconds, by row. Times are milliseconds since the epoch."""

    def __init__(self) -> None:
        self._rows: dict[Labels, _CountedRow] = {}
        self._holders: dict[str, Mapping[Labels, int]] = {}

    def hold(self, uid: str, labels: Labels, amount: int, now: int) -> None:
        """Count what a holder has from now on, instead of what it had before."""
        self.hold_all(uid, {labels: amount}, now)

    def hold_all(self, uid: str, amounts: Mapping[Labels, int], now: int) -> None:
        """Count several amounts of one holder from now on, instead of those of before."""
        before = self._holders.get(uid, {})
        if before == amounts:
            return
        for labels, amount in before.items():
            self._add(labels, -amount, now)
        self._holders[uid] = amounts
        for labels, amount in amounts.items():
            self._add(labels, amount, now)

    def release(self, uid: str, now: int) -> None:
        """Count a holder no longer; without effect if it is not counted."""
        for labels, amount in self._holders.pop(uid, {}).items():
            self._add(labels, -amount, now)

    def add(self, labels: Labels, held: int, now: int) -> None:
        """Count an amount times milliseconds that is known as a whole."""
        self._row_of(labels, now).held += max(0, held)

    def collect(self, now: int) -> Iterator[tuple[Labels, int]]:
        """Yield each row, and what was held in it since this process began to count."""
        for labels, row in self._rows.items():
            row.count(now)
            yield labels, row.held

    def sum_now(self, key_of: Callable[[Labels], Key]) -> Mapping[Key, int]:
        """Return what is held now, summed up by what a row has in common."""
        sums: Counter[Key] = Counter()
        for labels, row in self._rows.items():
            sums[key_of(labels)] += row.amount
        return sums

    def _add(self, labels: Labels, amount: int, now: int) -> None:
        if amount:
            row = self._row_of(labels, now)
            row.count(now)
            row.amount += amount

    def _row_of(self, labels: Labels, now: int) -> _CountedRow:
        if labels not in self._rows and len(self._rows) >= MOST_ROWS:
            # The name that is told apart by code, not by people, stays.
            labels = labels._replace(**dict.fromkeys(labels._fields[:-1], ""))
        return self._rows.setdefault(labels, _CountedRow(0, 0, now))
