"""Devices that are reported wrongly or oddly: a condition says so, the rest of the node is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.holders import read_holders

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.operators.conftest import Cluster

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
CORE = "koordinator.sh/gpu-core"
MEMORY = "koordinator.sh/gpu-memory"
RATIO = "koordinator.sh/gpu-memory-ratio"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"


def gpu(minor: int, memory: str = "80Gi", **more: Any) -> dict[str, Any]:
    resources = {CORE: "100", MEMORY: memory, RATIO: "100"}
    return {"type": "gpu", "minor": minor, "health": True, "resources": resources, **more}


@pytest.fixture
def report(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Report the devices of a new node; in the end nothing is held twice."""
    made: list[str] = []

    def create(*devices: dict[str, Any], gpus: int = 8, **metadata: Any) -> str:
        (name,) = cluster.add_nodes(1, gpus=gpus)
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name, **metadata},
            "spec": {"devices": list(devices)},
        }
        cluster.box.client.create(DEVICES, body)
        made.append(name)
        return name

    yield create
    client = cluster.box.client
    read_holders(client.get(DEVICES)["items"], client.get("/api/v1/pods")["items"])
    for name in made:
        client.delete(f"{DEVICES}/{name}")


def expect_condition(cluster: Cluster, node: str, kind: str, reason: str) -> str:
    """Wait for a condition of a Device; return its message."""

    def read() -> tuple[str, str, str]:
        return cluster.condition(cluster.box.client.get(f"{DEVICES}/{node}"), kind)

    cluster.expect(lambda: read()[1] == reason, f"{kind} is {reason}")
    return read()[2]


def test_an_unknown_vendor_no_places_and_odd_units(
    cluster: Cluster, report: Callable[..., str]
) -> None:
    amounts = ("83201216Ki", "0.5Ti", "80e9", "81920M")
    labels = {
        "node.koordinator.sh/gpu-vendor": "acme",
        "node.koordinator.sh/gpu-model": "Road-Runner",
    }
    node = report(*(gpu(at, memory) for at, memory in enumerate(amounts)), labels=labels)
    scope = {HINT: '{"gpu":{"requiredTopologyScope":"PCIe"}}'}
    cluster.pod("near", gpus=2, annotations=scope)
    cluster.pod("part", resources={MEMORY: "300Gi"})
    cluster.expect_bound("part")
    cluster.pod("any", gpus=2)
    cluster.expect_bound("any")
    cluster.expect_pod("near", "InsufficientNodes")
    expect_condition(cluster, node, "Ready", "Synced")


def test_a_partition_table_that_cannot_be_read(
    cluster: Cluster, report: Callable[..., str]
) -> None:
    node = report(*map(gpu, range(2)), annotations={PARTITIONS: '{"2": [{"minors": [0,'})
    message = expect_condition(cluster, node, "Ready", "InvalidEntries")
    assert PARTITIONS in message
    cluster.gang("a", 2, gpus=1)
    cluster.expect_bound("a-0", "a-1")


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        ([gpu(1), gpu(1)], "spec.devices"),
        ([gpu(-1)], "minor"),
        ([gpu(0, "lots")], "gpu-memory"),
        ([{**gpu(0), "type": "GPU!"}], "type"),
        ([gpu(at) for at in range(513)], "spec.devices"),
    ],
)
def test_the_server_refuses(
    report: Callable[..., str], devices: list[dict[str, Any]], field: str
) -> None:
    with pytest.raises(SandboxApiError, match=field):
        report(*devices)


def test_devices_go_while_pods_use_them(cluster: Cluster, report: Callable[..., str]) -> None:
    node = report(*map(gpu, range(8)))
    cluster.pod("a-0", gpus=4)
    cluster.pod("a-1", gpus=4)
    cluster.expect_bound("a-0", "a-1")
    client, path = cluster.box.client, f"{DEVICES}/{node}"
    kept = [gpu(at) for at in range(6)]
    client.patch(path, {"spec": {"devices": kept}})

    def shown() -> list[Any]:
        found: list[Any] = client.get(path).get("status", {}).get("devices", [])
        return found

    cluster.expect(lambda: len(shown()) == 6, "the status follows")
    cluster.pod("b", gpus=1)
    cluster.expect_pod("b", "InsufficientNodes")
    # Pods keep what they have; the room of one that ends is used again, as far as it is there.
    (first,) = shown()[0]["pods"]
    cluster.delete_pod(first.partition("/")[2])
    cluster.expect_bound("b")
    client.patch(path, {"spec": {"devices": [gpu(at) for at in range(8)]}})


def test_sixty_four_gpus(cluster: Cluster, report: Callable[..., str]) -> None:
    places = [{"topology": {"nodeID": at // 32, "pcieID": f"pcie{at // 8}"}} for at in range(64)]
    report(*(gpu(at, **place) for at, place in enumerate(places)), gpus=64)
    cluster.gang("a", 3, gpus=16)
    cluster.pod("b", gpus=16)
    cluster.expect_bound("a-0", "a-1", "a-2", "b")
