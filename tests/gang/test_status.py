"""The status of a gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_pod, make_pod_group, make_pods
from tests.gang.test_quorum import make_book

from koord.core.gang.cache import GangCache
from koord.core.gang.reasons import (
    AllBound,
    AtStrength,
    BelowMin,
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingMembers,
    PartiallyBound,
    Reached,
    ScheduleTimeout,
    SpecValid,
    WithinTime,
)
from koord.core.gang.start import BindRecord, make_bind_record, make_start_id
from koord.core.gang.status import ConditionType, GangStatus, MemberCounts, observe
from koord.core.model.gangs import BadValue, DeprecatedKey, GangMembership, GangPhase, GangSource
from koord.core.model.pods import PodPhase
from koord.core.model.reasons import Planned, RefusedByScheduler

if TYPE_CHECKING:
    from koord.core.model.pods import Pod
    from koord.core.model.reasons import Reason

A, B = "default/a", "default/b"


def make_member(name: str, plan: str = "plan-1", node: str = "n1") -> PodBuilder:
    return make_pod(name).gang(A).released(node, plan, A, 2)


def condition(status: GangStatus, kind: ConditionType) -> tuple[bool, Reason] | None:
    return next(((is_true, why) for name, is_true, why in status.conditions if name == kind), None)


def test_status_of_an_incomplete_gang() -> None:
    book = make_book(make_pods("a", 3, A), [make_pod_group(A, 4).total(6).build()])
    status = observe(book, A, now=100.0)
    assert status.phase is GangPhase.PENDING
    assert status.members == MemberCounts(6, 3, 3, 0, 0, 0, 0, 0, 0)
    assert status.conditions == (
        (ConditionType.QUORUM_REACHED, False, MissingMembers((GangCount(A, 3, 4),))),
        (ConditionType.SPEC_VALID, True, SpecValid()),
        (ConditionType.DEGRADED, False, AtStrength(has_minimum=False)),
        (ConditionType.TIMEOUT, False, WithinTime(600)),
    )
    assert (status.timeout_at, status.schedule_start, status.incarnation) == (None, None, "")


def test_unplaced_complete_gang_times_out() -> None:
    book = make_book(make_pods("a", 4, A), [make_pod_group(A, 4).wait(60).build()])
    status = observe(book, A, now=62.0)
    assert status.phase is GangPhase.PRE_SCHEDULING
    assert status.timeout_at == 63.0, "the fourth member came at 3"
    assert condition(status, ConditionType.TIMEOUT) == (False, WithinTime(60))
    status = observe(book, A, now=73.5)
    assert condition(status, ConditionType.TIMEOUT) == (True, ScheduleTimeout(70, 60))
    assert condition(status, ConditionType.PLACED) is None


def test_status_of_a_released_gang() -> None:
    pods = [
        make_member("a-0", node="n1").build(),
        make_member("a-1", node="n2").bound("n2").build(),
    ]
    status = observe(make_book(pods, [make_pod_group(A, 2).build()]), A, now=9.0)
    assert status.phase is GangPhase.SCHEDULING
    assert status.schedule_start == 9.0
    assert (status.members.planned, status.members.bound, status.members.held) == (1, 1, 0)
    assert condition(status, ConditionType.PLACED) == (True, Planned(2, 2, "plan-1"))
    assert condition(status, ConditionType.BOUND) == (False, PartiallyBound(1, 2))
    assert condition(status, ConditionType.DEGRADED) == (False, AtStrength(has_minimum=True))
    assert (status.incarnation, status.nodes) == ("plan-1", ("n1", "n2"))


def test_reported_refusal_overrides_placed_of_unbound_members() -> None:
    group = make_pod_group(A, 2)._set(attempts=1).build()
    released = [make_member("a-0").build(), make_member("a-1").build()]
    assert (
        condition(observe(make_book(released, [group]), A, now=9.0), ConditionType.PLACED) is None
    )
    bound = [make_member("a-0").running("n1").build(), make_member("a-1").running("n1").build()]
    said = condition(observe(make_book(bound, [group]), A, now=9.0), ConditionType.PLACED)
    assert said is not None
    assert said[0]


def test_members_placed_by_others_are_counted() -> None:
    pods = [
        make_member("a-0").running("n1").build(),
        make_pod("a-1").gang(A).running("n2").build(),
    ]
    status = observe(make_book(pods, [make_pod_group(A, 2).build()]), A, now=9.0)
    assert condition(status, ConditionType.PLACED) == (True, Planned(2, 2, "plan-1", by_others=1))


def test_status_of_a_bound_gang() -> None:
    pods = [make_member(f"a-{i}").running("n1").build() for i in range(2)]
    group = make_pod_group(A, 2).phase(GangPhase.SCHEDULED).schedule_start(5).build()
    status = observe(make_book(pods, [group]), A, now=9.0)
    assert (status.phase, status.schedule_start) == (GangPhase.RUNNING, 5)
    assert condition(status, ConditionType.BOUND) == (True, AllBound(2, 2))


def test_compat_leaves_a_settled_gang_alone() -> None:
    pods = [make_member(f"a-{i}").running("n1").build() for i in range(2)]
    group = make_pod_group(A, 2).phase(GangPhase.SCHEDULED)._set(is_settled=True).build()
    for compat, phase in ((True, GangPhase.SCHEDULED), (False, GangPhase.RUNNING)):
        assert observe(make_book(pods, [group], compat=compat), A, now=9.0).phase is phase


def test_gang_that_lost_a_member_is_degraded_and_keeps_its_incarnation() -> None:
    pods = [
        make_member("a-0").running("n1").created(1).build(),
        make_member("a-1", plan="plan-2").running("n1").created(5).build(),
    ]
    group = make_pod_group(A, 3).phase(GangPhase.RUNNING).build()
    status = observe(make_book(pods, [group]), A, now=9.0)
    assert status.phase is GangPhase.SCHEDULING
    assert condition(status, ConditionType.DEGRADED) == (True, BelowMin(2, 3))
    assert condition(status, ConditionType.BOUND) == (False, PartiallyBound(2, 3))
    assert (status.incarnation, status.plan_id) == ("plan-1", "plan-2")


def test_finished_gang_is_neither_degraded_nor_timed_out() -> None:
    pods = [make_member(f"a-{i}").bound("n1").phase(PodPhase.SUCCEEDED).build() for i in range(2)]
    group = make_pod_group(A, 2).phase(GangPhase.RUNNING).build()
    status = observe(make_book(pods, [group]), A, now=9999.0)
    assert status.phase is GangPhase.FINISHED
    assert condition(status, ConditionType.BOUND) == (True, AllBound(2, 2))
    assert condition(status, ConditionType.DEGRADED) == (False, AtStrength(has_minimum=True))
    assert condition(status, ConditionType.TIMEOUT) == (False, WithinTime(600))


def test_members_that_have_succeeded_are_not_missing() -> None:
    ended = make_member("a-0").bound("n1").phase(PodPhase.SUCCEEDED).build()
    pods = [ended, make_member("a-1").running("n1").build()]
    status = observe(make_book(pods, [make_pod_group(A, 2).build()]), A, now=9.0)
    quorum = Reached((GangCount(A, 2, 2, done=1),))
    assert condition(status, ConditionType.QUORUM_REACHED) == (True, quorum)


def test_invalid_settings_are_reported() -> None:
    bad = BadValue("k", "v", "default", "is odd")
    group = make_pod_group(A, 1)._set_spec(bad_values=(bad,)).build()
    status = observe(make_book((), [group]), A, now=0.0)
    assert condition(status, ConditionType.SPEC_VALID) == (False, InvalidAnnotation((bad,)))


def test_member_that_kube_scheduler_cannot_bind_is_lost() -> None:
    left = make_member("a-1").not_ours()._set(pinned=True)
    pods = [make_member("a-0").running("n1").build(), left.build()]
    book = make_book(pods, [make_pod_group(A, 2).build()])
    status = observe(book, A, 0.0)
    assert condition(status, ConditionType.DEGRADED) == (False, AtStrength(has_minimum=True))
    said = "0/2 nodes are available"
    book.upsert_pod(left._set(is_unschedulable=True, scheduler_message=said).build())
    status = observe(book, A, 0.0)
    refused = RefusedByScheduler("default/a-1", "n1", said)
    assert condition(status, ConditionType.DEGRADED) == (True, BelowMin(1, 2, refused=refused))
    assert f"does not bind it: {said}; " in BelowMin(1, 2, refused=refused).text()
    assert condition(status, ConditionType.PLACED) is None


def test_deprecated_keys_on_members_are_reported() -> None:
    used = DeprecatedKey("old", "new")
    claim = GangMembership(A, GangSource.ANNOTATION, None, (), (used,))
    pods = [make_pod(f"a-{i}")._set(gang=claim).build() for i in range(2)]
    status = observe(make_book(pods, [make_pod_group(A, 2).build()]), A, now=0.0)
    assert condition(status, ConditionType.SPEC_VALID) == (True, SpecValid((used,)))


def test_one_sided_listing_makes_the_spec_invalid_not_the_quorum() -> None:
    groups = [make_pod_group(A, 1).group(A, B).build(), make_pod_group(B, 1).build()]
    book = make_book(make_pods("a", 1, A), groups)
    status = observe(book, A, now=0.0)
    assert condition(status, ConditionType.SPEC_VALID) == (False, InconsistentGroup(A, (B,)))
    assert condition(status, ConditionType.QUORUM_REACHED) == (
        True,
        Reached((GangCount(A, 1, 1),)),
    )
    assert condition(observe(book, B, now=0.0), ConditionType.SPEC_VALID) == (True, SpecValid())


def test_own_one_sided_listing_is_named_first() -> None:
    c = "default/c"
    groups = [
        make_pod_group(A).group(A, B, c).build(),
        make_pod_group(B).group(A, B, c).build(),
        make_pod_group(c).build(),
    ]
    book = make_book((), groups)
    for key in (A, B):
        status = observe(book, key, now=0.0)
        assert condition(status, ConditionType.SPEC_VALID) == (
            False,
            InconsistentGroup(key, (c,)),
        )


def test_members_of_other_schedulers_count_once_bound() -> None:
    pods = [make_pod("launcher").gang(A).not_ours().created(9).build(), *make_pods("a", 2, A)]
    book = make_book(pods, [make_pod_group(A, 2).wait(60).build()])
    status = observe(book, A, now=2.0)
    assert status.members.present == 2
    assert status.timeout_at == 61.0


def test_owners_are_those_of_the_oldest_pod() -> None:
    pods = [
        make_pod("young").gang(A).created(2).owners("job-y").build(),
        make_pod("old").gang(A).created(1).owners("job-x", "job-w").build(),
    ]
    group = make_pod_group(A, 2).phase(GangPhase.PENDING).occupied_by("before")
    assert observe(make_book(pods, [group.build()]), A, 0.0).occupied_by == (
        "default/job-w,default/job-x"
    )
    assert observe(make_book(pods[:1], [group.build()]), A, 0.0).occupied_by == "before"
    group.phase(GangPhase.PRE_SCHEDULING)
    assert observe(make_book(pods, [group.build()]), A, 0.0).occupied_by == "before"
    group.phase(GangPhase.PENDING)
    orphans = make_pods("a", 2, A)
    assert observe(make_book(orphans, [group.build()]), A, 0.0).occupied_by == "before"


def test_members_released_together_are_recorded_and_kept() -> None:
    pods = make_pods("a", 3, A)
    uids = {pod.uid for pod in pods[:2]}
    assert make_bind_record(pods[0], A, uids) == BindRecord(A, 2, make_start_id(frozenset(uids)))
    assert make_bind_record(pods[2], A, uids) is None
    assert make_bind_record(pods[0], A, {pods[0].uid}) is None
    assert make_bind_record(pods[0], "", uids) is None
    again = make_pod("a-0").gang(A).released("n1", "plan", A, 4).build()
    assert make_bind_record(again, A, {again.uid}) == BindRecord(A, 4)
    assert make_bind_record(again, f"{A},{B}", {again.uid}) is None


@given(st.permutations([make_member(f"a-{i}", f"plan-{i}").bound(f"n{i}").build() for i in "123"]))
def test_status_does_not_depend_on_order_of_arrival(pods: list[Pod]) -> None:
    group = make_pod_group(A, 4).build()
    in_order = sorted(pods, key=lambda pod: pod.uid)
    assert observe(make_book(pods, [group]), A, 7.0) == observe(
        make_book(in_order, [group]), A, 7.0
    )


def test_answers_for_a_group_are_computed_once() -> None:
    """Counting all members of a large group for each of its gangs would take minutes."""
    gangs = [f"default/g{i}" for i in range(3)]
    book = GangCache()
    for gang in gangs:
        book.upsert_pod_group(make_pod_group(gang, 2).group(*gangs).build())
    reasons = [
        reason
        for gang in gangs
        for kind, _, reason in observe(book, gang, 0.0).conditions
        if kind is ConditionType.QUORUM_REACHED
    ]
    assert all(reason is reasons[0] for reason in reasons)
