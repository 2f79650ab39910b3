"""Loops of jobs that move pods."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.cluster import make_cluster
from tests.isolation.plays import NAMES, Patch, is_bad, play

from koord.controllers.migration_arbiter import MigrationArbiter
from koord.controllers.migration_evictions import MigrationEvictions
from koord.controllers.migration_places import MigrationPlaces
from koord.core.engine.state import ClusterState
from koord.core.eviction.limits import EvictionRate
from koord.core.migration.arbitration import MigrationCandidate
from koord.core.migration.model import (
    JobPhase,
    JobStatus,
    JobStep,
    MigrationJob,
    MigrationOptions,
    MovedPod,
    PodReference,
)
from koord.core.migration.plugin import Migrations
from koord.core.migration.workload import Workload
from koord.core.model.pods import OwnerReference

if TYPE_CHECKING:
    from koord.controllers.migration import MigrationPolicy

ON = MigrationOptions(is_on=True)


def make_jobs(status: JobStatus = JobStatus()) -> ClusterState:  # noqa: B008 - a frozen value
    state = make_cluster().state
    for name in NAMES:
        job = MigrationJob(name, name, PodReference("ml", name, f"uid-{name}"), status=status)
        state.plugin(Migrations).upsert(job)
    return state


@play("migration")
def evictions(patch: Patch) -> list[str]:
    running = JobStatus(JobPhase.RUNNING).with_step(JobStep.EVICTION, is_true=False)
    state, seen = make_jobs(running), list[str]()
    controller = SimpleNamespace(clock=lambda: 0.0, state=state)
    policy = MigrationEvictions(
        cast("Any", controller),
        cast("Any", None),
        MigrationPlaces(state, ON),
        ON,
        EvictionRate(10.0, 1),
        lambda: True,
    )

    def begin(_: object, jobs: Sequence[MigrationJob], key: str, now: float) -> None:
        if is_bad(jobs[0]):
            raise ZeroDivisionError
        seen.append(jobs[0].name)

    patch.setattr(MigrationEvictions, "_begin", begin)
    asyncio.run(policy.look())
    return seen


class _Api:
    """Nothing is there."""

    async def finds_descheduler(self) -> bool:
        return False

    async def list_pods(self, _: str) -> list[Any]:
        return []


@play("arbitration")
def arbitration(patch: Patch) -> list[str]:
    state, seen = make_jobs(), list[str]()
    policy = SimpleNamespace(
        state=state, api=_Api(), options=ON, verdicts={}, conflict="", wall_clock=lambda: 0.0
    )

    async def read(_: object, job: MigrationJob, *_more: object) -> MigrationCandidate:
        if is_bad(job):
            raise ZeroDivisionError
        owner = OwnerReference(job.name, "ReplicaSet", "apps/v1", job.name, is_controller=True)
        pod = MovedPod("ml", job.name, job.pod.uid, job.name, (owner,), is_ours=True)
        return MigrationCandidate(job, pod, Workload(job.name, job.name, 9))

    async def admit(_: object, candidate: MigrationCandidate) -> None:
        seen.append(candidate.job.name)

    patch.setattr(MigrationArbiter, "_read_candidate", read)
    patch.setattr(MigrationArbiter, "_admit", admit)
    asyncio.run(MigrationArbiter(cast("MigrationPolicy", policy), lambda: True).look())
    return seen
