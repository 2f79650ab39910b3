"""Devices: what pods hold, when the Device object of their node changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.test_devices import (
    DEVICES,
    UUIDS,
    add_node,
    find_holders,
    make_device,
    minors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.operators.conftest import Cluster

WHOLE = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """Add a node with eight GPUs; in the end nothing is held twice."""
    for name in add_node(cluster):
        yield name
        find_holders(cluster)


def renumber(cluster: Cluster, node: str, order: Sequence[int]) -> None:
    """Report the GPUs that had these minors, in this order of their minors from now on."""
    spec = make_device(node)["spec"]
    devices = [{**spec["devices"][now], "id": f"GPU-{node}-{was}"} for now, was in enumerate(order)]
    cluster.box.client.patch(f"{DEVICES}/{node}", {"spec": {"devices": devices}})


def ids(cluster: Cluster) -> dict[str, str]:
    """Return the ids that each pod was given."""
    pods = cluster.pods().items()
    every = {name: (pod["metadata"].get("annotations") or {}).get(UUIDS) for name, pod in pods}
    return {name: one for name, one in every.items() if one}


def allocatable(cluster: Cluster, node: str) -> str:
    """Return how much of GPUs a node says that it has, 100 for each."""
    status: dict[str, Any] = cluster.box.client.get(f"/api/v1/nodes/{node}")["status"]
    return str(status["allocatable"]["koordinator.sh/gpu-core"])


def records(cluster: Cluster, node: str) -> tuple[str, str, str]:
    device: dict[str, Any] = cluster.box.client.get(f"{DEVICES}/{node}")
    return cluster.condition(device, "RecordsMatch")


def expect_records(cluster: Cluster, node: str, reason: str) -> str:
    cluster.expect(lambda: records(cluster, node)[1] == reason, f"RecordsMatch: {reason}")
    return records(cluster, node)[2]


def test_a_pod_keeps_its_gpu_when_two_change_minors(cluster: Cluster, node: str) -> None:
    cluster.pod("p0", resources=WHOLE)
    cluster.expect_bound("p0")
    assert ids(cluster) == {"p0": f"GPU-{node}-0"}
    expect_records(cluster, node, "AllMatch")
    renumber(cluster, node, (1, 0, *range(2, 8)))
    text = expect_records(cluster, node, "DevicesMoved")
    assert text == f"{cluster.namespace}/p0 has gpu 0 (GPU-{node}-0), now 1"
    others = [f"q{at}" for at in range(7)]
    for name in others:
        cluster.pod(name, resources=WHOLE)
    cluster.expect_bound(*others)
    assert len(set(ids(cluster).values())) == 8


def test_the_others_keep_their_gpus_when_one_is_taken_out(cluster: Cluster, node: str) -> None:
    """Also after a restart; the pod of the missing GPU is named."""
    first = [f"p{at}" for at in range(4)]
    for name in first:
        cluster.pod(name, resources=WHOLE)
        cluster.expect_bound(name)
    cluster.operators.kill()
    renumber(cluster, node, (*range(1), *range(2, 8)))
    cluster.operators.start()
    text = expect_records(cluster, node, "DeviceMissing")
    assert f"{cluster.namespace}/p1 has gpu 1 (GPU-{node}-1), which is gone" in text
    # Until the node says so, pods may get the GPUs that are left, which nobody has.
    cluster.expect(lambda: allocatable(cluster, node) == "700", "seven GPUs of the node")
    others = [f"q{at}" for at in range(5)]
    for name in others:
        cluster.pod(name, resources=WHOLE)
    cluster.expect(lambda: len(cluster.bound()) == 7, "three: what p1 requests counts still")
    cluster.delete_pod("p1")
    expect_records(cluster, node, "DevicesMoved")
    cluster.expect(lambda: len(cluster.bound()) == 7, "all seven are in use")
    assert len(set(ids(cluster).values())) == 7
    (left,) = set(others) - cluster.bound().keys()
    cluster.expect_pod(left, "InsufficientNodes")


def test_a_deleted_device_binds_nobody_without_a_device(cluster: Cluster, node: str) -> None:
    """Not while the node still offers its resources, nor afterwards; all go on when it is back."""
    memory = {"koordinator.sh/gpu-memory": "50Gi"}
    first = [f"m{at}" for at in range(8)]
    for name in first:
        cluster.pod(name, resources=memory)
    cluster.expect_bound(*first)
    for name in ("m8", "m9"):
        cluster.pod(name, resources=memory)
        cluster.expect_pod(name, "InsufficientNodes")
    device = cluster.box.client.get(f"{DEVICES}/{node}")
    cluster.box.client.delete(f"{DEVICES}/{node}")
    cluster.pod("whole", gpus=1)

    def offers() -> bool:
        found = cluster.box.client.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
        return "koordinator.sh/gpu-memory" in found

    cluster.expect(lambda: not offers(), "the node offers no parts of GPUs")
    cluster.expect(
        lambda: "had no Device" in message(cluster, "whole"), "which are free is not known"
    )
    cluster.delete_pod("whole")
    cluster.box.client.create(DEVICES, {**make_device(node), "spec": device["spec"]})
    cluster.delete_pod("m0")
    cluster.expect(lambda: len(cluster.bound()) == 8, "one of both takes its place")
    assert set(ids(cluster).values()) == {f"GPU-{node}-{at}" for at in range(8)}


def message(cluster: Cluster, pod: str) -> str:
    return cluster.condition(cluster.get_pod(pod), "operators.koordinator.sh/Placed")[2]


RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.fixture
def reserve(cluster: Cluster) -> Iterator[Callable[[int], str]]:
    """Make a reservation of GPUs for pods with the label app: x, and wait until it is available."""
    name = f"{cluster.namespace}-rd"
    path = f"{RESERVATIONS}/{name}"

    def make(gpus: int) -> str:
        requests = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
        pod = {
            "nodeSelector": {"test": cluster.namespace},
            "containers": [{"name": "c", "image": "x", **requests}],
        }
        template = {"metadata": {"namespace": cluster.namespace}, "spec": pod}
        owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
        spec = {"owners": owners, "template": template, "allocateOnce": False}
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name},
            "spec": spec,
        }
        cluster.box.client.create(RESERVATIONS, body)

        def is_available() -> bool:
            status: dict[str, Any] = cluster.box.client.get(path).get("status", {})
            return status.get("phase") == "Available"

        cluster.expect(is_available, "the reservation is available")
        return name

    yield make
    cluster.box.client.delete(path)


def test_an_owner_gets_the_gpus_that_are_held_for_it(
    cluster: Cluster, node: str, reserve: Callable[[int], str]
) -> None:
    """What is held comes first, so that 8 - 1 - 4 are left for others."""
    assert node
    cluster.pod("one", gpus=1)
    cluster.expect_bound("one")
    name = reserve(2)
    cluster.pod("most", gpus=6)
    cluster.expect_pod("most", "InsufficientNodes")
    assert f"lacks 6 free nvidia.com/gpu (reservation {name}, " in message(cluster, "most")
    cluster.delete_pod("most")
    cluster.pod("own", gpus=4, labels={"app": "x"})
    cluster.expect_bound("own")
    assert {2, 3} < set(minors(cluster, "own"))
    cluster.pod("by", gpus=3)
    cluster.expect_bound("by")
