"""Jobs survive crashes at every write, an owner who changes his mind, and a controller that fails.

Whatever happens, in any order: room is never given twice, no member runs twice, and no Job is lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster
from tests.suspend.test_start import Watch

from koord.core.model.constraints import PodLabels
from koord.core.suspend.taking import INDEX_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.core.model.pods import Pod

GPUS = 6
SIZES = {"small": 3, "train": 4, "other": 2}


class Process:
    """What the API server has, and the operators, which can be made anew from it."""

    def __init__(self) -> None:
        self.jobs = make_job_cluster(gpus=GPUS)
        self.pods: dict[str, Pod] = {}
        """Pods as the API server has them, by uid."""
        self.runs = Counter[str]()
        self.watch = Watch(self.jobs)
        for at, (name, size) in enumerate(SIZES.items()):
            self.jobs.submit(make_job(name, size, created=at))

    # --- operators -------------------------------------------------------------------------------

    def crash(self) -> None:
        """Start again with nothing but what the API server has."""
        self.jobs = JobCluster(make_job_cluster(gpus=GPUS).cluster, self.jobs.store, self.jobs.now)
        self.watch = Watch(self.jobs)
        self.jobs.cluster.pods(*self.pods.values())
        for name in SIZES:
            self.jobs.see(name)

    def plan(self, name: str, *, crashes: bool) -> None:
        """Plan, write, and see what was written; or crash before that is seen."""
        del name
        before = {job: self.is_suspended(job) for job in SIZES}
        self.jobs.start()
        self.bind()
        for job in SIZES:
            self.runs[job] += before[job] and not self.is_suspended(job)
        if crashes:
            self.crash()
        else:
            self.see_all()

    def bind(self) -> None:
        """Bind what was planned of pods."""
        for uid, pod in self.pods.items():
            node = self.jobs.cluster.state.pods[uid].node
            if node and not pod.node:
                self.pods[uid] = replace(pod, node=node)
        self.jobs.cluster.pods(*self.pods.values())

    def see_through(self, name: str, *, crashes: bool) -> None:
        self.watch.look(name)
        if crashes:
            self.crash()

    def see_all(self) -> None:
        for name in SIZES:
            self.jobs.see(name)

    # --- others ----------------------------------------------------------------------------------

    def wait(self, name: str, *, crashes: bool) -> None:
        del name
        self.jobs.wait(61 if crashes else 10)
        self.jobs.cluster.state.advance(self.jobs.now)

    def make_pods(self, name: str, *, crashes: bool) -> None:
        """Have the Job controller make the pods that are missing: all of them, or one."""
        there = {pod.name.split("-")[1] for pod in self.pods_of(name)}
        if self.is_suspended(name):
            return
        made = self.jobs.pods_of(name, self.jobs.job(name)["spec"]["parallelism"])
        missing = [pod for pod in made if pod.name.split("-")[1] not in there]
        for pod in missing[:1] if crashes else missing:
            index = PodLabels("default", {INDEX_LABEL: pod.name.split("-")[1]})
            uid = f"{pod.uid}-{self.runs[name]}"
            self.pods[uid] = replace(pod, uid=uid, profile=index)
        self.jobs.cluster.pods(*self.pods.values())

    def drop_pods(self, name: str, *, crashes: bool) -> None:
        """Have the Job controller delete the pods of a Job that is suspended."""
        del crashes
        if self.is_suspended(name):
            for pod in self.pods_of(name):
                del self.pods[pod.uid]
                self.jobs.cluster.state.remove_pod(pod.uid)

    def change(self, name: str, *, crashes: bool) -> None:
        """Have the owner suspend his Job, or change how many pods it has."""
        spec, meta = self.jobs.job(name)["spec"], self.jobs.job(name)["metadata"]
        meta["generation"] += 1
        if crashes:
            spec["suspend"] = True
        else:
            spec["parallelism"] = spec["completions"] = 1 + spec["parallelism"] % SIZES[name]

    # --- what holds ------------------------------------------------------------------------------

    def is_suspended(self, name: str) -> bool:
        return bool(self.jobs.job(name)["spec"]["suspend"])

    def pods_of(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.name.startswith(f"{name}-")]

    def check(self) -> None:
        bound = [pod for pod in self.pods.values() if pod.node]
        assert len(bound) + len(self.jobs.held) <= GPUS, "room is given once"
        names = Counter(pod.name for pod in bound)
        assert all(count == 1 for count in names.values()), "no member runs twice"

    def finish(self) -> None:
        """Let everybody do their work until every Job has run; each ends once it has started."""
        done: set[str] = set()
        for _ in range(40):
            self.jobs.wait(121)
            for name in SIZES:
                self.drop_pods(name, crashes=False)
                self.plan(name, crashes=False)
                self.make_pods(name, crashes=False)
                self.plan(name, crashes=False)
                self.see_through(name, crashes=False)
                self.check()
            for name in SIZES.keys() - done:
                size, pods = self.jobs.job(name)["spec"]["parallelism"], self.pods_of(name)
                if sum(bool(pod.node) for pod in pods) >= size and not self.is_suspended(name):
                    done.add(name)
                    self.end(name)
            if done == SIZES.keys():
                return
        raise AssertionError(f"lost: {SIZES.keys() - done}")

    def end(self, name: str) -> None:
        complete = {"type": "Complete", "status": "True"}
        self.jobs.job(name)["status"] = {"conditions": [complete]}
        for pod in self.pods_of(name):
            del self.pods[pod.uid]
            self.jobs.cluster.state.remove_pod(pod.uid)
        self.jobs.see(name)


STEPS: tuple[Callable[..., None], ...] = (
    Process.plan,
    Process.see_through,
    Process.make_pods,
    Process.drop_pods,
    Process.change,
    Process.wait,
)
STEP: Any = st.tuples(st.sampled_from(STEPS), st.sampled_from(sorted(SIZES)), st.booleans())


@settings(max_examples=examples(14))
@given(st.lists(STEP, max_size=24))
def test_no_job_is_lost_and_no_room_is_given_twice(steps: Any) -> None:
    process = Process()
    for step, name, crashes in steps:
        step(process, name, crashes=crashes)
        process.check()
    process.crash()
    process.finish()
