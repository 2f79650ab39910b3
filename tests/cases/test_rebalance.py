"""A node uses too much: first a policy says what it would move, then it orders the move."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import make_pod
from tests.operators.test_everyday import koord

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

GROUP = "/apis/operators.koordinator.sh/v1alpha1/rebalancepolicies"
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"


@pytest.fixture
def policy(cluster: Cluster) -> Iterator[str]:
    """The name of a policy, which is deleted at the end with all jobs."""
    yield cluster.namespace
    client = cluster.box.client
    with suppress(SandboxApiError):
        client.delete(f"{GROUP}/{cluster.namespace}")
    for job in client.get(JOBS)["items"]:
        client.delete(f"{JOBS}/{job['metadata']['name']}")
    for metric in client.get(METRICS)["items"]:
        client.delete(f"{METRICS}/{metric['metadata']['name']}")


def report(cluster: Cluster, node: str, cpu: int, pods: list[str]) -> None:
    """Report what a node and its pods use, as koordlet does."""
    usage = {"resources": {"cpu": f"{cpu}m", "memory": "1Gi"}}
    metric = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "status": {
            "updateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": f"{cpu * len(pods)}m"}}},
            "podsMetric": [
                {"namespace": cluster.namespace, "name": pod, "podUsage": usage} for pod in pods
            ],
        },
    }
    cluster.box.client.create(METRICS, metric)


def make_replicas(namespace: str) -> dict[str, Any]:
    template = make_pod(namespace, "web", gpus=1, labels={"app": "web"})
    template["metadata"] = {"labels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }


def make_policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "operators.koordinator.sh/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": name},
        "spec": {
            "interval": "10s",
            "lowThresholds": {"cpu": 30},
            "highThresholds": {"cpu": 60},
            "anomalyCondition": {"consecutiveAbnormalities": 1},
            "nodeSelector": {"matchLabels": {"test": name}},
            **spec,
        },
    }


def test_a_hot_node_is_reported_and_then_relieved(cluster: Cluster, policy: str) -> None:
    hot, low = cluster.add_nodes(2)
    client, namespace = cluster.box.client, cluster.namespace
    capacity = int(client.get(f"/api/v1/nodes/{hot}")["status"]["allocatable"]["cpu"]) * 1000
    # Both replicas start on the node that will be hot.
    cluster.box.kubectl("cordon", low)
    client.create(f"/apis/apps/v1/namespaces/{namespace}/replicasets", make_replicas(namespace))
    cluster.expect(lambda: list(cluster.bound().values()) == [hot, hot], "both run there")
    cluster.expect(
        lambda: {pod["status"]["phase"] for pod in cluster.pods().values()} == {"Running"},
        "both run",
    )
    cluster.box.kubectl("uncordon", low)
    names = list(cluster.bound())
    report(cluster, hot, capacity * 4 // 10, names)
    report(cluster, low, 0, [])
    client.create(GROUP, make_policy(policy))

    def status() -> dict[str, Any]:
        return dict(client.get(f"{GROUP}/{policy}").get("status", {}))

    cluster.expect(lambda: bool(status().get("wouldEvict")), "it advises")
    (advice,) = status()["wouldEvict"]
    assert advice["node"] == hot
    assert advice["target"] == low
    assert "usage(80.00%)>threshold(60.00%)" in advice["reason"]
    assert status()["nodes"]["high"] == 1
    assert client.get(JOBS)["items"] == []
    shown = koord(cluster, "balance", policy, "--dry-run", "-o", "json")
    assert shown.exit_code == 0, shown.output
    view = json.loads(shown.stdout)
    assert [move["pod"] for move in view["moves"]] == [advice["pod"]]
    assert {node["node"]: node["nodeClass"] for node in view["nodes"]} == {
        hot: "High",
        low: "BothLow",
    }
    assert "High" in koord(cluster, "balance", policy).stdout

    client.patch(f"{GROUP}/{policy}", {"spec": {"mode": "Migrate"}})
    cluster.expect(lambda: bool(client.get(JOBS)["items"]), "it orders the move")
    (job,) = client.get(JOBS)["items"]
    assert f"{namespace}/{job['spec']['podRef']['name']}" == advice["pod"]
    assert job["metadata"]["annotations"]["operators.koordinator.sh/target-node"] == low
    assert job["spec"]["podRef"]["uid"]
    assert len(cluster.bound()) == 2  # nothing is evicted by the policy
