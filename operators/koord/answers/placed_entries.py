"""What waits, in order, each entry put at its place when somebody looks at it.

Whoever starts or comes moves all that is behind it, and of thousands a page is shown. So entries
are kept without regard to where they are, and their places beside them. Knows no state and no
asker.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from typing_extensions import override

from koord.answers.queue_view import QueueEntry


class EntryHolder(Protocol):
    """Keeps an entry from one state to the next."""

    entry: QueueEntry


@dataclass(slots=True)
class SingleEntry:
    """An entry that is kept for one state only."""

    entry: QueueEntry


class PlacedEntries(Sequence[QueueEntry]):
    """Entries of one state. ``unplaced`` are the same with any positions, for what needs none.

    ``positions`` and ``ahead`` say where each of them is, and what those before it ask for.
    """

    def __init__(
        self, holders: Sequence[EntryHolder], positions: Sequence[int], ahead: Sequence[int]
    ) -> None:
        self.positions = positions
        self.ahead = ahead
        # Of this state: holders go on to the next one.
        self._entries = [holder.entry for holder in holders]
        self._holders = holders

    @property
    def unplaced(self) -> Sequence[QueueEntry]:
        return self._entries

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def __iter__(self) -> Iterator[QueueEntry]:
        return map(self._place, range(len(self._entries)))

    @overload
    def __getitem__(self, at: int) -> QueueEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[QueueEntry]: ...
    @override
    def __getitem__(self, at: int | slice) -> QueueEntry | list[QueueEntry]:
        if isinstance(at, slice):
            return [self._place(each) for each in range(*at.indices(len(self._entries)))]
        return self._place(range(len(self._entries))[at])

    def select(self, places: Sequence[int], holders: Sequence[EntryHolder]) -> "PlacedEntries":
        """Return other entries at some of the places."""
        positions, ahead = self.positions, self.ahead
        return PlacedEntries(
            holders, [positions[at] for at in places], [ahead[at] for at in places]
        )

    def is_same(self, other: "PlacedEntries", places: Iterable[int]) -> bool:
        """Whether the entries at some of the places are equal to those of another state."""
        if self is other:
            return True
        if self.positions != other.positions or self.ahead != other.ahead:
            return False
        mine, theirs = self.unplaced, other.unplaced
        return all(mine[at] is theirs[at] or _is_same(mine[at], theirs[at]) for at in places)

    def _place(self, at: int) -> QueueEntry:
        entry = self._entries[at]
        placed = entry.move_to(self.positions[at], self.ahead[at])
        if placed is not entry:
            self._entries[at] = placed
            holder = self._holders[at]
            if holder.entry is entry:  # as long as it stays there it stays the same object
                holder.entry = placed
        return placed


def _is_same(entry: QueueEntry, before: QueueEntry) -> bool:
    """Whether entries are equal, wherever they are."""
    return entry.is_moved(before) or entry.move_to(0, 0) == before.move_to(0, 0)


def place(entries: Iterable[QueueEntry]) -> PlacedEntries:
    """Return entries that are at their places."""
    if isinstance(entries, PlacedEntries):
        return entries
    holders = [SingleEntry(entry) for entry in entries]
    return PlacedEntries(
        holders,
        [holder.entry.position for holder in holders],
        [holder.entry.gpus_ahead for holder in holders],
    )
