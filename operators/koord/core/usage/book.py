"""Sums of what was held, by hour or day: what is left of segments when they are booked.

A segment is booked piece by piece, each piece once. Sums of a period are those of its hours, so
they can be cut at full hours and joined without changing anything. Knows nothing of where they are
kept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from koord.core.usage.cluster_time import GpuState
from koord.core.usage.lost import LostWork, loss_of
from koord.core.usage.quota_time import QuotaTime
from koord.core.usage.segments import Flag, Holder, Segment, Window
from koord.core.usage.tables import ROW_OF, By, UsageRow, UsageTable

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


_MOST_DEPTH: Final = 64


def path_of(name: str, above: Mapping[str, str]) -> tuple[str, ...]:
    """Return the quotas above a quota, the topmost first, and itself."""
    path = [name]
    while len(path) < _MOST_DEPTH and (parent := above.get(path[-1], "")):
        if parent in path or parent not in above:
            break
        path.append(parent)
    return tuple(reversed(path))


class BookKey(NamedTuple):
    """Whose sum it is."""

    quota: str
    namespace: str
    user: str
    model: str
    band: str


class OwnerKey(NamedTuple):
    """A job, and the quota for which it counts."""

    quota: str
    owner: str
    model: str


def key_of(holder: Holder) -> BookKey:
    return BookKey(holder.quota, holder.namespace, holder.user, holder.model, holder.band)


def owner_of(holder: Holder) -> OwnerKey:
    return OwnerKey(holder.quota, ROW_OF[By.OWNER](holder), holder.model)


@dataclass(slots=True)
class BookSum:
    """Thousandths of GPUs times milliseconds, ``estimated`` of them, and other resources."""

    held: int = 0
    estimated: int = 0
    amounts: Counter[str] = field(default_factory=Counter)

    def add(self, other: "BookSum") -> None:
        self.held += other.held
        self.estimated += other.estimated
        for key, amount in other.amounts.items():
            self.amounts[key] += amount


def book_part(segment: Segment, window: Window, sign: int = 1) -> BookSum:
    """Return the sum of the part of a segment that is in a window; negative to take it back."""
    part = window.clip(segment)
    if part is None:
        return BookSum()
    estimated = part.held if Flag.ESTIMATED in part.flags else 0
    amounts = Counter({key: sign * part.held_of(key) for key, _ in part.amounts})
    return BookSum(sign * part.held, sign * estimated, amounts)


def split_hours(window: Window) -> Iterator[Window]:
    """Yield the hours that a window is in, the first and the last cut to it."""
    start = window.start
    while start < window.end:
        end = min((start // HOUR_MS + 1) * HOUR_MS, window.end)
        yield Window(start, end)
        start = end


class LossKey(NamedTuple):
    """Who lost work, and why. ``by`` is whom it was for; empty: nobody."""

    quota: str
    namespace: str
    owner: str
    cause: str
    basis: str
    by: str


@dataclass(slots=True)
class UsageBook:
    """What is known of a period.

    ``quotas`` are those of which levels were seen, each with those below it; ``above`` says which
    quota is above which. ``cluster`` is by model. ``unseen`` milliseconds nobody watched: None if
    nobody writes down who watches. ``uncertain`` are those by which ends of pods may differ.
    ``adjusted`` was held before and is told now, since what was closed stays as it is.
    """

    window: Window
    sums: dict[BookKey, BookSum] = field(default_factory=dict)
    owners: Counter[OwnerKey] = field(default_factory=Counter)
    quotas: dict[str, QuotaTime] = field(default_factory=dict)
    cluster: dict[str, Counter[GpuState]] = field(default_factory=dict)
    losses: Counter[LossKey] = field(default_factory=Counter)
    above: dict[str, str] = field(default_factory=dict)
    unseen: int | None = None
    uncertain: int = 0
    adjusted: Counter[str] = field(default_factory=Counter)
    """By quota."""
    skewed: int = 0

    def add(self, key: BookKey, more: BookSum) -> None:
        self.sums.setdefault(key, BookSum()).add(more)

    def cluster_of(self, model: str) -> Counter[GpuState]:
        return self.cluster.setdefault(model, Counter())

    def add_segments(self, segments: Iterable[Segment]) -> None:
        """Add the parts of segments that are in the period."""
        for segment in segments:
            if segment.end <= self.window.start or segment.start >= self.window.end:
                continue
            part = book_part(segment, self.window)
            self.add(key_of(segment.holder), part)
            self.owners[owner_of(segment.holder)] += part.held
            if segment.end <= self.window.end:
                self.uncertain += segment.uncertain
                self.add_loss(segment)
            self.skewed += Flag.CLOCK_SKEW in segment.flags

    def only_in(self, namespace: str) -> "UsageBook":
        """Return the part of one namespace; of jobs by their name, which begins with it."""
        return replace(
            self,
            sums={key: n for key, n in self.sums.items() if key.namespace == namespace},
            owners=Counter(
                {key: n for key, n in self.owners.items() if _is_in(namespace, key.owner)}
            ),
        )

    def add_loss(self, segment: Segment) -> None:
        """Add what was lost as a pod ended, if something was."""
        lost = loss_of(segment)
        if lost is not None and lost.lost:
            self.losses[loss_key_of(segment.holder, lost)] += lost.lost


def _is_in(namespace: str, owner: str) -> bool:
    return owner.partition("/")[0] == namespace


def loss_key_of(holder: Holder, lost: LostWork) -> LossKey:
    owner = ROW_OF[By.OWNER](holder)
    return LossKey(holder.quota, holder.namespace, owner, str(lost.cause), str(lost.basis), lost.by)


_FIELDS: Final[Mapping[By, str]] = {
    By.QUOTA: "quota",
    By.NAMESPACE: "namespace",
    By.USER: "user",
    By.MODEL: "model",
    By.BAND: "band",
}


def tabulate_book(book: UsageBook, by: By) -> UsageTable:
    """Return the sums of a book as a table. Raises KeyError for nodes: no book has them.

    How many pods there were no book says.
    """
    sums: dict[str, BookSum] = {}
    total = BookSum()
    for key, amount in book.sums.items():
        total.add(amount)
        if by is not By.OWNER:
            sums.setdefault(getattr(key, _FIELDS[by]), BookSum()).add(amount)
    if by is By.OWNER:
        total = BookSum(estimated=total.estimated)
        for owner, held in book.owners.items():
            sums.setdefault(owner.owner, BookSum()).held += held
            total.held += held
    rows = [_row_of(row, amount) for row, amount in sums.items()]
    rows.sort(key=lambda row: (-row.held, row.name))
    return UsageTable(
        by,
        book.window,
        tuple(rows),
        _row_of("", total),
        book.uncertain,
        total.estimated,
        book.skewed,
    )


def _row_of(name: str, amount: BookSum) -> UsageRow:
    amounts = tuple(sorted((key, n) for key, n in amount.amounts.items() if n))
    return UsageRow(name, amount.held, None, amounts)
