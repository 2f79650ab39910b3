"""Preemption with placement, and a stand-in for the API server that gives any outcome."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.controllers.eviction import EvictionController
from koord.controllers.preemption import PreemptionRules, Preemptions
from koord.core.eviction.model import Outcome
from koord.core.eviction.preemption import PreemptionSearch
from koord.core.eviction.search import PreemptionOptions
from koord.core.model.gang_history import Episode
from koord.core.model.patience import Patience
from koord.kube.evictor import Eviction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from koord.core.engine.state import ClusterState
    from koord.core.model.budgets import Budget
    from koord.core.model.pods import Nominated, Pod, PreemptedBy


class Server:
    """Applies writes to the state, as the watch would. Deleted pods go when the test says so."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.writes: list[str] = []
        self.answers: dict[str, Eviction] = {}
        self.granted: dict[str, float] = {}
        """Seconds that victims get to end by themselves."""
        self.fails: set[str] = set()
        """Writes that fail, such as ``mark low``."""
        self.stops_after: int | None = None
        """Number of writes after which nothing is answered any more: the process has crashed."""

    async def nominate(self, pod: Pod, nominated: Nominated) -> bool:
        return await self._change("nominate", pod, nominated=nominated)

    async def clear(self, pod: Pod) -> bool:
        return await self._change("clear", pod, nominated=None)

    async def mark_preempted(self, pod: Pod, by: PreemptedBy, text: str, *, seconds: float) -> bool:
        assert " needs its place (plan " in text
        assert (" preempting to accommodate " in text) == self.state.gangs.compat
        self.granted[pod.name] = seconds
        marked = time.time()
        return await self._change("mark", pod, preempted_by=by, is_terminating=True, marked=marked)

    async def unmark_preempted(self, pod: Pod, text: str) -> bool:
        assert text
        return await self._change(
            "unmark", pod, preempted_by=None, is_terminating=False, marked=0.0
        )

    async def delete(self, pod: Pod) -> Eviction:
        answer = self.answers.get(pod.name, Eviction.EVICTED)
        if answer is Eviction.EVICTED:
            await self._change("delete", pod, gone_by=time.time(), is_terminating=True)
        return answer

    async def evict(self, pod: Pod) -> Eviction:
        raise AssertionError(pod)

    async def list_budgets(self) -> tuple[Budget, ...]:
        return ()

    async def _change(self, what: str, pod: Pod, **fields: object) -> bool:
        if self.stops_after == 0:
            await asyncio.Event().wait()
        if self.stops_after is not None:
            self.stops_after -= 1
        await asyncio.sleep(0)
        self.writes.append(f"{what} {pod.name}")
        if f"{what} {pod.name}" in self.fails:
            return False
        seen = self.state.observed(pod.uid)
        if seen is not None:
            self.state.upsert_pod(replace(seen, **fields))  # type: ignore[arg-type]
        return True


class Reporter:
    def __init__(self) -> None:
        self.told: list[str] = []

    def announce_preempting(self, pods: Collection[Pod], text: str) -> None:
        self.told.append(text)

    def announce_soft_eviction(self, pods: Collection[Pod], text: str) -> None:
        self.told += [f"{pod.name}: {text}" for pod in pods]

    def announce_preempted(self, pods: Collection[Pod], text: str, *, by: str) -> None:
        self.told += [f"{pod.name}: {text} for {by}" for pod in pods]

    def announce_cancelled(self, pods: Collection[Pod], text: str) -> None:
        self.told.append(text)


class Stage:
    """Two nodes of 8 GPUs, placement and preemption."""

    def __init__(self, scene: Scene | None = None, **rules: object) -> None:
        self.scene = scene or Scene()
        self.state = self.scene.state
        if scene is None:
            for name in ("n1", "n2"):
                self.state.upsert_node(make_node(name).gpu(8).build())
        self.server = Server(self.state)
        self.reporter = Reporter()
        operator = self.scene.operator
        patience = Patience(
            rules.pop("stuck_after", 60.0),  # type: ignore[arg-type]
            rules.pop("grace_limit", 600.0),  # type: ignore[arg-type]
            soft := rules.pop("soft_eviction_limit", 0.0),  # type: ignore[arg-type]
        )
        self.evictions = EvictionController(
            self.state, lambda: True, time.time, soft_limit=soft, patience=patience
        )
        self.controller = Preemptions(
            self.evictions,
            operator.queue,
            operator.holds,
            self.server,  # type: ignore[arg-type]
            self.server,  # type: ignore[arg-type]
            self.reporter,  # type: ignore[arg-type]
            lambda _: None,
            PreemptionRules(**rules),  # type: ignore[arg-type]
        )
        self.evictions.add(self.controller)
        operator.recover = self.controller.recover
        operator.on_refused = self.controller.wake
        operator.preempting = self.controller.reason_for

    @property
    def ended(self) -> dict[Outcome, int]:
        return self.evictions.ended["preemption"]

    def running(
        self,
        name: str,
        node: str,
        gpus: int = 8,
        priority: int = 0,
        *,
        gang: str = "",
        soft: float = 0.0,
        finalizers: tuple[str, ...] = (),
    ) -> None:
        pod = make_pod(name).gpu(gpus).priority(priority)
        if gang:
            pod = pod.gang(f"default/{gang}")
        built = pod.released(node, "p").running(node).build()
        self.scene.add(replace(built, soft_eviction=soft, finalizers=finalizers))

    def gang(self, name: str, count: int, gpus: int = 8, priority: int = 10) -> None:
        upsert_pod_group(self.state, make_pod_group(f"default/{name}", count).build())
        for at in range(count):
            pod = make_pod(f"{name}-{at}").gpu(gpus).gang(f"default/{name}")
            self.scene.add(pod.priority(priority).build())

    def want(self, name: str, gpus: int = 8, priority: int = 10) -> None:
        self.scene.add(make_pod(name).gpu(gpus).priority(priority).build())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        async with self.scene.running():
            task = asyncio.create_task(self.evictions.run())
            yield self
            task.cancel()

    async def expect(self, is_true: object) -> None:
        # A plan that was cancelled is made again after two seconds.
        for _ in range(500):
            if is_true():  # type: ignore[operator]
                return
            self.controller.wake()
            await asyncio.sleep(0.02)
        raise AssertionError((self.server.writes, self.reporter.told, self.scene.writer.bound))

    async def pause(self) -> None:
        for _ in range(10):
            self.controller.wake()
            await asyncio.sleep(0.02)

    def remove(self, *names: str) -> None:
        for name in names:
            self.scene.remove(name)

    def is_deleted(self, *names: str) -> bool:
        pods = (self.state.pod_by_key(f"default/{name}") for name in names)
        return all(pod is None or pod.gone_by for pod in pods)

    @property
    def bound(self) -> dict[str, str]:
        return self.scene.writer.bound


async def test_nobody_is_searched_among_pods_that_are_never_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(
        PreemptionSearch, "find", lambda _, unit, __: searched.append(unit.pods[0].name)
    )
    async with Stage().open() as stage:
        stage.scene.add(make_pod("foreign").gpu(8).running("n1").not_ours().build())
        stage.running("equal", "n2", priority=10)
        stage.want("w")
        await stage.pause()
        assert searched == []
        assert stage.state.evictable == {10: 1}
        stage.remove("equal")
        assert not stage.state.evictable
        stage.running("low", "n2")
        stage.want("x")
        await stage.expect(lambda: "x" in searched)


async def test_gang_preempts_and_starts_when_its_victims_have_gone() -> None:
    async with Stage().open() as stage:
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: "delete low-2" in stage.server.writes)
        order = [write.split()[0] for write in stage.server.writes]
        assert order == ["nominate", "nominate", "mark", "mark", "delete", "delete"]
        nodes = {p.nominated.node for p in stage.state.pods.values() if p.nominated is not None}
        assert nodes == {"n1", "n2"}
        reason = stage.scene.reason("high-0")
        assert reason == "WaitingForPreemption"
        stage.remove("low-1")
        await stage.pause()
        assert not stage.bound, "the gang starts as a whole"
        stage.remove("low-2")
        await stage.expect(lambda: set(stage.bound) == {"high-0", "high-1"})
        await stage.expect(lambda: stage.ended == {Outcome.BOUND: 1})
        assert not len(stage.state.nominations)


@pytest.mark.parametrize(("age", "gone"), [(3600, set()), (2 * 86_400, {"low-0", "low-1"})])
async def test_a_gang_that_was_preempted_often_is_spared_by_all_but_system_priorities(
    age: int, gone: set[str]
) -> None:
    stage = Stage(options=PreemptionOptions(max_per_day=2))
    group = make_pod_group("default/low", 2).build()
    ago = int(time.time()) - age
    history = tuple(Episode(ago + at, "Preempted", "no room", "b/high") for at in range(2))
    upsert_pod_group(stage.state, replace(group, history=history))
    stage.running("low-0", "n1", gang="low")
    stage.running("low-1", "n2", gang="low")
    async with stage.open():
        stage.want("high")
        await stage.expect(lambda: stage.controller.search._tried or stage.server.writes)
        await stage.pause()
        assert {name for name in ("low-0", "low-1") if stage.is_deleted(name)} == gone
        stage.want("system", priority=2_000_000_000)
        await stage.expect(lambda: stage.is_deleted("low-0", "low-1"))


async def test_room_of_victims_is_kept_from_equal_and_lower_priorities() -> None:
    async with Stage().open() as stage:
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: "delete low-2" in stage.server.writes)
        stage.want("equal")
        stage.want("lower", priority=5)
        stage.remove("low-1")
        await stage.pause()
        assert not stage.bound
        stage.want("higher", priority=11)
        await stage.expect(lambda: set(stage.bound) == {"higher"})


@pytest.mark.parametrize(
    ("name", "outcome"), [("nominate high-1", Outcome.FAILED), ("mark low-2", Outcome.UNMARKED)]
)
async def test_refused_write_spares_all_victims(name: str, outcome: Outcome) -> None:
    stage = Stage()
    stage.server.fails = {name}
    async with stage.open():
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: stage.ended[outcome] == 1)
        assert not any(one.startswith("delete") for one in stage.server.writes)
        assert not stage.state.preempted
        assert not any(pod.nominated for pod in stage.state.pods.values())
        assert not len(stage.state.nominations)


async def test_another_goes_at_once_in_place_of_one_that_cannot_be_marked() -> None:
    """As a pod whose owner has filled it; it is tried again later, at growing intervals."""
    stage = Stage()
    stage.server.fails = {"mark low-1", "mark low-2"}
    async with stage.open():
        for at in (1, 2, 3):
            stage.scene.state.upsert_node(make_node(f"n{at}").gpu(8).build())
            stage.running(f"low-{at}", f"n{at}", priority=at)
        stage.want("high")
        await stage.expect(lambda: stage.is_deleted("low-3"))
        marks = [one for one in stage.server.writes if one.startswith("mark ")]
        assert marks == ["mark low-1", "mark low-2", "mark low-3"]
        assert stage.ended[Outcome.UNMARKED] == 2
        assert not stage.is_deleted("low-1", "low-2")
        stage.remove("low-3")
        await stage.expect(lambda: stage.bound == {"high": "n3"})


async def test_preemptor_that_goes_before_the_deletions_spares_its_victims() -> None:
    stage = Stage()
    async with stage.open():
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        mark = stage.server.mark_preempted

        async def mark_and_lose(pod: Pod, by: PreemptedBy, text: str, *, seconds: float) -> bool:
            done = await mark(pod, by, text, seconds=seconds)
            if stage.state.pod_by_key("default/high-0") is not None:
                stage.remove("high-0")
                await asyncio.sleep(0.05)
            return done

        stage.server.mark_preempted = mark_and_lose  # type: ignore[method-assign]
        stage.gang("high", 2)
        await stage.expect(lambda: stage.ended[Outcome.PREEMPTOR_GONE] == 1)
        assert not any(one.startswith("delete") for one in stage.server.writes)
        assert not stage.state.preempted


async def test_victims_may_end_by_themselves_before_any_is_deleted() -> None:
    stage = Stage(soft_eviction_limit=0.6)
    async with stage.open():
        stage.running("asks", "n1", soft=3600.0)
        stage.running("plain", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: len(stage.state.preempted) == 2)
        assert stage.server.granted == {"asks": 0.6, "plain": 0.0}, "at most what is allowed"
        await stage.pause()
        assert not any(one.startswith("delete") for one in stage.server.writes)
        reason = stage.controller.reason_for("default/high")
        assert reason is not None
        assert "2 of 2 pods may end by themselves until 20" in reason.text()
        await stage.expect(lambda: stage.is_deleted("asks", "plain"))
        stage.remove("asks", "plain")
        await stage.expect(lambda: len(stage.bound) == 2)
        assert sum(" for default/high" in one for one in stage.reporter.told) == 2


async def test_other_victims_are_deleted_once_the_last_that_wanted_time_has_ended() -> None:
    stage = Stage(soft_eviction_limit=3600.0)
    async with stage.open():
        stage.running("asks", "n1", soft=3600.0)
        stage.running("plain", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: len(stage.state.preempted) == 2)
        stage.remove("asks")
        await stage.expect(lambda: stage.is_deleted("plain"))


async def test_preemptor_that_goes_while_victims_have_time_spares_them() -> None:
    stage = Stage(soft_eviction_limit=3600.0)
    async with stage.open():
        stage.running("asks", "n1", soft=3600.0)
        stage.running("stays", "n2", priority=10)
        stage.want("high")
        await stage.expect(lambda: len(stage.state.preempted) == 1)
        stage.remove("high")
        await stage.expect(lambda: not stage.state.preempted)
        assert not any(one.startswith("delete") for one in stage.server.writes)


async def test_next_process_gives_no_more_time_than_was_left() -> None:
    first = Stage(soft_eviction_limit=1.0)
    async with first.open():
        first.running("asks", "n1", soft=3600.0)
        first.running("stays", "n2", priority=10)
        first.want("high")
        await first.expect(lambda: len(first.state.preempted) == 1)
    marked = time.time()
    second = Stage(_restart(first.scene), soft_eviction_limit=1.0)
    async with second.open():
        await second.expect(lambda: second.is_deleted("asks"))
        assert 0.5 < time.time() - marked < 5.0


async def test_node_that_goes_during_the_wait_ends_the_preemption() -> None:
    async with Stage().open() as stage:
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.want("high")
        await stage.expect(lambda: any(w.startswith("delete") for w in stage.server.writes))
        [nominated] = [p.nominated.node for p in stage.state.pods.values() if p.nominated]
        victim = "low-1" if nominated == "n1" else "low-2"
        stage.state.remove_node(nominated)
        stage.remove(victim)
        await stage.expect(lambda: stage.ended[Outcome.INVALID] == 1)


async def test_another_plan_is_made_as_long_as_victims_hang() -> None:
    async with Stage(stuck_after=0.2).open() as stage:
        stage.state.upsert_node(make_node("n3").gpu(8).build())
        for at in range(1, 4):
            stage.running(f"low-{at}", f"n{at}")
        stage.want("high")
        await stage.expect(lambda: sum(w.startswith("delete") for w in stage.server.writes) == 3)
        await stage.expect(lambda: stage.scene.reason("high") == "TerminationStuck")
        assert stage.ended[Outcome.STUCK] == 3
        stage.want("other", priority=1)
        assert not len(stage.state.nominations), "no room is kept for it any more"
        stage.remove("low-1")
        await stage.expect(lambda: set(stage.bound) == {"high"})


async def test_victims_that_may_not_go_are_deleted_first() -> None:
    async with Stage().open() as stage:
        stage.running("low-1", "n1", finalizers=("example.com/hold",))
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: "delete low-1" in stage.server.writes)
        await stage.pause()
        assert "delete low-2" not in stage.server.writes
        stage.remove("low-1")
        await stage.expect(lambda: "delete low-2" in stage.server.writes)
        stage.remove("low-2")
        await stage.expect(lambda: set(stage.bound) == {"high-0", "high-1"})


async def test_nobody_else_goes_for_a_unit_whose_victim_hangs_and_no_room_is_kept() -> None:
    async with Stage(stuck_after=0.2).open() as stage:
        stage.running("low-1", "n1", finalizers=("example.com/hold",))
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: stage.scene.reason("high-0") == "TerminationStuck")
        await stage.expect(lambda: "unmark low-2" in stage.server.writes)
        await stage.expect(lambda: "clear high-1" in stage.server.writes)
        assert not len(stage.state.nominations)
        await stage.pause()
        assert not stage.is_deleted("low-2")
        assert not any(w == "delete low-2" for w in stage.server.writes)
        stage.remove("low-1")
        await stage.expect(lambda: "delete low-2" in stage.server.writes)


async def test_room_is_kept_for_a_limited_time_whatever_happens() -> None:
    limits = {"stuck_after": 0.1, "grace_limit": 0.1}
    async with Stage(**limits).open() as stage:
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.want("high")
        await stage.expect(lambda: any(w.startswith("delete") for w in stage.server.writes))
        stage.scene.is_synced = False
        stage.remove(next(w.split()[1] for w in stage.server.writes if w.startswith("delete")))
        await stage.expect(lambda: stage.ended[Outcome.EXPIRED] == 1)
        assert not len(stage.state.nominations)
        stage.scene.is_synced = True
        stage.scene.operator.wake()
        await stage.expect(lambda: set(stage.bound) == {"high"})


async def test_the_next_process_knows_who_hangs() -> None:
    first = Stage(stuck_after=0.2)
    async with first.open() as stage:
        stage.running("low-1", "n1", finalizers=("example.com/hold",))
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        await stage.expect(lambda: stage.scene.reason("high-0") == "TerminationStuck")
    second = Stage(_restart(first.scene), stuck_after=0.2)
    async with second.open() as stage:
        await stage.expect(lambda: stage.scene.reason("high-0") == "TerminationStuck")
        assert not [w for w in stage.server.writes if w.startswith("delete")]


async def test_after_a_crash_at_any_write_the_next_process_finishes_or_cancels() -> None:
    for writes in range(7):
        stage = Stage()
        stage.running("low-1", "n1")
        stage.running("low-2", "n2")
        stage.gang("high", 2)
        stage.server.stops_after = writes
        async with stage.open():
            await stage.expect(lambda s=stage, n=writes: len(s.server.writes) >= min(n, 6))
            await stage.pause()
        again = Stage(_restart(stage.scene))
        async with again.open():
            await again.expect(lambda a=again: a.is_deleted("low-1", "low-2"))
            for name in ("low-1", "low-2"):
                again.remove(name)
            await again.expect(lambda a=again: set(a.bound) == {"high-0", "high-1"})


def _restart(scene: Scene) -> Scene:
    """Return a scene in which everything that is known comes from what was written."""
    again = Scene()
    for name in ("n1", "n2"):
        again.state.upsert_node(make_node(name).gpu(8).build())
    upsert_pod_group(again.state, make_pod_group("default/high", 2).build())
    for uid in sorted(scene.state.pods):
        seen = scene.state.observed(uid)
        assert seen is not None
        again.state.upsert_pod(seen)
    return again
