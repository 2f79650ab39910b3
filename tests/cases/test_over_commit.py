"""Nodes offer to batch pods what others leave: from ConfigMap and NodeMetrics to node status."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, Cluster, Operators
from tests.operators.test_everyday import koord

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
POLICIES = "/apis/operators.koordinator.sh/v1alpha1/colocationpolicies"
KOORDINATOR = "koordinator-system"
CONFIG_MAPS = f"/api/v1/namespaces/{KOORDINATOR}/configmaps"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{KOORDINATOR}/leases"
OVERLAYS = [str(ROOT / "manifests/overlays" / name) for name in ("colocation", "slo-config")]
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


@pytest.fixture
def offering(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    box, client = quiet_cluster.box, quiet_cluster.box.client
    with suppress(SandboxApiError):
        box.create_namespace(KOORDINATOR)
    for overlay in OVERLAYS:
        box.kubectl("apply", "-k", overlay)
    running = Operators(box, tmp_path, settings="colocation: {enabled: true}\n")
    running.start()
    cluster = Cluster(box, running, quiet_cluster.namespace)
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for path in (f"{CONFIG_MAPS}/slo-controller-config", f"{LEASES}/koordinator-manager"):
            with suppress(SandboxApiError):
                client.delete(path)
        for collection in (METRICS, POLICIES):
            for found in client.get(collection)["items"]:
                with suppress(SandboxApiError):
                    client.delete(f"{collection}/{found['metadata']['name']}")
        for pod in cluster.pods():
            with suppress(SandboxApiError):
                cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()
        for overlay in OVERLAYS:
            box.kubectl("delete", "-k", overlay)


def configure(cluster: Cluster, text: str) -> None:
    body = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": text}}
    with suppress(SandboxApiError):
        cluster.box.client.create(CONFIG_MAPS, body)
        return
    cluster.box.client.patch(f"{CONFIG_MAPS}/slo-controller-config", {"data": body["data"]})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(cluster: Cluster, node: str, cpu: int, system: int = 0, **pods: int) -> None:
    """Report how many CPUs of a node are used in all, by the system and by pods."""

    def used(cpus: int) -> dict[str, Any]:
        return {"resources": {"cpu": str(cpus), "memory": "1Gi"}}

    status = {
        "updateTime": now(),
        "nodeMetric": {"nodeUsage": used(cpu), "systemUsage": used(system)},
        "podsMetric": [
            {"namespace": cluster.namespace, "name": name, "podUsage": used(cpus)}
            for name, cpus in pods.items()
        ],
    }
    body = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "status": status,
    }
    with suppress(SandboxApiError):
        cluster.box.client.create(METRICS, body)
        return
    cluster.box.client.patch(f"{METRICS}/{node}", {"status": status})


def offered(cluster: Cluster, node: str) -> dict[str, int]:
    """Return the batch and mid resources in the status of a node, the same in both parts."""
    status = cluster.box.client.get(f"/api/v1/nodes/{node}")["status"]
    parts = [
        {key: read(text) for key, text in status[part].items() if "batch" in key or "mid-" in key}
        for part in ("capacity", "allocatable")
    ]
    assert parts[0] == parts[1]
    return parts[0]


def read(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def test_nodes_offer_what_others_leave_and_fall_slowly(offering: Cluster) -> None:
    (node,) = offering.add_nodes(1)
    client = offering.box.client
    configure(offering, json.dumps({"enable": True, "cpuReclaimThresholdPercent": 100}))
    offering.pod("web", resources={"cpu": "8", "memory": "4Gi"})
    offering.expect_bound("web")
    report(offering, node, 10, 4, web=6)
    offering.expect(lambda: offered(offering, node)[CPU] == 54_000, "it offers 64 - 4 - 6 CPUs")
    assert set(offered(offering, node)) == {
        CPU,
        MEMORY,
        "kubernetes.io/mid-cpu",
        "kubernetes.io/mid-memory",
    }
    shown = koord(offering, "colocation", "explain", node, "-o", "json")
    assert shown.exit_code == 0, shown.output
    (batch,) = [of for of in json.loads(shown.stdout)["resources"] if of["resource"] == CPU]
    assert batch["amount"] == 54_000 == sum(term["amount"] for term in batch["terms"])
    assert {term["kind"]: term["amount"] for term in batch["terms"]} == {
        "Capacity": 64_000,
        "System": -4_000,
        "Used": -6_000,
    }
    whole = koord(offering, "explain", f"node/{node}", "-o", "json")
    assert whole.exit_code == 0, whole.output
    assert batch in json.loads(whole.stdout)["offer"]["resources"]
    # A batch pod starts on it, placed by the operators.
    offering.pod("batch", resources={CPU: "50000", MEMORY: "1Gi"})
    offering.expect_bound("batch")

    report(offering, node, 30, 4, web=26)
    offering.expect(lambda: offered(offering, node)[CPU] < 54_000, "it offers less")
    assert offered(offering, node)[CPU] > 34_000  # a fifth of its CPUs in a minute at most
    # Broken settings are told with path and value, and the last valid ones stay.
    configure(offering, '{"enable": true, "cpuReclaimThresholdPercent": "all"}')
    events = f"/apis/events.k8s.io/v1/namespaces/{KOORDINATOR}/events"
    offering.expect(
        lambda: any(
            event["note"].startswith('colocation-config.cpuReclaimThresholdPercent: "all": ')
            for event in client.get(events)["items"]
        ),
        "an event says what is wrong",
    )
    assert offered(offering, node)[CPU] > 34_000


def test_a_restart_and_a_rival_leave_nodes_as_they_are(offering: Cluster) -> None:
    (node,) = offering.add_nodes(1)
    client = offering.box.client
    policy = {
        "apiVersion": "operators.koordinator.sh/v1alpha1",
        "kind": "ColocationPolicy",
        "metadata": {"name": offering.namespace},
        "spec": {
            "nodeSelector": {"matchLabels": {"test": offering.namespace}},
            "cpuReclaimThresholdPercent": 100,
        },
    }
    client.create(POLICIES, policy)

    def status() -> dict[str, Any]:
        return dict(client.get(f"{POLICIES}/{offering.namespace}").get("status", {}))

    report(offering, node, 10, 4)
    offering.expect(lambda: offered(offering, node)[CPU] == 60_000, "it offers 64 - 4 CPUs")
    offering.expect(lambda: status()["nodes"] == 1, "the policy says so")
    (shown,) = status()["examples"]
    assert shown["node"] == node
    assert status()["offered"][CPU] == "60000"
    before = client.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"]
    offering.operators.kill()
    offering.operators.start()
    reason = lambda: offering.condition(client.get(f"{POLICIES}/{offering.namespace}"), "Ready")[1]  # noqa: E731
    offering.expect(lambda: reason() == "Publishing", "it publishes again")
    assert offered(offering, node)[CPU] == 60_000
    assert client.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"] == before
    lease = {
        "metadata": {"name": "koordinator-manager"},
        "spec": {"holderIdentity": "koord-manager-0", "renewTime": now()[:-1] + ".000000Z"},
    }
    client.create(LEASES, lease)
    offering.expect(lambda: reason() == "ManagedElsewhere", "it leaves the nodes to the manager")
    report(offering, node, 50, 40)
    assert offered(offering, node)[CPU] == 60_000
