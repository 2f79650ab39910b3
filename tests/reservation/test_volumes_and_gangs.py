"""Volumes of templates, and reservations that are placed together."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_node, make_pod, make_pod_group, select_labels
from tests.cluster import FakeCluster
from tests.objects import (
    remove_reservation,
    upsert_claim,
    upsert_reservation,
    upsert_storage_class,
    upsert_volume,
)
from tests.reservation.make import make_reservation
from tests.reservation.test_planning import cluster, plan, plan_queue, reasons, web

from koord.core.gang.status import ConditionType, GangStatus, observe
from koord.core.model.constraints import ClaimUse
from koord.core.model.gangs import GangPhase
from koord.core.model.selectors import SelectorTerm
from koord.core.plugins.late_volumes import StorageClass
from koord.core.plugins.volumes import Volume, VolumeClaim
from koord.core.reservation.lifecycle import expire, set_available, succeed
from koord.core.reservation.model import ReservationInfo, ReservationState

NO_CLAIM = ClaimUse("default/none", 0)
IN_B = (SelectorTerm(select_labels(zone="b")),)


def with_claims(reservation: ReservationInfo, *claims: ClaimUse) -> ReservationInfo:
    assert reservation.pod is not None
    return replace(reservation, pod=replace(reservation.pod, claims=claims))


def zones(*, exclusive: bool = False) -> FakeCluster:
    made = FakeCluster()
    for zone in "ab":
        made.nodes(make_node(f"n-{zone}").cpu(10000).label("zone", zone))
    claim = VolumeClaim("default/data", "v", is_bound=True, is_exclusive=exclusive)
    upsert_claim(made.state, claim)
    upsert_volume(made.state, Volume("v", IN_B))
    return made


def nodes_of(made: FakeCluster) -> list[str]:
    placements = plan_queue(made).placements
    return sorted(
        assignment.node for placement in placements for assignment in placement.assignments
    )


def test_a_reservation_goes_where_its_volume_is_and_leaves_it_to_its_owner() -> None:
    made, use = zones(exclusive=True), ClaimUse("default/data", 0)
    waiting = with_claims(make_reservation(node=""), use)
    upsert_reservation(made.state, waiting)
    assert nodes_of(made) == ["n-b"]
    status = set_available(ReservationState(), "n-b", {"cpu": 8000})
    upsert_reservation(made.state, replace(waiting, status=status))
    assert plan(made, web("a").claims("data")) == {"a": "r"}


def test_a_volume_that_is_made_for_each_pod_does_not_keep_a_reservation_waiting() -> None:
    made = zones()
    own = ClaimUse("default/reservation:r-scratch", 0, is_own=True)
    upsert_reservation(made.state, with_claims(make_reservation(node=""), own))
    assert len(nodes_of(made)) == 1


def test_a_volume_that_is_bound_with_its_first_pod_does_not_keep_a_reservation_waiting() -> None:
    made, use = zones(), ClaimUse("default/late", 0)
    upsert_claim(made.state, VolumeClaim("default/late", storage_class="local"))
    upsert_storage_class(made.state, StorageClass("local", is_delayed=True))
    upsert_reservation(made.state, with_claims(make_reservation(node=""), use))
    assert len(nodes_of(made)) == 1
    upsert_reservation(made.state, with_claims(make_reservation("no", node="", cpu=1), NO_CLAIM))
    assert '"none" not found' in reasons(made), "a claim that does not exist is named"


def of_gang(name: str, **fields: object) -> ReservationInfo:
    reservation = make_reservation(name, node="", cpu=8000, **fields)
    assert reservation.pod is not None
    gang = make_pod("like").gang("default/room").build().gang
    return replace(reservation, pod=replace(reservation.pod, gang=gang))


def test_reservations_of_one_gang_are_placed_all_or_none() -> None:
    made = cluster(of_gang("a"), of_gang("b"), nodes=1)
    made.pod_groups(make_pod_group("default/room", 2))
    assert "2 pods" in reasons(made)
    made.nodes(make_node("n2").cpu(10000))
    assert nodes_of(made) == ["n1", "n2"]


def test_after_a_crash_between_two_writes_the_rest_of_a_gang_follows() -> None:
    made = cluster(of_gang("a"), of_gang("b"), nodes=2)
    made.pod_groups(make_pod_group("default/room", 2))
    status = set_available(ReservationState(), "n1", {"cpu": 8000})
    upsert_reservation(made.state, replace(of_gang("a"), status=status))
    assert nodes_of(made) == ["n2"]


def observe_room(*reservations: ReservationInfo, then: ReservationInfo | None = None) -> GangStatus:
    """Return the status of the gang ``room`` with its reservations, one of which changes."""
    made = cluster(*reservations, nodes=2)
    made.pod_groups(make_pod_group("default/room", 2))
    if then is not None:
        upsert_reservation(made.state, then)
    return observe(made.state.gangs, "default/room", 0.0)


def find(status: GangStatus, kind: ConditionType) -> tuple[bool, str]:
    conditions = {
        kind_of_condition: (is_true, why.text())
        for kind_of_condition, is_true, why in status.conditions
    }
    return conditions[kind]


def test_the_status_of_a_gang_of_reservations_from_its_start_to_its_end() -> None:
    held = set_available(ReservationState(), "n1", {"cpu": 8000})
    a, b = of_gang("a"), of_gang("b")
    there = [replace(reservation, status=held) for reservation in (a, b)]
    status = observe_room(*there)
    assert find(status, ConditionType.PLACED) == (True, "2 pods placed on 1 node")
    assert status.phase is GangPhase.RUNNING
    used = [replace(reservation, status=succeed(held)) for reservation in there]
    status = observe_room(*there, then=used[0])
    assert find(status, ConditionType.QUORUM_REACHED)[0], "one has been used"
    assert find(status, ConditionType.PLACED)[0]
    assert status.phase is GangPhase.RUNNING
    status = observe_room(used[0], there[1], then=used[1])
    assert status.phase is GangPhase.FINISHED
    assert status == observe_room(*used), "the same after a restart"
    expired = [replace(reservation, status=expire(held, 1.0)) for reservation in there]
    assert observe_room(*expired).phase is GangPhase.FAILED


def test_a_reservation_that_was_used_is_no_member_once_it_is_deleted() -> None:
    used = replace(
        of_gang("a"), status=succeed(set_available(ReservationState(), "n1", {"cpu": 8000}))
    )
    made = cluster(used)
    assert made.state.gangs.members("default/room")
    remove_reservation(made.state, used)
    assert not made.state.gangs.members("default/room")
