"""The worked examples with the planner: minutes by the clock, real nodes, limits, quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import make_node, make_quota
from tests.queue.planned import BLOCK, GPU, MINUTE, NOW, Job, play_on

from koord.core.model.gangs import QueueMemory
from koord.core.queue.reasons import WouldDelay

EASY: dict[str, Any] = {}
GREEDY = {"policy": "BestEffort"}
STRICT = {"policy": "Strict"}
CONSERVATIVE = {"reserve_depth": 16}


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "s0 0, L 35, s1 5, s2 10, s3 15, s4 20, s5 25"),
        (STRICT, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40"),
        (EASY, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40"),
        (CONSERVATIVE, "s0 0, L 10, s1 20, s2 20, s3 30, s4 30, s5 40"),
        ({"protect_after": 5}, "s0 0, L 15, s1 5, s2 25, s3 25, s4 35, s5 35"),
    ],
)
def test_1_a_stream_of_small_jobs(settings: dict[str, Any], starts: str) -> None:
    s0, *rest_of = (Job(f"s{at}", "1x8", 10, 5 * at) for at in range(6))
    assert play_on("ab", **settings).play(s0, Job("L", "2x8", 10, 1), *rest_of) == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "L 102, S1 1, S2 2, S3 3"),
        (STRICT, "L 40, S1 60, S2 90, S3 90"),
        (EASY, "L 40, S1 1, S2 90, S3 3"),
        (CONSERVATIVE, "L 40, S1 1, S2 60, S3 90"),
    ],
)
def test_2_who_ends_before_and_who_does_not_touch(settings: dict[str, Any], starts: str) -> None:
    play = play_on("abcd", **settings).running("R1", "1x4", "a", 60).running("R2", "1x8", "b", 40)
    made = play.play(
        Job("L", "3x8", 50, 0), Job("S1", "1x8", 30, 1), Job("S2", "1x8", 100, 2),
        Job("S3", "1x4", 100, 3),
    )  # fmt: skip
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 10, M 32, X 2, Y 3"),
        (STRICT, "H 10, M 20, X 30, Y 30"),
        (EASY, "H 10, M 32, X 2, Y 3"),
        ({"reserve_depth": 2}, "H 10, M 20, X 30, Y 3"),
        (CONSERVATIVE, "H 10, M 20, X 30, Y 3"),
    ],
)
def test_3_second_in_line(settings: dict[str, Any], starts: str) -> None:
    play = play_on("abcd", **settings).running("RA", "1x8", "a", 10).running("RB", "1x8", "b", 10)
    made = play.play(
        Job("H", "3x8", 10, 0), Job("M", "4x8", 10, 1), Job("X", "1x8", 30, 2),
        Job("Y", "1x8", 5, 3),
    )  # fmt: skip
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 61, S 1, Z 21"),
        (STRICT, "H 20, S 30, Z 30"),
        (EASY, "H 31, S 1, Z 41"),
        (CONSERVATIVE, "H 31, S 1, Z 41"),
    ],
)
def test_4_early_end(settings: dict[str, Any], starts: str) -> None:
    play = play_on("ab", **settings).running("R", "1x8", "a", 20, limit=60)
    made = play.play(Job("H", "2x8", 10, 0), Job("S", "1x8", 30, 1), Job("Z", "1x8", 40, 21))
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 90, S 1, S2 31, S3 50"),
        ({"backfill_on": "Declared"}, "H 50, S 60, S2 60, S3 85"),
        ({"backfill_on": "Stated"}, "H 56, S 1, S2 31, S3 66"),
    ],
)
def test_4b_an_estimate_that_is_outrun(settings: dict[str, Any], starts: str) -> None:
    """Half as long again as is stated is its bound: 30."""
    play = play_on("ab", **settings).running("R", "1x8", "a", 50, limit=0, expected=20)
    made = play.play(
        Job("H", "2x8", 10, 0), Job("S", "1x8", 25, 1), Job("S2", "1x8", 25, 31),
        Job("S3", "1x8", 40, 32),
    )  # fmt: skip
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 215, S1 1, S2 5, S3 15"),
        (STRICT, "H 90, S1 110, S2 110, S3 114"),
        ({"short_limit": 5}, "H 90, S1 1, S2 110, S3 110"),
        ({"short_limit": 5, "max_hold": 60, "hold_cool_down": 60}, "H 275, S1 1, S2 65, S3 75"),
    ],
)
def test_5_no_run_times(settings: dict[str, Any], starts: str) -> None:
    play = play_on("ab", **settings).running("R", "1x8", "a", 90, limit=0)
    made = play.play(
        Job("H", "2x8", 20, 0), Job("S1", "1x8", 4, 1), Job("S2", "1x8", 10, 2),
        Job("S3", "1x8", 200, 3, limit=0),
    )  # fmt: skip
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 75, P 30, W 60"),
        (STRICT, "H 70, P 30, W 80"),
        (EASY, "H 70, P 30, W 80"),
        (CONSERVATIVE, "H 70, P 30, W 80"),
    ],
)
def test_11_higher_priority_arrives(settings: dict[str, Any], starts: str) -> None:
    play = play_on("ab", **settings).running("R1", "1x8", "a", 30).running("R2", "1x8", "b", 60)
    made = play.play(
        Job("H", "2x8", 10, 0), Job("P", "1x8", 40, 10, priority=10), Job("W", "1x8", 15, 11)
    )
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 203, S1 1, S2 10, V1 3, V2 40"),
        (STRICT, "H 40, S1 60, S2 60, V1 3, V2 60"),
        (EASY, "H 40, S1 1, S2 60, V1 3, V2 60"),
        (CONSERVATIVE, "H 40, S1 1, S2 60, V1 3, V2 60"),
    ],
)
def test_8_head_blocked_by_quota(settings: dict[str, Any], starts: str) -> None:
    play = play_on("abcd", **settings)
    play.cluster.quotas(
        make_quota("team", min={GPU: 16}, max={GPU: 16}), make_quota("v", max={GPU: 32})
    )
    play.running("R1", "1x8", "a", 40).running("R2", "1x4", "b", 10)
    made = play.play(
        Job("H", "4x4", 20, 0), Job("S1", "1x4", 30, 1), Job("S2", "1x4", 60, 2),
        Job("V1", "1x8", 200, 3, quota="v"), Job("V2", "2x8", 200, 4, quota="v"),
    )  # fmt: skip
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 41, S1 1, S2 20"),
        (STRICT, "H 30, S1 30, S2 50"),
        (EASY, "H 30, S1 20, S2 2"),
        (CONSERVATIVE, "H 30, S1 20, S2 2"),
    ],
)
def test_6_one_domain(settings: dict[str, Any], starts: str) -> None:
    play = play_on("abcd", blocks={"a": "x", "b": "x", "c": "y", "d": "y"}, **settings)
    for name, node, end in (("R1", "a", 50), ("R2", "b", 20), ("R3", "c", 30)):
        play.running(name, "1x8", node, end)
    made = play.play(
        Job("H", "2x8", 20, 0, gathers=BLOCK), Job("S1", "1x8", 40, 1), Job("S2", "1x8", 25, 2)
    )
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "H 50, S 20, Z 40"),
        (STRICT, "H 40, S 50, Z 50"),
        (EASY, "H 45, S 20, Z 50"),
    ],
)
def test_11b_a_node_is_lost_and_returns(settings: dict[str, Any], starts: str) -> None:
    play = play_on("abc", **settings)
    for name, node, end in (("R1", "a", 20), ("R2", "b", 30), ("R3", "c", 50)):
        play.running(name, "1x8", node, end)

    def lose() -> None:
        play.ends.pop("R2")
        play.cluster.delete_pods("R2-0")
        play.cluster.state.remove_node("b")

    play.events = {10: lose, 40: lambda: play.cluster.nodes(make_node("b").gpu(8))}
    made = play.play(Job("H", "2x8", 10, 0), Job("S", "1x8", 25, 15), Job("Z", "1x8", 40, 16))
    assert made == starts


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (GREEDY, "HP 66, HQ 80, S 5, S2 6"),
        ({"max_idle_share": 20}, "HP 40, HQ 80, S 10, S2 100"),
        ({"max_idle_share": 100}, "HP 40, HQ 80, S 100, S2 100"),
    ],
)
def test_12_two_heads_and_the_cap(
    settings: dict[str, Any], starts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.core.queue.ends.EXPECTED_AT_LEAST", 60 * MINUTE)
    blocks = {name: "x" if name in "abcd" else "y" for name in "abcdefgh"}
    play = play_on("abcdefgh", blocks=blocks, **settings)
    for quota, least in (("p", 24), ("q", 24), ("v", 16)):
        play.cluster.quotas(make_quota(quota, min={GPU: least}, max={GPU: 64}))
    for node, end in {"c": 40, "d": 100, "e": 10, "f": 70, "g": 80, "h": 200}.items():
        play.running(node.upper(), "1x8", node, end, limit=0)
    made = play.play(
        Job("HP", "3x8", 60, 0, limit=0, quota="p", gathers=BLOCK),
        Job("HQ", "3x8", 30, 1, limit=0, quota="q", gathers=BLOCK),
        Job("S", "1x8", 60, 5, limit=0, quota="v"),
        Job("S2", "1x8", 60, 6, limit=0, quota="v"),
    )
    assert made == starts


def test_a_new_process_goes_on_with_what_statuses_say_of_heads() -> None:
    head = Job("H", "2x8", 20, 0)
    for since, is_reserved in ((20, True), (5, False)):
        play = play_on("ab", protect_after=20).running("R", "1x8", "a", 90, limit=0)
        memory = QueueMemory(NOW - since * MINUTE, NOW - MINUTE, 77)
        play.cluster.pod_groups(replace(head.group().build(), queued=memory))
        waiting = [pod.created(float(NOW - 30 * MINUTE)) for pod in head.pods()]
        play.cluster.pods(*waiting, *Job("S", "1x8", 200, 3, limit=0).pods())
        play.cluster.step(float(NOW))
        assert isinstance(play.cluster.reasons().get("S-0"), WouldDelay) == is_reserved


def test_no_status_makes_a_head_older_than_its_unit() -> None:
    play = play_on("ab", protect_after=20).running("R", "1x8", "a", 90, limit=0)
    head = Job("H", "2x8", 20, 0)
    memory = QueueMemory(NOW - 999 * MINUTE, NOW - 999 * MINUTE, -5)
    play.cluster.pod_groups(replace(head.group().build(), queued=memory))
    play.cluster.pods(*head.pods(), *Job("S", "1x8", 200, 3, limit=0).pods())
    assert play.cluster.step(float(NOW)) == ["S-0"]


def test_nobody_starts_early_at_the_cost_of_a_later_promise() -> None:
    """H is promised B and C at 20, M is promised A at 18; A and C are free at 15."""
    play = play_on("abc", **CONSERVATIVE).running("RA", "1x8", "a", 15, 18)
    play.running("RB", "1x8", "b", 20).running("RC", "1x8", "c", 15, 20)
    assert play.play(Job("H", "2x8", 20, 0), Job("M", "1x8", 25, 1)) == "H 20, M 15"
