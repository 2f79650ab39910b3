"""How far a job is, for people: what it waits for now, told from its status alone."""

from collections.abc import Collection
from enum import StrEnum

from koord.core.migration.model import JobPhase, JobReason, JobStep, MigrationJob


class MoveStage(StrEnum):
    """What a job waits for, or how it has ended."""

    MOVED = "Moved"
    FAILED = "Failed"
    NOT_CARRIED_OUT = "NotCarriedOut"
    PAUSED = "Paused"
    ARBITRATION = "Arbitration"
    PLACE = "Place"
    GROUP = "Group"
    EVICTION = "Eviction"
    REPLACEMENT = "Replacement"
    READINESS = "Readiness"

    @property
    def is_well(self) -> bool:
        """Whether nobody has to do anything."""
        return self not in {MoveStage.FAILED, MoveStage.NOT_CARRIED_OUT}


def find_stage(job: MigrationJob) -> MoveStage:
    """Return how far a job is."""
    status = job.status
    is_evicted = status.evicted_at is not None
    stages = (
        (MoveStage.MOVED, status.phase is JobPhase.SUCCEEDED),
        (MoveStage.FAILED, status.phase.is_over or bool(job.problem)),
        (MoveStage.NOT_CARRIED_OUT, JobStep.CONFLICT in status.conditions),
        (MoveStage.READINESS, is_evicted and status.pod is not None),
        (MoveStage.REPLACEMENT, is_evicted),
        (MoveStage.PAUSED, job.is_paused or status.status == JobReason.PAUSED),
        (MoveStage.ARBITRATION, not job.is_admitted),
        (MoveStage.EVICTION, status.is_evicting),
        (MoveStage.GROUP, bool(job.group) and has_place(job)),
    )
    return next((stage for stage, is_so in stages if is_so), MoveStage.PLACE)


def has_place(job: MigrationJob) -> bool:
    """Whether a place is reserved for what replaces the pod of a job."""
    steps = (JobStep.RESERVATION_SCHEDULED, JobStep.EVICTION)
    return any(step in job.status.conditions for step in steps)


def count_places(group: Collection[MigrationJob]) -> int:
    """Return for how many jobs of a group places are reserved."""
    return sum(map(has_place, group))
