"""What quotas may use and what they use are sums over the same nodes and pods."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.operators.test_devices import DEVICES, make_device
from tests.operators.test_everyday import ask, koord
from tests.operators.test_profiles import Profiles
from tests.operators.test_quotas import GPU, Quotas
from tests.operators.test_reservations import Reservations, reservations

from koord_sandbox.errors import SandboxApiError
from koord_sandbox.node_reports import set_health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

__all__ = ["reservations"]

CORE = "koordinator.sh/gpu-core"
SHARES = {CORE: "800", "koordinator.sh/gpu-memory-ratio": "800"}


@pytest.fixture
def quotas(cluster: Cluster) -> Iterator[Quotas]:
    """Quotas of the whole cluster: no other test has nodes meanwhile."""
    made = Quotas(cluster)
    yield made
    for pod in cluster.pods():
        cluster.delete_pod(pod)
    with suppress(SandboxApiError):
        made.delete("team")


def start(cluster: Cluster, quotas: Quotas, name: str, count: int) -> None:
    cluster.gang(name, count, labels=quotas.label("team"))


def test_a_gpu_is_withdrawn_while_it_is_used(cluster: Cluster, quotas: Quotas) -> None:
    cluster.add_nodes(4)
    quotas.create("team", 32, 32)
    start(cluster, quotas, "a", 2)
    cluster.expect_bound("a-0", "a-1")
    node = cluster.bound()["a-0"]
    less = {"status": {"allocatable": {GPU: "7"}}}
    cluster.box.client.patch(f"/api/v1/nodes/{node}/status", less)
    start(cluster, quotas, "b", 2)
    cluster.expect_bound("b-0", "b-1")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_is_deleted_while_it_is_used(
    cluster: Cluster, quotas: Quotas, *, restarts: bool
) -> None:
    cluster.add_nodes(4)
    quotas.create("team", 24, 32)
    # It outlives its node for as long as somebody has not finished with it.
    cluster.pod("a", labels=quotas.label("team"))
    cluster.expect_bound("a")
    cluster.box.client.patch(
        f"{cluster.pods_path}/a", {"metadata": {"finalizers": ["example.com/slow"]}}
    )
    cluster.box.client.delete(f"/api/v1/nodes/{cluster.bound()['a']}")
    if restarts:
        cluster.operators.kill()
        cluster.operators.start()
    start(cluster, quotas, "b", 3)
    cluster.expect_bound("b-0", "b-1", "b-2")
    cluster.box.client.patch(f"{cluster.pods_path}/a", {"metadata": {"finalizers": None}})


def test_a_device_fails_while_it_is_used(cluster: Cluster, quotas: Quotas) -> None:
    nodes = cluster.add_nodes(2)
    for name in nodes:
        cluster.box.client.create(DEVICES, make_device(name))
    quotas.create("team", 16, 16)
    quotas.edit("team", min={GPU: None, CORE: "1600"}, max={GPU: None, CORE: "1600"})
    try:
        cluster.pod("d0", labels=quotas.label("team"), resources=SHARES)
        cluster.expect_bound("d0")
        used = cluster.bound()["d0"]
        set_health(cluster.box.client, f"{used}/gpu/3", is_healthy=False)
        path = f"/api/v1/nodes/{used}"
        cluster.expect(
            lambda: cluster.box.client.get(path)["status"]["allocatable"][CORE] == "700",
            "the node offers less than is used",
        )
        cluster.pod("d1", labels=quotas.label("team"), resources=SHARES)
        cluster.expect_bound("d1")
    finally:
        for name in nodes:
            cluster.box.client.delete(f"{DEVICES}/{name}")


@pytest.mark.parametrize("minimum", [0, 24])
def test_a_node_leaves_its_pool_while_it_is_used(
    cluster: Cluster, quotas: Quotas, minimum: int
) -> None:
    profiles = Profiles(cluster)
    nodes = cluster.add_nodes(4)
    for name in nodes[:3]:
        profiles.put(name, "a")
    profiles.create("a", quotas.name("root"), "a", **{"deletion-policy": "Delete"})
    profiles.wait("a", "Ready", "True", "Made")
    quotas.create("team", minimum, 24, {"parent": quotas.name("root")})
    quotas.create("rest", 8, 8)
    start(cluster, quotas, "a", 1)
    cluster.expect_bound("a-0")
    profiles.put(cluster.bound()["a-0"], "b")
    cluster.expect(lambda: profiles.get("a")["status"]["nodes"] == 2, "the profile says so")
    # Two nodes of the pool are free, and one of the others.
    start(cluster, quotas, "b", 2)
    cluster.expect_bound("b-0", "b-1")
    cluster.gang("c", 1, labels=quotas.label("rest"))
    cluster.expect_bound("c-0")
    for name in cluster.pods():
        cluster.delete_pod(name)
    quotas.delete("rest")
    profiles.delete("a")


@pytest.mark.parametrize("members", [1, 2])
def test_a_reservation_and_the_pods_in_it_count_once(
    cluster: Cluster,
    quotas: Quotas,
    reservations: Reservations,
    members: int,
) -> None:
    """Of 16 GPUs 8 are held, and used by one pod or by a gang: 8 are used, wherever one looks."""
    cluster.add_nodes(2)
    quotas.create("team", 16, 16)
    label = quotas.label("team")
    reservations.create("r", 8, label)
    reservations.expect("r")
    owner = {"labels": {"app": "a", **label}, "gpus": 8 // members}
    cluster.gang("in", members, **owner)
    cluster.expect_bound(*(f"in-{at}" for at in range(members)))
    reservations.expect_owners("r", *(f"in-{at}" for at in range(members)))
    cluster.expect(lambda: quotas.status("team").get("used") == {GPU: "8"}, "the status says 8")
    name = quotas.name("team")
    (shown,) = [one for one in ask(cluster, "quota", "tree")["quotas"] if one["name"] == name]
    assert (shown["used"], shown["over"]) == ({GPU: "8"}, {})
    explained = ask(cluster, "quota", "explain", name)
    assert explained["used"] == {GPU: "8"}
    assert [one["used"] for one in explained["users"] if one["used"].get(GPU)] == [{GPU: "8"}]
    (top,) = [one for one in ask(cluster, "top", "quotas")["quotas"] if one["name"] == name]
    assert top["used"] == {GPU: "8"}
    nodes = ask(cluster, "top", "nodes")["nodes"]
    assert sorted(one["used"].get(GPU, "0") for one in nodes) == ["0", "8"]
    edit = koord(cluster, "quota", "what-if", name, "--pods", "1", "--request", f"{GPU}=8")
    assert "would start now" in edit.output
