"""Who may not start now, whatever room there is: held units, stopped queues, limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster

from koord.core.queue.plugin import QueueOptions
from koord.core.queue.reasons import HeldByOwner, QueueFull, QueueStopped, TooManyRunning
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

GPU = "nvidia.com/gpu"


def make_queue(parent: dict[str, Any] | None = None, **settings: Any) -> FakeCluster:
    """Return a cluster with much room, whose quota ``team`` says this of its queue."""
    return make_cluster(4).quotas(
        make_quota("org", is_parent=True, max={GPU: 99}, queue=parent or {}),
        make_quota("team", parent="org", max={GPU: 99}, queue=settings),
    )


def job(name: str, at: float = 0) -> PodBuilder:
    return make_pod(name).quota("team").gpu(1).created(at)


def test_no_more_units_start_than_may_and_the_next_does_when_one_ends() -> None:
    cluster = make_queue(max_running=2)
    cluster.pods(*(job(f"j{at}", at) for at in range(4)))
    assert cluster.step() == ["j0", "j1"]
    assert cluster.reasons()["j2"] == TooManyRunning("team", "", 2, 2, "maxRunning")
    assert cluster.step() == []
    cluster.delete_pods("j0")
    assert cluster.step() == ["j2"]


def test_a_gang_counts_once_and_its_repair_is_never_refused() -> None:
    cluster = make_queue(max_running=1)
    cluster.pod_groups(make_pod_group("default/g", 2))
    members = [job(f"g-{at}").gang("default/g") for at in range(2)]
    cluster.pods(*members, job("single", 9))
    assert cluster.step() == ["g-0", "g-1"]
    cluster.delete_pods("g-1")
    cluster.pods(job("g-2").gang("default/g"))
    assert cluster.step() == ["g-2"]
    assert isinstance(cluster.reasons()["single"], TooManyRunning)


def test_pods_that_never_had_a_turn_take_none_of_others() -> None:
    """They name their node, or another scheduler: nothing of that costs their owner anything."""
    cluster = make_queue(max_running=2)
    cluster.pods(*(job(f"evil/x{at}").not_ours().running("n0") for at in range(5)))
    cluster.pods(*(job(f"evil/y{at}").running("n0") for at in range(5)))
    cluster.pods(job("one", 1), job("two", 2), job("three", 3))
    assert cluster.step() == ["one", "two"]


def test_a_member_that_never_had_a_turn_gets_its_gang_around_no_limit() -> None:
    for settings, reason in (
        ({"stop": "Hold"}, QueueStopped),
        ({"max_running": 0}, TooManyRunning),
    ):
        cluster = make_queue(**settings)
        cluster.pod_groups(make_pod_group("default/g", 3))
        members = [job(f"g-{at}").gang("default/g") for at in range(2)]
        cluster.pods(*members, job("guard").gang("default/g").not_ours().running("n0"))
        assert cluster.step() == []
        assert {type(cause) for cause in cluster.reasons().values()} == {reason}


def test_limits_of_a_user_are_those_of_a_namespace() -> None:
    cluster = make_queue(max_running_per_user=1)
    cluster.pods(job("a/one", 1), job("a/two", 2), job("b/one", 3))
    assert cluster.step() == ["one", "one"]
    assert cluster.reasons() == {"two": TooManyRunning("team", "a", 1, 1, "maxRunningPerUser")}


def test_settings_are_inherited_and_what_is_nearer_wins() -> None:
    cluster = make_queue(parent={"max_running": 1})
    cluster.pods(job("j0", 0), job("j1", 1))
    assert cluster.step() == ["j0"]
    cluster.quotas(make_quota("team", parent="org", max={GPU: 99}, queue={"max_running": 5}))
    assert cluster.step() == ["j1"]


def test_a_default_holds_where_no_quota_says_anything() -> None:
    cluster = make_cluster(4, queue=QueueOptions({"max_running": 1}))
    cluster.quotas(make_quota("team", max={GPU: 99}))
    cluster.pods(job("j0", 0), job("j1", 1))
    assert cluster.step() == ["j0"]


def test_a_stopped_queue_starts_nothing_and_keeps_what_runs() -> None:
    cluster = make_queue(stop="Hold")
    cluster.pods(job("old").running("n0"), job("new"))
    assert cluster.step() == []
    assert cluster.reason() == QueueStopped("team", "Hold")
    cluster.quotas(make_quota("team", parent="org", max={GPU: 99}))
    assert cluster.step() == ["new"]


def test_a_held_gang_waits_blocks_nobody_and_starts_when_it_is_let_go() -> None:
    cluster = make_queue(max_pending=1)
    held = make_pod_group("default/g", 1).build()
    cluster.pod_groups(replace(held, spec=replace(held.spec, is_held=True)))
    cluster.pods(job("g-0", 0).gang("default/g"), job("next", 1))
    assert cluster.step() == ["next"]
    assert cluster.reason() == HeldByOwner()
    cluster.pod_groups(held)
    assert cluster.step() == ["g-0"]


def test_a_held_gang_is_tried_as_soon_as_it_is_let_go_whatever_else_happens() -> None:
    cluster = make_cluster(1)
    free = make_pod_group("default/g", 1).build()
    cluster.pod_groups(replace(free, spec=replace(free.spec, is_held=True)))
    cluster.pods(make_pod("g-0").gang("default/g").gpu(1))
    assert cluster.step() == []
    cluster.pod_groups(free)
    assert cluster.step() == ["g-0"]


def test_a_held_pod_waits() -> None:
    cluster = make_cluster(1)
    cluster.pods(job("held").says((("queue", QueueHints(is_held=True)),)))
    assert cluster.step() == []
    assert cluster.reason() == HeldByOwner()
    cluster.pods(job("held"))
    assert cluster.step() == ["held"]


def test_more_than_may_wait_are_parked_in_the_order_of_their_time() -> None:
    cluster = make_queue(max_pending=2, max_running=0)
    cluster.pods(*(job(f"j{at}", at) for at in range(4)))
    assert cluster.step() == []
    assert cluster.reasons()["j3"] == QueueFull("team", "", 2, "maxPending")
    assert isinstance(cluster.reasons()["j1"], TooManyRunning)
    cluster.delete_pods("j0")
    assert cluster.step() == []
    assert isinstance(cluster.reasons()["j2"], TooManyRunning)
    assert cluster.reasons()["j3"] == QueueFull("team", "", 2, "maxPending")


def test_a_refused_start_is_not_counted() -> None:
    """The first does not fit any node, so the second is the first that starts."""
    cluster = make_queue(max_running=1)
    cluster.pods(job("large", 0).gpu(9), job("small", 1))
    assert cluster.step() == ["small"]


def test_counts_are_the_same_after_a_restart() -> None:
    cluster = make_queue(max_running=2)
    running = (job(name).released(f"n{at}", "p").bound(f"n{at}") for at, name in enumerate("ab"))
    cluster.pods(*running, job("c"))
    assert cluster.step() == []
    cluster.delete_pods("a")
    assert cluster.step() == ["c"]


def test_the_last_valid_limit_holds_until_a_valid_one_is_written() -> None:
    cluster = make_queue(max_running=1)
    cluster.pods(job("j0", 0), job("j1", 1))
    assert cluster.step() == ["j0"]
    valid = make_quota("team", parent="org", max={GPU: 99}, queue={"max_running": 1})
    cluster.quotas(replace(valid, queue={}, unreadable=(("queue", "-1"),), last_valid=valid))
    assert cluster.step() == []
    cluster.quotas(replace(valid, queue={"max_running": 2}))
    assert cluster.step() == ["j1"]


def test_the_owner_of_a_gang_lets_others_go_first_and_never_passes_them() -> None:
    for most, first in ((None, "rich-0"), (5, "poor"), (50, "rich-0")):
        cluster = make_cluster().nodes(make_node("n0").gpu(8))
        rich = make_pod_group("default/rich", 1).build()
        cluster.pod_groups(replace(rich, spec=replace(rich.spec, most_priority=most)))
        cluster.pods(
            make_pod("rich-0").gang("default/rich").gpu(8).priority(20).created(1),
            make_pod("poor").gpu(8).priority(10).created(2),
        )
        assert cluster.step() == [first], most


def test_what_waits_is_tried_again_when_its_owner_asks_for_it() -> None:
    cluster = make_cluster().nodes(make_node("n0").gpu(8))
    gang = make_pod_group("default/g", 1).build()
    cluster.pod_groups(gang)
    cluster.pods(make_pod("g-0").gang("default/g").gpu(9), make_pod("p").gpu(9))
    assert cluster.step() == []
    assert not len(cluster.queue)
    for text in ("1", "2"):
        cluster.pod_groups(replace(gang, spec=replace(gang.spec, retry=text)))
        cluster.pods(make_pod("p").gpu(9).says((("queue", QueueHints(retry=text)),)))
        cluster.absorb()
        assert len(cluster.queue) == 2
        assert cluster.step() == []
