"""Room for pods of DaemonSets that are not bound yet: little of it, and not for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster

from koord.core.plugins.awaited_daemons import KEPT_SECONDS

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

ASKING = make_pod("p").requests(cpu=2000).build()
URGENT = make_pod("urgent").requests(cpu=2000).priority(10).build()


def make_scene() -> FakeCluster:
    """A node with 8 CPUs, and a daemon of priority 5 that needs two of them."""
    cluster = make_cluster().nodes(make_node("n").cpu(8000).gpu(8))
    return cluster.pods(make_daemon("daemon"))


def make_daemon(name: str, cpu: int = 2000, gpus: int = 0, priority: int = 5) -> Pod:
    pod = make_pod(name).requests(cpu=cpu).priority(priority).created(100.0)
    return (pod.gpu(gpus) if gpus else pod).reserved_node("n").build()


def copies(cluster: FakeCluster, pod: Pod) -> int:
    return cluster.copies(pod)["n"]


def test_room_is_kept_from_the_same_and_lower_priorities() -> None:
    cluster = make_scene()
    assert copies(cluster, ASKING) == 3
    assert copies(cluster, URGENT) == 4


def test_room_is_kept_for_a_short_time() -> None:
    cluster = make_scene()
    state = cluster.state
    assert state.next_due() == 100.0 + KEPT_SECONDS
    assert state.advance(100.0 + KEPT_SECONDS - 1) == set()
    assert copies(cluster, ASKING) == 3
    assert state.advance(100.0 + KEPT_SECONDS) == {"n"}
    assert copies(cluster, ASKING) == 4
    assert state.next_due() is None


def test_a_unit_that_waits_for_the_room_gets_it_then() -> None:
    cluster = make_scene().pods(make_pod("all").requests(cpu=8000))
    assert cluster.step() == []
    assert "room for pods of DaemonSets" in cluster.reasons()["all"].text()
    cluster.state.note_freed(cluster.state.advance(100.0 + KEPT_SECONDS))
    assert len(cluster.step()) == 1


@pytest.mark.parametrize("cpu", [9000, 2000])
def test_no_devices_are_kept_nor_anything_for_what_never_fits(cpu: int) -> None:
    cluster = make_scene()
    cluster.pods(make_daemon("giant", cpu, gpus=8 if cpu < 8000 else 0))
    asking = make_pod("gpus").gpu(8).build()
    assert copies(cluster, asking) == 1
    assert copies(cluster, ASKING) == (3 if cpu > 8000 else 2)


def test_a_bound_daemon_uses_its_room_and_one_that_is_gone_frees_it() -> None:
    cluster = make_scene()
    feed = cluster.state.feed()
    feed.drain()
    cluster.pods(make_pod("daemon").requests(cpu=2000).priority(5).not_ours().running("n"))
    assert (copies(cluster, ASKING), copies(cluster, URGENT)) == (3, 3)
    assert not feed.drain().freed
    cluster.pods(make_daemon("other"))
    assert copies(cluster, ASKING) == 2
    cluster.delete_pods("other")
    assert copies(cluster, ASKING) == 3
    assert feed.drain().freed == {"n"}
