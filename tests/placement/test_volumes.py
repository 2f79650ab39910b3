"""Volumes of a pod: where they can be used, and whose turn it is."""

import pytest
from tests.builders import PodBuilder, make_node, make_pod, select_labels

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.plan import Demand, Plan, Unit
from koord.core.plugins.volumes import StorageClass, Volume, VolumeClaim
from koord.core.pods import Handling
from koord.core.reasons import (
    InsufficientNodes,
    NeedsKubeScheduler,
    NodeRefusal,
    VolumeNotReady,
    VolumeProblem,
)
from koord.core.selectors import SelectorTerm
from koord.core.state import ClusterState

ZONE = "topology.kubernetes.io/zone"
BETA = "failure-domain.beta.kubernetes.io/zone"
IN_A = (SelectorTerm(select_labels(zone="a")),)


def make_cluster() -> ClusterState:
    """Two zones; ``out`` is a node without a zone, ``old`` one with the label of old."""
    state = ClusterState()
    for name, zone in {"a1": "a", "a2": "a", "b1": "b"}.items():
        state.upsert_node(make_node(name).label("zone", zone).label(ZONE, zone).build())
    state.upsert_node(make_node("old").label(BETA, "a").build())
    state.upsert_node(make_node("out").build())
    return state


def bind(state: ClusterState, claim: str, volume: Volume, *, exclusive: bool = False) -> None:
    key = f"default/{claim}"
    state.upsert_claim(VolumeClaim(key, volume.name, is_bound=True, is_exclusive=exclusive))
    state.upsert_volume(volume)


def admitted(state: ClusterState, pod: PodBuilder) -> str:
    snapshot = state.snapshot()
    room = snapshot.room(snapshot.shape_of(pod.build()))
    return " ".join(name for name, row in state.table.live_rows() if room[row])


def run(state: ClusterState, *pods: PodBuilder) -> Plan:
    built = tuple(pod.build() for pod in pods)
    return plan(state.snapshot(), [Unit("g", (Demand("g", built, len(built)),), "g")], Scoring())


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
def test_where_a_bound_volume_can_be_used(volume: Volume, expected: str) -> None:
    state = make_cluster()
    bind(state, "data", volume)
    assert admitted(state, make_pod("p").claims("data")) == expected


def test_all_volumes_of_a_pod_must_be_usable() -> None:
    state = make_cluster()
    bind(state, "data", Volume("v1", IN_A))
    bind(state, "logs", Volume("v2", (SelectorTerm(select_labels(zone="b")),)))
    assert admitted(state, make_pod("p").claims("data", "logs")) == ""
    reason = run(state, make_pod("p").claims("data", "logs")).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert [(one.refusal, one.nodes) for one in reason.refused] == [
        (NodeRefusal.VOLUME_AFFINITY, 5),
    ]


def test_members_with_volumes_of_one_place_are_planned_together() -> None:
    state = make_cluster()
    for at in range(3):
        bind(state, f"data-{at}", Volume(f"v{at}", IN_A))
    pods = [make_pod(f"p-{at}").claims(f"data-{at}") for at in range(3)]
    snapshot = state.snapshot()
    assert len({snapshot.shape_of(pod.build()) for pod in pods}) == 1
    placed = run(state, *pods).placements[0].assignments
    assert {one.node for one in placed} == {"a1", "a2"}


def test_zone_labels_do_not_count_for_ephemeral_volumes() -> None:
    state = make_cluster()
    pod = make_pod("p").claims("p-data", own=True)
    claim = VolumeClaim("default/p-data", "v", is_bound=True, owner="uid-default-p")
    state.upsert_claim(claim)
    state.upsert_volume(Volume("v", zones=((ZONE, ("a",)),)))
    assert admitted(state, pod) == "a1 a2 b1 old out"


def test_one_pod_at_a_time_may_use_an_exclusive_claim() -> None:
    state = make_cluster()
    bind(state, "data", Volume("v"), exclusive=True)
    pods = [make_pod(f"p-{at}").claims("data") for at in range(2)]
    assert run(state, pods[0]).placements
    reason = run(state, *pods).refusals[0].reason
    assert isinstance(reason, InsufficientNodes)
    assert [(one.refusal, one.nodes) for one in reason.refused] == [(NodeRefusal.VOLUME_IN_USE, 5)]
    state.upsert_pod(make_pod("user").claims("data").running("a1").build())
    assert not run(state, pods[0]).placements
    state.remove_pod("uid-default-user")
    assert run(state, pods[0]).placements


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
def test_what_may_be_the_matter_with_a_claim(
    claim: VolumeClaim | None, problem: VolumeProblem
) -> None:
    state = make_cluster()
    state.upsert_storage_class(StorageClass("late", is_delayed=True))
    state.upsert_storage_class(StorageClass("now"))
    if claim is not None:
        state.upsert_claim(claim)
    for pod in (make_pod("p"), make_pod("p").handling(Handling.RELEASE_PINNED)):
        reason = run(state, pod.claims("data")).refusals[0].reason
        volume = "" if claim is None else claim.volume
        assert reason == VolumeNotReady("default/p", "default/data", problem, volume)


def test_an_ephemeral_volume_needs_the_claim_that_was_made_for_it() -> None:
    state = make_cluster()
    bind(state, "p-data", Volume("v"))
    reason = run(state, make_pod("p").claims("p-data", own=True)).refusals[0].reason
    expected = VolumeNotReady("default/p", "default/p-data", VolumeProblem.NOT_FOR_POD, "v")
    assert reason == expected


@pytest.mark.parametrize(
    ("claim", "volume"),
    [(UNBOUND, None), (BOUND, Volume("v", is_in_tree=True))],
)
def test_what_only_kube_scheduler_can_bind(claim: VolumeClaim, volume: Volume | None) -> None:
    state = make_cluster()
    state.upsert_storage_class(StorageClass("late", is_delayed=True))
    state.upsert_claim(claim)
    if volume is not None:
        state.upsert_volume(volume)
    expected = NeedsKubeScheduler("default/p", ("spec.volumes[0].persistentVolumeClaim",))
    assert run(state, make_pod("p").claims("data")).refusals[0].reason == expected
    theirs = make_pod("p").handling(Handling.RELEASE_PINNED).claims("data")
    assert run(state, theirs).placements


def test_nothing_is_required_of_volumes_that_could_not_be_read() -> None:
    state = make_cluster()
    state.volumes.is_known = False
    assert run(state, make_pod("p").claims("data")).placements


def test_claims_volumes_and_classes_may_go() -> None:
    state = make_cluster()
    bind(state, "data", Volume("v", IN_A))
    feed = state.feed()
    feed.drain()
    state.remove_volume("v")
    assert feed.drain().claims == {"default/data"}
    state.upsert_storage_class(StorageClass("late", is_delayed=True))
    state.upsert_claim(UNBOUND)
    state.remove_storage_class("late")
    state.remove_claim("default/data")
    assert feed.drain().claims == {"default/data"}
    state.remove_claim("default/data")
    assert run(state, make_pod("p").claims("data")).refusals
