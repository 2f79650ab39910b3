"""Segments: the time for which one pod held the same things.

Times are whole milliseconds since the epoch, GPUs thousandths of one, and what was held is their
product: integers that are rounded when they are shown, and never before. A change of anything that
a segment says ends it, and begins the next at the same instant; so segments can be cut and joined
without changing a sum.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from koord.core.model.pods import Pod

MS_PER_SECOND: Final = 1_000


class EndBasis(StrEnum):
    """How the end of a segment is known."""

    STATUS = "Status"
    """Its containers ended then, as the kubelet says."""
    DELETED = "Deleted"
    """It was seen to be deleted."""
    GRACE = "Grace"
    """Its grace period ended; whether it was gone by then is not known."""
    LAST_SEEN = "LastSeen"
    """It was seen then for the last time: it ended later, while nobody watched."""
    CHANGED = "Changed"
    """The pod goes on with something that is different: the next segment."""
    OPEN = "Open"
    """It goes on."""


class Flag(StrEnum):
    """What to know of a segment."""

    CLOCK_SKEW = "ClockSkew"
    """It ended before it began, by clocks that differ; it counts as no time."""
    ESTIMATED = "Estimated"
    """Its GPUs are estimated: it has asked for memory of a GPU of unknown size."""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Who held something, and where; empty: nobody or unknown.

    ``owner`` is the job, as ``namespace/name``; ``band`` is the class of priority.
    """

    namespace: str
    pod: str
    quota: str = ""
    user: str = ""
    owner: str = ""
    node: str = ""
    model: str = ""
    band: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One pod (uid) held the same from ``start`` to ``end``.

    ``amounts`` are what it requests of other resources, sorted, in their own units.
    """

    uid: str
    holder: Holder
    start: int
    end: int
    milli_gpus: int
    basis: EndBasis = EndBasis.OPEN
    amounts: tuple[tuple[str, int], ...] = ()
    flags: tuple[Flag, ...] = ()
    uncertain: int = 0
    """For how many milliseconds more or less it may have gone on than is known."""
    cause: str = ""
    """What ends it, if that is not itself, and ``by`` for whom: see ``lost``."""
    by: str = ""
    checkpointed: int = 0
    """When its work was saved last, in milliseconds; 0: never."""

    @property
    def milliseconds(self) -> int:
        return self.end - self.start

    @property
    def held(self) -> int:
        """Thousandths of GPUs times milliseconds."""
        return self.milli_gpus * self.milliseconds

    def held_of(self, resource: str) -> int:
        """Return an amount times milliseconds."""
        return dict(self.amounts).get(resource, 0) * self.milliseconds


def make_segment(  # noqa: PLR0913 - a segment has that many parts
    uid: str,
    holder: Holder,
    start: int,
    end: int,
    milli_gpus: int,
    *,
    basis: EndBasis = EndBasis.OPEN,
    amounts: Mapping[str, int] | None = None,
    flags: tuple[Flag, ...] = (),
) -> Segment:
    """Return a segment; one that ends before it begins has no length, and says so."""
    if end < start:
        end, flags = start, (*flags, Flag.CLOCK_SKEW)
    held = tuple(sorted((amounts or {}).items()))
    return Segment(uid, holder, start, end, milli_gpus, basis, held, flags)


def start_of(pod: Pod) -> int:
    """Return since when a pod holds its room, in milliseconds: as its binding says, or nearly so.

    Where nobody says when it was bound, it is when the kubelet accepted it, or its creation. No pod
    holds anything before that, which the API server alone writes.
    """
    return round(max(pod.bound or pod.started, pod.created) * MS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Window:
    """The time from ``start`` up to ``end``, in milliseconds since the epoch."""

    start: int
    end: int

    @property
    def milliseconds(self) -> int:
        return self.end - self.start

    def clip(self, segment: Segment) -> Segment | None:
        """Return the part of a segment that is in it; None if there is none."""
        start, end = max(segment.start, self.start), min(segment.end, self.end)
        if start >= end:
            return None
        return segment if (start, end) == (segment.start, segment.end) else _cut(segment, self)

    def clip_all(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        return (part for part in map(self.clip, segments) if part is not None)


def _cut(segment: Segment, window: Window) -> Segment:
    end, start = min(segment.end, window.end), max(segment.start, window.start)
    if end == segment.end:
        return replace(segment, start=start)
    return replace(segment, start=start, end=end, basis=EndBasis.CHANGED, uncertain=0)
