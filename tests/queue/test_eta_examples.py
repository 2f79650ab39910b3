"""What is told of starts while the worked examples are played, and whether it becomes true."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster import SCORING
from tests.queue.planned import MINUTE, NOW, Job, Play, play_on

from koord.answers.outlook import Look, view_standings
from koord.controllers.queue_looks import QueueLooks
from koord.core.queue.promises import Certainty


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
