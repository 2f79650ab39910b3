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
LWS = "leaderworkerset.sigs.k8s.io/"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def make_crd(group: str, kind: str, version: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a part of it"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**served, "schema": {"openAPIV3Schema": ANYTHING}}],
        },
    }


OWN_CRDS = (
    make_crd("jobset.x-k8s.io", "JobSet", "v1alpha2"),
    make_crd("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "v1"),
)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def finding(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    box = quiet_cluster.box
    for crd in OWN_CRDS:
        box.client.create(CRDS, crd)
    running = Operators(box, tmp_path, settings=SETTINGS)
    cluster = Cluster(box, running, quiet_cluster.namespace)
    running.start()
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for kind in ("jobset", "leaderworkerset", "job", "statefulset"):
            with suppress(SandboxApiError):
                box.kubectl("delete", kind, "--all", "-n", cluster.namespace)
        for pod in cluster.pods():
            with suppress(SandboxApiError):
                cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()
        box.kubectl("delete", "-k", OVERLAY, "--ignore-not-found")
        for crd in OWN_CRDS:
            box.kubectl("delete", "crd", crd["metadata"]["name"])


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
    watch_a_leader_start_with_room(finding)


def submit_set(
    cluster: Cluster, name: str, count: int, at: int, owner: dict[str, Any]
) -> dict[str, Any]:
    """Create a StatefulSet as the controller of LeaderWorkerSets does; return it."""
    labels = {f"{LWS}group-index": "0", f"{LWS}worker-index": str(at)}
    spec = {
        "replicas": count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "x", **labels}},
        "serviceName": name,
        "template": template(cluster, labels),
    }
    metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    sets = path_of(cluster, "apps/v1/statefulsets")
    return cluster.box.client.create(sets, {"metadata": metadata, "spec": spec})


def name_owner(made: dict[str, Any], api_version: str, kind: str) -> dict[str, Any]:
    meta = made["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}


def watch_a_leader_start_with_room(cluster: Cluster) -> None:
    """The leader waits for room for its workers, keeps it for them, and they take it."""
    spec = {
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {"size": 3, "workerTemplate": template(cluster)},
    }
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm"},
        "spec": spec,
    }
    sets = path_of(cluster, "leaderworkerset.x-k8s.io/v1/leaderworkersets")
    owner = name_owner(
        cluster.box.client.create(sets, body), "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
    )
    cluster.add_nodes(2)
    submit_set(cluster, "llm", 1, 0, owner)
    cluster.expect(lambda: "llm-0" in cluster.pods(), "the leader is there")
    cluster.expect_pod("llm-0", "InsufficientNodes")
    _, _, message = cluster.condition(cluster.pods()["llm-0"], PLACED)
    assert "it starts with room for 2 pods of role worker, which come later" in message
    cluster.add_nodes(1)
    cluster.expect_bound("llm-0")
    cluster.expect_pod("llm-0", "PlacedWithRoom")
    _, _, message = cluster.condition(cluster.pods()["llm-0"], PLACED)
    assert "room for 2 pods of role worker is held on 2 nodes until" in message
    submit_job(cluster, "thief", 1)
    cluster.expect(lambda: "InsufficientNodes" in why(cluster), "others do not get it")
    leader = name_owner(cluster.pods()["llm-0"], "v1", "Pod")
    submit_set(cluster, "llm-0", 2, 1, leader)
    cluster.expect_bound("llm-0-0", "llm-0-1")
    cluster.expect_pod("llm-0", "Planned")
