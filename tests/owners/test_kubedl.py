"""Jobs of KubeDL with PodGroups of its own, as recorded objects: its Go module cannot be had.

Pods and PodGroups have what KubeDL gives them with `--gang-scheduler-name=kube-coscheduler`: labels
of the PodGroup, a reference to it beside that of the job, and with DAGScheduling one per role.
"""

from typing import Any

import msgspec
from tests.builders import make_pod_group
from tests.owners.frameworks import Jobs, reference

from koord.api.keys import operators
from koord.core.model.pods import Handling, Pod
from koord.domains.registry import make_pod_translator
from koord.kube.wire import WirePod

KPG = "pod-group.scheduling.sigs.k8s.io"
BERT = {
    "apiVersion": "training.kubedl.io/v1alpha1",
    "kind": "PyTorchJob",
    "metadata": {"name": "bert"},
    "spec": {
        "pytorchReplicaSpecs": {
            "AIMaster": {"replicas": 1},
            "Master": {"replicas": 1, "restartPolicy": "ExitCode"},
            "Worker": {"replicas": 2, "restartPolicy": "ExitCode"},
        }
    },
}
GPUS = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}


def recorded(role: str, index: int, group: str, least: int, uid: str = "") -> Pod:
    """Return a pod of the job; ``group`` is its PodGroup, empty for the AIMaster."""
    name = f"bert-{role}-{index}"
    labels = {
        "group-name": "training.kubedl.io", "job-name": "bert", "replica-type": role,
        "replica-index": str(index), "kubedl.io/job-generation": "1",
    }  # fmt: skip
    owners = [{**reference(BERT), "blockOwnerDeletion": True}]
    spec: dict[str, Any] = {"schedulerName": "default-scheduler"}
    if group:
        labels |= {KPG: group, f"{KPG}/name": group, f"{KPG}/min-available": str(least)}
        owners.append(
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup",
                "name": group, "uid": f"uid-{group}", "controller": False,
            }
        )  # fmt: skip
        spec = {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": operators.PLACEMENT_GATE}],
        }
    body = {
        "metadata": {
            "name": name, "namespace": "default", "uid": uid or f"uid-{name}", "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {**spec, "containers": [{"name": "pytorch", "resources": GPUS}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    return make_pod_translator().translate(wire)


def test_each_role_is_the_gang_of_its_podgroup_and_a_pod_returns_alone() -> None:
    jobs = Jobs().own_objects(BERT)
    jobs.pod_groups(make_pod_group("default/bert-master", 1))
    jobs.pod_groups(make_pod_group("default/bert-worker", 2))
    jobs.pods(recorded("master", 0, "bert-master", 1))
    assert jobs.gang_of("bert-master-0") == "default/bert-master"
    assert jobs.run() == ["bert-master-0"]
    # Workers are made once the master runs: all of them start, or none.
    jobs.pods(recorded("worker", 0, "bert-worker", 2))
    assert jobs.run() == []
    jobs.pods(recorded("worker", 1, "bert-worker", 2))
    assert jobs.run() == ["bert-worker-0", "bert-worker-1"]
    # One exits with 137: it is made again under its name.
    jobs.replaced("bert-worker-1", recorded("worker", 1, "bert-worker", 2, "uid-again"))
    assert jobs.run() == ["bert-worker-1"]


def test_without_order_the_job_is_one_gang_without_its_aimaster() -> None:
    jobs = Jobs().own_objects(BERT).pod_groups(make_pod_group("default/bert", 3))
    jobs.pods(recorded("aimaster", 0, "", 0))
    assert jobs.pod("bert-aimaster-0").handling is Handling.NOT_OURS
    assert jobs.gang_of("bert-aimaster-0") == ""
    jobs.pods(recorded("master", 0, "bert", 3), recorded("worker", 0, "bert", 3))
    assert jobs.run() == []
    jobs.pods(recorded("worker", 1, "bert", 3))
    assert jobs.run() == ["bert-master-0", "bert-worker-0", "bert-worker-1"]


def test_what_kubedl_deletes_at_the_end_leaves_nothing() -> None:
    jobs = Jobs().own_objects(BERT).pod_groups(make_pod_group("default/bert-master", 1))
    jobs.pods(recorded("master", 0, "bert-master", 1))
    assert jobs.run() == ["bert-master-0"]
    jobs.state.gangs.remove_pod_group("default/bert-master")
    jobs.delete_pods("bert-master-0")
    jobs.remove_owner(BERT)
    assert jobs.state.gangs.keys() == ()
    assert not jobs.owners.owners
