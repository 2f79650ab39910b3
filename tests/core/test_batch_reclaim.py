"""Who leaves short nodes, the lowest, one of each node, and no more than needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.core.balance.batch_reclaim import (
    BatchPod,
    BatchUnit,
    NodeShortage,
    PastReclaim,
    ReclaimOutcome,
    ReclaimPast,
    SeenReport,
    ShortageCause,
    choose,
    find_memory_shortage,
)
from koord.core.balance.outcome import MoveRefusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.balance.batch_reclaim import BatchEviction

CPU = "kubernetes.io/batch-cpu"
NO = MoveRefusal("E-5", "no")


def pod(name: str, node: str, memory: int = 0, cpu: int = 0) -> BatchPod:
    return BatchPod(f"uid-{name}", "default", name, node, memory, {CPU: cpu})


def unit(*pods: BatchPod, priority: int = 5000, **more: object) -> BatchUnit:
    return BatchUnit(pods[0].uid, pods, (2, priority), len(pods) > 1, **more)  # type: ignore[arg-type]


def short(node: str, excess: int, cause: ShortageCause = ShortageCause.MEMORY) -> NodeShortage:
    resource = "memory" if cause is ShortageCause.MEMORY else CPU
    return NodeShortage(node, cause, resource, 100 + excess, 100, 200)


def refuse_nobody(_unit: BatchUnit, _before: Sequence[BatchEviction]) -> None:
    return None


def names(outcome: ReclaimOutcome) -> list[str]:
    return [pod.name for one in outcome.reclaims for pod in one.unit.pods]


@pytest.mark.parametrize(("used", "excess"), [(649, None), (650, 1), (700, 51), (651, 2)])
def test_a_node_is_short_from_its_threshold_on(used: int, excess: int | None) -> None:
    shortage = find_memory_shortage("n", used, 1000, 65.0)
    assert (None if shortage is None else shortage.excess) == excess


def test_without_memory_of_its_own_a_node_is_never_short() -> None:
    assert find_memory_shortage("n", 10, 0, 65.0) is None


def test_the_lowest_leaves_then_the_largest_then_the_newest() -> None:
    units = [
        unit(pod("high", "n", 90), priority=5500),
        unit(pod("small", "n", 10)),
        unit(pod("old", "n", 50), created=1.0),
        unit(pod("new", "n", 50), created=2.0),
        unit(pod("gang-0", "n", 60), pod("gang-1", "n", 60)),
    ]
    left = list(units)
    order = []
    while left:
        (reclaim,) = choose([short("n", 1)], left, (), refuse_nobody).reclaims
        order.append(reclaim.unit.pods[0].name)
        left.remove(reclaim.unit)
    assert order == ["new", "old", "small", "gang-0", "high"]


def test_one_unit_leaves_a_node_at_a_time() -> None:
    units = [unit(pod(f"p{at}", "n", 10)) for at in range(3)]
    assert len(choose([short("n", 100)], units, (), refuse_nobody).reclaims) == 1
    paused = choose([short("n", 100)], units, {"n"}, refuse_nobody)
    assert paused.reclaims == []
    assert paused.pausing == {"n"}


def test_a_gang_counts_on_each_of_its_nodes() -> None:
    gang = unit(pod("g0", "a", 50), pod("g1", "b", 50), priority=5000)
    single = unit(pod("s", "b", 50), priority=5500)
    shortages = [short("a", 10), short("b", 60)]
    outcome = choose(shortages, [gang, single], (), refuse_nobody)
    assert names(outcome) == ["g0", "g1"]  # b is short still, and pauses as well
    assert names(choose(shortages, [gang, single], {"b"}, refuse_nobody)) == []
    assert names(choose([short("b", 10), short("a", 60)], [gang], {"x"}, refuse_nobody)) == [
        "g0",
        "g1",
    ]


def test_who_frees_nothing_stays() -> None:
    units = [
        unit(pod("unknown", "n")),
        unit(pod("elsewhere", "m", 10)),
        unit(pod("cpu", "n", 0, 9)),
    ]
    assert choose([short("n", 1)], units, (), refuse_nobody).reclaims == []
    outcome = choose([short("n", 1, ShortageCause.OVERCOMMIT)], units, (), refuse_nobody)
    assert names(outcome) == ["cpu"]


def test_the_next_leaves_for_one_that_may_not() -> None:
    units = [unit(pod("a", "n", 20)), unit(pod("b", "n", 10))]
    outcome = choose(
        [short("n", 1)], units, (), lambda one, _: NO if one.pods[0].name == "a" else None
    )
    assert names(outcome) == ["b"]
    assert [(held.unit.pods[0].name, held.refusal) for held in outcome.held] == [("a", NO)]


def test_what_a_gang_frees_on_another_node_is_enough_there() -> None:
    gang = unit(pod("g0", "a", 50), pod("g1", "b", 50), priority=5000)
    single = unit(pod("s", "b", 50), priority=4000)
    outcome = choose([short("a", 10), short("b", 50)], [gang, single], (), refuse_nobody)
    assert names(outcome) == ["g0", "g1"]


NODES = ("a", "b", "c")
pods = st.builds(
    pod,
    st.uuids().map(str),
    st.sampled_from(NODES),
    st.integers(0, 60),
    st.integers(0, 60),
)
units_of_pods = st.builds(
    lambda members, priority: unit(*members, priority=priority),
    st.lists(pods, min_size=1, max_size=4),
    st.sampled_from([3000, 5000, 5500]),
)
shortages_of_nodes = st.builds(
    short, st.sampled_from(NODES), st.integers(1, 80), st.sampled_from(ShortageCause)
)


@settings(max_examples=examples(40))
@given(
    shortages=st.lists(
        shortages_of_nodes, max_size=6, unique_by=lambda shortage: (shortage.node, shortage.cause)
    ),
    units=st.lists(units_of_pods, max_size=8),
    pausing=st.sets(st.sampled_from(NODES)),
    refused=st.sets(st.integers(0, 7)),
    most=st.integers(0, 6),
)
def test_laws(
    shortages: list[NodeShortage],
    units: list[BatchUnit],
    pausing: set[str],
    refused: set[int],
    most: int,
) -> None:
    spared = {id(one) for at, one in enumerate(units) if at in refused}
    outcome = choose(
        shortages, units, pausing, lambda one, _: NO if id(one) in spared else None, most
    )
    nodes: list[str] = []
    before: list[BatchUnit] = []
    for reclaim in outcome.reclaims:
        assert id(reclaim.unit) not in spared
        freed = sum(one.frees(reclaim.shortage) for one in before)
        assert reclaim.shortage.excess > freed, "it leaves without a need"
        assert reclaim.unit.frees(reclaim.shortage) > 0
        lower = [
            one
            for one in units
            if one.rank < reclaim.unit.rank
            and one.frees(reclaim.shortage)
            and id(one) not in spared
            and one.nodes.isdisjoint({*pausing, *nodes})
            and len(one.pods) + sum(len(gone.pods) for gone in before) <= most
        ]
        assert lower == [], "a lower one stays"
        nodes += reclaim.unit.nodes
        before.append(reclaim.unit)
    assert len(nodes) == len(set(nodes)), "two units leave one node at once"
    assert pausing.isdisjoint(nodes)
    assert sum(len(one.pods) for one in before) <= most


# --- what looks remember --------------------------------------------------------------------------

PAST = PastReclaim("u", "default/p", "n", 50, 100.0)


def observe(past: ReclaimPast, now: float, **seen: object) -> list[PastReclaim]:
    defaults: dict[str, object] = {
        "staying": lambda _: False,
        "is_over": lambda _: False,
        "reports": {},
    }
    past.observe(now, **{**defaults, **seen})  # type: ignore[arg-type]
    return past.reclaims


def test_a_node_pauses_until_half_a_minute_after_it_was_left() -> None:
    past = ReclaimPast(reclaims=[PAST])
    observe(past, 200.0, staying=lambda _: True)
    assert past.pausing(200.0) == {"n"}  # its eviction may come at any moment
    observe(past, 210.0)
    assert past.pausing(239.0) == {"n"}
    assert past.pausing(240.0) == set()


def test_a_pod_that_nothing_evicts_any_more_is_forgotten() -> None:
    past = ReclaimPast(reclaims=[PAST])
    assert observe(past, 200.0, staying=lambda _: True, is_over=lambda _: True) == []


def test_what_has_left_counts_until_no_report_shows_it() -> None:
    past = ReclaimPast(reclaims=[PAST])
    observe(past, 110.0)
    early, late = SeenReport(300.0, 300.0), SeenReport(410.0, 300.0)
    assert past.freed("n", lambda _: True, early) == 50
    assert past.freed("n", lambda _: True, late) == 0
    assert past.freed("m", lambda _: True, early) == 0
    assert observe(past, 305.0, reports={"n": early})
    assert observe(past, 415.0, reports={"n": late}) == []


def test_a_node_without_reports_is_forgotten_in_the_end() -> None:
    past = ReclaimPast(reclaims=[replace(PAST, left=100.0)])
    assert observe(past, 3699.0)
    assert observe(past, 3700.0) == []


def test_time_over_what_is_offered_starts_again_after_each_end() -> None:
    past = ReclaimPast()
    past.note_overcommitted(["a", "b"], 10.0)
    past.note_overcommitted(["a"], 20.0)
    past.note_overcommitted(["a", "b"], 30.0)
    assert past.overcommitted == {"a": 10.0, "b": 30.0}
