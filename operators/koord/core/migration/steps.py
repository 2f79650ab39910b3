"""The steps of a job: from its state, and what is seen of the cluster, to the next write.

A place is reserved first, then the pod is evicted, then what replaces it takes the place. Every
write is one step, and the next one is decided from what the API server shows afterwards. So a
process may end after any of them, and the next one goes on: nothing is known but objects.

Two orders matter. That a pod is to be evicted is written before anybody evicts it, so that a pod
that has gone is known to have been evicted. And the place is given up only after it is written that
the pod is no longer to be evicted, and while nobody is about to evict it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Final, TypeAlias

from koord.core.migration.memory import remembered_until
from koord.core.migration.model import (
    MINUTE,
    JobMode,
    JobPhase,
    JobReason,
    JobStatus,
    JobStep,
    MigrationJob,
    MigrationOptions,
    PodReference,
)

POLL_SECONDS: Final = 3.0
FORGOTTEN_AFTER: Final = 30 * MINUTE
"""When a job without ttl is deleted, whatever it does."""
_AFTER_TTL: Final = 5 * MINUTE


class PlacePhase(StrEnum):
    """How far the reservation of a job is."""

    PENDING = auto()
    UNSCHEDULABLE = auto()
    AVAILABLE = auto()
    USED = auto()
    """A pod uses it, or has used it."""
    EXPIRED = auto()


@dataclass(frozen=True, slots=True)
class SeenPlace:
    """The reservation of a job. ``is_own``: it was made for the job, and ends with it.

    ``problem`` is why it is no place for the pod: it holds less, or is for others.
    """

    phase: PlacePhase
    node: str = ""
    user: PodReference | None = None
    text: str = ""
    is_own: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """What is seen for one job.

    ``pod_node`` None: the pod has gone, or another one has its name. ``is_evicting``: somebody is
    about to evict the pod. ``is_group_ready``: all jobs of its group have places;
    ``failed_group``: one of them has failed. ``is_user_ready`` None: the pod that took the place
    has gone. ``is_asked``: the pod was asked to end by itself.
    """

    now: float
    pod_node: str | None = None
    is_leaving: bool = False
    """The pod is being deleted."""
    place: SeenPlace | None = None
    is_evicting: bool = False
    is_group_ready: bool = True
    failed_group: str = ""
    is_user_ready: bool | None = None
    is_asked: bool = False
    returns: int = 0
    """How often the workload had come back to the node that the pod leaves."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to write; the time is checked again after some seconds, changes at once."""

    seconds: float = POLL_SECONDS


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Write the status."""

    status: JobStatus


class Act(StrEnum):
    """Another write."""

    RESERVE = auto()
    RELEASE = auto()
    """Delete the reservation that was made for the job."""
    UNASK = auto()
    """Take back that the pod was asked to end by itself."""
    FORGET = auto()
    """Delete the job."""


Step: TypeAlias = Wait | SetStatus | Act
_StepRule: TypeAlias = Callable[[MigrationJob, SeenCluster, MigrationOptions], Step | None]


def forgotten_at(job: MigrationJob, options: MigrationOptions, returns: int = 0) -> float:
    """Return when a job is deleted; one that has moved a pod only once that is not remembered."""
    after = FORGOTTEN_AFTER if not job.ttl else job.ttl + _AFTER_TTL
    is_remembered = not options.compat
    remembered = remembered_until(job, returns, options) if is_remembered else 0.0
    return max(job.created + after, remembered)


def next_step(job: MigrationJob, seen: SeenCluster, options: MigrationOptions) -> Step:
    """Return the next write of a job."""
    if seen.is_evicting:
        return Wait()  # whatever it is, it is decided when the outcome is known
    steps = (rule(job, seen, options) for rule in _RULES)
    return next((step for step in steps if step is not None), Wait())


def _forget(job: MigrationJob, seen: SeenCluster, options: MigrationOptions) -> Step | None:
    if seen.now < forgotten_at(job, options, seen.returns):
        return None
    return Act.RELEASE if _holds_own(seen) else Act.FORGET


def _has_gone(seen: SeenCluster) -> bool:
    return seen.pod_node is None or seen.is_leaving


def _holds_own(seen: SeenCluster) -> bool:
    return seen.place is not None and seen.place.is_own


def _end(job: MigrationJob, seen: SeenCluster, options: MigrationOptions) -> Step | None:
    """Give up what a job that is over still has.

    What replaces a pod that was evicted keeps its place until the job is deleted.
    """
    place, is_done = seen.place, job.status.phase is JobPhase.SUCCEEDED
    if not job.status.phase.is_over:
        return None
    is_awaited = JobStep.EVICTION in job.status.conditions and _has_gone(seen)
    is_kept = is_done or (is_awaited and not options.compat)
    if place is not None and place.is_own and not is_kept and place.phase is not PlacePhase.USED:
        return Act.RELEASE
    if seen.is_asked and not is_done and not options.compat:
        return Act.UNASK
    return Wait(max(forgotten_at(job, options, seen.returns) - seen.now, POLL_SECONDS))


def _pause(job: MigrationJob, seen: SeenCluster, _: MigrationOptions) -> Step | None:
    """Leave the pod alone, and give up the place: others may need it."""
    status = job.status
    is_evicted = status.has(JobStep.EVICTION) or (status.is_evicting and _has_gone(seen))
    if not job.is_paused or is_evicted:
        return None
    if status.status != JobReason.PAUSED:
        steps = (JobStep.RESERVATION_CREATED, JobStep.RESERVATION_SCHEDULED, JobStep.EVICTION)
        idle = replace(status.without(*steps), status=JobReason.PAUSED, reason=JobReason.PAUSED)
        return SetStatus(replace(idle, message="spec.paused is true", node=""))
    if seen.is_asked:
        return Act.UNASK
    return Act.RELEASE if _holds_own(seen) else Wait()


def _time_out(job: MigrationJob, seen: SeenCluster, _: MigrationOptions) -> Step | None:
    if job.problem:
        return SetStatus(job.status.fail(JobReason.INVALID, job.problem))
    if job.ttl and seen.now >= job.created + job.ttl:
        return SetStatus(job.status.fail(JobReason.TIMEOUT, _tell_timeout(job)))
    return None


def _start(job: MigrationJob, _: SeenCluster, __: MigrationOptions) -> Step | None:
    if not job.is_admitted:
        return Wait()  # for arbitration
    status = job.status
    if status.phase is JobPhase.PENDING or status.status == JobReason.PAUSED:
        return SetStatus(
            replace(status, phase=JobPhase.RUNNING, status=JobPhase.RUNNING, reason="", message="")
        )
    return None


def _move(job: MigrationJob, seen: SeenCluster, options: MigrationOptions) -> Step:
    status = job.status
    if (job.mode or options.default_mode) is JobMode.EVICT_DIRECTLY:
        return _evict_directly(status, seen)
    if status.has(JobStep.EVICTION):
        return _hand_over(job, seen, options)
    return _evict(status, seen) if status.is_evicting else _reserve(job, seen)


_RULES: Final[tuple[_StepRule, ...]] = (_forget, _end, _pause, _time_out, _start, _move)
"""In this order; the first that says something decides."""


def _tell_timeout(job: MigrationJob) -> str:
    return f"it was not done within {job.ttl:.0f} s of its creation; last: {job.status.status}"


def _reserve(job: MigrationJob, seen: SeenCluster) -> Step:
    """Wait for a place that is not the node of the pod."""
    status, place = job.status, seen.place
    if seen.pod_node is None or seen.is_leaving:
        text = f"the pod {job.pod.key} has gone before it was evicted"
        return SetStatus(status.fail(JobReason.MISSING_POD, text))
    if seen.failed_group:
        return SetStatus(status.fail(JobReason.FORBIDDEN, seen.failed_group))
    if place is not None:
        return _take_place(status, seen, place, seen.pod_node)
    if job.reservation or status.has(JobStep.RESERVATION_CREATED):
        return SetStatus(_fail_without_place(job))
    return Act.RESERVE


def _take_place(status: JobStatus, seen: SeenCluster, place: SeenPlace, node: str) -> Step:
    if not status.has(JobStep.RESERVATION_CREATED):
        return SetStatus(status.with_step(JobStep.RESERVATION_CREATED))
    broken = _find_broken(place, node)
    if broken is not None:
        return SetStatus(status.fail(*broken))
    if place.phase is PlacePhase.PENDING:
        return Wait()
    if not status.has(JobStep.RESERVATION_SCHEDULED):
        moved = status.with_step(JobStep.RESERVATION_SCHEDULED)
        return SetStatus(replace(moved, node=place.node))
    if not seen.is_group_ready:
        return Wait()
    return SetStatus(status.with_step(JobStep.EVICTION, JobReason.EVICTING, is_true=False))


def _fail_without_place(job: MigrationJob) -> JobStatus:
    text = f"the reservation {job.reservation_name} is not there"
    return job.status.fail(JobReason.MISSING_RESERVATION, text)


def _find_broken(place: SeenPlace, node: str) -> tuple[JobReason, str] | None:
    """Return why a place is of no use for a pod that runs on a node."""
    by_phase = {
        PlacePhase.EXPIRED: (JobReason.RESERVATION_EXPIRED, f"it is over: {place.text}"),
        PlacePhase.UNSCHEDULABLE: (JobReason.UNSCHEDULABLE, place.text),
        PlacePhase.USED: (JobReason.FORBIDDEN, "it is already bound by another Pod"),
    }
    if place.problem:
        return JobReason.FORBIDDEN, place.problem
    if place.phase in by_phase:
        return by_phase[place.phase]
    if place.node and place.node == node:
        return JobReason.FORBIDDEN, f"the only place is on {node}, where the pod runs"
    return None


def _evict(status: JobStatus, seen: SeenCluster) -> Step:
    """Wait until the pod has gone; without a place for it it stays."""
    if seen.pod_node is None:
        gone = status.with_step(JobStep.EVICTION, JobReason.EVICTED)
        waiting = gone.with_step(JobStep.POD_BOUND, JobReason.WAIT_FOR_POD, is_true=False)
        return SetStatus(waiting)
    if seen.is_leaving:
        return Wait()
    if seen.failed_group:
        return SetStatus(status.fail(JobReason.FORBIDDEN, seen.failed_group))
    place = seen.place
    if place is None:
        text = "the reservation was deleted before the pod was evicted"
        return SetStatus(status.fail(JobReason.MISSING_RESERVATION, text))
    broken = _find_broken(place, seen.pod_node)
    return Wait() if broken is None else SetStatus(status.fail(*broken))


def _evict_directly(status: JobStatus, seen: SeenCluster) -> Step:
    if seen.pod_node is None and status.is_evicting:
        gone = status.with_step(JobStep.EVICTION, JobReason.EVICTED)
        done = replace(gone, phase=JobPhase.SUCCEEDED, status=JobReason.COMPLETE)
        return SetStatus(done)
    if seen.pod_node is None:
        return SetStatus(status.fail(JobReason.MISSING_POD, "the pod has gone"))
    if seen.failed_group and not seen.is_leaving:
        return SetStatus(status.fail(JobReason.FORBIDDEN, seen.failed_group))
    if status.is_evicting:
        return Wait()
    return SetStatus(status.with_step(JobStep.EVICTION, JobReason.EVICTING, is_true=False))


def _hand_over(job: MigrationJob, seen: SeenCluster, options: MigrationOptions) -> Step:
    """Wait until what replaces the pod has taken the place, and is ready."""
    if job.status.pod is None:
        return _await_user(job, seen)
    if seen.is_user_ready or (seen.is_user_ready is None and options.compat):
        ready = job.status.with_step(JobStep.POD_READY)
        done = replace(ready, phase=JobPhase.SUCCEEDED, status=JobReason.COMPLETE)
        return SetStatus(done)
    if seen.is_user_ready is None:
        again = job.status.without(JobStep.POD_READY, JobStep.RESERVATION_BOUND)
        again = again.with_step(JobStep.POD_BOUND, JobReason.WAIT_FOR_POD, is_true=False)
        return SetStatus(replace(again, pod=None))
    return Wait()


def _await_user(job: MigrationJob, seen: SeenCluster) -> Step:
    status, place = job.status, seen.place
    if place is None:
        return SetStatus(_fail_without_place(job))
    if place.user is not None:
        bound = status.with_step(JobStep.POD_BOUND).with_step(JobStep.RESERVATION_BOUND)
        bound = bound.with_step(JobStep.POD_READY, JobReason.WAIT_FOR_READY, is_true=False)
        return SetStatus(replace(bound, pod=place.user))
    if place.phase is PlacePhase.EXPIRED:
        return SetStatus(status.fail(JobReason.RESERVATION_EXPIRED, f"it is over: {place.text}"))
    return Wait()
