"""Devices and CPUs inside reservations on a real API server: who gets them, and who says so."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.test_devices import ALLOCATED, minors
from tests.operators.test_numa import PINNED, STATUS, add_node, ask, cpus
from tests.operators.test_reservations import PATH, Reservations, allocated

from koord.core.numa.cpu_topology import parse_cpuset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

OWNER = {"app": "a"}


@pytest.fixture
def reservations(cluster: Cluster) -> Iterator[Reservations]:
    """Add a node with eight GPUs and two NUMA nodes of 32 CPUs."""
    for _ in add_node(cluster):
        with closing(Reservations(cluster)) as made:
            yield made


@pytest.fixture
def open_reservations(unprotected_cluster: Cluster) -> Iterator[Reservations]:
    for _ in add_node(unprotected_cluster):
        with closing(Reservations(unprotected_cluster)) as made:
            yield made


def record(reservations: Reservations, short: str, key: str) -> str:
    return str((reservations.get(short)["metadata"].get("annotations") or {}).get(key, ""))


def held(reservations: Reservations, short: str) -> list[int]:
    """Return the GPUs that are recorded on a reservation."""
    return [one["minor"] for one in json.loads(record(reservations, short, ALLOCATED))["gpu"]]


def test_an_owner_gets_a_held_gpu_and_others_do_not_also_after_a_restart(
    cluster: Cluster, reservations: Reservations
) -> None:
    reservations.create("r", 4)
    assert reservations.expect("r")["allocatable"] == {"nvidia.com/gpu": "4"}
    mine = held(reservations, "r")
    assert len(mine) == 4
    cluster.pod("other", gpus=4)
    cluster.expect_bound("other")
    assert set(minors(cluster, "other")).isdisjoint(mine)
    cluster.pod("late", gpus=1)
    cluster.expect_pod("late", "InsufficientNodes")
    cluster.pod("owner", gpus=1, labels=OWNER)
    cluster.expect_bound("owner")
    assert allocated(cluster, "owner") == reservations.name("r")
    assert set(minors(cluster, "owner")) < set(mine)
    cluster.operators.kill()
    cluster.operators.start()
    cluster.pod("second", gpus=3, labels=OWNER)
    cluster.expect_bound("second")
    assert sorted([*minors(cluster, "owner"), *minors(cluster, "second")]) == sorted(mine)
    assert "late" not in cluster.bound()
    reservations.delete("r")
    cluster.delete_pod("owner")
    cluster.expect_bound("late")


def test_a_forged_record_changes_nothing(
    unprotected_cluster: Cluster, open_reservations: Reservations
) -> None:
    """Written before there is a node, and afterwards; the policies of the base would refuse it."""
    cluster = unprotected_cluster
    part = {"koordinator.sh/gpu-core": "1"}
    forged = {ALLOCATED: json.dumps({"gpu": [{"minor": 7, "resources": part}]})}
    manifest = open_reservations.make("r", 4)
    manifest["metadata"]["annotations"] = forged
    cluster.box.client.create(PATH, manifest)
    try:
        open_reservations.expect("r")
        mine = held(open_reservations, "r")
        assert len(mine) == 4
        open_reservations.patch("r", {"metadata": {"annotations": forged}})
        cluster.pod("other", gpus=4)
        cluster.expect_bound("other")
        assert set(minors(cluster, "other")).isdisjoint(mine)
        cluster.pod("owner", gpus=2, labels=OWNER)
        cluster.expect_bound("owner")
        assert set(minors(cluster, "owner")) < set(mine)
        cluster.operators.kill()
        cluster.operators.start()
        # Nobody knows any more which GPUs it holds, so as many are left free.
        cluster.pod("late", gpus=1)
        cluster.expect_pod("late", "InsufficientNodes")
    finally:
        open_reservations.delete("r")


def test_cpus_are_held_and_given_to_owners(cluster: Cluster, reservations: Reservations) -> None:
    manifest: dict[str, Any] = reservations.make("c", 0, PINNED)
    manifest["spec"]["template"]["spec"]["containers"] = ask(30)
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        container["resources"]["requests"] = container["resources"].pop("limits")
    cluster.box.client.create(PATH, manifest)
    try:
        reservations.expect("c")
        mine = parse_cpuset(json.loads(record(reservations, "c", STATUS))["cpuset"])
        assert isinstance(mine, int)
        assert mine.bit_count() == 30
        cluster.pod("other", containers=ask(34), labels=PINNED)
        cluster.expect_bound("other")
        assert not cpus(cluster, "other") & mine
        cluster.pod("owner", containers=ask(20), labels={**PINNED, **OWNER})
        cluster.expect_bound("owner")
        assert cpus(cluster, "owner") & mine == cpus(cluster, "owner")
        cluster.pod("late", containers=ask(2), labels=PINNED)
        cluster.expect_pod("late", "InsufficientNodes")
    finally:
        reservations.delete("c")


def test_a_running_pod_is_taken_in(cluster: Cluster, reservations: Reservations) -> None:
    cluster.pod("running", gpus=3, labels=OWNER)
    cluster.expect_bound("running")
    cluster.pod("other", gpus=4)
    cluster.expect_bound("other")
    fields = {"preAllocation": True, "allocatePolicy": "Restricted"}
    reservations.create("r", 4, **fields)
    reservations.expect("r")
    assert set(minors(cluster, "running")) < set(held(reservations, "r"))
    assert set(minors(cluster, "other")).isdisjoint(held(reservations, "r"))
    assert allocated(cluster, "running") == reservations.name("r")
    reservations.expect_owners("r", "running")
    cluster.operators.kill()
    cluster.operators.start()
    cluster.pod("late", gpus=1)
    cluster.expect_pod("late", "InsufficientNodes")
    cluster.delete_pod("running")
    cluster.pod("owner", gpus=4, labels=OWNER)
    cluster.expect_bound("owner")
    assert set(minors(cluster, "owner")) == set(held(reservations, "r"))
    assert "late" not in cluster.bound()
    reservations.expect_owners("r", "owner")
