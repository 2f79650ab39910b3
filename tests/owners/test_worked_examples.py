"""The gangs of job frameworks, found from their recorded owners, and what becomes of them."""

from dataclasses import replace

from tests.builders import make_quota
from tests.owners.frameworks import (
    JOB_INDEX,
    JOBSET,
    LWS,
    Jobs,
    indexed,
    owned,
    pod_as_owner,
    reference,
    replica,
)

from koord.core.gang.done import count_done
from koord.core.gang.quorum import find_lost
from koord.core.gang.reasons import MissingMembers
from koord.core.model.gangs import MatchPolicy, OnMemberFailure
from koord.core.model.pods import PodPhase
from koord.core.owners.plugin import OwnerGangs
from koord.domains.owners import PLANNING

MIN = "gang.scheduling.koordinator.sh/min-available"


def job(name, spec, **metadata):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def sub_groups(spec):
    return {group.name: group.min_member for group in spec.sub_groups.groups}


def needed(jobs, name):
    """Return how many members of a gang have to be placed or waiting that are not done."""
    gang = jobs.gang_of(name)
    return jobs.state.gangs.spec(gang).min_member - count_done(jobs.state.gangs, gang)


def test_1_indexed_job():
    fold = job(
        "fold",
        {
            "completionMode": "Indexed",
            "parallelism": 4,
            "completions": 6,
            "backoffLimitPerIndex": 1,
        },
        annotations={MIN: "4"},
    )
    jobs = Jobs().own_objects(fold)
    jobs.pods(*(indexed(fold, at) for at in range(3)))
    assert jobs.step() == []
    assert isinstance(jobs.why("fold-0-x"), MissingMembers)
    jobs.pods(indexed(fold, 3))
    assert jobs.run() == ["fold-0-x", "fold-1-x", "fold-2-x", "fold-3-x"]
    assert jobs.gang_name("fold-0-x") == "job:fold"
    assert [jobs.pod(f"fold-{at}-x").index for at in range(4)] == [0, 1, 2, 3]
    # Index 1 fails: another pod, with another name, is placed alone beside the others.
    jobs.end("fold-1-x", PodPhase.FAILED)
    jobs.pods(indexed(fold, 1, "y"))
    assert jobs.run() == ["fold-1-y"]
    # Index 0 succeeds: index 4 is placed alone.
    jobs.end("fold-0-x")
    jobs.own_objects({**fold, "status": {"succeeded": 1}})
    jobs.pods(indexed(fold, 4))
    assert jobs.run() == ["fold-4-x"]
    assert needed(jobs, "fold-2-x") == 4
    # At the end it needs what remains: two have succeeded, one index was given up.
    jobs.end("fold-2-x")
    jobs.end("fold-1-y", PodPhase.FAILED)
    jobs.own_objects({**fold, "status": {"succeeded": 2, "failedIndexes": "1"}})
    assert needed(jobs, "fold-3-x") == 3
    jobs.pods(indexed(fold, 5))
    assert jobs.run() == ["fold-5-x"]
    assert find_lost(jobs.state.gangs, jobs.gang_of("fold-3-x")) == ()


def test_1_without_a_word_a_job_that_works_through_a_queue_is_no_gang():
    fold = job("fold", {"completionMode": "Indexed", "parallelism": 4, "completions": 6})
    jobs = Jobs().own_objects(fold).pods(indexed(fold, 0))
    assert jobs.gang_of("fold-0-x") == ""
    assert jobs.step() == ["fold-0-x"]


def test_1_a_job_of_as_many_indexes_as_run_at_once_is_a_gang():
    fold = job("fold", {"completionMode": "Indexed", "parallelism": 4, "completions": 4})
    jobs = Jobs().own_objects(fold).pods(*(indexed(fold, at) for at in range(4)))
    assert jobs.spec_of("fold-0-x").min_member == 4
    assert len(jobs.step()) == 4


def pytorch(name, spec, **metadata):
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


GPT = pytorch(
    "gpt", {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}}
)


def test_2_pytorchjob():
    jobs = Jobs().own_objects(GPT)
    workers = [replica(GPT, "worker", at) for at in range(3)]
    jobs.pods(*workers)
    assert jobs.step() == []
    jobs.pods(replica(GPT, "master", 0))
    spec = jobs.spec_of("gpt-master-0")
    assert (spec.min_member, sub_groups(spec)) == (4, {"master": 1, "worker": 3})
    names = ["gpt-master-0", "gpt-worker-0", "gpt-worker-1", "gpt-worker-2"]
    assert [jobs.pod(name).index for name in names] == [0, 1, 2, 3]
    assert jobs.run() == names
    # Worker 1 exits with 137: it is made again under the same name, beside the others.
    jobs.replaced("gpt-worker-1", replica(GPT, "worker", 1, uid="uid-again"))
    assert spec.on_member_failure is OnMemberFailure.REPLACE
    assert jobs.run() == ["gpt-worker-1"]


def test_3_elastic_pytorchjob():
    el = pytorch(
        "el",
        {
            "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 5}},
        },
    )
    jobs = Jobs(nodes=3).own_objects(el)
    jobs.pods(*(replica(el, "worker", at) for at in range(5)))
    spec = jobs.spec_of("el-worker-0")
    assert (spec.min_member, spec.total) == (2, 5)
    assert spec.match_policy is MatchPolicy.WAITING_AND_RUNNING
    assert len(jobs.run()) == 3  # as many as there is room for
    assert find_lost(jobs.state.gangs, jobs.gang_of("el-worker-0")) == ()


def mpi(spec):
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 8}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "cfd"},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


def mpi_pod(name, owner, role, index=None):
    labels = {"training.kubeflow.org/job-role": role}
    if index is not None:
        labels["training.kubeflow.org/replica-index"] = str(index)
    return owned(name, owner, labels)


def test_4_mpijob_whose_launcher_waits_for_its_workers():
    cfd = mpi({"launcherCreationPolicy": "WaitForWorkersReady"})
    jobs = Jobs().own_objects(cfd)
    jobs.pods(*(mpi_pod(f"cfd-worker-{at}", cfd, "worker", at) for at in range(8)))
    assert jobs.spec_of("cfd-worker-0").min_member == 8
    assert len(jobs.run()) == 8
    launcher = job("cfd-launcher", {"backoffLimit": 6}, ownerReferences=[reference(cfd)])
    jobs.own_objects(launcher).pods(mpi_pod("cfd-launcher-x", launcher, "launcher"))
    assert jobs.gang_of("cfd-launcher-x") == ""
    assert jobs.run() == ["cfd-launcher-x"]


def test_4_mpijob_whose_launcher_is_there_from_the_start():
    cfd = mpi({})
    launcher = job("cfd-launcher", {}, ownerReferences=[reference(cfd)])
    jobs = Jobs().own_objects(cfd, launcher)
    jobs.pods(*(mpi_pod(f"cfd-worker-{at}", cfd, "worker", at) for at in range(8)))
    assert jobs.step() == []
    jobs.pods(mpi_pod("cfd-launcher-x", launcher, "launcher"))
    assert jobs.spec_of("cfd-launcher-x").min_member == 9
    assert len(jobs.run()) == 9


def replicated(name, replicas, parallelism, **more):
    spec = {"parallelism": parallelism, "completions": parallelism, **more.pop("job", {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def jobset(*replicated_jobs, **spec):
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": list(replicated_jobs), **spec},
    }


def jobset_pods(js, role, at, count, attempt=0):
    """Return a Job of a JobSet, and its pods."""
    made = job(
        f"{js['metadata']['name']}-{role}-{at}",
        {"completionMode": "Indexed", "parallelism": count, "completions": count},
        uid=f"uid-{role}-{at}-{attempt}",
        ownerReferences=[reference(js)],
    )
    labels = {
        f"{JOBSET}replicatedjob-name": role,
        f"{JOBSET}job-index": str(at),
        f"{JOBSET}restart-attempt": str(attempt),
    }
    pods = [indexed(made, index, f"a{attempt}", labels=labels) for index in range(count)]
    return made, pods


STAGES = jobset(
    replicated("db", 1, 1),
    replicated("w", 2, 4, dependsOn=[{"name": "db", "status": "Ready"}]),
    failurePolicy={"maxRestarts": 2},
)


def test_5_jobset_with_stages():
    jobs = Jobs(nodes=17).own_objects(STAGES)
    db, pods = jobset_pods(STAGES, "db", 0, 1)
    jobs.own_objects(db).pods(*pods)
    assert jobs.run() == ["js-db-0-0-a0"]
    for at in range(2):
        made, pods = jobset_pods(STAGES, "w", at, 4)
        jobs.own_objects(made).pods(*pods)
        if not at:
            assert jobs.step() == []
    spec = jobs.spec_of("js-w-0-0-a0")
    assert jobs.gang_name("js-w-0-0-a0") == "jobset:js:w"
    assert (spec.min_member, sub_groups(spec)) == (8, {"w": 8, "w-0": 4, "w-1": 4})
    assert [jobs.pod(f"js-w-1-{at}-a0").index for at in range(4)] == [5, 6, 7, 8]
    assert len(jobs.run()) == 8
    first = jobs.gang_of("js-w-0-0-a0")
    # All Jobs are made again: both stages again, and old pods that still end do not count.
    for at in range(2):
        made, pods = jobset_pods(STAGES, "w", at, 4, attempt=1)
        jobs.own_objects(made).pods(*pods[: 4 - at])
    assert jobs.gang_of("js-w-0-0-a1") != first
    assert jobs.run() == []
    jobs.pods(pods[3])
    assert len(jobs.run()) == 8


def test_5_without_order_a_jobset_is_one_gang():
    js = jobset(replicated("db", 1, 1), replicated("w", 2, 4))
    jobs = Jobs().own_objects(js)
    for role, at, count in (("db", 0, 1), ("w", 0, 4), ("w", 1, 4)):
        made, pods = jobset_pods(js, role, at, count)
        jobs.own_objects(made).pods(*pods)
    assert jobs.gang_name("js-db-0-0-a0") == "jobset:js"
    assert jobs.spec_of("js-w-1-0-a0").min_member == 9
    assert len(jobs.run()) == 9


def test_6_trainjob_with_initializer():
    ancestor = "trainer.kubeflow.org/trainjob-ancestor-step"
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "ft"},
        "spec": {},
    }
    initializer = replicated("dataset-initializer", 1, 1)
    initializer["template"]["metadata"] = {"labels": {ancestor: "dataset-initializer"}}
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    js = jobset(initializer, replicated("node", 1, 4, dependsOn=after))
    js["metadata"] = {"name": "ft", "uid": "uid-js", "ownerReferences": [reference(train)]}
    jobs = Jobs().own_objects(js)
    made, pods = jobset_pods(js, "dataset-initializer", 0, 1)
    jobs.own_objects(made).pods(*pods)
    assert jobs.gang_of("ft-dataset-initializer-0-0-a0") == ""
    assert jobs.run() == ["ft-dataset-initializer-0-0-a0"]
    made, pods = jobset_pods(js, "node", 0, 4)
    jobs.own_objects(made).pods(*pods)
    assert jobs.spec_of("ft-node-0-0-a0").min_member == 4
    assert len(jobs.run()) == 4
    assert jobs.owners.count_unknown() == {}


def ray_cluster(name, job_name="rl"):
    rayjob = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": job_name},
        "spec": {},
    }
    group = {
        "groupName": "g", "replicas": 2, "minReplicas": 2, "maxReplicas": 4, "numOfHosts": 2,
    }  # fmt: skip
    return rayjob, {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "ownerReferences": [reference(rayjob)]},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [group]},
    }


def ray_pods(cluster):
    name = cluster["metadata"]["name"]
    head = {"ray.io/group": "headgroup", "ray.io/node-type": "head"}
    pods = [owned(f"{name}-head-x", cluster, head)]
    for at in range(2):
        for host in range(2):
            labels = {
                "ray.io/group": "g",
                "ray.io/node-type": "worker",
                "ray.io/worker-group-replica-index": str(at),
                "ray.io/replica-host-index": str(host),
            }
            pods.append(owned(f"{name}-g-worker-{at}{host}", cluster, labels))
    return pods


def test_7_rayjob():
    rayjob, cluster = ray_cluster("rl-abc")
    submitter = job(
        "rl", {"backoffLimit": 2}, uid="uid-submitter", ownerReferences=[reference(rayjob)]
    )
    jobs = Jobs().own_objects(cluster, submitter)
    pods = ray_pods(cluster)
    jobs.pods(*pods[:4])
    assert jobs.step() == []
    jobs.pods(pods[4], owned("rl-submitter-x", submitter, {}))
    spec = jobs.spec_of("rl-abc-head-x")
    assert (spec.min_member, sub_groups(spec)) == (
        5,
        {"headgroup": 1, "g": 4, "g-0": 2, "g-1": 2},
    )
    assert jobs.gang_of("rl-submitter-x") == ""
    assert len(jobs.run()) == 6
    # The job is tried again: another cluster, another gang, beside the old one.
    _, again = ray_cluster("rl-def")
    jobs.own_objects(again).pods(*ray_pods(again)[:4])
    assert jobs.run() == []
    jobs.pods(ray_pods(again)[4])
    assert len(jobs.run()) == 5


LLM = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "llm"},
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4}},
}


def lws_group(lws, group, uid=""):
    """Return the StatefulSets of a group and its pods, the leader first."""
    name = lws["metadata"]["name"]

    def stateful_set(name, owner):
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "uid": f"uid-sts-{name}{uid}", "ownerReferences": [owner]},
            "spec": {"replicas": 1},
        }

    leaders = stateful_set(name, reference(lws))
    leaders["metadata"]["uid"] = f"uid-sts-{name}"

    def pod(name, owner, at):
        labels = {f"{LWS}group-index": str(group), f"{LWS}worker-index": str(at)}
        return owned(name, owner, labels, uid=f"uid-{name}{uid}")

    leader = pod(f"{name}-{group}", leaders, 0)
    owner = pod_as_owner(leader)
    above = {
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
        "controller": True,
    }  # fmt: skip
    workers = stateful_set(f"{name}-{group}-workers", above)
    pods = [leader, *(pod(f"{name}-{group}-{at}", workers, at) for at in range(1, 4))]
    return [leaders, workers], pods


def test_8_leaderworkerset():
    jobs = Jobs().own_objects(LLM)
    for group in range(2):
        sets, pods = lws_group(LLM, group)
        jobs.own_objects(*sets).pods(*pods)
    assert jobs.gang_name("llm-0") == jobs.gang_name("llm-0-3") == "leaderworkerset:llm:0"
    assert jobs.gang_of("llm-1-1") not in {"", jobs.gang_of("llm-0")}
    spec = jobs.spec_of("llm-0-2")
    assert (spec.min_member, sub_groups(spec)) == (4, {"leader": 1, "worker": 3})
    assert spec.on_member_failure is OnMemberFailure.RESTART_GANG
    assert len(jobs.run()) == 8
    # A worker restarts: the leader is deleted, and the whole group is made again.
    before, other = jobs.gang_of("llm-0-1"), jobs.gang_of("llm-1")
    jobs.delete_pods("llm-0", "llm-0-1", "llm-0-2", "llm-0-3")
    sets, pods = lws_group(LLM, 0, "-again")
    jobs.own_objects(*sets).pods(*pods[:3])
    assert jobs.gang_of("llm-0") not in {before, ""}
    assert jobs.gang_of("llm-1") == other
    assert jobs.run() == []
    jobs.pods(pods[3])
    assert len(jobs.run()) == 4


def test_8_workers_that_follow_their_leader():
    lws = {**LLM, "spec": {**LLM["spec"], "startupPolicy": "LeaderReady"}}
    sets, pods = lws_group(lws, 0)
    jobs = Jobs().own_objects(lws, *sets).pods(pods[0])
    assert jobs.run() == ["llm-0"]
    jobs.pods(*pods[1:3])
    assert jobs.run() == []
    jobs.pods(pods[3])
    assert len(jobs.run()) == 3


def test_8_workers_whose_leader_is_gone_wait():
    sets, pods = lws_group(LLM, 0)
    jobs = Jobs().own_objects(LLM, *sets).pods(*pods[1:])
    assert jobs.step() == []
    assert jobs.why("llm-0-1").code == "OwnerNotFound"
    jobs.pods(pods[0])
    assert len(jobs.run()) == 4


ETL = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {"name": "etl"},
    "spec": {"executor": {"instances": 10}},
}


def executors(driver, first, last):
    extra = pod_as_owner(driver)
    return [
        owned(f"etl-exec-{at}", extra, {"spark-role": "executor", "spark-exec-id": str(at)}, gpus=1)
        for at in range(first, last + 1)
    ]


def test_9_sparkapplication():
    driver = owned("etl-driver", ETL, {"spark-role": "driver"}, gpus=1)
    jobs = Jobs().own_objects(ETL).pods(driver)
    assert jobs.gang_of("etl-driver") == ""
    assert jobs.run() == ["etl-driver"]
    jobs.pods(*executors(driver, 1, 5))
    assert jobs.run() == []
    jobs.pods(*executors(driver, 6, 10))
    assert jobs.spec_of("etl-exec-1").min_member == 10
    assert len(jobs.run()) == 10
    # Executor 3 is lost: another one, with another number, is placed alone.
    jobs.replaced("etl-exec-3", executors(driver, 11, 11)[0])
    assert jobs.run() == ["etl-exec-11"]
    # The driver fails: its successor has a gang of its own.
    before = jobs.gang_of("etl-exec-1")
    again = replace(driver, uid="uid-driver-2", name="etl-driver-2")
    jobs.pods(
        again,
        *[replace(pod, uid=f"{pod.uid}-2", name=f"{pod.name}-2") for pod in executors(again, 1, 1)],
    )
    assert jobs.gang_of("etl-exec-1-2") not in {"", before}


def submitted_driver(least, **fields):
    """Return a driver as spark-submit makes it: nothing owns it, and an annotation is read."""
    labels = {"spark-role": "driver"}
    hint = PLANNING.pod_reader.read_hints({MIN: least} if least else {}, labels, 0)
    extensions = () if hint is None else ((OwnerGangs.name, hint),)
    return owned("etl-driver", None, labels, gpus=1, extensions=extensions, **fields)


def test_9_executors_of_spark_submit_start_as_an_annotation_of_the_driver_says():
    driver = submitted_driver("4")
    jobs = Jobs().pods(*executors(driver, 1, 3), driver)
    assert jobs.gang_of("etl-driver") == ""
    assert jobs.run() == ["etl-driver"]
    assert jobs.gang_name("etl-exec-1") == "pod:etl-driver"
    jobs.pods(executors(driver, 4, 4)[0], executors(driver, 5, 5)[0])
    assert jobs.spec_of("etl-exec-1").min_member == 4
    assert len(jobs.run()) == 5
    # Without it they go one by one, and one that is no number holds them.
    jobs = Jobs().pods(submitted_driver(""), *executors(submitted_driver(""), 1, 2))
    assert len(jobs.run()) == 3
    jobs = Jobs().pods(submitted_driver("many"), *executors(submitted_driver("many"), 1, 2))
    assert jobs.run() == ["etl-driver"]
    assert jobs.why("etl-exec-1").code == "InvalidOwner"
    jobs.pods(submitted_driver("2"))  # it is corrected
    assert jobs.run() == ["etl-driver", "etl-exec-1", "etl-exec-2"]


def test_10_volcano_job_migrated():
    tf = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "tf"},
        "spec": {
            "tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 3}},
            "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
        },
    }
    jobs = Jobs().own_objects(tf)
    jobs.pods(*(replica(tf, "worker", at) for at in range(3)))
    spec = jobs.spec_of("tf-worker-0")
    assert (spec.min_member, spec.total, spec.sub_groups) == (3, 4, None)
    assert len(jobs.run()) == 3  # as in Volcano: without the parameter server
    js = jobset(
        replicated("ps", 1, 1, job={"backoffLimit": 0}),
        replicated("wk", 1, 3, job={"backoffLimit": 0}),
    )
    jobs = Jobs().own_objects(js)
    for role, count in (("ps", 1), ("wk", 3)):
        made, pods = jobset_pods(js, role, 0, count)
        jobs.own_objects(made).pods(*pods)
    spec = jobs.spec_of("js-wk-0-0-a0")
    assert spec.min_member == 4
    assert spec.on_member_failure is OnMemberFailure.RESTART_GANG
    assert JOB_INDEX in jobs.pod("js-wk-0-0-a0").profile.labels


def test_9_drivers_with_a_quota_of_their_own_leave_room_for_executors():
    """The recipe for Spark: without the quota twenty drivers would fill both nodes."""
    jobs = Jobs(nodes=2).own_objects(ETL)
    gpu = "nvidia.com/gpu"
    jobs.quotas(
        make_quota("drivers", min={gpu: 4}, max={gpu: 4}),
        make_quota("executors", min={gpu: 12}, max={gpu: 12}),
    )
    drivers = [
        owned(f"etl-driver-{at}", ETL, {"spark-role": "driver"}, gpus=1, quota="drivers")
        for at in range(20)
    ]
    jobs.pods(*drivers)
    started = jobs.run()
    assert len(started) == 4
    first = next(driver for driver in drivers if driver.name == started[0])
    jobs.pods(*(replace(pod, quota="executors") for pod in executors(first, 1, 10)))
    assert len(jobs.run()) == 10
