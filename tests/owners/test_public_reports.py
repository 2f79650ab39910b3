"""What users of other schedulers have reported of their jobs, played here in plain words.

Each test names the public report that it follows.
"""

from dataclasses import replace

from tests.autoscaler.test_demand import told
from tests.builders import GPU, make_node, make_pod_group, make_quota
from tests.owners.frameworks import Jobs, indexed, owned, pod_as_owner, replica
from tests.owners.test_worked_examples import (
    LLM,
    executors,
    job,
    jobset,
    jobset_pods,
    lws_group,
    mpi,
    mpi_pod,
    pytorch,
    ray_cluster,
    ray_pods,
    replicated,
    sub_groups,
)

from koord.core.model.gangs import GangMembership, GangSource, GangSpec
from koord.core.model.pods import PodPhase


def test_five_job_sets_of_two_parts_start_whole_or_not_at_all():
    """kubernetes-sigs/jobset#689: one part of each ran, and none of the five could go on."""
    jobs = Jobs(nodes=5)
    for at in range(5):
        js = jobset(replicated("part1", 1, 1), replicated("part2", 1, 1))
        js["metadata"] = {"name": f"js-{at}"}
        jobs.own_objects(js)
        for part in ("part1", "part2"):
            made, pods = jobset_pods(js, part, 0, 1)
            made["metadata"]["uid"] += f"-{at}"
            owner = {"owners": (replace(pods[0].owners[0], uid=made["metadata"]["uid"]),)}
            jobs.own_objects(made).pods(*(replace(pod, **owner) for pod in pods))
    placed = jobs.run()
    assert len(placed) == 4
    assert len({name.split("-part")[0] for name in placed}) == 2


def test_a_master_does_not_run_while_its_worker_waits():
    """kubernetes-sigs/kueue#2796: admitted by quota, the master ran and the worker had no node."""
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}
    hello = pytorch("hello", spec)
    jobs = Jobs(nodes=1).own_objects(hello)
    jobs.pods(replica(hello, "master", 0), replica(hello, "worker", 0))
    assert jobs.run() == []
    jobs.nodes(make_node("other").gpu(8))
    assert len(jobs.run()) == 2


def test_a_group_that_an_update_adds_is_a_gang_of_its_own():
    """kubernetes-sigs/kueue#8769: groups of a surge stayed gated, and the update stood still."""
    jobs = Jobs(nodes=8).own_objects(LLM)
    for group in range(2):
        sets, pods = lws_group(LLM, group)
        jobs.own_objects(*sets).pods(*pods)
    assert len(jobs.run()) == 8
    sets, pods = lws_group(LLM, 2)
    jobs.own_objects(*sets).pods(*pods)
    assert jobs.run() == []  # there is no room for it, and the others go on
    assert len({jobs.gang_of(f"llm-{group}") for group in range(3)}) == 3
    jobs.nodes(*(make_node(f"more-{at}").gpu(8) for at in range(4)))
    assert len(jobs.run()) == 4
    # Then the first group is made again.
    jobs.delete_pods("llm-0", *(f"llm-0-{at}" for at in range(1, 4)))
    sets, pods = lws_group(LLM, 0, "-new")
    jobs.own_objects(*sets).pods(*pods)
    assert len(jobs.run()) == 4


def test_a_launcher_that_comes_before_its_workers_keeps_nobody():
    """kubeflow/mpi-operator#615: after a pause the launcher is there before any worker is."""
    cfd = mpi({"launcherCreationPolicy": "WaitForWorkersReady"})
    launcher = job("cfd-launcher", {}, ownerReferences=[])
    jobs = Jobs().own_objects(cfd, launcher)
    jobs.pods(mpi_pod("cfd-launcher-x", cfd, "launcher"))
    assert jobs.run() == ["cfd-launcher-x"]
    jobs.pods(*(mpi_pod(f"cfd-worker-{at}", cfd, "worker", at) for at in range(7)))
    assert jobs.run() == []
    jobs.pods(mpi_pod("cfd-worker-7", cfd, "worker", 7))
    assert len(jobs.run()) == 8


def elastic_ray(**groups):
    """Return a RayCluster that scales itself; name -> (replicas, least)."""
    specs = [
        {"groupName": name, "replicas": count, "minReplicas": least, "maxReplicas": 9}
        for name, (count, least) in groups.items()
    ]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {"enableInTreeAutoscaling": True, "headGroupSpec": {}, "workerGroupSpecs": specs},
    }


def ray_worker(cluster, group, at, **fields):
    labels = {"ray.io/group": group, "ray.io/node-type": "worker"}
    return owned(f"ray-{group}-{at}", cluster, labels, **fields)


def ray_head(cluster):
    return owned("ray-head", cluster, {"ray.io/group": "headgroup", "ray.io/node-type": "head"})


def test_a_worker_that_was_killed_returns_although_the_old_one_still_ends():
    """kubernetes-sigs/kueue#9986 and #9879: the new worker of Ray stayed gated for ever."""
    ray = elastic_ray(gpu=(3, 2))
    jobs = Jobs(nodes=5).own_objects(ray)
    jobs.pods(ray_head(ray), *(ray_worker(ray, "gpu", at) for at in range(3)))
    assert len(jobs.run()) == 4
    jobs.state.upsert_pod(replace(jobs.raw(jobs.pod("ray-gpu-1")), is_terminating=True))
    jobs.pods(ray_worker(ray, "gpu", "new"))
    assert jobs.run() == ["ray-gpu-new"]


def test_a_cluster_of_ray_does_not_start_without_a_whole_group_of_workers():
    """kai-scheduler/KAI-Scheduler#924: enough pods in all, and none of the one group."""
    ray = elastic_ray(small=(3, 1), large=(3, 1))
    jobs = Jobs(nodes=6).own_objects(ray)
    jobs.pods(ray_head(ray), *(ray_worker(ray, "small", at) for at in range(3)))
    jobs.pods(*(ray_worker(ray, "large", at, gpus=16) for at in range(3)))
    spec = jobs.spec_of("ray-head")
    assert spec.min_member == 3
    assert sub_groups(spec) == {"headgroup": 1, "small": 1, "large": 1}
    assert jobs.run() == []
    jobs.nodes(make_node("large").gpu(16))
    assert {"ray-head", "ray-large-0"} <= set(jobs.run())


def test_the_gang_of_a_cluster_of_ray_follows_its_size():
    """ray-project/kuberay#5205: the minimum was written once, and a smaller cluster never fit."""
    ray = elastic_ray(gpu=(4, 4))
    jobs = Jobs(nodes=3).own_objects(ray)
    jobs.pods(ray_head(ray), *(ray_worker(ray, "gpu", at) for at in range(2)))
    assert jobs.run() == []
    jobs.own_objects(elastic_ray(gpu=(2, 2)))
    assert len(jobs.run()) == 3


def test_pods_that_come_before_what_owns_them_are_found_later():
    """ai-dynamo/grove#316: pods that were made before their gang waited for ever."""
    driver = owned("driver", None, gpus=1)
    ray = elastic_ray(gpu=(1, 1))
    jobs = Jobs().pods(ray_worker(ray, "gpu", 0), ray_head(ray))
    jobs.pods(owned("exec-1", pod_as_owner(driver), {"spark-role": "executor"}, gpus=1))
    assert jobs.run() == []
    assert jobs.why("exec-1").code == "OwnerNotFound"
    jobs.own_objects(ray).pods(driver)  # one that nothing owns, as spark-submit makes it
    assert jobs.run() == ["driver", "exec-1", "ray-gpu-0", "ray-head"]


def test_no_node_is_bought_for_executors_beyond_the_quota():
    """volcano-sh/volcano#4710, kubernetes-sigs/karpenter#742: nodes that nobody could use."""
    etl = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "etl"},
        "spec": {"dynamicAllocation": {"enabled": True, "minExecutors": 1, "maxExecutors": 5}},
    }
    jobs = Jobs(nodes=2).own_objects(etl).quotas(make_quota("q", min={GPU: 9}, max={GPU: 9}))
    driver = owned("etl-driver", etl, {"spark-role": "driver"}, gpus=1, quota="q")
    jobs.pods(driver)
    assert jobs.run() == ["etl-driver"]
    jobs.pods(*(replace(pod, quota="q") for pod in executors(driver, 1, 5)))
    # Each takes a node, and the quota is enough for one.
    for at in range(1, 6):
        pod = jobs.pod(f"etl-exec-{at}")
        whole = owned(pod.name, pod_as_owner(driver), dict(pod.profile.labels), quota="q")
        jobs.pods(whole)
    assert len(jobs.run()) == 1
    assert told(jobs) == []


def test_jobs_of_two_frameworks_start_together():
    """kai-scheduler/KAI-Scheduler#1420: an evaluation and a cluster of Ray that need each other."""
    _, ray = ray_cluster("rl-abc")
    fold = job("eval", {"completionMode": "Indexed", "parallelism": 2, "completions": 2})
    both = GangMembership("default/both", GangSource.POD_GROUP)
    jobs = Jobs(nodes=6).own_objects(ray, fold).pod_groups(make_pod_group("default/both", 7))
    pods = [*ray_pods(ray), *(indexed(fold, at) for at in range(2))]
    jobs.pods(*(replace(pod, gang=both) for pod in pods))
    assert jobs.run() == []
    jobs.nodes(make_node("one-more").gpu(8))
    assert len(jobs.run()) == 7


def test_a_replacement_does_not_go_back_to_the_node_that_failed():
    """kubernetes-sigs/kueue#14092: one try after the other was put where the pod had failed."""
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}
    gpt = pytorch("gpt", spec)
    jobs = Jobs(nodes=3).own_objects(gpt).pods(*(replica(gpt, "worker", at) for at in range(3)))
    assert len(jobs.run()) == 3
    failed = jobs.pod("gpt-worker-1").node
    jobs.nodes(make_node(failed).gpu(8).taint("example.com/broken", effect="NoExecute"))
    jobs.replaced("gpt-worker-1", replica(gpt, "worker", 1, uid="again"))
    for _ in range(3):
        assert jobs.run() == []
    jobs.nodes(make_node("spare").gpu(8))
    assert jobs.run() == ["gpt-worker-1"]
    assert jobs.pod("gpt-worker-1").node == "spare"


def test_a_job_whose_members_end_at_different_times_is_replaced_to_its_end():
    """kubernetes/kubernetes#142330: after one index had succeeded, no lost one came back."""
    fold = job("fold", {"completionMode": "Indexed", "parallelism": 3, "completions": 3})
    jobs = Jobs(nodes=3).own_objects(fold).pods(*(indexed(fold, at) for at in range(3)))
    assert len(jobs.run()) == 3
    jobs.end("fold-0-x")
    jobs.end("fold-1-x", PodPhase.FAILED)
    jobs.pods(indexed(fold, 1, "again"))
    assert jobs.run() == ["fold-1-again"]


def test_leaders_do_not_take_the_room_of_workers():
    """kubernetes-sigs/lws#167: after a scale-out leaders ran everywhere, and workers nowhere."""
    many = {**LLM, "spec": {**LLM["spec"], "replicas": 4}}
    jobs = Jobs(nodes=9).own_objects(many)
    groups = [lws_group(many, group) for group in range(4)]
    for sets, (leader, *_) in groups:
        jobs.own_objects(*sets).pods(leader)
    assert jobs.run() == []
    for _, (_, *workers) in groups:
        jobs.pods(*workers)
    placed = jobs.run()
    assert len(placed) == 8
    assert len({"-".join(name.split("-")[:2]) for name in placed}) == 2


def test_workflows_whose_steps_need_each_other_start_whole():
    """argoproj/argo-workflows#734: of each of six workflows some containers ran, and none could go
    on. Pods of a Workflow go one by one, unless they name a gang."""
    jobs = Jobs(nodes=14)
    for at in range(6):
        flow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
        flow["metadata"] = {"name": f"flow-{at}"}
        key = f"default/flow-{at}"
        declared = GangSpec(key, 5, 5, source=GangSource.ANNOTATION, group=(key,))
        gang = GangMembership(key, GangSource.ANNOTATION, declared)
        jobs.pods(*(owned(f"flow-{at}-{step}", flow, gang=gang) for step in range(5)))
    placed = jobs.run()
    assert len(placed) == 10
    assert len({name.rpartition("-")[0] for name in placed}) == 2
    assert jobs.pods(owned("other-0", flow)).run() == ["other-0"]


def test_surplus_of_a_gang_does_not_take_the_room_of_one_that_starts_with_it():
    """koordinator-sh/koordinator#872: ten pods of one, of which it needs three, left none."""
    first, second = make_pod_group("default/a", 3), make_pod_group("default/b", 3)
    both = ("default/a", "default/b")
    jobs = Jobs(nodes=8).pod_groups(first.group(*both), second.group(*both))
    for name, count in (("a", 10), ("b", 3)):
        gang = GangMembership(f"default/{name}", GangSource.POD_GROUP)
        jobs.pods(*(owned(f"{name}-{at}", None, gang=gang) for at in range(count)))
    placed = jobs.run()
    assert len(placed) == 8
    assert {"b-0", "b-1", "b-2"} <= set(placed)
