"""A policy of this test evicts through the one controller, with its limits: what a new one needs.

It empties nodes: each pod is a plan of its own, for which room is kept elsewhere first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from typing_extensions import override

from koord.controllers.eviction import EvictionController, EvictionPolicy, EvictionRun
from koord.core.eviction.limits import EvictionLimit, EvictionLimits, LimitScope
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.isolation import Isolation
from koord.kube.evictor import Eviction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.model.pods import Pod


@dataclass
class Drain(EvictionPolicy[EvictionRun]):
    name: ClassVar = "drain"
    controller: EvictionController
    nodes: set[str] = field(default_factory=set)
    reserved: set[str] = field(default_factory=set)
    marked: dict[str, float] = field(default_factory=dict)
    """What a policy writes: on objects, in the real world."""
    refuses: set[str] = field(default_factory=set)
    writes: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    isolated: Isolation = field(default_factory=lambda: Isolation("drain"))

    @override
    async def look(self) -> None:
        now = self.controller.clock()
        for pod in sorted(self.controller.state.pods.values(), key=lambda pod: pod.name):
            plan = EvictionPlan(self.name, pod.uid, (pod,))
            is_new = pod.node in self.nodes and self.controller.find(self, pod.uid) is None
            if is_new and pod.is_alive and self.controller.admit(plan, now) <= now:
                self.controller.begin(self, EvictionRun(plan, now))

    @override
    async def prepare(self, run: EvictionRun) -> Outcome | None:
        if f"reserve {run.plan.key}" in self.refuses:
            return Outcome.INVALID
        self.reserved.add(run.plan.key)
        return None

    @override
    def judge(self, run: EvictionRun) -> Outcome | None:
        is_wanted = run.plan.pods[0].node in self.nodes
        return None if is_wanted else Outcome.NOT_NEEDED

    @override
    async def mark(self, run: EvictionRun, pod: Pod, seconds: float) -> bool:
        self.writes.append(f"mark {pod.name}")
        self.marked[pod.uid] = seconds
        seen = self.controller.state.observed(pod.uid)
        assert seen is not None
        self.controller.state.upsert_pod(replace(seen, marked=self.controller.clock()))
        return True

    @override
    async def evict(self, run: EvictionRun, pods: Sequence[Pod]) -> list[Pod]:
        return await self.controller.evict_each(self.name, pods, self._evict)

    async def _evict(self, pod: Pod) -> Eviction:
        if f"evict {pod.name}" in self.refuses:
            return Eviction.PROTECTED
        assert pod.uid in self.marked, "the next process would not find it"
        assert pod.uid in self.reserved or not self.reserved
        self.writes.append(f"evict {pod.name}")
        self.controller.state.remove_pod(pod.uid)
        return Eviction.EVICTED

    @override
    async def cancel(self, run: EvictionRun, outcome: Outcome) -> None:
        self.reserved.discard(run.plan.key)
        self.marked.pop(run.plan.key, None)

    @override
    def find_marked(self) -> set[str]:
        return self.marked.keys() & self.controller.state.pods.keys()

    @override
    async def finish_marked(self, unit: str, pods: Sequence[Pod]) -> None:
        await self.evict(EvictionRun(EvictionPlan(self.name, unit, tuple(pods)), 0.0), pods)

    @override
    def note_end(self, run: EvictionRun, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class Stage:
    """Two nodes with pods ``a-n`` of namespace ``a`` and ``b-n`` of ``b``."""

    policy: Drain
    now: float = 1000.0

    @classmethod
    def make(cls, *limits: EvictionLimit, soft: float = 0.0) -> Stage:
        state = make_cluster().state
        for node, name in (("n1", "a"), ("n2", "b")):
            state.upsert_node(make_node(node).gpu(8).build())
            for at in range(3):
                pod = make_pod(f"{name}/{name}-{at}").gpu(1).released(node, "p").running(node)
                state.upsert_pod(replace(pod.build(), soft_eviction=soft))
        controller = EvictionController(
            state, lambda: True, lambda: 0.0, EvictionLimits(limits), soft_limit=60.0
        )
        stage = cls(Drain(controller))
        controller.clock = lambda: stage.now
        return stage

    async def look(self, after: float = 0.0) -> None:
        self.now += after
        await self.policy.controller.look(self.policy)
        for _ in range(30):
            await asyncio.sleep(0)

    @property
    def gone(self) -> list[str]:
        return [text.split()[1] for text in self.policy.writes if text.startswith("evict")]


async def test_pods_are_marked_and_evicted_and_their_plans_end() -> None:
    stage = Stage.make()
    stage.policy.nodes.add("n1")
    await stage.look()
    assert stage.gone == ["a-0", "a-1", "a-2"]
    assert stage.policy.outcomes == [Outcome.ENDED] * 3
    assert stage.policy.controller.counts["drain"] == {Eviction.EVICTED: 3}


@pytest.mark.parametrize("scope", [LimitScope.NODE, LimitScope.NAMESPACE, LimitScope.ALL])
async def test_limits_hold_for_a_policy_that_they_do_not_know(scope: LimitScope) -> None:
    stage = Stage.make(EvictionLimit(scope, 2))
    stage.policy.nodes |= {"n1", "n2"}
    await stage.look()
    await stage.look(59.0)
    assert stage.gone == ["a-0", "a-1", *(() if scope is LimitScope.ALL else ("b-0", "b-1"))]
    await stage.look(1.0)
    await stage.look(60.0)
    assert len(stage.gone) == 6


async def test_whoever_is_refused_is_spared_and_does_not_count() -> None:
    stage = Stage.make(EvictionLimit(LimitScope.NODE, 1))
    stage.policy.nodes.add("n1")
    stage.policy.refuses |= {"evict a-0"}
    await stage.look()
    assert stage.policy.outcomes == [Outcome.FAILED]
    assert not stage.policy.marked
    assert not stage.policy.reserved
    stage.policy.refuses.clear()
    await stage.look()
    assert stage.gone == ["a-0"]


async def test_without_room_elsewhere_nobody_is_marked() -> None:
    stage = Stage.make()
    stage.policy.nodes.add("n1")
    stage.policy.refuses.update(f"reserve uid-a-a-{at}" for at in range(3))
    await stage.look()
    assert stage.policy.outcomes == [Outcome.INVALID] * 3
    assert stage.policy.writes == []


async def test_pods_have_their_time_and_stay_if_the_plan_is_of_no_use_any_more() -> None:
    stage = Stage.make(soft=30.0)
    stage.policy.nodes.add("n1")
    await stage.look()
    await stage.look(10.0)
    assert set(stage.policy.marked.values()) == {30.0}
    assert stage.gone == []
    stage.policy.nodes.clear()
    await stage.look(1.0)
    assert stage.policy.outcomes == [Outcome.NOT_NEEDED] * 3
    assert not stage.policy.marked


async def test_the_next_process_finishes_what_is_marked() -> None:
    stage = Stage.make()
    stage.policy.marked["uid-a-a-1"] = 0.0
    await stage.look()
    assert stage.gone == ["a-1"]


@pytest.mark.isolates
async def test_a_defect_in_one_plan_ends_that_one_alone() -> None:
    stage = Stage.make()
    stage.policy.nodes.add("n1")
    prepare = stage.policy.prepare

    async def fail(run: EvictionRun) -> Outcome | None:
        if run.plan.pods[0].name == "a-1":
            raise ZeroDivisionError
        return await prepare(run)

    stage.policy.prepare = fail  # type: ignore[method-assign]
    await stage.look()
    assert stage.gone == ["a-0", "a-2"]
    assert sorted(stage.policy.outcomes) == [Outcome.ENDED, Outcome.ENDED, Outcome.FAILED]
