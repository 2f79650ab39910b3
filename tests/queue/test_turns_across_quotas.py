"""Turns between quotas, users and ages in the planner: worked examples 9, 9b, 10, and more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod, make_quota
from tests.cluster import make_cluster
from tests.queue.planned import GPU, MINUTE, NOW, Job, Play, play_on, turns_of

from koord.core.model.gangs import QueueMemory
from koord.core.queue.plugin import QueueOptions
from koord.core.queue.usage import Decay
from koord.core.queue.users import UseOfUsers
from koord.core.quota.model import QuotaOptions


def borrowed(**settings: Any) -> Play:
    """Return three nodes that are lent: what is guaranteed is 16 to P and 8 to Q."""
    play = play_on("abc", **settings)
    play.cluster.quotas(
        make_quota("team", max={GPU: 24}),
        make_quota("p", min={GPU: 16}, max={GPU: 16}),
        make_quota("q", min={GPU: 8}, max={GPU: 8}),
    )
    for node, end in {"a": 5, "b": 10, "c": 15}.items():
        play.running(node.upper(), "1x8", node, end)
    return play


P_JOBS = [Job(f"p{at}", "1x4", 100, 0, quota="p") for at in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({}, "p1 5, p2 10, p3 10, p4 15, q1 5, q2 15"),
        ({"across_quotas": "Time"}, "p1 5, p2 5, p3 10, p4 10, q1 15, q2 15"),
    ],
)
def test_9_turns_between_quotas(settings: dict[str, Any], starts: str) -> None:
    q_jobs = [Job(f"q{at}", "1x4", 100, 1, quota="q") for at in (1, 2)]
    assert borrowed(protect_after=30, **settings).play(*P_JOBS, *q_jobs) == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({}, "p1 5, p2 5, p3 15, p4 15, g 10"),
        ({"across_quotas": "Time"}, "p1 5, p2 5, p3 10, p4 10, g 15"),
    ],
)
def test_9b_a_gang_is_not_lost_among_small_ones(settings: dict[str, Any], starts: str) -> None:
    assert borrowed(**settings).play(*P_JOBS, Job("g", "1x8", 100, 1, quota="q")) == starts


def two_heads() -> Play:
    """H1 is within its guarantee at 30 only, H2 at 20 and at 30; each of them fits at 20 alone."""
    play = play_on("abcdef", quota=QuotaOptions(limits_by_share=False))
    play.cluster.quotas(
        *(
            make_quota(name, min={GPU: least}, max={GPU: 48})
            for name, least in zip("pqv", (24, 24, 0), strict=True)
        )
    )
    for name, node, end, quota in (
        ("r1", "a", 30, "p"),
        ("r2", "b", 20, "q"),
        ("r3", "c", 20, "v"),
        ("r4", "d", 30, "v"),
    ):
        play.running(name, "1x8", node, end, quota=quota)
    for minute in range(4, 12):
        play.running(f"e{minute}", "1x1", "e", minute, quota="v")
    return play


def test_who_comes_first_does_not_change_with_each_round() -> None:
    play, promised = two_heads(), list[tuple[int, ...]]()

    def note() -> None:
        reserved = {turn.queue: turn.reservation for turn in turns_of(play.cluster)}
        starts = (reserved[name] for name in "pq")
        promised.append(tuple(round((one.start - NOW) / MINUTE) if one else -1 for one in starts))

    play.events = dict.fromkeys(range(3, 15), note)
    jobs = [Job("h1", "3x8", 50, 0, quota="p"), Job("h2", "3x8", 50, 1, quota="q")]
    jobs += [Job(f"s{at}", "1x8", 90, 2 + at, quota="v") for at in range(6)]
    made = play.play(*jobs)
    assert set(promised) == {(30, 20)}
    assert "h1 30, h2 20" in made


@pytest.mark.parametrize(
    ("fairness", "starts"),
    [("Decayed", "v1 45, u1 35, w1 25"), ("None", "v1 25, u1 35, w1 45")],
)
def test_10_users_with_a_half_life(
    fairness: str, starts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decay = Decay(5 * MINUTE, 10 * MINUTE)
    monkeypatch.setattr("koord.core.queue.memory.UseOfUsers", lambda: UseOfUsers(decay))
    play = play_on("a", user_fairness=fairness)
    play.play(Job("u0", "1x8", 15, 0, user="u"), Job("v0", "1x8", 10, 15, user="v"), until=16)
    jobs = [Job(f"{user}1", "1x8", 10, at, user=user) for at, user in enumerate("vuw", 16)]
    for job in jobs:
        play.jobs[job.name] = job
    for minute in range(16, 46):
        play.step(minute)
    assert ", ".join(f"{job.name} {play.starts.get(job.name)}" for job in jobs) == starts


NEWCOMERS = [Job(f"n{at}", "1x8", 10, 100 + 10 * at, user=f"n{at}") for at in range(6)]


@pytest.mark.parametrize(("tiers", "start"), [(0, 160), (4, 130)])
def test_who_has_used_much_is_not_passed_by_newcomers_for_ever(tiers: int, start: int) -> None:
    play = play_on("a", policy="BestEffort", user_fairness="Decayed", age_step=25, age_tiers=tiers)
    made = play.play(
        Job("h0", "1x8", 100, 0, user="h"), Job("h1", "1x8", 10, 99, user="h"), *NEWCOMERS
    )
    assert f"h1 {start}," in made


@pytest.mark.parametrize(("settings", "start"), [({}, 160), ({"max_wait": 25}, 130)])
def test_after_max_wait_a_unit_has_the_turns_of_another_priority(
    settings: dict[str, Any], start: int
) -> None:
    play = play_on("a", policy="BestEffort", max_wait_priority=5, **settings)
    urgent = [replace(job, priority=5) for job in NEWCOMERS]
    made = play.play(Job("h0", "1x8", 100, 0), Job("h1", "1x8", 10, 99), *urgent)
    assert f"h1 {start}," in made


def test_age_outlives_a_restart() -> None:
    """What a status says of the first of a user, a new process takes over."""
    for minutes, first in ((30, "g"), (5, "n")):
        play = play_on("a", policy="BestEffort", age_step=25, age_tiers=4)
        gang = Job("g", "2x4", 10, -40, user="g")
        newcomer = Job("n", "1x8", 10, -50, user="n")
        memory = QueueMemory(NOW - minutes * MINUTE)
        play.cluster.pod_groups(replace(gang.group().build(), queued=memory))
        play.cluster.pods(*gang.pods(), *newcomer.pods())
        play.jobs |= {"g": gang, "n": newcomer}
        play.running("R", "1x8", "a", 2)
        for minute in range(3):
            play.step(minute)
        assert list(play.starts) == [first]


def test_costly_namespaces_come_after_others_whatever_their_quota_uses() -> None:
    cluster = make_cluster(1, queue=QueueOptions({"max_running": 9}))
    cluster.quotas(make_quota("p", max={GPU: 9}), make_quota("q", max={GPU: 9}))
    cluster.pods(
        make_pod("costly").quota("p").gpu(1).created(1),
        make_pod("else/other").quota("q").gpu(1).created(2),
        make_pod("runs").quota("q").gpu(1).running("n0"),
    )
    cluster.absorb()
    assert [unit.pods[0].name for unit in cluster.queue.pending()] == ["costly", "other"]
    cluster.queue.yield_to_others({"default": 9})
    assert [unit.pods[0].name for unit in cluster.take(9)] == ["other", "costly"]


@given(st.permutations(range(8)), st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_each_unit_has_one_turn_in_whatever_order_they_came(
    order: list[int], quotas: list[int]
) -> None:
    def turns_of(numbers: list[int]) -> list[str]:
        cluster = make_cluster(2, queue=QueueOptions({"max_running": 99}))
        cluster.quotas(
            make_quota("top", is_parent=True, min={GPU: 4}, max={GPU: 16}),
            make_quota("q0", parent="top", min={GPU: 2}, max={GPU: 9}),
            make_quota("q1", parent="top", max={GPU: 9}),
            make_quota("q2", min={GPU: 1}, max={GPU: 9}),
        )
        for at in numbers:
            pod = make_pod(f"u{at}").gpu(1 + at % 3).priority(at % 2).created(at // 3)
            cluster.pods(pod if quotas[at] == 3 else pod.quota(f"q{quotas[at]}"))
        return [unit.pods[0].name for unit in cluster.absorb().pending()]

    turns = turns_of(order)
    assert sorted(turns) == [f"u{at}" for at in range(8)]
    assert turns == turns_of(sorted(order))


def beside_a_guarantee() -> Play:
    """Return one node: p is guaranteed all of it, q borrows; it is busy for five minutes."""
    play = play_on("a", quota=QuotaOptions(limits_by_share=False), protect_after=30)
    play.cluster.quotas(make_quota("p", min={GPU: 8}, max={GPU: 8}))
    play.cluster.quotas(make_quota("q", min={GPU: 0}, max={GPU: 8}))
    return play.running("R", "1x8", "a", 5)


BORROWS = Job("borrows", "1x8", 100, 5, quota="q", priority=20)
GUARANTEED = Job("p1", "1x8", 100, 5, quota="p")


@pytest.mark.parametrize("size", ["1x9", "2x8"], ids=["no node", "more than its quota may use"])
def test_what_never_fits_hides_nobody_from_the_turns_of_other_quotas(size: str) -> None:
    """It would make its quota use more than its guarantee, and others are of higher priority."""
    huge = Job("huge", size, 10, 5, quota="p")
    starts = beside_a_guarantee().play(BORROWS, huge, GUARANTEED)
    assert starts == "borrows 105, huge None, p1 5"


def test_what_is_held_hides_nobody_from_the_turns_of_other_quotas() -> None:
    play = beside_a_guarantee()
    held = Job("held", "2x4", 10, 5, quota="p", priority=10, is_held=True)
    play.cluster.quotas(make_quota("p", min={GPU: 4}, max={GPU: 8}))
    starts = play.play(BORROWS, held, replace(GUARANTEED, size="1x4"))
    assert starts == "borrows 105, held None, p1 5"


def test_what_its_quota_never_takes_leaves_the_room_of_the_next_reserved() -> None:
    play = play_on("abc", quota=QuotaOptions(limits_by_share=False))
    play.cluster.quotas(make_quota("p", max={GPU: 16}))
    play.running("R1", "1x8", "a", 10).running("R2", "1x8", "b", 60)
    jobs = [Job(f"s{at}", "1x8", 10, at, quota="p") for at in range(1, 40, 5)]
    play.play(Job("huge", "3x8", 10, 0, quota="p"), Job("L", "2x8", 10, 0, quota="p"), *jobs)
    assert play.starts["L"] == 10
