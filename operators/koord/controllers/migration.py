"""Moves pods, step by step: for the operator ``podmigrationjob``.

A job is looked at whenever it, its pod or its reservation changes, and the next write is made that
``core/migration/steps.py`` says. Nothing but objects is known, so another process goes on where one
has ended. Which jobs start is decided by ``MigrationArbiter``; pods are evicted by
``MigrationEvictions``, which is asked here whether one is about to go.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.controllers.coalescing import Pause
from koord.controllers.migration_evictions import MigrationEvictions
from koord.controllers.migration_places import MigrationPlaces
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.migration.arbitration import (
    Answer,
    Verdict,
)
from koord.core.migration.memory import count_returns, find_left_nodes
from koord.core.migration.model import (
    EvictPolicy,
    JobPhase,
    JobReason,
    JobStatus,
    JobStep,
    MigrationJob,
    MigrationOptions,
)
from koord.core.migration.plugin import Migrations
from koord.core.migration.stage import has_place
from koord.core.migration.steps import (
    Act,
    SeenCluster,
    SetStatus,
    Wait,
    forgotten_at,
    next_step,
)
from koord.core.model.pods import Pod
from koord.kube.events import EventRecorder, EventType
from koord.kube.migrations import MigrationApi, WantedPlace, ref_of_job
from koord.kube.objects import ref_of_pod
from koord.kube.status import ConditionPatch
from koord.kube.translate.migration import read_moved_pod

log = logging.getLogger(__name__)

_PAUSE: Final = Pause(0.05, 0.2)
_SHORT_SECONDS: Final = 0.25
_LONG_SECONDS: Final = 600.0
_CONFIRMED_SECONDS: Final = 30.0
"""A status that the watch does not show after this time was not written."""
_MIGRATING: Final = "Migrating"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What Koordinator's descheduler writes as the creator of its jobs."""
WAITING: Final = "Waiting"


def is_of_descheduler(job: MigrationJob) -> bool:
    """Whether Koordinator's descheduler has made a job, and carries it out itself."""
    return _UUID.fullmatch(job.created_by) is not None


@dataclass(slots=True)
class MigrationPolicy:
    """Carries out the steps of jobs. ``verdicts`` is what arbitration said of waiting ones."""

    state: ClusterState
    author: StatusAuthor[str, MigrationJob]
    api: MigrationApi
    places: MigrationPlaces
    evictions: MigrationEvictions
    options: MigrationOptions
    wall_clock: Callable[[], float]
    events: EventRecorder
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    conflict: str = ""
    """Why nothing is done here; empty while all is."""
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)
    _submitted: dict[str, tuple[JobStatus, float]] = field(default_factory=dict)
    """Job -> the status that its last one was decided from, and when that was. Nothing else is
    decided until the watch shows another: what was written may say that the pod is to go."""

    def changed(self) -> list[str]:
        jobs = self.state.plugin(Migrations).jobs
        return self._inputs.compare(jobs, lambda uid: self._read_inputs(jobs[uid]))

    def _read_inputs(self, job: MigrationJob) -> object:
        pod = self.places.pod_of(job)
        seen = None if pod is None else (pod.node, pod.gone_by)
        return job, job.generation, seen, self.places.see(job), self.evictions.is_busy_with(job)

    def pause_for(self, _uid: str) -> Pause:
        return _PAUSE

    async def update(self, uid: str) -> float | None:
        job = self.state.plugin(Migrations).jobs.get(uid)
        if job is None:
            self._submitted.pop(uid, None)
            return None
        if is_of_descheduler(job):
            return _LONG_SECONDS  # not None: nobody writes what it says
        # What Kopf has not shown would not be written.
        if self.author.validation_of(uid) is None or self._is_unconfirmed(job):
            return _SHORT_SECONDS
        if self.conflict or not self.options.is_on:
            self._say_why_not(job)
            return _LONG_SECONDS
        news = self._find_news(job)
        if news is not None:
            self._write(job, news)
            return _SHORT_SECONDS
        return await self._do(job)

    def _is_unconfirmed(self, job: MigrationJob) -> bool:
        base, at = self._submitted.get(job.uid, (None, 0.0))
        if base == job.status and self.wall_clock() < at + _CONFIRMED_SECONDS:
            return True
        self._submitted.pop(job.uid, None)
        return False

    def _find_news(self, job: MigrationJob) -> JobStatus | None:
        """Return what is to be said besides the steps; None for nothing."""
        status, verdict = job.status, self.verdicts.get(job.uid)
        if JobStep.CONFLICT in status.conditions:
            return replace(status.without(JobStep.CONFLICT), message="")
        if verdict is None or job.is_admitted or status.phase.is_over or job.is_paused:
            return None
        judged = self._with_verdict(job, verdict)
        return None if judged == status else judged

    async def _do(self, job: MigrationJob) -> float | None:
        step = next_step(job, await self._see(job), self.options)
        match step:
            case SetStatus(status):
                self._write(job, status)
                return _SHORT_SECONDS
            case Wait(seconds):
                if self.author.awaits(job.uid):
                    self._write(job, job.status)
                return seconds
            case Act.RESERVE:
                return await self._reserve(job)
            case Act.RELEASE:
                place = self.places.find(job)
                if place is not None:
                    await self.api.release(place.name, place.uid)
            case Act.UNASK:
                await self.api.unask(job)
            case Act.FORGET:
                await self.api.forget(job)
        return _SHORT_SECONDS

    async def _see(self, job: MigrationJob) -> SeenCluster:
        pod, group = self.places.pod_of(job), self.places.group_of(job)
        return SeenCluster(
            now=self.wall_clock(),
            pod_node=None if pod is None else pod.node,
            is_leaving=pod is not None and pod.gone_by > 0,
            place=self.places.see(job),
            is_evicting=self.evictions.is_busy_with(job),
            is_group_ready=_is_ready(job, group),
            failed_group=_find_failed(job, group),
            is_user_ready=await self._is_user_ready(job),
            is_asked=await self._is_asked(job),
            returns=self._count_returns(job),
        )

    def _count_returns(self, job: MigrationJob) -> int:
        if job.status.evicted_at is None:
            return 0
        jobs = self.state.plugin(Migrations).jobs.values()
        return count_returns(other for other in jobs if other.workload == job.workload)[job.uid]

    async def _is_user_ready(self, job: MigrationJob) -> bool | None:
        """Whether the pod that took the place is ready; None if it has gone, or none did."""
        user = job.status.pod
        if user is None or job.status.phase.is_over or user.uid not in self.state.pods:
            return None
        wire = await self.api.find_pod(user.namespace, user.name)
        if wire is None or wire.metadata.uid != user.uid:
            return None
        return read_moved_pod(wire).is_available

    async def _is_asked(self, job: MigrationJob) -> bool:
        status = job.status
        may_be = JobStep.EVICTION in status.conditions or status.status == JobReason.PAUSED
        is_ended = status.phase.is_over or job.is_paused
        is_soft = self.evictions.policy_of(job) is EvictPolicy.SOFT_EVICTION
        return is_soft and may_be and is_ended and await self.api.is_asked(job)

    async def _reserve(self, job: MigrationJob) -> float | None:
        pod, now = self.places.pod_of(job), self.wall_clock()
        if pod is None:
            return _SHORT_SECONDS
        jobs = self.state.plugin(Migrations).jobs.values()
        left = find_left_nodes(jobs, job.workload, now, self.options)
        lifetime = max(forgotten_at(job, self.options) - now, 1.0)
        gang_key = "" if pod.gang is None else pod.gang.key
        wanted = WantedPlace(
            lifetime, left | {pod.node}, now, is_pinned=pod.pinned, gang=gang_key
        )  # fmt: skip
        problem = await self.api.reserve(job, wanted)
        if problem:
            failed = job.status.fail(JobReason.FAILED_CREATE_RESERVATION, problem)
            self._write(job, failed)
        return 1.0

    # --- what is said -----------------------------------------------------------------------------

    def _with_verdict(self, job: MigrationJob, verdict: Verdict) -> JobStatus | None:
        if verdict.reason is JobReason.MISSING_POD:
            return job.status.fail(verdict.reason, verdict.text)
        if verdict.answer is Answer.FORBID:
            reference = f'Pod "{job.pod.key}" is forbidden to migrate because it does not meet the '
            return job.status.fail(JobReason.FORBIDDEN, f"{reference}requirements: {verdict.text}")
        if verdict.answer is Answer.WAIT:
            return replace(job.status, status=WAITING, message=verdict.text)
        return None

    def _say_why_not(self, job: MigrationJob) -> None:
        """Say that nobody here moves the pod; a job that has started is left as it is."""
        if job.is_admitted or job.status.phase.is_over:
            return
        why = self.conflict or "the setting migration.enabled is off"
        reason = JobReason.CONFLICT if self.conflict else "Disabled"
        idle = job.status.with_step(JobStep.CONFLICT, reason, why)
        self._write(job, replace(idle, message=why))

    def _write(self, job: MigrationJob, status: JobStatus) -> None:
        fields: dict[str, Any] = {"phase": str(status.phase)}
        texts = {"status": status.status, "reason": status.reason, "message": status.message}
        fields |= {name: str(text) for name, text in texts.items() if text}
        if status.node:
            fields["nodeName"] = status.node
        if (pod := status.pod) is not None:
            fields["podRef"] = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        conditions = tuple(
            ConditionPatch(
                str(step), seen.is_true, str(seen.reason or step), seen.message, job.generation
            )
            for step, seen in status.conditions.items()
        )
        self.author.write_status(job, fields, conditions, is_urgent=True)
        if status != job.status:
            self._submitted[job.uid] = job.status, self.wall_clock()
        if status.phase is JobPhase.FAILED and not job.status.phase.is_over:
            self.events.record(
                ref_of_job(job),
                EventType.WARNING,
                action=_MIGRATING,
                reason=str(status.reason),
                note=status.message,
            )

    def announce(self, pod: Pod, job: MigrationJob) -> None:
        """Say on a pod that it was evicted for a move."""
        note = f"moved by PodMigrationJob {job.name}: {job.reason}"
        self.events.record(
            ref_of_pod(pod), EventType.NORMAL, action=_MIGRATING, reason="Descheduled", note=note
        )


def _is_ready(job: MigrationJob, group: Iterable[MigrationJob]) -> bool:
    """Whether all jobs of a group have places."""
    members = list(group)
    is_whole = not job.group or len(members) == job.group_size
    return is_whole and all(other.uid == job.uid or has_place(other) for other in members)


def _find_failed(job: MigrationJob, group: Iterable[MigrationJob]) -> str:
    """Return which job of a group has failed before anybody was evicted for it."""
    over = (JobPhase.FAILED, JobPhase.ABORTED)
    failed = (
        other for other in group if other.uid != job.uid and other.status.phase in over
    )  # fmt: skip
    return next(
        (
            f"the job {other.name} of its group has failed: {other.status.reason}"
            for other in failed
        ),
        "",
    )


def count_phases(state: ClusterState) -> dict[str, int]:
    """Return how many jobs there are in each phase."""
    counts = Counter(str(job.status.phase) for job in state.plugin(Migrations).jobs.values())
    return {str(phase): counts[str(phase)] for phase in JobPhase}
