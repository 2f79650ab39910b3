"""What users have reported of jobs that restart, and of nodes that go: played here in plain words.

Each test names the public report that it follows.
"""

from dataclasses import replace

from tests.autoscaler.test_demand import told
from tests.builders import make_node
from tests.owners.frameworks import Jobs, indexed, replica
from tests.owners.test_worked_examples import (
    LLM,
    STAGES,
    job,
    jobset,
    jobset_pods,
    lws_group,
    pytorch,
    ray_cluster,
    ray_pods,
    replicated,
)

from koord.core.model.pods import Handling, PodPhase

PAIR = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}


def test_workers_of_many_clusters_do_not_keep_out_all_heads():
    """ray-project/kuberay#3592: workers had all the room, their heads none, and no job ran."""
    jobs = Jobs(nodes=12)
    clusters = [ray_cluster(f"rl-{at}", f"job-{at}")[1] for at in range(4)]
    for cluster in clusters:  # heads come last
        _, *workers = ray_pods(cluster)
        jobs.own_objects(cluster).pods(*workers)
    assert jobs.run() == []
    for cluster in clusters:
        jobs.pods(ray_pods(cluster)[0])
    placed = jobs.run()
    assert len(placed) == 10
    assert sum("head" in name for name in placed) == 2


def test_a_node_that_comes_back_without_its_devices_gets_nobody():
    """kubeflow/training-operator#999: a spot node returned under its name before its GPUs did."""
    hello = pytorch("hello", PAIR)
    jobs = Jobs(nodes=2).own_objects(hello)
    jobs.pods(replica(hello, "master", 0), replica(hello, "worker", 0))
    assert len(jobs.run()) == 2
    gone = jobs.pod("hello-worker-0").node
    jobs.state.remove_node(gone)
    jobs.delete_pods("hello-worker-0")
    jobs.nodes(make_node(gone).cpu(64_000))
    jobs.pods(replica(hello, "worker", 0, uid="again"))
    assert jobs.run() == []
    jobs.nodes(make_node(gone).gpu(8))
    assert jobs.run() == ["hello-worker-0"]


def test_members_that_have_ended_on_a_node_that_goes_are_not_missed():
    """volcano-sh/volcano#3296: pods that had completed were run again once their node was gone."""
    fold = job("fold", {"completionMode": "Indexed", "parallelism": 4, "completions": 4})
    jobs = Jobs(nodes=4).own_objects(fold).pods(*(indexed(fold, at) for at in range(4)))
    assert len(jobs.run()) == 4
    for at in (0, 1):
        node = jobs.pod(f"fold-{at}-x").node
        jobs.end(f"fold-{at}-x")
        jobs.state.remove_node(node)
    jobs.delete_pods("fold-0-x", "fold-1-x")
    fold["status"] = {"succeeded": 2, "completedIndexes": "0,1"}
    jobs.own_objects(fold)
    # One of the others is lost: it alone comes back, with two that run or ended with it.
    jobs.replaced("fold-2-x", indexed(fold, 2, "again"))
    assert jobs.run() == ["fold-2-again"]


def test_a_restart_waits_until_what_it_replaces_has_made_room():
    """kubernetes-sigs/kueue#14811: all Jobs of a JobSet came again while the old ones ended."""
    js = jobset(replicated("w", 2, 2), failurePolicy={"maxRestarts": 2})
    jobs = Jobs(nodes=4).own_objects(js)
    for at in range(2):
        made, pods = jobset_pods(js, "w", at, 2)
        jobs.own_objects(made).pods(*pods)
    assert len(jobs.run()) == 4
    old = [f"js-w-{at}-{index}-a0" for at in range(2) for index in range(2)]
    for name in old:
        jobs.state.upsert_pod(replace(jobs.raw(jobs.pod(name)), is_terminating=True))
    for at in range(2):
        made, pods = jobset_pods(js, "w", at, 2, attempt=1)
        jobs.own_objects(made).pods(*pods)
    for name in old:
        assert jobs.run() == [], "no member of the new run starts before the others can"
        jobs.delete_pods(name)
    assert len(jobs.run()) == 4


def test_no_node_is_bought_for_what_kueue_has_not_admitted():
    """kubernetes-sigs/kueue#12262, kubernetes/autoscaler#9828: nodes for pods that never run."""
    hello = pytorch("hello", PAIR)
    jobs = Jobs(nodes=1).own_objects(hello)
    gates = ("kueue.x-k8s.io/admission",)
    pods = [replica(hello, "master", 0), replica(hello, "worker", 0)]
    held = {"handling": Handling.FOREIGN_GATE, "foreign_gates": gates}
    jobs.pods(*(replace(pod, **held) for pod in pods))
    assert jobs.run() == []
    assert told(jobs) == []
    jobs.pods(*pods)
    assert jobs.run() == []
    assert told(jobs) == [["hello-master-0", "hello-worker-0"]]


def test_a_failed_pod_that_is_kept_for_its_log_is_no_member_beside_its_successor():
    """kubernetes-sigs/jobset#1276: the old leader was counted, and no follower was ever made."""
    fold = job("fold", {"completionMode": "Indexed", "parallelism": 3, "completions": 3})
    jobs = Jobs(nodes=3).own_objects(fold).pods(*(indexed(fold, at) for at in range(3)))
    assert len(jobs.run()) == 3
    for suffix in ("b", "c", "d"):
        last = "fold-0-x" if suffix == "b" else f"fold-0-{chr(ord(suffix) - 1)}"
        jobs.end(last, PodPhase.FAILED)
        jobs.pods(indexed(fold, 0, suffix))
        assert jobs.run() == [f"fold-0-{suffix}"]


def test_a_job_that_is_resumed_while_its_pods_still_end_starts_whole():
    """kubernetes-sigs/jobset#1021: pods of the last run led those of the next one astray."""
    stopped = pytorch("hello", {**PAIR, "runPolicy": {"suspend": True}})
    hello = pytorch("hello", PAIR)
    jobs = Jobs(nodes=2).own_objects(hello)
    jobs.pods(replica(hello, "master", 0), replica(hello, "worker", 0))
    assert len(jobs.run()) == 2
    jobs.own_objects(stopped)
    master = jobs.raw(jobs.pod("hello-master-0"))
    jobs.delete_pods("hello-worker-0")
    jobs.state.upsert_pod(replace(master, is_terminating=True))
    jobs.own_objects(hello)
    jobs.pods(replica(hello, "worker", 0, uid="worker-2"))
    assert jobs.run() == [], "its master is about to go, and is not back"
    jobs.delete_pods("hello-master-0")
    jobs.pods(replica(hello, "master", 0, uid="master-2"))
    assert jobs.run() == ["hello-master-0", "hello-worker-0"]


def test_a_leader_that_others_have_placed_does_not_hold_up_its_workers():
    """kubernetes-sigs/kueue#13968: after an upgrade a part of the pods no longer had its label."""
    sets, pods = lws_group(LLM, 0)
    jobs = Jobs(nodes=4).own_objects(LLM, *sets)
    leader = replace(pods[0], handling=Handling.NOT_OURS, is_gated=False)
    jobs.pods(leader, *pods[1:])
    assert jobs.run() == [], "it has no node yet"
    jobs.pods(replace(leader, node="n0", phase=PodPhase.RUNNING))
    assert len(jobs.run()) == 3


def test_leader_and_workers_have_ranks_of_their_own():
    """kubernetes-sigs/kueue#8661: workers that count from one were put anywhere."""
    sets, pods = lws_group(LLM, 0)
    jobs = Jobs(nodes=4).own_objects(LLM, *sets).pods(*pods)
    ranks = [jobs.pod(pod.name).index for pod in pods]
    assert ranks == sorted(set(ranks))


def test_a_leader_that_fills_the_node_of_its_workers_is_refused_once():
    """kubernetes-sigs/kueue#10778: room for the workers without the leader was tried for ever."""
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}}
    big = pytorch("big", spec)
    jobs = Jobs(nodes=1).own_objects(big)
    workers = [replace(replica(big, "worker", at, gpus=4)) for at in range(2)]
    jobs.pods(replica(big, "master", 0, gpus=6), *workers)
    assert jobs.run() == []
    assert len(jobs.absorb()) == 0, "it sleeps until something changes"
    jobs.nodes(make_node("more").gpu(6))
    assert len(jobs.run()) == 3


def test_a_member_whose_node_has_gone_waits_for_another_one_alone():
    """kubernetes-sigs/kueue#2732: a replacement found no node, the others ran on."""
    jobs = Jobs(nodes=9).own_objects(STAGES)
    db, pods = jobset_pods(STAGES, "db", 0, 1)
    jobs.own_objects(db).pods(*pods)
    for at in range(2):
        made, pods = jobset_pods(STAGES, "w", at, 4)
        jobs.own_objects(made).pods(*pods)
    assert len(jobs.run()) == 9
    lost = jobs.pod("js-w-0-1-a0").node
    jobs.state.remove_node(lost)
    jobs.delete_pods("js-w-0-1-a0")
    made, pods = jobset_pods(STAGES, "w", 0, 4)
    jobs.pods(replace(pods[1], uid="again", name="js-w-0-1-again"))
    assert jobs.run() == []
    jobs.nodes(make_node("spare").gpu(8))
    assert jobs.run() == ["js-w-0-1-again"]
