"""What users have reported of jobs that grow, shrink, or are made again in part.

Each test names the public report that it follows, and plays it in plain words.
"""

from dataclasses import replace

import pytest
from tests.owners.frameworks import Jobs, indexed, owned, replica
from tests.owners.test_public_reports import elastic_ray, ray_head, ray_worker
from tests.owners.test_worked_examples import (
    LLM,
    MIN,
    executors,
    job,
    jobset,
    jobset_pods,
    lws_group,
    pytorch,
    replicated,
)

from koord.core.model.gangs import OnMemberFailure
from koord.core.model.pods import Handling, PodPhase
from koord.core.owners.model import GroupSize
from koord.domains.owners import OwnerPodReader

HELD_BY_KUEUE = {
    "handling": Handling.FOREIGN_GATE,
    "foreign_gates": ("kueue.x-k8s.io/elastic-job",),
}


@pytest.mark.parametrize("limit", [0, 6])
@pytest.mark.parametrize("ended", [1, 4])
def test_the_last_pods_of_a_job_set_that_completes_more_than_it_runs_at_once(limit, ended):
    """kai-scheduler/KAI-Scheduler#1347: four of five had ended, and the fifth was no gang."""
    js = jobset(replicated("w", 1, 4, job={"completions": 5, "backoffLimit": limit}))
    jobs = Jobs(nodes=4).own_objects(js)
    made, pods = jobset_pods(js, "w", 0, 5)
    jobs.own_objects(made).pods(*pods[:4])
    assert len(jobs.run()) == 4
    for pod in pods[:ended]:
        jobs.end(pod.name)
    jobs.pods(pods[4])
    assert jobs.run() == [pods[4].name]


@pytest.mark.parametrize("limit", [0, 6])
def test_a_job_of_a_job_set_that_is_made_again_alone(limit):
    """kubernetes-sigs/jobset#262, RestartJob: the other Jobs go on, under the same attempt."""
    rules = [{"name": "one", "action": "RestartJob"}]
    js = jobset(
        replicated("w", 2, 2, job={"backoffLimit": limit}),
        failurePolicy={"maxRestarts": 3, "rules": rules},
    )
    jobs = Jobs(nodes=4).own_objects(js)
    for at in range(2):
        made, pods = jobset_pods(js, "w", at, 2)
        jobs.own_objects(made).pods(*pods)
    assert len(jobs.run()) == 4
    assert jobs.spec_of("js-w-0-0-a0").on_member_failure is OnMemberFailure.REPLACE
    jobs.end("js-w-0-0-a0", PodPhase.FAILED)
    jobs.delete_pods("js-w-0-0-a0", "js-w-0-1-a0")
    made, pods = jobset_pods(js, "w", 0, 2)
    made["metadata"]["uid"] += "-again"
    owner = replace(pods[0].owners[0], uid=made["metadata"]["uid"])
    pods = [
        replace(pod, uid=f"{pod.uid}-again", name=f"{pod.name}-again", owners=(owner,))
        for pod in pods
    ]
    jobs.own_objects(made).pods(*pods)
    assert jobs.run() == [pod.name for pod in pods]


@pytest.mark.parametrize("before", [{"initialExecutors": 4}, {"instances": 4}])
def test_executors_come_back_one_by_one_after_a_pause_in_the_work(before):
    """apache/spark SPARK-21656, kubeflow/spark-operator#2244: it starts with four executors, has
    one of them while there is little to do, and asks for two more."""
    dynamic = {"enabled": True, "minExecutors": 1, "maxExecutors": 9, **before}
    etl = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "etl"},
        "spec": {
            "dynamicAllocation": dynamic,
            "executor": {"instances": dynamic.pop("instances", None)},
        },
    }
    jobs = Jobs(nodes=2).own_objects(etl)
    driver = owned("etl-driver", etl, {"spark-role": "driver"}, gpus=1)
    assert jobs.pods(driver).run() == ["etl-driver"]
    jobs.pods(*executors(driver, 1, 3))
    assert jobs.run() == []
    jobs.pods(*executors(driver, 4, 4))
    assert len(jobs.run()) == 4
    jobs.delete_pods("etl-exec-2", "etl-exec-3", "etl-exec-4")
    jobs.pods(*executors(driver, 5, 6))
    assert jobs.run() == ["etl-exec-5", "etl-exec-6"]


def test_what_kueue_holds_of_a_cluster_that_grows_holds_up_no_other_member():
    """kubernetes-sigs/kueue#14129, #13121: new workers stay behind the gate of elastic jobs."""
    ray = elastic_ray(gpu=(2, 2))
    jobs = Jobs(nodes=6).own_objects(ray)
    jobs.pods(ray_head(ray), *(ray_worker(ray, "gpu", at) for at in range(2)))
    assert len(jobs.run()) == 3
    jobs.own_objects(elastic_ray(gpu=(4, 2)))
    jobs.pods(*(ray_worker(ray, "gpu", at, **HELD_BY_KUEUE) for at in (2, 3)))
    assert jobs.run() == []
    jobs.replaced("ray-gpu-1", ray_worker(ray, "gpu", "again"))
    assert jobs.run() == ["ray-gpu-again"]
    jobs.pods(ray_worker(ray, "gpu", 2))
    assert jobs.run() == ["ray-gpu-2"]


def test_a_lost_pod_of_a_job_that_grows_does_not_wait_for_the_new_ones():
    """kubernetes-sigs/kueue#13121: a Job of four indexes becomes one of eight, of which Kueue has
    not admitted the new ones."""
    sizes = [
        job("fold", {"completionMode": "Indexed", "parallelism": count, "completions": count})
        for count in (4, 8)
    ]
    jobs = Jobs(nodes=8).own_objects(sizes[0]).pods(*(indexed(sizes[0], at) for at in range(4)))
    assert len(jobs.run()) == 4
    jobs.own_objects(sizes[1])
    jobs.pods(*(indexed(sizes[1], at, **HELD_BY_KUEUE) for at in range(4, 8)))
    jobs.end("fold-1-x", PodPhase.FAILED)
    jobs.pods(indexed(sizes[1], 1, "again"))
    assert jobs.run() == ["fold-1-again"]
    jobs.pods(*(indexed(sizes[1], at) for at in range(4, 8)))
    assert len(jobs.run()) == 4


def test_a_job_that_shrinks_before_it_has_started_needs_no_more_than_it_has():
    """kubernetes-sigs/kueue#14091: partial admission lowers how many pods run at once."""
    sizes = [
        job("fold", {"completionMode": "Indexed", "parallelism": count, "completions": count})
        for count in (4, 2)
    ]
    jobs = Jobs(nodes=2).own_objects(sizes[0]).pods(*(indexed(sizes[0], at) for at in range(4)))
    assert jobs.run() == []
    jobs.own_objects(sizes[1]).delete_pods("fold-2-x", "fold-3-x")
    assert len(jobs.run()) == 2


def test_workers_that_are_no_longer_wanted_are_not_waited_for():
    """kubeflow/trainer#1751, #1509: the autoscaler takes workers away while one of them waits."""
    elastic = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 6}}
    sizes = [
        pytorch("el", {**elastic, "pytorchReplicaSpecs": {"Worker": {"replicas": count}}})
        for count in (4, 2)
    ]
    jobs = Jobs(nodes=3).own_objects(sizes[0])
    jobs.pods(*(replica(sizes[0], "worker", at) for at in range(4)))
    assert len(jobs.run()) == 3
    waiting = next(at for at in range(4) if not jobs.pod(f"el-worker-{at}").node)
    jobs.own_objects(sizes[1]).delete_pods("el-worker-2", "el-worker-3")
    if waiting < 2:  # it has room now
        assert jobs.run() == [f"el-worker-{waiting}"]
    jobs.replaced("el-worker-0", replica(sizes[1], "worker", 0, uid="again"))
    assert jobs.run() == ["el-worker-0"]


@pytest.mark.parametrize("size", [2, 6])
def test_a_group_of_before_an_update_returns_with_the_size_that_it_had(size):
    """kubernetes-sigs/lws#963: a group that the update has not reached restarts with four pods,
    while the object says another size by now."""
    jobs = Jobs(nodes=4).own_objects(LLM)
    sets, pods = lws_group(LLM, 0)
    jobs.own_objects(*sets).pods(*map(says_size, pods))
    assert len(jobs.run()) == 4
    template = {**LLM["spec"]["leaderWorkerTemplate"], "size": size}
    jobs.own_objects({**LLM, "spec": {**LLM["spec"], "leaderWorkerTemplate": template}})
    jobs.delete_pods(*(pod.name for pod in pods))
    sets, pods = lws_group(LLM, 0, "-new")
    pods = [says_size(pod) for pod in pods]
    jobs.own_objects(*sets).pods(*pods[:3])
    assert jobs.run() == []
    jobs.pods(pods[3])
    assert len(jobs.run()) == 4


def test_the_first_pod_of_a_group_says_how_large_it_is():
    """Whatever others say, and whenever it says so: the same as after a restart."""
    sets, pods = lws_group(LLM, 0)
    others = [
        replace(pod, extensions=(("owners", GroupSize(3 + at)),)) for at, pod in enumerate(pods)
    ]
    for order in (others, others[::-1]):
        jobs = Jobs(nodes=4).own_objects(LLM, *sets).pods(*order)
        assert jobs.spec_of("llm-0").min_member == 3
        jobs.pods(says_size(pods[0]))
        assert jobs.spec_of("llm-0-1").min_member == 4
        assert len(jobs.run()) == 4


def test_a_pod_says_the_size_of_its_group_by_annotation():
    read = OwnerPodReader().read_hints
    for text, hint in (
        ("4", GroupSize(4)),
        ("0", None),
        ("-1", None),
        ("9" * 9, None),
        ("x", None),
    ):
        assert read({"leaderworkerset.sigs.k8s.io/size": text}, {}, 0) == hint


def says_size(pod):
    return replace(pod, extensions=(("owners", GroupSize(4)),))


def test_a_rollout_that_makes_fewer_pods_than_start_together_says_what_it_lacks():
    """volcano-sh/volcano#4739: one new pod of two, of which both have to be there. It needs a
    surge of as many; the first of them does not start alone."""
    rollout = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web-2", "annotations": {MIN: "2"}},
    }
    jobs = Jobs(nodes=2).own_objects(rollout).pods(owned("web-2-a", rollout))
    assert jobs.run() == []
    assert "1 of 2" in jobs.why("web-2-a").text()
    jobs.pods(owned("web-2-b", rollout))
    assert len(jobs.run()) == 2
