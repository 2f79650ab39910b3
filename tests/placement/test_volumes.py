"""Volumes of pods: feasible nodes, exclusive claims, and problems of claims."""

import pytest
from tests.builders import PodBuilder, make_node, make_pod, select_labels
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.objects import (
    remove_claim,
    remove_storage_class,
    remove_volume,
    upsert_claim,
    upsert_storage_class,
    upsert_volume,
)

from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.kube_scheduler_reasons import LateClaim, NeedsKubeScheduler
from koord.core.model.plan import Plan
from koord.core.model.pods import Handling
from koord.core.model.selectors import SelectorTerm
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.late_volumes import StorageClass
from koord.core.plugins.volumes import Volume, VolumeClaim, VolumeNotReady, VolumeProblem

ZONE = "topology.kubernetes.io/zone"
BETA = "failure-domain.beta.kubernetes.io/zone"
IN_A = (SelectorTerm(select_labels(zone="a")),)


def make_zones() -> FakeCluster:
    """Two zones; ``out`` is a node without a zone, ``old`` one with the deprecated label."""
    cluster = make_cluster()
    for name, zone in {"a1": "a", "a2": "a", "b1": "b"}.items():
        cluster.nodes(make_node(name).label("zone", zone).label(ZONE, zone))
    cluster.nodes(make_node("old").label(BETA, "a"))
    cluster.nodes(make_node("out"))
    return cluster


def bind(cluster: FakeCluster, claim: str, volume: Volume, *, exclusive: bool = False) -> None:
    key = f"default/{claim}"
    upsert_claim(
        cluster.state, VolumeClaim(key, volume.name, is_bound=True, is_exclusive=exclusive)
    )
    upsert_volume(cluster.state, volume)


def run(cluster: FakeCluster, *pods: PodBuilder) -> Plan:
    return cluster.plan(make_unit("g", pods))


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (Volume("v"), "a1 a2 b1 old out"),
        (Volume("v", IN_A), "a1 a2"),
        (Volume("v", (*IN_A, SelectorTerm(select_labels(zone="b")))), "a1 a2 b1"),
        (Volume("v", ()), ""),
        (Volume("v", zones=((ZONE, ("a", "c")),)), "a1 a2 out"),
        (Volume("v", zones=((BETA, ("a",)),)), "a1 a2 old out"),
        (Volume("v", zones=((ZONE, ("a",)), ("topology.kubernetes.io/region", ("r",)))), "out"),
    ],
)
def test_feasible_nodes_of_a_bound_volume(volume: Volume, expected: str) -> None:
    cluster = make_zones()
    bind(cluster, "data", volume)
    assert cluster.feasible(make_pod("p").claims("data")) == expected


def test_all_volumes_of_a_pod_must_be_available() -> None:
    cluster = make_zones()
    bind(cluster, "data", Volume("v1", IN_A))
    bind(cluster, "logs", Volume("v2", (SelectorTerm(select_labels(zone="b")),)))
    assert cluster.feasible(make_pod("p").claims("data", "logs")) == ""
    reason = run(cluster, make_pod("p").claims("data", "logs")).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert [(one.cause, one.nodes) for one in reason.refused] == [
        (NodeCause.VOLUME_AFFINITY, 5),
    ]


def test_members_with_volumes_in_one_zone_share_a_shape() -> None:
    cluster = make_zones()
    for at in range(3):
        bind(cluster, f"data-{at}", Volume(f"v{at}", IN_A))
    pods = [make_pod(f"p-{at}").claims(f"data-{at}") for at in range(3)]
    cycle = cluster.open_cycle()
    assert len({cycle.shape_of(pod.build()) for pod in pods}) == 1
    placed = run(cluster, *pods).placements[0].assignments
    assert {one.node for one in placed} == {"a1", "a2"}


def test_zone_labels_do_not_count_for_ephemeral_volumes() -> None:
    cluster = make_zones()
    pod = make_pod("p").claims("p-data", own=True)
    claim = VolumeClaim("default/p-data", "v", is_bound=True, owner="uid-default-p")
    upsert_claim(cluster.state, claim)
    upsert_volume(cluster.state, Volume("v", zones=((ZONE, ("a",)),)))
    assert cluster.feasible(pod) == "a1 a2 b1 old out"


def test_exclusive_claim_is_used_by_one_pod() -> None:
    cluster = make_zones()
    bind(cluster, "data", Volume("v"), exclusive=True)
    pods = [make_pod(f"p-{at}").claims("data") for at in range(2)]
    assert run(cluster, pods[0]).placements
    reason = run(cluster, *pods).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert [(one.cause, one.nodes) for one in reason.refused] == [(NodeCause.VOLUME_IN_USE, 5)]
    cluster.pods(make_pod("user").claims("data").running("a1"))
    assert not run(cluster, pods[0]).placements
    cluster.state.remove_pod("uid-default-user")
    assert run(cluster, pods[0]).placements


BOUND = VolumeClaim("default/data", "v", is_bound=True)
UNBOUND = VolumeClaim("default/data", storage_class="late")


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        (None, VolumeProblem.NOT_FOUND),
        (VolumeClaim("default/data", "v", is_lost=True), VolumeProblem.LOST),
        (
            VolumeClaim("default/data", "v", is_bound=True, is_terminating=True),
            VolumeProblem.TERMINATING,
        ),
        (BOUND, VolumeProblem.NO_VOLUME),
        (VolumeClaim("default/data"), VolumeProblem.UNBOUND),
        (VolumeClaim("default/data", storage_class="now"), VolumeProblem.UNBOUND),
        (VolumeClaim("default/data", storage_class="unknown"), VolumeProblem.UNBOUND),
        (VolumeClaim("default/data", "v", storage_class="late"), VolumeProblem.UNBOUND),
    ],
)
def test_problems_of_claims(claim: VolumeClaim | None, problem: VolumeProblem) -> None:
    cluster = make_zones()
    upsert_storage_class(cluster.state, StorageClass("late", is_delayed=True))
    upsert_storage_class(cluster.state, StorageClass("now"))
    if claim is not None:
        upsert_claim(cluster.state, claim)
    for pod in (make_pod("p"), make_pod("p").handling(Handling.RELEASE_PINNED)):
        reason = run(cluster, pod.claims("data")).refusals[0].reason
        volume = "" if claim is None else claim.volume
        assert reason == VolumeNotReady("default/p", "default/data", problem, volume)


def test_ephemeral_volume_needs_its_own_claim() -> None:
    cluster = make_zones()
    bind(cluster, "p-data", Volume("v"))
    reason = run(cluster, make_pod("p").claims("p-data", own=True)).refusals[0].reason
    expected = VolumeNotReady("default/p", "default/p-data", VolumeProblem.NOT_FOR_POD, "v")
    assert reason == expected


@pytest.mark.parametrize(
    ("claim", "volume"),
    [(UNBOUND, None), (BOUND, Volume("v", is_in_tree=True))],
)
def test_claims_that_need_kube_scheduler(claim: VolumeClaim, volume: Volume | None) -> None:
    cluster = make_zones()
    upsert_storage_class(cluster.state, StorageClass("late", is_delayed=True))
    upsert_claim(cluster.state, claim)
    if volume is not None:
        upsert_volume(cluster.state, volume)
    late = () if claim.is_bound else (LateClaim("default/data", "late"),)
    expected = NeedsKubeScheduler("default/p", ("spec.volumes[0].persistentVolumeClaim",), late)
    assert run(cluster, make_pod("p").claims("data")).refusals[0].reason == expected
    theirs = make_pod("p").handling(Handling.RELEASE_PINNED).claims("data")
    assert run(cluster, theirs).placements


def test_unread_volumes_refuse_no_pod() -> None:
    cluster = make_zones()
    cluster.state.volumes.is_known = False
    assert run(cluster, make_pod("p").claims("data")).placements


def test_claims_volumes_and_classes_can_be_removed() -> None:
    cluster = make_zones()
    bind(cluster, "data", Volume("v", IN_A))
    feed = cluster.state.feed()
    feed.drain()
    remove_volume(cluster.state, "v")
    assert feed.drain().claims == {"default/data"}
    upsert_storage_class(cluster.state, StorageClass("late", is_delayed=True))
    upsert_claim(cluster.state, UNBOUND)
    remove_storage_class(cluster.state, "late")
    remove_claim(cluster.state, "default/data")
    assert feed.drain().claims == {"default/data"}
    remove_claim(cluster.state, "default/data")
    assert run(cluster, make_pod("p").claims("data")).refusals
