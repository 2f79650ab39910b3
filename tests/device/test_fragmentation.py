"""How much of what is free lies apart: arithmetic, and what of a node counts as free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.device.test_plugin import gpu_cluster, part, settle, whole

from koord.answers.encoding import encode
from koord.answers.fragmentation import ModelFragmentation, view_fragmentation
from koord.core.device.fragmentation import measure_losses
from koord.core.model.device_names import NVIDIA_GPU

if TYPE_CHECKING:
    from tests.builders import NodeBuilder
    from tests.cluster import FakeCluster

CARDS = st.integers(0, 16)


def only(cluster: FakeCluster) -> ModelFragmentation:
    (model,) = view_fragmentation(cluster.state)
    return model


def test_losses_of_a_worked_example() -> None:
    found = [
        (loss.size, loss.placeable, loss.ideal, loss.lost) for loss in measure_losses([3, 3, 3, 7])
    ]
    assert found == [(1, 16, 16, 0), (2, 6, 8, 4), (4, 1, 4, 12), (8, 0, 2, 16)]


@given(st.lists(CARDS, max_size=8))
def test_no_more_is_lost_than_is_free_and_nothing_of_single_gpus(free: list[int]) -> None:
    losses = measure_losses(free)
    assert all(0 <= loss.lost <= sum(free) for loss in losses)
    assert losses[0].lost == 0


@given(CARDS, CARDS, st.lists(CARDS, max_size=6))
def test_two_nodes_in_one_lose_no_more(one: int, other: int, rest: list[int]) -> None:
    apart, together = measure_losses([one, other, *rest]), measure_losses([one + other, *rest])
    assert all(after.lost <= before.lost for before, after in zip(apart, together, strict=True))


def test_gpus_of_pods_are_used_and_the_others_free() -> None:
    found = only(make_cluster(2).pods(make_pod("a").gpu(3).running("n0")))
    assert (found.model, found.nodes, found.total, found.used, found.free) == (
        NVIDIA_GPU, 2, 16, 3, 13,
    )  # fmt: skip
    assert found.free_by_node == {5: 1, 8: 1}


def test_a_model_is_named_by_the_label_of_its_nodes() -> None:
    nodes = [
        make_node("a").gpu(8).label("nvidia.com/gpu.product", "H100"),
        make_node("b").gpu(4).label("node.koordinator.sh/gpu-model", "L20"),
    ]
    found = view_fragmentation(make_cluster().nodes(*nodes).state)
    assert [(each.model, each.free) for each in found] == [("H100", 8), ("L20", 4)]


@pytest.mark.parametrize(
    ("node", "stranded"),
    [
        (make_node("n").gpu(8).unschedulable(), {"cordoned": 8}),
        (make_node("n").gpu(8).taint("team", "a"), {"tainted": 8}),
        (make_node("n").gpu(8).taint("nvidia.com/gpu"), {}),
        (make_node("n").gpu(8).cpu(8000), {"cpu": 5}),
        (make_node("n").gpu(8).pods(0), {"pods": 8}),
    ],
)
def test_gpus_that_no_pod_can_take_are_stranded(
    node: NodeBuilder, stranded: dict[str, int]
) -> None:
    """The usual pod of the cluster takes 2.5 CPUs for each GPU."""
    usual = make_pod("usual").gpu(2).requests(cpu=5000).running("full")
    full = make_node("full").gpu(2).cpu(64000)
    found = only(make_cluster().nodes(full, node).pods(usual))
    assert found.stranded == stranded
    assert found.free == 8 - sum(stranded.values())


def test_of_a_node_that_is_down_nothing_is_free() -> None:
    node = make_node("n").gpu(8).taint("node.kubernetes.io/unreachable", "", "NoExecute")
    found = only(make_cluster().nodes(node).pods(make_pod("a").gpu(3).running("n")))
    assert (found.total, found.down, found.used, found.free) == (8, 8, 0, 0)


def test_a_shared_gpu_is_used() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a", 2))
    settle(cluster, part("b", 30))
    found = only(cluster)
    assert (found.total, found.used, found.shared, found.free) == (8, 3, 1, 5)


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_every_gpu_is_in_one_state(nodes: list[tuple[int, bool, bool]]) -> None:
    cluster = make_cluster()
    for at, (taken, is_cordoned, is_down) in enumerate(nodes):
        node = make_node(f"n{at}").gpu(8)
        node = node.unschedulable() if is_cordoned else node
        node = node.taint("node.kubernetes.io/not-ready") if is_down else node
        cluster.nodes(node).pods(make_pod(f"p{at}").gpu(taken).running(f"n{at}"))
    found = only(cluster)
    states = (found.used, found.held, found.free, found.broken, found.down)
    assert sum(states) + sum(found.stranded.values()) == found.total == 8 * len(nodes)


def test_a_size_says_in_documents_what_is_lost() -> None:
    (document,) = encode(view_fragmentation(make_cluster(1).state))
    assert document["sizes"][3] == {"size": 8, "placeable": 1, "ideal": 1, "lost": 0}
