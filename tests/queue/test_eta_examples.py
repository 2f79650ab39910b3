"""What is told of starts while the worked examples are played, and whether it becomes true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import make_quota
from tests.cluster import SCORING
from tests.queue.planned import GPU, MINUTE, NOW, Job, Play, play_on

from koord.answers.outlook import Look, view_standings
from koord.controllers.queue_looks import QueueLooks
from koord.core.queue.promises import Certainty, MoveCause
from koord.core.queue.run_time import QueueHints
from koord.core.quota.model import QuotaOptions


def look(play: Play, minute: int) -> dict[str, tuple[int | None, Certainty]]:
    """Play up to a minute; return when jobs that wait then are expected to start."""
    for at in range(minute + 1):
        play.step(at)
    state, queue = play.cluster.state, play.cluster.queue
    units = queue.pending()
    refusals = {key: blocked.reason for key, blocked in queue.blocked.items()}
    standings = view_standings(Look(state, units, refusals, SCORING))
    told = {}
    for unit in units:
        standing = standings[unit.key]
        start = standing.expected_start
        expected = None if start is None else (start - NOW) // MINUTE
        told[unit.pods[0].name.rsplit("-", 1)[0]] = (expected, standing.certainty)
    return told


def play_example_3(**settings: Any) -> Play:
    play = play_on("abcd", **settings).running("R1", "1x8", "a", 10).running("R2", "1x8", "b", 10)
    jobs = (
        Job("H", "3x8", 10, 0),
        Job("M", "4x8", 10, 1),
        Job("X", "1x8", 30, 2),
        Job("Y", "1x8", 5, 3),
    )
    play.jobs |= {job.name: job for job in jobs}
    return play


def test_3_two_are_promised_and_the_third_is_estimated() -> None:
    assert look(play_example_3(reserve_depth=2), 3) == {
        "H": (10, Certainty.PROMISED),
        "M": (20, Certainty.PROMISED),
        "X": (30, Certainty.ESTIMATED),
    }


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({"policy": "BestEffort"}, {"H": 10, "M": 32}),
        ({"policy": "Strict"}, {"H": 10, "M": 20, "X": 30, "Y": 30}),
        ({"reserve_depth": 1}, {"H": 10, "M": 32}),
        ({"reserve_depth": 16}, {"H": 10, "M": 20, "X": 30}),
    ],
)
def test_3_what_is_expected_is_what_comes(settings: dict[str, Any], starts: dict[str, int]) -> None:
    play = play_example_3(**settings)
    told = look(play, 3)
    assert {name: start for name, (start, _) in told.items()} == starts
    for at in range(4, 40):
        play.step(at)
    assert {name: play.starts[name] for name in starts} == starts


def test_1_small_jobs_behind_a_protected_one_are_told_to_start_after_it() -> None:
    play = play_on("ab")
    jobs = [Job(f"s{at}", "1x8", 10, at) for at in (0, 5, 6)]
    jobs.append(Job("L", "2x8", 10, 1))
    play.jobs |= {job.name: job for job in jobs}
    told = look(play, 6)
    assert told == {
        "L": (10, Certainty.PROMISED),
        "s5": (20, Certainty.ESTIMATED),
        "s6": (20, Certainty.ESTIMATED),
    }


def watch(play: Play, minutes: range) -> list[tuple[int, int, str]]:
    """Play and look each minute; return what H is promised: since when, until when, and why.

    In minutes, without what it takes to kill a pod, and before it is rounded to be told.
    """
    cluster = play.cluster
    looks = QueueLooks(
        cluster.state,
        cluster.queue,
        SCORING,
        lambda: cluster.state.now,
        lambda: True,
        lambda: False,
    )
    promises: list[tuple[int, int, str]] = []
    for minute in minutes:
        play.step(minute)
        looks.look()
        standing = looks.of("default/H")
        if standing is None or standing.reservation is None:
            continue
        assert standing.certainty is Certainty.PROMISED
        start = (standing.reservation.start - NOW) // MINUTE
        cause = "" if standing.last_move is None else str(standing.last_move.cause)
        if not promises or promises[-1][1] != start:
            promises.append((minute, start, cause))
    return promises


def test_11_a_promise_moves_for_a_unit_of_higher_priority() -> None:
    play = play_on("ab").running("R1", "1x8", "a", 30).running("R2", "1x8", "b", 60)
    jobs = (
        Job("H", "2x8", 10, 0),
        Job("P", "1x8", 40, 10, priority=10),
        Job("W", "1x8", 15, 11),
    )
    play.jobs |= {job.name: job for job in jobs}
    told = [(start, cause) for _, start, cause in watch(play, range(75))]
    assert told == [(60, ""), (70, "HigherPriority")]
    assert play.starts["H"] == 70


def test_11b_a_promise_moves_for_a_lost_node() -> None:
    play = play_on("abc").running("R1", "1x8", "a", 20).running("R2", "1x8", "b", 30)
    play.running("R3", "1x8", "c", 50)
    play.jobs["H"] = Job("H", "2x8", 10, 0)
    assert watch(play, range(10)) == [(0, 30, "")]
    play.cluster.state.remove_node("b")
    assert watch(play, range(10, 60))[0] == (10, 50, "")
    assert play.starts["H"] == 50


def find_move(play: Play, name: str, minutes: int) -> tuple[MoveCause, str]:
    """Play, and look each minute; return what moved the promise of a job that waits still."""
    cluster = play.cluster
    looks = QueueLooks(
        cluster.state, cluster.queue, SCORING, lambda: cluster.state.now, lambda: True, bool
    )
    for minute in range(minutes):
        waiting = {unit.key: unit for unit in cluster.queue.pending()}
        play.step(minute)
        for key in waiting.keys() - {unit.key for unit in cluster.queue.pending()}:
            looks.note_start(waiting[key])
        looks.look()
    (unit,) = (unit for unit in cluster.queue.pending() if unit.pods[0].name == f"{name}-0")
    move = looks.standings[unit.key].last_move
    assert move is not None
    return move.cause, move.by


def test_who_says_late_how_long_he_runs_is_named_by_those_behind() -> None:
    """H was to run for 5 minutes, so M was promised 15; then H says that it runs for an hour."""
    play = play_on("a", reserve_depth=2).running("R", "1x8", "a", 10)
    play.jobs |= {job.name: job for job in (Job("H", "1x8", 5, 0), Job("M", "1x8", 10, 1))}
    hour = (("queue", QueueHints(deadline=60 * MINUTE)),)
    cluster = play.cluster
    play.events[8] = lambda: cluster.pods(replace(cluster.pod("H-0"), extensions=hour))
    assert find_move(play, "M", 12) == (MoveCause.ESTIMATE, "default/H-0")


def test_who_took_the_promised_room_is_named_though_he_comes_later_by_now() -> None:
    """S is promised a at 20, within what is guaranteed to its quota by then, and keeps W away.

    The small one ends at 35, so with it S is over the guarantee at 20. At 6 Q comes, within the
    guarantee of its own quota, and has a at 20. S is promised 50: then it is within the guarantee,
    and from the next turns of the same minute on it comes before Q again.
    """
    play = play_on("abc", quota=QuotaOptions(limits_by_share=False))
    play.running("A", "1x6", "a", 20).running("B", "1x8", "b", 60).running("C", "1x7", "c", 200)
    least = {"speech": 8, "search": 8, "others": 0}
    play.cluster.quotas(
        *(make_quota(name, min={GPU: gpus}, max={GPU: 24}) for name, gpus in least.items())
    )
    jobs = (
        Job("S", "1x8", 10, 0, quota="speech"),
        Job("W", "1x2", 90, 4, quota="others"),
        Job("small", "1x1", 30, 5, quota="speech"),
        Job("Q", "1x8", 30, 6, quota="search"),
    )
    play.jobs |= {job.name: job for job in jobs}
    assert find_move(play, "S", 7) == (MoveCause.GUARANTEE, "default/Q-0")
