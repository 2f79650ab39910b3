"""What device plugins of vendors read, on a real API server. The plugins themselves are stand-ins:
a test takes the lock of a node away, as the plugin does when it has served a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.test_devices import DEVICES, make_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

SCHEDULING = "scheduling.koordinator.sh/"
PENDING = {"operators.koordinator.sh/demo-pending": "true"}
"""Stays Pending on its node, as while its device plugin serves it."""
LOCK = "cambricon.com/dsmlu.lock"
CORE, MEMORY = "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory"
HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
MLU = {
    "koordinator.sh/gpu.shared": "1",
    "koordinator.sh/gpu-core": "10",
    "koordinator.sh/gpu-memory": "1Gi",
    CORE: "10",
    MEMORY: "4",
}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """Add a node whose Device a test completes."""
    (name,) = cluster.add_nodes(1, gpus=0)
    yield name
    cluster.box.client.delete(f"{DEVICES}/{name}")


def add_devices(cluster: Cluster, node: str, vendor: str, plugin: dict[str, str]) -> None:
    """Report devices of a vendor, and the resources that its device plugin adds to the node."""
    device = make_device(node)
    device["metadata"]["labels"] = {"node.koordinator.sh/gpu-vendor": vendor}
    cluster.box.client.create(DEVICES, device)
    status = {"status": {"capacity": plugin, "allocatable": plugin}}
    path = f"/api/v1/nodes/{node}"
    cluster.box.client.patch(f"{path}/status", status)
    cluster.expect(
        lambda: "koordinator.sh/gpu-core" in cluster.box.client.get(path)["status"]["allocatable"],
        "the devices are published",
    )


def ask(cluster: Cluster, name: str, amounts: dict[str, str], **options: Any) -> None:
    containers = [{"name": "c", "image": "x", "resources": {"limits": amounts}}]
    cluster.pod(name, containers=containers, **options)


def annotations(cluster: Cluster, pod: str) -> dict[str, str]:
    found: dict[str, str] = cluster.get_pod(pod)["metadata"].get("annotations", {})
    return found


def message(cluster: Cluster, pod: str) -> str:
    return cluster.condition(cluster.get_pod(pod), "operators.koordinator.sh/Placed")[2]


def test_a_locked_node_is_given_one_pod_at_a_time(cluster: Cluster, node: str) -> None:
    add_devices(cluster, node, "cambricon", {CORE: "800", MEMORY: "2560"})

    def lock() -> str:
        marks: dict[str, str] = cluster.box.client.get(f"/api/v1/nodes/{node}")["metadata"][
            "annotations"
        ]
        return marks.get(LOCK, "")

    ask(cluster, "a", MLU, annotations=PENDING)
    cluster.expect_bound("a")
    assert lock().endswith(f"Z,{cluster.namespace},a")
    written = annotations(cluster, "a")
    assert written["CAMBRICON_DSMLU_PROFILE"] == "0_10_4"
    assert written["CAMBRICON_DSMLU_ASSIGHED"] == "false"
    assert written[f"{SCHEDULING}bind-timestamp"].isdecimal()
    ask(cluster, "b", MLU)
    cluster.expect_pod("b", "NodeLocked")
    assert f"{cluster.namespace}/a" in message(cluster, "b")
    ask(cluster, "c", HALF)
    cluster.expect_bound("c")
    assert "b" not in cluster.bound()
    served = {"metadata": {"annotations": {LOCK: None}}}
    cluster.box.client.patch(f"/api/v1/nodes/{node}", served)
    cluster.expect_bound("b")
    assert lock().endswith(f"Z,{cluster.namespace},b")


def test_what_the_plugin_cannot_serve_waits(cluster: Cluster, node: str) -> None:
    add_devices(cluster, node, "cambricon", {CORE: "800"})
    ask(cluster, "a", {**HALF, "koordinator.sh/gpu.shared": "2", CORE: "50"})
    text = "multiple gpu share is not supported on device side"
    cluster.expect(lambda: text in message(cluster, "a"), text)


def test_npus_are_named_for_their_plugin(cluster: Cluster, node: str) -> None:
    device = make_device(node)
    device["metadata"]["labels"] = {
        "node.koordinator.sh/gpu-vendor": "huawei",
        "node.koordinator.sh/gpu-model": "Ascend-910B3",
    }
    for one in device["spec"]["devices"]:
        one["resources"] = {
            "huawei.com/npu-core": "20",
            "koordinator.sh/gpu-memory-ratio": "100",
            "koordinator.sh/gpu-memory": "64Gi",
        }
    cluster.box.client.create(DEVICES, device)
    pair = {"huawei.com/npu-core": "40", "koordinator.sh/gpu-memory-ratio": "200"}
    cluster.gang("a", 2, containers=[{"name": "c", "image": "x", "resources": {"limits": pair}}])
    cluster.expect_bound("a-0", "a-1")
    written = [annotations(cluster, name) for name in ("a-0", "a-1")]
    assert {one["huawei.com/npu-core"] for one in written} == {"0,1", "2,3"}
    assert all(one["predicate-time"].isdecimal() for one in written)


@pytest.mark.parametrize("gated", [True, False])
def test_hami_finds_its_pods_and_their_limits(cluster: Cluster, node: str, *, gated: bool) -> None:
    add_devices(cluster, node, "nvidia", {})
    isolation = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    cluster.box.client.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": isolation}})
    ask(cluster, "a", HALF, labels=isolation, gated=gated)
    cluster.expect_bound("a")
    assert annotations(cluster, "a")[f"{SCHEDULING}gpu-memory-limit-0"] == str(40 << 30)
    assert annotations(cluster, "a")[f"{SCHEDULING}gpu-core-limit-0"] == "50"
    assert cluster.get_pod("a")["metadata"]["labels"]["hami.io/vgpu-node"] == node


def test_shares_without_isolation_say_so(cluster: Cluster, node: str) -> None:
    add_devices(cluster, node, "nvidia", {})
    ask(cluster, "a", HALF)
    cluster.expect_pod("a", "IsolationAbsent")
    placed = cluster.condition(cluster.get_pod("a"), "operators.koordinator.sh/Placed")
    assert placed[0] == "True"
    cluster.expect_bound("a")


def test_unequal_parts_of_gpus(cluster: Cluster, node: str) -> None:
    add_devices(cluster, node, "nvidia", {})
    amounts = {
        "koordinator.sh/gpu.shared": "2",
        "koordinator.sh/gpu-core": "70",
        "koordinator.sh/gpu-memory": "40Gi",
    }
    parts = [{"core": 20, "memory": "10Gi"}, {"core": 50, "memory": "30Gi"}]
    asked = {f"{SCHEDULING}gpu-request": json.dumps(parts)}
    ask(cluster, "a", amounts, annotations=asked)
    cluster.expect_bound("a")
    given = json.loads(annotations(cluster, "a")[f"{SCHEDULING}device-allocated"])["gpu"]
    assert {one["resources"]["koordinator.sh/gpu-core"] for one in given} == {"20", "50"}
    ask(cluster, "b", amounts, annotations={f"{SCHEDULING}gpu-request": '[{"core": 500}]'})
    cluster.expect_pod("b", "InvalidDeviceAnnotation")
    assert "gpu-request][0].core 500: " in message(cluster, "b")


def test_devices_are_advice_beside_a_device_plugin(cluster: Cluster, node: str) -> None:
    def consumption() -> str:
        status: dict[str, str] = cluster.box.client.get(f"{DEVICES}/{node}").get("status", {})
        return status.get("consumption", "")

    add_devices(cluster, node, "nvidia", {})
    cluster.expect(lambda: consumption() == "Exact", "nobody else gives out cards")
    cards = {"status": {kind: {"nvidia.com/gpu": "8"} for kind in ("capacity", "allocatable")}}
    cluster.box.client.patch(f"/api/v1/nodes/{node}/status", cards)
    cluster.expect(lambda: consumption() == "Advisory", "a device plugin gives out cards")
