"""CPU and memory of NUMA nodes: hints, and what a pod is given of each node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.engine.scoring import ScoringStrategy
from koord.core.model.zone_hints import NumaHint
from koord.core.numa.policy import NumaPolicy, align
from koord.core.numa.zones import (
    InsufficientNuma,
    NumaShare,
    NumaZone,
    distribute,
    make_zone_hints,
)

BEST_EFFORT, RESTRICTED, SINGLE = NumaPolicy
GIB = 1 << 30


def prefer(nodes: int, score: int) -> NumaHint:
    return NumaHint(nodes, is_preferred=True, score=score)


def offer(nodes: int, score: int) -> NumaHint:
    return NumaHint(nodes, is_preferred=False, score=score)


# Hints of CPU and memory


def zone(number: int, cpu: int, memory: int, total: tuple[int, int] = (64000, 256)) -> NumaZone:
    return NumaZone(
        number,
        {"cpu": total[0], "memory": total[1] * GIB},
        {"cpu": cpu, "memory": memory * GIB},
    )


def hints_of(requests, zones, policy=BEST_EFFORT, strategy=ScoringStrategy.LEAST_ALLOCATED):
    def is_feasible(nodes):
        return not isinstance(distribute(requests, zones, nodes), InsufficientNuma)

    return make_zone_hints(requests, zones, is_feasible, policy, strategy)


def test_smallest_feasible_sets_are_preferred():
    zones = [zone(0, 32000, 128), zone(1, 64000, 256)]
    request = {"cpu": 16000, "memory": 64 * GIB, "nvidia.com/gpu": 1}
    expected = (prefer(1, 25), prefer(2, 75), offer(3, 62))
    assert hints_of(request, zones) == {"cpu": expected, "memory": expected}
    packed = hints_of(request, zones, strategy=ScoringStrategy.MOST_ALLOCATED)["cpu"]
    assert packed == (prefer(1, 75), prefer(2, 25), offer(3, 37))


def test_restricted_prefers_every_feasible_set():
    zones = [zone(0, 8000, 256), zone(1, 64000, 256)]
    hints = hints_of({"cpu": 16000}, zones, RESTRICTED)
    assert [(hint.nodes, hint.is_preferred) for hint in hints["cpu"]] == [(2, True), (3, True)]


def test_sets_with_a_node_that_lacks_a_resource_are_no_hints_for_it():
    zones = [zone(0, 0, 256), zone(1, 64000, 256)]
    hints = hints_of({"cpu": 1000, "memory": GIB}, zones)
    assert [hint.nodes for hint in hints["cpu"]] == [2]
    assert [hint.nodes for hint in hints["memory"]] == [2, 3]


def test_resource_that_fits_nowhere_has_no_hints():
    hints = hints_of({"cpu": 200000}, [zone(0, 64000, 256), zone(1, 64000, 256)])
    assert hints == {"cpu": ()}
    refusal = align(RESTRICTED, 3, list(hints.items())).cause
    assert refusal is not None
    assert refusal.messages() == ("Unsatisfied NUMA cpu",)


# Division among NUMA nodes


def test_requests_are_divided_evenly_starting_with_the_fullest_node():
    zones = [zone(0, 60000, 200), zone(1, 10000, 200), zone(2, 64000, 0)]
    shares = distribute({"cpu": 40001, "memory": 5 * GIB, "example.com/x": 1}, zones, 0b011)
    assert shares == (
        NumaShare(0, (("cpu", 30001), ("memory", 5 * GIB // 2))),
        NumaShare(1, (("cpu", 10000), ("memory", 5 * GIB // 2))),
    )


@pytest.mark.parametrize(("step", "shares"), [(1000, (3000, 4000)), (2000, None)])
def test_pinned_cpus_are_divided_whole(step, shares):
    zones = [zone(0, 3999, 1), zone(1, 64000, 1)]
    divided = distribute({"cpu": 7000}, zones, 3, step)
    if shares is None:
        assert divided == InsufficientNuma((("cpu", 1000),))
    else:
        assert [dict(share.amounts)["cpu"] for share in divided] == list(shares)


def test_what_does_not_fit_is_named():
    shares = distribute({"cpu": 9000, "memory": 3 * GIB}, [zone(0, 4000, 1), zone(1, 3000, 9)], 3)
    assert isinstance(shares, InsufficientNuma)
    assert shares.missing == (("cpu", 2000),)
    assert shares.describe() == "Insufficient NUMA cpu"
    assert shares.is_resolvable


@given(
    st.integers(0, 60),
    st.lists(st.integers(-2, 30), min_size=1, max_size=4),
    st.integers(1, 15),
    st.sampled_from([1, 2, 4]),
)
def test_division_succeeds_whenever_there_is_room(parts, rooms, nodes, step):
    zones = [NumaZone(number, {"cpu": 99}, {"cpu": room}) for number, room in enumerate(rooms)]
    usable = [max(room, 0) // step * step for i, room in enumerate(rooms) if nodes >> i & 1]
    shares = distribute({"cpu": parts * step}, zones, nodes, step)
    if parts * step > sum(usable):
        assert shares == InsufficientNuma((("cpu", parts * step - sum(usable)),))
        return
    assert not isinstance(shares, InsufficientNuma)
    given_to = {share.number: dict(share.amounts)["cpu"] for share in shares}
    assert sum(given_to.values()) == parts * step
    most = max(given_to.values(), default=0)
    for number, room in enumerate(rooms):
        share = given_to.get(number, 0)
        assert share % step == 0
        assert share <= max(room, 0)
        if nodes >> number & 1:
            assert share >= min(most - step, max(room, 0) // step * step)
        else:
            assert not share
