"""Suspended Jobs in the planner: they wait without pods, are resumed whole, and keep their room."""

from __future__ import annotations

import pytest
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.suspend.jobs import JobCluster, make_job, make_job_cluster

from koord.answers.explain import PlacementState
from koord.answers.queued_jobs import find_queued_job
from koord.answers.reading import Reading
from koord.answers.why import make_answer
from koord.api.keys import operators
from koord.core.engine.queue import find_pending
from koord.core.eviction.protection import Protection, find_lasting_protection, spares_gang
from koord.core.eviction.reclaim import plan_reclaim
from koord.core.model.constraints import PodLabels
from koord.core.model.pods import Handling
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.queue.plugin import Queues
from koord.core.suspend.lines import MOST_IN_LINE
from koord.core.suspend.taking import INDEX_LABEL
from koord.core.topology.layers import Layer

GPU = "nvidia.com/gpu"


def test_job_without_room_for_all_of_its_pods_stays_suspended() -> None:
    jobs = make_job_cluster(gpus=3)
    jobs.submit(make_job("train", 4))
    assert jobs.start() == []
    assert jobs.waiting == [f"job/train-{at}" for at in range(4)]
    assert jobs.cluster.reason().is_capacity
    assert jobs.job("train")["spec"]["suspend"] is True


def test_job_is_resumed_and_its_pods_take_its_room() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    assert jobs.start() == ["default/job/train"]
    assert jobs.job("train")["spec"]["suspend"] is False
    jobs.see("train")
    assert jobs.held == ["n0"] * 4
    jobs.cluster.pods(make_pod("thief").gpu(1).created(0))
    assert jobs.tick() == []
    jobs.cluster.pods(*jobs.pods_of("train", 4))
    assert jobs.tick() == [f"train-{at}-x0" for at in range(4)]
    assert (jobs.held, jobs.waiting) == ([], [])


def test_room_is_kept_while_pods_come_one_by_one() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    jobs.cluster.pods(make_pod("thief").gpu(1).created(0))
    for at, pod in enumerate(jobs.pods_of("train", 4)):
        jobs.cluster.pods(pod)
        assert jobs.tick() == [pod.name]
        assert len(jobs.held) == 3 - at


def test_quota_is_charged_once() -> None:
    jobs = make_job_cluster(gpus=8)
    jobs.cluster.quotas(make_quota("team", max={GPU: 4, "cpu": 99}))
    quota = {"quota.scheduling.koordinator.sh/name": "team"}
    jobs.submit(make_job("train", 4, labels=quota), make_job("next", 1, labels=quota, created=9))
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    jobs.cluster.pods(*jobs.pods_of("train", 4, quota="team"))
    assert len(jobs.tick()) == 4
    assert jobs.waiting == ["job/next-0"]


def test_limit_of_running_units_does_not_refuse_pods_whose_job_had_its_turn() -> None:
    jobs = make_job_cluster(gpus=8)
    jobs.cluster.quotas(make_quota("team", max={GPU: 8, "cpu": 99}, queue={"max_running": 1}))
    quota = {"quota.scheduling.koordinator.sh/name": "team"}
    jobs.submit(make_job("train", 2, labels=quota), make_job("next", 1, labels=quota, created=9))
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    jobs.cluster.pods(*jobs.pods_of("train", 2, quota="team"))
    assert len(jobs.tick()) == 2
    assert jobs.waiting == ["job/next-0"]


def test_room_goes_after_a_minute_without_pods() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    jobs.cluster.pods(make_pod("other").gpu(4))
    jobs.wait(59)
    assert jobs.tick() == []
    jobs.wait(1)
    assert jobs.tick() == ["other"]


def test_held_room_is_the_same_after_a_restart() -> None:
    jobs = make_job_cluster(nodes=2, gpus=2)
    jobs.submit(make_job("train", 4))
    jobs.start()
    again = JobCluster(make_job_cluster(nodes=2, gpus=2).cluster, jobs.store, jobs.now + 5)
    again.see("train")
    assert again.held == ["n0", "n0", "n1", "n1"]
    first, *others = again.pods_of("train", 4)
    again.cluster.pods(first)
    assert again.tick() == [first.name]
    assert len(again.held) == 3
    again.cluster.pods(*others)
    assert len(again.tick()) == 3


def test_room_that_somebody_else_records_counts_for_nothing() -> None:
    forged = {
        operators.HELD_ROOM: '{"at":1800000000,"ended":0,"nodes":[{"n0":4}]}',
        operators.HELD_ROOM_SIGNATURE: "x.y",
    }
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4, annotations=forged, suspend=False))
    assert jobs.held == []


def test_record_of_another_job_counts_for_nothing() -> None:
    jobs = make_job_cluster(gpus=8)
    jobs.submit(make_job("train", 4))
    jobs.start()
    annotations = jobs.job("train")["metadata"]["annotations"]
    jobs.submit(make_job("copy", 4, annotations=annotations, suspend=False))
    assert jobs.held == ["n0"] * 4


def test_job_that_changed_since_it_was_planned_is_not_resumed() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.job("train")["metadata"]["generation"] = 2
    jobs.job("train")["spec"]["parallelism"] = 400
    assert jobs.start() == []
    assert jobs.job("train")["spec"]["suspend"] is True
    assert jobs.held == []


def test_more_pods_than_were_planned_get_no_room_of_others() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 2))
    jobs.start()
    jobs.job("train")["spec"] |= {"parallelism": 2_000_000_000, "completions": None}
    jobs.see("train")
    jobs.cluster.pods(make_pod("other").gpu(2).created(0), *jobs.pods_of("train", 6))
    assert jobs.tick() == ["other", "train-0-x0", "train-1-x0"]


def test_two_pods_of_one_index_take_room_once() -> None:
    jobs = make_job_cluster(gpus=3)
    jobs.submit(make_job("train", 2))
    jobs.start()
    jobs.see("train")
    index = PodLabels("default", {INDEX_LABEL: "0"})
    for of in range(2):
        jobs.cluster.pods(*jobs.pods_of("train", 1, of=of, profile=index))
    jobs.cluster.pods(make_pod("other").gpu(1).created(0))
    assert jobs.tick() == ["other", "train-0-x0"]
    assert jobs.held == ["n0"]


@pytest.mark.parametrize(
    "job",
    [
        make_job("train", 4, asks=False),
        make_job("train", 4, annotations={operators.ADMISSION: "gates"}),
        make_job("train", 4, managedBy="kueue.x-k8s.io/multikueue"),
        make_job("train", 4, annotations={"kueue.x-k8s.io/queue-name": "q"}),
        make_job("train", 0),
        make_job("train", 20_000),
        make_job("train", 4, template={"spec": {}}),
    ],
)
def test_jobs_of_others_are_left_alone(job) -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.label("default", **{operators.ADMISSION: "x"})
    jobs.submit(job)
    assert (jobs.start(), jobs.waiting, jobs.store.patches) == ([], [], 0)


def test_jobs_of_a_namespace_that_asks_for_it_are_resumed() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4, asks=False))
    assert jobs.start() == []
    jobs.label("default", **{operators.ADMISSION: "suspend"})
    assert jobs.start() == ["default/job/train"]


def test_held_back_job_waits() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4, annotations={operators.QUEUE_HOLD: "true"}))
    assert jobs.start() == []
    assert jobs.cluster.reason().code == "Held"
    del jobs.job("train")["metadata"]["annotations"][operators.QUEUE_HOLD]
    jobs.see("train")
    assert jobs.start() == ["default/job/train"]


def test_jobs_of_one_gang_start_together() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.cluster.pod_groups(make_pod_group("default/gang", 4))
    gang = {"pod-group.scheduling.sigs.k8s.io": "gang"}
    jobs.submit(make_job("master", 1, labels=gang))
    assert jobs.start() == []
    jobs.submit(make_job("worker", 3, labels=gang))
    assert jobs.start() == ["default/job/master", "default/job/worker"]


def test_only_the_first_jobs_of_a_line_are_planned() -> None:
    jobs = make_job_cluster(gpus=4)
    for at in range(50):
        jobs.submit(make_job(f"big-{at}", MOST_IN_LINE // 4, created=at))
    assert len(jobs.waiting) == MOST_IN_LINE
    jobs.submit(make_job("elsewhere", 1, namespace="other", created=99))
    assert jobs.start() == ["other/job/elsewhere"]
    jobs.plugin.remove(jobs.see("big-0"))
    assert len(jobs.waiting) == MOST_IN_LINE
    assert "job/big-4-0" in jobs.waiting


def test_job_whose_owner_suspends_it_again_waits_for_the_rest_of_the_minute() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    jobs.job("train")["spec"]["suspend"] = True
    jobs.see("train")
    assert (jobs.held, jobs.waiting, jobs.start()) == ([], [], [])
    jobs.wait(60)
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    assert jobs.held == ["n0"] * 4


def test_room_on_a_node_that_is_gone_is_not_held_elsewhere() -> None:
    jobs = make_job_cluster(nodes=2, gpus=2)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    jobs.cluster.state.remove_node("n1")
    jobs.cluster.nodes(make_node("n2").gpu(1))
    jobs.cluster.pods(*jobs.pods_of("train", 4))
    assert len(jobs.tick()) == 3


def test_nobody_evicts_what_stands_for_pods_to_come() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    jobs.cluster.pods(make_pod("urgent").gpu(1).priority(1000))
    assert jobs.tick() == []
    state = jobs.cluster.state
    held = [pod for pod in state.pods.values() if pod.node]
    assert {find_lasting_protection(state, pod) for pod in held} == {Protection.LABEL}
    assert spares_gang(state, held)


def test_limits_of_a_template_are_requests_as_those_of_a_pod() -> None:
    jobs = make_job_cluster(gpus=3)
    job = make_job("train", 4)
    del job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    jobs.submit(job)
    assert jobs.start() == []


def test_explain_knows_a_waiting_job_by_its_name() -> None:
    jobs = make_job_cluster(gpus=2)
    jobs.submit(make_job("train", 4), make_job("foreign", 1, template={"spec": {}}))
    state = jobs.cluster.state
    queued = find_queued_job(state, "default", "train")
    assert queued is not None
    answer = make_answer(Reading(state), queued.target, jobs.now)
    assert (answer.target.name, answer.standing) == ("job/train", PlacementState.WAITING)
    foreign = find_queued_job(state, "default", "foreign")
    assert foreign is not None
    assert foreign.reason is not None
    assert foreign.reason.code == "JobNotPlannable"
    assert find_queued_job(state, "other", "train") is None


@pytest.mark.parametrize("policy", ["Strict", "Backfill", "BestEffort"])
def test_room_of_a_resumed_job_is_not_reserved_for_a_head_that_waits(policy: str) -> None:
    jobs = make_job_cluster(gpus=8)
    queue = {"policy": policy, "protect_after": 0}
    jobs.cluster.quotas(make_quota("team", max={GPU: 99, "cpu": 99}, queue=queue))
    quota = {"quota.scheduling.koordinator.sh/name": "team"}
    jobs.submit(make_job("train", 4, labels=quota))
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    head = [make_pod(f"head-{at}").gpu(4).quota("team").created(0) for at in range(2)]
    for pod in head:
        jobs.cluster.pods(pod.annotation_gang("default/head", 2))
    assert jobs.tick() == []
    jobs.wait(10)
    assert jobs.tick() == []
    jobs.cluster.pods(*jobs.pods_of("train", 4, quota="team"))
    assert len(jobs.tick()) == 4


def test_suspended_jobs_wait_for_their_turn_like_others() -> None:
    jobs = make_job_cluster(gpus=8)
    queue = {"policy": "Strict", "protect_after": 0}
    jobs.cluster.quotas(make_quota("team", max={GPU: 99, "cpu": 99}, queue=queue))
    quota = {"quota.scheduling.koordinator.sh/name": "team"}
    jobs.cluster.pods(make_pod("runs").gpu(4).quota("team").running("n0"))
    jobs.submit(make_job("head", 2, gpus=4, labels=quota))
    assert jobs.start() == []
    jobs.submit(make_job("later", 1, labels=quota, created=9))
    assert jobs.start() == []
    jobs.cluster.delete_pods("runs")
    assert jobs.start() == ["default/job/head"]


def test_misspelled_mode_is_said() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4, annotations={operators.ADMISSION: "Suspend"}))
    assert jobs.start() == []
    (job,) = jobs.plugin.jobs.values()
    reason = jobs.plugin.reason_for(job)
    assert jobs.plugin.is_waiting(job)
    assert reason is not None
    assert "must be suspend or gates: Suspend" in reason.text()


@pytest.mark.parametrize(("of_pods", "limit"), [(None, 60), (30, 30), (90, 60)])
def test_deadline_of_a_job_is_that_of_its_pods_from_its_start_on(
    of_pods: int | None, limit: int
) -> None:
    jobs = make_job_cluster(gpus=4)
    job = make_job("train", 4, activeDeadlineSeconds=60)
    if of_pods is not None:
        job["spec"]["template"]["spec"]["activeDeadlineSeconds"] = of_pods
    jobs.submit(job)
    (unit,) = find_pending(jobs.cluster.state)
    assert jobs.cluster.state.plugin(Queues).run_time_of(unit).limit == limit


def test_job_of_a_gang_with_a_topology_is_held_room_in_one_domain() -> None:
    jobs = make_job_cluster(0)
    jobs.cluster.topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    for at in range(4):
        jobs.cluster.nodes(make_node(f"n{at}").gpu(2).label("block", f"b{at // 2}"))
    jobs.cluster.pods(make_pod("there").gpu(1).running("n0"))
    together = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST, 1),))
    jobs.cluster.pod_groups(make_pod_group("default/gang", 4).topology(together))
    jobs.submit(make_job("train", 4, labels={"pod-group.scheduling.sigs.k8s.io": "gang"}))
    assert jobs.start() == ["default/job/train"]
    jobs.see("train")
    assert jobs.held == ["n2", "n2", "n3", "n3"]
    pods = jobs.pods_of("train", 4, gang=make_pod("x").gang("default/gang").build().gang)
    jobs.cluster.delete_pods("there")
    jobs.cluster.pods(make_pod("thief").gpu(1).created(0), *pods[:3])
    assert jobs.tick() == ["thief"], "the gang lacks a member"
    jobs.cluster.pods(pods[3])
    assert len(jobs.tick()) == 4
    assert {jobs.cluster.pod(pod.name).node for pod in pods} == {"n2", "n3"}


def test_over_use_is_reclaimed_for_a_suspended_job_and_never_what_stands_for_one() -> None:
    jobs = make_job_cluster(gpus=8)
    for name in ("a", "b"):
        jobs.cluster.quotas(make_quota(name, min={GPU: 4}, max={GPU: 8}))
    label = "quota.scheduling.koordinator.sh/name"
    jobs.submit(make_job("lent", 4, labels={label: "b"}))
    assert jobs.start() == ["default/job/lent"]
    jobs.see("lent")
    jobs.cluster.pods(
        *(make_pod(f"p{at}").gpu(1).quota("b").running("n0").created(1) for at in range(4))
    )
    jobs.submit(make_job("train", 2, labels={label: "a"}))
    assert jobs.start() == []
    state = jobs.cluster.state
    chosen = plan_reclaim(state, state.open_ledger(), "b", jobs.cluster.queue.blocked.values())
    assert {reclaim.beneficiary for reclaim in chosen} == {"default/job/train"}
    assert {pod.handling for reclaim in chosen for pod in reclaim.pods}.isdisjoint(
        {Handling.STAND_IN}
    )


def test_job_that_shrinks_and_grows_again_gets_no_room_that_others_have() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.job("train")["spec"]["parallelism"] = 1
    jobs.see("train")
    assert jobs.held == ["n0"]
    jobs.cluster.pods(make_pod("other").gpu(3))
    assert jobs.tick() == ["other"]
    jobs.job("train")["spec"]["parallelism"] = 4
    jobs.see("train")
    assert jobs.held == ["n0"]
    jobs.cluster.pods(*jobs.pods_of("train", 1))
    assert jobs.tick() == ["train-0-x0"]
    jobs.tick()
    assert jobs.held == []


def test_room_is_held_on_for_pods_that_have_not_come_while_others_are_done() -> None:
    jobs = make_job_cluster(gpus=4)
    jobs.submit(make_job("train", 4))
    jobs.start()
    jobs.see("train")
    pods = jobs.pods_of("train", 2)
    jobs.cluster.pods(*pods)
    jobs.tick()
    for pod in pods:
        jobs.cluster.state.remove_pod(pod.uid)
    jobs.job("train")["status"] = {"succeeded": 2}
    jobs.see("train")
    jobs.cluster.state.advance(jobs.now + 1)
    assert jobs.held == ["n0", "n0"]
    assert jobs.plugin.outcome_of(jobs.see("train"), jobs.now + 1, 0.0) is None
