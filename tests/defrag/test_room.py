"""Where there is room for a shape: what fits, where, within a quota, and what lacks."""

from __future__ import annotations

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cli.test_devices import printed
from tests.cluster import FakeCluster, make_cluster

from koord.answers.encoding import encode
from koord.answers.room import LayerGang, NodesToAdd, RoomQuestion, ShapeRoom, find_room
from koord.cli.room_view import make_room_parts
from koord.core.defrag.shapes import GpuShape
from koord.core.topology.layers import NODE_LAYER, Layer

LAYERS = (
    Layer("Spine", "", ("spine",)), Layer("Block", "Spine", ("block",)), Layer(NODE_LAYER, "Block"),
)  # fmt: skip


def ask(cluster: FakeCluster, pods: int, gpus: int, **question: str) -> ShapeRoom:
    return find_room(cluster.state, RoomQuestion(GpuShape(pods, gpus), **question))


def with_free(*free: int) -> FakeCluster:
    """Make nodes of 8 GPUs with so many of them free."""
    cluster = make_cluster(len(free))
    pods = (
        make_pod(f"p{at}").gpu(8 - left).running(f"n{at}")
        for at, left in enumerate(free)
        if left < 8
    )
    return cluster.pods(*pods)


def test_room_for_some_of_the_pods() -> None:
    room = ask(with_free(8, 8, 8, 3, 7), 4, 8)
    assert (room.fit, room.place) == (3, ())
    assert room.largest_gang == (LayerGang("cluster", 3),)
    assert room.after_nodes == (NodesToAdd("n0", 1),)
    assert room.reason is not None


def test_the_place_is_that_of_the_planner() -> None:
    cluster = with_free(8, 2, 8)
    room = ask(cluster, 2, 8)
    assert [(share.node, share.pods) for share in room.place] == [("n0", 1), ("n2", 1)]
    assert (room.reason, room.after_nodes) == (None, ())


def test_asking_changes_nothing() -> None:
    cluster = with_free(8, 8)
    assert ask(cluster, 2, 8) == ask(cluster, 2, 8)
    assert ask(cluster, 1, 8).fit == 2


@pytest.mark.parametrize("most", [0, 8, 20, 64])
def test_a_quota_lets_some_of_them_start(most: int) -> None:
    cluster = with_free(8, 8, 8, 8)
    cluster.quotas(make_quota("team", max={"nvidia.com/gpu": most}))
    room = ask(cluster, 4, 8, namespace="default", quota="team")
    assert room.in_quota == min(most // 8, 4)
    assert bool(room.place) == (most >= 32)


def test_domains_that_take_all_pods_are_listed_the_narrowest_first() -> None:
    cluster = make_cluster().topology(*LAYERS)
    for at, (spine, block) in enumerate(["aa"] * 2 + ["ab"] * 3 + ["bc"] * 4):
        node = make_node(f"n{at}").gpu(8).label("spine", spine).label("block", block)
        cluster.nodes(node)
    room = ask(cluster, 3, 8)
    assert {largest.layer: largest.pods for largest in room.largest_gang} == {
        "cluster": 9, "Spine": 5, "Block": 4,
    }  # fmt: skip
    assert [(domain.layer, domain.spare) for domain in room.domains] == [
        ("Block", 0), ("Block", 1), ("Spine", 1), ("Spine", 2),
    ]  # fmt: skip


def test_a_kind_of_node_that_is_too_small_is_not_proposed() -> None:
    small = make_node("small").gpu(4)
    room = ask(make_cluster(1).nodes(small), 2, 8)
    assert room.after_nodes == (NodesToAdd("n0", 1),)


def test_the_document_says_whether_it_fits_and_why_not() -> None:
    document = encode(ask(with_free(3), 1, 8))
    assert (document["fits"], document["inQuota"]) == (False, None)
    assert document["reason"]["class"] == "Room"


def test_the_nearest_nodes_are_named_with_what_they_lack() -> None:
    cluster = with_free(8, 3, 7, 0).nodes(make_node("closed").gpu(8).unschedulable())
    near = encode(ask(cluster, 4, 8))["nearest"]
    assert [(each["node"], each["refusal"], each["short"]) for each in near] == [
        ("closed", "NodeUnschedulable", []),
        ("n2", "Insufficient", [{"resource": GPU, "asked": "8", "free": "7"}]),
        ("n1", "Insufficient", [{"resource": GPU, "asked": "8", "free": "3"}]),
        ("n3", "Insufficient", [{"resource": GPU, "asked": "8", "free": "0"}]),
    ]
    assert ask(with_free(8, 8), 2, 8).nearest == ()
    text = printed(make_room_parts(ask(cluster, 4, 8)))
    assert f"n2: {GPU} 8 asked, 7 free" in text
    assert "closed: cordoned" in text
