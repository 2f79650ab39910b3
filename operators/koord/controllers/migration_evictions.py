"""The policy of migration: evicts pods for whom a place is reserved elsewhere.

Which pods are to go is said by their jobs: a job that waits for the eviction has written so, and
keeps its place until this policy has nothing under way for it. So nothing has to be found after a
crash but the jobs. Jobs of a group are one plan: all their pods go, or none, and budgets are asked
for all of them together.

Right before a pod is evicted its place is looked at again; no other task runs in between.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from typing_extensions import override

from koord.controllers.eviction import EvictionController, EvictionPolicy, EvictionRun
from koord.controllers.migration_places import MigrationPlaces
from koord.core.eviction.limits import EvictionRate, Pauses
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.migration.model import EvictPolicy, JobPhase, MigrationJob, MigrationOptions
from koord.core.model.pods import Pod
from koord.isolation import Isolation
from koord.kube.evictor import Eviction, Evictor

log = logging.getLogger(__name__)

MIGRATION: Final = "migration"
RETRY_SECONDS: Final = 5.0
"""When an eviction that budgets refused is tried again; each refusal doubles it."""
LONGEST_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class MigrationRun(EvictionRun):
    """The pods of one job, or of the jobs of a group, that are being evicted."""

    jobs: tuple[str, ...] = ()
    """The uids of the jobs, in the order of the pods."""


@dataclass(slots=True)
class MigrationEvictions(EvictionPolicy[MigrationRun]):
    """Evicts what jobs say; ``may_evict`` is False while nothing is to be done at all."""

    name: ClassVar = MIGRATION
    controller: EvictionController
    evictor: Evictor
    places: MigrationPlaces
    options: MigrationOptions
    rate: EvictionRate
    may_evict: Callable[[], bool]
    announce: Callable[[Pod, MigrationJob], None] = field(default=lambda *_: None)
    interval: float = 0.5
    isolated: Isolation = field(default_factory=lambda: Isolation("migration"))
    _pauses: Pauses = field(default_factory=lambda: Pauses(RETRY_SECONDS, LONGEST_PAUSE_SECONDS))
    _asked: set[str] = field(default_factory=set)
    """Pods that were asked to end by themselves."""

    @property
    @override
    def is_ready(self) -> bool:
        return self.may_evict()

    def is_busy_with(self, job: MigrationJob) -> bool:
        """Whether the pod of a job is about to be evicted, or was and is still seen."""
        is_asked_only = self.policy_of(job) is EvictPolicy.SOFT_EVICTION
        was_evicted = job.pod.uid in self.controller.evicted and not is_asked_only
        return was_evicted or self.controller.find(self, job.key) is not None

    def policy_of(self, job: MigrationJob) -> EvictPolicy:
        """Return how the pod of a job ends: what its label says, else the job, else the setting."""
        pod = self.controller.state.pods.get(job.pod.uid)
        labels: Mapping[str, str] = {} if pod is None else dict(pod.profile.labels)
        for text in (labels.get("koordinator.sh/evict-policy", ""), job.policy):
            if text in {*EvictPolicy}:
                chosen = EvictPolicy(text)
                break
        else:
            chosen = self.options.default_policy
        is_refused = chosen is EvictPolicy.DELETE and not self.options.may_delete
        return EvictPolicy.EVICTION if is_refused else chosen

    @override
    async def look(self) -> None:
        """Begin what jobs wait for, one plan for each job or group."""
        now, seen = self.controller.clock(), set[str]()
        for job in sorted(self.places.jobs.values(), key=lambda job: (job.created, job.name)):
            if not job.status.is_evicting or job.key in seen:
                continue
            seen.add(job.key)
            with self.isolated.of(job.key, now):
                self._begin(self.places.group_of(job), job.key, now)
        self._asked &= self.controller.state.pods.keys()

    def _begin(self, jobs: Sequence[MigrationJob], key: str, now: float) -> None:
        if self._pauses.until(key) > now or self.controller.find(self, key) is not None:
            return
        if not self._is_complete(jobs):
            return
        due = [(job, pod) for job in jobs if (pod := self._find_due(job)) is not None]
        if not due or not all(self.places.has_place(job) for job, _ in due):
            return
        plan = EvictionPlan(self.name, key, tuple(pod for _, pod in due))
        until = self.controller.limits.wait_until(plan, now)
        until = self.rate.take(len(due), now) if until <= now else until
        if until > now:
            self._pauses.note(key, now, until - now)
            return
        self.controller.limits.note(plan, now)
        run = MigrationRun(plan, now, waits=False, jobs=tuple(job.uid for job, _ in due))
        self.controller.begin(self, run)

    def _is_complete(self, jobs: Sequence[MigrationJob]) -> bool:
        """Whether all jobs that move together want their pods to go, or have seen them go."""
        is_agreed = all(
            job.status.phase is JobPhase.RUNNING
            and not job.is_paused
            and (job.status.is_evicting or job.status.evicted_at is not None)
            for job in jobs
        )
        return is_agreed and (not jobs[0].group or len(jobs) == jobs[0].group_size)

    def _find_due(self, job: MigrationJob) -> Pod | None:
        pod = self.places.pod_of(job)
        is_due = pod is not None and job.status.is_evicting and not pod.gone_by
        is_done = job.pod.uid in self.controller.evicted or job.pod.uid in self._asked
        return pod if is_due and not is_done else None

    @override
    async def prepare(self, run: MigrationRun) -> Outcome | None:
        if len(run.plan.pods) == 1:
            return None
        together = await self.evictor.check(run.plan.pods)
        return None if together.is_done else Outcome.PROTECTED

    @override
    async def mark(self, run: MigrationRun, pod: Pod, seconds: float) -> bool:
        return True  # in the moment in which it goes; its job says so already

    @override
    def judge(self, run: MigrationRun) -> Outcome | None:
        """Return why the pods stay: a job has changed its mind, or a place is lost."""
        jobs = [self.places.jobs.get(uid) for uid in run.jobs]
        is_wanted = all(
            job is not None and job.status.is_evicting and not job.is_paused
            and self.places.has_place(job)
            for job in jobs
        )  # fmt: skip
        return None if is_wanted else Outcome.NOT_NEEDED

    @override
    async def evict(self, run: MigrationRun, pods: Sequence[Pod]) -> list[Pod]:
        job_of = dict(zip((pod.uid for pod in run.plan.pods), run.jobs, strict=True))

        async def evict(pod: Pod) -> Eviction:
            job = self.places.jobs.get(job_of[pod.uid])
            return Eviction.UNKNOWN if job is None else await self._evict(pod, job)

        return await self.controller.evict_each(self.name, pods, evict)

    async def _evict(self, pod: Pod, job: MigrationJob) -> Eviction:
        policy, text = self.policy_of(job), f"moved by {job.name}: {job.reason}"
        if policy is EvictPolicy.SOFT_EVICTION:
            outcome = await self.evictor.ask_to_end(pod, text)
            if outcome.is_done:
                self._asked.add(pod.uid)
        else:
            deletes = policy is EvictPolicy.DELETE
            outcome = await self.evictor.migrate(pod, text, deletes=deletes, grace=job.grace)
        if outcome.is_done:
            self.announce(pod, job)
        return outcome

    @override
    async def cancel(self, run: MigrationRun, outcome: Outcome) -> None:
        """Leave the pods: those that were refused are unmarked already."""

    @override
    def note_end(self, run: MigrationRun, outcome: Outcome) -> None:
        now = self.controller.clock()
        if outcome is Outcome.ENDED:
            self._pauses.note(run.plan.key, now, 1.0)  # until the watch shows it
            self._pauses.drop_old(now)
        elif outcome is not Outcome.NOT_NEEDED:
            self._pauses.note(run.plan.key, now)
