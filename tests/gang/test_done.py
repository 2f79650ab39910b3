"""Members that have succeeded count the same in the decision, the status, repairs and advice."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_pod, make_pod_group
from tests.gang.test_quorum import make_book, ready
from tests.support.laws import examples

from koord.core.gang.done import (
    MAX_ID,
    MAX_RECORDED,
    MAX_SUB_GROUPS,
    count_done,
    find_done,
    has_succeeded,
    record_run,
)
from koord.core.gang.failure import find_restart
from koord.core.gang.lost_members import count_strength, has_minimum, needed_strength
from koord.core.gang.quorum import (
    Ready,
    count_lost,
    count_members,
    demands,
    find_quorum,
    is_satisfied,
)
from koord.core.gang.reasons import GangCount, MissingMembers, Reached
from koord.core.gang.status import ConditionType, observe
from koord.core.gang.sub_group_members import SubGroupCount, count_sub_groups
from koord.core.gang.tally import bond_of
from koord.core.model.gangs import (
    ROOT,
    BondRecord,
    FilledTree,
    GangPhase,
    MatchPolicy,
    OnMemberFailure,
    SubGroup,
    SubGroupTree,
)
from koord.core.model.pods import OwnerReference, Pod, PodPhase

if TYPE_CHECKING:
    from random import Random

    from koord.core.gang.cache import GangCache

A, B = "default/a", "default/b"
RUNNING, SUCCEEDED, FAILED = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED


def owned(pod: PodBuilder, owner: str) -> PodBuilder:
    """Give a pod a controller; ``""``: none."""
    return (
        pod._set(owners=(OwnerReference(owner, uid=owner, is_controller=True),)) if owner else pod
    )


def make_member(
    name: str, phase: PodPhase = SUCCEEDED, *, owner: str = "job", gang: str = A, start: int = 3
) -> PodBuilder:
    """Make a member that was released with others; the group is that of its start."""
    pod = make_pod(name).gang(gang).released("n", f"plan-{owner}", gang, start, 3, start_id=owner)
    return owned(pod.running("n").phase(phase), owner)


def make_waiting(name: str, *, owner: str = "job", gang: str = A) -> PodBuilder:
    return owned(make_pod(name).gang(gang).created(50.0), owner)


def build(*pods: PodBuilder) -> list[Pod]:
    return [pod.build() for pod in pods]


def test_retried_member_starts_beside_members_that_are_done() -> None:
    pods = build(
        make_member("0"), make_member("1"), make_member("2", FAILED), make_waiting("retry")
    )
    book = make_book(pods, [make_pod_group(A, 3).build()])
    (unit,) = ready(book).units
    assert [pod.name for pod in unit.pods] == ["retry"]
    assert find_quorum(book, A) == Reached((GangCount(A, 3, 3, done=2),))


def test_last_wave_may_be_smaller_than_the_minimum() -> None:
    pods = build(*(make_member(f"{i}", start=4) for i in range(4)), make_waiting("4"))
    book = make_book(pods, [make_pod_group(A, 4).build()])
    assert [pod.name for unit in ready(book).units for pod in unit.pods] == ["4"]


@pytest.mark.parametrize("policy", list(MatchPolicy))
def test_gang_restarts_as_far_as_its_members_are_not_done(policy: MatchPolicy) -> None:
    """One of three is done, one has failed and waits again, one still runs."""
    group = make_pod_group(A, 3).match_policy(policy)
    group = group.on_member_failure(OnMemberFailure.RESTART_GANG)
    running = make_member("2", PodPhase.RUNNING)
    ended = [make_member("0"), make_member("1", FAILED), make_waiting("1-again")]
    restart = find_restart(make_book(build(*ended, running), [group.build()]), A)
    assert restart is not None
    assert [pod.name for pod in restart.pods] == ["2"]
    book = make_book(build(*ended, make_waiting("2-again")), [group.build()])
    (unit,) = ready(book).units
    assert (unit.required, len(unit.pods)) == (2, 2), "the other one is done"


@pytest.mark.parametrize(
    ("policy", "required"),
    [
        (MatchPolicy.ONCE_SATISFIED, 0),
        (MatchPolicy.WAITING_AND_RUNNING, 0),
        (MatchPolicy.ONLY_WAITING, None),
    ],
)
def test_replacement_beside_done_and_running_members(
    policy: MatchPolicy, required: int | None
) -> None:
    group = make_pod_group(A, 3).match_policy(policy).build()
    pods = build(make_member("0"), make_member("2", PodPhase.RUNNING), make_waiting("1-again"))
    verdict = demands(make_book(pods, [group]), A)
    assert isinstance(verdict, Ready) is (required is not None)


def test_member_that_succeeded_without_a_node_is_not_done() -> None:
    """Who may write a status could start a gang below its minimum otherwise."""
    liar = make_waiting("liar").phase(SUCCEEDED)
    pods = build(liar, make_waiting("0"), make_waiting("1"))
    book = make_book(pods, [make_pod_group(A, 3).build()])
    assert count_done(book, A) == 0
    assert demands(book, A) == MissingMembers((GangCount(A, 2, 3),))


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        ([SUCCEEDED] * 3, "it has finished"),
        ([SUCCEEDED, SUCCEEDED, FAILED], "it has failed, and its pods are still there"),
    ],
)
def test_another_job_under_the_same_group_needs_its_whole_minimum(
    ended: list[PodPhase], why: str
) -> None:
    old = [make_member(f"old-{i}", phase, owner="old") for i, phase in enumerate(ended)]
    new = [make_waiting(f"new-{i}", owner="new") for i in range(2)]
    book = make_book(build(*old, *new), [make_pod_group(A, 3).build()])
    assert demands(book, A) == MissingMembers((GangCount(A, 2, 3),)), why
    assert observe(book, A, 0.0).phase is GangPhase.PENDING
    book.upsert_pod(make_waiting("new-2", owner="new").build())
    (unit,) = ready(book).units
    assert unit.required == 3, why


def test_members_of_several_owners_that_started_together_are_of_one_run() -> None:
    driver = make_member("driver", owner="one")
    worker = owned(make_member("worker", FAILED, owner="one"), "two")
    again = make_waiting("again", owner="two")
    group = make_pod_group(A, 2).build()
    assert isinstance(demands(make_book(build(driver, worker, again), [group]), A), Ready)
    # The worker was evicted, so nothing of it is left.
    assert isinstance(demands(make_book(build(driver, again), [group]), A), Ready)


def test_members_without_owner_are_of_one_run_until_it_is_complete() -> None:
    done = [make_member(f"{i}", owner="") for i in range(2)]
    again = make_waiting("again", owner="")
    group = make_pod_group(A, 3).build()
    assert isinstance(demands(make_book(build(*done, again), [group]), A), Ready)
    done.append(make_member("2", owner=""))
    assert demands(make_book(build(*done, again), [group]), A) == MissingMembers(
        (GangCount(A, 1, 3),)
    )


def test_group_does_not_wait_for_a_gang_that_is_done() -> None:
    """Gang a is done. All members of b were evicted, and its Job has made them again."""
    groups = [make_pod_group(key, 2).group(A, B).build() for key in (A, B)]
    done = [make_member(f"a-{i}", start=4, owner="job-a") for i in range(2)]
    again = [make_waiting(f"b-{i}", owner="job-b", gang=B) for i in range(2)]
    book = make_book(build(*done, *again), groups)
    (unit,) = ready(book, B).units
    assert [(one.gang, one.required) for one in unit.demands] == [(B, 2)]
    assert has_minimum(book, A)


def test_group_that_starts_again_waits_for_all_of_its_gangs() -> None:
    groups = [make_pod_group(key, 1).group(A, B).build() for key in (A, B)]
    done = [owned(make_member(f"{key}-0", gang=key, owner="start", start=2), key) for key in (A, B)]
    book = make_book(build(*done, make_waiting("b-1", owner="new", gang=B)), groups)
    assert demands(book, B) == MissingMembers((GangCount(A, 0, 1),))


def test_sub_groups_count_members_that_are_done() -> None:
    tree = SubGroupTree(SubGroup(""), (SubGroup("x", 2), SubGroup("y", 2)))
    group = make_pod_group(A, 4)._set_spec(sub_groups=tree).build()
    ended = [make_member(f"{name}-0", start=4)._set(sub_group=name) for name in "xy"]
    ended.append(make_member("y-1", start=4)._set(sub_group="y"))
    again = make_waiting("x-1")._set(sub_group="x")
    book = make_book(build(*ended, again), [group])
    assert [pod.name for unit in ready(book).units for pod in unit.pods] == ["x-1"]


def remember(book: GangCache) -> None:
    """Write what the statuses of the PodGroups are to remember."""
    for key in (A, B):
        if (group := book.pod_group(key)) is not None:
            book.upsert_pod_group(replace(group, runs=record_run(book, key)))


def remove(book: GangCache, *names: str) -> None:
    for name in names:
        book.remove_pod(f"uid-default-{name}")


def test_member_that_is_done_and_removed_is_not_lost() -> None:
    """A driver whose Job is removed some time after it has finished, beside a running worker."""
    group = make_pod_group(A, 2).on_member_failure(OnMemberFailure.RESTART_GANG).build()
    driver = make_member("driver", owner="start", start=2)
    worker = owned(make_member("worker", PodPhase.RUNNING, owner="start", start=2), "job")
    book = make_book(build(owned(driver, "driver"), worker), [group])
    remember(book)
    remove(book, "driver")
    assert count_done(book, A) == 1
    assert find_restart(book, A) is None, "the driver does not come again"
    assert not find_done(book, A), "its pod is gone"
    remember(book)
    assert count_done(book, A) == 1, "it is remembered further on"


def prepare_and_train() -> GangCache:
    """Make a group of two gangs that have run: one is done, of the other all pods have failed."""
    groups = [make_pod_group(key, 2).group(A, B).build() for key in (A, B)]
    pods = [
        owned(make_member(f"{key[-1]}-{i}", phase, gang=key, owner="start", start=4), key)
        for key, phase in ((A, SUCCEEDED), (B, FAILED))
        for i in range(2)
    ]
    book = make_book(build(*pods), groups)
    remember(book)
    remove(book, "a-0", "a-1", "b-0", "b-1")
    remember(book)
    return book


def test_group_does_not_wait_for_a_gang_whose_pods_are_done_and_removed() -> None:
    book = prepare_and_train()
    for at in range(2):
        book.upsert_pod(make_waiting(f"again-{at}", gang=B, owner=B).build())
    assert [(one.gang, one.required) for one in ready(book, B).units[0].demands] == [(B, 2)]


def test_jobs_that_are_created_again_inherit_nothing() -> None:
    book = prepare_and_train()
    for at in range(2):
        book.upsert_pod(make_waiting(f"new-{at}", gang=B, owner="another").build())
    assert demands(book, B) == MissingMembers((GangCount(A, 0, 2),))
    remember(book)
    assert record_run(book, A) == (), "another run has begun"


TWO_BY_TWO = SubGroupTree(SubGroup(""), (SubGroup("x", 2), SubGroup("y", 2)))


def make_part(name: str, phase: PodPhase = SUCCEEDED, *, owner: str = "") -> PodBuilder:
    """Make a member of the sub-group that its name begins with."""
    start = "start" if owner else "start-bare"
    pod = make_pod(name).gang(A).released("n", f"plan-{start}", A, 4, 4, start_id=start)
    return owned(pod.running("n").phase(phase), owner)._set(sub_group=name[0])


def test_members_of_sub_groups_that_are_done_and_removed_count_where_they_were() -> None:
    group = make_pod_group(A, 4)._set_spec(sub_groups=TWO_BY_TWO).build()
    ended = [make_part(f"{name}-0", owner=name) for name in "xy"]
    rest = [make_part(f"{name}-1", PodPhase.RUNNING, owner=name) for name in "xy"]
    book = make_book(build(*ended, *rest), [group])
    before = count_sub_groups(book, A)
    assert [(one.present, one.placed, one.is_complete) for one in before] == [(2, 2, True)] * 2
    remember(book)
    assert [one.sub_groups for one in record_run(book, A)] == [(("x", 1),), (("y", 1),)]
    remove(book, "x-0", "y-0")
    assert count_sub_groups(book, A) == before
    assert count_lost(book, A) == 0
    assert observe(book, A, 0.0).phase is GangPhase.RUNNING


def test_run_of_bare_pods_ends_when_all_sub_groups_are_done() -> None:
    """The minimum is that of one sub-group, and the gang needs two."""
    group = make_pod_group(A, 2)._set_spec(sub_groups=TWO_BY_TWO).build()
    pods = [make_part("x-0"), make_part("x-1"), *(make_part(f"y-{i}", RUNNING) for i in "01")]
    book = make_book(build(*pods), [group])
    assert count_done(book, A) == 2
    assert [one.placed for one in count_sub_groups(book, A)] == [2, 2]
    assert observe(book, A, 0.0).phase is GangPhase.RUNNING
    for name in "01":
        book.upsert_pod(make_part(f"y-{name}").build())
    assert observe(book, A, 0.0).phase is GangPhase.FINISHED
    assert has_succeeded(book, A)


def test_gang_has_failed_if_a_sub_group_that_it_needs_has() -> None:
    group = make_pod_group(A, 2)._set_spec(sub_groups=TWO_BY_TWO).build()
    pods = [make_part("x-0"), make_part("x-1"), make_part("y-0"), make_part("y-1", FAILED)]
    book = make_book(build(*pods), [group])
    assert observe(book, A, 0.0).phase is GangPhase.FAILED
    assert not has_succeeded(book, A)


def test_sub_groups_that_are_remembered_are_bounded_and_believed_within_the_total() -> None:
    names = [f"s{index}" for index in range(MAX_SUB_GROUPS + 9)]
    tree = SubGroupTree(SubGroup(""), tuple(SubGroup(name, 1) for name in names))
    group = make_pod_group(A, 1)._set_spec(sub_groups=tree).build()
    members = [make_member(name)._set(sub_group=name) for name in names]
    (record,) = record_run(make_book(build(*members), [group]), A)
    assert (record.done, len(record.sub_groups)) == (len(names), MAX_SUB_GROUPS)
    lie = BondRecord(record.bond, 2, (("x", 5), ("y", -1), ("z", 9)))
    assert lie.by_sub_group() == Counter({"x": 2})


def test_pods_without_a_controller_inherit_nothing() -> None:
    book = make_book(
        build(make_member("0", owner=""), make_member("1", owner="")),
        [make_pod_group(A, 3).build()],
    )
    remember(book)
    remove(book, "0", "1")
    book.upsert_pod(make_waiting("2", owner="").build())
    assert count_done(book, A) == 0


def test_what_is_remembered_is_bounded() -> None:
    many = [make_member(f"{i}", owner=f"o{i}") for i in range(2 * MAX_RECORDED)]
    long = owned(make_member("long"), "x" * (MAX_ID + 1))
    book = make_book(build(*many, long), [make_pod_group(A, 3).build()])
    recorded = record_run(book, A)
    assert len(recorded) == MAX_RECORDED
    assert all(len(one.bond.controller) <= MAX_ID for one in recorded)


def test_koordinator_counts_them_in_its_statuses_only() -> None:
    pods = build(make_member("0"), make_member("1"), make_waiting("again"))
    book = make_book(pods, [make_pod_group(A, 3).build()], compat=True)
    assert demands(book, A) == MissingMembers((GangCount(A, 1, 3),))
    assert find_done(book, A) == ()
    assert count_done(book, A) == 2


_STATES = ("waiting", "released", "running", "done", "claims to be done", "failed", "leaving")


@st.composite
def draw_members(draw: st.DrawFn) -> list[Pod]:
    pods = []
    for index in range(draw(st.integers(0, 6))):
        name, state = f"p-{index}", draw(st.sampled_from(_STATES))
        owner = draw(st.sampled_from(["", "one", "two"]))
        gang, start = draw(st.sampled_from([A, B])), draw(st.sampled_from(["s", "t"]))
        pod = owned(make_pod(name).gang(gang), owner)
        if state not in {"waiting", "claims to be done"}:
            size = draw(st.integers(1, 4))
            pod = pod.released("n", start, f"{A},{B}", size, size, start_id=start)
        if state in {"running", "done", "failed", "leaving"}:
            pod = pod.running("n")
        if state in {"done", "claims to be done", "failed"}:
            pod = pod.phase(FAILED if state == "failed" else SUCCEEDED)
        pod = pod._set(sub_group=draw(st.sampled_from(["", "x", "y"])))
        pods.append((pod.terminating() if state == "leaving" else pod).build())
    return pods


@st.composite
def draw_books(draw: st.DrawFn, *, divided: st.SearchStrategy[bool]) -> GangCache:
    """Draw two gangs, perhaps of one group; those that are ``divided`` have sub-groups."""
    grouped = draw(st.booleans())
    groups = [
        make_pod_group(key, draw(st.integers(0, 4)))
        .match_policy(draw(st.sampled_from(list(MatchPolicy))))
        .on_member_failure(draw(st.sampled_from(list(OnMemberFailure))))
        for key in (A, B)
    ]
    sizes = [draw(st.integers(0, 2)) for _ in "xy"]
    subs = tuple(SubGroup(name, size) for name, size in zip("xy", sizes, strict=True))
    for one in groups:
        if draw(divided):
            root = SubGroup("", min_sub_groups=draw(st.sampled_from([None, 1])))
            one._set_spec(sub_groups=SubGroupTree(root, subs))
    made = [(one.group(A, B) if grouped else one).build() for one in groups]
    return make_book(draw(st.permutations(draw(draw_members()))), made)


@given(draw_books(divided=st.booleans()))
def test_decision_status_repair_and_advice_count_the_same_members(book: GangCache) -> None:
    for key in (A, B):
        done, tally, spec = count_done(book, key), book.tally(key), book.spec(key)
        assert spec is not None
        assert done == len({pod.uid for pod in find_done(book, key)}) <= len(tally.done)
        status = observe(book, key, 0.0)
        conditions = {kind: (is_true, why) for kind, is_true, why in status.conditions}
        quorum, verdict = find_quorum(book, key), demands(book, key)
        # Status and decision: the same answer with the same numbers.
        assert conditions[ConditionType.QUORUM_REACHED] == (isinstance(quorum, Reached), quorum)
        if isinstance(verdict, MissingMembers):
            assert verdict == quorum
        # Advice: who follows it gets a gang that can start.
        for count in (one for one in count_members(book, key) if one.gang == key):
            assert count.done == done
            lacking = max(0, count.min_member - count.present)
            if isinstance(quorum, MissingMembers) and count in quorum.gangs:
                assert lacking
        # Repair: nothing is lost of a gang that has its minimum.
        assert count_strength(book, key) == tally.placed + done
        lost = count_lost(book, key)
        is_whole = spec.sub_groups is None  # otherwise each sub-group has losses of its own
        assert not (is_whole and lost and has_minimum(book, key)), "a loss beside a whole gang"
        if is_whole and is_satisfied(book, key):
            assert lost == max(0, needed_strength(book.gang(key)) - tally.placed - done)
        restart = find_restart(book, key)
        assert restart is None or lost
        if has_succeeded(book, key):
            assert status.phase is GangPhase.PENDING or done >= spec.min_member
        # A gang that has finished has finished in all of its parts.
        if status.phase is GangPhase.FINISHED and spec.sub_groups is not None:
            counts = Counter(pod.sub_group for pod in find_done(book, key))
            assert not FilledTree(spec.sub_groups, counts).find_short(ROOT)


@settings(max_examples=examples(40))
@given(draw_books(divided=st.just(False)))
def test_a_gang_starts_when_the_advice_was_followed(book: GangCache) -> None:
    living = [pod for key in (A, B) for pod in book.members(key).values() if pod.is_alive]
    assume(living)
    owner = living[0].owners[0].uid if living[0].owners else ""
    # Twice: under only-waiting, running members do not count any more once somebody waits.
    for key, attempt in itertools.product((A, B), "12"):
        quorum = find_quorum(book, key)
        for count in quorum.gangs if isinstance(quorum, MissingMembers) else ():
            for index in range(count.min_member - count.present):
                more = make_waiting(
                    f"{count.gang[-1]}-{attempt}-{index}", owner=owner, gang=count.gang
                )
                book.upsert_pod(more.build())
    assert all(isinstance(find_quorum(book, key), Reached) for key in (A, B))


def count_all(book: GangCache, key: str) -> tuple[int, tuple[SubGroupCount, ...]]:
    return count_done(book, key), count_sub_groups(book, key)


@given(draw_books(divided=st.booleans()))
def test_what_is_remembered_changes_no_answer_and_survives_the_pods(book: GangCache) -> None:
    before = {key: count_all(book, key) for key in (A, B)}
    remember(book)
    assert {key: count_all(book, key) for key in (A, B)} == before
    again = {key: record_run(book, key) for key in (A, B)}
    remember(book)
    assert {key: record_run(book, key) for key in (A, B)} == again
    gangs = [group for key in (A, B) for group in book.group(key).gangs]
    living = {bond_of(one) for key in gangs for one in book.members(key).values() if one.is_alive}
    for key in (A, B):
        for pod in find_done(book, key):
            bond = bond_of(pod)
            if any(bond.start and bond.start == one.start for one in living):
                book.remove_pod(pod.uid)
                assert count_all(book, key) == before[key]


@given(draw_books(divided=st.booleans()), st.randoms())
def test_what_is_done_does_not_depend_on_the_order_of_arrival(
    book: GangCache, random: Random
) -> None:
    pods = [pod for key in (A, B) for pod in book.members(key).values()]
    groups = [group for key in (A, B) if (group := book.pod_group(key)) is not None]
    random.shuffle(pods)
    again = make_book(pods, groups)
    for key in (A, B):
        assert {pod.uid for pod in find_done(again, key)} == {
            pod.uid for pod in find_done(book, key)
        }


def test_pod_that_was_released_with_another_gang_is_not_done_in_this_one() -> None:
    """Labels can be changed when a pod has ended."""
    moved = make_member("moved", gang=B).gang(A)
    pods = build(moved, make_waiting("0"), make_waiting("1"))
    book = make_book(pods, [make_pod_group(A, 3).build()])
    assert demands(book, A) == MissingMembers((GangCount(A, 2, 3),))
