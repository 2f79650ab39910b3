"""Nobody waits for ever for pods that do not go, and no pod is protected by not going."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit

from koord.answers.reason_context import ContextFinder
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Exempt, Preemption
from koord.core.eviction.reasons import TerminationStuck, WaitsForTermination
from koord.core.eviction.search import PreemptionContext, plan_preemption
from koord.core.model.patience import Hanging, Patience
from koord.core.model.pods import Pod, PreemptedBy
from koord.core.model.reasons import Reason
from koord.core.quota.entitlement import ReclaimSetting

NOW = 10_000.0
PATIENCE = Patience(stuck_after=60, grace_limit=300, ask_limit=100)
YEARS = 1e9


def running(name: str, node: str, priority: int = 1, **fields: object) -> Pod:
    pod = make_pod(name).priority(priority).gpu(8).released(node, "p").running(node).build()
    return replace(pod, **fields)  # type: ignore[arg-type]


def deleted(pod: Pod, at: float, grace: float = 30.0, **fields: object) -> Pod:
    times = {"deleted": at, "gone_by": at + grace, "is_terminating": True}
    return replace(pod, **times, **fields)  # type: ignore[arg-type]


def search(
    state: ClusterState, priority: int = 10, pods: int = 1, *, now: float = NOW, since: float = 0.0
) -> Preemption | Reason:
    wanted = [make_pod(f"high-{at}").priority(priority).gpu(8) for at in range(pods)]
    unit = replace(make_unit("high", wanted), since=since)
    return plan_preemption(
        state, unit, exempt=Exempt(patience=PATIENCE), context=PreemptionContext(now=now)
    )


def victims(answer: Preemption | Reason) -> list[str]:
    assert isinstance(answer, Preemption), answer
    return sorted(pod.name for pod in answer.pods)


@pytest.mark.parametrize(
    ("fields", "leaves_by"),
    [
        ({"gone_by": 130.0, "deleted": 100.0}, 190.0),
        ({"gone_by": YEARS, "deleted": 100.0}, 460.0),
        ({"marked": 100.0}, 560.0),
        ({}, float("inf")),
    ],
)
def test_a_pod_is_waited_for_until(fields: dict[str, float], leaves_by: float) -> None:
    pod = replace(running("p", "n0"), is_terminating=True, **fields)  # type: ignore[arg-type]
    assert PATIENCE.leaves_by(pod) == leaves_by
    assert not PATIENCE.hangs(pod, leaves_by)
    assert leaves_by > YEARS or PATIENCE.hangs(pod, leaves_by + 1)


@given(
    at=st.floats(1, NOW),
    grace=st.floats(0, YEARS),
    now=st.floats(0, 2 * YEARS),
)
def test_what_an_owner_writes_delays_nobody_longer_than_the_settings_say(
    at: float, grace: float, now: float
) -> None:
    pod = deleted(running("p", "n0"), at, grace, finalizers=("x/y",))
    longest = PATIENCE.grace_limit + PATIENCE.stuck_after
    assert PATIENCE.hangs(pod, now) or now <= at + longest + 1e-3


def test_others_are_preempted_once_a_pod_hangs() -> None:
    ghost = running("ghost", "n0", finalizers=("evil/hold",))
    fresh = make_cluster(2).pods(deleted(ghost, NOW - 80), running("low", "n1"))
    answer = search(fresh.state)
    assert answer == WaitsForTermination(("default/ghost",), NOW - 80 + 90)
    late = make_cluster(2).pods(deleted(ghost, NOW - 91), running("low", "n1"))
    assert victims(search(late.state)) == ["low"]


@pytest.mark.parametrize("pods", [1, 2])
def test_a_unit_waits_for_pods_that_leave_until_one_deadline_in_all(pods: int) -> None:
    # One pod after the other is deleted, each before the one that was waited for hangs.
    held = {"finalizers": ("evil/hold",)}
    chain = [
        deleted(running(f"ghost-{at}", f"n{at}", 20, **held), NOW - 95 + at * 40 // pods)
        for at in range(3 * pods)
    ]
    low = [running(f"low-{at}", f"n{3 * pods + at}") for at in range(pods)]
    cluster = make_cluster(4 * pods).pods(*chain, *low)
    answer = search(cluster.state, pods=pods, now=NOW - 20)
    assert isinstance(answer, WaitsForTermination), "nobody hangs yet"
    answer = search(cluster.state, pods=pods, now=NOW + 20 * pods)
    assert victims(answer) == [f"low-{at}" for at in range(pods)]


def test_a_unit_that_has_just_come_waits_although_others_hang() -> None:
    held = {"finalizers": ("evil/hold",)}
    chain = [
        deleted(running("old", "n0", 20, **held), NOW - 1000),
        deleted(running("new", "n1", 20, **held), NOW - 10),
    ]
    state = make_cluster(3).pods(*chain, running("low", "n2")).state
    assert isinstance(search(state, since=NOW - 5), WaitsForTermination)
    assert victims(search(state, since=NOW - 2000)) == ["low"]


def test_small_pods_that_hang_make_nobody_impatient() -> None:
    tiny = make_pod("tiny").gpu(1).released("n0", "p").running("n0").build()
    chain = [deleted(tiny, NOW - 1000), deleted(running("leaves", "n1", 20), NOW - 10)]
    state = make_cluster(3).pods(*chain, running("stays", "n0", 20), running("low", "n2")).state
    assert isinstance(search(state), WaitsForTermination)


def test_a_grace_period_of_years_is_waited_for_like_any_other() -> None:
    ghost = deleted(running("ghost", "n0"), NOW - 361, YEARS)
    assert victims(search(make_cluster(2).pods(ghost, running("low", "n1")).state)) == ["low"]


def test_the_reason_names_who_hangs_and_nobody_goes_in_vain() -> None:
    ghost = deleted(running("ghost", "n0", finalizers=("evil/hold",)), NOW - 100)
    answer = search(make_cluster(2).pods(ghost, running("low", "n1")).state, pods=2)
    assert answer == TerminationStuck((Hanging("default/ghost", ("evil/hold",)),))
    assert "default/ghost (finalizer evil/hold)" in answer.text()
    assert answer.is_capacity
    # It is not they who are in the way of what fits on no node.
    other = search(make_cluster(2).pods(ghost, running("low", "n1")).state, pods=3)
    assert not isinstance(other, TerminationStuck | Preemption)


@pytest.mark.parametrize("fields", [{"finalizers": ("x/y",)}, {"grace": int(YEARS)}])
def test_of_equal_victims_those_go_that_will_go_soon(fields: dict[str, object]) -> None:
    state = make_cluster(2).pods(running("a", "n1", **fields), running("b", "n0")).state
    assert victims(search(state)) == ["b"]


@pytest.mark.parametrize("fields", [{"finalizers": ("x/y",)}, {"grace": int(YEARS)}])
def test_a_finalizer_protects_nobody_at_the_cost_of_a_higher_priority(
    fields: dict[str, object],
) -> None:
    state = make_cluster(2).pods(running("lies", "n0", 1, **fields), running("mid", "n1", 2)).state
    assert victims(search(state)) == ["lies"]


def test_after_one_of_them_hangs_a_unit_turns_to_others_at_once() -> None:
    by = PreemptedBy("plan", "high", "default/high-0")
    liars = [running(f"lies-{at}", f"n{at}", 1, finalizers=("x/y",)) for at in range(4)]
    hangs = deleted(liars[0], NOW - 91, preempted_by=by)
    state = make_cluster(5).pods(hangs, *liars[1:], running("mid", "n4", 2)).state
    assert victims(search(state)) == ["mid"]
    # For another unit the cheapest are tried again: nobody is protected for good.
    for_other = replace(hangs, preempted_by=PreemptedBy("plan", "default/x", "default/x"))
    state.upsert_pod(for_other)
    assert victims(search(state))[0].startswith("lies")
    # Where nobody else is enough, they are tried again as well.
    state.upsert_pod(hangs)
    state.remove_pod("uid-default-mid")
    state.remove_node("n4")
    assert victims(search(state))[0].startswith("lies")


def test_whoever_waits_is_told_who_hangs_and_that_changes_with_the_time() -> None:
    ghost = deleted(running("ghost", "n0", finalizers=("evil/hold",)), NOW - 80)
    cluster = make_cluster(1).pods(ghost)
    unit = make_unit("equal", [make_pod("equal").gpu(8).priority(1)])
    refusal = cluster.plan(unit).refusals[0].reason
    now = NOW
    claims = ContextFinder(cluster.state, ReclaimSetting(patience=PATIENCE), clock=lambda: now)
    assert "ghost (" not in claims.add(unit, refusal).text()
    now = NOW + 60
    reason = claims.add(unit, refusal)
    assert "1 pod is still there long after the end of the grace period" in reason.text()
    assert "default/ghost (finalizer evil/hold)" in reason.text()
    assert "Look at the finalizers of default/ghost" in next(iter(reason.advice()))
