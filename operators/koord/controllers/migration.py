"""Moves pods, step by step: for the operator ``podmigrationjob``.

``MigrationPolicy`` looks at a job whenever it, its pod or its reservation changes, and makes the
next write that ``core/migration/steps.py`` says. ``MigrationArbiter`` lets waiting jobs start,
within limits. Both know objects only, so another process goes on where one has ended. Pods are
evicted by ``MigrationEvictions``, which is asked here whether one is about to go.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
    MigratingGang,
    MigrationCandidate,
    Verdict,
    arbitrate,
)
from koord.core.migration.model import (
    EvictPolicy,
    JobPhase,
    JobReason,
    JobStatus,
    JobStep,
    MigrationJob,
    MigrationOptions,
    MovedPod,
    MoveOrigin,
    PodReference,
)
from koord.core.migration.plugin import Migrations
from koord.core.migration.rate import wait_until
from koord.core.migration.steps import (
    Act,
    SeenCluster,
    SetStatus,
    Wait,
    find_left_nodes,
    find_recently_moved,
    forgotten_at,
    next_step,
)
from koord.core.migration.workload import Workload, limit_of
from koord.core.model.pods import Handling, Pod
from koord.core.reservation.plugin import Reservations
from koord.isolation import Isolation
from koord.kube.errors import KubeError
from koord.kube.events import EventRecorder, EventType
from koord.kube.migrations import MigrationApi, WantedPlace, ref_of_job
from koord.kube.objects import ref_of_pod
from koord.kube.status import ConditionPatch
from koord.kube.translate.migration import WireMovedPod, read_moved_pod

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
CONFLICT_SECONDS: Final = 30.0


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
        )

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
        left = find_left_nodes(jobs, job.origin.workload, now, self.options)
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
    steps = (JobStep.RESERVATION_SCHEDULED, JobStep.EVICTION)
    return is_whole and all(
        other.uid == job.uid or any(step in other.status.conditions for step in steps)
        for other in members
    )


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


@dataclass(slots=True)
class MigrationArbiter:
    """Lets waiting jobs start. ``on_verdict`` has the status of a job written."""

    policy: MigrationPolicy
    is_ready: Callable[[], bool]
    interval: float = 0.5
    on_verdict: Callable[[str], None] = field(default=lambda _: None)
    _admitted: dict[str, MigrationJob] = field(default_factory=dict)
    """Those that have just started, until the watch shows it."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("arbitration"))
    _checked_at: float = float("-inf")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            if self.is_ready() and self.policy.options.is_on:
                with self._isolated.of("round", self.policy.wall_clock()):
                    await self._try()

    async def _try(self) -> None:
        try:
            await self.look()
        except KubeError as error:
            log.warning("Cannot arbitrate", extra={"problem": str(error)})

    async def look(self) -> None:
        """One round: read what the waiting jobs move, judge, and let them start."""
        jobs = self.policy.state.plugin(Migrations).jobs
        self._admitted = {
            uid: job
            for uid, job in self._admitted.items()
            if uid in jobs and not jobs[uid].is_admitted
        }
        self.policy.verdicts = {uid: v for uid, v in self.policy.verdicts.items() if uid in jobs}
        if not jobs:
            return
        await self._check_conflict(jobs)
        waiting = [job for job in jobs.values() if self._is_waiting(job)]
        if not waiting or self.policy.conflict:
            return
        candidates = await self._read_candidates(waiting)
        active = [*self.policy.state.plugin(Migrations).active(), *self._admitted.values()]
        verdicts = arbitrate(candidates, active, self._resolve_options())
        for candidate in candidates:
            verdict = verdicts[candidate.job.uid]
            if verdict.answer is Answer.START:
                verdict = self._slow_down(candidate, active)
            if verdict.answer is Answer.START:
                await self._admit(candidate)
            if self.policy.verdicts.get(candidate.job.uid) != verdict:
                self.policy.verdicts[candidate.job.uid] = verdict
                self.on_verdict(candidate.job.uid)

    def _is_waiting(self, job: MigrationJob) -> bool:
        is_over = job.status.phase.is_over or job.problem or job.is_paused
        is_started = job.is_admitted or job.uid in self._admitted
        now = self.policy.wall_clock()
        is_late = bool(job.ttl) and now >= job.created + (job.ttl or 0.0)
        return not is_over and not is_started and not is_late and not is_of_descheduler(job)

    async def _check_conflict(self, jobs: Mapping[str, MigrationJob]) -> None:
        """Find out whether Koordinator's descheduler runs here, too."""
        now = self.policy.wall_clock()
        if now < self._checked_at + CONFLICT_SECONDS:
            return
        self._checked_at = now
        foreign = sorted(job.name for job in jobs.values() if is_of_descheduler(job))
        before = self.policy.conflict
        if foreign:
            self.policy.conflict = f"Koordinator's descheduler has made the job {foreign[0]}"
        elif await self.policy.api.finds_descheduler():
            self.policy.conflict = "Koordinator's descheduler holds its Lease koord-descheduler"
        else:
            self.policy.conflict = ""
        if self.policy.conflict != before:
            for uid in jobs:
                self.on_verdict(uid)

    async def _read_candidates(self, jobs: Iterable[MigrationJob]) -> list[MigrationCandidate]:
        by_namespace: dict[str, list[WireMovedPod]] = {}
        candidates: list[MigrationCandidate] = []
        for job in jobs:
            namespace = job.pod.namespace
            if namespace not in by_namespace:
                by_namespace[namespace] = await self.policy.api.list_pods(namespace)
            candidates.append(await self._read_candidate(job, by_namespace[namespace]))
        return candidates

    async def _read_candidate(
        self, job: MigrationJob, pods: list[WireMovedPod]
    ) -> MigrationCandidate:
        named = (pod for pod in pods if pod.metadata.name == job.pod.name)
        wire = next(named, None)
        if wire is None or (job.pod.uid and wire.metadata.uid != job.pod.uid):
            return MigrationCandidate(job)
        seen = self.policy.state.pods.get(wire.metadata.uid)
        gang = _find_gang(self.policy.state, seen)
        is_ours = seen is not None and (
            seen.handling is not Handling.NOT_OURS or seen.recorded is not None
        )
        pod = read_moved_pod(wire, is_ours=is_ours, gang="" if gang is None else gang.key)
        if not pod.node:
            return MigrationCandidate(
                job, pod, forbidden="it has no node yet: there is nothing to move"
            )
        controller = pod.controller
        workload = (
            Workload(pod.uid, pod.key, 1)
            if controller is None
            else await self.policy.api.find_workload(controller, pod.namespace, pods)
        )
        return MigrationCandidate(job, pod, workload, gang, self._find_memory(pod))

    def _resolve_options(self) -> MigrationOptions:
        """Return the options with the value of the PriorityClass that they name."""
        options = self.policy.options
        named = self.policy.state.plugin(Reservations).classes.get(options.threshold_class)
        if named is None or options.priority_threshold is not None:
            return options
        return replace(options, priority_threshold=named.value)

    def _find_memory(self, pod: MovedPod) -> str:
        jobs, now = self.policy.state.plugin(Migrations).jobs.values(), self.policy.wall_clock()
        moved = find_recently_moved(jobs, pod.uid, now, self.policy.options)
        if moved is None or pod.evicts_protected:
            return ""
        return f"the job {moved.name} has moved it here not long ago"

    def _slow_down(self, candidate: MigrationCandidate, active: Iterable[MigrationJob]) -> Verdict:
        """Return the verdict by the rates per workload and namespace."""
        job, pod, options = candidate.job, candidate.pod, self.policy.options
        if pod is None or job.evicts_protected or job.group:
            return Verdict(Answer.START)
        now = self.policy.wall_clock()
        past = [*self.policy.state.plugin(Migrations).jobs.values(), *active]
        replicas = candidate.workload.replicas if candidate.workload is not None else 0
        own = candidate.workload_uid
        of_workload = {job.uid: job for job in past if job.origin.workload == own}
        of_namespace = {job.uid: job for job in past if job.pod.namespace == pod.namespace}
        for limit, same in (
            (options.workload_limit, of_workload),
            (options.namespace_limit, of_namespace),
        ):
            if limit is None:
                continue
            is_computed = limit.most in {"", "0"}
            if is_computed and same is of_namespace:
                continue
            written = options.most_per_workload if is_computed else limit.most
            most = limit_of(written, replicas, compat=options.compat)
            most = most if same is of_workload else int(limit.most)
            times = [at for other in same.values() if (at := _time_of(other, now)) is not None]
            until = wait_until(times, most, limit.seconds, limit.burst, now)
            if until > now:
                what = "workload" if same is of_workload else f"namespace {pod.namespace}"
                text = f"ObjectLimiter: {most} pods of its {what} in {limit.seconds:.0f} s"
                return Verdict(Answer.WAIT, text)
        return Verdict(Answer.START)

    async def _admit(self, candidate: MigrationCandidate) -> None:
        job, pod = candidate.job, candidate.pod
        if self.policy.options.is_dry:
            return
        uid = job.pod.uid if pod is None else pod.uid
        origin = (
            MoveOrigin() if pod is None else MoveOrigin(pod.node, candidate.workload_uid, pod.gang)
        )
        await self.policy.api.admit(job, uid, origin)
        reference = PodReference(job.pod.namespace, job.pod.name, uid)
        self._admitted[job.uid] = replace(job, is_admitted=True, origin=origin, pod=reference)


def _time_of(job: MigrationJob, now: float) -> float | None:
    """Return when a job has moved its pod; now if it is about to."""
    return now if job.is_active and job.status.evicted_at is None else job.status.evicted_at


def _find_gang(state: ClusterState, pod: Pod | None) -> MigratingGang | None:
    """Return the gang of a pod, with the members that run."""
    if pod is None or pod.gang is None:
        return None
    key = pod.gang.key
    running = frozenset(
        member.uid
        for member in state.gangs.members(key).values()
        if member.node and member.is_alive and member.handling is not Handling.RESERVE
    )
    spec = state.gangs.spec(key)
    return MigratingGang(key, running, 0 if spec is None else spec.min_member)


def count_phases(state: ClusterState) -> dict[str, int]:
    """Return how many jobs there are in each phase."""
    counts = Counter(str(job.status.phase) for job in state.plugin(Migrations).jobs.values())
    return {str(phase): counts[str(phase)] for phase in JobPhase}
