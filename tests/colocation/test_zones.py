"""What NUMA nodes leave to batch pods: worked examples, and laws of dividing a node."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.colocation.nodes import GB, amounts, batch, node, pod, report
from tests.colocation.test_publisher import Publishing
from tests.objects import upsert_numa

from koord.answers.colocation import explain_node
from koord.core.colocation.zones import split_by_zone
from koord.core.model.units import MEMORY
from koord.core.numa.model import NumaReport

ZONES = {0: amounts(50, 60), 1: amounts(50, 60)}


def offers(of: Any, zones_of: dict[str, tuple[int, ...]], name: str = "cpu") -> list[int]:
    return [batch(part, name) for part in split_by_zone(of, ZONES, zones_of).values()]


def test_what_is_on_no_numa_node_in_particular_is_divided_over_all() -> None:
    # Each has 50 CPUs: 20 are kept free, and half of 7 by the system and 33 by pods are used.
    seen = report({"a/x": amounts(11, 11), "a/y": amounts(22, 22)}, amounts(7, 12))
    of = node(pod("a/x", 20), pod("a/y", 20), report=seen)
    assert offers(of, {}) == [10_000, 10_000]
    assert offers(of, {}, MEMORY) == [39 * GB - 6 * GB - 16_500_000_000] * 2


def test_a_pod_counts_where_it_is() -> None:
    seen = report({"a/x": amounts(11), "a/y": amounts(22)}, amounts(7))
    of = node(pod("a/x", 20), pod("a/y", 20), report=seen)
    # 30 - 3.5 - 11 and 30 - 3.5 - 22; then 30 - 3.5 - 11 - 11 and 30 - 3.5 - 11
    assert offers(of, {"a/x": (0,), "a/y": (1,)}) == [15_500, 4_500]
    assert offers(of, {"a/x": (0,), "a/y": (0, 1)}) == [4_500, 15_500]
    assert offers(of, {"a/x": (7,), "a/y": (0, 1)}) == [10_000, 10_000]  # there is no such one


def test_what_is_reserved_and_others_use_is_divided_and_parts_are_rounded_up() -> None:
    of = node(allocatable=amounts(89.999, 120), report=report(), third_party={})
    assert offers(of, {}) == [24_999, 24_999]


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.sets(st.integers(0, 2))), max_size=5),
    st.integers(0, 20_000),
)
def test_numa_nodes_offer_together_no_more_than_the_node_but_for_what_some_lack(
    pods: list[tuple[int, set[int]]], system: int
) -> None:
    """Where one lacks something that another has, they offer more: it cannot be moved."""
    seen = report({f"a/{at}": {"cpu": n} for at, (n, _) in enumerate(pods)}, {"cpu": system})
    of = node(*(pod(f"a/{at}", 1) for at in range(len(pods))), report=seen)
    zones_of = {f"a/{at}": tuple(on) for at, (_, on) in enumerate(pods)}
    found = offers(of, zones_of)
    if 0 not in found:
        assert batch(of) - 2 * (len(pods) + 1) <= sum(found) <= batch(of)


async def test_people_see_what_numa_nodes_leave() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    state = publishing.cluster.state
    for zones in ((0,), (0, 1)):
        halves = tuple((number, (("cpu", 32_000), ("memory", 1 << 37))) for number in zones)
        upsert_numa(state, NumaReport("n0", halves))
        explained = explain_node(state, "n0", publishing.now)
        assert explained is not None
        assert [zone.number for zone in explained.zones] == ([] if len(zones) < 2 else [0, 1])
    assert [zone.resources[0].amount for zone in explained.zones] == [30_000, 30_000]
