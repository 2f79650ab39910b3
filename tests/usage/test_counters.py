"""Counters of what pods hold, for whatever order of events."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_quota
from tests.usage.instants import CARD

from koord.core.engine.state import ClusterState
from koord.core.model.pods import PodPhase
from koord.core.usage import counters
from koord.core.usage.counters import (
    NOBODY,
    ResourceLabels,
    UsageCounters,
    UsageKind,
    UsageLabels,
)
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.domains.planning import PlanOptions
from koord.domains.usage import PLANNING

GPU = "nvidia.com/gpu"
A, B = UsageLabels("q", "a", "H100"), UsageLabels("q", "b", "H100")
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from(["p", "q", "r"]),
        st.sampled_from([A, B, None]),
        st.integers(0, 8_000),
    ),
    max_size=20,
)


@given(EVENTS, st.integers(0, 50))
def test_counters_are_what_is_held_at_every_instant(
    events: list[tuple[int, str, UsageLabels | None, int]], rest: int
) -> None:
    tally, exact = UsageCounters(), Counter[UsageLabels]()
    held: dict[str, tuple[UsageLabels, int]] = {}
    now = 1_000
    for pause, uid, labels, amount in (*events, (rest, "p", None, 0)):
        for row, milli_gpus in held.values():
            exact[row] += milli_gpus * pause
        now += pause
        if labels is None:
            tally.release(uid, now)
            held.pop(uid, None)
        else:
            tally.hold(uid, labels, amount, now)
            held[uid] = (labels, amount)
    assert {row: amount for row, amount in tally.collect(now) if amount} == +exact


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    tally = UsageCounters()
    tally.hold("p", A, CARD, 1_000)
    assert dict(tally.collect(2_000)) == {A: CARD * 1_000}
    assert dict(tally.collect(1_500)) == {A: CARD * 1_000}
    assert dict(tally.collect(2_500)) == {A: CARD * 1_500}


def test_names_that_somebody_makes_up_are_few_rows(monkeypatch) -> None:
    monkeypatch.setattr(counters, "MOST_ROWS", 3)
    tally = UsageCounters()
    for at in range(10):
        tally.hold(f"p{at}", UsageLabels("", f"ns-{at}", ""), CARD, 0)
    for at in range(10):
        tally.release(f"p{at}", 1_000)
    rows = dict(tally.collect(9_000))
    assert len(rows) == 4
    assert rows[NOBODY] == 7 * CARD * 1_000
    assert sum(rows.values()) == 10 * CARD * 1_000


def make_plugin() -> UsageTimes:
    plugins = PLANNING.make_plugins(PlanOptions(UsageOptions(is_on=True)))
    return next(plugin for plugin in plugins if isinstance(plugin, UsageTimes))


def make_state() -> ClusterState:
    plugin = make_plugin()
    state = make_cluster(more_plugins=[plugin]).state
    state.upsert_node(make_node("n0").gpu(8).label("nvidia.com/gpu.product", "H100").build())
    return state


def cycle(state: ClusterState, now: float) -> None:
    state.advance(now)
    state.refresh()


def held(state: ClusterState, now: float) -> dict[UsageLabels, int]:
    """Return GPU seconds."""
    rows = state.plugin(UsageTimes).collect(now)
    return {labels: amount // (CARD * 1_000) for labels, amount in rows}


H100 = UsageLabels("", "default", "H100")


def test_pods_count_from_the_cycle_that_sees_them_to_the_one_that_sees_them_end() -> None:
    state = make_state()
    assert held(state, 50.0) == {}
    pod = make_pod("w-0").gpu(2).running("n0").build()
    state.upsert_pod(pod)
    cycle(state, 100.0)
    assert held(state, 110.0) == {H100: 20}
    state.upsert_pod(replace(pod, phase=PodPhase.SUCCEEDED))
    cycle(state, 200.0)
    assert held(state, 900.0) == {H100: 200}


def test_a_pod_that_waits_counts_nothing_and_a_deleted_one_no_longer() -> None:
    state = make_state()
    state.upsert_pod(make_pod("w-0").gpu(2).build())
    running = make_pod("w-1").gpu(1).running("n0").build()
    state.upsert_pod(running)
    cycle(state, 100.0)
    state.remove_pod(running.uid)
    cycle(state, 130.0)
    assert held(state, 500.0) == {H100: 30}


def test_pods_that_move_to_another_quota_count_there_from_then_on() -> None:
    state = make_state()
    pod = make_pod("w-0").gpu(1).running("n0").quota("research").build()
    state.upsert_pod(pod)
    cycle(state, 100.0)
    upsert_quota(state, make_quota("research"))
    cycle(state, 160.0)
    rows = held(state, 170.0)
    assert rows[UsageLabels("research", "default", "H100")] == 10
    assert sum(rows.values()) == 70


def test_a_node_that_is_seen_after_its_pods_names_their_model() -> None:
    plugin = make_plugin()
    state = make_cluster(more_plugins=[plugin]).state
    state.upsert_pod(make_pod("w-0").gpu(1).running("n0").build())
    state.upsert_node(make_node("n0").gpu(8).label("nvidia.com/gpu.product", "H100").build())
    cycle(state, 100.0)
    assert held(state, 105.0) == {H100: 5}


def test_a_process_that_stands_by_counts_nothing() -> None:
    """It has no cycles, and so no time."""
    state = make_state()
    state.upsert_pod(make_pod("w-0").gpu(2).running("n0").build())
    state.refresh()
    assert held(state, 1_000.0) == {}


def amounts(state: ClusterState, now: float, kind: UsageKind) -> dict[str, int]:
    """Return GPU seconds by quota."""
    rows = state.plugin(UsageTimes).collect(now)
    return {
        labels.quota: amount // (CARD * 1_000) for labels, amount in rows if labels.kind == kind
    }


def test_what_a_quota_borrows_and_is_owed_is_counted() -> None:
    """One uses 6 of its 2, another asks for 5 of its 4 and has 2."""
    state = make_state()
    upsert_quota(state, make_quota("a", min={GPU: 2}, max={GPU: 8}))
    upsert_quota(state, make_quota("b", min={GPU: 4}, max={GPU: 8}))
    state.upsert_pod(make_pod("w-0").gpu(6).running("n0").quota("a").build())
    state.upsert_pod(make_pod("w-1").gpu(2).running("n0").quota("b").build())
    state.upsert_pod(make_pod("w-2").gpu(3).quota("b").build())
    cycle(state, 100.0)
    assert amounts(state, 110.0, UsageKind.BORROWED) == {"a": 40}
    assert amounts(state, 110.0, UsageKind.OWED) == {"b": 20}
    assert amounts(state, 110.0, UsageKind.IDLE) == {}


def test_what_nobody_asks_for_is_idle_and_may_be_lent() -> None:
    state = make_state()
    upsert_quota(state, make_quota("a", min={GPU: 2}, max={GPU: 8}))
    upsert_quota(state, make_quota("b", min={GPU: 6}, max={GPU: 8}))
    state.upsert_pod(make_pod("w-0").gpu(6).running("n0").quota("a").build())
    cycle(state, 100.0)
    assert amounts(state, 110.0, UsageKind.IDLE) == {"b": 60}
    assert amounts(state, 110.0, UsageKind.LENT) == {"b": 40}


def test_work_of_an_evicted_pod_is_lost_since_it_was_saved() -> None:
    state = make_state()
    victim = replace(
        make_pod("w-0").gpu(2).running("n0").build(),
        bound=40.0,
        checkpointed=70.0,
        disruption="EvictionByEvictionAPI",
    )
    state.upsert_pod(victim)
    state.upsert_pod(replace(victim, uid="done", name="done", phase=PodPhase.RUNNING))
    cycle(state, 90.0)
    state.remove_pod(victim.uid)
    state.upsert_pod(replace(victim, uid="done", name="done", phase=PodPhase.SUCCEEDED))
    cycle(state, 100.0)
    assert amounts(state, 500.0, UsageKind.LOST) == {"": 60}


def test_cpus_and_memory_are_counted_by_namespace() -> None:
    state = make_state()
    state.upsert_pod(make_pod("w-0").resource("cpu", 2_000).running("n0").build())
    cycle(state, 100.0)
    rows = dict(state.plugin(UsageTimes).collect_resources(110.0))
    assert rows[ResourceLabels("", "default", "cpu")] == 2_000 * 10_000


def test_seven_slices_make_a_gpu_however_they_come() -> None:
    state = make_state()
    for at in range(7):
        pod = make_pod(f"s-{at}").resource("nvidia.com/mig-1g.10gb", 1).running("n0")
        state.upsert_pod(pod.build())
    cycle(state, 100.0)
    rows = dict(state.plugin(UsageTimes).collect(101.0))
    assert sum(rows.values()) == CARD * 1_000


def test_off_there_is_no_plugin() -> None:
    plugins = PLANNING.make_plugins(PlanOptions())
    assert not any(isinstance(plugin, UsageTimes) for plugin in plugins)
