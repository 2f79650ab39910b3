"""What users of other queues reported, played on the planner. A failure there is a minute here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_quota
from tests.queue.planned import GPU, MINUTE, Job, Play, play_on

from koord.core.model.pods import PodPhase
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from koord.core.model.pods import Pod


def change(play: Play, name: str, **values: object) -> None:
    """Have an observed pod be another one by now."""
    pod: Pod = play.cluster.pod(name)
    play.cluster.pods(replace(pod, **values))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["BestEffort", "Backfill"])
def test_jobs_without_gpus_do_not_wait_for_gpus(policy: str) -> None:
    """Kueue 2270: three jobs wait for GPUs; those behind them want none, or one that is free."""
    play = play_on("ab", policy=policy).running("R", "1x7", "a", 50)
    large = [Job(name, "2x8", 10, 0) for name in "ABC"]
    small = [Job("E", "1x0", 20, 1), Job("F", "1x0", 20, 2), Job("G", "1x1", 20, 3)]
    starts = play.play(*large, *small)
    assert starts == "A 50, B 60, C 70, E 1, F 2, G 3"


def test_a_lower_top_job_does_not_postpone_the_room_of_a_higher_one() -> None:
    """PBS, 533: each queue has top jobs with room reserved, ordered by what their users used."""
    play = play_on("abc", reserve_depth=4, user_fairness="Decayed")
    play.cluster.quotas(*(make_quota(name, max={GPU: 999}) for name in ("high", "low")))
    for node in "abc":
        play.running(f"R{node}", "1x8", node, 30, quota="low", user="old")
    high = Job("H", "3x8", 20, 0, quota="high", user="u")
    low = [Job(f"L{at}", "2x8", 100, 1 + at, quota="low", user="v") for at in range(3)]
    assert play.play(high, *low, until=60).startswith("H 30, L0 50")


def test_small_jobs_of_a_user_do_not_eat_the_turn_of_his_large_one() -> None:
    """PBS, strict order with shares: what starts beside a large job counts against its user."""
    play = play_on("ab", user_fairness="Decayed", age_tiers=4, age_step=30)
    own = [Job(f"u{at}", "1x8", 10, 5 * at, user="u") for at in range(12)]
    other = [Job(f"v{at}", "1x8", 10, 5 * at + 2, user="v") for at in range(12)]
    large = Job("L", "2x8", 10, 1, user="u")
    play.play(large, *own, *other, until=60)
    assert play.starts["L"] <= 40


def test_a_reserved_node_that_is_lost_is_given_up() -> None:
    """YuniKorn 3092: a reservation kept its node for ever, and others away from it."""
    play = play_on("abc").running("R1", "1x8", "a", 30).running("R2", "1x8", "b", 40)
    play.running("R3", "1x8", "c", 100)

    def cordon() -> None:
        play.cluster.state.remove_node("b")

    play.events[10] = cordon
    starts = play.play(Job("H", "2x8", 10, 0), Job("S", "1x8", 60, 31))
    assert starts == "H 100, S 31"


def test_a_job_that_is_changed_keeps_its_place() -> None:
    """Flux 612: whoever changed a waiting job found it at the end of the queue."""
    play = play_on("a").running("R", "1x8", "a", 30)
    shorter = (("queue", QueueHints(deadline=5 * MINUTE)),)
    play.events[10] = lambda: change(play, "first-0", extensions=shorter)
    starts = play.play(Job("first", "1x8", 10, 0, limit=20), Job("second", "1x8", 10, 1))
    assert starts == "first 30, second 40"


@pytest.mark.parametrize("policy", ["Strict", "Backfill", "BestEffort"])
def test_a_held_job_at_the_head_keeps_nobody(policy: str) -> None:
    """Flux 3428: a held job stood first, and nobody asked for those below it."""
    play = play_on("a", policy=policy)
    assert play.play(Job("J", "1x8", 9, 0, is_held=True), Job("S", "1x8", 9, 1), until=5) == (
        "J None, S 1"
    )


def test_a_failed_pod_gives_its_quota_back_at_once() -> None:
    """Kueue 13482: what had failed for good kept its part of the quota."""
    play = play_on("ab")
    play.cluster.quotas(make_quota("small", max={GPU: 8}))
    play.events[5] = lambda: change(play, "fails-0", phase=PodPhase.FAILED)
    jobs = (Job("fails", "1x8", 90, 0, quota="small"), Job("next", "1x8", 9, 1, quota="small"))
    assert play.play(*jobs, until=10) == "fails 0, next 5"


@pytest.mark.parametrize("policy", ["Strict", "Backfill", "BestEffort"])
def test_a_gang_that_is_too_large_keeps_nobody(policy: str) -> None:
    """Volcano 2083: pods of gangs that were not complete waited on nodes that others wanted."""
    play = play_on("ab", policy=policy)
    assert play.play(Job("large", "3x8", 9, 0), Job("fits", "2x8", 9, 1), until=5) == (
        "large None, fits 1"
    )


def test_of_two_queues_that_want_more_than_their_part_one_goes_on() -> None:
    """Volcano 3725: one job ran, it was deleted, and the two that waited did so for ever."""
    play = play_on("a")
    quotas = (make_quota(name, min={GPU: 4}, max={GPU: 8}) for name in ("one", "two"))
    play.cluster.quotas(*quotas)
    jobs = [Job(f"one{at}", "1x5", 50, at, quota="one") for at in (0, 1)]
    other = Job("other", "1x5", 50, 2, quota="two")
    play.events[10] = lambda: (play.cluster.delete_pods("one0-0"), play.ends.pop("one0"))
    play.play(*jobs, other, until=90)
    assert play.starts["one0"] == 0
    assert sorted((play.starts["one1"], play.starts["other"])) == [10, 60]


@pytest.mark.parametrize(("fairness", "start"), [("None", 50), ("Decayed", 10)])
def test_many_jobs_of_one_user_go_before_one_of_another_if_users_do_not_count(
    fairness: str, start: int
) -> None:
    """PBS, 1403: one user submitted many jobs, and the single job of another waited for all."""
    play = play_on("a", user_fairness=fairness)
    many = [Job(f"y{at}", "1x8", 10, 0, user="y") for at in range(5)]
    play.play(Job("x", "1x8", 10, 1, user="x"), *many, until=60)
    assert play.starts["x"] == start
