"""What is held, used and left: the worked example, and what must hold for all numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.reservation.make import ALIGNED, RESTRICTED, account

from koord.core.reservation.ledger import (
    ReservationAccount,
    fit_on_node,
    free_through,
    lacks_inside,
    taken_by,
)

NODE = {"cpu": 32000}
PLAIN = {"cpu": 10000}
R1 = account("r1", used=3000, cpu=8000, policy=RESTRICTED)
R2 = account("r2", cpu=6000, policy=ALIGNED)


def test_limits_of_the_worked_example() -> None:
    assert free_through(NODE, PLAIN, [R2], R1) == {"cpu": 13000}
    assert free_through(NODE, PLAIN, [R1], R2) == {"cpu": 14000}
    assert free_through(NODE, PLAIN, [R1, R2]) == {"cpu": 8000}
    assert R1.left() == {"cpu": 5000}


def test_a_restricted_reservation_takes_no_more_than_is_left_of_it() -> None:
    assert not lacks_inside({"cpu": 5000}, R1)
    (lack,) = lacks_inside({"cpu": 6000}, R1)
    assert (lack.resource, lack.requested, lack.used, lack.capacity) == ("cpu", 6000, 3000, 8000)
    assert not lacks_inside({"cpu": 60000}, R2)


def test_which_reservations_of_the_example_take_a_pod() -> None:
    free = {"r1": {"cpu": 13000}, "r2": {"cpu": 14000}}

    def names(cpu: int) -> list[str]:
        answer = fit_on_node({"cpu": cpu}, [R1, R2], free, is_required=False)
        return [fitting.reservation.name for fitting in answer.fitting]

    assert names(5000) == ["r1", "r2"]
    assert names(6000) == ["r2"]
    assert names(15000) == []


def test_what_spills_over_is_not_free_for_outsiders() -> None:
    """Koordinator gives back nine used CPUs for the eight that were reserved."""
    over = account("r", used=9000, cpu=8000, policy=ALIGNED)
    assert free_through(NODE, PLAIN, [over]) == {"cpu": 13000}
    assert over.held() == {"cpu": 0}


def test_the_inner_part_is_left_to_nobody() -> None:
    limited = account("r", used=3000, cpu=8000, inner={"cpu": 2000})
    assert limited.left() == {"cpu": 3000}
    assert limited.held() == {"cpu": 5000}
    assert account("r", used=7000, cpu=8000, inner={"cpu": 2000}).left() == {"cpu": 0}
    assert account("r", used=7000, cpu=8000, inner={"cpu": 2000}).held() == {"cpu": 2000}


def test_a_number_of_pods_may_be_reserved() -> None:
    limited = account(used=1000, pods=2, reserved={"cpu": 8000, "pods": 2}, policy=RESTRICTED)
    (lack,) = lacks_inside({"cpu": 1000}, limited)
    assert (lack.resource, lack.used, lack.capacity) == ("pods", 2, 2)


def test_options_that_name_nothing_reserved_restrict_everything() -> None:
    limited = account(cpu=1000, policy=RESTRICTED, options=("memory",))
    assert lacks_inside({"cpu": 2000}, limited)
    two = account(reserved={"cpu": 1000, "memory": 1}, policy=RESTRICTED, options=("memory",))
    assert not lacks_inside({"cpu": 2000, "memory": 1}, two)


def test_a_reservation_that_shrinks_below_its_use_has_nothing_left() -> None:
    shrunk = account("r", used=6000, cpu=4000)
    assert (shrunk.left(), shrunk.held()) == ({"cpu": 0}, {"cpu": 0})


amounts = st.integers(0, 20)
accounts = st.lists(
    st.builds(
        lambda c, u, i: account(f"r{c}{u}{i}", used=u, cpu=c, inner={"cpu": min(c, i)}),
        amounts,
        amounts,
        amounts,
    ),
    max_size=5,
)


@given(accounts, amounts, amounts)
def test_held_and_used_are_never_more_than_the_node_has(
    accounts: list[ReservationAccount], plain: int, size: int
) -> None:
    """Whoever gets what the formulas call free leaves no node with more taken than it has."""
    taken = taken_by({"cpu": plain}, accounts).get("cpu", 0)
    closed = plain + sum(
        max(held.reserved["cpu"], held.used.get("cpu", 0) + held.reservation.inner["cpu"])
        for held in accounts
    )
    assert taken == closed
    for held in accounts:
        other_accounts = [other for other in accounts if other is not held]
        free = free_through({"cpu": size}, {"cpu": plain}, other_accounts, held)["cpu"]
        grown = ReservationAccount(
            held.reservation, {"cpu": held.used.get("cpu", 0) + max(free, 0)}
        )
        after = taken_by({"cpu": plain}, [*other_accounts, grown])["cpu"]
        assert after <= max(size, taken)
