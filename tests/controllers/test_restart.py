"""Gangs with a restart policy are evicted whole when they lose a member."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene

from koord.controllers import restart
from koord.core.gang.group import make_group_id
from koord.core.model.gangs import OnBindFailure, OnMemberFailure
from koord.core.model.pods import RecordedPlan
from koord.kube.binder import Refused

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
    scene.state.upsert_pod_group(group.on_bind_failure(on_bind).wait(1).build())
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
    scene.state.upsert_pod_group(
        make_pod_group(A, 3).on_member_failure(OnMemberFailure.RESTART_GANG).build()
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
        scene.state.upsert_pod_group(pod_group.group(*group).build())

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
