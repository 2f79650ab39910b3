"""Gangs with a restart policy are evicted whole when they lose a member."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.controllers import restart
from koord.core.gang.group import make_group_id
from koord.core.model.gangs import OnBindFailure, OnMemberFailure
from koord.core.model.pods import RecordedPlan
from koord.kube.outcomes import Refused

if TYPE_CHECKING:
    import pytest

    from koord.core.gang.failure import Restart
    from koord.core.model.pods import Pod

A, B = "default/a", "default/b"
PLAN = RecordedPlan("n", "p", A, 3, 3)


def member(name: str, node: str = "n") -> Pod:
    pod = make_pod(name).gang(A).released("n", "p", A, 2, 2)
    return (pod.running(node) if node else pod.select("no", "where").pinned()).build()


def make_scene(on_bind: OnBindFailure = OnBindFailure.RETRY) -> Scene:
    scene = Scene()
    scene.state.upsert_node(make_node("n").gpu(8).build())
    group = make_pod_group(A, 2).on_member_failure(OnMemberFailure.RESTART_GANG)
    upsert_pod_group(scene.state, group.on_bind_failure(on_bind).wait(1).build())
    return scene


async def test_survivors_are_evicted_and_the_gang_restarts() -> None:
    scene = make_scene()
    scene.add(member("a-0"), member("a-1"))
    async with scene.running():
        await scene.settle()
        assert not scene.writer.evicted
        scene.remove("a-1")
        assert await scene.eventually(lambda: scene.writer.evicted == ["a-0"])
        assert scene.announcer.told == ["RestartingGang"]
        scene.add(make_pod("a-2").gang(A).build(), make_pod("a-3").gang(A).build())
        assert await scene.eventually(lambda: scene.writer.bound.keys() == {"a-2", "a-3"})


async def test_survivors_go_at_once_whatever_time_they_want_for_ending() -> None:
    scene = make_scene()
    scene.evictions.soft_limit = 600.0
    scene.add(replace(member("a-0"), soft_eviction=300.0))
    async with scene.running():
        assert await scene.eventually(lambda: scene.writer.evicted == ["a-0"])


async def test_refused_eviction_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "RETRY_SECONDS", 0.1)
    scene = make_scene()
    scene.writer.answers["a-0"] = Refused(403, "no")
    scene.add(member("a-0"))
    async with scene.running():
        assert await scene.eventually(lambda: scene.writer.writes["a-0"] > 1)
        scene.writer.answers.clear()
        assert await scene.eventually(lambda: "a-0" in scene.writer.evicted)


async def test_protected_gang_stays_whole_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restart, "RETRY_SECONDS", 0.01)
    scene = make_scene()
    upsert_pod_group(
        scene.state, make_pod_group(A, 3).on_member_failure(OnMemberFailure.RESTART_GANG).build()
    )
    scene.writer.protected = {"a-1"}
    scene.add(*(replace(member(f"a-{at}"), recorded=PLAN) for at in range(2)))
    async with scene.running():
        assert await scene.eventually(lambda: bool(scene.announcer.told))
        await scene.settle()
        assert scene.announcer.told == ["RestartProtected"]
        assert not scene.writer.evicted
        scene.writer.protected = set()
        assert await scene.eventually(lambda: len(scene.writer.evicted) == 2)
        assert scene.announcer.told == ["RestartProtected", "RestartingGang"]


async def test_nothing_is_evicted_before_the_caches_are_synced() -> None:
    scene = make_scene()
    scene.is_synced = False
    scene.add(member("a-0"))
    async with scene.running():
        await scene.settle()
        assert not scene.writer.evicted
        scene.is_synced = True
        scene.operator.wake()
        assert await scene.eventually(lambda: "a-0" in scene.writer.evicted)


async def test_interrupted_start_gets_the_wait_time() -> None:
    scene = make_scene(OnBindFailure.RESTART_GANG)
    scene.add(member("a-0"), member("a-1", node=""))
    async with scene.running():
        await scene.settle()
        assert not scene.writer.evicted
        assert await scene.eventually(lambda: {"a-0", "a-1"} == set(scene.writer.evicted))


async def test_gang_that_left_its_group_during_a_restart_can_restart_again() -> None:
    scene = make_scene()
    restarts = scene.operator.restarts

    def show(gang: str, *group: str) -> None:
        pod_group = make_pod_group(gang, 2).on_member_failure(OnMemberFailure.RESTART_GANG)
        upsert_pod_group(scene.state, pod_group.group(*group).build())

    def lose_one(gang: str, name: str, group: str) -> list[Restart]:
        for number in range(2):
            pod = make_pod(f"{name}-{number}").gang(gang).released("n", "p", group, 2, 2)
            scene.add(pod.running("n").build())
        scene.remove(f"{name}-1")
        restarts.note({gang})
        return restarts.take()

    show(A, A, B)
    show(B, A, B)
    (first,) = lose_one(A, "a", make_group_id([A, B]))
    show(A)
    show(B)
    await restarts.carry_out(first)
    assert scene.writer.evicted == ["a-0"]
    assert [one.gang for one in lose_one(B, "b", B)] == [B]


def _lose_members(scene: Scene, namespace: str, gangs: int) -> None:
    """Show gangs of two with a member each, and note them."""
    keys = [f"{namespace}/g{number}" for number in range(gangs)]
    for number, key in enumerate(keys):
        pod_group = make_pod_group(key, 2).on_member_failure(OnMemberFailure.RESTART_GANG)
        upsert_pod_group(scene.state, pod_group.build())
        pod = make_pod(f"g{number}-0").gang(key).released("n", "p", key, 2, 2).running("n").build()
        scene.state.upsert_pod(replace(pod, uid=f"uid-{key}", namespace=namespace))
    scene.operator.restarts.note(keys)


async def _count_attempts(scene: Scene, clock: list[float], seconds: int) -> list[str]:
    """Return the gangs that are tried; the state changes all the time."""
    restarts, tried = scene.operator.restarts, list[str]()
    for _ in range(seconds):
        clock[0] += 1.0
        restarts.note(pod.gang.key for pod in scene.state.pods.values() if pod.gang is not None)
        for taken in restarts.take():
            tried.append(taken.gang)
            await restarts.carry_out(taken)
    return tried


def _make_protected_scene() -> tuple[Scene, list[float]]:
    scene, clock = make_scene(), [1000.0]
    scene.operator.restarts.controller.clock = lambda: clock[0]
    scene.writer.may_go = lambda _: _answer(is_allowed=False)  # type: ignore[assignment]
    return scene, clock


async def _answer(*, is_allowed: bool) -> bool:
    return is_allowed


async def test_gang_that_budgets_protect_is_tried_less_and_less() -> None:
    scene, clock = _make_protected_scene()
    _lose_members(scene, "default", 1)
    first = await _count_attempts(scene, clock, 60)
    assert 2 <= len(first) <= 5
    assert 20 <= len(await _count_attempts(scene, clock, 3600)) <= 35
    scene.writer.may_go = lambda _: _answer(is_allowed=True)  # type: ignore[assignment]
    assert await _count_attempts(scene, clock, int(restart.LONGEST_PAUSE_SECONDS) + 1)
    assert scene.writer.evicted == ["g0-0"]


async def test_gangs_of_one_namespace_share_a_number_of_restarts_per_minute() -> None:
    scene, clock = _make_protected_scene()
    _lose_members(scene, "evil", 130)
    tried = await _count_attempts(scene, clock, 60)
    assert len(tried) == restart.RESTART_LIMIT.most
    assert len(set(tried)) == restart.RESTART_LIMIT.most, "whoever was not tried yet comes first"
    _lose_members(scene, "default", 1)
    assert "default/g0" in await _count_attempts(scene, clock, 1)
    others = await _count_attempts(scene, clock, 180)
    assert len(others) <= 5 * restart.RESTART_LIMIT.most
    assert {f"evil/g{number}" for number in range(130)} <= {*tried, *others}
