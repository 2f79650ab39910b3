"""What has gone wrong with gangs of job frameworks elsewhere, and must not here."""

from dataclasses import replace

from tests.owners.frameworks import Jobs, indexed, owned, pod_as_owner, reference, replica
from tests.owners.test_worked_examples import (
    GPT,
    LLM,
    MIN,
    STAGES,
    job,
    jobset_pods,
    lws_group,
    mpi,
    mpi_pod,
    needed,
    pytorch,
    ray_cluster,
    ray_pods,
)

from koord.core.gang.quorum import find_lost
from koord.core.model.pods import PodPhase

WHOLE = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}


def members():
    return [replica(GPT, "master", 0), *(replica(GPT, "worker", at) for at in range(3))]


def test_a_minimum_that_counts_the_launcher_that_waits_for_workers():
    """The framework's own gang waits for nine pods of which one comes after eight."""
    policy = {"schedulingPolicy": {"minAvailable": 9}}
    cfd = mpi({"launcherCreationPolicy": "WaitForWorkersReady", "runPolicy": policy})
    jobs = Jobs().own_objects(cfd)
    jobs.pods(*(mpi_pod(f"cfd-worker-{at}", cfd, "worker", at) for at in range(8)))
    assert len(jobs.run()) == 8


def test_roles_that_follow_each_other_are_gangs_of_their_own():
    """KubeDL makes workers once the master runs; its jobs without PodGroups."""
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 2}, "Worker": {"replicas": 3}}}
    kdl = {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "PyTorchJob",
        "metadata": {"name": "k"},
        "spec": spec,
    }

    def pods(role, count):
        return [owned(f"k-{role}-{at}", kdl, {"replica-type": role}) for at in range(count)]

    jobs = Jobs().own_objects(kdl).pods(*pods("master", 2))
    assert len(jobs.run()) == 2
    jobs.pods(*pods("worker", 2))
    assert jobs.run() == []
    jobs.pods(*pods("worker", 3)[2:])
    assert len(jobs.run()) == 3


def test_a_later_stage_is_not_counted_by_the_first():
    jobs = Jobs().own_objects(STAGES)
    db, pods = jobset_pods(STAGES, "db", 0, 1)
    assert len(jobs.own_objects(db).pods(*pods).run()) == 1


def test_the_submitter_is_no_member_and_a_gang_lives_as_long_as_its_pods():
    rayjob, cluster = ray_cluster("rl-abc")
    submitter = job("rl", {}, uid="uid-submitter", ownerReferences=[reference(rayjob)])
    jobs = Jobs().own_objects(cluster, submitter).pods(*ray_pods(cluster))
    jobs.pods(owned("rl-x", submitter, {}))
    jobs.run()
    jobs.end("rl-x")
    assert find_lost(jobs.state.gangs, jobs.gang_of("rl-abc-head-x")) == ()
    assert len(jobs.state.gangs.members(jobs.gang_of("rl-abc-head-x"))) == 5


def test_the_minimum_follows_the_owner():
    el = {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    jobs = Jobs().own_objects(pytorch("el", el))
    jobs.pods(*(replica(pytorch("el", el), "worker", at) for at in range(2)))
    assert jobs.spec_of("el-worker-0").min_member == 2
    jobs.own_objects(pytorch("el", {**el, "elasticPolicy": {"minReplicas": 3}}))
    assert jobs.spec_of("el-worker-0").min_member == 3
    assert jobs.step() == []


def test_members_that_have_succeeded_do_not_make_the_others_too_few():
    fold = job("fold", WHOLE)
    jobs = Jobs().own_objects(fold).pods(*(indexed(fold, at) for at in range(3)))
    jobs.run()
    jobs.end("fold-0-x")
    assert find_lost(jobs.state.gangs, jobs.gang_of("fold-1-x")) == ()
    assert needed(jobs, "fold-1-x") == 2
    # What has succeeded is removed; the Job knows.
    jobs.delete_pods("fold-0-x")
    jobs.own_objects({**fold, "status": {"succeeded": 1}})
    assert find_lost(jobs.state.gangs, jobs.gang_of("fold-1-x")) == ()


def test_an_index_that_was_given_up_is_not_waited_for():
    fold = job("fold", WHOLE)
    jobs = Jobs().own_objects(fold).pods(*(indexed(fold, at) for at in range(3)))
    jobs.run()
    jobs.end("fold-2-x", PodPhase.FAILED)
    assert len(find_lost(jobs.state.gangs, jobs.gang_of("fold-1-x"))) == 1
    jobs.own_objects({**fold, "status": {"failedIndexes": "2"}})
    assert find_lost(jobs.state.gangs, jobs.gang_of("fold-1-x")) == ()


def test_a_pod_that_still_ends_does_not_count_beside_its_successor():
    fold = job("fold", WHOLE)
    jobs = Jobs().own_objects(fold).pods(*(indexed(fold, at) for at in range(2)))
    jobs.pods(replace(indexed(fold, 1, "y"), is_terminating=True))
    assert jobs.step() == []
    jobs.pods(indexed(fold, 2))
    assert len(jobs.run()) == 3


def test_a_replacement_is_placed_alone_and_a_restarted_process_knows_that():
    jobs = Jobs().own_objects(GPT).pods(*members())
    jobs.run()
    again = replica(GPT, "worker", 1, uid="uid-again")
    jobs.replaced("gpt-worker-1", again)
    observed = [jobs.raw(jobs.pod(pod.name)) for pod in members()]
    # Another process lists everything, in another order.
    other = Jobs().pods(*observed[::-1]).own_objects(GPT)
    assert other.gang_of("gpt-worker-1") == jobs.gang_of("gpt-worker-1")
    assert other.run() == jobs.run() == ["gpt-worker-1"]


def test_a_job_that_is_made_again_is_another_gang():
    jobs = Jobs().own_objects(GPT).pods(*members())
    jobs.run()
    second = pytorch("gpt", GPT["spec"], uid="uid-second")
    jobs.remove_owner(GPT)
    jobs.own_objects(second)
    fresh = replica(second, "worker", 1, uid="uid-fresh")
    jobs.replaced("gpt-worker-1", fresh)
    assert jobs.run() == []
    assert jobs.why("gpt-worker-1").code == "MissingMembers"


def test_a_deleted_job_leaves_nothing_to_start():
    jobs = Jobs().own_objects(GPT).pods(*members())
    jobs.remove_owner(GPT)
    assert jobs.run() == []
    assert jobs.why("gpt-worker-0").code == "OwnerNotFound"


def test_workers_do_not_start_once_their_leader_is_gone():
    sets, pods = lws_group(LLM, 0)
    jobs = Jobs().own_objects(LLM, *sets).pods(*pods)
    jobs.delete_pods("llm-0")
    assert jobs.why("llm-0-1").code == "OwnerNotFound"
    assert jobs.step() == []


def test_executors_do_not_start_once_their_driver_is_gone():
    driver = owned("driver", None)
    jobs = Jobs().pods(driver, owned("exec-1", pod_as_owner(driver)))
    assert jobs.gang_of("exec-1") == ""
    jobs.delete_pods("driver")
    assert jobs.why("exec-1").code == "OwnerNotFound"


def test_a_pod_that_is_orphaned_is_alone():
    jobs = Jobs().own_objects(GPT).pods(*members())
    pod = replica(GPT, "worker", 1)
    kept = tuple(replace(owner, is_controller=False) for owner in pod.owners)
    jobs.pods(replace(pod, owners=kept))
    assert jobs.gang_of("gpt-worker-1") == ""
    assert len(jobs.state.gangs.members(jobs.gang_of("gpt-worker-0"))) == 3
    assert jobs.step() == ["gpt-worker-1"]


def test_settings_are_read_from_the_job_and_not_from_its_pods():
    hold = {"operators.koordinator.sh/queue-hold": "true", MIN: "3"}
    fold = job("fold", WHOLE, annotations=hold)
    jobs = Jobs().own_objects(fold).pods(*(indexed(fold, at) for at in range(3)))
    assert jobs.spec_of("fold-0-x").is_held
