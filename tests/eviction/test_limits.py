"""The limits that all policies of eviction share, and the pauses after failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod

from koord.core.eviction.limits import EvictionLimit, EvictionLimits, LimitScope, Pauses
from koord.core.eviction.model import EvictionPlan
from koord.core.model.pods import OwnerReference


def plan(*pods: str, node: str = "n", policy: str = "toy", **more: str) -> EvictionPlan:
    """Return a plan for pods ``namespace/name``, or ``namespace/gang:name``."""
    built = []
    for text in pods:
        namespace, name = text.split("/")
        gang, _, name = name.rpartition(":")
        pod = make_pod(f"{namespace}/{name}")
        built.append((pod.gang(f"{namespace}/{gang}") if gang else pod).running(node).build())
    return EvictionPlan(policy, "k", tuple(built), **more)


@pytest.mark.parametrize(
    ("scope", "same", "other"),
    [
        (LimitScope.ALL, plan("a/x"), None),
        (LimitScope.NODE, plan("b/x"), plan("a/x", node="m")),
        (LimitScope.NAMESPACE, plan("a/x", node="m"), plan("b/x")),
        (LimitScope.NAMESPACE, plan("b/x", namespace="a"), plan("a/x", namespace="b")),
        (LimitScope.WORKLOAD, plan("a/g:x", node="m"), plan("a/h:x")),
        (LimitScope.QUOTA, plan("b/x", quota="q"), plan("a/x", quota="other")),
    ],
)
def test_what_a_limit_counts_together(
    scope: LimitScope, same: EvictionPlan, other: EvictionPlan | None
) -> None:
    limits = EvictionLimits([EvictionLimit(scope, 2)])
    limits.note(plan("a/g:0", "a/g:1", quota="q"), 0.0)
    assert not limits.allows(same, 59.0)
    assert limits.wait_until(same, 59.0) == 60.0
    assert limits.allows(same, 60.0)
    assert other is None or limits.allows(other, 1.0)


def test_evictions_of_others_who_name_the_same_controller_do_not_count() -> None:
    limits = EvictionLimits([EvictionLimit(LimitScope.WORKLOAD, 1)])
    owner = OwnerReference("web", "ReplicaSet", "apps/v1", "uid", is_controller=True)
    theirs, liar = (
        EvictionPlan("toy", "k", (replace(make_pod(name).build(), owners=(owner,)),))
        for name in ("a/x", "evil/y")
    )
    limits.note(liar, 0.0)
    assert limits.allows(theirs, 1.0)
    limits.note(theirs, 1.0)
    assert not limits.allows(theirs, 2.0)


def test_a_limit_is_for_one_policy_or_for_all_together() -> None:
    limits = EvictionLimits(
        [EvictionLimit(LimitScope.ALL, 1, "toy"), EvictionLimit(LimitScope.NODE, 2, seconds=10.0)]
    )
    limits.note(plan("a/x"), 0.0)
    assert not limits.allows(plan("a/y"), 1.0)
    assert limits.allows(plan("a/y", policy="another"), 1.0)
    limits.note(plan("a/y", policy="another"), 1.0)
    assert not limits.allows(plan("a/z", policy="another"), 2.0)
    assert limits.allows(plan("a/z", policy="another"), 10.0)


def test_a_plan_goes_as_a_whole_and_one_of_which_nobody_went_does_not_count() -> None:
    limits = EvictionLimits([EvictionLimit(LimitScope.NODE, 2), EvictionLimit(LimitScope.QUOTA, 0)])
    whole = plan("a/0", "a/1", "a/2")
    assert limits.allows(whole, 0.0)
    limits.note(whole, 0.0)
    assert not limits.allows(plan("a/3"), 1.0)
    limits.take_back(whole)
    assert limits.allows(plan("a/3"), 1.0)
    assert not limits.allows(plan("a/3", quota="q"), 1.0), "0 allows nobody"


def test_plans_count_whatever_becomes_of_them() -> None:
    limits = EvictionLimits([EvictionLimit(LimitScope.NAMESPACE, 1, counts_plans=True)])
    tried = plan("a/0", "a/1", namespace="a")
    limits.note(tried, 0.0)
    limits.take_back(tried)
    assert not limits.allows(plan("a/2"), 1.0)


@given(
    most=st.integers(1, 4),
    asked=st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from("ab")), max_size=60),
)
def test_no_minute_has_more_than_its_limit(most: int, asked: list[tuple[float, str]]) -> None:
    limits, now, gone = EvictionLimits([EvictionLimit(LimitScope.NAMESPACE, most)]), 0.0, []
    for pause, namespace in asked:
        now += pause
        wanted = plan(f"{namespace}/x")
        until = limits.wait_until(wanted, now)
        assert (until <= now) == limits.allows(wanted, now)
        assert limits.allows(wanted, until)
        if until <= now:
            limits.note(wanted, now)
            gone.append((now, namespace))
    for at, namespace in gone:
        recent = [then for then, there in gone if there == namespace and 0 <= at - then < 60]
        assert len(recent) <= most


def test_pauses_grow_and_are_forgotten() -> None:
    pauses = Pauses(2.0, 60.0, remembered=100.0)
    assert [pauses.note("a", 0.0) for _ in range(7)] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert pauses.note("b", 0.0, seconds=5.0) == 5.0
    assert (pauses.failures("a"), pauses.failures("b")) == (7, 0)
    assert pauses.active(5.0) == {"a"}
    pauses.drop_old(105.0)
    assert pauses.failures("a") == 7
    pauses.drop_old(160.0)
    assert pauses.failures("a") == 0
    pauses.note("a", 0.0)
    pauses.end("a")
    assert not pauses.active(0.0)
