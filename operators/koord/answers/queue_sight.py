"""What waits, as those see it who may list less than was read: amounts and places are no secret.

A unit of which an asker sees nothing looks the same to all who see nothing of it. So that is made
once for all of them, and of a unit that has not changed it is kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from koord.answers.queue_view import QueueEntry
from koord.answers.redaction import Sight, redact
from koord.answers.reports import ReportedReason

MOST_SIGHTS: Final = 64
"""Of which what is seen is kept."""


def hide_others(entries: Iterable[QueueEntry], sight: Sight) -> tuple[QueueEntry, ...]:
    """Return what waits as an asker sees it."""
    if sight.is_whole:
        return tuple(entries)
    stranger = _without_namespaces(sight)
    return tuple(
        redact(entry, sight.hide) if _is_seen(entry, sight) else _hide_wholly(entry, stranger)
        for entry in entries
    )


def _is_seen(entry: QueueEntry, sight: Sight) -> bool:
    return sight.namespaces is None or not sight.namespaces.isdisjoint(entry.namespaces)


def _without_namespaces(sight: Sight) -> Sight:
    """Return the sight of everybody who sees as much as this, and no unit."""
    return Sight(
        frozenset(), quotas=sight.quotas, nodes=sight.nodes, reservations=sight.reservations
    )


def _hide_wholly(entry: QueueEntry, stranger: Sight) -> QueueEntry:
    hidden = redact(entry, stranger.hide)
    # It quotes a condition of theirs, or names what only they know: quotas, claims, topologies.
    reason = ReportedReason(entry.reason.code, "")
    return replace(hidden, reason=reason, quotas=entry.quotas if stranger.quotas else ())


class SeenQueue(tuple[QueueEntry, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """What waits as somebody sees it, in order."""

    by_namespace: Mapping[str, Sequence[QueueEntry]]
    """Of namespaces whose pods she may list, those in order that are there."""

    @classmethod
    def of(
        cls, entries: Iterable[QueueEntry], by_namespace: Mapping[str, Sequence[QueueEntry]]
    ) -> "SeenQueue":
        seen = cls(entries)
        seen.by_namespace = by_namespace
        return seen

    def replace(self, entries: Iterable[QueueEntry]) -> "SeenQueue":
        """Return other entries, of which she sees the same namespaces."""
        rows = tuple(entries)
        by_namespace = {
            name: [row for row in rows if name in row.namespaces] for name in self.by_namespace
        }
        return SeenQueue.of(rows, by_namespace)


class SeenEntries:
    """Entries as askers see them, by sight: those of entries that are the same objects are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Sight, dict[int, tuple[QueueEntry, QueueEntry]]] = OrderedDict()
        """By identity of an entry, which is kept beside what is seen of it."""

    def see(
        self, sight: Sight, entries: Iterable[QueueEntry], hide: Callable[[QueueEntry], QueueEntry]
    ) -> list[QueueEntry]:
        """Return what is seen of entries, which are all that this sight is asked for now."""
        before, kept, seen = self._kept.pop(sight, {}), {}, []
        for entry in entries:
            pair = before.get(id(entry)) or (entry, hide(entry))
            kept[id(entry)] = pair
            seen.append(pair[1])
        self._kept[sight] = kept
        if len(self._kept) > MOST_SIGHTS:
            self._kept.popitem(last=False)
        return seen


class WaitingQueue:
    """All that waits at one moment, with the names of all."""

    def __init__(self, entries: tuple[QueueEntry, ...], seen: SeenEntries) -> None:
        self._entries = entries
        self._seen = seen
        self._strangers: dict[Sight, list[QueueEntry]] = {}
        self._places: dict[str, list[int]] = {}
        for at, entry in enumerate(entries):
            for namespace in entry.namespaces:
                self._places.setdefault(namespace, []).append(at)

    def see(self, sight: Sight) -> SeenQueue:
        """Return it as an asker sees it: the same as by ``hide_others``."""
        places, rows = self._places, list(self._entries)
        if sight.namespaces is not None:
            places = {name: places[name] for name in sight.namespaces if name in places}
            rows = list(self._see_as_stranger(_without_namespaces(sight)))
        if not sight.is_whole:
            shown = sorted({at for of_namespace in places.values() for at in of_namespace})
            own = (self._entries[at] for at in shown)
            redacted = self._seen.see(sight, own, lambda entry: redact(entry, sight.hide))
            for at, entry in zip(shown, redacted, strict=True):
                rows[at] = entry
        by_namespace = {name: [rows[at] for at in of_name] for name, of_name in places.items()}
        return SeenQueue.of(rows, by_namespace)

    def _see_as_stranger(self, stranger: Sight) -> Sequence[QueueEntry]:
        if stranger not in self._strangers:
            rows = self._seen.see(
                stranger, self._entries, lambda entry: _hide_wholly(entry, stranger)
            )
            self._strangers[stranger] = rows
        return self._strangers[stranger]
