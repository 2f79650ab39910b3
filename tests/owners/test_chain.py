"""How the owner of a gang is found, and who cannot be fooled: one test per rule."""

from dataclasses import replace

import pytest
from tests.builders import make_pod_group
from tests.owners.frameworks import JOB_INDEX, Jobs, find_kind, indexed, owned, reference, replica
from tests.owners.test_worked_examples import GPT, MIN, STAGES, job, jobset_pods, pytorch

from koord.api.owner_kinds import WorkloadKind
from koord.core.gang.reasons import describe_settings
from koord.core.model.pods import Handling, OwnerReference
from koord.core.owners.model import KindAccess

WHOLE = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}


def workers(jobs=GPT):
    return [replica(jobs, "master", 0), *(replica(jobs, "worker", at) for at in range(3))]


def test_a_pod_that_names_a_gang_is_in_that_one():
    named = replace(replica(GPT, "master", 0), gang=make_member("default/mine"))
    jobs = Jobs().own_objects(GPT).pods(named)
    assert jobs.gang_of("gpt-master-0") == "default/mine"
    jobs.pod_groups(make_pod_group("default/mine", 1))
    assert jobs.step() == ["gpt-master-0"]


def make_member(key):
    from tests.builders import make_pod  # noqa: PLC0415

    return make_pod("x").gang(key).build().gang


@pytest.mark.parametrize("on_pod", [True, False])
def test_opting_out(on_pod):
    key = "operators.koordinator.sh/owner-grouping"
    owner = GPT if on_pod else pytorch("gpt", GPT["spec"], annotations={key: "false"})
    pod = replica(owner, "worker", 0)
    if on_pod:
        pod = replace(pod, extensions=(("owners", "opted-out"),))
    jobs = Jobs().own_objects(owner).pods(pod)
    assert jobs.step() == ["gpt-worker-0"]


def test_only_the_controller_is_followed():
    others = replace(owned("a", GPT).owners[0], is_controller=False)
    jobs = Jobs().own_objects(GPT).pods(replica(GPT, "worker", 0, owners=(others,)))
    assert jobs.gang_of("gpt-worker-0") == ""


@pytest.mark.parametrize(
    "lie",
    [
        {"uid": "uid-of-another"},
        {"name": "gpt2"},
        {"kind": "TFJob"},
        {"api_version": "batch/v1"},
    ],
)
def test_a_forged_reference_joins_no_gang(lie):
    jobs = Jobs().own_objects(GPT).pods(*workers()[:3])
    forged = replace(owned("a", GPT).owners[0], **lie)
    jobs.pods(replica(GPT, "worker", 2, owners=(forged,)))
    assert jobs.gang_of("gpt-worker-2") != jobs.gang_of("gpt-worker-1")
    assert jobs.step() == (["gpt-worker-2"] if "api_version" in lie else [])


def test_a_reference_from_another_namespace_joins_no_gang():
    jobs = Jobs().own_objects(GPT).pods(*workers()[:3])
    spy = replica(GPT, "worker", 2, namespace="evil", uid="uid-evil")
    jobs.pods(spy)
    gang = jobs.state.pods["uid-evil"].gang
    assert gang.key.startswith("evil/")
    assert jobs.step() == []
    # Changes of the owner do not even look at such pods.
    mine = {pod.uid for pod in workers()[:3]}
    assert jobs.owners._branches.find_below("default", "uid-gpt") == mine


def test_owners_in_a_circle_end_somewhere():
    def reference_to(name):
        return (OwnerReference(name, "Pod", "v1", f"uid-default-{name}", True),)

    a, b = owned("a", None, owners=reference_to("b")), owned("b", None, owners=reference_to("a"))
    jobs = Jobs().pods(a, b)
    assert sorted(jobs.step()) == ["a", "b"]
    assert len(jobs.owners.chain_of(jobs.pod("a")).owners) == 8


def test_the_highest_claiming_owner_has_the_gang():
    jobs = Jobs().own_objects(STAGES)
    made, pods = jobset_pods(STAGES, "w", 0, 4)
    jobs.own_objects(made).pods(*pods)
    assert jobs.gang_name("js-w-0-0-a0") == "jobset:js:w"
    jobs.remove_owner(STAGES)
    assert jobs.why("js-w-0-0-a0").code == "OwnerNotFound"


def test_what_wraps_a_job_leaves_the_gang_to_it():
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "wf"},
    }
    inner = job("step", WHOLE, ownerReferences=[reference(workflow)])
    jobs = Jobs().own_objects(inner).pods(indexed(inner, 0))
    assert jobs.gang_name("step-0-x") == "job:step"
    assert jobs.owners.count_unknown() == {}


def test_pods_of_an_unknown_kind_go_one_by_one_and_are_counted():
    own = {"apiVersion": "acme.example/v1", "kind": "Train", "metadata": {"name": "t"}}
    jobs = Jobs().pods(owned("t-0", own))
    assert jobs.owners.count_unknown() == {"Train.acme.example": 1}
    assert jobs.step() == ["t-0"]
    jobs.delete_pods("t-0")
    assert jobs.owners.count_unknown() == {}


def test_a_site_adds_a_kind_by_configuration():
    kind = WorkloadKind.model_validate(
        {
            "group": "acme.example",
            "version": "v1",
            "kind": "Train",
            "plural": "trains",
            "gang": {"roles": "[{name: '', size: spec.nodes}]"},
            "pods": {"index": ["acme.example/rank"]},
        }
    )
    train = {
        "apiVersion": "acme.example/v1",
        "kind": "Train",
        "metadata": {"name": "t"},
        "spec": {"nodes": 3},
    }
    jobs = Jobs(own=(kind,)).own_objects(train)
    for at in range(3):
        assert jobs.step() == []
        jobs.pods(owned(f"t-{at}", train, {"acme.example/rank": str(at)}))
    assert len(jobs.step()) == 3


def test_a_kind_that_cannot_be_read_holds_its_pods():
    jobs = Jobs().pods(*workers())
    assert jobs.step() == []
    assert jobs.why("gpt-worker-0").code == "OwnerNotFound"
    jobs.owners.note_access(("kubeflow.org", "PyTorchJob"), KindAccess.FORBIDDEN)
    reason = jobs.why("gpt-worker-0")
    assert reason.code == "OwnerUnreadable"
    assert "may not read PyTorchJob.kubeflow.org" in reason.text()
    jobs.owners.note_access(("kubeflow.org", "PyTorchJob"), KindAccess.NOT_SERVED)
    assert "does not serve" in jobs.why("gpt-worker-0").text()
    jobs.owners.note_access(("kubeflow.org", "PyTorchJob"), KindAccess.READ)
    assert len(jobs.own_objects(GPT).run()) == 4


def test_a_suspended_owner_has_nothing_to_place():
    suspended = pytorch("gpt", {**GPT["spec"], "runPolicy": {"suspend": True}})
    jobs = Jobs().own_objects(suspended).pods(*workers())
    assert jobs.step() == []
    assert jobs.why("gpt-worker-0").code == "OwnerSuspended"
    assert len(jobs.own_objects(GPT).run()) == 4


def test_an_annotation_of_the_job_is_its_minimum():
    eager = pytorch("gpt", GPT["spec"], annotations={MIN: "2"})
    jobs = Jobs().own_objects(eager).pods(*workers()[1:3])
    assert len(jobs.step()) == 2


def test_other_annotations_of_the_job_are_settings_of_its_gang():
    keys = {"gang.scheduling.koordinator.sh/mode": "NonStrict", MIN: "1"}
    jobs = Jobs().own_objects(job("q", {"parallelism": 4}, annotations=keys))
    jobs.pods(owned("q-a", job("q", {})))
    assert jobs.spec_of("q-a").mode == "NonStrict"
    assert jobs.step() == ["q-a"]


@pytest.mark.parametrize(
    ("minimum", "code"), [("9", "MinAboveSize"), ("x", "InvalidOwner"), ("-1", "InvalidOwner")]
)
def test_minimums_that_make_no_sense(minimum, code):
    bad = pytorch("gpt", GPT["spec"], annotations={MIN: minimum})
    jobs = Jobs().own_objects(bad).pods(*workers())
    assert jobs.step() == []
    assert jobs.why("gpt-worker-0").code == code
    assert len(jobs.own_objects(GPT).step()) == 4


def test_a_statefulset_that_starts_its_pods_one_after_the_other():
    sts = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "annotations": {MIN: "3"}},
        "spec": {"replicas": 3},
    }
    pods = [owned(f"web-{at}", sts, {"apps.kubernetes.io/pod-index": str(at)}) for at in range(3)]
    jobs = Jobs().own_objects(sts).pods(pods[0])
    assert jobs.why("web-0").code == "MinAboveSize"
    parallel = {**sts, "spec": {"replicas": 3, "podManagementPolicy": "Parallel"}}
    jobs.own_objects(parallel).pods(*pods[1:])
    assert len(jobs.run()) == 3


def test_two_replicasets_are_two_gangs():
    def replica_set(name):
        meta = {"name": name, "annotations": {MIN: "2"}}
        return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta}

    old, new = replica_set("web-1"), replica_set("web-2")
    jobs = Jobs().own_objects(old, new)
    jobs.pods(owned("web-1-a", old), owned("web-2-a", new))
    assert jobs.step() == []
    jobs.pods(owned("web-2-b", new))
    assert sorted(jobs.step()) == ["web-2-a", "web-2-b"]


def test_pods_without_a_word_of_the_operators_make_no_gang_and_count_in_one():
    strangers = [replace(pod, handling=Handling.NOT_OURS, is_gated=False) for pod in workers()]
    jobs = Jobs().own_objects(GPT).pods(*strangers)
    assert jobs.state.gangs.keys() == ()
    jobs.pods(*workers()[1:])
    assert len(jobs.state.gangs.members(jobs.gang_of("gpt-worker-0"))) == 4
    assert jobs.step() == []
    # Another scheduler places the master: now all are there.
    jobs.pods(replace(strangers[0], node="n0"))
    assert len(jobs.run()) == 3
    jobs.delete_pods(*(pod.name for pod in workers()[1:]))
    assert jobs.gang_of("gpt-master-0") == ""
    assert jobs.state.gangs.keys() == ()


def test_nothing_is_left_once_all_is_gone():
    jobs = Jobs().own_objects(GPT).pods(*workers())
    jobs.delete_pods(*(pod.name for pod in workers()))
    jobs.remove_owner(GPT)
    owners = jobs.owners
    left = (owners._derived, owners._branches, owners._own)
    assert not any(left)
    assert not owners._by_owner
    assert jobs.state.gangs.keys() == ()


def test_the_condition_says_which_rule_found_the_gang():
    jobs = Jobs().own_objects(GPT).pods(*workers())
    note = describe_settings(jobs.pod("gpt-worker-0").gang)
    assert note == (
        "Note: the gang is that of pytorchjob/default/gpt, by the rule for PyTorchJob.kubeflow.org"
    )


def test_the_order_in_which_objects_come_does_not_matter():
    pods, whole = workers(), Jobs().own_objects(GPT).pods(*workers())
    late = Jobs().pods(*pods)
    late.own_objects(GPT)
    for pod in pods:
        assert late.pod(pod.name) == whole.pod(pod.name)
    assert late.spec_of("gpt-worker-0") == whole.spec_of("gpt-worker-0")


@pytest.mark.parametrize("key", [JOB_INDEX])
def test_an_index_that_is_no_number_is_none(key):
    fold = job("fold", WHOLE)
    jobs = Jobs().own_objects(fold)
    jobs.pods(*(indexed(fold, at, labels={}) for at in range(2)))
    odd = owned("fold-odd", fold, {key: "9" * 40})
    jobs.pods(odd)
    assert jobs.pod("fold-odd").index == -1
    assert find_kind("batch/v1", "Job").pods.index == (key,)


def test_a_pod_that_comes_back_out_of_a_state_is_in_the_gang_of_its_owners():
    """As where edits are tried and taken back: the gang is derived again, and follows its owner."""
    jobs = Jobs().own_objects(GPT).pods(*workers())
    own = replace(workers()[1], sub_group="mine", index=7)
    jobs.pods(own)
    kept = {pod.uid: pod for pod in jobs.state.pods.values()}
    for pod in list(kept.values()):
        jobs.pods(pod)
    assert {pod.uid: pod for pod in jobs.state.pods.values()} == kept
    assert (jobs.pod(own.name).sub_group, jobs.pod(own.name).index) == ("mine", 7)
    jobs.remove_owner(GPT)
    assert {jobs.why(pod.name).code for pod in kept.values()} == {"OwnerNotFound"}
    jobs.own_objects(GPT)
    assert {pod.uid: pod for pod in jobs.state.pods.values()} == kept
    bare = replace(jobs.pod(own.name), owners=())
    jobs.pods(bare)
    assert jobs.gang_of(own.name) == ""
