"""What becomes of manifests of other schedulers: each rule once."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from koord.api.job_disruptions import find_disruption_problems
from koord.api.lint import lint_documents
from koord.api.manifest_text import read_documents
from koord_migrate.koordinator import to_koordinator
from koord_migrate.requested_settings import SETTERS, layer_of
from koord_migrate.rewrite import migrate
from koord_migrate.table import PREFIXES, SCHEDULERS, TABLE, Action, Peer

MANIFESTS = Path(__file__).parent / "manifests"
PEERS = sorted(path.name for path in MANIFESTS.iterdir())
GATE = "operators.koordinator.sh/placement"
GROUP = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"


IGNORES_EVICTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}


def read(peer):
    return [
        one
        for path in sorted(MANIFESTS.glob(f"{peer}/*.yaml"))
        for one in read_documents(path.read_text(encoding="utf-8"))
    ]


def flatten(rewritten):
    return [document for one in rewritten for document in one.documents]


def lost_keys(rewritten):
    return [key for one in rewritten for _, key, _ in one.lost]


def rewrite(*documents):
    made = migrate(list(documents))
    return flatten(made), lost_keys(made)


def pod_of(keys=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": keys or {}},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
    }


def job_of(labels=None, annotations=None, template=None, **spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"template": template or {"spec": {"containers": [{"name": "c"}]}}, **spec},
    }


@pytest.mark.parametrize("peer", PEERS)
def test_there_are_ten_manifests_of_every_peer(peer):
    assert len(list(MANIFESTS.glob(f"{peer}/*.yaml"))) == 10


@pytest.mark.parametrize("peer", PEERS)
def test_nothing_of_the_peer_remains_and_the_models_accept_the_rest(peer):
    documents = flatten(migrate(read(peer)))
    text = yaml.safe_dump_all(documents)
    assert [one for one in (*PREFIXES, *SCHEDULERS) if one in text] == []
    assert [one for checked in lint_documents(documents) for one in checked.problems] == []


@pytest.mark.parametrize("peer", PEERS)
def test_migrating_again_changes_nothing(peer):
    once = flatten(migrate(read(peer)))
    again = migrate(once)
    assert flatten(again) == once
    assert lost_keys(again) == []


@pytest.mark.parametrize("peer", PEERS)
def test_nothing_of_ours_remains_on_the_way_back(peer):
    back = flatten(to_koordinator(flatten(migrate(read(peer)))))
    assert "operators.koordinator.sh" not in yaml.safe_dump_all(back)


def test_koordinators_manifests_get_the_gate_and_come_back_as_they_were():
    before = read("koordinator")
    there = flatten(migrate(before))
    assert GATE in yaml.safe_dump_all(there)
    back = flatten(to_koordinator(there))
    for one in back:
        if one["kind"] == "Job":
            assert one["spec"].pop("podFailurePolicy") == IGNORES_EVICTIONS, "of use there, too"
    assert back == before


def kai_job(restarts, **spec):
    template = {"spec": {"schedulerName": "kai-scheduler", "restartPolicy": restarts}}
    return job_of(annotations={"kai.scheduler/batch-min-member": "2"}, template=template, **spec)


def test_jobs_ignore_evictions():
    (_, job), lost = rewrite(kai_job("Never"))
    assert (job["spec"]["podFailurePolicy"], lost) == (IGNORES_EVICTIONS, [])
    exits = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    (_, job), _ = rewrite(kai_job("Never", podFailurePolicy={"rules": [exits]}))
    assert job["spec"]["podFailurePolicy"]["rules"] == [*IGNORES_EVICTIONS["rules"], exits]


def test_a_job_that_says_what_evictions_are_keeps_its_word():
    counts = {"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    (_, job), _ = rewrite(kai_job("Never", podFailurePolicy=counts))
    assert job["spec"]["podFailurePolicy"] == counts


def test_a_job_that_cannot_ignore_evictions_is_reported():
    (_, job), lost = rewrite(kai_job("OnFailure"))
    assert lost == ["spec.template.spec.restartPolicy"]
    assert "podFailurePolicy" not in job["spec"]


@pytest.mark.parametrize("peer", PEERS)
def test_what_is_migrated_survives_its_first_preemption_or_is_reported(peer):
    made = migrate(read(peer))
    documents = [one for one in flatten(made) if isinstance(one, dict)]
    fields = {problem.field for one in documents for problem in find_disruption_problems(one)}
    assert fields <= {"spec.template.spec.restartPolicy"}
    assert not fields or any(key.endswith("restartPolicy") for key in lost_keys(made))


def test_objects_of_no_scheduler_are_left_alone():
    job = job_of()
    made = migrate([job, {"kind": "ConfigMap"}])
    assert made[0].documents[0] is job
    assert lost_keys(made) == []


def test_input_is_not_changed():
    documents = read("kueue")
    before = json.dumps(documents)
    migrate(documents)
    assert json.dumps(documents) == before


def test_every_action_on_a_key_has_a_meaning():
    used = {row.action for row in TABLE if " " not in row.key}
    assert used <= set(SETTERS) | {Action.DROP, Action.KEEP, Action.REPORT}


def test_no_key_has_two_rows():
    keys = [row.key for row in TABLE]
    assert len(keys) == len(set(keys))


def test_unknown_key_of_a_peer_is_reported_with_its_value():
    made = migrate([pod_of({"volcano.sh/new-thing": "7"})])
    assert made[0].lost[0].advice == (
        "unknown, its value was '7': check that you can do without it, or set it by hand"
    )


def test_unknown_field_of_a_replaced_kind_is_reported():
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    _, lost = rewrite(group | {"metadata": {"name": "g"}, "spec": {"minMember": 2, "new": 1}})
    assert lost == ["spec.new"]


def test_value_that_cannot_be_read_is_reported():
    _, lost = rewrite(job_of(annotations={"kai.scheduler/batch-min-member": "two"}))
    assert lost == ["kai.scheduler/batch-min-member"]


def test_gang_without_its_pod_group_is_reported():
    _, lost = rewrite(pod_of({"scheduling.x-k8s.io/pod-group": "g"}))
    assert lost == ["g"]


def test_queue_of_a_pod_group_reaches_its_pods():
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group |= {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": "q"}}
    documents, _ = rewrite(pod_of({"scheduling.k8s.io/group-name": "g"}), group)
    assert documents[0]["metadata"]["labels"] == {GROUP: "g", QUOTA: "q"}


def test_local_queue_leads_to_its_cluster_queue_in_the_same_namespace():
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    queue |= {"metadata": {"name": "q", "namespace": "a"}, "spec": {"clusterQueue": "c"}}
    near, far = (
        pod_of({"kueue.x-k8s.io/queue-name": "q"}),
        pod_of({"kueue.x-k8s.io/queue-name": "q"}),
    )
    near["metadata"]["namespace"] = "a"
    documents, lost = rewrite(queue, near, far)
    assert [one["metadata"]["labels"][QUOTA] for one in documents] == ["c", "q"]
    assert lost == ["q"]


def test_object_without_a_name_is_reported_because_its_gang_needs_one():
    job = job_of({"kueue.x-k8s.io/queue-name": "q"})
    job["metadata"]["generateName"] = job["metadata"].pop("name")
    documents, lost = rewrite(job)
    assert [one["kind"] for one in documents] == ["Job"]
    assert lost == ["generateName", "q"]


def test_templates_that_yaml_aliases_share_are_rewritten_separately():
    job = mpi_job("WaitForWorkersReady")
    roles = job["spec"]["mpiReplicaSpecs"]
    roles["Launcher"]["template"] = roles["Worker"]["template"]
    (_, made), _ = rewrite(job)
    specs = made["spec"]["mpiReplicaSpecs"]
    assert "metadata" not in specs["Launcher"]["template"]
    assert specs["Worker"]["template"]["metadata"]["labels"] == {GROUP: "m"}


def test_roles_with_gangs_of_their_own_keep_them():
    job = mpi_job("AtStartup")
    key = "scheduling.x-k8s.io/pod-group"
    for role, one in job["spec"]["mpiReplicaSpecs"].items():
        one["template"]["metadata"] = {"labels": {key: role.lower()}}
    (made,), lost = rewrite(job)
    specs = made["spec"]["mpiReplicaSpecs"]
    groups = {role: one["template"]["metadata"]["labels"][GROUP] for role, one in specs.items()}
    assert groups == {"Launcher": "launcher", "Worker": "worker"}
    assert lost == ["launcher", "worker"]


def test_pods_with_claims_stay_with_the_default_scheduler():
    claim = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    (pod,), _ = rewrite(pod_of(schedulerName="volcano", volumes=claim))
    assert "schedulerName" not in pod["spec"]
    assert pod["spec"]["schedulingGates"] == [{"name": GATE}]


def test_gates_of_kueue_are_taken_off():
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]
    (pod,), _ = rewrite(pod_of({"kueue.x-k8s.io/managed": "true"}, schedulingGates=gates))
    assert [one["name"] for one in pod["spec"]["schedulingGates"]] == ["example.com/other", GATE]


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"parallelism": 4, "completions": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({}, 1),
    ],
)
def test_minimum_of_a_job_is_what_runs_at_once(spec, minimum):
    documents, _ = rewrite(job_of({"kueue.x-k8s.io/queue-name": "q"}, **spec))
    assert documents[0]["spec"] == {"minMember": minimum}


def mpi_job(policy):
    template = {"spec": {"schedulerName": "volcano", "containers": []}}
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    specs = {
        name: role | {"template": json.loads(json.dumps(template))} for name, role in roles.items()
    }
    spec = {"launcherCreationPolicy": policy, "mpiReplicaSpecs": specs}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": spec,
    }


@pytest.mark.parametrize(("policy", "minimum"), [("AtStartup", 3), ("WaitForWorkersReady", 2)])
def test_launcher_that_waits_for_workers_is_no_member(policy, minimum):
    (group, job), _ = rewrite(mpi_job(policy))
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    assert group["spec"]["minMember"] == minimum
    assert ("metadata" in launcher) is (policy == "AtStartup")


def test_cohort_without_an_object_becomes_a_parent_with_the_sum_of_its_queues():
    documents, lost = rewrite(*read("kueue"))
    quotas = {one["metadata"]["name"]: one for one in documents if one["kind"] == "ElasticQuota"}
    gpus = {"min": {"nvidia.com/gpu": "16"}, "max": {"nvidia.com/gpu": "1P"}}
    assert quotas["k-all"]["spec"] == gpus
    assert quotas["k-a"]["spec"]["max"] == {"nvidia.com/gpu": "16"}
    labels = quotas["k-b"]["metadata"]["labels"]
    assert labels["quota.scheduling.koordinator.sh/allow-lent-resource"] == "false"
    assert labels["quota.scheduling.koordinator.sh/parent"] == "k-all"
    assert lost == ["ResourceFlavor", "spec.preemption"]


def test_part_of_gpus_of_several_cards():
    annotations = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    pod = pod_of()
    pod["metadata"]["annotations"] = annotations
    (made,), _ = rewrite(pod)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/gpu-memory-ratio": "50",
        "koordinator.sh/gpu.shared": "2",
    }


@pytest.mark.parametrize(
    ("amounts", "expected", "lost"),
    [
        (
            {"number": 1, "cores": 30, "memory": 4000},
            {"koordinator.sh/gpu-core": "30", "koordinator.sh/gpu-memory": "4000Mi"},
            [],
        ),
        ({"number": 1, "memory": 4000}, {}, ["volcano.sh/vgpu-…"]),
    ],
)
def test_shares_of_volcano(amounts, expected, lost):
    limits = {f"volcano.sh/vgpu-{name}": amount for name, amount in amounts.items()}
    pod = pod_of()
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    (made,), keys = rewrite(pod)
    assert made["spec"]["containers"][0]["resources"]["limits"] == expected
    assert keys == lost


@pytest.mark.parametrize(
    ("label", "layer"),
    [
        ("example.com/topology-rack", "TopologyRackLayer"),
        ("kubernetes.io/hostname", "NodeTopologyLayer"),
        ("x" * 200, f"X{'x' * 57}Layer"),
    ],
)
def test_layers_are_named_after_labels(label, layer):
    assert layer_of(label) == layer


KINDS = st.sampled_from(
    ["Job", "Queue", "PodGroup", "ClusterQueue", "LocalQueue", "MPIJob", "JobSet", "Pod", "List"]
)
VERSIONS = st.sampled_from(
    ["batch/v1", "v1", "batch.volcano.sh/v1", "scheduling.volcano.sh/v1", "scheduling.run.ai/v2"]
    + [f"{one}v1" for one in ("kueue.x-k8s.io/", "scheduling.x-k8s.io/")]
)
NAMES = st.sampled_from(
    [row.key.rpartition(" ")[2] for row in TABLE]
    + ["metadata", "spec", "labels", "annotations", "template", "items", "containers", "name"]
)
VALUES = st.recursive(
    st.none() | st.integers(-2, 9) | st.sampled_from(["", "x", "4", "cpu"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)


@given(st.dictionaries(NAMES, VALUES), KINDS, VERSIONS)
def test_no_form_of_an_object_raises(fields, kind, version):
    documents = [fields | {"kind": kind, "apiVersion": version}]
    migrate(documents)
    to_koordinator(documents)


def test_every_peer_of_the_table_has_manifests_or_is_part_of_others():
    part = {Peer.KUBEFLOW, Peer.OURS}
    assert {peer.value.lower() for peer in Peer if peer not in part} == set(PEERS)
