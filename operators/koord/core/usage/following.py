"""Makes segments of what is seen of pods again and again, by whoever watches.

Segments are derived, not accumulated: what goes on is read from the objects that exist, and what
was written before says only what has ended meanwhile. Nothing is known here of where it is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from koord.core.usage.segments import EndBasis, Segment

LOOK_MS: Final = 60_000
"""The longest time between two looks of one process: what a crash can lose."""


def is_set_back(seen: int, now: int) -> bool:
    """Whether the clock was ahead when somebody looked last: it has been set back since."""
    return now < seen - LOOK_MS


@dataclass(frozen=True, slots=True)
class SegmentChanges:
    """What one look has changed: segments to be written, the same (uid, start) over what was."""

    at: int
    changed: tuple[Segment, ...]
    unseen: int = 0
    """Milliseconds before it in which nobody looked, beyond the usual time between two looks."""


class SegmentFollower:
    """Compares each look with the one before. ``begun`` are open segments of an earlier process.

    ``seen`` is when that looked last, in milliseconds; 0: never.
    """

    def __init__(self, begun: Iterable[Segment] = (), seen: int = 0) -> None:
        self._open = {segment.uid: segment for segment in begun}
        self._over: set[str] = set()
        """Pods that have ended and still exist: written once."""
        self._seen = seen
        self._is_continued = False

    @property
    def open_segments(self) -> Iterable[Segment]:
        """What goes on, as of the last look."""
        return self._open.values()

    def look(self, segments: Iterable[Segment], now: int) -> SegmentChanges:
        """Return what has changed; ``segments`` has one of each pod that exists and has a node."""
        changed: list[Segment] = []
        if is_set_back(self._seen, now):
            self._seen = now
            changed += self._cut_back(now)
        now = max(now, self._seen)
        present: set[str] = set()
        over: set[str] = set()
        for segment in segments:
            present.add(segment.uid)
            if segment.basis is EndBasis.OPEN:
                changed += self._go_on(replace(segment, end=max(segment.start, now)), now)
            else:
                over.add(segment.uid)
                if segment.uid not in self._over:
                    changed += self._end(segment)
        for uid in self._open.keys() - present:
            changed.append(self._vanish(self._open.pop(uid), now))
        unseen = max(0, now - self._seen - LOOK_MS) if self._seen else 0
        self._over, self._seen, self._is_continued = over, now, True
        return SegmentChanges(now, tuple(changed), unseen)

    def _go_on(self, segment: Segment, now: int) -> Iterator[Segment]:
        before = self._open.get(segment.uid)
        if before is None:
            self._open[segment.uid] = segment
            yield segment
            return
        if _is_same(before, segment):
            end = max(before.start, segment.end)
            self._open[segment.uid] = replace(segment, start=before.start, end=end)
            return
        cut = max(before.start, now)
        yield replace(
            before, end=cut, basis=EndBasis.CHANGED, uncertain=self._uncertain(before, now)
        )
        self._open[segment.uid] = replace(segment, start=cut, end=cut)
        yield self._open[segment.uid]

    def _cut_back(self, now: int) -> Iterator[Segment]:
        """Yield what goes on and was seen at a time that has not come yet."""
        for uid, segment in self._open.items():
            if segment.end > now:
                self._open[uid] = replace(segment, end=max(segment.start, now))
                yield self._open[uid]

    def _end(self, segment: Segment) -> Iterator[Segment]:
        """Yield the end of a pod as its kubelet says it, if it does."""
        before = self._open.pop(segment.uid, None)
        if before is None:
            yield segment
        elif segment.basis is EndBasis.LAST_SEEN:
            yield replace(segment, start=before.start, end=before.end)
        else:
            yield replace(segment, start=before.start, end=max(before.start, segment.end))

    def _vanish(self, before: Segment, now: int) -> Segment:
        """Return the end of a pod that is gone: seen to be, or at some time while nobody looked."""
        uncertain = self._uncertain(before, now)
        if self._is_continued and uncertain <= LOOK_MS:
            return replace(before, end=now, basis=EndBasis.DELETED, uncertain=uncertain)
        return replace(before, basis=EndBasis.LAST_SEEN, uncertain=uncertain)

    @staticmethod
    def _uncertain(before: Segment, now: int) -> int:
        return max(0, now - max(before.end, before.start))


def _is_same(before: Segment, segment: Segment) -> bool:
    """Whether what is held is the same, and by whom; a begin that is told otherwise is ignored."""
    return (before.holder, before.milli_gpus, before.amounts, before.flags) == (
        segment.holder,
        segment.milli_gpus,
        segment.amounts,
        segment.flags,
    )
