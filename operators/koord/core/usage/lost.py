"""Work that was lost: what a job had held when it was ended by something other than itself.

A job that saves its work says when (the annotation ``checkpointed-at``): what it held since then is
lost. Without that nobody knows, and all it held since it started is the most that can be lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from koord.core.usage.segments import Segment, Window


class LossBasis(StrEnum):
    """How the amount is known."""

    CHECKPOINT = "Checkpoint"
    AT_MOST = "AtMost"


@dataclass(frozen=True, slots=True)
class LostWork:
    """Thousandths of GPUs times milliseconds, why, and for whom (empty: for nobody)."""

    lost: int
    basis: LossBasis
    cause: str
    by: str = ""


def find_lost(
    segments: Iterable[Segment], ended: int, cause: str, by: str = "", checkpointed: int = 0
) -> LostWork:
    """Return what one run of a job lost when it was ended at ``ended`` (milliseconds).

    ``segments`` are those of the run. A checkpoint outside of them is none: whoever owns the pod
    writes it.
    """
    segments = tuple(segments)
    start = min((segment.start for segment in segments), default=ended)
    # Zero is the time of no checkpoint.
    is_saved = 0 < start <= checkpointed <= ended
    since = Window(checkpointed if is_saved else start, ended)
    lost = sum(part.held for part in since.clip_all(segments))
    return LostWork(lost, LossBasis.CHECKPOINT if is_saved else LossBasis.AT_MOST, cause, by)
