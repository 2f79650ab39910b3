"""Batch pods in the planner: gangs as a whole on over-committed room, quotas, preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.operators.test_everyday import koord

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
FOUR_CPUS = {CPU: "4000", MEMORY: "4Gi"}
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"


def offer(cluster: Cluster, node: str, cpu: int, gib: int = 64) -> None:
    """Have a node offer batch resources, as over-commit does."""
    amounts = {CPU: str(cpu), MEMORY: f"{gib}Gi"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    cluster.box.client.patch(f"/api/v1/nodes/{node}/status", status)


def answer(cluster: Cluster, *arguments: str) -> str:
    done = koord(cluster, *arguments, "-n", cluster.namespace)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_a_gang_of_batch_pods_starts_as_a_whole_once_nodes_offer_enough(cluster: Cluster) -> None:
    one, two = cluster.add_nodes(2)
    offer(cluster, one, 7900)
    offer(cluster, two, 4000)
    cluster.gang("train", 3, resources=FOUR_CPUS)
    cluster.expect_group("train", "InsufficientNodes")
    assert cluster.bound() == {}  # two of three would fit
    assert "Room for 2 of 3 pods" in cluster.group_message("train")
    told = answer(cluster, "explain", "pg/train")
    assert "4000 (4 CPUs)" in told

    offer(cluster, one, 8000)
    cluster.expect_bound("train-0", "train-1", "train-2")
    assert sorted(cluster.bound().values()) == [one, one, two]

    offer(cluster, two, 1000)  # prod pods need their room back
    cluster.pod("late", resources={CPU: "500"})
    cluster.expect_pod("late", "InsufficientNodes")
    assert len(cluster.bound()) == 3  # nobody is evicted for it


def test_names_that_no_node_has_are_explained(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("lost", resources=FOUR_CPUS)
    cluster.expect_pod("lost", "NoSuitableNode")
    told = answer(cluster, "explain", "pod/lost")
    assert "No node that" in told or "No node has any" in told
    assert "over-commit" in told


def make_quota(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_an_elastic_quota_charges_batch_resources(cluster: Cluster) -> None:
    """A ResourceQuota of the same name never does."""
    namespace, client = cluster.namespace, cluster.box.client
    (node,) = cluster.add_nodes(1)
    offer(cluster, node, 32000)
    limits = {CPU: "8000", MEMORY: "32Gi"}
    path = QUOTAS.format(namespace)
    client.create(path, make_quota(namespace, min=limits, max=limits))
    hard = {f"requests.{CPU}": "100"}
    body = {"metadata": {"name": "charges-nothing"}, "spec": {"hard": hard}}
    client.create(f"/api/v1/namespaces/{namespace}/resourcequotas", body)
    cluster.gang("train", 2, resources=FOUR_CPUS)
    cluster.expect_bound("train-0", "train-1")
    cluster.gang("more", 2, resources={CPU: "1000", MEMORY: "1Gi"})
    cluster.expect_group("more", "InsufficientMax")
    assert CPU in cluster.group_message("more")

    def used() -> dict[str, Any]:
        return dict(client.get(f"{path}/{namespace}").get("status", {}).get("used", {}))

    cluster.expect(lambda: used().get(CPU) in {"8000", "8k"}, "what is used is charged")
    assert used()[MEMORY] == "8Gi"
    client.delete(f"/api/v1/namespaces/{namespace}/resourcequotas/charges-nothing")


def test_a_batch_pod_of_higher_priority_preempts_one_of_lower(cluster: Cluster) -> None:
    (node,) = cluster.add_nodes(1)
    offer(cluster, node, 4000)
    cluster.priority_class("batch-low", 5000)
    cluster.priority_class("batch-high", 5900)
    cluster.pod("low", resources=FOUR_CPUS, priorityClassName="batch-low")
    cluster.pod("prod", resources={"cpu": "8"}, priorityClassName="batch-low")
    cluster.expect_bound("low", "prod")
    cluster.pod("high", resources=FOUR_CPUS, priorityClassName="batch-high")
    cluster.expect_bound("high")
    assert set(cluster.bound()) == {"high", "prod"}  # only batch resources were short
