"""The way back to Koordinator, of the examples and of objects of a cluster."""

from pathlib import Path

import pytest
import yaml
from tests.migrate.test_rewrite import GATE, GROUP, flatten, job_of, lost_keys, pod_of

from koord.api.keys import operators
from koord.api.manifest_text import read_documents
from koord.api.workloads import find_templates
from koord_migrate.koordinator import to_koordinator
from koord_migrate.rewrite import migrate
from koord_migrate.table import TABLE, Peer

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("**/*.yaml"))
PREFIX = operators.PREFIX
LOST = {
    "preemption/topology.yaml": ["metadata.name", operators.TOPOLOGY],
    "quota-tree/quota-tree.yaml": [operators.DELETION_POLICY],
    "topology/replicas.yaml": [operators.SUB_GROUPS, operators.SUB_GROUP, operators.SUB_GROUP],
}
"""Examples of what Koordinator does not have."""


def back(*documents):
    made = to_koordinator(list(documents))
    return flatten(made), lost_keys(made)


@pytest.mark.parametrize("file", FILES)
def test_examples_are_koordinators_without_our_keys(file):
    before = list(read_documents((EXAMPLES / file).read_text(encoding="utf-8")))
    documents, lost = back(*before)
    assert PREFIX not in yaml.safe_dump_all(documents)
    assert lost == LOST.get(file, [])
    schedulers = {
        template["spec"]["schedulerName"] for d in documents for template in find_templates(d)
    }
    assert schedulers <= {"koord-scheduler"}


@pytest.mark.parametrize("file", [file for file in FILES if file not in LOST])
def test_examples_that_come_again_are_as_they_were_once(file):
    before = list(read_documents((EXAMPLES / file).read_text(encoding="utf-8")))
    once, _ = back(*before)
    assert back(*flatten(migrate(once)))[0] == once


def test_every_key_of_ours_has_a_row():
    ours = {value for name, value in vars(operators).items() if name.isupper()}
    conditions = {operators.PLACED, operators.OVER_ENTITLEMENT, operators.PREEMPTED}
    leases = {operators.RENEWED_AT, operators.SIGNED_TERM, operators.REPORT}
    of_requests = {operators.EVICTS_MARKED}
    kept = {PREFIX, *conditions, *leases, *of_requests}
    keys = {key for key in ours if key.startswith(PREFIX)} - kept
    text = " ".join(row.key for row in TABLE if row.peer is Peer.OURS).replace("`", "")
    assert keys <= set(text.split())


def test_pods_of_gangs_whose_gate_a_policy_adds_get_the_scheduler():
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    namespace["metadata"] = {"name": "a", "labels": {f"{PREFIX}inject": "enabled"}}
    (_, gang, single), lost = back(namespace, pod_of({GROUP: "g"}), pod_of())
    assert gang["spec"]["schedulerName"] == "koord-scheduler"
    assert "schedulerName" not in single["spec"]
    assert lost == [f"{PREFIX}inject"]


def test_pods_that_name_another_scheduler_keep_it():
    (pod,), _ = back(pod_of({GROUP: "g"}, schedulerName="default-scheduler"))
    assert pod["spec"]["schedulerName"] == "default-scheduler"


def test_results_and_the_finalizer_are_taken_off():
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    quota["metadata"] = {"name": "q", "finalizers": ["example.com/other", operators.IN_USE]}
    pod = pod_of(schedulerName="koord-scheduler")
    pod["metadata"]["annotations"] = {operators.PLAN: "{}", operators.PLAN_SIGNATURE: "x"}
    documents, lost = back(quota, pod)
    assert documents[0]["metadata"]["finalizers"] == ["example.com/other"]
    assert "annotations" not in documents[1]["metadata"]
    assert lost == []


@pytest.mark.parametrize(
    ("namespaces", "keys"), [('["*"]', []), ('["a"]', [operators.SHARED_WITH])]
)
def test_limits_on_who_may_use_a_quota_are_listed(namespaces, keys):
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    quota["metadata"] = {"name": "q", "annotations": {operators.SHARED_WITH: namespaces}}
    (made,), lost = back(quota)
    assert "annotations" not in made["metadata"]
    assert lost == keys


def test_unknown_keys_of_ours_are_listed():
    assert back(job_of(annotations={f"{PREFIX}new": "1"}))[1] == [f"{PREFIX}new"]


def test_other_gates_stay():
    gates = [{"name": "example.com/other"}, {"name": GATE}]
    (pod,), _ = back(pod_of(schedulingGates=gates))
    assert pod["spec"]["schedulingGates"] == gates[:1]
