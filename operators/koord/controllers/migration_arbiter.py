"""Lets waiting PodMigrationJobs start: reads what they would move, judges, writes that they may.

What is judged, and by which limits, stands in ``core/migration``. What has started is read from the
jobs, and remembered here only until the watch shows it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from koord.controllers.migration import MigrationPolicy, is_of_descheduler
from koord.core.engine.state import ClusterState
from koord.core.eviction.mobility import labels_of_node, resolve_options
from koord.core.migration.arbitration import (
    Answer,
    MigratingGang,
    MigrationCandidate,
    Verdict,
    arbitrate,
)
from koord.core.migration.memory import find_recently_moved
from koord.core.migration.model import (
    MigrationJob,
    MovedPod,
    MoveOrigin,
    PodReference,
)
from koord.core.migration.plugin import Migrations
from koord.core.migration.rate import wait_until
from koord.core.migration.workload import Workload, limit_of
from koord.core.model.pods import Handling, OwnerReference, Pod
from koord.isolation import Isolation
from koord.kube.errors import KubeError
from koord.kube.translate.migration import WireMovedPod, read_moved_pod

log = logging.getLogger(__name__)

CONFLICT_SECONDS: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 5.0
"""When jobs are judged again that wait, although none has come, started or ended: each time reads
all pods of their namespaces."""


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
    _judged: tuple[float, object] = (float("-inf"), None)
    """When jobs were judged last, and which ones beside which."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            if self.is_ready() and self.policy.options.is_on:
                with _later():
                    await self.look()

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
        active = [*self.policy.state.plugin(Migrations).active(), *self._admitted.values()]
        now, (at, before) = self.policy.wall_clock(), self._judged
        judged = frozenset(job.uid for job in waiting), frozenset(job.uid for job in active)
        if judged == before and at <= now < at + LOOK_AGAIN_SECONDS:
            return
        self._judged = now, judged
        candidates = await self._read_candidates(waiting)
        verdicts = arbitrate(
            candidates, active, resolve_options(self.policy.state, self.policy.options)
        )
        for candidate in candidates:
            with self._isolated.of(candidate.job.uid, self.policy.wall_clock()), _later():
                await self._settle(candidate, verdicts[candidate.job.uid], active)

    async def _settle(
        self, candidate: MigrationCandidate, verdict: Verdict, active: Iterable[MigrationJob]
    ) -> None:
        """Let a job start, or have it said why not."""
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
        workloads: dict[tuple[str, OwnerReference], Workload] = {}
        candidates: list[MigrationCandidate] = []
        now = self.policy.wall_clock()
        for job in jobs:
            namespace = job.pod.namespace
            if self._isolated.rests(job.uid, now):
                continue
            with self._isolated.of(job.uid, now), _later():
                if namespace not in by_namespace:
                    by_namespace[namespace] = await self.policy.api.list_pods(namespace)
                pods = by_namespace[namespace]
                candidates.append(await self._read_candidate(job, pods, workloads))
        return candidates

    async def _read_candidate(
        self,
        job: MigrationJob,
        pods: list[WireMovedPod],
        workloads: dict[tuple[str, OwnerReference], Workload],
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
        pod = replace(pod, node_labels=labels_of_node(self.policy.state, pod.node))
        if not pod.node:
            return MigrationCandidate(
                job, pod, forbidden="it has no node yet: there is nothing to move"
            )
        if (controller := pod.controller) is None:
            workload = Workload(pod.uid, pod.key, 1)
        elif (counted := workloads.get((pod.namespace, controller))) is not None:
            workload = counted
        else:
            workload = await self.policy.api.find_workload(controller, pod.namespace, pods)
            workloads[pod.namespace, controller] = workload
        return MigrationCandidate(job, pod, workload, gang, self._find_memory(pod))

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
        own = candidate.workload_key
        of_workload = {job.uid: job for job in past if job.workload == own}
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
            MoveOrigin()
            if pod is None
            else MoveOrigin(pod.node, candidate.workload_uid, pod.gang, pod.created)
        )
        await self.policy.api.admit(job, uid, origin)
        reference = PodReference(job.pod.namespace, job.pod.name, uid)
        self._admitted[job.uid] = replace(job, is_admitted=True, origin=origin, pod=reference)


def _time_of(job: MigrationJob, now: float) -> float | None:
    """Return when a job has moved its pod; now if it is about to."""
    return now if job.is_active and job.status.evicted_at is None else job.status.evicted_at


@contextmanager
def _later() -> Iterator[None]:
    """Leave what the API server does not answer to the next round: it is no defect."""
    try:
        yield
    except KubeError as error:
        log.warning("Cannot arbitrate", extra={"problem": str(error)})


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
