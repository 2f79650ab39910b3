"""Holds for replacements of lost members and for NonStrict gangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group, make_pods
from tests.cluster import SCORING, make_cluster, placed_on, plan_in
from tests.objects import upsert_pod_group

from koord.core.engine.holds import Holds
from koord.core.engine.queue import unit_of
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.gangs import GangMode, MatchPolicy, OnMemberFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.plan import Plan, Unit
    from koord.core.model.pods import Pod

A, B = "default/a", "default/b"


class Scene:
    """A cluster, its holds, and a clock."""

    def __init__(
        self, nodes: int, pods: Sequence[Pod] = (), groups: Sequence[ObservedPodGroup] = ()
    ):
        self.cluster = make_cluster(nodes).pod_groups(*groups)
        self.state = self.cluster.state
        self.holds = Holds()
        self.now = 0.0
        self.put(*pods)

    def put(self, *pods: Pod) -> None:
        self.cluster.pods(*pods)
        self.follow()

    def remove(self, *uids: str) -> set[str]:
        for uid in uids:
            self.state.remove_pod(uid)
        return self.follow()

    def follow(self) -> set[str]:
        return self.holds.absorb(self.cluster.feed.drain().gangs, self.state, self.now)

    def plan(self, *units: Unit) -> Plan:
        cycle = self.cluster.open_cycle()
        outcome = self.holds.plan(cycle, units, plan_in, SCORING, self.now)
        used = cycle.used.copy()
        assert (used >= 0).all()
        assert (used <= self.state.table.allocatable[: len(used)]).all()
        return outcome

    def units(self, key: str) -> tuple[Unit, ...]:
        made = demands(self.state.gangs, key)
        assert isinstance(made, Ready), made
        return made.units


def started(name: str, node: str, gang: str = A) -> Pod:
    return make_pod(name).gang(gang).gpu(8).released(node, "p", gang, 2, 2).running(node).build()


def waiting(name: str, gang: str | None = None, gpus: int = 8) -> Pod:
    pod = make_pod(name).gpu(gpus)
    return (pod.gang(gang) if gang else pod).build()


def make_degraded(nodes: int = 2, wait: int = 60) -> Scene:
    group = make_pod_group(A, 2).wait(wait).build()
    scene = Scene(nodes, [started("a-0", "n0"), started("a-1", "n1")], [group])
    scene.remove("uid-default-a-1")
    return scene


def test_room_of_a_lost_member_is_reserved_for_its_replacement() -> None:
    scene = make_degraded()
    thief = waiting("thief")
    scene.put(thief)
    refused = scene.plan(unit_of(thief)).refusals
    assert [refusal.reason for refusal in refused] == [HeldForReplacements((A,), 1, 60)]
    scene.put(waiting("a-2", A))
    (repair,) = scene.units(A)
    assert placed_on(scene.plan(unit_of(thief), repair)) == {"a-2": "n1"}, "whatever the order"


def test_reserved_room_is_refused_to_others_but_other_resources_are_free() -> None:
    scene = make_degraded()
    small = make_pod("small").requests(cpu=100).build()
    outcome = scene.plan(unit_of(waiting("other")), unit_of(small))
    assert placed_on(outcome).keys() == {"small"}


def test_hold_expires_after_the_wait_time_and_is_not_renewed() -> None:
    scene = make_degraded(wait=60)
    thief = unit_of(waiting("thief"))
    assert scene.holds.next_due() == 60.0
    assert scene.holds.expire(59.0) == set()
    assert scene.holds.expire(60.0) == {"n1"}, "waiting units must be retried"
    scene.now = 61.0
    upsert_pod_group(scene.state, make_pod_group(A, 2).wait(61).build())
    scene.follow()
    assert scene.holds.next_due() is None
    assert placed_on(scene.plan(thief)) == {"thief": "n1"}


def test_hold_ends_when_the_gang_is_complete_or_deleted() -> None:
    scene = make_degraded(3)
    scene.put(started("a-2", "n2"))
    assert (len(scene.holds), scene.holds.reserved_pods()) == (0, {})
    scene = make_degraded()
    assert scene.holds.reserved_pods() == {A: 1}
    assert scene.remove("uid-default-a-0") == {"n1"}, "a job that ended altogether is not repaired"
    assert len(scene.holds) == 0


def test_terminating_member_needs_no_hold() -> None:
    scene = Scene(3, [started("a-0", "n0")], [make_pod_group(A, 2).build()])
    leaver = make_pod("a-1").gang(A).gpu(8).released("n1", "p", A, 2, 2).running("n1")
    scene.put(leaver.build())
    scene.put(leaver.terminating().build())
    assert len(scene.holds) == 0
    scene.remove("uid-default-a-1")
    assert scene.holds.reserved_pods() == {A: 1}


def test_slot_of_a_deleted_node_moves_to_another_node() -> None:
    scene = make_degraded()
    scene.state.remove_node("n1")
    thief = unit_of(waiting("thief"))
    assert isinstance(scene.plan(thief).refusals[0].reason, InsufficientNodes), "no room at all"
    scene.state.upsert_node(make_node("new").gpu(8).build())
    assert isinstance(scene.plan(thief).refusals[0].reason, HeldForReplacements)
    scene.put(waiting("a-2", A))
    assert placed_on(scene.plan(thief, *scene.units(A))) == {"a-2": "new"}


def test_after_a_restart_the_slot_has_the_shape_of_a_running_member() -> None:
    scene = Scene(2, [started("a-0", "n0")], [make_pod_group(A, 2).build()])
    assert scene.plan(unit_of(waiting("thief"))).refusals


def test_slot_stays_reserved_while_replacements_wait_for_each_other() -> None:
    """Two members are lost and one slot is free: it stays reserved until the other is free, too."""
    pods = [started("a-0", "n0"), started("a-1", "n1"), started("a-2", "n2")]
    scene = Scene(3, pods, [make_pod_group(A, 3).build()])
    scene.put(make_pod("squatter").gpu(8).running("n2").build())
    scene.remove("uid-default-a-1", "uid-default-a-2")
    scene.put(waiting("a-3", A, 8))
    thief = unit_of(waiting("thief"))
    assert placed_on(scene.plan(thief, *scene.units(A))) == {"a-3": "n1"}


def test_compat_mode_has_no_holds() -> None:
    scene = make_degraded()
    scene.state.gangs.compat = True
    scene.put(started("a-9", "n0"))
    assert len(scene.holds) == 0


def make_non_strict(key: str, minimum: int, wait: int = 60) -> ObservedPodGroup:
    return make_pod_group(key, minimum).mode(GangMode.NON_STRICT).wait(wait).build()


def gang_pods(prefix: str, count: int, key: str) -> list[Pod]:
    return [waiting(f"{prefix}-{i}", key) for i in range(count)]


def test_surplus_does_not_use_the_hold_of_a_non_strict_gang() -> None:
    groups = [make_non_strict(A, 3), make_pod_group(B, 1).build()]
    scene = Scene(2, [*gang_pods("a", 3, A), *gang_pods("b", 2, B)], groups)
    outcome = scene.plan(*scene.units(A), *scene.units(B))
    assert scene.holds.reserved_pods() == {A: 1}, (
        "B needs one node, and has it; its surplus has none"
    )
    assert len(placed_on(outcome)) == 1
    assert {refusal.unit for refusal in outcome.refusals} == {A}


def test_slot_without_node_does_not_use_the_recorded_node_of_another_member() -> None:
    """A release was interrupted: the remaining member keeps its recorded node."""
    groups = [make_pod_group(key, 2).wait(60).build() for key in (A, B)]
    scene = Scene(3, [started("a-0", "n0"), started("a-1", "gone")], groups)
    scene.remove("uid-default-a-1")
    late = make_pod("b-1").gang(B).gpu(8).released("n2", "p", B, 2, 2).build()
    scene.put(started("b-0", "n1", B), late)
    assert scene.holds.reserved_for_replacements() == {A: 1, B: 1}
    assert placed_on(scene.plan(*scene.units(B))) == {"b-1": "n2"}


def test_hold_of_a_non_strict_gang_ends_when_it_is_placed() -> None:
    """Otherwise the next unit of the cycle is blocked, and no later change requeues it."""
    scene = Scene(1, gang_pods("a", 2, A), [make_non_strict(A, 2)])
    scene.plan(*scene.units(A))
    assert scene.holds.reserved_pods() == {A: 1}
    for name in ("n1", "n2"):
        scene.state.upsert_node(make_node(name).gpu(8).build())
    outcome = scene.plan(*scene.units(A), unit_of(waiting("single")))
    assert placed_on(outcome).keys() == {"a-0", "a-1", "single"}


def test_replacement_hold_has_precedence_over_the_hold_of_a_non_strict_gang() -> None:
    """With a required topology, replacements are a NonStrict unit with a hold of its own."""
    group = make_pod_group(A, 2).mode(GangMode.NON_STRICT).wait(60)
    group = group.match_policy(MatchPolicy.ONLY_WAITING)
    group = group.on_member_failure(OnMemberFailure.REPLACE)
    scene = Scene(2, [started("a-0", "n0"), started("a-1", "n1")], [group.build()])
    scene.remove("uid-default-a-1")
    scene.put(*gang_pods("b", 2, A), waiting("single"))
    for _ in range(2):
        outcome = scene.plan(*scene.units(A), unit_of(waiting("single")))
        assert placed_on(outcome) == {}
        assert scene.holds.reserved_for_replacements() == {A: 1}


def test_complete_unit_takes_the_room_held_for_a_non_strict_gang() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3)])
    scene.plan(*scene.units(A))
    assert scene.holds.reserved_pods() == {A: 2}
    singles = [waiting("s-0"), waiting("s-1")]
    scene.put(*singles)
    assert len(placed_on(scene.plan(*map(unit_of, singles)))) == 2
    assert scene.holds.reserved_pods() == {}


def test_two_non_strict_gangs_do_not_block_each_other() -> None:
    groups = [make_non_strict(A, 4), make_non_strict(B, 2)]
    scene = Scene(3, [*gang_pods("a", 4, A), *gang_pods("b", 2, B)], groups)
    outcome = scene.plan(*scene.units(A), *scene.units(B))
    assert placed_on(outcome).keys() == {"b-0", "b-1"}
    assert scene.holds.reserved_pods() == {A: 1}


def test_non_strict_gang_starts_when_the_remaining_members_fit() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3)])
    assert not scene.plan(*scene.units(A)).placements
    scene.state.upsert_node(make_node("n2").gpu(8).build())
    assert len(placed_on(scene.plan(*scene.units(A)))) == 3
    assert scene.holds.reserved_pods() == {}


def test_expired_hold_of_a_non_strict_gang_is_not_renewed() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3, wait=60)])
    scene.plan(*scene.units(A))
    assert scene.holds.expire(60.0) == {"n0", "n1"}
    scene.now = 61.0
    scene.plan(*scene.units(A))
    assert scene.holds.reserved_pods() == {}


def test_deleted_gang_has_no_hold() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3)])
    scene.plan(*scene.units(A))
    assert scene.holds.drop(lambda key: key == A, scene.now) == {"n0", "n1"}
    assert scene.holds.next_due() is None


def test_a_group_is_non_strict_if_all_of_its_gangs_are() -> None:
    groups = [
        make_pod_group(A, 1).group(A, B).mode(GangMode.NON_STRICT).build(),
        make_pod_group(B, 1).group(A, B).build(),
    ]
    scene = Scene(0, [*make_pods("a", 1, A), *make_pods("b", 1, B)], groups)
    assert [unit.lease_seconds for unit in scene.units(A)] == [0]
