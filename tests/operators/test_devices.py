"""Devices on a real API server: pods get their own, and annotations of others change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from koord.sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
UUIDS = "scheduling.koordinator.sh/gpu-uuids"


def make_device(node: str, sick: frozenset[int] = frozenset()) -> dict[str, Any]:
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "80Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    gpus = [
        {
            "type": "gpu",
            "minor": minor,
            "health": minor not in sick,
            "id": f"GPU-{node}-{minor}",
            "resources": resources,
            "topology": {"nodeID": minor // 4, "pcieID": f"pcie{minor // 2}"},
        }
        for minor in range(8)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node},
        "spec": {"devices": gpus},
    }


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """Add a node with eight GPUs on four switches."""
    yield from add_node(cluster)


@pytest.fixture
def unprotected_node(unprotected_cluster: Cluster) -> Iterator[str]:
    yield from add_node(unprotected_cluster)


def add_node(cluster: Cluster) -> Iterator[str]:
    (name,) = cluster.add_nodes(1)
    cluster.box.client.create(DEVICES, make_device(name))
    yield name
    cluster.box.client.delete(f"{DEVICES}/{name}")


def minors(cluster: Cluster, pod: str) -> list[int]:
    text = (cluster.get_pod(pod)["metadata"].get("annotations") or {}).get(ALLOCATED)
    return [one["minor"] for one in json.loads(text)["gpu"]] if text else []


def annotate(cluster: Cluster, pod: str, **annotations: str | None) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}"
    cluster.box.client.patch(path, {"metadata": {"annotations": annotations}})


def test_members_of_a_gang_get_gpus_of_their_own(cluster: Cluster, node: str) -> None:
    cluster.gang("a", 3, gpus=2)
    cluster.expect_bound("a-0", "a-1", "a-2")
    given = Counter(minor for at in range(3) for minor in minors(cluster, f"a-{at}"))
    assert given == Counter(range(6))
    first = minors(cluster, "a-0")
    uuids = cluster.get_pod("a-0")["metadata"]["annotations"][UUIDS]
    assert uuids == ",".join(f"GPU-{node}-{minor}" for minor in first)


def test_devices_survive_a_restart_of_the_operators(cluster: Cluster, node: str) -> None:
    assert node
    cluster.gang("a", 2, gpus=3)
    cluster.expect_bound("a-0", "a-1")
    taken = {*minors(cluster, "a-0"), *minors(cluster, "a-1")}
    cluster.operators.kill()
    cluster.operators.start()
    cluster.pod("b", gpus=2)
    cluster.expect_bound("b")
    assert taken.isdisjoint(minors(cluster, "b"))


def test_annotations_of_a_tenant_give_no_device(
    unprotected_cluster: Cluster, unprotected_node: str
) -> None:
    """Forged on a pod that waits, and changed on one that runs, before and after a restart.

    The policies of the base would refuse that.
    """
    cluster = unprotected_cluster
    assert unprotected_node
    forged = json.dumps({"gpu": [{"minor": 7, "resources": {"koordinator.sh/gpu-core": "1"}}]})
    cluster.pod("a", gpus=4, annotations={ALLOCATED: forged})
    cluster.expect_bound("a")
    taken = minors(cluster, "a")
    assert len(taken) == 4
    annotate(cluster, "a", **{ALLOCATED: forged})
    cluster.pod("b", gpus=4)
    cluster.expect_bound("b")
    assert set(taken).isdisjoint(minors(cluster, "b"))
    cluster.delete_pod("b")
    cluster.operators.kill()
    cluster.operators.start()
    # Nobody knows any more which GPUs it uses, so as many are left free.
    cluster.pod("c", gpus=5)
    cluster.expect_pod("c", "InsufficientNodes")
    cluster.pod("d", gpus=4)
    cluster.expect_bound("d")


def test_gpus_that_fail_are_given_to_nobody(cluster: Cluster, node: str) -> None:
    device = cluster.box.client.get(f"{DEVICES}/{node}")
    spec = make_device(node, sick=frozenset(range(6)))["spec"]
    cluster.box.client.patch(f"{DEVICES}/{node}", {"spec": spec})
    assert device["metadata"]["name"] == node
    cluster.pod("a", gpus=3)
    cluster.expect_pod("a", "InsufficientNodes")
    cluster.pod("b", gpus=2)
    cluster.expect_bound("b")
    assert minors(cluster, "b") == [6, 7]
    cluster.box.client.patch(f"{DEVICES}/{node}", {"spec": make_device(node)["spec"]})
    cluster.expect_bound("a")
    assert set(minors(cluster, "a")).isdisjoint({6, 7})


@pytest.mark.parametrize("hint", ["{", '{"gpu":{"requiredTopologyScope":"Rack"}}'])
def test_an_annotation_that_cannot_be_read_waits_alone(
    cluster: Cluster, node: str, hint: str
) -> None:
    assert node
    cluster.pod("a", gpus=1, annotations={"scheduling.koordinator.sh/device-allocate-hint": hint})
    cluster.pod("b", gpus=1)
    cluster.expect_bound("b")
    cluster.expect_pod("a", "InvalidDeviceAnnotation")


def test_the_server_refuses_a_device_listed_twice(cluster: Cluster) -> None:
    device = make_device(f"{cluster.namespace}-x")
    device["spec"]["devices"] *= 2
    with pytest.raises(SandboxApiError):
        cluster.box.client.create(DEVICES, device)


def test_devices_become_resources_of_their_node(cluster: Cluster, node: str) -> None:
    def allocatable() -> dict[str, str]:
        found: dict[str, str] = cluster.box.client.get(f"/api/v1/nodes/{node}")["status"][
            "allocatable"
        ]
        return found

    cluster.expect(lambda: allocatable().get("koordinator.sh/gpu-core") == "800", "800 shares")
    assert allocatable()["koordinator.sh/gpu-memory"] == "640Gi"
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    for name in ("a", "b"):
        resources = {"resources": {"limits": half}}
        cluster.pod(name, containers=[{"name": "c", "image": "x", **resources}])
    cluster.expect_bound("a", "b")
    assert minors(cluster, "a") == minors(cluster, "b") == [0]


def test_the_status_says_who_holds_what(cluster: Cluster, node: str) -> None:
    cluster.pod("a", gpus=3)
    cluster.expect_bound("a")
    key = f"{cluster.namespace}/a"

    def status() -> dict[str, Any]:
        return cluster.box.client.get(f"{DEVICES}/{node}").get("status", {})

    cluster.expect(
        lambda: status().get("summary", {}).get("gpu", {}).get("free") == 5, "five GPUs are free"
    )
    found = status()
    assert found["summary"]["gpu"] == {"total": 8, "healthy": 8, "free": 5, "shared": 0}
    assert [one["minor"] for one in found["devices"] if one["pods"] == [key]] == [0, 1, 2]
    (entry,) = found["allocations"][0]["entries"]
    assert (entry["name"], entry["minors"]) == ("a", [0, 1, 2])
    assert found["fragmentation"] == {"largestFreePartition": 5, "index": "0.00"}
    assert cluster.condition({"status": found}, "Ready")[:2] == ("True", "Synced")
    command = [sys.executable, "-m", "koord", "devices", node]
    kubeconfig = f"--kubeconfig={cluster.box.kubeconfig}"
    printed = subprocess.run([*command, kubeconfig], check=True, capture_output=True, text=True)
    assert f"gpu 1  in use  {key}" in printed.stdout
    cluster.pod("b", gpus=1, gated=False, scheduler="other", nodeName=node)
    cluster.expect(
        lambda: cluster.condition({"status": status()}, "ForeignAllocations")[0] == "True",
        "pods of others are named",
    )
    assert (
        f"{cluster.namespace}/b" in cluster.condition({"status": status()}, "ForeignAllocations")[2]
    )
