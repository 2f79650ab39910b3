"""Work that was lost: what a pod had held when it was ended by something other than itself.

A job that saves its work says when (the annotation ``checkpointed-at``): what it held since then is
lost. Without that nobody knows, and all it held since it started is the most that can be lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from koord.core.model.pods import Pod, PodPhase
from koord.core.usage.segments import EndBasis, Segment, Window


class LossBasis(StrEnum):
    """How the amount is known."""

    CHECKPOINT = "Checkpoint"
    AT_MOST = "AtMost"


class LossCause(StrEnum):
    """What ended it."""

    PREEMPTED = "Preempted"
    """Its room was given to others."""
    RECLAIMED = "Reclaimed"
    """Its quota used too much."""
    EVICTED = "Evicted"
    """By others, or because its gang is restarted as a whole."""
    NODE_LOST = "NodeLost"
    REJECTED = "Rejected"
    """By the kubelet of its node."""


_OF_DISRUPTION: Final[Mapping[str, LossCause]] = MappingProxyType(
    {
        "PreemptionByScheduler": LossCause.PREEMPTED,
        "DeletionByTaintManager": LossCause.NODE_LOST,
        "DeletionByPodGC": LossCause.NODE_LOST,
        "EvictionByEvictionAPI": LossCause.EVICTED,
        "TerminationByKubelet": LossCause.EVICTED,
    }
)
"""Reason of the condition ``DisruptionTarget`` -> what it means."""


@dataclass(frozen=True, slots=True)
class LostWork:
    """Thousandths of GPUs times milliseconds, why, and for whom (empty: for nobody)."""

    lost: int
    basis: LossBasis
    cause: str
    by: str = ""


def find_cause(pod: Pod) -> tuple[LossCause, str] | None:
    """Return what ends a pod and for whom; None if it ends by itself, or goes on."""
    if pod.phase is PodPhase.SUCCEEDED:
        return None
    if pod.preempted_by is not None:
        return LossCause.PREEMPTED, pod.preempted_by.preemptor
    if pod.is_reclaimed:
        return LossCause.RECLAIMED, ""
    if pod.rejection:
        return LossCause.REJECTED, ""
    cause = _OF_DISRUPTION.get(pod.disruption)
    return None if cause is None else (cause, "")


def loss_of(segment: Segment) -> LostWork | None:
    """Return what was lost with a pod as it ended; None if nothing was."""
    if not segment.cause or segment.basis in {EndBasis.OPEN, EndBasis.CHANGED}:
        return None
    return find_lost([segment], segment.end, segment.cause, segment.by, segment.checkpointed)


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
