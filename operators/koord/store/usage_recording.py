"""Writes into a store what one process sees of pods, quotas and the cluster, look by look.

The process that is killed loses what has happened since its last look: a minute at most, where it
looks that often; the next one says how long nobody looked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from koord.core.usage.following import LOOK_MS, SegmentFollower
from koord.core.usage.levels import LevelSums, UsageLevels, UsageLook, integrate_levels
from koord.core.usage.segments import Segment
from koord.store import usage_sums
from koord.store.keeper import RecordStore
from koord.store.segments import decode_segment
from koord.store.usage_reading import encode_tree, read_tree
from koord.store.writing import StoreWriter

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECKPOINT_MS: Final = 10 * LOOK_MS
"""How often what goes on is written again; when somebody looked last is written with each look."""
CLEANING_MS: Final = 60 * LOOK_MS
MOST_QUOTAS: Final = 10_000


class UsageRecorder:
    """Follows pods in a store. Raises ``StoreError`` where that cannot be written."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        begun, watch = store.submit(_begin).result()
        self._follower = SegmentFollower(begun, watch.seen)
        self._levels: UsageLevels | None = None
        self._checkpointed = self._cleaned = 0
        self._above: Mapping[str, str] | None = None

    def look(self, look: UsageLook) -> "Future[None]":
        """Write what has changed since the last look."""
        now, before = look.levels.at, self._levels
        changes = self._follower.look(look.segments, now)
        segments = changes.changed
        if abs(now - self._checkpointed) >= CHECKPOINT_MS:  # the clock may be set back
            self._checkpointed = now
            written = {(segment.uid, segment.start) for segment in segments}
            segments += tuple(
                segment
                for segment in self._follower.open_segments
                if (segment.uid, segment.start) not in written
            )
        sums = () if before is None else tuple(integrate_levels(before, now))
        cleans, self._levels = abs(now - self._cleaned) >= CLEANING_MS, look.levels
        if cleans:
            self._cleaned = now
        above = look.above if look.above != self._above else None
        self._above = look.above
        batch = _UsageBatch(now, segments, sums, above, cleans)
        return self._store.submit(batch.write)


@dataclass(frozen=True, slots=True)
class _UsageBatch:
    """What one look has to write, in one transaction; ``above`` is None if it has not changed."""

    now: int
    segments: tuple[Segment, ...]
    sums: tuple[LevelSums, ...]
    above: Mapping[str, str] | None
    cleans: bool

    def write(self, writer: StoreWriter) -> None:
        usage_sums.put_segments(writer, self.segments)
        usage_sums.add_levels(writer, self.sums)
        usage_sums.note_watch(writer, self.now)
        if self.above:
            tree = {**read_tree(writer.connection), **self.above}
            writer.set_meta(*encode_tree(dict(list(tree.items())[-MOST_QUOTAS:])))
        if self.cleans:
            usage_sums.remove_old(writer.connection, self.now)


def _begin(writer: StoreWriter) -> tuple[tuple[Segment, ...], usage_sums.UsageWatch]:
    usage_sums.prepare(writer.connection)
    rows = writer.connection.execute("SELECT body FROM segment WHERE is_open = 1").fetchall()
    begun = tuple(decode_segment(writer.codec.inflate(body)) for (body,) in rows)
    return begun, usage_sums.read_watch(writer.connection)
