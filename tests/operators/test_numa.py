"""NUMA nodes and CPUs on a real API server: what pods get, who else may say so, and restarts."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import node_status
from tests.operators.test_devices import DEVICES, annotate, make_device, minors

from koord.core.numa.cpu_topology import parse_cpuset
from koord_sandbox.node_reports import TOPOLOGIES, make_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

STATUS = "scheduling.koordinator.sh/resource-status"
SINGLE = {"scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'}
PINNED = {"koordinator.sh/qosClass": "LSR"}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """Add a node with two NUMA nodes of 32 CPUs, and four GPUs on each."""
    yield from add_node(cluster)


@pytest.fixture
def unprotected_node(unprotected_cluster: Cluster) -> Iterator[str]:
    yield from add_node(unprotected_cluster)


def add_node(cluster: Cluster) -> Iterator[str]:
    (name,) = cluster.add_nodes(1)
    capacity = node_status(8)["status"]["capacity"]
    client = cluster.box.client
    client.create(DEVICES, make_device(name))
    client.create(TOPOLOGIES, make_report(name, capacity, 2))
    yield name
    client.delete(f"{DEVICES}/{name}")
    client.delete(f"{TOPOLOGIES}/{name}")


def ask(cpu: int, gpus: int = 0) -> list[dict[str, Any]]:
    limits = {"cpu": str(cpu), "memory": "8Gi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    return [{"name": "c", "image": "x", "resources": {"limits": limits}}]


def status(cluster: Cluster, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.get_pod(pod)["metadata"]["annotations"][STATUS])
    return found


def cpus(cluster: Cluster, pod: str) -> int:
    found = parse_cpuset(status(cluster, pod)["cpuset"])
    assert isinstance(found, int)
    return found


def test_cpus_memory_and_gpus_on_one_numa_node(cluster: Cluster, node: str) -> None:
    assert node
    cluster.pod("a", containers=ask(20, 2), annotations=SINGLE, labels=PINNED)
    cluster.expect_bound("a")
    cluster.pod("b", containers=ask(20, 2), annotations=SINGLE, labels=PINNED)
    cluster.expect_bound("b")
    cluster.pod("c", containers=ask(20, 2), annotations=SINGLE)
    cluster.expect_pod("c", "InsufficientNodes")
    shares = [status(cluster, name)["numaNodeResources"] for name in ("a", "b")]
    amounts = {"cpu": "20", "memory": "8Gi"}
    assert shares == [[{"node": at, "resources": amounts}] for at in (0, 1)]
    assert [minors(cluster, name) for name in ("a", "b")] == [[0, 1], [4, 5]]
    assert [cpus(cluster, name).bit_count() for name in ("a", "b")] == [20, 20]
    assert not cpus(cluster, "a") & cpus(cluster, "b")
    command = [sys.executable, "-m", "koord", "explain", "pod", "c", "-n", cluster.namespace]
    kubeconfig = f"--kubeconfig={cluster.box.kubeconfig}"
    printed = subprocess.run([*command, kubeconfig], check=True, capture_output=True, text=True)
    assert "NUMA node 0: 12 of 32 CPUs free" in printed.stdout


def test_cpus_are_given_once_also_after_a_restart(cluster: Cluster, node: str) -> None:
    assert node
    cluster.pod("a", containers=ask(30), labels=PINNED)
    cluster.expect_bound("a")
    taken = cpus(cluster, "a")
    cluster.operators.kill()
    cluster.operators.start()
    cluster.pod("b", containers=ask(34), labels=PINNED)
    cluster.expect_bound("b")
    assert not taken & cpus(cluster, "b")
    cluster.pod("c", containers=ask(1), labels=PINNED)
    cluster.expect_pod("c", "InsufficientNodes")


def test_annotations_of_a_tenant_give_no_cpus(
    unprotected_cluster: Cluster, unprotected_node: str
) -> None:
    """Forged on a pod that waits, on one that runs, and on one of another scheduler.

    The policies of the base would refuse that.
    """
    cluster = unprotected_cluster
    forged = {STATUS: '{"cpuset":"0-63"}'}
    cluster.pod("other", gated=False, scheduler="x", nodeName=unprotected_node, annotations=forged)
    cluster.pod("a", containers=ask(30), labels=PINNED, annotations=forged)
    cluster.expect_bound("a")
    taken = cpus(cluster, "a")
    assert taken.bit_count() == 30
    annotate(cluster, "a", **{STATUS: '{"cpuset":"0"}'})
    cluster.pod("b", containers=ask(34), labels=PINNED)
    cluster.expect_bound("b")
    assert not taken & cpus(cluster, "b")
    cluster.delete_pod("b")
    cluster.operators.kill()
    cluster.operators.start()
    # Nobody knows any more which CPUs it has, so as many are left free on both NUMA nodes.
    cluster.pod("c", containers=ask(5), labels=PINNED)
    cluster.expect_pod("c", "InsufficientNodes")
    cluster.pod("d", containers=ask(4), labels=PINNED)
    cluster.expect_bound("d")


def test_members_of_a_gang_share_no_cpu_and_each_is_on_one_numa_node(
    cluster: Cluster, node: str
) -> None:
    assert node
    cluster.gang("a", 4, containers=ask(16, 2), annotations=SINGLE, labels=PINNED)
    names = [f"a-{at}" for at in range(4)]
    cluster.expect_bound(*names)
    assert sum(cpus(cluster, name).bit_count() for name in names) == 64
    assert reduce(or_, (cpus(cluster, name) for name in names)).bit_count() == 64
    for name in names:
        (share,) = status(cluster, name)["numaNodeResources"]
        assert {minor // 4 for minor in minors(cluster, name)} == {share["node"]}


@pytest.mark.parametrize("spec", ["{", '{"numaTopologyPolicy":"Rack"}', '["Restricted"]'])
def test_an_annotation_that_cannot_be_read_waits_alone(
    cluster: Cluster, node: str, spec: str
) -> None:
    assert node
    cluster.pod("a", annotations=dict.fromkeys(SINGLE, spec))
    cluster.pod("b", containers=ask(1), annotations=SINGLE)
    cluster.expect_bound("b")
    cluster.expect_pod("a", "InvalidNUMAAnnotation")
