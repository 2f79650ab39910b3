"""At most so many queues of a quota tree have room reserved, longest-blocked heads first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import FakeCluster

from koord.core.queue.plugin import QueueOptions, Queues

NOW = 1_000_000


def make_waiting(queues: int, **settings: int) -> FakeCluster:
    """Return a busy cluster; the head of the last queue waits for longest."""
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0, **settings}))
    cluster.quotas(make_quota("busy", max={GPU: 99}))
    for at in range(queues):
        owner = make_quota(f"q{at}", min={GPU: 8}, max={GPU: 99})
        cluster.nodes(make_node(f"n{at}").gpu(8)).quotas(owner)
        cluster.pods(make_pod(f"run-{at}").gpu(8).quota("busy").running(f"n{at}"))
    for at in reversed(range(queues)):
        wait(cluster, f"q{at}", NOW - at)
    return cluster


def wait(cluster: FakeCluster, queue: str, now: int) -> None:
    cluster.pods(make_pod(f"head-{queue}").gpu(8).quota(queue).created(now))
    step(cluster, now)


def step(cluster: FakeCluster, now: int) -> list[str]:
    """Plan until nothing is due."""
    cluster.state.advance(float(now))
    placed = cluster.step(float(now))
    while (due := cluster.state.next_due()) is not None and due <= now:
        placed += cluster.step(float(now))
    return placed


def reserved(cluster: FakeCluster) -> list[str]:
    queues = cluster.state.plugin(Queues)
    return sorted(
        queues.queue_of_unit(unit)
        for unit in cluster.queue.pending()
        if queues._find_head(unit.key)[1] is not None
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["q2", "q3", "q4", "q5"]),
        ({"reserve_queues": 1}, ["q5"]),
        ({"reserve_queues": 64}, [f"q{at}" for at in range(6)]),
    ],
)
def test_only_so_many_queues_reserve(settings: dict[str, int], expected: list[str]) -> None:
    assert reserved(make_waiting(6, **settings)) == expected


def test_the_next_head_reserves_as_soon_as_one_has_started_or_is_gone() -> None:
    cluster = make_waiting(4, reserve_queues=2)
    assert reserved(cluster) == ["q2", "q3"]
    cluster.delete_pods("run-3")
    assert step(cluster, NOW + 1) == ["head-q3"]
    assert reserved(cluster) == ["q1", "q2"]
    cluster.delete_pods("head-q2")
    step(cluster, NOW + 2)
    assert reserved(cluster) == ["q0", "q1"]


def test_trees_do_not_count_for_each_other() -> None:
    cluster = make_waiting(2, reserve_queues=1)
    other = make_quota("other", min={GPU: 8}, max={GPU: 99})
    cluster.quotas(replace(other, tree_id="other", total={GPU: 8}))
    wait(cluster, "other", NOW + 5)
    assert reserved(cluster) == ["other", "q1"]
