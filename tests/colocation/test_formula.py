"""The formulas of batch and mid resources against worked examples, and their laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.colocation.nodes import (
    BATCH,
    FREE,
    GB,
    MID,
    PROD,
    amounts,
    batch,
    mid,
    node,
    pod,
    report,
)

from koord.core.colocation.formula import BATCH as BATCH_OF
from koord.core.colocation.formula import compute_batch, compute_mid, percent_of
from koord.core.colocation.measured import ColocatedNode, CountedPod, add_up_pods
from koord.core.colocation.strategy import CalculatePolicy, Strategy
from koord.core.colocation.terms import AmountTermKind
from koord.core.load.model import HostApplicationLoad, NodeLoad, PodLoad
from koord.core.model.units import CPU, MEMORY

MAX, REQUEST = CalculatePolicy.MAX_USAGE_REQUEST, CalculatePolicy.REQUEST


def busy() -> ColocatedNode:
    """33 of 100 CPUs are used by pods that request 40, with peaks of 42, and 7 by the system."""
    seen = report({"a/x": amounts(11, 11), "a/y": amounts(22, 22)}, amounts(7, 12))
    return node(pod("a/x", 20, 20), pod("a/y", 20, 40), report=seen)


def test_what_others_use_and_a_margin_are_not_offered() -> None:
    assert batch(busy(), cpu_reclaim_threshold_percent=60) == 20_000
    assert batch(busy(), MEMORY, memory_reclaim_threshold_percent=65) == 33 * GB


def test_the_larger_of_use_and_request_counts_with_that_policy() -> None:
    assert batch(busy(), cpu_reclaim_threshold_percent=60, cpu_calculate_policy=MAX) == 11_000


def test_more_than_the_capacity_can_be_offered_up_to_a_limit() -> None:
    more = {"cpu_reclaim_threshold_percent": 150, "cpu_calculate_policy": MAX}
    assert batch(busy(), **more) == 101_000
    assert batch(busy(), **more, batch_cpu_threshold_percent=100) == 100_000


def test_an_offer_is_never_negative() -> None:
    assert batch(busy(), cpu_reclaim_threshold_percent=0) == 0


def test_what_the_kubelet_reserves_counts_as_far_as_the_system_uses_less() -> None:
    kept = node(*busy().pods, allocatable=amounts(90, 100), report=busy().report)
    assert batch(kept, cpu_reclaim_threshold_percent=65) == 22_000
    assert batch(kept, MEMORY) == 25 * GB


def test_pods_that_are_not_listed_count_unless_their_metric_is_of_a_low_class() -> None:
    def seen(of: str | None) -> ColocatedNode:
        gone = (amounts(4), of)
        used = report({"a/x": amounts(12), "a/gone": gone}, amounts(3))
        return node(pod("a/x", 20), cpu=64, memory=0, allocatable=amounts(62), report=used)

    assert batch(seen(PROD)) == 19_400
    assert batch(seen(None)) == 19_400
    assert batch(seen(BATCH)) == 23_400
    assert batch(seen(FREE)) == 23_400


@pytest.mark.parametrize("policy", CalculatePolicy)
def test_pods_that_no_kubelet_can_accept_take_nothing_from_others(policy: CalculatePolicy) -> None:
    """Whoever may create a pod may have it name a node."""
    lies = [pod(f"a/{at}", 10**9, is_accepted=False) for at in range(3)]
    more = [pod(f"b/{at}", 30, is_accepted=False) for at in range(5)]
    mid_lie = pod("c/mid", 10**9, of=MID, is_accepted=False)
    fits, used = pod("b/fits", 8, is_accepted=False), report({"a/x": amounts(12)}, amounts(3))
    settings = {"cpu_calculate_policy": policy, "cpu_reclaim_threshold_percent": 100}
    honest = node(pod("a/x", 40), fits, report=used)
    lied = node(pod("a/x", 40), fits, *lies, mid_lie, report=used)
    assert batch(lied, **settings) == batch(honest, **settings) > 0
    one_fits = node(pod("a/x", 40), fits, more[0], report=used)
    assert batch(node(pod("a/x", 40), fits, *more, report=used), **settings) == batch(
        one_fits, **settings
    )
    assert mid(lied, mid_unallocated_percent=50) == mid(honest, mid_unallocated_percent=50) > 0


def test_a_pod_with_exclusive_cpus_hides_nothing_that_it_uses() -> None:
    hidden = node(pod("a/x", 0, is_exclusive=True), report=report({"a/x": amounts(30)}))
    shown = node(pod("a/x", 0), report=report({"a/x": amounts(30)}))
    assert batch(hidden) == batch(shown) == 30_000
    assert batch(hidden, compat=True) == 60_000


def test_mid_pods_count_with_their_mid_requests() -> None:
    used = report({"a/x": amounts(12), "a/gone": amounts(4)}, amounts(3))
    given_node = {"cpu": 64, "memory": 0, "allocatable": amounts(62), "report": used}
    pods = pod("a/x", 20), pod("a/mid", 8, of=MID)
    assert batch(node(*pods, **given_node)) == 11_400
    # As Koordinator sees it: its requests are of mid resources.
    hidden = pod("a/x", 20), pod("a/mid", 0, of=MID)
    assert batch(node(*hidden, **given_node), compat=True) == 19_400


def test_pods_without_a_metric_count_their_request_in_every_policy() -> None:
    two = node(pod("a/x", 4), pod("a/new", 4), cpu=20, memory=0, report=report({"a/x": amounts(1)}))
    assert batch(two, cpu_reclaim_threshold_percent=100) == 15_000
    more = {"cpu_reclaim_threshold_percent": 100, "cpu_calculate_policy": MAX}
    assert batch(two, **more) == 12_000
    assert batch(two, **more, compat=True) == 16_000


def test_exclusive_cpus_are_not_offered_while_they_are_idle() -> None:
    used = report({"a/x": amounts(5, 5)})
    lse = node(pod("a/x", 10, 10, is_exclusive=True), report=used)
    lsr = node(pod("a/x", 10, 10), report=used)
    full = {"cpu_reclaim_threshold_percent": 100, "memory_reclaim_threshold_percent": 100}
    assert (batch(lse, **full), batch(lse, MEMORY, **full)) == (90_000, 115 * GB)
    assert (batch(lsr, **full), batch(lsr, MEMORY, **full)) == (95_000, 115 * GB)


def test_percentages_are_cut_as_floating_point_numbers() -> None:
    assert percent_of(100_000, 100 - 71) == 28_999
    assert batch(node(report=report()), cpu_reclaim_threshold_percent=71) == 71_001


def test_requests_count_for_cpu_too_unless_koordinator_is_followed() -> None:
    policy = {"cpu_calculate_policy": REQUEST, "cpu_reclaim_threshold_percent": 60}
    assert batch(busy(), **policy) == 20_000  # 60 - 40 requested, no system
    kept = node(*busy().pods, allocatable=amounts(95, 120), report=busy().report)
    assert batch(kept, **policy) == 15_000
    assert batch(busy(), **policy, compat=True) == 20_000  # 60 - 7 - 33 in use
    assert batch(kept, **policy, compat=True) == 20_000


def test_faster_cpus_are_worth_more_and_third_parties_are_taken_off() -> None:
    third = {BATCH_OF[CPU]: 10_000}
    of = {"cpu_reclaim_threshold_percent": 65}
    plain = busy()
    assert batch(plain, **of) == 25_000
    yarn = node(*plain.pods, report=plain.report, third_party=third)
    assert batch(yarn, **of) == 15_000
    greedy = node(*plain.pods, report=plain.report, third_party={BATCH_OF[CPU]: 30_000})
    assert batch(greedy, **of) == 0
    fast = node(*plain.pods, report=plain.report, faster=120)
    assert batch(fast, **of) == 30_000


def mid_node(
    *, prod: float = 20, used: float | None = 30, reclaimable: float | None = 15
) -> ColocatedNode:
    seen = report(
        system=amounts(7),
        used=None if used is None else amounts(used, 0),
        reclaimable={} if reclaimable is None else amounts(reclaimable),
    )
    return node(pod("a/x", prod), report=seen)


def test_mid_is_what_prod_will_not_need_and_a_part_of_what_it_does_not_request() -> None:
    assert mid(mid_node(), mid_unallocated_percent=10) == 22_300
    for none in (0, None):
        assert mid(mid_node(reclaimable=none), mid_unallocated_percent=50) == 36_500
    assert mid(mid_node(used=None), mid_unallocated_percent=50) == 36_500


def test_mid_ends_where_pods_are_evicted() -> None:
    over = mid_node(prod=60, used=105, reclaimable=60)
    assert mid(over, mid_unallocated_percent=50) == 0
    assert mid(over, mid_unallocated_percent=50, compat=True) == 16_500
    near = mid_node(used=65, reclaimable=30)
    assert mid(near) == 5_000
    assert mid(near, compat=True) == 30_000


def test_host_applications_count_below_their_class() -> None:
    def seen(of: str) -> ColocatedNode:
        applications = (HostApplicationLoad(amounts(5), of),)  # type: ignore[arg-type]
        used = report(system=amounts(7), used=amounts(30), host_applications=applications)
        return node(pod("a/x", 20), report=used)

    assert mid(seen(PROD), mid_unallocated_percent=50) == 34_000
    assert mid(seen(MID), mid_unallocated_percent=50) == 36_500
    full = {"cpu_reclaim_threshold_percent": 100}
    assert batch(seen(PROD), **full) == batch(seen(MID), **full) == 68_000
    assert batch(seen(FREE), **full) == 73_000


def test_a_static_part_is_limited_and_needs_no_report() -> None:
    part = {"mid_reclaim_mode": "static", "mid_static_cpu_reserved_percent": 10}
    assert mid(node(), **part) == 10_000
    assert mid(node(), **part, mid_cpu_threshold_percent=5) == 5_000
    assert mid(mid_node(used=105), **part) == 10_000


# --- laws -----------------------------------------------------------------------------------------

CLASSES = st.sampled_from([PROD, MID, BATCH, FREE])
FEW = st.integers(0, 200_000)


@st.composite
def nodes(draw: st.DrawFn) -> ColocatedNode:
    capacity = {CPU: draw(FEW), MEMORY: draw(FEW)}
    keys = draw(st.lists(st.sampled_from([f"a/{at}" for at in range(6)]), unique=True))
    pods = [
        CountedPod(key, draw(CLASSES), {CPU: draw(FEW), MEMORY: draw(FEW)}, draw(st.booleans()))
        for key in keys
    ]
    measured = draw(st.lists(st.sampled_from([f"a/{at}" for at in range(8)]), unique=True))
    loads = {
        key: PodLoad({CPU: draw(FEW), MEMORY: draw(FEW)}, draw(st.one_of(st.none(), CLASSES)))
        for key in measured
    }
    used = {CPU: draw(FEW), MEMORY: draw(FEW)} if draw(st.booleans()) else {}
    load = NodeLoad(
        "n",
        updated=1.0,
        usage=used,
        system={CPU: draw(FEW)},
        pods=loads,
        reclaimable={CPU: draw(FEW), MEMORY: draw(FEW)},
    )
    allocatable = {name: draw(st.integers(0, amount)) for name, amount in capacity.items()}
    return ColocatedNode(
        capacity, allocatable, tuple(pods), load, {CPU: draw(FEW)}, draw(st.integers(50, 300))
    )


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    percent, policy = st.integers(0, 100), st.sampled_from(CalculatePolicy)
    over = st.integers(0, 1000)
    return Strategy(
        True,
        draw(over),
        draw(over),
        draw(policy),
        draw(policy),
        draw(st.one_of(st.none(), over)),
        draw(st.one_of(st.none(), over)),
        draw(percent),
        draw(percent),
        draw(percent),
        draw(st.sampled_from(["", "static"])),
        draw(percent),
        draw(percent),
    )


@given(nodes(), strategies(), st.sampled_from([CPU, MEMORY]), st.booleans())
def test_offers_are_within_bounds_and_the_sum_of_their_terms(
    of: ColocatedNode,
    strategy: Strategy,
    resource: str,
    compat: bool,  # noqa: FBT001 - drawn
) -> None:
    pods = add_up_pods(of)[resource]
    for compute in (compute_batch, compute_mid):
        made = compute(resource, of, pods, strategy, compat=compat)
        assert made.value == sum(term.amount for term in made.terms)
        assert made.value >= 0
        kinds = [term.kind for term in made.terms]
        assert len(set(kinds)) == len(kinds)
    most = strategy.of(resource).batch_most
    offered = compute_batch(resource, of, pods, strategy, compat=compat)
    if most is not None:
        faster = offered.amount_of(AmountTermKind.NORMALIZATION)
        assert offered.value - faster <= percent_of(of.capacity[resource], most)
    part = compute_mid(resource, of, pods, strategy, compat=compat).value
    assert part <= percent_of(of.capacity[resource], strategy.of(resource).mid_most)


@given(nodes(), strategies(), st.sampled_from([CPU, MEMORY]), st.integers(0, 50_000))
def test_who_uses_more_leaves_no_more(
    of: ColocatedNode, strategy: Strategy, resource: str, more: int
) -> None:
    assert of.report is not None
    before = batch_of(of, strategy, resource)
    for key, load in of.report.pods.items():
        usage = {**load.usage, resource: load.usage[resource] + more}
        pods = {**of.report.pods, key: PodLoad(usage, load.koordinator_class)}
        used = NodeLoad("n", updated=1.0, system=of.report.system, pods=pods)
        busier = ColocatedNode(of.capacity, of.allocatable, of.pods, used, of.reserved, of.faster)
        assert batch_of(busier, strategy, resource) <= before


@given(nodes(), strategies(), st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(
    of: ColocatedNode, strategy: Strategy, random: st.DataObject
) -> None:
    pods = list(of.pods)
    random.shuffle(pods)  # type: ignore[attr-defined]
    other = ColocatedNode(
        of.capacity, of.allocatable, tuple(pods), of.report, of.reserved, of.faster
    )
    for resource in (CPU, MEMORY):
        assert batch_of(of, strategy, resource) == batch_of(other, strategy, resource)


def batch_of(of: ColocatedNode, strategy: Strategy, resource: str) -> int:
    return compute_batch(resource, of, add_up_pods(of)[resource], strategy).value


@pytest.mark.parametrize("compat", [False, True])
def test_terms_tell_where_an_amount_comes_from(
    compat: bool,  # noqa: FBT001 - both
) -> None:
    of = busy()
    made = compute_batch(CPU, of, add_up_pods(of)[CPU], Strategy(enable=True), compat=compat)
    assert [(str(term.kind), term.amount) for term in made.terms] == [
        ("Capacity", 100_000),
        ("Margin", -40_000),
        ("System", -7_000),
        ("Used", -33_000),
    ]
    assert made.value == 20_000
