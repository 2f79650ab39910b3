"""What waits, as those see it who may list less than was read: amounts and places are no secret.

A unit of which an asker sees nothing looks the same to all who see nothing of it. So that is made
once for all of them, and of a unit that has not changed it is kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final, overload

from typing_extensions import override

from koord.answers.encoding import encode
from koord.answers.queue_view import QueueEntry, show_safely
from koord.answers.redaction import EVERYTHING, ONE_UNIT, NameKind, Sight, redact
from koord.answers.reports import ReportedReason

MOST_SIGHTS: Final = 64
"""Of which what is seen is kept."""
REMEMBERED_STATES: Final = 60
MOST_PREPARED: Final = 4
"""Sights for which it is computed before somebody asks."""
MOST_WRITTEN: Final = 8192
"""Entries that are written once: as many as are on some eighty pages."""


def hide_others(entries: Iterable[QueueEntry], sight: Sight) -> tuple[QueueEntry, ...]:
    """Return what waits as an asker sees it."""
    if sight.is_whole:
        return tuple(entries)
    stranger = _without_namespaces(sight)

    def hide(entry: QueueEntry) -> QueueEntry:
        if _is_seen(entry, sight):
            return _hide_names(entry, sight)
        return _hide_wholly(entry, stranger)

    return tuple(show_safely(entry, hide, _hide_all) for entry in entries)


def _hide_all(entry: QueueEntry) -> QueueEntry:
    """Return an entry without any name, for whoever sees it."""
    return replace(entry, names=tuple(ONE_UNIT for _ in entry.names))


def _is_seen(entry: QueueEntry, sight: Sight) -> bool:
    return sight.namespaces is None or not sight.namespaces.isdisjoint(entry.namespaces)


def _without_namespaces(sight: Sight) -> Sight:
    """Return the sight of everybody who sees as much as this, and no unit."""
    return Sight(
        frozenset(), quotas=sight.quotas, nodes=sight.nodes, reservations=sight.reservations
    )


def _hide_names(entry: QueueEntry, sight: Sight) -> QueueEntry:
    """Return an entry without names that are not to be seen, of reserved nodes among them."""
    hidden = redact(entry, sight.hide)
    standing = hidden.standing
    if sight.nodes or standing is None or standing.reservation is None:
        return hidden
    reservation = replace(standing.reservation, nodes={})
    return replace(hidden, standing=replace(standing, reservation=reservation))


def _hide_wholly(entry: QueueEntry, stranger: Sight) -> QueueEntry:
    # It quotes a condition of theirs, or names what only they know: quotas, claims, topologies.
    reason = ReportedReason(entry.reason.code, "")
    hidden = replace(
        entry, reason=reason, quotas=entry.quotas if stranger.quotas else (), standing=None
    )
    if entry.standing is None and len(entry.names) == 1:
        # Of nearly all of thousands only the name is left to be hidden.
        names = (stranger.hide(NameKind.UNIT, entry.names[0]),)
        return replace(hidden, names=names)
    return _hide_names(replace(hidden, standing=entry.standing), stranger)


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """An order of entries: by ``value``, then by ``key``. Equal ones have the same ``name``."""

    name: str
    is_descending: bool
    value: Callable[[QueueEntry], Any] = field(compare=False)
    key: Callable[[QueueEntry], str] = field(compare=False)


_Ranked = tuple[Any, str, int]
"""What an entry is sorted by, and where it is in the queue."""


class RankedEntries:
    """Entries in an order. Keys are made only of those that their values do not tell apart."""

    def __init__(self, rows: Sequence[QueueEntry], order: QueueOrder) -> None:
        self._order = order
        values = list(map(order.value, rows))
        counts = Counter(values)
        self._ties = {value for value, count in counts.items() if count > 1}
        self._ranked = [self._rank(value, rows[at], at) for at, value in enumerate(values)]
        self._ranked.sort(reverse=order.is_descending)
        self._in_order = [at for _, _, at in self._ranked]

    def _rank(self, value: Any, entry: QueueEntry, at: int) -> _Ranked:
        return value, self._order.key(entry) if value in self._ties else "", at

    def places(self, own: Mapping[int, QueueEntry]) -> list[int]:
        """Return where each entry in order is in the queue, with others in place of some.

        Those have the same values: only their keys differ.
        """
        if not any(self._order.value(row) in self._ties for row in own.values()):
            return self._in_order
        ranked = [each for each in self._ranked if each[2] not in own]
        ranked += [self._rank(self._order.value(row), row, at) for at, row in own.items()]
        ranked.sort(reverse=self._order.is_descending)
        return [at for _, _, at in ranked]


class OrderedRows(Sequence[QueueEntry]):
    """Entries in an order, put together as far as somebody looks: of thousands a page is shown."""

    def __init__(
        self, places: Sequence[int], rows: Sequence[QueueEntry], own: Mapping[int, QueueEntry]
    ) -> None:
        self._places, self._rows, self._own = places, rows, own

    @override
    def __len__(self) -> int:
        return len(self._places)

    @override
    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> QueueEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[QueueEntry]: ...
    @override
    def __getitem__(self, at: int | slice) -> QueueEntry | list[QueueEntry]:
        rows, own = self._rows, self._own
        if isinstance(at, slice):
            return [own[place] if place in own else rows[place] for place in self._places[at]]
        place = self._places[at]
        return own[place] if place in own else rows[place]


class SeenQueue(Sequence[QueueEntry]):
    """What waits as somebody sees it, in order.

    ``by_namespace`` has that of namespaces whose pods she may list, as far as there is any. Most
    ask for that only, so all of it is made when somebody asks for more.
    """

    def __init__(
        self,
        list_all: Callable[[], Sequence[QueueEntry]],
        by_namespace: Mapping[str, Sequence[QueueEntry]],
    ) -> None:
        self.by_namespace = by_namespace
        self._list_all = list_all
        self._sort: Callable[[QueueOrder], Sequence[QueueEntry]] | None = None

    @cached_property
    def entries(self) -> Sequence[QueueEntry]:
        return self._list_all()

    def set_sort(self, sort: "Callable[[QueueOrder], Sequence[QueueEntry]]") -> None:
        """Have all of it sorted by this."""
        self._sort = sort

    def sorted_by(self, order: "QueueOrder") -> Sequence[QueueEntry] | None:
        """Return all of it in an order, if that takes less than to sort it; else None."""
        return None if self._sort is None else self._sort(order)

    @override
    def __len__(self) -> int:
        return len(self.entries)

    @override
    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self.entries)

    @overload
    def __getitem__(self, at: int) -> QueueEntry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[QueueEntry]: ...
    @override
    def __getitem__(self, at: int | slice) -> QueueEntry | Sequence[QueueEntry]:
        return self.entries[at]

    def replace(self, entries: Iterable[QueueEntry]) -> "SeenQueue":
        """Return other entries, of which she sees the same namespaces."""
        rows = tuple(entries)
        by_namespace = {
            name: [row for row in rows if name in row.namespaces] for name in self.by_namespace
        }
        return SeenQueue(lambda: rows, by_namespace)


@encode.register
def _(queue: SeenQueue) -> list[Any]:
    return [encode(entry) for entry in queue]


class SeenEntries:
    """Entries as askers see them, by sight: of those that differ by their place only they are kept.

    Whoever starts or comes moves all that is behind it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Sight, dict[int, tuple[QueueEntry, QueueEntry]]] = OrderedDict()
        """By identity of its names, an entry and what is seen of it."""
        self._lately: dict[Sight, int] = {}
        """Sights that were asked for, and for how many states that counts."""

    def note_asked(self, sight: Sight) -> None:
        self._lately[sight] = REMEMBERED_STATES

    def take_asked(self) -> list[Sight]:
        """Return the sights that were asked for lately; called once for each state."""
        lately = {sight: left - 1 for sight, left in self._lately.items() if left > 1}
        self._lately = dict(islice(lately.items(), MOST_PREPARED))
        return list(self._lately)

    def see(
        self, sight: Sight, entries: Iterable[QueueEntry], hide: Callable[[QueueEntry], QueueEntry]
    ) -> list[QueueEntry]:
        """Return what is seen of entries, which are all that this sight is asked for now."""
        before, kept, seen = self._kept.pop(sight, {}), {}, []
        for entry in entries:
            pair = before.get(id(entry.names))
            if pair is None or not _is_moved(pair[0], entry):
                row = show_safely(entry, hide, _hide_all)
            else:
                row = pair[1].move_to(entry.position, entry.gpus_ahead)
            kept[id(entry.names)] = entry, row
            seen.append(row)
        self._kept[sight] = kept
        if len(self._kept) > MOST_SIGHTS:
            self._kept.popitem(last=False)
        return seen


def _is_moved(before: QueueEntry, after: QueueEntry) -> bool:
    """Whether an entry is the same, or the same at another place."""
    return before is after or (
        before.names is after.names
        and before.reason is after.reason
        and before.standing is after.standing
        and before.quotas is after.quotas
        and (before.pods, before.required, before.gpus, before.since)
        == (after.pods, after.required, after.gpus, after.since)
        and (before.priority, before.is_repair) == (after.priority, after.is_repair)
    )


class WrittenEntries:
    """The documents of entries that are shown: one at another place is not written anew."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[QueueEntry, dict[str, Any]]] = OrderedDict()
        """By identity of its names, an entry and what was written of it."""

    def write(self, entry: QueueEntry) -> dict[str, Any]:
        key = id(entry.names)
        kept = self._kept.get(key)
        if kept is None or not _is_moved(kept[0], entry):
            kept = self._kept[key] = entry, encode(entry)
            if len(self._kept) > MOST_WRITTEN:
                self._kept.popitem(last=False)
        ahead = entry.gpus_ahead
        return {**kept[1], "position": entry.position or None, "gpusAhead": ahead}


class WaitingQueue:
    """All that waits at one moment, with the names of all."""

    def __init__(self, entries: tuple[QueueEntry, ...], seen: SeenEntries) -> None:
        self.entries = entries
        self._seen = seen
        self._strangers: dict[Sight, Sequence[QueueEntry]] = {EVERYTHING: entries}
        self._orders: dict[tuple[Sight, QueueOrder], RankedEntries] = {}
        self._places: dict[str, list[int]] = {}
        for at, entry in enumerate(entries):
            for namespace in entry.namespaces:
                self._places.setdefault(namespace, []).append(at)

    def see(self, sight: Sight) -> SeenQueue:
        """Return it as an asker sees it: the same as by ``hide_others``."""
        places = self._places
        if sight.namespaces is not None:
            places = {name: places[name] for name in sight.namespaces if name in places}
        shown = sorted({at for of_namespace in places.values() for at in of_namespace})
        entries = [self.entries[at] for at in shown]
        if not sight.is_whole:
            entries = self._seen.see(sight, entries, lambda entry: _hide_names(entry, sight))
        own = dict(zip(shown, entries, strict=True))
        by_namespace = {name: [own[at] for at in of_name] for name, of_name in places.items()}
        stranger = EVERYTHING if sight.namespaces is None else _without_namespaces(sight)

        def list_all() -> Sequence[QueueEntry]:
            rows = list(self._see_as_stranger(stranger))
            for at, row in own.items():
                rows[at] = row
            return rows

        seen = SeenQueue(list_all, by_namespace)
        if sight.namespaces is not None or sight.is_whole:
            shown_as_own = {} if sight.is_whole else own
            seen.set_sort(lambda order: self._sort(stranger, shown_as_own, order))
        return seen

    def _sort(
        self, stranger: Sight, own: Mapping[int, QueueEntry], order: QueueOrder
    ) -> Sequence[QueueEntry]:
        """Return all in an order: that of strangers, in which own entries take their places."""
        self._seen.note_asked(stranger)
        rows, key = self._see_as_stranger(stranger), (stranger, order)
        if key not in self._orders:
            self._orders[key] = RankedEntries(rows, order)
        return OrderedRows(self._orders[key].places(own), rows, own)

    def prepare_all(self) -> None:
        """Compute what those see who see no unit, and were asked about lately."""
        for stranger in self._seen.take_asked():
            self._see_as_stranger(stranger)

    def _see_as_stranger(self, stranger: Sight) -> Sequence[QueueEntry]:
        if stranger not in self._strangers:
            rows = self._seen.see(
                stranger, self.entries, lambda entry: _hide_wholly(entry, stranger)
            )
            self._strangers[stranger] = rows
        return self._strangers[stranger]
