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
from koord.core.usage.counters import NOBODY, UsageCounters, UsageLabels
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.domains.planning import PlanOptions
from koord.domains.usage import PLANNING

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


def make_state() -> ClusterState:
    (plugin,) = PLANNING.make_plugins(PlanOptions(UsageOptions(is_on=True)))
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
    (plugin,) = PLANNING.make_plugins(PlanOptions(UsageOptions(is_on=True)))
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


def test_off_there_is_no_plugin() -> None:
    assert list(PLANNING.make_plugins(PlanOptions())) == []
