"""Nodes that rejected pods are avoided by pods like those, for a while that doubles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster
from tests.core.test_holds import A, Scene, started
from tests.core.test_holds import waiting as make_waiting

from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.pods import Pod, PodPhase
from koord.core.plugins import rejections

if TYPE_CHECKING:
    import pytest

NOW = 1_000_000.0


def rejected(name: str, node: str = "n0", gpus: int = 8, namespace: str = "default") -> Pod:
    pod = make_pod(name).gpu(gpus).created(NOW - 50).released(node, "p", "", 1, 1).bound(node)
    built = pod.phase(PodPhase.FAILED).build()
    return replace(built, rejection="OutOfcpu", namespace=namespace, uid=f"{namespace}-{name}")


def make_scene(nodes: int = 1) -> FakeCluster:
    cluster = make_cluster(nodes)
    cluster.state.advance(NOW)
    return cluster


def is_open(cluster: FakeCluster, now: float, gpus: int = 8, namespace: str = "default") -> bool:
    cluster.state.advance(now)
    pod = replace(make_pod("asks").gpu(gpus).build(), namespace=namespace)
    return bool(cluster.copies(pod)["n0"])


def test_back_off_doubles_up_to_five_minutes() -> None:
    cluster, now = make_scene(), NOW
    for at, seconds in enumerate((1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300)):
        cluster.pods(rejected(f"p-{at}"))
        assert not is_open(cluster, now)
        assert cluster.state.next_due() == now + seconds
        assert not is_open(cluster, now + seconds - 0.1)
        now += seconds
        assert cluster.state.advance(now) == {"n0"}, "pods that wait for it are tried again"
        assert is_open(cluster, now)
    assert cluster.state.next_due() is None


def test_back_off_starts_anew_after_a_quiet_time() -> None:
    cluster = make_scene()
    cluster.pods(rejected("a"), rejected("b"))
    assert not is_open(cluster, NOW)
    assert is_open(cluster, NOW + rejections.FORGOTTEN_SECONDS + 5)
    cluster.pods(rejected("c"))
    cluster.state.advance(NOW + 700)
    assert cluster.state.next_due() == NOW + 701


def test_only_pods_of_that_shape_and_namespace_avoid_the_node() -> None:
    cluster = make_scene()
    cluster.pods(rejected("a"))
    assert not is_open(cluster, NOW)
    assert is_open(cluster, NOW, gpus=4)
    assert is_open(cluster, NOW, namespace="other")


def test_change_of_the_node_ends_the_back_off_and_a_heartbeat_does_not() -> None:
    cluster = make_scene()
    cluster.pods(rejected("a"))
    node = make_node("n0").gpu(8).build()
    cluster.nodes(replace(node, resource_version="2"))
    assert not is_open(cluster, NOW)
    cluster.nodes(make_node("n0").gpu(8).label("mended", "yes").build())
    assert is_open(cluster, NOW)


def test_one_rejection_counts_once() -> None:
    cluster = make_scene()
    pod = rejected("a")
    cluster.pods(pod, replace(pod, priority=5), replace(pod, quota="other"))
    cluster.state.advance(NOW)
    assert cluster.state.next_due() == NOW + 1


def test_pods_that_were_not_placed_by_us_block_nothing() -> None:
    """A tenant that names a node itself would make kubelets reject as many pods as it likes."""
    cluster = make_scene()
    cluster.pods(replace(rejected("a"), recorded=None))
    assert is_open(cluster, NOW)


def test_after_a_restart_failed_pods_count_from_their_own_time() -> None:
    cluster = make_cluster(2)
    recent = replace(rejected("recent"), started=NOW - 0.5)
    cluster.pods(recent, rejected("old", "n1"))
    assert not is_open(cluster, NOW)
    assert cluster.state.next_due() == NOW + 0.5
    assert cluster.copies(make_pod("asks").gpu(8))["n1"] == 1


def test_memory_is_bounded_per_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "MOST_PER_NAMESPACE", 3)
    cluster = make_scene()
    cluster.pods(rejected("mine", namespace="other"))
    cluster.pods(*(rejected(f"p-{at}", gpus=at) for at in range(1, 8)))
    assert not is_open(cluster, NOW, namespace="other"), "others are not forgotten for that"
    assert is_open(cluster, NOW, gpus=1)
    assert not is_open(cluster, NOW, gpus=7)
    assert sum(map(len, cluster.state.plugin(rejections.Rejections)._backoffs.values())) == 4


def test_refusal_says_how_often_and_when_it_is_tried_again() -> None:
    cluster = make_scene()
    cluster.pods(rejected("a"), rejected("b"), make_pod("c").gpu(8).build())
    cluster.state.advance(NOW)
    assert cluster.step() == []
    reason = cluster.reason()
    assert isinstance(reason, InsufficientNodes)
    assert "The node rejected such pods 2 times, tried again in 3 s" in reason.text()
    cluster.state.note_freed(cluster.state.advance(NOW + 2))
    assert cluster.step() == ["c"]


def test_kept_room_moves_to_another_node() -> None:
    scene = Scene(3, [started("a-0", "n0"), started("a-1", "n1")], [make_pod_group(A, 2).build()])
    scene.state.advance(NOW)
    lost = replace(started("a-1", "n1"), phase=PodPhase.FAILED)
    scene.put(replace(lost, rejection="UnexpectedAdmissionError"))
    scene.state.advance(NOW)
    others = [make_waiting(f"other-{at}", gpus=7) for at in range(2)]
    outcome = scene.plan(*map(unit_of, others))
    assert [one.node for p in outcome.placements for one in p.assignments] == ["n1"]
    assert scene.holds.nodes_for_replacements() == {A: ("n2",)}
    scene.put(make_waiting("a-2", A))
    (placed,) = scene.plan(*scene.units(A)).placements
    assert placed.assignments[0].node == "n2"
