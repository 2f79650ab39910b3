"""Amounts that change over time: of quotas and of the cluster."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.support.laws import examples
from tests.usage.instants import CARD, at, between

from koord.answers.usage_levels import find_cluster_levels
from koord.core.model.pods import Handling
from koord.core.quota.share_terms import lend, lend_in_all
from koord.core.usage.cluster_time import ClusterLevel, GpuState, integrate_cluster
from koord.core.usage.levels import UsageLevels, integrate_levels
from koord.core.usage.quota_time import QuotaLevel, QuotaTime, integrate
from koord.core.usage.segments import Window
from koord.core.usage.tables import format_hours

AMOUNTS = st.integers(0, 10_000)
INSTANTS = st.integers(0, 1_000)
LEVELS = st.lists(st.builds(QuotaLevel, INSTANTS, AMOUNTS, AMOUNTS, AMOUNTS), max_size=8).map(
    lambda levels: sorted(levels, key=lambda level: level.at)
)
CLUSTER = st.lists(
    st.one_of(
        INSTANTS,
        st.builds(ClusterLevel, INSTANTS, st.dictionaries(st.sampled_from(GpuState), AMOUNTS)),
    ),
    max_size=8,
).map(lambda levels: sorted(levels, key=lambda one: one if isinstance(one, int) else one.at))
WINDOWS = st.tuples(INSTANTS, INSTANTS).map(lambda pair: Window(*sorted(pair)))


def test_a_guarantee_comes_back_after_ten_minutes() -> None:
    """Quota b waits with 256 GPUs, of which a uses 64 beyond its own 448."""
    hour = between("08:00", "09:00")
    b = [
        QuotaLevel(at("08:00"), 0, 256 * CARD, 256 * CARD),
        QuotaLevel(at("08:10"), 256 * CARD, 256 * CARD, 256 * CARD),
    ]
    a = [
        QuotaLevel(at("08:00"), 512 * CARD, 448 * CARD, 512 * CARD),
        QuotaLevel(at("08:10"), 448 * CARD, 448 * CARD, 448 * CARD),
    ]
    of_b, of_a = integrate(b, hour), integrate(a, hour)
    assert (of_b.used, of_b.owed, of_b.borrowed) == (768_000_000_000, 153_600_000_000, 0)
    assert (of_a.used, of_a.owed, of_a.borrowed) == (1_651_200_000_000, 0, 38_400_000_000)
    assert (format_hours(of_b.owed), format_hours(of_a.borrowed)) == ("42.667", "10.667")
    assert (format_hours(of_b.used), format_hours(of_a.used)) == ("213.333", "458.667")


def test_what_nobody_asks_for_is_idle_and_not_owed() -> None:
    level = QuotaLevel(at("08:00"), 2 * CARD, 8 * CARD, 3 * CARD)
    time = integrate([level], between("08:00", "08:01"))
    minute = 60_000 * CARD
    assert (time.within_min, time.owed, time.idle_min) == (2 * minute, minute, 5 * minute)


@given(LEVELS, WINDOWS)
def test_each_instant_of_a_guarantee_is_used_owed_or_idle(
    levels: list[QuotaLevel], window: Window
) -> None:
    time = integrate(levels, window)
    assert time.within_min + time.owed + time.idle_min == time.guaranteed
    assert time.within_min + time.borrowed == time.used
    assert min(time.used, time.owed, time.idle_min, time.borrowed) >= 0


@given(LEVELS, WINDOWS, INSTANTS)
def test_the_time_of_a_quota_can_be_cut_anywhere(
    levels: list[QuotaLevel], window: Window, cut: int
) -> None:
    middle = min(max(cut, window.start), window.end)
    halves = (Window(window.start, middle), Window(middle, window.end))
    assert integrate(levels, window) == sum(
        (integrate(levels, half) for half in halves), QuotaTime()
    )


def test_gpus_of_a_node_that_comes_late_count_from_then_on() -> None:
    levels = [
        ClusterLevel(at("08:00"), {GpuState.USED: 6 * CARD, GpuState.IDLE: 2 * CARD}),
        ClusterLevel(at("08:30"), {GpuState.USED: 6 * CARD, GpuState.IDLE: 10 * CARD}),
    ]
    time = integrate_cluster(levels, between("08:00", "09:00"))
    assert format_hours(time.held[GpuState.IDLE]) == "6.000"
    assert format_hours(time.capacity) == "12.000"
    assert time.unseen == 0


def test_while_nobody_watches_nothing_is_claimed() -> None:
    levels = [ClusterLevel(at("08:10"), {GpuState.USED: CARD}), at("08:20"), at("08:25")]
    time = integrate_cluster(levels, between("08:00", "09:00"))
    assert format_hours(time.held[GpuState.USED]) == "0.167"
    assert time.unseen == 50 * 60_000


ROWS = st.integers(0, 5).flatmap(
    lambda n: st.tuples(*(st.lists(AMOUNTS, min_size=n, max_size=n) for _ in range(3)))
)


@given(ROWS, AMOUNTS)
def test_what_is_lent_is_the_sum_of_the_loans(
    rows: tuple[list[int], list[int], list[int]], total: int
) -> None:
    used, floors, idle = rows
    loans = Counter[int]()
    for lender, _, amount in lend(used, floors, total, idle):
        loans[lender] += amount
    assert lend_in_all(used, floors, total, idle) == [loans[row] for row in range(len(idle))]


def test_every_gpu_is_in_one_state() -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n0").gpu(8).build())
    state.upsert_node(make_node("n1").gpu(8).unschedulable().build())
    state.upsert_node(make_node("n2").resource("nvidia.com/mig-1g.10gb", 7).build())
    state.upsert_pod(make_pod("w-0").gpu(3).running("n0").build())
    state.upsert_pod(make_pod("w-1").gpu(2).running("n1").build())
    state.upsert_pod(make_pod("hold").gpu(1).running("n0").handling(Handling.RESERVE).build())
    levels = find_cluster_levels(state)
    assert sum(sum(states.values()) for states in levels.values()) == 17 * CARD
    gpus = levels["nvidia.com/gpu"]
    assert (gpus[GpuState.USED], gpus[GpuState.RESERVED]) == (5 * CARD, CARD)
    assert (gpus[GpuState.DOWN], gpus[GpuState.IDLE]) == (6 * CARD, 4 * CARD)


@given(CLUSTER, WINDOWS, INSTANTS)
def test_states_add_up_to_capacity_times_time(
    levels: list[ClusterLevel | int], window: Window, cut: int
) -> None:
    time = integrate_cluster(levels, window)
    exact: Counter[GpuState] = Counter()
    unseen = 0
    for instant in range(window.start, window.end):
        before = [one for one in levels if (one if isinstance(one, int) else one.at) <= instant]
        if before and isinstance(before[-1], ClusterLevel):
            exact.update(before[-1].milli_gpus)
        else:
            unseen += 1
    assert dict(time.held) == {state: exact[state] for state in GpuState}
    assert (time.capacity, time.unseen) == (exact.total(), unseen)
    middle = min(max(cut, window.start), window.end)
    first = integrate_cluster(levels, Window(window.start, middle))
    second = integrate_cluster(levels, Window(middle, window.end))
    assert time.capacity == first.capacity + second.capacity


NODES = st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=3)
"""GPUs, and whether it is cordoned."""
PODS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.booleans()), max_size=3)
"""On which node, GPUs, and whether it only holds room; more than the node has is a lie."""


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.tuples(NODES, PODS, st.integers(1, 60_000)), min_size=1, max_size=3))
def test_the_table_of_the_cluster_is_capacity_times_time_whatever_comes_and_goes(
    looks: list[tuple[list[tuple[int, bool]], list[tuple[int, int, bool]], int]],
) -> None:
    now, told, capacity = at("08:00"), 0, 0
    for nodes, pods, span in looks:
        state = make_cluster().state
        for number, (gpus, is_cordoned) in enumerate(nodes):
            node = make_node(f"n{number}").gpu(gpus)
            state.upsert_node((node.unschedulable() if is_cordoned else node).build())
        for number, (on, gpus, is_hold) in enumerate(pods):
            pod = make_pod(f"p{number}").gpu(gpus).running(f"n{on}")
            state.upsert_pod((pod.handling(Handling.RESERVE) if is_hold else pod).build())
        level = UsageLevels(now, {}, find_cluster_levels(state))
        now += span
        for part in integrate_levels(level, now):
            told += sum(states.total() for states in part.cluster.values())
        capacity += sum(gpus for gpus, _ in nodes) * CARD * span
    assert told == capacity
