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
from koord.core.model.vain_starts import LONGEST_PAUSE_SECONDS, pause_after
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
        pause = max(pause_after(failures, key) for key in ("uid-train", "default"))
        assert 0.9 <= pause / (60 * 2 ** (failures - 1)) <= 1.1
        jobs.wait(pause - 1)
        assert jobs.start() == []
        watch.look()
        says = watch.writer.texts[-1]
        assert "is tried again at" in says or "tried one by one" in says
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


def holding(jobs: JobCluster) -> int:
    return len({pod.gang.key for pod in jobs.cluster.state.pods.values() if pod.node and pod.gang})


def test_jobs_that_never_make_pods_hold_less_and_less_however_many_there_are() -> None:
    """A quota of pods that is used up, say: for two hours nobody else's room is held much."""
    jobs = make_job_cluster(gpus=8)
    watch = Watch(jobs)
    names = [f"job-{at}" for at in range(16)]
    jobs.submit(*(make_job(name, 1, created=at) for at, name in enumerate(names)))
    held = []
    for _ in range(720):
        jobs.start()
        for name in names:
            jobs.see(name)
            if jobs.job(name)["spec"]["suspend"] is False:
                watch.look(name)
        held.append(holding(jobs))
        jobs.wait(10)
    assert held[0] == 8, "nothing is known of him yet"
    assert max(held[12:]) <= 1
    assert sum(held[12:]) * 10 <= 60 * 9, "seconds times GPUs"


def test_a_start_lets_all_jobs_of_a_namespace_be_planned_again() -> None:
    jobs = make_job_cluster(gpus=8)
    watch = Watch(jobs)
    jobs.submit(make_job("broken", 1), *(make_job(f"job-{at}", 1, created=9) for at in range(3)))
    jobs.job("broken")
    assert len(jobs.start()) == 4
    for name in ("broken", "job-0", "job-1", "job-2"):
        jobs.see(name)
    jobs.wait(60)
    for name in ("broken", "job-0", "job-1", "job-2"):
        watch.look(name)
    jobs.submit(make_job("good", 1, created=1))
    assert jobs.start() == []
    watch.look("good")
    assert watch.writer.texts[-1].startswith("4 times in a row no pods came")
    jobs.wait(pause_after(4, "default"))
    (started,) = jobs.start()
    name = started.rpartition("/")[2]
    jobs.see(name)
    jobs.cluster.pods(*jobs.pods_of(name, 1))
    jobs.tick()
    watch.look(name)
    assert len(jobs.start()) == 4


def test_owner_who_takes_his_job_back_has_held_room_in_vain() -> None:
    jobs = make_job_cluster(gpus=8)
    jobs.submit(make_job("first", 8), make_job("second", 8, created=9))
    assert jobs.start() == ["default/job/first"]
    jobs.see("first")
    jobs.job("first")["spec"]["suspend"] = True
    jobs.see("first")
    assert jobs.start() == []
    jobs.wait(pause_after(1, "default"))
    assert len(jobs.start()) == 1
