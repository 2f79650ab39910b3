"""Devices that are held for the pods of a resumed Job are those that its pods get."""

from __future__ import annotations

from itertools import chain

from tests.builders import make_node, make_pod
from tests.device.nodes import report
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster

from koord.core.device.allocation import AllocatedDevices
from koord.core.device.plugin import Devices
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY_RATIO


def device_cluster() -> JobCluster:
    jobs = make_job_cluster(0)
    node = make_node("n0").gpu(8).resource(GPU_CORE, 800).resource(GPU_MEMORY_RATIO, 800)
    jobs.cluster.nodes(node)
    jobs.cluster.state.plugin(Devices).upsert(report("n0", None))
    return jobs


def minors(jobs: JobCluster) -> dict[str, list[int]]:
    return {
        pod.name: [share.minor for share in allocation.shares if share.kind == GPU]
        for pod in jobs.cluster.state.pods.values()
        for allocation in pod.allocations
        if isinstance(allocation, AllocatedDevices)
    }


def test_pods_get_devices_that_nobody_else_had_meanwhile() -> None:
    jobs = device_cluster()
    jobs.submit(make_job("train", 2, gpus=2))
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    held = minors(jobs)
    assert sorted(chain(*held.values())) == [0, 1, 2, 3]
    jobs.cluster.pods(make_pod("other").gpu(4).created(0))
    assert jobs.tick() == ["other"]
    jobs.cluster.pods(*jobs.pods_of("train", 2, gpus=2))
    assert len(jobs.tick()) == 2
    given = minors(jobs)
    assert sorted(chain(*given.values())) == list(range(8))
    assert sorted(given["train-0-x0"] + given["train-1-x0"]) == [0, 1, 2, 3]


def test_after_a_restart_their_number_is_held() -> None:
    jobs = device_cluster()
    jobs.submit(make_job("train", 2, gpus=2))
    jobs.start()
    again = JobCluster(device_cluster().cluster, jobs.store, jobs.now)
    again.see("train")
    again.cluster.pods(make_pod("large").gpu(6).created(0), make_pod("small").gpu(4).created(1))
    assert again.tick() == ["small"]
    again.cluster.pods(*again.pods_of("train", 2, gpus=2))
    assert again.tick() == ["train-0-x0", "train-1-x0"]
