"""A job of 8 GPUs waits between two half-empty nodes: a pod makes way, and the job starts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import Cluster, Operators, make_pod
from tests.operators.test_everyday import koord

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICIES = "/apis/operators.koordinator.sh/v1alpha1/defragmentationpolicies"
MAINTENANCES = "/apis/operators.koordinator.sh/v1alpha1/nodemaintenances"
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
SETTINGS = "migration: {enabled: true}\n"


@pytest.fixture
def moving(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose operators carry moves out; policy and jobs are deleted at the end."""
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    client, namespace = cluster.box.client, cluster.namespace
    try:
        yield cluster
    finally:
        for path in (f"{POLICIES}/{namespace}", f"{MAINTENANCES}/{namespace}"):
            with suppress(SandboxApiError):
                client.delete(path)
        for job in client.get(JOBS)["items"]:
            client.delete(f"{JOBS}/{job['metadata']['name']}")
        with suppress(SandboxApiError):
            client.delete(f"/apis/apps/v1/namespaces/{namespace}/replicasets/web")
        for pod in cluster.pods():
            with suppress(SandboxApiError):  # it may have gone with its owner by now
                cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()


def add_replicas(cluster: Cluster, nodes: list[str]) -> None:
    """Start two replicas of 2 GPUs, one on each node."""
    labels = {"app": "web"}
    pod = make_pod(cluster.namespace, "web", gpus=2, labels=labels)
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/replicasets"
    cluster.box.kubectl("cordon", nodes[1])
    cluster.box.client.create(path, body)
    cluster.expect(lambda: list(cluster.bound().values()) == nodes[:1], "the first runs")
    cluster.box.kubectl("uncordon", nodes[1])
    cluster.box.kubectl("cordon", nodes[0])
    cluster.box.client.patch(f"{path}/web", {"spec": {"replicas": 2}})
    cluster.expect(lambda: sorted(cluster.bound().values()) == sorted(nodes), "the second runs")
    cluster.box.kubectl("uncordon", nodes[0])


def test_a_pod_makes_way_and_the_waiting_job_starts(moving: Cluster) -> None:
    nodes = moving.add_nodes(2)
    client, namespace = moving.box.client, moving.namespace
    add_replicas(moving, nodes)
    moving.expect(
        lambda: {pod["status"]["phase"] for pod in moving.pods().values()} == {"Running"},
        "both run",
    )
    client.create(f"/api/v1/namespaces/{namespace}/pods", make_pod(namespace, "large", gpus=8))

    def plan() -> dict[str, Any]:
        shown = koord(moving, "defrag", "--plan", "pod/large", "-n", namespace, "-o", "json")
        return dict(json.loads(shown.stdout)) if shown.exit_code == 0 else {}

    moving.expect(lambda: plan().get("moves") == 1, "one move is enough")
    (step,) = plan()["steps"]
    assert {step["moves"][0]["from"], step["moves"][0]["to"]} == set(nodes)
    drained = koord(moving, "drain-plan", nodes[0])
    assert "1 pod would move, 0 cannot" in drained.stdout

    spec = {"interval": "10s", "waiting": {"namespaces": [namespace]}}
    body = {
        "apiVersion": "operators.koordinator.sh/v1alpha1",
        "kind": "DefragmentationPolicy",
        "metadata": {"name": namespace},
        "spec": spec,
    }
    client.create(POLICIES, body)

    def status() -> dict[str, Any]:
        return dict(client.get(f"{POLICIES}/{namespace}").get("status", {}))

    moving.expect(lambda: bool(status().get("plans")), "it advises")
    assert client.get(JOBS)["items"] == []
    client.patch(f"{POLICIES}/{namespace}", {"spec": {"mode": "Migrate"}})
    moving.expect(lambda: bool(client.get(JOBS)["items"]), "it orders the move")
    moving.expect(lambda: "large" in moving.bound(), "the job starts")
    moving.expect(lambda: len(moving.bound()) == 3, "every pod runs again")
    replicas = {node for name, node in moving.bound().items() if name != "large"}
    assert len(replicas) == 1
    assert moving.bound()["large"] not in replicas


def test_maintenance_keeps_pods_off(moving: Cluster) -> None:
    (node,) = moving.add_nodes(1)
    client, namespace = moving.box.client, moving.namespace
    window = {
        "apiVersion": "operators.koordinator.sh/v1alpha1",
        "kind": "NodeMaintenance",
        "metadata": {"name": namespace},
        "spec": {"nodes": [node], "start": "2026-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"},
    }
    client.create(MAINTENANCES, window)

    def status() -> dict[str, Any]:
        return dict(client.get(f"{MAINTENANCES}/{namespace}").get("status", {}))

    moving.expect(lambda: status().get("nodes") == 1, "the window is known")
    client.create(f"/api/v1/namespaces/{namespace}/pods", make_pod(namespace, "w", gpus=1))

    def message() -> str:
        pod = client.get(f"/api/v1/namespaces/{namespace}/pods/w")
        conditions = pod.get("status", {}).get("conditions", [])
        return " ".join(condition.get("message", "") for condition in conditions)

    moving.expect(lambda: "go into maintenance at 2026-01-01" in message(), "it says why")
    client.delete(f"{MAINTENANCES}/{namespace}")
    moving.expect(lambda: "w" in moving.bound(), "it is placed")
