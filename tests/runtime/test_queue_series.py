"""Series of queues: what idles, what estimates are worth, who uses a queue, what looking costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import SCORING, FakeCluster

from koord.controllers.queue_looks import QueueLooks
from koord.core.model.pods import PodPhase
from koord.core.queue.plugin import QueueOptions
from koord.core.queue.run_time import QueueHints
from koord.runtime.queue_series import watch_queues

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = 1_000_000


def make_series(cluster: FakeCluster) -> CollectorRegistry:
    registry = CollectorRegistry()
    looks = QueueLooks(
        cluster.state,
        cluster.queue,
        SCORING,
        lambda: cluster.state.now,
        lambda: True,
        lambda: False,
    )
    for collector in watch_queues(looks, registry):
        registry.register(collector)
    return registry


def step(cluster: FakeCluster, at: int) -> None:
    cluster.state.advance(float(NOW + at))
    cluster.step(float(NOW + at))


def values(registry: CollectorRegistry, name: str, *labels: str) -> Mapping[tuple[str, ...], float]:
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_reserved_room_that_others_were_refused_for_is_counted() -> None:
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
    cluster.nodes(make_node("n0").gpu(8).cpu(64_000), make_node("n1").gpu(8).cpu(64_000))
    registry = make_series(cluster)
    run = make_pod("run").gpu(8).running("n0").build()
    says = (("queue", QueueHints(deadline=1000)),)
    cluster.pods(replace(run, started=float(NOW), extensions=says))
    cluster.gang("large", 2)
    step(cluster, 0)
    cluster.pods(make_pod("later").gpu(8).created(NOW + 1))
    step(cluster, 1)
    name = "koord_queue_held_idle_resource_seconds_total"
    assert values(registry, name) == {}
    cluster.pods(make_pod("last").gpu(8).created(NOW + 2))
    step(cluster, 31)
    assert values(registry, name, "tree", "resource") == {("", GPU): 8 * 30}
    assert values(registry, "koord_queue_shadow_seconds_total")[()] > 0


def test_what_ends_is_compared_with_what_was_expected() -> None:
    cluster = FakeCluster(queue=QueueOptions({"max_running": 9}))
    cluster.nodes(make_node("n0").gpu(8))
    registry = make_series(cluster)
    step(cluster, 0)
    for name, began, phase in (("old", -100, PodPhase.SUCCEEDED), ("new", 0, PodPhase.RUNNING)):
        pod = make_pod(name).gpu(1).running("n0").build()
        says = (("queue", QueueHints(deadline=100)),)
        times = {"started": float(NOW + began), "finished": float(NOW - 50)}
        cluster.pods(replace(pod, extensions=says, phase=phase, **times))
    step(cluster, 1)
    pod = cluster.pod("new")
    cluster.pods(replace(pod, phase=PodPhase.SUCCEEDED, finished=float(NOW + 60)))
    step(cluster, 61)
    assert values(registry, "koord_queue_estimate_ratio_sum", "level") == {("Declared",): 0.6}
    assert values(registry, "koord_queue_estimate_ratio_count", "level") == {("Declared",): 1}


def test_users_are_ranked_without_their_names() -> None:
    cluster = FakeCluster(queue=QueueOptions({"max_running": 99}))
    cluster.nodes(make_node("n0").gpu(99)).quotas(make_quota("team", max={GPU: 99}))
    registry = make_series(cluster)
    for number in range(12):
        pod = make_pod(f"p{number}").gpu(number + 1).quota("team").running("n0").build()
        cluster.pods(replace(pod, namespace=f"user-{number}", started=float(NOW - 10_000)))
    step(cluster, 0)
    shares = values(registry, "koord_queue_user_share", "queue", "rank")
    assert shares.keys() == {("team", str(rank)) for rank in range(1, 11)}
    assert shares["team", "1"] == 12 / 78
    assert shares["team", "10"] == 3 / 78
