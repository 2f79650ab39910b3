"""A busy node takes no more pods: they go elsewhere, or wait and say why. They may be let in."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.operators.conftest import ROOT, Cluster, Operators
from tests.operators.test_everyday import koord

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

METRICS_API = ROOT / "tests/support/metrics-api.yaml"
USED = "/apis/metrics.k8s.io/v1beta1/nodes"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
BUSY = {"cpu": "1", "nvidia.com/gpu": 8}


@pytest.fixture
def run(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Run operators in which load counts, with more settings; those that ran before are stopped."""
    box, running = quiet_cluster.box, list[Operators]()
    box.apply(METRICS_API)

    def run_with(settings: str) -> Cluster:
        for before in running:
            before.stop()
        running.append(
            Operators(
                box,
                tmp_path,
                settings=f"loadAware:\n  enabled: true\n  usageThresholds: {{cpu: 50}}\n{settings}",
            )
        )
        running[-1].start()
        return Cluster(box, running[-1], quiet_cluster.namespace)

    try:
        yield run_with
        assert running[-1].is_running(), running[-1].log.read_text()[-3000:]
    finally:
        for pod in quiet_cluster.pods():
            with suppress(SandboxApiError):
                quiet_cluster.delete_pod(pod)
        for metric in box.client.get(METRICS)["items"]:
            with suppress(SandboxApiError):
                box.client.delete(f"{METRICS}/{metric['metadata']['name']}")
        quiet_cluster.remove_nodes()
        box.kubectl("delete", "-f", str(METRICS_API), "--wait=false")
        running[-1].stop()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def serve(cluster: Cluster, node: str, cpu: int) -> None:
    """Have ``metrics.k8s.io`` say how many CPUs of a node are used."""
    cluster.box.client.create(
        USED,
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "NodeMetrics",
            "metadata": {"name": node},
            "timestamp": now(),
            "window": "15s",
            "usage": {"cpu": str(cpu), "memory": "1Gi"},
        },
    )


def report(cluster: Cluster, node: str, cpu: int) -> None:
    """Report how many of the 64 CPUs of a node are used, as koordlet does."""
    cluster.box.client.create(
        METRICS,
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": node},
            "status": {
                "updateTime": now(),
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": str(cpu), "memory": "1Gi"}}},
            },
        },
    )


def test_pods_avoid_busy_nodes_until_they_are_let_in(
    quiet_cluster: Cluster, run: Callable[[str], Cluster]
) -> None:
    hot, cool, measured = quiet_cluster.add_nodes(3)
    report(quiet_cluster, hot, 40)
    report(quiet_cluster, cool, 4)
    serve(quiet_cluster, measured, 50)  # the first two as koordlet, this one as metrics-server
    cluster = run("")
    cluster.pod("first", resources=BUSY)
    cluster.expect_bound("first")
    assert cluster.bound() == {"first": cool}

    cluster.pod("second", resources=BUSY)
    cluster.expect_pod("second", "InsufficientNodes")
    said = ""

    def names_the_load() -> bool:
        nonlocal said
        answer = koord(cluster, "explain", "pod/second", "-n", cluster.namespace).stdout
        said = " ".join(answer.split())
        return f"Wait for 2 nodes with room ({hot}, {measured}) to use less cpu." in said

    # The leader tells commands a moment later that load counts.
    cluster.expect(names_the_load, "explain names the load")
    assert "above 50 % cpu: 64 % with this pod, 5 min average" in said
    assert "above 50 % cpu: 79 % with this pod, 15 s average" in said

    cluster = run("  relief: leastLoaded\n")
    cluster.expect_bound("second")
    assert cluster.bound()["second"] == hot
    cluster.expect_pod("second", "PlacedOverLoad")
    _, _, message = cluster.condition(cluster.get_pod("second"), "operators.koordinator.sh/Placed")
    assert f"was placed on node {hot}" in message
