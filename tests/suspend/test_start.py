"""Resumed Jobs are seen through: their pods come, or they are suspended again, longer each time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import make_pod
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster

from koord.api.keys import operators
from koord.controllers.suspend import JobStartPolicy
from koord.core.suspend.model import LONGEST_PAUSE_SECONDS, pause_after
from koord.core.suspend.reasons import JobPlanned


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.calls.append((name, args, more))

    @property
    def reasons(self) -> list[str]:
        return [more["reason"] for name, _, more in self.calls if name == "record"]

    @property
    def texts(self) -> list[str]:
        return [args[1].conditions[0].message for name, args, _ in self.calls if name == "submit"]


class Watch:
    """The policy beside a cluster, as the loop calls it."""

    def __init__(self, jobs: JobCluster) -> None:
        self.jobs, self.events, self.writer = jobs, Recorder(), Recorder()
        self.policy = JobStartPolicy(
            jobs.cluster.state,
            jobs.store.writer,
            self.writer,  # type: ignore[arg-type]
            self.events,  # type: ignore[arg-type]
            self.reason_for,
            lambda _: None,
            lambda: jobs.now,
        )
        self.policy.changed()

    def reason_for(self, pod: Any) -> Any:
        blocked = self.jobs.cluster.queue.blocked.values()
        return next((b.reason for b in blocked if pod.uid in {p.uid for p in b.pods}), None)

    def look(self, name: str = "train") -> float | None:
        self.jobs.cluster.state.advance(self.jobs.now)
        seconds = asyncio.run(self.policy.update(f"uid-{name}"))
        self.jobs.see(name)
        return seconds


def start(gpus: int = 4) -> tuple[JobCluster, Watch]:
    jobs = make_job_cluster(gpus=gpus)
    watch = Watch(jobs)
    jobs.submit(make_job("train", 4))
    assert jobs.start()
    jobs.see("train")
    return jobs, watch


def annotations(jobs: JobCluster) -> dict[str, str]:
    shown: dict[str, str] = jobs.job("train")["metadata"]["annotations"]
    return shown


def test_job_whose_pods_have_come_keeps_no_record() -> None:
    jobs, watch = start()
    assert watch.look() == 1.0
    jobs.cluster.pods(*jobs.pods_of("train", 4))
    jobs.tick()
    assert watch.look() is None
    assert annotations(jobs).keys() == {operators.ADMISSION}
    assert jobs.job("train")["spec"]["suspend"] is False
    assert watch.writer.texts[-1] == "all of its pods have nodes"


def test_job_without_pods_is_suspended_again_and_waits_longer_each_time() -> None:
    jobs, watch = start()
    for failures in range(1, 4):
        jobs.wait(60)
        watch.look()
        assert jobs.job("train")["spec"]["suspend"] is True
        record = json.loads(annotations(jobs)[operators.ADMISSION_FAILURES])
        assert record == {"count": failures, "at": jobs.now}
        assert (jobs.held, jobs.waiting) == ([], [])
        pause = pause_after(failures, "uid-train")
        assert 0.9 <= pause / (60 * 2 ** (failures - 1)) <= 1.1
        jobs.wait(pause - 1)
        assert jobs.start() == []
        watch.look()
        assert "is tried again at" in watch.writer.texts[-1]
        jobs.wait(1)
        assert jobs.start() == ["default/job/train"]
        jobs.see("train")
    assert watch.events.reasons.count("PodsMissing") == 3


def test_pauses_have_an_end() -> None:
    assert pause_after(100, "x") <= LONGEST_PAUSE_SECONDS * 1.1


def test_job_of_which_some_pods_have_no_room_is_suspended_again() -> None:
    jobs, watch = start()
    jobs.cluster.pods(*jobs.pods_of("train", 3))
    jobs.tick()
    jobs.cluster.pods(*jobs.pods_of("train", 1, gpus=2, of=1))
    assert jobs.tick() == []
    jobs.wait(59)
    assert watch.look() == 1.0
    jobs.wait(1)
    watch.look()
    assert jobs.job("train")["spec"]["suspend"] is True


def test_pods_that_are_done_within_the_minute_have_come() -> None:
    jobs, watch = start()
    pods = jobs.pods_of("train", 4)
    jobs.cluster.pods(*pods)
    jobs.tick()
    watch.look()
    for pod in pods:
        jobs.cluster.state.remove_pod(pod.uid)
    jobs.wait(60)
    watch.look()
    assert jobs.job("train")["spec"]["suspend"] is False


def test_fewer_pods_by_the_owner_are_enough() -> None:
    jobs, watch = start()
    jobs.job("train")["spec"] |= {"parallelism": 2, "completions": 2}
    jobs.job("train")["metadata"]["generation"] = 3
    jobs.see("train")
    jobs.cluster.pods(*jobs.pods_of("train", 2))
    jobs.tick()
    watch.look()
    assert operators.HELD_ROOM not in annotations(jobs)


@pytest.mark.parametrize(("on_nodes", "suspended"), [(0, True), (3, False)])
def test_leader_that_has_not_seen_the_minute_does_not_suspend_what_runs(
    on_nodes: int, *, suspended: bool
) -> None:
    jobs, _ = start()
    later = JobCluster(make_job_cluster(gpus=4).cluster, jobs.store, jobs.now + 300)
    watch = Watch(later)
    for pod in later.pods_of("train", on_nodes):
        later.cluster.pods(replace(pod, node="n0"))
    later.see("train")
    watch.look()
    assert later.job("train")["spec"]["suspend"] is suspended
    assert operators.HELD_ROOM not in annotations(later)


def test_job_that_its_owner_changed_meanwhile_is_looked_at_again() -> None:
    jobs, watch = start()
    jobs.wait(60)
    jobs.job("train")["metadata"]["generation"] = 7
    assert watch.look() == 5.0
    assert jobs.job("train")["spec"]["suspend"] is False
    watch.look()
    assert jobs.job("train")["spec"]["suspend"] is True


def test_condition_says_why_a_job_waits() -> None:
    jobs = make_job_cluster(gpus=2)
    watch = Watch(jobs)
    jobs.submit(make_job("train", 4))
    watch.look()
    assert watch.writer.texts == [JobPlanned().text()]
    jobs.start()
    assert watch.look() == 60.0
    assert watch.writer.texts[-1].startswith("Room for 2 of 4 pods.")
    jobs.submit(make_job("foreign", 1, template={"spec": {}}))
    watch.look("foreign")
    assert watch.writer.texts[-1].startswith("it stays suspended")
    jobs.cluster.pods(make_pod("x"))
