"""Jobs as people write them, with our gate and nothing else: their pods start as a whole."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, Cluster, Operators, make_pod

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = "owners: {enabled: true}\n"
OVERLAY = str(ROOT / "manifests/overlays/owners")
PLACED = "operators.koordinator.sh/Placed"
JOBSET = "jobset.sigs.k8s.io/"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a part of it"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def finding(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    box = quiet_cluster.box
    box.client.create(CRDS, CRD)
    running = Operators(box, tmp_path, settings=SETTINGS)
    cluster = Cluster(box, running, quiet_cluster.namespace)
    running.start()
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for kind in ("jobset", "job", "statefulset"):
            with suppress(SandboxApiError):
                box.kubectl("delete", kind, "--all", "-n", cluster.namespace)
        for pod in cluster.pods():
            with suppress(SandboxApiError):
                cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()
        box.kubectl("delete", "-k", OVERLAY, "--ignore-not-found")
        box.kubectl("delete", "crd", CRD["metadata"]["name"])


def path_of(cluster: Cluster, collection: str) -> str:
    group, plural = collection.rsplit("/", 1)
    return f"/apis/{group}/namespaces/{cluster.namespace}/{plural}"


def template(cluster: Cluster, labels: dict[str, str] | None = None) -> dict[str, Any]:
    spec = make_pod(cluster.namespace, "x", gpus=8)["spec"]
    return {"metadata": {"labels": {"app": "x", **(labels or {})}}, "spec": spec}


def submit_job(cluster: Cluster, name: str, count: int, **metadata: Any) -> None:
    labels = metadata.pop("pod_labels", None)
    inner = template(cluster, labels)
    inner["spec"]["restartPolicy"] = "Never"
    spec = {
        "completionMode": "Indexed",
        "parallelism": count,
        "completions": count,
        "template": inner,
    }
    body = {"metadata": {"name": name, **metadata}, "spec": spec}
    cluster.box.client.create(path_of(cluster, "batch/v1/jobs"), body)


def why(cluster: Cluster) -> set[str]:
    return {cluster.condition(pod, PLACED)[1] for pod in cluster.pods().values()}


def test_pods_with_our_gate_alone_start_as_their_owners_need_it(finding: Cluster) -> None:
    finding.add_nodes(3)
    submit_job(finding, "train", 4)
    # The operators may not read Jobs yet: no pod goes alone.
    finding.expect(lambda: why(finding) == {"OwnerUnreadable"}, "pods whose owner is unknown wait")
    assert len(finding.pods()) == 4
    finding.box.kubectl("apply", "-k", OVERLAY)
    finding.expect(lambda: why(finding) == {"InsufficientNodes"}, "the Job waits as a whole")
    _, _, message = finding.condition(next(iter(finding.pods().values())), PLACED)
    gang = f"job/{finding.namespace}/train"
    assert f"the gang is that of {gang}, by the rule for Job.batch" in message
    finding.add_nodes(1)
    finding.expect(lambda: len(finding.bound()) == 4, "the Job starts as a whole")

    sts: dict[str, Any] = {
        "metadata": {
            "name": "web",
            "annotations": {"gang.scheduling.koordinator.sh/min-available": "2"},
        },
        "spec": {
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "x"}},
            "serviceName": "web",
            "template": template(finding),
        },
    }
    finding.box.client.create(path_of(finding, "apps/v1/statefulsets"), sts)
    finding.add_nodes(1)
    finding.expect(lambda: len(finding.pods()) == 6, "the pods of the StatefulSet are there")
    finding.expect_pod("web-0", "InsufficientNodes")
    finding.expect_pod("web-1", "InsufficientNodes")
    finding.add_nodes(1)
    finding.expect_bound("web-0", "web-1")

    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 2, "completions": 2}},
                }
            ]
        },
    }
    finding.box.client.create(path_of(finding, "jobset.x-k8s.io/v1alpha2/jobsets"), body)
    jobset = finding.box.client.get(f"{path_of(finding, 'jobset.x-k8s.io/v1alpha2/jobsets')}/js")
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "js",
        "uid": jobset["metadata"]["uid"],
        "controller": True,
    }
    finding.add_nodes(3)
    for at in range(2):
        labels = {
            f"{JOBSET}replicatedjob-name": "w",
            f"{JOBSET}job-index": str(at),
            f"{JOBSET}restart-attempt": "0",
        }
        submit_job(finding, f"js-w-{at}", 2, pod_labels=labels, ownerReferences=[owner])
    finding.expect(lambda: len(finding.pods()) == 10, "the pods of the JobSet are there")
    finding.expect(lambda: why(finding) >= {"InsufficientNodes"}, "the JobSet waits as a whole")
    assert len(finding.bound()) == 6
    finding.add_nodes(1)
    finding.expect(lambda: len(finding.bound()) == 10, "the JobSet starts as a whole")
