"""Limits that pods start with: their own, that of the queue, and what is left for replacements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster

from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Handling, OwnerReference, Pod, PodPhase
from koord.core.model.run_terms import RunTerms
from koord.core.queue.earlier_runs import EarlierRuns
from koord.core.queue.plugin import Queues
from koord.core.queue.reasons import TimeLimitReached, TimeLimitTooLong
from koord.core.queue.run_time import Knowledge, QueueHints
from koord.kube.release import PodForm, Written, make_release_patch
from koord.kube.translate.node_affinity import AffinityForm

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

GPU = "nvidia.com/gpu"
GANG = make_pod("member").gang("default/g").build().gang
JOB = OwnerReference("train", "Job", "batch/v1", "job-1", is_controller=True)


def make_queue(**settings: Any) -> FakeCluster:
    return make_cluster(4).quotas(make_quota("team", max={GPU: 99}, queue=settings))


def job(name: str, deadline: int | None = None, limit: int | None = None, **fields: Any) -> Pod:
    pod = make_pod(name).quota("team").gpu(1).build()
    terms = RunTerms(max_run_time=limit)
    return replace(
        pod, extensions=(("queue", QueueHints(deadline=deadline, terms=terms)),), **fields
    )


def ran(name: str, start: float, end: float, owner: OwnerReference = JOB, **fields: Any) -> Pod:
    """Return a pod that ran, and failed unless ``fields`` say otherwise."""
    ended = {"phase": PodPhase.FAILED, "finished": end, "owners": (owner,), **fields}
    pod = replace(job(name), node="n0", started=start, is_gated=False, handling=Handling.BIND)
    return replace(pod, **ended)


def limits(cluster: FakeCluster, now: float = 0) -> dict[str, int]:
    """Plan all that waits; return the limits of what starts, by name."""
    cluster.state.advance(now)
    outcome = cluster.decide(cluster.take(now))
    names = {pod.uid: pod.name for pod in cluster.state.pods.values()}
    return {
        names[uid]: limit
        for placement in outcome.placements
        for uid, limit in cluster.state.time_limits(placement).items()
    }


def test_a_pod_gets_its_own_limit_or_that_of_its_queue() -> None:
    cluster = make_queue(max_run_time=100)
    cluster.pods(job("own", limit=60), job("spec", deadline=70), job("none"))
    assert limits(cluster) == {"own": 60, "spec": 70, "none": 100}


def test_without_settings_and_words_nobody_has_a_limit() -> None:
    cluster = make_queue()
    cluster.pods(make_pod("plain").quota("team").gpu(1), job("said", limit=60))
    assert limits(cluster) == {"said": 60}


def test_what_a_pod_group_says_holds_for_each_member() -> None:
    cluster = make_queue()
    group = make_pod_group("default/g", 2).build()
    run = RunTerms(max_run_time=90)
    cluster.pod_groups(replace(group, spec=replace(group.spec, run=run)))
    cluster.pods(*(make_pod(f"g-{at}").quota("team").gpu(1).gang("default/g") for at in range(2)))
    assert limits(cluster) == {"g-0": 90, "g-1": 90}


def test_a_limit_longer_than_the_queue_allows_is_refused_until_somebody_changes_it() -> None:
    cluster = make_queue(max_run_time=100)
    cluster.pods(job("long", limit=200), job("next"))
    assert limits(cluster) == {"next": 100}
    assert cluster.reasons() == {"long": TimeLimitTooLong("default/long", 200, 100, "team")}
    cluster.quotas(make_quota("team", max={GPU: 99}, queue={"max_run_time": 200}))
    assert limits(cluster) == {"long": 200}


def test_a_shorter_limit_of_the_queue_touches_nothing_that_runs() -> None:
    cluster = make_queue(max_run_time=10)
    cluster.pod_groups(make_pod_group("default/g", 1))
    cluster.pods(
        make_pod("g-0")
        .quota("team")
        .gpu(1)
        .gang("default/g")
        .released("n0", "default/g")
        .bound("n0"),
        replace(job("g-1", limit=99), gang=GANG),
    )
    assert limits(cluster) == {"g-1": 99}


def test_the_replacement_of_a_failed_pod_has_what_is_left() -> None:
    cluster = make_queue()
    cluster.pods(ran("train-abcde", 1000, 1400), ran("train-fghij", 2000, 2100))
    cluster.pods(job("train-klmno", limit=3600, owners=(JOB,)))
    assert limits(cluster, now=5000) == {"train-klmno": 3100}


def test_nothing_starts_when_no_time_is_left() -> None:
    cluster = make_queue()
    cluster.pods(ran("train-abcde", 1000, 1600))
    cluster.pods(job("train-klmno", limit=600, owners=(JOB,)))
    assert limits(cluster, now=5000) == {}
    assert cluster.reason() == TimeLimitReached("default/train-klmno", 600)
    cluster.pods(job("train-klmno", limit=700, owners=(JOB,)))
    assert limits(cluster, now=5000) == {"train-klmno": 100}


@pytest.mark.parametrize(
    "other",
    [
        ran("train-abcde", 1000, 1400, phase=PodPhase.SUCCEEDED),
        ran("train-abcde", 1000, 1400, phase=PodPhase.RUNNING),
        ran("train-7-abcde", 1000, 1400),
        ran("train-abcde", 1000, 1400, replace(JOB, uid="job-2")),
        ran("train-abcde", 1000, 0),
    ],
    ids=["succeeded", "runs beside it", "other index", "other Job", "nobody knows its end"],
)
def test_a_pod_that_replaces_nothing_has_all_its_time(other: Pod) -> None:
    cluster = make_queue()
    cluster.pods(other, job("train-fghij", limit=3600, owners=(JOB,)))
    assert limits(cluster, now=5000) == {"train-fghij": 3600}


def test_an_index_of_a_job_replaces_its_own() -> None:
    cluster = make_queue()
    cluster.pods(
        ran("train-1-abcde", 1000, 1400), ran("train-0-abcde", 1000, 0, phase=PodPhase.RUNNING)
    )
    cluster.pods(job("train-1-fghij", limit=3600, owners=(JOB,)))
    assert limits(cluster, now=5000) == {"train-1-fghij": 3200}


def test_the_repair_of_a_gang_ends_with_the_others() -> None:
    cluster = make_queue()
    cluster.pod_groups(make_pod_group("default/g", 2))
    first = replace(job("g-0", deadline=600), node="n0", phase=PodPhase.RUNNING, started=1000)
    cluster.pods(replace(first, gang=GANG), replace(job("g-2", limit=600), gang=GANG))
    assert limits(cluster, now=1250) == {"g-2": 350}


def test_a_limit_of_a_spec_begins_anew_with_each_pod() -> None:
    cluster = make_queue()
    cluster.pods(ran("train-abcde", 1000, 1600))
    cluster.pods(job("train-klmno", deadline=600, owners=(JOB,)))
    assert limits(cluster, now=5000) == {"train-klmno": 600}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=6))
def test_time_passes_once_however_many_ran(runs: list[tuple[int, int]]) -> None:
    cluster = make_queue()
    cluster.pod_groups(make_pod_group("default/g", 1))
    for at, (start, length) in enumerate(runs):
        cluster.pods(replace(ran(f"g-{at}", 100 + start, 100 + start + length), gang=GANG))
    seconds = {100 + start + at for start, length in runs for at in range(length)}
    earlier = EarlierRuns(cluster.state)
    assert earlier.passed(job("g-new", gang=GANG, owners=(JOB,))) == len(seconds)


def test_the_run_time_of_a_waiting_unit_counts_what_is_left() -> None:
    cluster = make_queue(max_run_time=3600)
    cluster.pods(ran("train-abcde", 1000, 1400))
    cluster.pods(job("train-klmno", owners=(JOB,), grace=30))
    cluster.state.advance(5000)
    cluster.state.refresh()
    (unit,) = cluster.take()
    run_time = cluster.state.plugin(Queues).limits.run_time_of(unit)
    assert (run_time.level, run_time.limit, run_time.bound) == (Knowledge.DECLARED, 3200, 3260)


@pytest.mark.parametrize(("present", "written"), [(None, 60), (70, 60), (60, None), (50, None)])
def test_a_release_only_lowers_the_limit_of_a_pod(present: int | None, written: int | None) -> None:
    cluster = make_queue()
    cluster.pods(job("p"))
    (assignment,) = cluster.plan(*cluster.take()).placements[0].assignments
    form = PodForm(has_annotations=True, affinity=AffinityForm(), time_limit=present)
    patch = make_release_patch(assignment, form, Written({}, time_limit=60))
    values = [step["value"] for step in patch if step["path"] == "/spec/activeDeadlineSeconds"]
    assert values == ([] if written is None else [written])


def test_a_unit_without_pods_that_can_be_planned_has_no_limit() -> None:
    cluster = make_queue(max_run_time=10)
    assert cluster.state.plugin(Queues).limits.refuse(Unit("g", (Demand("g", (), 0),), "g")) is None
