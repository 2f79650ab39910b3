"""What a segment that is told late may still change: nothing of periods that are closed.

A report of last month says the same next week. So what is told of a closed period counts now, as an
adjustment.
"""

from dataclasses import dataclass, replace
from typing import Final

from koord.core.usage.segments import Segment, Window

FREEZE_AFTER_MS: Final = 48 * 3_600_000


@dataclass(frozen=True, slots=True)
class Correction:
    """The parts of a segment that count where they were, and what of it counts now.

    ``adjusted`` are thousandths of GPUs times milliseconds.
    """

    parts: tuple[Segment, ...]
    adjusted: int


def correct(segment: Segment, watched_since: int, now: int) -> Correction:
    """Split what is told at ``now`` of a segment. Nobody watched before ``watched_since``.

    Zero: nobody has watched at all. Times are milliseconds.
    """
    frozen_until = now - FREEZE_AFTER_MS
    if not watched_since or watched_since >= frozen_until:
        return Correction((segment,), 0)
    closed = Window(watched_since, frozen_until).clip(segment)
    spans = (
        Window(segment.start, min(segment.end, watched_since)),
        Window(max(segment.start, frozen_until), segment.end),
    )
    parts = [
        replace(segment, start=span.start, end=span.end) for span in spans if span.milliseconds > 0
    ]
    # A segment of no length says that there was one.
    if closed is None and not parts:
        parts = [segment]
    return Correction(tuple(parts), 0 if closed is None else closed.held)
