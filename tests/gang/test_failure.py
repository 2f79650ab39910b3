"""Restarts of started gangs that have lost members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod, make_pod_group

from koord.core.gang.cache import GangCache
from koord.core.gang.failure import find_restart
from koord.core.gang.quorum import Ready, demands
from koord.core.model.gangs import MatchPolicy, OnBindFailure, OnMemberFailure
from koord.core.model.pods import PodPhase

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

A, B = "default/a", "default/b"
RESTART, REPLACE = OnMemberFailure.RESTART_GANG, OnMemberFailure.REPLACE
IGNORE = OnMemberFailure.IGNORE


def member(name: str, *, plan: str = "p", gang: str = A, node: str = "n") -> Pod:
    pod = make_pod(name).gang(gang).released("n", plan, A, 3, 3)
    return (pod.running(node) if node else pod).build()


def waiting(name: str) -> Pod:
    return make_pod(name).gang(A).build()


def failed(name: str) -> Pod:
    return make_pod(name).gang(A).released("n", "p", A, 3, 3).phase(PodPhase.FAILED).build()


def done(name: str) -> Pod:
    return (
        make_pod(name)
        .gang(A)
        .released("n", "p", A, 3, 3)
        .bound("n")
        .phase(PodPhase.SUCCEEDED)
        .build()
    )


def make_book(
    *pods: Pod,
    policy: OnMemberFailure = RESTART,
    on_bind: OnBindFailure = OnBindFailure.RETRY,
    compat: bool = False,
) -> GangCache:
    book = GangCache(compat=compat)
    group = make_pod_group(A, 3).on_member_failure(policy).on_bind_failure(on_bind)
    book.upsert_pod_group(group.build())
    for pod in pods:
        book.upsert_pod(pod)
    return book


@pytest.mark.parametrize(
    ("pods", "policy", "left"),
    [
        ((member("a"), member("b"), member("c")), RESTART, []),
        ((member("a"), member("b")), RESTART, ["a", "b"]),
        ((member("a"), member("b"), failed("c")), RESTART, ["a", "b"]),
        ((member("a"), member("b"), done("c")), RESTART, []),
        ((member("a"), member("b"), waiting("c")), RESTART, ["a", "b"]),
        ((waiting("a"), waiting("b")), RESTART, []),
        ((member("a"), member("b")), REPLACE, []),
        ((member("a"), member("b")), IGNORE, []),
        # Released by the plan that gave the others their nodes: its own is about to come.
        ((member("a"), member("b"), member("c", node="")), RESTART, []),
        ((member("a"), member("c", node="")), RESTART, ["a", "c"]),
        ((member("a"), member("b"), member("c", plan="q", node="")), RESTART, ["a", "b", "c"]),
    ],
)
def test_remaining_members_are_evicted_when_members_are_lost(
    pods: tuple[Pod, ...], policy: OnMemberFailure, left: list[str]
) -> None:
    restart = find_restart(make_book(*pods, policy=policy), A)
    assert [pod.name for pod in restart.pods] == left if restart else not left


@pytest.mark.parametrize(("created", "is_lost"), [(5, False), (7, True)])
def test_member_older_than_the_plan_is_no_replacement(created: int, *, is_lost: bool) -> None:
    book = make_book(make_pod("c").gang(A).created(created).build())
    for name in "ab":
        pod = make_pod(name).gang(A).released("n", "p", A, 3, 3, youngest=6.0)
        book.upsert_pod(pod.running("n").build())
    assert (find_restart(book, A) is not None) is is_lost


def test_interrupted_start_counts_unbound_members() -> None:
    pods = (member("a"), member("b"), member("c", node=""))
    restart = find_restart(make_book(*pods, on_bind=OnBindFailure.RESTART_GANG), A)
    assert restart is not None
    assert (restart.lost, restart.unbound, len(restart.pods)) == (0, 1, 3)


def test_compat_never_restarts() -> None:
    assert find_restart(make_book(member("a"), compat=True), A) is None


def test_gangs_that_started_together_restart_together() -> None:
    book = GangCache()
    for key, policy in ((A, RESTART), (B, REPLACE)):
        book.upsert_pod_group(make_pod_group(key, 1).on_member_failure(policy).group(A, B).build())
    both = f"{A},{B}"
    for name, gang in (("b-0", B), ("b-1", B), ("a-0", A)):
        pod = make_pod(name).gang(gang).released("n", "p", both, 3, 1).running("n")
        book.upsert_pod(pod.build())
    assert find_restart(book, A) is None
    book.remove_pod("uid-default-a-0")
    restart = find_restart(book, A)
    assert restart is not None
    assert [pod.name for pod in restart.pods] == ["b-0", "b-1"]
    assert find_restart(book, B) is None, "it has lost nobody"


def test_gang_without_bound_members_has_lost_none() -> None:
    book, both = GangCache(), f"{A},{B}"
    for key in (A, B):
        book.upsert_pod_group(make_pod_group(key, 1).on_member_failure(RESTART).group(A, B).build())
    book.upsert_pod(make_pod("b").gang(B).released("n", "p", both, 2, 1).running("n").build())
    book.upsert_pod(make_pod("a").gang(A).released("n", "p", both, 2, 1).build())
    assert find_restart(book, A) is None


@pytest.mark.parametrize(("policy", "is_repair"), [(REPLACE, True), (IGNORE, False)])
def test_replacements_go_first_unless_failures_are_ignored(
    policy: OnMemberFailure, *, is_repair: bool
) -> None:
    book = make_book(member("a"), member("b"), waiting("c"), policy=policy)
    ready = demands(book, A)
    assert isinstance(ready, Ready)
    assert [unit.is_repair for unit in ready.units] == [is_repair]


def test_only_waiting_gang_with_a_lost_member_restarts() -> None:
    book = make_book(member("a"), waiting("b"))
    group = make_pod_group(A, 2).match_policy(MatchPolicy.ONLY_WAITING).on_member_failure(RESTART)
    book.upsert_pod_group(group.build())
    assert find_restart(book, A) is not None
