"""When a reservation expires, and which of several is used."""

from __future__ import annotations

from tests.reservation.make import ALIGNED, RESTRICTED, account, make_reservation

from koord.core.reservation.choice import nominate, score
from koord.core.reservation.lifecycle import (
    deadline_of,
    expire,
    is_collectable,
    must_fail,
    set_available,
    set_unschedulable,
    succeed,
)
from koord.core.reservation.model import AllocatePolicy, ReservationState
from koord.core.reservation.reasons import conflicts

HOUR = 3600.0


def test_the_earlier_of_ttl_and_expires_counts() -> None:
    assert deadline_of(make_reservation(created=10.0, ttl=HOUR)) == 10.0 + HOUR
    assert deadline_of(make_reservation(created=10.0, ttl=HOUR, expires=50.0)) == 50.0
    assert deadline_of(make_reservation(created=10.0, ttl=HOUR, expires=1e9)) == 10.0 + HOUR


def test_a_ttl_of_0_disables_expires_as_well() -> None:
    assert deadline_of(make_reservation(ttl=None, expires=5.0)) is None
    assert not must_fail(make_reservation(ttl=None, expires=5.0), {"n1"}, 100.0)


def test_what_waits_for_a_node_expires_too() -> None:
    waiting = make_reservation(node="", ttl=HOUR)
    assert must_fail(waiting, (), HOUR + 1)
    assert not must_fail(waiting, (), HOUR - 1)


def test_without_its_node_a_reservation_fails_and_stays_so() -> None:
    reservation = make_reservation()
    assert must_fail(reservation, {"n2"}, 0.0)
    failed = expire(reservation.status, 5.0)
    assert failed.is_expired
    again = make_reservation(status=failed)
    assert not again.is_matchable(0)
    assert not must_fail(again, {"n1"}, 10.0)


def test_one_that_was_used_once_is_over() -> None:
    once = make_reservation(is_once=True)
    assert once.is_matchable(0)
    assert not once.is_matchable(1)
    status = succeed(set_available(ReservationState(), "n1", {"cpu": 1}, 1.0), 2.0)
    ready = status.condition("Ready")
    assert ready is not None
    assert (status.phase, ready.reason, ready.changed) == ("Succeeded", "Succeeded", 2.0)


def test_the_reason_why_it_has_no_node_follows_but_not_once_it_has_one() -> None:
    status = set_unschedulable(
        set_unschedulable(ReservationState(), "no room", 1.0), "still none", 2.0
    )
    (condition,) = status.conditions
    assert (condition.message, condition.changed, condition.probed) == ("still none", 1.0, 2.0)
    there = set_unschedulable(set_available(status, "n1", {}, 3.0), "late", 4.0)
    scheduled = there.condition("Scheduled")
    assert scheduled is not None
    assert (scheduled.status, scheduled.message) == ("True", "")


def test_what_is_over_is_deleted_after_a_day_or_without_its_node() -> None:
    status = expire(make_reservation().status, 0.0)
    assert not is_collectable(status, {"n1"}, 24 * HOUR)
    assert is_collectable(status, {"n1"}, 24 * HOUR + 1)
    assert is_collectable(status, (), 1.0)
    assert not is_collectable(make_reservation().status, (), 1e9)


def test_scores_and_ties() -> None:
    r1 = account("r1", used=3000, cpu=8000, policy=RESTRICTED)
    r2 = account("r2", cpu=6000, policy=ALIGNED)
    assert (score({"cpu": 5000}, r1), score({"cpu": 5000}, r2)) == (100, 83)
    assert nominate({"cpu": 5000}, [r2, r1]) == [r1, r2]
    first = account("z", cpu=6000, order=7)
    assert nominate({"cpu": 5000}, [r1, r2, first])[0] is first
    younger = account("b", cpu=6000, created=5.0)
    assert nominate({"cpu": 5000}, [younger, r2])[0] is r2, "what dies first"


def test_order_0_and_negative_order() -> None:
    none, less = account("a", order=0), account("b", order=-3)
    assert nominate({"cpu": 1000}, [none, less])[0] is less


def test_default_reservations_do_not_share_a_node_with_others() -> None:
    default = AllocatePolicy.DEFAULT
    assert conflicts(default, [ALIGNED])
    assert not conflicts(default, [default])
    assert not conflicts(RESTRICTED, [ALIGNED, RESTRICTED])
