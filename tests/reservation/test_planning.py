"""Reservations in the planner: they are placed like pods, and hold room for their owners."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import PodBuilder, make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_unit
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, make_reservation

from koord.core.model.nodes import Taint
from koord.core.model.units import CPU
from koord.core.reservation.explain import explain
from koord.core.reservation.lifecycle import succeed
from koord.core.reservation.model import (
    NAME,
    AllocatePolicy,
    IgnoredResources,
    ReservationHints,
    ReservationUse,
)
from koord.core.reservation.plugin import Reservations

if TYPE_CHECKING:
    from koord.core.model.plan import Plan
    from koord.core.reservation.model import ReservationInfo


def cluster(*reservations: ReservationInfo, nodes: int = 1, cpu: int = 10000) -> FakeCluster:
    made = FakeCluster()
    for at in range(1, nodes + 1):
        made.nodes(make_node(f"n{at}").cpu(cpu))
    for reservation in reservations:
        upsert_reservation(made.state, reservation)
    return made


def web(name: str, cpu: int = 4000, /, **hints: Any) -> PodBuilder:
    pod = make_pod(name).requests(cpu=cpu).labels(app="web")
    return pod.says(((NAME, ReservationHints(**hints)),)) if hints else pod


def other(name: str, cpu: int = 4000) -> PodBuilder:
    return make_pod(name).requests(cpu=cpu)


def plan(made: FakeCluster, *pods: PodBuilder) -> dict[str, str]:
    """Place pods one after the other; return pod -> the reservation that it uses, or "-"."""
    built = [pod.build() for pod in pods]
    made.pods(*(pod for pod in built if made.state.pod_by_key(pod.key) is None))
    return uses(made.place(*(make_unit(pod.uid, [pod]) for pod in built)))


def plan_queue(made: FakeCluster) -> Plan:
    """Plan all that is due, as the operators do; nothing is assumed."""
    return made.decide(made.take())


def reasons(made: FakeCluster) -> str:
    return " ".join(refusal.reason.text() for refusal in plan_queue(made).refusals)


def uses(outcome: Plan) -> dict[str, str]:
    reservation_of_pod = {}
    for placement in outcome.placements:
        for assignment in placement.assignments:
            names = [use.name for use in assignment.allocations if isinstance(use, ReservationUse)]
            reservation_of_pod[assignment.pod.name] = names[0] if names else "-"
    return reservation_of_pod


def used(made: FakeCluster, node: str = "n1") -> int:
    made.state.refresh()
    return made.state.used_on(node)[CPU]


def test_what_is_held_is_not_free_for_others() -> None:
    made = cluster(make_reservation(cpu=8000))
    assert plan(made, other("a")) == {}
    assert plan(made, other("b", 2000)) == {"b": "-"}
    assert used(made) == 10000


def test_an_owner_uses_it_and_what_is_left_stays_held() -> None:
    made = cluster(make_reservation(cpu=8000))
    assert plan(made, web("a")) == {"a": "r"}
    assert used(made) == 8000
    assert plan(made, other("x", 3000), web("b")) == {"b": "r"}
    assert plan(made, other("y", 2000)) == {"y": "-"}
    assert used(made) == 10000


def test_owners_in_one_cycle_share_what_is_held() -> None:
    made = cluster(make_reservation(cpu=8000))
    outcome = made.plan(make_unit("job", [web(f"w{at}", 2000).build() for at in range(6)]))
    assert not outcome.placements, "8 are held and 2 are free"
    outcome = made.plan(make_unit("job", [web(f"w{at}", 2000).build() for at in range(5)]))
    assert sorted(uses(outcome).values()) == ["r"] * 5


def test_the_worked_example_of_the_limits() -> None:
    """P = 10, R1 Restricted with 8 of which 3 are used, R2 with 6: limits 5, 14 and 8."""
    r1 = make_reservation("r1", cpu=8000, policy=RESTRICTED)
    r2 = make_reservation("r2", cpu=6000, policy=ALIGNED)

    def outcome(cpu: int, *, matches_r2: bool = True, **hints: Any) -> str:
        second = r2 if matches_r2 else replace(r2, namespace="elsewhere")
        made = cluster(r1, second, cpu=32000)
        assert plan(made, other("p", 10000))
        assert plan(made, web("in", 3000, has_affinity=True, name="r1")) == {"in": "r1"}
        return plan(made, web("w", cpu, **hints)).get("w", "")

    assert outcome(5000) == "r1"
    assert outcome(6000) == "r2"
    assert outcome(8000) == "r2"
    assert outcome(14000) == "r2"
    assert outcome(15000) == ""
    assert outcome(6000, matches_r2=False) == "-"
    assert outcome(6000, matches_r2=False, has_affinity=True) == ""


def test_a_pod_that_must_use_one_waits_for_it() -> None:
    made = cluster(nodes=2)
    assert plan(made, web("w", has_affinity=True)) == {}
    upsert_reservation(made.state, make_reservation(node="n2"))
    assert plan(made, web("w", has_affinity=True)) == {"w": "r"}


def test_what_keeps_a_pod_out_of_its_reservations_is_counted() -> None:
    taints = (Taint("pool", "train"),)
    made = cluster(
        make_reservation("a", cpu=1000, taints=taints),
        make_reservation("b", cpu=1000, taints=taints),
        make_reservation("c", cpu=1000, is_unschedulable=True),
        make_reservation("d", cpu=1000, namespace="other"),
    )
    made.pods(web("w", 1000, has_affinity=True))
    assert (
        "0/3 reservations are available: 2 Reservation(s) had untolerated taint, "
        "1 Reservation(s) is unschedulable."
    ) in reasons(made)


def test_one_that_is_used_once_takes_one_pod() -> None:
    once = make_reservation(is_once=True)
    made = cluster(once)
    assert plan(made, web("a"), web("b")) == {"a": "r"}
    assert used(made) == 8000, "its rest is held until its status says that it is over"
    upsert_reservation(made.state, replace(once, status=succeed(once.status)))
    assert plan(made, web("b")) == {"b": "-"}


def test_one_that_is_used_once_takes_all_that_starts_with_its_first_pod() -> None:
    once = make_reservation(is_once=True)
    made = cluster(once, cpu=8000)
    pods = [web(f"a-{at}", 2000).build() for at in range(4)]
    late = web("late", 2000).build()
    made.pods(*pods, late)
    outcome = made.place(make_unit("g", pods), make_unit(late.uid, [late]))
    assert uses(outcome) == dict.fromkeys(("a-0", "a-1", "a-2", "a-3"), "r")
    assert used(made) == 8000, "what is held and used is counted once"
    made.delete_pods("a-0")
    assert used(made) == 8000
    assert plan(made, web("late", 2000)) == {}, "others wait until it is over"


def test_what_is_left_of_it_is_held_from_other_units() -> None:
    made = cluster(make_reservation(is_once=True), cpu=8000)
    pods = [web(f"a-{at}", 2000).build() for at in range(2)]
    more = [web(f"b-{at}", 1000).build() for at in range(2)]
    made.pods(*pods, *more)
    outcome = made.place(make_unit("g", pods), make_unit("h", more))
    assert uses(outcome) == {"a-0": "r", "a-1": "r"}


def test_a_unit_that_is_refused_has_not_begun_to_use_it() -> None:
    made = cluster(make_reservation(is_once=True), cpu=8000)
    pods = [web(f"a-{at}", 3000).build() for at in range(3)]
    more = [web(f"b-{at}", 4000).build() for at in range(2)]
    made.pods(*pods, *more)
    outcome = made.place(make_unit("g", pods), make_unit("h", more))
    assert uses(outcome) == {"b-0": "r", "b-1": "r"}


@given(
    sizes=st.lists(st.integers(1, 8), min_size=2, max_size=5),
    held=st.integers(1, 8),
    is_once=st.booleans(),
    policy=st.sampled_from([RESTRICTED, ALIGNED]),
    taken=st.integers(0, 4),
)
def test_a_gang_fits_as_if_nothing_was_held_for_it(
    sizes: list[int], held: int, policy: AllocatePolicy, taken: int, *, is_once: bool
) -> None:
    """What is held for its members keeps none of them out, and what is held is held once."""

    def make() -> FakeCluster:
        made = cluster(cpu=8)
        if taken <= 8 - held:
            made.pods(other("x", taken).running("n1"))
        return made

    pods = [web(f"a-{at}", size).build() for at, size in enumerate(sizes)]
    plain, made = make(), make()
    upsert_reservation(made.state, make_reservation(cpu=held, is_once=is_once, policy=policy))
    made.pods(*pods)
    plain.pods(*pods)
    placed = bool(made.place(make_unit("g", pods)).placements)
    fits = bool(plain.place(make_unit("g", pods)).placements)
    may_begin = policy is ALIGNED or min(sizes) <= held
    assert placed is fits or (not may_begin or not (is_once or policy is ALIGNED))
    assert fits or not placed
    assert used(made) <= 8


def test_a_pod_that_ends_gives_its_part_back_to_the_reservation() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    made.delete_pods("a")
    assert used(made) == 8000
    assert plan(made, web("b", 8000)) == {"b": "r"}


def test_without_the_reservation_its_pods_are_ordinary_pods() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    remove_reservation(made.state, make_reservation())
    assert used(made) == 4000
    again = replace(make_reservation(), uid="another")
    upsert_reservation(made.state, again)
    assert used(made) == 12000, "the pod is no owner of it, whatever its name"
    assert made.state.plugin(Reservations).users_of("another") == []


def test_a_reservation_is_placed_like_a_pod() -> None:
    made = cluster(make_reservation(node=""), nodes=2)
    plan(made, other("x", 5000))
    (placement,) = plan_queue(made).placements
    (assignment,) = placement.assignments
    assert (assignment.pod.name, assignment.node) == ("reservation:r", "n2")


def test_a_pinned_reservation_goes_nowhere_else() -> None:
    made = cluster(make_reservation(node="", pinned_to="n1"), nodes=2)
    plan(made, other("x", 5000))
    (refusal,) = plan_queue(made).refusals
    assert "1 didn't match the nodeName specified by reservation" in refusal.reason.text()


def test_policies_that_do_not_suit_each_other_go_to_different_nodes() -> None:
    waiting = make_reservation("b", node="", cpu=1000)
    made = cluster(make_reservation("a", cpu=1000, policy=RESTRICTED), waiting)
    (refusal,) = plan_queue(made).refusals
    assert "reservation allocate policy conflict" in refusal.reason.text()
    made = cluster(
        make_reservation("b", node="", cpu=1000),
        make_reservation("c", node="", cpu=1000, policy=RESTRICTED),
    )
    assert len(plan_queue(made).placements) == 1, "also within one cycle"


def test_reservations_pay_their_quota_and_leave_it_to_their_pods() -> None:
    made = cluster(make_reservation(node="", cpu=8000), cpu=64000)
    made.quotas(make_quota("default", "default", min={CPU: 8000}, max={CPU: 8000}))
    assert len(plan_queue(made).placements) == 1
    upsert_reservation(made.state, make_reservation(cpu=8000))
    assert plan(made, other("x")) == {}
    assert plan(made, web("a")) == {"a": "r"}
    assert plan(made, other("x")) == {}
    assert plan(made, web("b"), web("c")) == {"b": "r"}


def test_a_reservation_beyond_its_quota_is_refused() -> None:
    made = cluster(make_reservation(node="", cpu=8000), cpu=64000)
    made.quotas(make_quota("default", "default", min={CPU: 1000}, max={CPU: 1000}))
    (refusal,) = plan_queue(made).refusals
    assert "default" in refusal.reason.text()


def test_every_rule_is_explained_with_its_numbers() -> None:
    reservation = make_reservation(policy=RESTRICTED, taints=(Taint("pool", "train"),))
    made = cluster(reservation)
    made.pods(web("w", 9000))
    checks = {check.rule: check for check in explain(made.state, reservation, made.pod("w"))}
    assert [name for name, check in checks.items() if not check.holds] == ["taints", "limit inside"]
    assert checks["taints"].detail == "pool=train:NoSchedule"
    assert checks["limit of the node"].detail == "cpu 10"
    assert "requested: 9000, used: 0, capacity: 8000" in checks["limit inside"].detail


def test_what_cannot_be_read_is_named() -> None:
    made = cluster(
        make_reservation(node="", problems=(("spec.owners[0]", "is empty"),)),
        make_reservation("none", node="", reserved={}),
    )
    made.pods(web("w", has_affinity=True, problems=(("metadata.annotations[x]", "is not JSON"),)))
    texts = " ".join(refusal.reason.text() for refusal in plan_queue(made).refusals)
    assert "spec.owners[0] is empty" in texts
    assert "spec.template.spec.containers must request" in texts
    assert "is not JSON" in texts


def test_of_ignored_resources_pods_use_more_than_is_reserved() -> None:
    ignored = IgnoredResources(groups=frozenset({"example.com"}))
    for options, expected in (({}, ""), ({"ignored": ignored}, "r")):
        made = FakeCluster(**options)
        made.nodes(make_node("n1").cpu(10000).resource("example.com/card", 8))
        reserved = {"cpu": 4000, "example.com/card": 2}
        upsert_reservation(made.state, make_reservation(policy=RESTRICTED, reserved=reserved))
        pod = web("w", 2000, has_affinity=True).resource("example.com/card", 4)
        assert plan(made, pod).get("w", "") == expected
