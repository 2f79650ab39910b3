"""A tenant has one unit's worth of idle room, however many units he makes one after the other."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster
from tests.queue.planned import Job, play_on

from koord.core.queue.plugin import QueueOptions
from koord.core.queue.run_time import QueueHints

NOW = 1_000_000
EVERY = 20


def test_heads_that_follow_each_other_hold_no_more_than_one() -> None:
    settings = {"short_limit": 0, "max_hold": 60, "hold_cool_down": 60}
    play = play_on("ab", **settings).running("R", "1x8", "a", 200, limit=0)
    heads = [Job(f"H{at}", "2x8", 10, at) for at in range(0, 200, EVERY)]
    for at in range(EVERY, 200, EVERY):
        gone = [f"H{at - EVERY}-{number}" for number in range(2)]
        play.events[at] = lambda gone=gone: play.cluster.delete_pods(*gone)
    play.play(*heads, Job("S", "1x8", 10, 2), until=150)
    # S is refused from minute 2 on: for an hour in all, whoever of its user is first by then.
    assert play.starts.get("S", 999) <= 63


def test_what_never_goes_is_no_room_that_is_waited_for() -> None:
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
    cluster.nodes(make_node("n0").gpu(8), make_node("n1").gpu(8))
    stuck = make_pod("stuck").gpu(8).running("n0").terminating().build()
    cluster.pods(replace(stuck, gone_by=float(NOW)))
    cluster.gang("large", 2, gpus=8)
    cluster.pods(make_pod("later").gpu(8).created(5))

    def play(now: int) -> list[str]:
        cluster.state.advance(now)
        placed = cluster.step(now)
        while (due := cluster.state.next_due()) is not None and due <= now:
            placed += cluster.step(now)
        return placed

    assert play(NOW + 1) == []
    assert play(NOW + 599) == []
    assert play(NOW + 660) == ["later"]


def test_whom_a_deleted_head_kept_away_starts() -> None:
    play = play_on("ab", short_limit=0).running("R", "1x8", "a", 200, limit=0)
    play.events[20] = lambda: play.cluster.delete_pods("H-0", "H-1")
    assert play.play(Job("H", "2x8", 10, 0), Job("S", "1x8", 10, 2), until=30) == "H None, S 20"


def test_whom_a_head_kept_away_starts_once_that_fits_no_longer() -> None:
    play = play_on("ab", short_limit=0).running("R", "1x8", "a", 200, limit=0)
    play.events[20] = lambda: play.cluster.state.remove_node("a")
    assert play.play(Job("H", "2x8", 10, 0), Job("S", "1x8", 10, 2), until=30) == "H None, S 20"


def test_room_is_reserved_in_all_that_a_head_asks_for_not_only_in_what_it_lacks() -> None:
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
    cluster.nodes(*(make_node(name).gpu(8).resource("cpu", 64) for name in ("n0", "n1")))
    busy = (
        make_pod("busy").gpu(8).says((("queue", QueueHints(deadline=600)),)).running("n0").build()
    )
    cluster.pods(replace(busy, started=float(NOW)))
    cluster.pod_groups(make_pod_group("default/head", 2))
    head = (make_pod(f"head-{at}").gang("default/head").gpu(8).created(1) for at in range(2))
    cluster.pods(*(pod.resource("cpu", 60) for pod in head))
    # Neither asks for a GPU; one takes the processors that the head waits for.
    cluster.pods(
        make_pod("large").resource("cpu", 8).created(2),
        make_pod("small").resource("cpu", 4).created(3),
    )
    cluster.state.advance(NOW + 1)
    assert cluster.step(NOW + 1) == ["small"]


def test_who_deletes_heads_again_and_again_has_not_all_others_tried_each_time() -> None:
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
    cluster.nodes(make_node("n0").gpu(8), make_node("n1").gpu(8))
    cluster.pods(make_pod("busy").gpu(8).running("n0"))

    def come(at: int) -> None:
        key = f"default/h{at}"
        cluster.pod_groups(make_pod_group(key, 2))
        head = (make_pod(f"h{at}-{number}").gang(key).gpu(8).created(0) for number in range(2))
        cluster.pods(*head)

    come(0)
    cluster.pods(*(make_pod(f"p{at}").gpu(8).created(9) for at in range(300)))
    tried = []
    for at in range(9):
        now = float(NOW + at)
        cluster.state.advance(now)
        count = 0
        while units := cluster.take(now):
            count += len(units)
            cluster.assume(cluster.decide(units))
        tried.append(count)
        come(at + 1)
        cluster.delete_pods(f"h{at}-0", f"h{at}-1")
    assert sum(tried[2:]) < 2 * tried[0]
