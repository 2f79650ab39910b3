"""What waits, as those see it who may list less than was read: amounts and places are no secret.

A unit of which an asker sees nothing looks the same to all who see nothing of it. So that is made
once for all of them, and of a unit that has not changed it is kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Final, overload

from typing_extensions import override

from koord.answers.encoding import encode
from koord.answers.in_steps import Steps, finish
from koord.answers.placed_entries import PlacedEntries, place
from koord.answers.queue_view import QueueEntry, show_safely
from koord.answers.redaction import EVERYTHING, ONE_UNIT, NameKind, Sight, redact
from koord.answers.reports import ReportedReason

MOST_SIGHTS: Final = 64
"""Of which what is seen is kept."""
REMEMBERED_STATES: Final = 60
MOST_PREPARED: Final = 8
"""Sights and orders for which it is computed before somebody asks."""
MOST_WRITTEN: Final = 8192
"""Entries that are written once: as many as are on some eighty pages."""
STEP_ENTRIES: Final = 2000
"""That are looked at in one step. One that was not seen before counts for several."""
_NEW_ENTRY: Final = 8
_BEHIND_ALL: Final = 1 << 62
"""The rank of what has no position."""


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
    reason, quotas = _reason_of(entry.reason.code), entry.quotas if stranger.quotas else ()
    if entry.standing is None and len(entry.names) == 1:
        # Of nearly all of thousands only the name is left to be hidden.
        names = (stranger.hide(NameKind.UNIT, entry.names[0]),)
        return replace(entry, names=names, reason=reason, quotas=quotas)
    return _hide_names(replace(entry, reason=reason, quotas=quotas), stranger)


@lru_cache(maxsize=1024)
def _reason_of(code: str) -> ReportedReason:
    """Return a reason of which the code alone is told."""
    return ReportedReason(code, "")


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """An order of entries: by ``value``, then by ``key``. Equal ones have the same ``name``.

    A key is that of an entry at a position. Without a value it is the order of positions.
    """

    name: str
    is_descending: bool
    value: Callable[[QueueEntry], Any] | None = field(compare=False)
    key: Callable[[QueueEntry, int], str] = field(compare=False)

    def value_of(self, entry: QueueEntry, position: int) -> Any:
        return rank_position(position) if self.value is None else self.value(entry)


def rank_position(position: int) -> int:
    """Return what entries are sorted by to be in order: what has no position comes last."""
    return position or _BEHIND_ALL


_Ranked = tuple[Any, str, int]
"""What an entry is sorted by, and where it is in the queue."""


class RankedEntries:
    """Entries in an order. Keys are made only of those that their values do not tell apart."""

    def __init__(self, rows: PlacedEntries, order: QueueOrder) -> None:
        self._rows, self._order = rows, order
        self._ties: set[Any] = set()
        self._ranked: list[_Ranked] = []
        self._in_order: Sequence[int] | None = None

    def rank(self) -> Steps[None]:
        """Sort them; afterwards ``places`` takes little."""
        rows, order = self._rows, self._order
        pairs = zip(rows.unplaced, rows.positions, strict=True)
        values = [order.value_of(entry, position) for entry, position in pairs]
        counts = Counter(values)
        ties = {value for value, count in counts.items() if count > 1}
        if order.value is None and not ties:
            self._in_order = range(len(rows))[:: -1 if order.is_descending else 1]
            return
        ranked = list[_Ranked]()
        for at, (value, entry) in enumerate(zip(values, rows.unplaced, strict=True)):
            if at % STEP_ENTRIES == 0:
                yield
            key = order.key(entry, rows.positions[at]) if value in ties else ""
            ranked.append((value, key, at))
        yield
        ranked.sort(reverse=order.is_descending)
        self._ties, self._ranked = ties, ranked
        self._in_order = [at for _, _, at in ranked]

    def places(self, own: Mapping[int, QueueEntry]) -> Sequence[int]:
        """Return where each entry in order is in the queue, with others in place of some.

        Those have the same values: only their keys differ.
        """
        if self._in_order is None:
            finish(self.rank())
        assert self._in_order is not None, "it is sorted"  # noqa: S101 - for the type checker
        if not self._ties:
            return self._in_order
        order, positions = self._order, self._rows.positions
        values = {at: order.value_of(row, positions[at]) for at, row in own.items()}
        if self._ties.isdisjoint(values.values()):
            return self._in_order
        moved = sorted(
            (
                (value, order.key(own[at], positions[at]) if value in self._ties else "", at)
                for at, value in values.items()
            ),
            reverse=order.is_descending,
        )
        return self._merge(moved, values.keys())

    def _merge(self, moved: Sequence[_Ranked], places: Collection[int]) -> list[int]:
        """Return all places in order, with these in place of those that are there."""
        is_descending, merged, begin = self._order.is_descending, list[int](), 0
        for each in moved:
            end = _find_rank(self._ranked, each, begin, is_descending=is_descending)
            merged += (at for _, _, at in self._ranked[begin:end] if at not in places)
            merged.append(each[2])
            begin = end
        merged += (at for _, _, at in self._ranked[begin:] if at not in places)
        return merged


def _find_rank(
    ranked: Sequence[_Ranked], wanted: _Ranked, begin: int, *, is_descending: bool
) -> int:
    """Return where something belongs in what is in order, from ``begin`` on."""
    end = len(ranked)
    while begin < end:
        middle = (begin + end) // 2
        if (ranked[middle] > wanted) is is_descending:
            begin = middle + 1
        else:
            end = middle
    return begin


class OrderedRows(Sequence[QueueEntry]):
    """Entries in an order, put together as far as somebody looks: of thousands a page is shown."""

    def __init__(
        self, places: Sequence[int], rows: PlacedEntries, own: Mapping[int, QueueEntry]
    ) -> None:
        self._places, self._rows, self._own = places, rows, own

    @override
    def __len__(self) -> int:
        return len(self._places)

    @override
    def __iter__(self) -> Iterator[QueueEntry]:
        return map(self._find, self._places)

    @overload
    def __getitem__(self, at: int) -> QueueEntry: ...
    @overload
    def __getitem__(self, at: slice) -> "OrderedRows": ...
    @override
    def __getitem__(self, at: "int | slice") -> "QueueEntry | OrderedRows":
        if isinstance(at, slice):
            return OrderedRows(self._places[at], self._rows, self._own)
        return self._find(self._places[at])

    def _find(self, place: int) -> QueueEntry:
        return self._own[place] if place in self._own else self._rows[place]

    @override
    def __eq__(self, other: object) -> bool:
        """Whether the entries are equal, without putting them together."""
        if not isinstance(other, OrderedRows):
            return NotImplemented
        return (
            self._places == other._places
            and self._rows.is_same(other._rows, self._places)
            and self._own == other._own
        )

    __hash__ = None  # type: ignore[assignment]


class OwnEntries(Mapping[int, QueueEntry]):
    """Entries that an asker sees as her own, by where they are in the queue."""

    def __init__(self, places: Sequence[int], entries: PlacedEntries) -> None:
        self._at = {place: at for at, place in enumerate(places)}
        self._entries = entries

    @override
    def __len__(self) -> int:
        return len(self._at)

    @override
    def __iter__(self) -> Iterator[int]:
        return iter(self._at)

    @override
    def __contains__(self, place: object) -> bool:
        return place in self._at

    @override
    def __getitem__(self, place: int) -> QueueEntry:
        return self._entries[self._at[place]]


class EntriesByNamespace(Mapping[str, Sequence[QueueEntry]]):
    """The entries of namespaces, put together for those that somebody asks about."""

    def __init__(
        self, places: Mapping[str, Sequence[int]], rows: Mapping[int, QueueEntry] | PlacedEntries
    ) -> None:
        self._places, self._rows = places, rows
        self._made: dict[str, Sequence[QueueEntry]] = {}

    @override
    def __len__(self) -> int:
        return len(self._places)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @override
    def __getitem__(self, namespace: str) -> Sequence[QueueEntry]:
        if namespace not in self._made:
            self._made[namespace] = [self._rows[at] for at in self._places[namespace]]
        return self._made[namespace]


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

    def set_sort(self, sort: Callable[[QueueOrder], Sequence[QueueEntry]]) -> None:
        """Have all of it sorted by this."""
        self._sort = sort

    def sorted_by(self, order: QueueOrder) -> Sequence[QueueEntry] | None:
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


@dataclass(slots=True)
class _SeenEntry:
    """What is seen of an entry; both with any position."""

    source: QueueEntry
    entry: QueueEntry


class SeenEntries:
    """Entries as askers see them, by sight: of those that differ by their place only they are kept.

    Whoever starts or comes moves all that is behind it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Sight, dict[int, _SeenEntry]] = OrderedDict()
        """By identity of its names, an entry and what is seen of it."""
        self._lately: dict[tuple[Sight, QueueOrder | None], int] = {}
        """Sights and orders that were asked for, and for how many states that counts."""

    def note_asked(self, sight: Sight, order: QueueOrder | None = None) -> None:
        """Note that somebody with a sight is there, and in which order she asked for all."""
        self._lately[sight, order] = REMEMBERED_STATES

    def take_asked(self) -> list[tuple[Sight, QueueOrder | None]]:
        """Return sights and orders that were asked for lately; called once for each state."""
        lately = {key: left - 1 for key, left in self._lately.items() if left > 1}
        self._lately = dict(islice(lately.items(), MOST_PREPARED))
        return list(self._lately)

    def see(
        self, sight: Sight, entries: Sequence[QueueEntry], hide: Callable[[QueueEntry], QueueEntry]
    ) -> Steps[list[_SeenEntry]]:
        """Return what is seen of entries, which are all that this sight is asked for now."""
        before, kept = self._kept.get(sight, {}), dict[int, _SeenEntry]()
        rows, done = list[_SeenEntry](), 0
        for entry in entries:
            if done >= STEP_ENTRIES:
                yield
                done = 0
            done += 1
            seen = before.get(id(entry.names))
            if seen is None or not entry.is_moved(seen.source):
                seen = _SeenEntry(entry, show_safely(entry, hide, _hide_all))
                done += _NEW_ENTRY
            kept[id(entry.names)] = seen
            rows.append(seen)
        self._kept.pop(sight, None)
        self._kept[sight] = kept
        if len(self._kept) > MOST_SIGHTS:
            self._kept.popitem(last=False)
        return rows


class WrittenEntries:
    """The documents of entries that are shown: one at another place is not written anew."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[QueueEntry, dict[str, Any]]] = OrderedDict()
        """By identity of its names, an entry and what was written of it."""

    def write(self, entry: QueueEntry) -> dict[str, Any]:
        key = id(entry.names)
        kept = self._kept.get(key)
        if kept is None or not entry.is_moved(kept[0]):
            kept = self._kept[key] = entry, encode(entry)
            if len(self._kept) > MOST_WRITTEN:
                self._kept.popitem(last=False)
        ahead = entry.gpus_ahead
        return {**kept[1], "position": entry.position or None, "gpusAhead": ahead}


class WaitingQueue:
    """All that waits at one moment, with the names of all."""

    def __init__(self, entries: Sequence[QueueEntry], seen: SeenEntries) -> None:
        self.entries = place(entries)
        self._seen = seen
        self._strangers: dict[Sight, PlacedEntries] = {EVERYTHING: self.entries}
        self._orders: dict[tuple[Sight, QueueOrder], RankedEntries] = {}
        self._places: dict[str, list[int]] = {}
        for at, entry in enumerate(self.entries.unplaced):
            names = entry.names
            # Nearly all have one name, and there may be thousands.
            spaces = (names[0].partition("/")[0],) if len(names) == 1 else entry.namespaces
            for namespace in spaces:
                self._places.setdefault(namespace, []).append(at)

    def see(self, sight: Sight) -> SeenQueue:
        """Return it as an asker sees it: the same as by ``hide_others``."""
        if sight.is_whole:
            seen = SeenQueue(lambda: self.entries, EntriesByNamespace(self._places, self.entries))
            seen.set_sort(lambda order: self._sort(EVERYTHING, {}, order))
            return seen
        places: Mapping[str, list[int]] = self._places
        if sight.namespaces is not None:
            places = {name: places[name] for name in sight.namespaces if name in places}
        shown = sorted({at for of_namespace in places.values() for at in of_namespace})
        sources = [self.entries.unplaced[at] for at in shown]
        seen_entries = finish(
            self._seen.see(sight, sources, lambda entry: _hide_names(entry, sight))
        )
        own = OwnEntries(shown, self.entries.select(shown, seen_entries))
        stranger = EVERYTHING if sight.namespaces is None else _without_namespaces(sight)

        def list_all() -> Sequence[QueueEntry]:
            rows = finish(self._see_as_stranger(stranger))
            return OrderedRows(range(len(rows)), rows, own)

        seen = SeenQueue(list_all, EntriesByNamespace(places, own))
        if sight.namespaces is not None:
            seen.set_sort(lambda order: self._sort(stranger, own, order))
            # Most who follow their own look at all of it, too, sooner or later.
            self._seen.note_asked(stranger)
        return seen

    def _sort(
        self, stranger: Sight, own: Mapping[int, QueueEntry], order: QueueOrder
    ) -> Sequence[QueueEntry]:
        """Return all in an order: that of strangers, in which own entries take their places."""
        self._seen.note_asked(stranger, order)
        rows = finish(self._see_as_stranger(stranger))
        return OrderedRows(self._rank(stranger, rows, order).places(own), rows, own)

    def _rank(self, stranger: Sight, rows: PlacedEntries, order: QueueOrder) -> RankedEntries:
        key = stranger, order
        if key not in self._orders:
            self._orders[key] = RankedEntries(rows, order)
        return self._orders[key]

    def prepare_all(self) -> Steps[None]:
        """Compute what those see who see no unit, and were asked about lately."""
        for stranger, order in self._seen.take_asked():
            rows = yield from self._see_as_stranger(stranger)
            yield
            if order is not None:
                yield from self._rank(stranger, rows, order).rank()
                yield

    def _see_as_stranger(self, stranger: Sight) -> Steps[PlacedEntries]:
        if stranger not in self._strangers:
            places = range(len(self.entries))
            seen = yield from self._seen.see(
                stranger, self.entries.unplaced, lambda entry: _hide_wholly(entry, stranger)
            )
            self._strangers[stranger] = self.entries.select(places, seen)
        return self._strangers[stranger]
