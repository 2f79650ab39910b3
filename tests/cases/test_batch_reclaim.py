"""Prod load rises: batch pods leave, by the one eviction, and gangs of them as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.cases.test_batch_gangs import FOUR_CPUS, offer
from tests.cases.test_rebalance import GROUP, JOBS, METRICS, make_policy
from tests.operators.conftest import Cluster, Operators

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def reclaiming(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Operators that carry jobs out."""
    box = quiet_cluster.box
    running = Operators(box, tmp_path, settings="migration: {enabled: true}\n")
    running.start()
    cluster = Cluster(box, running, quiet_cluster.namespace)
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for path in (f"{GROUP}?labelSelector=test%3D{cluster.namespace}", JOBS, METRICS):
            for item in box.client.get(path)["items"]:
                box.client.delete(f"{path.partition('?')[0]}/{item['metadata']['name']}")
        cluster.remove_nodes()
        running.stop()


def report(cluster: Cluster, node: str, gib: int, pods: dict[str, int]) -> None:
    """Report the memory that a node and its pods use, as koordlet does."""
    client = cluster.box.client
    metric = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "status": {
            "updateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "8", "memory": f"{gib}Gi"}}},
            "podsMetric": [
                {
                    "namespace": cluster.namespace,
                    "name": pod,
                    "podUsage": {"resources": {"cpu": "1", "memory": f"{used}Gi"}},
                }
                for pod, used in pods.items()
            ],
        },
    }
    if any(item["metadata"]["name"] == node for item in client.get(METRICS)["items"]):
        client.delete(f"{METRICS}/{node}")
    client.create(METRICS, metric)


def job_of(namespace: str, name: str, count: int, resources: dict[str, str]) -> dict[str, Any]:
    """Return a Job whose pods are one gang of batch pods, and are not created again."""
    labels = {"pod-group.scheduling.sigs.k8s.io": name, "koordinator.sh/qosClass": "BE"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": count,
            "completions": count,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "schedulerName": "koord-scheduler",
                    "schedulingGates": [{"name": "operators.koordinator.sh/placement"}],
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {"test": namespace},
                    "containers": [{"name": "c", "image": "x", "resources": {"limits": resources}}],
                },
            },
        },
    }


def test_a_gang_of_batch_pods_leaves_as_a_whole_when_prod_load_rises(reclaiming: Cluster) -> None:
    cluster, client, namespace = reclaiming, reclaiming.box.client, reclaiming.namespace
    nodes = cluster.add_nodes(2)
    for node in nodes:
        offer(cluster, node, 4000)
    cluster.pod("prod", resources={"cpu": "8", "memory": "32Gi"})
    cluster.pod_group("train", 2)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    client.create(jobs, job_of(namespace, "train", 2, FOUR_CPUS))
    cluster.expect(lambda: len(cluster.bound()) == 3, "all are bound")
    first = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    by_node = {node: name for name, node in cluster.bound().items() if name != "prod"}
    assert set(by_node) == set(nodes)  # one member on each node
    for node in nodes:
        report(cluster, node, 100, {by_node[node]: 4})
    policy = make_policy(namespace, mode="Evict", batchReclaim={"memoryThreshold": 65})
    policy["metadata"]["labels"] = {"test": namespace}
    client.create(GROUP, policy)

    def status() -> dict[str, Any]:
        return dict(client.get(f"{GROUP}/{namespace}").get("status", {}))

    cluster.expect(lambda: status()["batchReclaim"]["shortNodes"] == 0, "no node is short")
    assert client.get(JOBS)["items"] == []

    hot = cluster.bound()["prod"]
    # 65 % of 256 GiB are 166.4.
    report(cluster, hot, 170, {by_node[hot]: 4})
    cluster.expect(
        lambda: set(first.values()).isdisjoint(
            pod["metadata"]["uid"] for name, pod in cluster.pods().items() if name != "prod"
        ),
        "both members have gone",
    )
    assert cluster.get_pod("prod")["metadata"]["uid"] == first["prod"]
    cluster.expect(lambda: status()["batchReclaim"]["evicted"] == 2, "it says so")
    (job, other) = client.get(JOBS)["items"]
    assert job["spec"]["mode"] == other["spec"]["mode"] == "EvictDirectly"
    reason = job["metadata"]["annotations"]["koordinator.sh/evict-reason"]
    assert reason == "the node uses 66.4 % of its memory; batch pods leave from 65 % on"
    # Both are there again as a whole, or wait as a whole; nobody else is evicted.
    assert status()["moves"] == 2


def test_batch_pods_leave_a_node_that_offers_less_than_they_request(reclaiming: Cluster) -> None:
    cluster, client, namespace = reclaiming, reclaiming.box.client, reclaiming.namespace
    (node,) = cluster.add_nodes(1)
    offer(cluster, node, 8000)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    for name in ("a", "b"):
        cluster.pod_group(name, 1)
        client.create(jobs, job_of(namespace, name, 1, FOUR_CPUS))
    cluster.expect(lambda: len(cluster.bound()) == 2, "both are bound")
    report(cluster, node, 10, dict.fromkeys(cluster.bound(), 1))
    first = {pod["metadata"]["uid"] for pod in cluster.pods().values()}
    policy = make_policy(namespace, mode="Evict", batchReclaim={"overcommitGrace": "10s"})
    policy["metadata"]["labels"] = {"test": namespace}
    client.create(GROUP, policy)
    offer(cluster, node, 4000)

    def left() -> set[str]:
        return first & {pod["metadata"]["uid"] for pod in cluster.pods().values()}

    cluster.expect(lambda: len(left()) == 1, "one has gone")
    offered = client.get(f"{GROUP}/{namespace}")["status"]["batchReclaim"]
    assert offered["evicted"] == 1
    cluster.expect(lambda: len(cluster.pods()) == 2, "it is created again, and waits")
    assert len(cluster.bound()) == 1
