"""What is told of starts while the worked examples are played, and whether it becomes true."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster import SCORING
from tests.queue.planned import MINUTE, NOW, Job, Play, play_on

from koord.answers.outlook import Look, view_standings
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
