"""What a plan costs where many wait: no more than where few do. Counted in calls, not in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.work import count_calls

from koord.core.queue.plugin import QueueOptions
from koord.core.queue.reasons import BehindHead
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from collections.abc import Callable

GPU = "nvidia.com/gpu"
NOW = 1_000_000_000
FEW, MANY = 20, 120
SIZE = 7
"""Members of a gang; each wants a whole node, and on each something runs."""


def make_waiting(count: int, *, running: int = 8, has_quotas: bool = False) -> FakeCluster:
    """Return nodes on which pods run that end one after the other; gangs wait for all of them."""
    values = {"policy": "Backfill", "protect_after": 0, "reserve_depth": 4, "max_hold": 10**6}
    cluster = make_cluster(8, queue=QueueOptions(values))
    if has_quotas:
        cluster.quotas(
            *(make_quota(name, max={GPU: 999, "memory": 1 << 60}) for name in ("team", "others"))
        )
    cluster.state.advance(float(NOW))
    for at in range(running):
        pod = make_pod(f"r{at}").gpu(at < 8).requests(memory=1 + at).quota("team")
        built = pod.says((("queue", QueueHints(deadline=6000 - at)),)).running(f"n{at % 8}").build()
        cluster.pods(replace(built, started=float(NOW)))
    for at in range(count):
        add_gang(cluster, f"w{at}", at)
    settle(cluster)
    assert len(cluster.queue.blocked) == count
    return cluster


def add_gang(cluster: FakeCluster, name: str, at: int) -> None:
    cluster.pod_groups(make_pod_group(f"default/{name}", SIZE))
    for member in range(SIZE):
        pod = make_pod(f"{name}-{member}").gpu(8).quota("team").created(NOW - 10_000 + at)
        cluster.pods(pod.gang(f"default/{name}"))


def settle(cluster: FakeCluster) -> list[str]:
    placed = []
    for _ in range(100):
        units = cluster.take(float(NOW), 256)
        if not units:
            return placed
        placed += cluster.assume(cluster.decide(units))
    raise AssertionError("it never ends")


def one_starts(cluster: FakeCluster) -> None:
    cluster.pods(make_pod("one").requests(cpu=0, memory=1).quota("others").created(NOW))
    assert settle(cluster) == ["one"]


def one_waits(cluster: FakeCluster) -> None:
    cluster.pods(make_pod("one").gpu(8).quota("others").created(NOW))
    assert settle(cluster) == []


def another_waits(cluster: FakeCluster) -> None:
    add_gang(cluster, "one", 10_000)
    assert settle(cluster) == []


def one_is_held_and_released(cluster: FakeCluster) -> None:
    """The head for which room is reserved: whoever gave way to it could start."""
    for is_held in (True, False) * 3:
        says = (("queue", QueueHints(is_held=is_held)),)
        cluster.pods(replace(cluster.pod("w0-0"), extensions=says))
        assert settle(cluster) == []


@pytest.mark.parametrize(
    "happens", [one_starts, one_waits, another_waits, one_is_held_and_released]
)
def test_a_plan_costs_the_same_however_many_wait(happens: Callable[[FakeCluster], None]) -> None:
    happens(make_waiting(FEW))  # what is kept for good, such as caches of types
    few, many = make_waiting(FEW), make_waiting(MANY)
    assert count_calls(lambda: happens(many)) <= 1.1 * count_calls(lambda: happens(few))


def test_those_behind_a_head_are_not_tried_as_others_come_and_start() -> None:
    def make(count: int) -> FakeCluster:
        values = {"policy": "Strict", "protect_after": 0, "max_hold": 10**6}
        cluster = make_cluster(8, queue=QueueOptions(values))
        cluster.quotas(*(make_quota(name, max={GPU: 999}) for name in ("team", "others")))
        cluster.state.advance(float(NOW))
        cluster.pods(
            *(make_pod(f"r{at}").gpu(1).quota("team").running(f"n{at}") for at in range(8))
        )
        add_gang(cluster, "head", 0)
        behind = (make_pod(f"b{at}").gpu(1).quota("team").created(NOW) for at in range(count))
        cluster.pods(*behind)
        settle(cluster)
        assert sum(isinstance(each, BehindHead) for each in cluster.reasons().values()) == count
        return cluster

    one_starts(make(FEW))
    costs = [count_calls(lambda each=each: one_starts(each)) for each in (make(FEW), make(MANY))]  # type: ignore[misc]
    assert costs[1] - costs[0] < 100 * (MANY - FEW)


def test_those_that_are_deleted_are_forgotten_once() -> None:
    cluster = make_waiting(FEW)
    cluster.delete_pods(*(f"w{at}-{member}" for at in range(FEW - 4) for member in range(SIZE)))
    another_waits(cluster)
    assert len(cluster.queue.blocked) == 5
    few, many = make_waiting(FEW), make_waiting(MANY)
    for each, count in ((few, FEW), (many, MANY)):
        each.delete_pods(*(f"w{at}-{member}" for at in range(count - 8) for member in range(SIZE)))
        one_waits(each)
    costs = [count_calls(lambda each=each: another_waits(each)) for each in (few, many)]  # type: ignore[misc]
    assert costs[1] <= 1.1 * costs[0]


def test_quotas_at_later_times_are_charged_at_once() -> None:
    """Beside reserved room a unit costs little for each pod that ends before."""
    few, many = (make_waiting(8, running=each, has_quotas=True) for each in (8, 56))
    costs = [count_calls(lambda each=each: another_waits(each)) for each in (few, many)]  # type: ignore[misc]
    assert costs[1] - costs[0] < 60 * (56 - 8)


@pytest.mark.parametrize("policy", ["Backfill", "BestEffort"])
def test_turns_cost_little_where_nobody_waits(policy: str) -> None:
    """All of one queue start: no turn depends on who has started before."""

    def make(**options: object) -> FakeCluster:
        cluster = make_cluster(32, **options)
        return cluster.pods(*(make_pod(f"p{at}").gpu(1).created(NOW + at) for at in range(200)))

    clusters = [make(queue=QueueOptions({"policy": policy})), make()]
    settle(make())
    costs = [count_calls(lambda each=each: settle(each)) for each in clusters]  # type: ignore[misc]
    assert costs[0] < 1.35 * costs[1]
