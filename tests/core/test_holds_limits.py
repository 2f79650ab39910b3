"""Room that is kept counts for the quota, lasts a limited time, and can be given up."""

from __future__ import annotations

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group
from tests.cluster import SCORING, placed_on, plan_in
from tests.core.test_holds import A, B, Scene, make_non_strict
from tests.objects import upsert_pod_group
from tests.placement.test_quotas import team

from koord.core.engine.holds import Holds
from koord.core.engine.queue import unit_of
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.pods import Pod, PodPhase
from koord.core.quota.reasons import QuotaExceeded
from koord.core.quota.session import QuotaSession

HOUR = 3600.0


def started(name: str, node: str, gang: str = A, size: int = 4) -> Pod:
    pod = make_pod(name).gang(gang).gpu(8).quota("team")
    return pod.released(node, "p", gang, size, size).running(node).build()


def waiting(name: str, gang: str | None = None, quota: str = "team") -> Pod:
    pod = make_pod(name).gpu(8).quota(quota)
    return (pod.gang(gang) if gang else pod).build()


def make_scene(nodes: int = 8, most: int = 32, wait: int = 60) -> Scene:
    """A gang of four with all that its quota may use."""
    scene = Scene(nodes)
    scene.cluster.quotas(team("team", most=most), team("other", most=64))
    scene.cluster.pod_groups(make_pod_group(A, 4).wait(wait))
    scene.put(*(started(f"a-{at}", f"n{at}") for at in range(4)))
    return scene


def lose(scene: Scene, *members: int) -> None:
    scene.remove(*(f"uid-default-a-{at}" for at in members))


def kept_and_used(scene: Scene, quota: str = "team") -> int:
    """Return what a quota uses in a cycle in which room is kept."""
    cycle = scene.cluster.open_cycle()
    scene.holds.plan(cycle, (), plan_in, SCORING, scene.now)
    session = cycle.find_session(QuotaSession)
    assert session is not None
    return session._ledger.account(quota).used.get(GPU, 0)


def test_kept_room_counts_as_used_for_new_pods_of_its_quota() -> None:
    scene = make_scene()
    lose(scene, 1, 2, 3)
    assert kept_and_used(scene) == 32
    rival, stranger = waiting("rival"), waiting("stranger", quota="other")
    scene.put(rival, stranger)
    outcome = scene.plan(unit_of(rival), unit_of(stranger))
    assert placed_on(outcome).keys() == {"stranger"}, "the nodes have room for both"
    (refusal,) = outcome.refusals
    assert refusal.reason == HeldForReplacements((A,), 3, 60)


def test_quota_refusal_says_what_of_its_use_is_kept() -> None:
    scene = make_scene()
    lose(scene, 2, 3)
    scene.cluster.pod_groups(make_pod_group(B, 3))
    scene.put(*(waiting(f"b-{at}", B) for at in range(3)))
    (refusal,) = scene.plan(*scene.units(B)).refusals
    assert isinstance(refusal.reason, QuotaExceeded), "too much even without kept room"
    assert "uses 32 (kept for gangs: 16) and needs 24 more" in refusal.reason.text()


def test_replacements_are_not_charged_twice() -> None:
    scene = make_scene()
    lose(scene, 1, 2, 3)
    scene.put(*(waiting(f"a-{at}", A) for at in range(4, 7)))
    outcome = scene.plan(*scene.units(A))
    assert placed_on(outcome).keys() == {"a-4", "a-5", "a-6"}
    assert len(scene.holds) == 0


def test_released_member_without_a_node_pays_for_its_room_once() -> None:
    scene = make_scene()
    lose(scene, 3)
    late = make_pod("a-3").gang(A).gpu(8).quota("team").released("n3", "p", A, 4, 4).build()
    scene.put(late)
    assert scene.holds.reserved_for_replacements() == {A: 1}
    assert kept_and_used(scene) == 32


def test_no_more_is_kept_than_the_quota_may_use() -> None:
    scene = make_scene()
    lose(scene, 1, 2, 3)
    scene.cluster.quotas(team("team", most=16))
    assert kept_and_used(scene) == 16
    others = [waiting(f"other-{at}", quota="other") for at in range(8)]
    scene.put(*others)
    assert len(placed_on(scene.plan(*map(unit_of, others)))) == 6, "8 nodes, one used, one kept"


def test_gangs_that_lose_members_in_turn_keep_no_more_than_their_quota() -> None:
    scene = make_scene(nodes=16)
    lose(scene, 1, 2, 3)
    # Running members of another gang arrived while nothing was kept, for example after a restart.
    scene.cluster.pod_groups(make_pod_group(B, 4).wait(60))
    scene.put(*(started(f"b-{at}", f"n{at + 8}", B) for at in range(4)))
    scene.remove(*(f"uid-default-b-{at}" for at in (1, 2, 3)))
    assert scene.holds.reserved_for_replacements() == {A: 3, B: 3}
    assert kept_and_used(scene) == 32


@pytest.mark.parametrize(("wait", "kept"), [(60, 60.0), (10**9, 600.0)])
def test_time_is_limited_whatever_the_gang_says(wait: int, kept: float) -> None:
    scene = make_scene(wait=wait)
    lose(scene, 3)
    assert scene.holds.next_due() == kept


def test_limit_can_be_configured() -> None:
    scene = make_scene(wait=60)
    scene.holds = Holds(most_seconds=0)
    lose(scene, 3)
    assert len(scene.holds) == 0


def test_further_losses_do_not_prolong_the_time() -> None:
    scene = make_scene(wait=600)
    lose(scene, 3)
    scene.now = 500.0
    lose(scene, 2)
    assert scene.holds.reserved_for_replacements() == {A: 2}
    assert scene.holds.next_due() == 600.0
    assert scene.holds.expire(600.0) == {"n2", "n3"}
    scene.now = 700.0
    lose(scene, 1)
    assert len(scene.holds) == 0


def test_time_is_earned_back_by_running() -> None:
    """Members that come and go keep room for as long as they run, at most."""
    scene = make_scene(wait=600)
    lose(scene, 3)
    scene.holds.expire(600.0)
    scene.now = 600.0
    scene.put(started("a-3", "n3"))
    scene.now = 610.0
    lose(scene, 3)
    assert scene.holds.next_due() == 620.0, "it was whole for ten seconds"
    scene.put(started("a-3", "n3"))
    scene.now = 2 * HOUR
    lose(scene, 3)
    assert scene.holds.next_due() == 2 * HOUR + 600


def test_time_counts_while_a_gang_is_below_its_minimum_only() -> None:
    scene = make_scene(wait=600)
    lose(scene, 3)
    scene.now = 100.0
    scene.put(started("a-3", "n3"))
    lose(scene, 2)
    assert scene.holds.next_due() == 600.0, "100 of 600 s are used"


def test_room_can_be_given_up() -> None:
    scene = make_scene(wait=600)
    lose(scene, 3)
    given_up = make_pod_group(A, 4).wait(600).keeps_room(is_kept=False).build()
    upsert_pod_group(scene.state, given_up)
    assert scene.follow() == {"n3"}
    assert len(scene.holds) == 0
    scene.put(rival := waiting("rival"))
    assert placed_on(scene.plan(unit_of(rival))).keys() == {"rival"}
    scene.now = 300.0
    upsert_pod_group(scene.state, make_pod_group(A, 4).wait(600).build())
    scene.follow()
    assert scene.holds.next_due() == 900.0, "no time was used"


def test_room_of_non_strict_gangs_counts_and_ends_alike() -> None:
    scene = Scene(6)
    scene.cluster.quotas(team("team", most=24), team("other", minimum=40))
    keys = ("default/x", "default/y")
    scene.cluster.pod_groups(*(make_non_strict(key, 4, wait=10**9) for key in keys))
    scene.put(*(waiting(f"{key[-1]}-{at}", key) for key in keys for at in range(4)))
    units = [unit for key in keys for unit in scene.units(key)]
    scene.plan(*units)
    assert sum(scene.holds.reserved_pods().values()) == 3, "as much as the quota may use"
    assert kept_and_used(scene) == 24
    assert scene.holds.next_due() == 600.0
    others = [waiting(f"other-{at}", quota="other") for at in range(5)]
    scene.put(*others)
    assert len(placed_on(scene.plan(*map(unit_of, others)))) == 5, "whoever fits as a whole has it"


def test_non_strict_gang_that_comes_again_and_again_keeps_room_for_half_of_the_time() -> None:
    scene = Scene(2)
    scene.cluster.pod_groups(make_non_strict(A, 3, wait=600))
    kept = 0.0
    for _ in range(20):
        scene.put(*(waiting(f"a-{at}", A) for at in range(3)))
        scene.plan(*scene.units(A))
        due = scene.holds.next_due()
        if due is not None:
            kept += due - scene.now
            scene.holds.expire(due)
            scene.now = due
        scene.now += 60.0
        scene.remove("uid-default-a-2")
        scene.holds.drop(lambda _: True, scene.now)
    assert kept <= scene.now / 2 + 600


def test_failed_members_are_lost_members() -> None:
    scene = make_scene()
    failed = make_pod("a-3").gang(A).gpu(8).quota("team").released("n3", "p", A, 4, 4)
    scene.put(failed.running("n3").phase(PodPhase.FAILED).build())
    assert scene.holds.reserved_for_replacements() == {A: 1}
    assert kept_and_used(scene) == 32


def test_kept_room_moves_to_a_node_that_takes_it() -> None:
    scene = make_scene(nodes=4)
    lose(scene, 3)
    scene.state.remove_node("n3")
    scene.state.upsert_node(make_node("new").gpu(8).build())
    assert kept_and_used(scene) == 32
    scene.put(other := waiting("other", quota="other"))
    assert not placed_on(scene.plan(unit_of(other)))
