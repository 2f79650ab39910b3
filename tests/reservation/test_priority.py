"""The priority of reservations: only that of the PriorityClass in the template counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster
from tests.objects import remove_priority_class, upsert_priority_class, upsert_reservation
from tests.reservation.make import make_reservation

from koord.core.eviction.model import Preemption
from koord.core.eviction.reasons import NobodyLower, PreemptionNever
from koord.core.eviction.search import plan_preemption
from koord.core.reservation.lifecycle import (
    HIGHEST,
    PriorityClass,
    describe_ignored,
    rank_held,
    rank_waiting,
)
from koord.core.reservation.model import PreAllocation

if TYPE_CHECKING:
    from koord.core.model.reasons import Reason
    from koord.core.reservation.model import ReservationInfo

CLASSES = {
    "batch": PriorityClass("batch", 100),
    "patient": PriorityClass("patient", 500, never_preempts=True),
}


def of_class(name: str, claimed: int = 0, **fields: Any) -> ReservationInfo:
    """Make a reservation that waits, whose template claims a priority besides a class."""
    made = make_reservation(node="", priority_class=name, **fields)
    assert made.pod is not None
    return replace(made, pod=replace(made.pod, priority=claimed))


@pytest.mark.parametrize(
    ("name", "claimed", "priority", "never"),
    [
        ("batch", 0, 100, False),
        ("batch", 2_000_000, 100, False),
        ("patient", 0, 500, True),
        ("", 0, 0, True),
        ("", 2_000_000, 0, True),
        ("", -5, -5, True),
        ("missing", 7, 0, True),
    ],
)
def test_rank_of_one_that_waits(name: str, claimed: int, priority: int, *, never: bool) -> None:
    reservation = of_class(name, claimed)
    assert reservation.pod is not None
    ranked = rank_waiting(reservation.pod, reservation, CLASSES)
    assert (ranked.priority, ranked.never_preempts) == (priority, never)


def test_one_that_is_laid_over_running_pods_preempts_nobody() -> None:
    reservation = of_class("batch", pre_allocation=PreAllocation())
    assert reservation.pod is not None
    assert rank_waiting(reservation.pod, reservation, CLASSES).never_preempts


@pytest.mark.parametrize(("name", "priority"), [("batch", 100), ("", HIGHEST), ("no", HIGHEST)])
def test_rank_of_what_is_held(name: str, priority: int) -> None:
    assert rank_held(of_class(name), CLASSES, 0) == priority
    assert rank_held(of_class(name), CLASSES, 1) == HIGHEST


@pytest.mark.parametrize(
    ("name", "claimed", "says"),
    [
        ("batch", 0, ""),
        ("batch", 100, ""),
        ("batch", 101, "priority 101 is ignored"),
        ("", 101, "priority 101 is ignored"),
        ("missing", 0, "there is no PriorityClass missing"),
    ],
)
def test_owners_learn_what_has_no_effect(name: str, claimed: int, says: str) -> None:
    text = describe_ignored(of_class(name, claimed), CLASSES)
    assert says in text
    assert bool(says) == bool(text)


def full_node(reservation: ReservationInfo) -> FakeCluster:
    """A node whose CPUs a pod of priority 50 uses, and a reservation that waits for 8 of them."""
    made = FakeCluster().nodes(make_node("n1").cpu(8000))
    made.pods(make_pod("low").requests(cpu=8000).priority(50).released("n1", "p").running("n1"))
    upsert_reservation(made.state, reservation)
    return made


def search(made: FakeCluster) -> Preemption | Reason:
    (unit,) = made.take()
    return plan_preemption(made.state, unit)


def test_search_follows_the_class_as_it_changes() -> None:
    made = full_node(of_class("batch"))
    assert isinstance(search(made), PreemptionNever)
    for value, expected in ((100, Preemption), (50, NobodyLower)):
        upsert_priority_class(made.state, PriorityClass("batch", value))
        assert isinstance(search(made), expected), value
    remove_priority_class(made.state, PriorityClass("batch", 50))
    assert isinstance(search(made), PreemptionNever)
