"""What earlier rounds do to later ones: anomalies, settled pods, nodes that were left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.balance_cases import make_node, make_pod, make_rules, moved, run
from tests.support.laws import examples

from koord.core.balance.detectors import DetectorKind, Detectors, make_condition
from koord.core.balance.memory import BalancePast, MoveMemory

if TYPE_CHECKING:
    from koord.core.balance.model import BalanceRules

HALF_HOUR = 1800.0


def rules_with(abnormalities: int, timeout: float = 60.0) -> BalanceRules:
    rules = make_rules()
    pool = replace(rules.pools[0], condition=make_condition(abnormalities, 3, timeout))
    return replace(rules, pools=(pool,))


def acting_rounds(
    interval: float, count: int, timeout: float = 60.0, kept: float = 300.0
) -> list[int]:
    """Return the rounds in which pods of a node that stays hot are moved."""
    past = BalancePast(Detectors(kept))
    pods = [make_pod(f"p{at}", "n1") for at in range(8)]
    nodes = [make_node("n1", *pods), make_node("n2", system={"cpu": 1200})]
    rules = replace(rules_with(5, timeout), caps=replace(rules_with(5).caps, total=1))
    return [
        at
        for at in range(1, count + 1)
        if run(*nodes, rules=rules, past=past, now=at * interval).moves
    ]


def test_a_node_is_acted_on_after_more_than_five_hot_rounds() -> None:
    assert acting_rounds(120, 13) == [6, 12]


def test_with_a_longer_timeout_it_is_acted_on_while_it_stays_hot() -> None:
    assert acting_rounds(120, 9, timeout=240) == [6, 7]


def test_counters_never_add_up_when_rounds_are_rarer_than_they_are_kept() -> None:
    assert acting_rounds(360, 20) == []


def test_detectors_go_on_after_a_restart() -> None:
    past = BalancePast()
    nodes = [
        make_node("n1", *(make_pod(f"p{at}", "n1") for at in range(8))),
        make_node("n2"),
    ]
    for at in range(5):
        assert not run(*nodes, rules=rules_with(5), past=past, now=at * 60.0).moves
    restarted = BalancePast()
    restarted.detectors.put(dict(past.detectors.values()))
    assert run(*nodes, rules=rules_with(5), past=restarted, now=300.0).moves


def test_a_low_node_is_reset_and_so_is_one_that_gave_enough() -> None:
    past = BalancePast()
    pods = [make_pod(f"p{at}", "n1") for at in range(8)]
    assert run(make_node("n1", *pods), make_node("n2"), past=past).moves
    assert not past.detectors.values()


def test_what_just_came_stays_for_an_hour() -> None:
    past = BalancePast()
    past.moves.note(make_pod("p", "old", workload="w"), "n1", 0)
    pods = [make_pod(f"p{at}", "n1", workload="w", created=10) for at in range(8)]
    hot, low = make_node("n1", *pods), make_node("n2")
    stays = run(hot, low, past=past, now=3599)
    assert {stay.refusal.rule for stay in stays.staying} == {"MovedLately"}
    assert run(hot, low, past=past, now=3600).moves


def test_what_ran_there_before_may_move() -> None:
    past = BalancePast()
    past.moves.note(make_pod("p", "old", workload="w"), "n1", 100)
    pods = [make_pod(f"p{at}", "n1", workload="w", created=10) for at in range(8)]
    assert run(make_node("n1", *pods), make_node("n2"), past=past, now=200).moves


def test_a_workload_does_not_go_back_where_it_left() -> None:
    past = BalancePast()
    past.moves.note(make_pod("p", "n2", workload="w"), "n1", 0)
    pods = [make_pod(f"p{at}", "n1", workload="w", created=-1) for at in range(8)]
    nodes = [make_node("n1", *pods), make_node("n2"), make_node("n3", system={"cpu": 1000})]
    targets = {target for _, target in moved(run(*nodes, past=past, now=60))}
    assert targets == {"n3"}
    targets = {target for _, target in moved(run(*nodes, past=past, now=HALF_HOUR))}
    assert "n2" in targets


def test_each_return_doubles_the_time() -> None:
    memory = MoveMemory()
    pod = make_pod("p", "n1", workload="w")
    memory.note(pod, "n2", 0)
    assert not memory.avoids(pod, "n1", HALF_HOUR)
    back = replace(pod, created=HALF_HOUR + 60)
    assert memory.has_settled(back, HALF_HOUR + 61)
    memory.note(back, "n2", HALF_HOUR + 120)
    until = HALF_HOUR + 120 + 2 * HALF_HOUR
    assert memory.avoids(pod, "n1", until - 1)
    assert not memory.avoids(pod, "n1", until)


def test_the_memory_is_bounded_and_says_what_it_lost() -> None:
    memory = MoveMemory()
    for at in range(600):
        memory.note(make_pod(f"p{at}", "n1"), "n2", float(at % 7))
    assert memory.drop_old(10) == 100
    assert len(memory.values()) == 500
    assert memory.drop_old(10_000_000) == 0
    assert memory.values() == ()


@pytest.mark.parametrize("abnormalities", [0, 1])
def test_one_abnormality_is_acted_on_at_once(abnormalities: int) -> None:
    detectors = Detectors()
    key = ("p", DetectorKind.NODE, "n1")
    assert detectors.mark_bad([key], make_condition(abnormalities, 3, 60), 0) == {"n1"}


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(st.lists(st.integers(0, 1500), min_size=4, max_size=4), min_size=2, max_size=30))
def test_no_pod_moves_twice_an_hour_or_goes_back(loads: list[list[int]]) -> None:
    """Four workloads of one pod, whose load changes each round, on three nodes."""
    past = BalancePast()
    place = {f"w{at}": ("n0", -1.0) for at in range(4)}
    moves: list[tuple[float, str, str, str]] = []
    for at, load in enumerate(loads):
        now = at * 300.0
        pods = [
            make_pod(name, node, load[int(name[1:])], workload=name, created=since)
            for name, (node, since) in place.items()
        ]
        nodes = [
            make_node(name, *(pod for pod in pods if pod.node == name), cpu=2000)
            for name in ("n0", "n1", "n2")
        ]
        for move in run(*nodes, past=past, now=now).moves:
            past.moves.note(move.pod, move.target, now)
            place[move.pod.name] = (move.target, now)
            moves.append((now, move.pod.name, move.pod.node, move.target))
    for at, (now, name, _, target) in enumerate(moves):
        earlier = [move for move in moves[:at] if move[1] == name]
        assert all(now - move[0] >= 3600 for move in earlier)
        assert all(move[2] != target or now - move[0] >= HALF_HOUR for move in earlier)
