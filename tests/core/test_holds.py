"""Room that is kept: for lost members from all, for NonStrict gangs as long as nobody fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group, make_pods
from tests.cluster import SCORING, make_cluster, placed_on, plan_in

from koord.core.framework.reasons import InsufficientNodes
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.reasons import KeptForReplacements
from koord.core.gang_model import GangMode, MatchPolicy, OnMemberFailure
from koord.core.holds import Holds
from koord.core.queue import unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.gang_model import PodGroup
    from koord.core.plan import Plan, Unit
    from koord.core.pods import Pod

A, B = "default/a", "default/b"


class Scene:
    """A cluster, the room that is held, and a clock."""

    def __init__(self, nodes: int, pods: Sequence[Pod] = (), groups: Sequence[PodGroup] = ()):
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


def test_the_slot_of_a_lost_member_is_kept_for_its_replacement() -> None:
    scene = make_degraded()
    thief = waiting("thief")
    scene.put(thief)
    refused = scene.plan(unit_of(thief)).refusals
    assert [refusal.reason for refusal in refused] == [KeptForReplacements((A,), 1, 60)]
    scene.put(waiting("a-2", A))
    (repair,) = scene.units(A)
    assert placed_on(scene.plan(unit_of(thief), repair)) == {"a-2": "n1"}, "whatever the order"


def test_what_is_kept_is_kept_from_higher_priorities_and_left_to_smaller_pods() -> None:
    scene = make_degraded()
    vip = make_pod("vip").gpu(8).priority(10**6).build()
    small = make_pod("small").requests(cpu=100).build()
    outcome = scene.plan(unit_of(vip), unit_of(small))
    assert placed_on(outcome).keys() == {"small"}


def test_the_wait_time_bounds_what_is_kept_and_does_not_begin_again() -> None:
    scene = make_degraded(wait=60)
    thief = unit_of(waiting("thief"))
    assert scene.holds.next_expiry() == 60.0
    assert scene.holds.expire(59.0) == set()
    assert scene.holds.expire(60.0) == {"n1"}, "who waits for it is to try again"
    scene.now = 61.0
    scene.state.upsert_pod_group(make_pod_group(A, 2).wait(61).build())
    scene.follow()
    assert scene.holds.next_expiry() is None
    assert placed_on(scene.plan(thief)) == {"thief": "n1"}


def test_nothing_is_kept_once_the_gang_is_at_strength_or_gone() -> None:
    scene = make_degraded(3)
    scene.put(started("a-2", "n2"))
    assert (len(scene.holds), scene.holds.reserved_pods()) == (0, {})
    scene = make_degraded()
    assert scene.holds.reserved_pods() == {A: 1}
    assert scene.remove("uid-default-a-0") == {"n1"}, "a job that ended altogether is not repaired"
    assert len(scene.holds) == 0


def test_who_is_on_the_way_out_keeps_its_own_room() -> None:
    scene = Scene(3, [started("a-0", "n0")], [make_pod_group(A, 2).build()])
    leaver = make_pod("a-1").gang(A).gpu(8).released("n1", "p", A, 2, 2).running("n1")
    scene.put(leaver.build())
    scene.put(leaver.terminating().build())
    assert len(scene.holds) == 0
    scene.remove("uid-default-a-1")
    assert scene.holds.reserved_pods() == {A: 1}


def test_a_slot_whose_node_is_gone_is_kept_where_there_is_room() -> None:
    scene = make_degraded()
    scene.state.remove_node("n1")
    thief = unit_of(waiting("thief"))
    assert isinstance(scene.plan(thief).refusals[0].reason, InsufficientNodes), "no room at all"
    scene.state.upsert_node(make_node("new").gpu(8).build())
    assert isinstance(scene.plan(thief).refusals[0].reason, KeptForReplacements)
    scene.put(waiting("a-2", A))
    assert placed_on(scene.plan(thief, *scene.units(A))) == {"a-2": "new"}


def test_after_a_restart_room_like_that_of_a_living_member_is_kept() -> None:
    scene = Scene(2, [started("a-0", "n0")], [make_pod_group(A, 2).build()])
    assert scene.plan(unit_of(waiting("thief"))).refusals


def test_slots_are_kept_for_replacements_that_wait_for_each_other() -> None:
    """Two are lost, and one slot is free: nobody takes it while the other is not."""
    pods = [started("a-0", "n0"), started("a-1", "n1"), started("a-2", "n2")]
    scene = Scene(3, pods, [make_pod_group(A, 3).build()])
    scene.put(make_pod("squatter").gpu(8).running("n2").build())
    scene.remove("uid-default-a-1", "uid-default-a-2")
    scene.put(waiting("a-3", A, 8))
    thief = unit_of(waiting("thief"))
    assert placed_on(scene.plan(thief, *scene.units(A))) == {"a-3": "n1"}


def test_compat_keeps_nothing() -> None:
    scene = make_degraded()
    scene.state.gangs.compat = True
    scene.put(started("a-9", "n0"))
    assert len(scene.holds) == 0


def make_non_strict(key: str, minimum: int, wait: int = 60) -> PodGroup:
    return make_pod_group(key, minimum).mode(GangMode.NON_STRICT).wait(wait).build()


def gang_pods(prefix: str, count: int, key: str) -> list[Pod]:
    return [waiting(f"{prefix}-{i}", key) for i in range(count)]


def test_what_fits_of_a_non_strict_gang_is_kept_from_surplus() -> None:
    groups = [make_non_strict(A, 3), make_pod_group(B, 1).build()]
    scene = Scene(2, [*gang_pods("a", 3, A), *gang_pods("b", 2, B)], groups)
    outcome = scene.plan(*scene.units(A), *scene.units(B))
    assert scene.holds.reserved_pods() == {A: 1}, (
        "B needs one node, and has it; its surplus has none"
    )
    assert len(placed_on(outcome)) == 1
    assert {refusal.unit for refusal in outcome.refusals} == {A}


def test_who_lost_its_node_does_not_take_the_room_that_was_planned_for_another() -> None:
    """A start was cut off between two writes; the member that is left goes where it was to go."""
    groups = [make_pod_group(key, 2).wait(60).build() for key in (A, B)]
    scene = Scene(3, [started("a-0", "n0"), started("a-1", "gone")], groups)
    scene.remove("uid-default-a-1")
    late = make_pod("b-1").gang(B).gpu(8).released("n2", "p", B, 2, 2).build()
    scene.put(started("b-0", "n1", B), late)
    assert scene.holds.reserved_for_replacements() == {A: 1, B: 1}
    assert placed_on(scene.plan(*scene.units(B))) == {"b-1": "n2"}


def test_nothing_is_kept_any_more_for_a_non_strict_gang_that_has_its_place() -> None:
    """Else whoever comes after it in the same cycle sleeps, and nothing that happens wakes it."""
    scene = Scene(1, gang_pods("a", 2, A), [make_non_strict(A, 2)])
    scene.plan(*scene.units(A))
    assert scene.holds.reserved_pods() == {A: 1}
    for name in ("n1", "n2"):
        scene.state.upsert_node(make_node(name).gpu(8).build())
    outcome = scene.plan(*scene.units(A), unit_of(waiting("single")))
    assert placed_on(outcome).keys() == {"a-0", "a-1", "single"}


def test_room_of_who_was_lost_gives_way_to_nobody_though_a_non_strict_gang_keeps_it_too() -> None:
    """Where members gather anew, replacements are a unit that keeps what fits of it."""
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


def test_what_is_kept_for_a_non_strict_gang_gives_way_to_what_fits_whole() -> None:
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


def test_a_non_strict_gang_starts_whole_when_the_rest_fits() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3)])
    assert not scene.plan(*scene.units(A)).placements
    scene.state.upsert_node(make_node("n2").gpu(8).build())
    assert len(placed_on(scene.plan(*scene.units(A)))) == 3
    assert scene.holds.reserved_pods() == {}


def test_the_lease_of_a_non_strict_gang_runs_out_for_good() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3, wait=60)])
    scene.plan(*scene.units(A))
    assert scene.holds.expire(60.0) == {"n0", "n1"}
    scene.now = 61.0
    scene.plan(*scene.units(A))
    assert scene.holds.reserved_pods() == {}


def test_a_gang_that_is_gone_keeps_nothing() -> None:
    scene = Scene(2, gang_pods("a", 3, A), [make_non_strict(A, 3)])
    scene.plan(*scene.units(A))
    assert scene.holds.drop(lambda key: key == A) == {"n0", "n1"}
    assert scene.holds.next_expiry() is None


def test_a_group_is_non_strict_if_all_of_its_gangs_are() -> None:
    groups = [
        make_pod_group(A, 1).group(A, B).mode(GangMode.NON_STRICT).build(),
        make_pod_group(B, 1).group(A, B).build(),
    ]
    scene = Scene(0, [*make_pods("a", 1, A), *make_pods("b", 1, B)], groups)
    assert [unit.lease_seconds for unit in scene.units(A)] == [0]
