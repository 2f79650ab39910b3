"""Gangs and the reservations that their members may use: what is held is held once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_reservations import allocated, reservations

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster
    from tests.operators.test_reservations import Reservations

__all__ = ["reservations"]
OWNER = {"app": "a"}


def test_room_of_a_lost_member_is_kept_by_its_reservation_alone(
    cluster: Cluster, reservations: Reservations
) -> None:
    first = cluster.add_nodes(4)[0]
    reservations.create("r", 8)
    node = reservations.expect("r")["nodeName"]
    assert node == first
    cluster.gang("x", 2, labels=OWNER)
    cluster.expect_bound("x-0", "x-1")
    inside = next(name for name in ("x-0", "x-1") if allocated(cluster, name))
    cluster.delete_pod(inside)
    cluster.pod("by-0")
    cluster.pod("by-1")
    cluster.expect_bound("by-0", "by-1")
    assert node not in {cluster.bound()[name] for name in ("by-0", "by-1")}
    # It is kept for the replacement all the same.
    cluster.pod("other-owner", labels=OWNER)
    cluster.expect_pod("other-owner", "KeptForReplacements")
    cluster.pod("x-2", group="x", labels=OWNER)
    cluster.expect_bound("x-2")
    assert cluster.bound()["x-2"] == node


def test_a_gang_starts_in_its_own_reservation_that_is_used_once(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 8, allocateOnce=True)
    reservations.expect("r")
    cluster.gang("g", 4, gpus=2, labels=OWNER)
    cluster.expect_bound("g-0", "g-1", "g-2", "g-3")
    reservations.expect("r", "Succeeded")


def test_what_a_gang_leaves_of_its_reservation_is_free(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 8, allocateOnce=True)
    reservations.expect("r")
    cluster.pod("waiting", gpus=4)
    cluster.expect_pod("waiting", "InsufficientNodes")
    cluster.gang("g", 2, gpus=2, labels=OWNER)
    cluster.expect_bound("g-0", "g-1", "waiting")
    reservations.expect("r", "Succeeded")


def test_a_gang_starts_around_a_reservation_of_one_member(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(2)
    reservations.create("r", 4, allocateOnce=True, allocatePolicy="Restricted")
    reservations.expect("r")
    cluster.gang("g", 4, gpus=4, labels=OWNER)
    cluster.expect_bound("g-0", "g-1", "g-2", "g-3")
    reservations.expect("r", "Succeeded")


def test_a_gang_of_reservations_is_placed_by_us_and_finished_when_all_are_used(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(2)
    cluster.pod_group("room", 2)
    for name in ("r0", "r1"):
        labels = {"pod-group.scheduling.sigs.k8s.io": "room"}
        reservations.create(name, 8, labels, allocateOnce=True)
    cluster.expect_group("room", "Planned")
    assert cluster.group_message("room") == "2 pods placed on 2 nodes"
    cluster.pod("x-0", labels=OWNER)
    cluster.pod("x-1", labels=OWNER)
    reservations.expect("r0", "Succeeded")
    reservations.expect("r1", "Succeeded")
    cluster.expect(lambda: cluster.get_group("room")["status"]["phase"] == "Finished", "it is over")
    cluster.expect_group("room", "AllBound", "Bound")
