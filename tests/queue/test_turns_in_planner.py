"""Turns in the planner: positions, and who is ahead."""

from __future__ import annotations

from tests.builders import make_pod, make_quota
from tests.cluster import make_cluster
from tests.queue.planned import turns_of

from koord.core.queue.run_time import QueueHints

GPU = "nvidia.com/gpu"


def test_turns_count_positions_per_queue_and_only_competitors_are_ahead() -> None:
    cluster = make_cluster(1).quotas(
        make_quota("a", max={GPU: 99, "cpu": 99}), make_quota("b", max={GPU: 99, "cpu": 99})
    )
    cluster.pods(
        make_pod("a0").quota("a").gpu(9).created(0),
        make_pod("b0").quota("b").gpu(8).created(1),
        make_pod("b1").quota("b").gpu(8).created(2),
        make_pod("held").quota("b").gpu(8).created(3).says((("queue", QueueHints(is_held=True)),)),
        make_pod("b2").quota("b").gpu(1).created(4),
    )
    turns = turns_of(cluster)
    assert [(turn.queue, turn.position, turn.ahead) for turn in turns] == [
        ("a", 1, 0),
        ("b", 1, 0),
        ("b", 2, 1),
        ("b", 0, 0),
        ("b", 3, 2),
    ]
    assert turns[2].ahead_requests[GPU] == 8
