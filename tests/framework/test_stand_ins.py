"""Demands for pods that do not exist yet: a toy starts suspended jobs once all their pods fit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster
from tests.framework.object_store import ObjectStore

from koord.controllers.commit import Commit, commit
from koord.core.engine.allocations import CycleChanges
from koord.core.engine.plugin import Hold, Holding, Plugin
from koord.core.model.plan import ObjectWrite
from koord.core.model.pods import Handling

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from koord.core.engine.arrays import Ints
    from koord.core.engine.cycle import Cycle
    from koord.core.engine.plugin import Draft, Session
    from koord.core.model.plan import Assignment, Plan
    from koord.core.model.pods import Pod, PodShape

KEY = "default/job"


@dataclass
class SuspendedJobs(Plugin):
    """Has stand-ins planned for the pods of a job, whose room the pods get that come."""

    name = "jobs"
    waiting: dict[str, str] = field(default_factory=dict)
    """Name of a pod that is to come -> uid of its stand-in."""

    def submit(self, count: int) -> None:
        for at in range(count):
            builder = make_pod(f"stand-in-{at}").gang(KEY).gpu(1).handling(Handling.STAND_IN)
            pod = replace(builder.build(), is_gated=False, never_preempts=True, is_protected=True)
            self.waiting[f"job-{at}"] = pod.uid
            self.view.upsert_pod(pod)

    def open(self, cycle: Cycle) -> SuspendedJobsSession:
        stand_ins = [self.view.pods[uid] for uid in self.waiting.values()]
        return SuspendedJobsSession(cycle, {pod.uid: pod for pod in stand_ins if pod.node})

    def note_plan(self, session: Session, plan: Plan) -> None:
        """Take away the stand-ins of pods that have nodes now."""
        assert isinstance(session, SuspendedJobsSession)
        for name, uid in list(self.waiting.items()):
            if uid in session.used:
                self.view.remove_pod(self.waiting.pop(name))

    def pre_bind(self, assignment: Assignment) -> Iterable[ObjectWrite]:
        if assignment.pod.handling is Handling.STAND_IN:
            yield ObjectWrite("/job", {"/spec/suspend": False}, {"/spec/suspend": True})


class SuspendedJobsSession(Holding):
    """Offers the room of stand-ins to the pods of their job, each to one."""

    name = "jobs"

    def __init__(self, cycle: Cycle, stand_ins: dict[str, Pod]) -> None:
        self._cycle, self._stand_ins = cycle, stand_ins
        self.used = CycleChanges[bool](cycle.undo)

    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        is_of_job = pod.gang is not None and pod.gang.key == KEY
        return KEY if is_of_job and pod.handling is not Handling.STAND_IN else None

    def holds(self, shape: PodShape, rows: Ints) -> Mapping[int, Sequence[tuple[Hold, ...]]]:
        holds: dict[int, list[tuple[Hold, ...]]] = {}
        for uid, pod in self._stand_ins.items():
            row = self._cycle.table.row_of[pod.node]
            if uid not in self.used and row in rows:
                holds.setdefault(row, []).append((Hold(uid, 1),))
        return holds

    def reserve(self, draft: Draft) -> None:
        for hold in draft.holds:
            self._cycle.remove([self._stand_ins[hold.uid]])
            self.used.change(hold.uid, True)


class Binder:
    """Has no pod to write to."""

    def __init__(self, store: ObjectStore) -> None:
        self.objects = store.writer

    async def bind(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("there is no pod yet")

    release = read_release = read_bind = bind


class Alone:
    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def start(cluster: FakeCluster, store: ObjectStore) -> Commit:
    """Plan, assume and carry out."""
    units = {unit.key: unit for unit in cluster.take()}
    outcome = cluster.decide(units.values())
    cluster.assume(outcome)
    (placement,) = outcome.placements
    placement = replace(placement, writes=cluster.state.writes_before(placement))
    unit = units[placement.unit]
    return asyncio.run(commit(Binder(store), unit, placement, Alone(), Alone()))  # type: ignore[arg-type]


def job_cluster(jobs: SuspendedJobs, gpus: int) -> FakeCluster:
    cluster = make_cluster(1, gpus=gpus, more_plugins=[jobs])
    cluster.pod_groups(make_pod_group(KEY, 3))
    jobs.submit(3)
    return cluster


def test_job_without_room_for_all_of_it_stays_suspended() -> None:
    cluster = job_cluster(SuspendedJobs(), gpus=2)
    assert cluster.step() == []
    assert cluster.reason().is_capacity


def test_job_is_started_and_its_room_is_kept_until_its_pods_come() -> None:
    jobs, store = SuspendedJobs(), ObjectStore(job={"spec": {"suspend": True}})
    cluster = job_cluster(jobs, gpus=3)
    outcome = start(cluster, store)
    assert store.objects["/job"] == {"spec": {"suspend": False}}
    assert (len(outcome.left_to_others), outcome.bound, outcome.not_bound) == (3, set(), set())
    cluster.pods(make_pod("thief").gpu(1))
    assert cluster.step() == []
    cluster.pods(*(make_pod(f"job-{at}").gang(KEY).gpu(1).created(at) for at in range(3)))
    assert sorted(cluster.step()) == ["job-0", "job-1", "job-2"], "before those that waited longer"
    assert jobs.waiting == {}


def test_job_that_somebody_else_has_started_gives_its_room_back() -> None:
    store = ObjectStore(job={"spec": {}})
    cluster = job_cluster(SuspendedJobs(), gpus=3)
    outcome = start(cluster, store)
    assert len(outcome.not_bound) == len(outcome.outdated) == 3
    assert store.objects["/job"] == {"spec": {}}
