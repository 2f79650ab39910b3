"""Devices on a real API server: pods get their own, and annotations of others change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.holders import Holders, read_holders
from tests.operators.test_quotas import Quotas

from koord_sandbox.errors import KubectlError, SandboxApiError

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
    """Add a node with eight GPUs on four switches; in the end nothing is held twice."""
    for name in add_node(cluster):
        yield name
        find_holders(cluster)


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


def find_holders(cluster: Cluster) -> Holders:
    """Return who holds what, from the API objects alone; fails if something is held twice."""
    client = cluster.box.client
    devices, pods = client.get(DEVICES)["items"], client.get("/api/v1/pods")["items"]
    return read_holders(devices, pods)


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
    # Those that recover are used after a while, and the pod need not be touched for it.
    cluster.box.client.patch(f"{DEVICES}/{node}", {"spec": make_device(node)["spec"]})
    cluster.expect_bound("a")
    assert set(minors(cluster, "a")).isdisjoint({6, 7})


def test_quotas_count_the_devices_that_pods_are_given(cluster: Cluster, node: str) -> None:
    """Whatever a tenant calls it: a whole device for a tenth of the price, or memory only."""
    assert node
    Quotas(cluster).create("team", 0, 3, namespaces=[cluster.namespace])
    alone = json.dumps({"gpu": {"exclusivePolicy": "DeviceLevel"}})
    hint = {"scheduling.koordinator.sh/device-allocate-hint": alone}
    tenth = {"koordinator.sh/gpu-core": 10, "koordinator.sh/gpu-memory-ratio": 10}
    cluster.pod("a", resources=tenth, annotations=hint)
    cluster.pod("b", resources={"koordinator.sh/gpu-memory": "60Gi"})
    cluster.pod("c", gpus=1)
    cluster.expect_bound("a", "b", "c")
    for name, more in (("d", tenth), ("e", {"koordinator.sh/gpu-memory": "1Gi"})):
        cluster.pod(name, resources=more, annotations=hint if more is tenth else {})
        cluster.expect_pod(name, "InsufficientMax")
    cluster.delete_pod("c")
    cluster.expect(lambda: len(cluster.bound()) == 3, "one more fits")


def test_who_uses_a_gpu_that_fails_is_told(cluster: Cluster, node: str) -> None:
    cluster.gang("a", 2, gpus=4)
    cluster.expect_bound("a-0", "a-1")
    sick = minors(cluster, "a-1")[0]
    spec = make_device(node, sick=frozenset({sick}))["spec"]
    cluster.box.client.patch(f"{DEVICES}/{node}", {"spec": spec})

    def is_told() -> bool:
        events = cluster.box.client.get(
            f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
        )["items"]
        return any(
            one["reason"] == "DeviceUnhealthy"
            and one["regarding"]["kind"] == "PodGroup"
            and f"{cluster.namespace}/a-1 uses gpu {sick}" in one["note"]
            for one in events
        )

    cluster.expect(is_told, "an event on the PodGroup")
    cluster.expect(
        lambda: (
            "DevicesUnhealthy"
            in {
                one["reason"]
                for one in cluster.box.client.get(f"{DEVICES}/{node}")["status"]["conditions"]
            }
        ),
        "the condition Healthy",
    )


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


CLAIMS = "/apis/resource.k8s.io/v1"


@pytest.fixture
def claims_path(cluster: Cluster) -> str:
    """The ResourceClaims of the namespace; older versions of Kubernetes do not serve them."""
    try:
        cluster.box.client.get(CLAIMS)
    except SandboxApiError:
        pytest.skip("resource.k8s.io/v1 is not served")
    return f"{CLAIMS}/namespaces/{cluster.namespace}/resourceclaims"


def make_claim(name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 3}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def allocation(node: str) -> dict[str, Any]:
    """Return what kube-scheduler writes for a claim whose devices are on one node."""
    devices = [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{minor}"}
        for minor in range(3)
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": devices}, "nodeSelector": selector}}


def test_gpus_that_dra_gave_out_are_left_free(
    cluster: Cluster, node: str, claims_path: str
) -> None:
    """The status is written by us here: there is no driver."""
    client = cluster.box.client
    client.create(claims_path, make_claim("c"))
    client.patch(f"{claims_path}/c/status", {"status": allocation(node)})
    named = f"ResourceClaim {cluster.namespace}/c"
    cluster.expect(
        lambda: (
            named in cluster.condition(client.get(f"{DEVICES}/{node}"), "ForeignAllocations")[2]
        ),
        "the claim is named",
    )
    cluster.pod("a", gpus=6)
    cluster.expect_pod("a", "InsufficientNodes")
    cluster.pod("b", gpus=5)
    cluster.expect_bound("b")
    cluster.delete_pod("b")
    client.delete(f"{claims_path}/c")
    cluster.expect_bound("a")


def test_a_tenant_claims_nothing_by_writing_a_status(
    cluster: Cluster, node: str, claims_path: str
) -> None:
    name = f"{cluster.namespace}-mallory"
    there = f"--namespace={cluster.namespace}"
    cluster.box.kubectl("create", "serviceaccount", name, there)
    account = f"--serviceaccount={cluster.namespace}:{name}"
    cluster.box.kubectl("create", "rolebinding", name, "--clusterrole=edit", account, there)
    user = f"--as=system:serviceaccount:{cluster.namespace}:{name}"
    forged = make_claim("forged") | {"status": allocation(node)}
    cluster.box.kubectl("create", "--filename=-", user, there, stdin=json.dumps(forged))
    patch = json.dumps({"status": allocation(node)})
    options = ("--subresource=status", "--type=merge", f"--patch={patch}")
    with pytest.raises(KubectlError, match="forbidden"):
        cluster.box.kubectl("patch", "resourceclaim", "forged", *options, user, there)
    cluster.pod("a", gpus=8)
    cluster.expect_bound("a")


def test_pods_with_resource_claims_are_left_to_kube_scheduler(
    cluster: Cluster, node: str, claims_path: str
) -> None:
    assert node
    client = cluster.box.client
    client.create(claims_path, make_claim("c"))
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    cluster.pod("ours", gpus=0, resourceClaims=claims)
    cluster.expect_pod("ours", "NeedsKubeScheduler")
    message = cluster.condition(cluster.get_pod("ours"), "operators.koordinator.sh/Placed")[2]
    assert "spec.resourceClaims" in message
    assert "default-scheduler" in message
    cluster.pod("theirs", gpus=0, scheduler="default-scheduler", resourceClaims=claims)
    cluster.expect(
        lambda: not cluster.get_pod("theirs")["spec"].get("schedulingGates"), "the gate is off"
    )
    # It waits for a driver that does not exist; that is for kube-scheduler to say.
    cluster.expect(
        lambda: cluster.condition(cluster.get_pod("theirs"), "PodScheduled")[1] == "Unschedulable",
        "kube-scheduler looks after it",
    )
