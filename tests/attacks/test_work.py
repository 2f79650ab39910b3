"""What a tenant makes many of costs in proportion, never with the square: it stops nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.work import grows_with
from tests.suspend.jobs import JobCluster, make_job

from koord.core.model.constraints import PodLabels
from koord.core.model.pods import OwnerReference, PodPhase
from koord.core.model.run_terms import RunTerms
from koord.core.queue.plugin import QueueOptions
from koord.core.queue.run_time import QueueHints
from koord.core.suspend.plugin import SuspendOptions
from koord.core.suspend.reasons import JobNotPlannable
from koord.core.suspend.taking import INDEX_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"
GPU = "nvidia.com/gpu"
NOW = 1_800_000_000.0
LIMIT = (("queue", QueueHints(terms=RunTerms(max_run_time=3600))),)
ALMOST_IN_PROPORTION = 1.8


def make_jobs(nodes: int) -> JobCluster:
    return JobCluster(make_cluster(nodes, suspend=SuspendOptions(is_on=True)))


def pods_of_a_resumed_job(count: int) -> Callable[[], object]:
    """Pods of one Job that come to the room that is held for them."""
    jobs = make_jobs(count // 50)
    jobs.submit(make_job("large", count, gpus=0))
    assert jobs.start()
    jobs.see("large")
    assert len(jobs.held) == count
    pods = jobs.pods_of("large", count, gpus=0)
    for at, pod in enumerate(pods):
        labels = PodLabels("default", {INDEX_LABEL: str(at)})
        jobs.cluster.pods(replace(pod, profile=labels))
    return jobs.tick


def jobs_of_one_gang(count: int) -> Callable[[], object]:
    """Suspended Jobs that all name one gang, and quotas that are not there."""
    jobs = make_jobs(1)
    for at in range(count):
        labels = {GROUP: "one", QUOTA: f"none-{at % 4}"}
        jobs.submit(make_job(f"j{at}", 1, gpus=9, labels=labels))
    jobs.tick()
    jobs.wait(1)
    return jobs.tick


def make_queue() -> FakeCluster:
    cluster = make_cluster(1, queue=QueueOptions({"policy": "Backfill"}))
    cluster.state.advance(NOW)
    return cluster.quotas(make_quota("team", max={GPU: 999}))


def gang_with_a_limit(count: int) -> Callable[[], object]:
    """A gang that asks for a time limit, and waits."""
    cluster = make_queue()
    cluster.pod_groups(make_pod_group("default/large", count))
    pods = (make_pod(f"p{at}").gpu(9).created(NOW).says(LIMIT) for at in range(count))
    cluster.pods(*(pod.gang("default/large") for pod in pods))
    return lambda: cluster.step(NOW + 1)


def gang_that_failed(count: int) -> Callable[[], object]:
    """A gang of which half has failed and comes again, by one controller."""
    cluster = make_queue()
    cluster.pod_groups(make_pod_group("default/large", count // 2))
    owner = (OwnerReference("o", "Job", "batch/v1", "uid-o", is_controller=True),)
    for at in range(count):
        pod = make_pod(f"p{at}").gpu(9).created(NOW).says(LIMIT).gang("default/large").build()
        if at % 2:
            pod = replace(pod, node="n0", phase=PodPhase.FAILED, started=NOW - 99, finished=NOW - 9)
        cluster.pods(replace(pod, owners=owner))
    return lambda: cluster.step(NOW + 1)


def pods_of_one_owner(count: int) -> Callable[[], object]:
    """Pods with a time limit that all name one owner; half of them have failed."""
    cluster = make_queue()
    owner = (OwnerReference("o", "Thing", "x.io/v1", "uid-o", is_controller=True),)
    for at in range(count):
        pod = make_pod(f"p{at}").gpu(9).created(NOW).says(LIMIT).build()
        if at < count // 2:
            pod = replace(pod, node="n0", phase=PodPhase.FAILED, started=NOW - 99, finished=NOW - 9)
        cluster.pods(replace(pod, owners=owner))
    return lambda: cluster.step(NOW + 1)


@pytest.mark.parametrize(
    "make",
    [
        pods_of_a_resumed_job, jobs_of_one_gang, gang_with_a_limit, gang_that_failed,
        pods_of_one_owner,
    ],
)  # fmt: skip
def test_many_cost_in_proportion(make: Callable[[int], Callable[[], object]]) -> None:
    assert grows_with(50, make) < ALMOST_IN_PROPORTION


def test_jobs_that_name_one_gang_are_left_suspended_where_too_many_do() -> None:
    jobs = make_jobs(4)
    for at in range(257):
        jobs.submit(make_job(f"j{at}", 1, gpus=0, labels={GROUP: "one"}))
    assert jobs.start() == []
    assert jobs.waiting == []
    reason = jobs.plugin.reason_for(jobs.plugin.jobs["uid-j0"])
    assert isinstance(reason, JobNotPlannable)
    assert reason.problem == "257 Jobs that wait name its gang, and at most 256 start together"
    jobs.plugin.remove(jobs.plugin.jobs["uid-j256"])
    assert len(jobs.start()) == 256


def test_pods_of_another_namespace_are_none_of_a_job() -> None:
    jobs = make_jobs(1)
    jobs.submit(make_job("mine", 2))
    assert jobs.start()
    jobs.see("mine")
    thief = replace(jobs.pods_of("mine", 1)[0], namespace="evil", name="thief", uid="thief")
    jobs.cluster.pods(thief)
    jobs.tick()
    assert len(jobs.held) == 2
