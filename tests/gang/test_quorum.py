"""Which gangs may be planned, as which units, and why others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_pod, make_pod_group, make_pods

from koord.core.gang.cache import GangCache
from koord.core.gang.quorum import Ready, demands, find_quorum, is_satisfied
from koord.core.gang.reasons import (
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingGang,
    MissingMembers,
    MissingPodGroup,
    PodGroupsNotServed,
    Reached,
)
from koord.core.gang.start import Permit, PermitState, make_start_id, permit_member
from koord.core.model.gangs import (
    BadValue,
    GangMembership,
    GangSource,
    MatchPolicy,
    ObservedPodGroup,
)
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.reasons import TooLarge, WaitingForForeignGate
from koord.core.model.topology_constraint import GatherStrategy, LayerConstraint, TopologyConstraint

if TYPE_CHECKING:
    from collections.abc import Iterable

ONCE = MatchPolicy.ONCE_SATISFIED
ONLY_WAITING = MatchPolicy.ONLY_WAITING
WITH_RUNNING = MatchPolicy.WAITING_AND_RUNNING
A, B, C = "default/a", "default/b", "default/c"


def make_book(
    pods: Iterable[Pod] = (), pod_groups: Iterable[ObservedPodGroup] = (), *, compat: bool = False
) -> GangCache:
    book = GangCache(compat=compat)
    for pod_group in pod_groups:
        book.upsert_pod_group(pod_group)
    for pod in pods:
        book.upsert_pod(pod)
    return book


def make_started(name: str, gang: str = A, node: str = "n1") -> PodBuilder:
    """Start a member that we released and bound."""
    return make_pod(name).gang(gang).released(node, "plan-1", gang, 2).bound(node)


def ready(book: GangCache, key: str = A) -> Ready:
    verdict = demands(book, key)
    assert isinstance(verdict, Ready), verdict
    return verdict


def stand(policy: MatchPolicy, *, waiting: int, bound: int = 0) -> PermitState:
    return PermitState(min_member=3, policy=policy, waiting=waiting, bound=bound)


@pytest.mark.parametrize(
    ("standing", "satisfied", "permit"),
    [
        (stand(ONCE, waiting=2), "not yet", Permit.WAIT),
        (stand(ONCE, waiting=3), "not yet", Permit.GO),
        (stand(ONCE, waiting=1, bound=1), "before", Permit.GO),
        (stand(ONLY_WAITING, waiting=2, bound=1), "before", Permit.WAIT),
        (stand(ONLY_WAITING, waiting=3), "not yet", Permit.GO),
        (stand(WITH_RUNNING, waiting=2, bound=1), "before", Permit.GO),
        (stand(WITH_RUNNING, waiting=2, bound=1), "not yet", Permit.GO),
        (stand(WITH_RUNNING, waiting=1, bound=1), "before", Permit.WAIT),
        (stand(WITH_RUNNING, waiting=0, bound=5), "before", Permit.GO),
    ],
)
def test_permit_by_policy(standing: PermitState, satisfied: str, permit: Permit) -> None:
    for compat in (False, True):
        one = replace(standing, is_satisfied=satisfied == "before")
        answer = permit_member(one, [one], compat=compat)
        assert answer is permit


def test_permit_counts_members_bound_by_others_unless_compat() -> None:
    standing = stand(ONCE, waiting=2, bound=1)
    assert permit_member(standing, [standing]) is Permit.GO
    assert permit_member(standing, [standing], compat=True) is Permit.WAIT


def test_permit_asks_every_gang_of_the_group() -> None:
    enough = PermitState(min_member=2, policy=ONCE, waiting=2, bound=0)
    short = PermitState(min_member=2, policy=ONCE, waiting=1, bound=0)
    assert permit_member(enough, [enough, short]) is Permit.WAIT
    assert permit_member(enough, [enough, enough]) is Permit.GO
    assert permit_member(enough, [enough, None]) is Permit.WAIT
    assert permit_member(None, []) is Permit.UNKNOWN_GANG


def test_gang_below_its_minimum_waits() -> None:
    book = make_book(make_pods("a", 3, A), [make_pod_group(A, 4).build()])
    assert demands(book, A) == MissingMembers((GangCount(A, 3, 4),))


def test_complete_gang_is_one_unit() -> None:
    book = make_book(make_pods("a", 5, A), [make_pod_group(A, 4).build()])
    (unit,) = ready(book).units
    assert (unit.key, unit.group, unit.required, unit.is_repair) == (A, A, 4, False)
    assert [pod.name for pod in unit.pods] == [f"a-{i}" for i in range(5)]
    assert unit.since == 3.0, "the fourth member completed the quorum"


def test_members_are_ordered_by_priority_then_age_then_name() -> None:
    pods = [
        make_pod("c").gang(A).created(1).build(),
        make_pod("b").gang(A).created(1).build(),
        make_pod("old").gang(A).created(0).build(),
        make_pod("vip").gang(A).created(9).priority(7).build(),
    ]
    (unit,) = ready(make_book(pods, [make_pod_group(A, 4).build()])).units
    assert [pod.name for pod in unit.pods] == ["vip", "old", "b", "c"]
    assert unit.priority == 7


def test_group_is_one_unit() -> None:
    groups = [make_pod_group(A, 2).group(A, B).build(), make_pod_group(B, 2).group(A, B).build()]
    book = make_book([*make_pods("a", 3, A), *make_pods("b", 1, B)], groups)
    short = MissingMembers((GangCount(B, 1, 2),))
    assert (demands(book, A), demands(book, B)) == (short, short)
    book.upsert_pod(make_pod("b-1").gang(B).created(50).build())
    (unit,) = ready(book).units
    assert ready(book, B).units == (unit,)
    assert unit.key == f"{A},{B}"
    assert [(demand.gang, len(demand.pods), demand.required) for demand in unit.demands] == [
        (A, 3, 2),
        (B, 2, 2),
    ]
    assert unit.since == 50.0


@pytest.mark.parametrize("gone", ["terminating", "succeeded", "failed"])
def test_terminating_members_do_not_count(gone: str) -> None:
    leaver = make_pod("gone").gang(A)
    if gone == "terminating":
        leaver.terminating()
    else:
        leaver.phase(PodPhase(gone.capitalize()))
    book = make_book([leaver.build(), *make_pods("a", 1, A)], [make_pod_group(A, 2).build()])
    assert demands(book, A) == MissingMembers((GangCount(A, 1, 2),))


def test_members_placed_by_others_count_once_bound() -> None:
    launcher = make_pod("launcher").gang(A).not_ours()
    book = make_book([launcher.build(), *make_pods("a", 3, A)], [make_pod_group(A, 4).build()])
    assert demands(book, A) == MissingMembers((GangCount(A, 3, 4, strangers=1),))
    book.upsert_pod(launcher.bound("n1").not_ours().build())
    (unit,) = ready(book).units
    assert (unit.required, unit.is_repair) == (3, False), "all or nothing, and no head start"
    assert not is_satisfied(book, A)
    upstream = make_book([launcher.build()], [make_pod_group(A, 4).build()], compat=True)
    assert is_satisfied(upstream, A)


def test_pinned_member_of_another_scheduler_is_placed() -> None:
    left = make_pod("a-0").gang(A).released("n1", "plan-1", A, 2).not_ours().build()
    book = make_book([left, *make_pods("new", 1, A)], [make_pod_group(A, 2).build()])
    assert is_satisfied(book, A)
    (unit,) = ready(book).units
    assert (unit.key, unit.is_repair) == ("uid-default-new-0", True)


def test_replacements_of_a_started_gang_are_single_pods() -> None:
    pods = [make_started("a-0").build(), *make_pods("new", 2, A)]
    book = make_book(pods, [make_pod_group(A, 3).build()])
    units = ready(book).units
    assert [(unit.key, unit.group, unit.required, unit.is_repair) for unit in units] == [
        ("uid-default-new-0", A, 1, True),
        ("uid-default-new-1", A, 1, True),
    ]


def test_surplus_of_a_complete_gang_is_no_repair() -> None:
    pods = [make_started("a-0").build(), make_started("a-1").build(), *make_pods("new", 1, A)]
    (unit,) = ready(make_book(pods, [make_pod_group(A, 2).build()])).units
    assert (unit.key, unit.is_repair) == ("uid-default-new-0", False)


def test_succeeded_members_need_no_repair() -> None:
    done = make_started("a-1").phase(PodPhase.SUCCEEDED).build()
    pods = [make_started("a-0").build(), done, *make_pods("new", 1, A)]
    (unit,) = ready(make_book(pods, [make_pod_group(A, 2).build()])).units
    assert not unit.is_repair


def test_recreated_gang_needs_its_quorum_again() -> None:
    book = make_book([make_started("a-0").build()], [make_pod_group(A, 2).build()])
    assert is_satisfied(book, A)
    book.upsert_pod(make_started("a-0").terminating().build())
    book.upsert_pod(make_pod("a-0").uid("second-life").gang(A).build())
    assert demands(book, A) == MissingMembers((GangCount(A, 1, 2),))


@pytest.mark.parametrize("group", ["", B, "default/ab", "default/a-b"])
def test_member_released_with_another_gang_proves_no_start(group: str) -> None:
    stray = make_pod("b-0").gang(A).released("n1", "plan-1", group, 2).running("n1").build()
    book = make_book([stray, *make_pods("new", 1, A)], [make_pod_group(A, 3).build()])
    assert not is_satisfied(book, A)
    assert demands(book, A) == MissingMembers((GangCount(A, 2, 3),))
    book.upsert_pod(make_pod("new-1").gang(A).build())
    (unit,) = ready(book).units
    assert (unit.required, len(unit.pods)) == (2, 2)


def test_members_of_one_started_group_may_change_places() -> None:
    moved = make_pod("a-0").gang(B).released("n1", "plan-1", f"{A},{B}", 4).running("n1").build()
    assert is_satisfied(make_book([moved], [make_pod_group(B, 3).build()]), B)


def test_waiting_and_running_counts_survivors() -> None:
    group = make_pod_group(A, 3).match_policy(WITH_RUNNING).build()
    book = make_book([make_started("a-0").build(), *make_pods("new", 1, A)], [group])
    assert demands(book, A) == MissingMembers((GangCount(A, 2, 3),))
    book.upsert_pod(make_pod("new-1").gang(A).build())
    (unit,) = ready(book).units
    assert (unit.key, unit.required, unit.is_repair) == (A, 2, True)


def test_only_waiting_gang_interrupted_after_release_starts_the_rest() -> None:
    """Released members start with those of the same plan that have nodes."""
    groups = [make_pod_group(gang, 2).match_policy(ONLY_WAITING).group(A, B) for gang in (A, B)]
    rest = [make_pod(name).gang(B).released("n1", "plan-1", f"{A},{B}", 4) for name in ("y", "z")]
    pods = [make_started("w").build(), make_started("x").build(), *(one.build() for one in rest)]
    verdict = demands(make_book(pods, [group.build() for group in groups]), B)
    assert isinstance(verdict, Ready)
    (unit,) = verdict.units
    assert [pod.name for pod in unit.pods] == ["y", "z"]
    assert unit.required == 2


@pytest.mark.parametrize(
    ("name", "created", "member_count", "is_ready"),
    [
        pytest.param("x", 5.0, 2, True, id="released by the same plan"),
        pytest.param("x", 4.0, 2, True, id="older than the youngest of the plan"),
        pytest.param("x", 5.5, 2, False, id="created after the plan"),
        pytest.param("y", 5.0, 2, False, id="a replacement created within the same second"),
        pytest.param("x", 5.0, 1, False, id="the start was complete"),
    ],
)
def test_only_waiting_gang_interrupted_by_a_crash_starts_its_remaining_members(
    name: str,
    created: float,
    member_count: int,
    is_ready: bool,  # noqa: FBT001
) -> None:
    """A crash may come when one member has a node and the others are not written to yet."""
    group = make_pod_group(A, 2).match_policy(ONLY_WAITING).build()
    start = make_start_id(frozenset({"uid-default-w", "uid-default-x"}))
    first = make_pod("w").gang(A)
    first = first.released("n1", "plan-1", A, member_count, 2, youngest=5.0, start_id=start)
    other = make_pod(name).gang(A).created(created)
    verdict = demands(make_book([first.running("n1").build(), other.build()], [group]), A)
    assert isinstance(verdict, Ready) is is_ready


def test_only_waiting_gang_recorded_without_start_id_accepts_only_older_members() -> None:
    group = make_pod_group(A, 2).match_policy(ONLY_WAITING).build()
    first = make_pod("w").gang(A).released("n1", "plan-1", A, 2, 2, youngest=5.0).running("n1")
    for created, is_ready in ((4.0, True), (5.0, False)):
        other = make_pod("x").gang(A).created(created)
        verdict = demands(make_book([first.build(), other.build()], [group]), A)
        assert isinstance(verdict, Ready) is is_ready


def test_interrupted_start_is_recognised_beside_surplus_members() -> None:
    group = make_pod_group(A, 2).match_policy(ONLY_WAITING).build()
    start = make_start_id(frozenset({"uid-default-v", "uid-default-w"}))
    first = make_pod("v").gang(A).released("n1", "p", A, 2, 2, youngest=5.0, start_id=start)
    rest = [make_pod(name).gang(A).created(5.0).build() for name in "wx"]
    (unit,) = ready(make_book([first.running("n1").build(), *rest], [group])).units
    assert (unit.required, [pod.name for pod in unit.pods]) == (1, ["w", "x"])


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(True, id="bound with the record of its release"),
        pytest.param(False, id="bound before its release was seen"),
    ],
)
@pytest.mark.parametrize("waits", ["released", "gated"])
def test_interrupted_start_is_recognised_after_one_that_failed(waits: str, *, kept: bool) -> None:
    """v, w and x were to start; v was deleted, so the others start with the new y instead."""
    group = make_pod_group(A, 3).match_policy(ONLY_WAITING).build()
    failed, second = (
        make_start_id(frozenset(f"uid-default-{name}" for name in names))
        for names in ("vwx", "wxy")
    )
    released = {name: make_pod(name).gang(A).created(5.0) for name in "wxy"}
    how = {"youngest": 5.0}
    w = released["w"].released("n1", "p-2", A, 3, 3, start_id=failed if kept else second, **how)
    x = released["x"]
    if waits == "released":
        x = x.released("n2", "p-1", A, 3, 3, start_id=failed, **how)
    y = released["y"].released("n3", "p-2", A, 3, 3, start_id=second, **how)
    pods = [w.running("n1"), x, y.running("n3")]
    (unit,) = ready(make_book([pod.build() for pod in pods], [group])).units
    assert (unit.required, [pod.name for pod in unit.pods]) == (1, ["x"])


def test_member_of_an_interrupted_start_is_placed_again_if_it_was_released_alone() -> None:
    group = make_pod_group(A, 2).match_policy(ONLY_WAITING).build()
    bound = make_pod("w").gang(A).released("n1", "p-1", A, 2, 2, youngest=5.0).running("n1")
    alone = make_pod("x").gang(A).created(4.0).released("n2", "p-2", A, youngest=4.0)
    (unit,) = ready(make_book([bound.build(), alone.build()], [group])).units
    assert (unit.required, [pod.name for pod in unit.pods]) == (1, ["x"])


def test_only_waiting_needs_the_whole_gang_again() -> None:
    group = make_pod_group(A, 2).match_policy(ONLY_WAITING).build()
    book = make_book([make_started("a-0").build(), *make_pods("new", 1, A)], [group])
    assert demands(book, A) == MissingMembers((GangCount(A, 1, 2, waiting_only=True),))
    book.upsert_pod(make_pod("new-1").gang(A).build())
    (unit,) = ready(book).units
    assert unit.required == 2


@pytest.mark.parametrize("policy", list(MatchPolicy))
def test_complete_running_gang_has_nothing_to_plan(policy: MatchPolicy) -> None:
    pods = [make_started("a-0").build(), make_started("a-1").build()]
    book = make_book(pods, [make_pod_group(A, 2).match_policy(policy).build()])
    assert isinstance(find_quorum(book, A), Reached)
    assert ready(book) == Ready()


def test_pod_group_without_pods_misses_all_members() -> None:
    assert demands(make_book((), [make_pod_group(A, 2).build()]), A) == MissingMembers(
        (GangCount(A, 0, 2),)
    )


def test_members_without_their_pod_group_wait_for_it() -> None:
    book = make_book(make_pods("a", 2, A))
    assert demands(book, A) == MissingPodGroup(A)


def test_members_of_a_native_group_say_that_no_version_of_it_is_read() -> None:
    native = GangMembership("default/scheduling.k8s.io:a", GangSource.NATIVE)
    book = make_book([make_pod("a-0")._set(gang=native).build()])
    assert demands(book, native.key) == MissingPodGroup(native.key)
    book.touched()
    book.note_unread(("v2", "v1"))
    assert demands(book, native.key) == PodGroupsNotServed(native.key, ("v2", "v1"))
    assert book.touched() == {native.key}
    book.upsert_pod_group(make_native(native.key, 1))
    assert isinstance(demands(book, native.key), Ready)
    book.note_unread(())
    assert not book.touched() - {native.key}


def make_native(key: str, min_count: int) -> ObservedPodGroup:
    group = make_pod_group(key, min_count).build()
    return replace(group, spec=replace(group.spec, source=GangSource.NATIVE))


def test_members_without_a_valid_minimum_report_it() -> None:
    bad = BadValue("min-available", "x", "none", "not a number")
    claim = GangMembership(A, GangSource.ANNOTATION, None, (bad,))
    pod = make_pod("a-0")._set(gang=claim).build()
    assert demands(make_book([pod]), A) == InvalidAnnotation((bad,))


def test_listed_gang_that_does_not_exist_delays_the_lister() -> None:
    group = make_pod_group(A, 1).group(A, B, C).build()
    book = make_book(make_pods("a", 1, A), [group])
    assert demands(book, A) == MissingGang(A, (B, C))
    book.upsert_pod(make_pod("b-0").gang(B).build())
    assert demands(book, A) == MissingGang(A, (C,))
    book.upsert_pod(make_pod("c-0").gang(C).build())
    assert demands(book, A) == MissingPodGroup(B)


def test_one_sided_listing_delays_only_the_lister() -> None:
    groups = [make_pod_group(A, 1).group(A, B).build(), make_pod_group(B, 1).build()]
    book = make_book([*make_pods("a", 1, A), *make_pods("b", 1, B)], groups)
    assert demands(book, A) == InconsistentGroup(A, (B,))
    (unit,) = ready(book, B).units
    assert unit.key == B


def test_groups_are_closed_over_mutual_listings() -> None:
    groups = [
        make_pod_group(A, 1).group(A, B).build(),
        make_pod_group(B, 1).group(A, B, C).build(),
        make_pod_group(C, 1).group(B, C).build(),
    ]
    pods = [make_pod(f"{key}-0").gang(key).build() for key in (A, B, C)]
    (unit,) = ready(make_book(pods, groups)).units
    assert unit.key == f"{A},{B},{C}"


def test_started_group_does_not_wait_for_a_deleted_gang() -> None:
    groups = [make_pod_group(A, 2).group(A, B).build()]
    pods = [make_started("a-0").build(), *make_pods("new", 1, A)]
    assert len(ready(make_book(pods, groups)).units) == 1
    assert demands(make_book(pods, groups, compat=True), A) == MissingGang(A, (B,))


def test_gang_added_to_a_started_group_needs_its_quorum_alone() -> None:
    groups = [make_pod_group(A, 2).group(A, B).build(), make_pod_group(B, 2).group(A, B).build()]
    pods = [make_started("a-0").build(), *make_pods("a-new", 1, A), *make_pods("b", 1, B)]
    book = make_book(pods, groups)
    (repair,) = ready(book, A).units
    assert (repair.key, repair.is_repair) == ("uid-default-a-new-0", True)
    assert demands(book, B) == MissingMembers((GangCount(B, 1, 2),))
    book.upsert_pod(make_pod("b-1").gang(B).build())
    (added,) = ready(book, B).units
    assert (added.key, added.group, added.required, added.is_repair) == (B, B, 2, False)
    assert repair.group == A, "who is released now says nothing of a gang that has not started"
    assert ready(book, A).units == (repair,)
    upstream = make_book(pods, groups, compat=True)
    assert len(ready(upstream, B).units) == 2, "there its members start one by one"


def test_gang_of_a_started_group_without_members_is_repaired() -> None:
    groups = [make_pod_group(A, 1).group(A, B).build(), make_pod_group(B, 2).group(A, B).build()]
    started = make_pod("a-0").gang(A).released("n1", "plan-1", f"{A},{B}", 3).running("n1").build()
    book = make_book([started, *make_pods("b-new", 2, B)], groups)
    assert [(unit.required, unit.is_repair) for unit in ready(book, B).units] == [(1, True)] * 2


def test_raised_minimum_is_no_repair() -> None:
    def survivor(name: str, strength: int) -> Pod:
        return make_pod(name).gang(A).released("n1", "p", A, 2, strength).running("n1").build()

    pods = [survivor("a-0", 2), survivor("a-1", 2), *make_pods("new", 2, A)]
    book = make_book(pods, [make_pod_group(A, 4).build()])
    assert [unit.is_repair for unit in ready(book).units] == [False, False]
    book.remove_pod("uid-default-a-1")
    assert [unit.is_repair for unit in ready(book).units] == [True, True], "one of two is lost"
    book.upsert_pod(survivor("a-2", 3))
    assert [unit.is_repair for unit in ready(book).units] == [True, True], "it had three of four"
    book.upsert_pod(survivor("a-3", 3))
    assert [unit.is_repair for unit in ready(book).units] == [False, False]


def test_unit_computes_the_strength_of_each_gang() -> None:
    pods = [make_started("a-0").build(), *make_pods("new", 2, A)]
    (first, _) = ready(make_book(pods, [make_pod_group(A, 3).build()])).units
    assert first.strengths_with({"uid-default-new-0"}) == {A: 2}
    (whole,) = ready(make_book(make_pods("a", 3, A), [make_pod_group(A, 2).build()])).units
    assert whole.strengths_with({pod.uid for pod in whole.pods}) == {A: 2}


def test_foreign_gates_delay_the_gang_until_enough_are_removed() -> None:
    gated = [
        make_pod(f"g-{i}").gang(A).foreign_gates("example.com/b", "example.com/a").build()
        for i in range(2)
    ]
    book = make_book([*gated, *make_pods("a", 1, A)], [make_pod_group(A, 2).build()])
    assert demands(book, A) == WaitingForForeignGate(
        "default/g-0", ("example.com/a", "example.com/b"), 2
    )
    assert isinstance(find_quorum(book, A), Reached)
    book.upsert_pod(make_pod("a-1").gang(A).build())
    (unit,) = ready(book).units
    assert [pod.name for pod in unit.pods] == ["a-0", "a-1"]


def test_gang_without_minimum_starts_pod_by_pod() -> None:
    book = make_book(make_pods("a", 2, A), [make_pod_group(A, 0).build()])
    assert [unit.required for unit in ready(book).units] == [1, 1]


@given(st.permutations([*make_pods("a", 4, A), *make_pods("b", 3, B)]), st.booleans())
def test_quorum_does_not_depend_on_order_of_arrival(pods: list[Pod], turn: bool) -> None:  # noqa: FBT001 - drawn
    groups = [make_pod_group(A, 2).group(A, B).build(), make_pod_group(B, 1).group(A, B).build()]
    expected = demands(make_book(sorted(pods, key=lambda pod: pod.uid), groups), A)
    assert demands(make_book(pods, reversed(groups) if turn else groups), A) == expected


def test_surplus_of_a_gang_with_multiples_is_planned_together() -> None:
    constraint = TopologyConstraint((LayerConstraint("Block", GatherStrategy.PREFER, 2),))
    for topology, units in ((constraint, 1), (None, 2)):
        book = GangCache()
        book.upsert_pod_group(make_pod_group("ns/a", 1).topology(topology).build())
        released = make_pod("ns/p").gang("ns/a").released("n1", "plan", group="ns/a")
        book.upsert_pod(released.bound("n1").build())
        for name in ("q", "r"):
            book.upsert_pod(make_pod(f"ns/{name}").gang("ns/a").build())
        made = demands(book, "ns/a")
        assert isinstance(made, Ready)
        assert len(made.units) == units


def make_chain(count: int) -> GangCache:
    """Make gangs of one member, each of which lists its neighbours: one group of all of them."""
    book = GangCache()
    for at in range(count):
        near = tuple(f"default/g{other:04}" for other in (at - 1, at, at + 1) if 0 <= other < count)
        key = f"default/g{at:04}"
        book.upsert_pod_group(make_pod_group(key, 1).group(*near).build())
        book.upsert_pod(make_pod(f"p{at:04}").gang(key).build())
    return book


def test_a_group_of_too_many_gangs_waits() -> None:
    first = "default/g0000"
    assert isinstance(demands(make_chain(256), first), Ready)
    book = make_chain(257)
    refused = demands(book, first)
    assert refused == TooLarge("gang", first, "gangs in its group", 257, 256)
    assert "has 257 gangs in its group, more than the 256" in refused.text()
    book.touched()
    book.upsert_pod(make_pod("more").gang(first).build())
    assert book.touched() == {first}, "its members change nothing for the other gangs"
    book.remove_pod_group("default/g0128")
    book.remove_pod("p0128")
    assert len(book.touched()) > 250, "its lists do"
    book.upsert_pod_group(make_pod_group("default/g0127", 1).build())
    assert demands(book, "default/g0001") != refused


def test_a_list_of_too_many_gangs_waits() -> None:
    listing = make_pod_group(A, 1).group(A, B).build()
    book = make_book([make_pod("p").gang(A).build()])
    book.upsert_pod_group(replace(listing, spec=replace(listing.spec, listed=900)))
    assert demands(book, A) == TooLarge("gang", A, "gangs in its list", 900, 256)


def test_too_many_waiting_members_wait() -> None:
    book = make_book(make_pods("p", 10_001, A), [make_pod_group(A, 1).build()])
    refused = demands(book, A)
    assert refused == TooLarge("gang", A, "waiting members", 10_001, 10_000)
    book.remove_pod(next(iter(book.members(A))))
    assert isinstance(demands(book, A), Ready)
