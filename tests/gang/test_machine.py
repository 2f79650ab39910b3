"""Gangs in a cluster where anything may happen next, and what must hold after every step.

The whole of the core takes part: state, queue, holds, planner. What is planned is bound at once.
The rules are stated here a second time, from the pods alone, without the code under test.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import SCORING, make_cluster, open_cycle, plan_in, plan_once
from tests.objects import remove_pod_group, upsert_pod_group
from tests.support.laws import examples
from tests.support.machines import check_100_000_steps

from koord.core.engine.holds import Holds
from koord.core.engine.queue import Queue
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.changes import Changes
from koord.core.model.gangs import GangMode, MatchPolicy, ObservedPodGroup
from koord.core.model.pods import Pod, PodPhase, RecordedPlan
from koord.core.topology.reasons import MultipleNotMet, NoDomainFits

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState
    from koord.core.model.nodes import Node
    from koord.core.model.plan import Placement, Plan, Unit

GANGS = ("default/a", "default/b", "default/c")
GPUS = 4

NO_ROOM = {
    InsufficientNodes.code,
    HeldForReplacements.code,
    MultipleNotMet.code,
    NoDomainFits.code,
}
"""Which of them it is may change with less room, which wakes nobody up."""

gangs = st.sampled_from(GANGS)


class Gangs(RuleBasedStateMachine):
    """A cluster of few nodes and few gangs, so that they compete."""

    def __init__(self) -> None:
        super().__init__()
        self.state = make_cluster().state
        self.furnish(self.state)
        self.feed = self.state.feed()
        self.queue, self.holds = Queue(), Holds()
        self.now = 0.0
        self.born = 0
        self.nodes = 0
        self.steps = 0
        self.incarnations: dict[str, set[str]] = {}
        """Gang -> the pods that were released when it started, and since."""
        self.groups: dict[str, ObservedPodGroup] = {}

    @initialize(minima=st.tuples(*[st.integers(1, 3)] * 3), grouped=st.booleans())
    def begin(self, minima: tuple[int, int, int], grouped: bool) -> None:  # noqa: FBT001 - drawn
        for _ in range(3):
            self.node_comes(GPUS)
        for key, minimum in zip(GANGS, minima, strict=True):
            together = GANGS[:2] if grouped and key in GANGS[:2] else (key,)
            self.groups[key] = make_pod_group(key, minimum).group(*together).wait(3).build()
            upsert_pod_group(self.state, self.groups[key])

    # What other machines do otherwise

    def furnish(self, state: ClusterState) -> None:
        """Create the initial objects."""

    def build_node(self, name: str, gpus: int) -> Node:
        return make_node(name).gpu(gpus).build()

    def check_network(self, placement: Placement) -> None:
        """Check a placement once it is bound."""

    # What users and machines do

    @rule(gpus=st.integers(1, GPUS))
    def node_comes(self, gpus: int) -> None:
        self.nodes += 1
        self.state.upsert_node(self.build_node(f"n{self.nodes}", gpus))

    @rule(data=st.data())
    @precondition(lambda self: len(self.state.table) > 0)
    def node_goes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.state.table.row_of)))
        self.state.remove_node(name)
        for pod in [pod for pod in self.state.pods.values() if pod.node == name]:
            self.state.remove_pod(pod.uid)

    @rule(
        key=gangs,
        minimum=st.integers(1, 3),
        policy=st.sampled_from(MatchPolicy),
        mode=st.sampled_from(GangMode),
        wait=st.integers(1, 5),
    )
    def group_is_written(  # every setting of a gang
        self,
        *,
        key: str,
        minimum: int,
        policy: MatchPolicy,
        mode: GangMode,
        wait: int,
    ) -> None:
        made = make_pod_group(key, minimum).match_policy(policy).mode(mode).wait(wait)
        before = self.groups.get(key)
        listed = before.spec.group if before is not None else (key,)
        constraint = before.spec.topology if before is not None else None
        sub_groups = before.spec.sub_groups if before is not None else None
        group = made.group(*listed).topology(constraint).build()
        self.groups[key] = replace(group, spec=replace(group.spec, sub_groups=sub_groups))
        upsert_pod_group(self.state, self.groups[key])

    @rule(size=st.integers(1, 3), forgetful=st.integers(0, 8))
    def groups_are_formed(self, size: int, forgetful: int) -> None:
        """The first gangs become one group; sometimes one of them does not list the others."""
        for at, key in enumerate(key for key in GANGS if key in self.groups):
            together = GANGS[:size] if at < size and at != forgetful else (key,)
            spec = replace(self.groups[key].spec, group=tuple(sorted({*together, key})))
            self.groups[key] = replace(self.groups[key], spec=spec)
            upsert_pod_group(self.state, self.groups[key])

    @rule(key=gangs, luck=st.integers(0, 3))
    def group_goes(self, key: str, luck: int) -> None:
        if luck:
            return
        self.groups.pop(key, None)
        remove_pod_group(self.state, key)

    @rule(
        key=st.sampled_from([None, *GANGS, *GANGS]),
        gpus=st.sampled_from([1, 1, 2, 3]),
        priority=st.integers(0, 1),
        count=st.integers(1, 4),
    )
    def pods_come(self, key: str | None, gpus: int, priority: int, count: int) -> None:
        for _ in range(count):
            self.born += 1
            pod = make_pod(f"p{self.born}").gpu(gpus).priority(priority).created(self.born)
            self.state.upsert_pod((pod.gang(key) if key else pod).build())

    @rule(data=st.data(), how=st.sampled_from(["gone", "failed", "succeeded", "terminating"]))
    @precondition(lambda self: self.state.pods)
    def pod_ends(self, data: st.DataObject, how: str) -> None:
        pod = self.state.pods[data.draw(st.sampled_from(sorted(self.state.pods)))]
        if how == "gone":
            self.state.remove_pod(pod.uid)
        elif how == "terminating":
            self.state.upsert_pod(replace(pod, is_terminating=True))
        elif pod.node:
            self.state.upsert_pod(replace(pod, phase=PodPhase(how.capitalize())))

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    # What the operators do

    @invariant()
    def plan_all(self) -> None:
        """Plan after every other step, so that changes come alone and together."""
        self.steps += 1
        if self.steps % 2:
            return
        for _ in range(20):
            if not self.cycle():
                break
        else:
            raise AssertionError("planning does not come to rest")
        self.check_reasons()

    def cycle(self) -> bool:
        """Plan once; return whether anything was placed or released."""
        changes = self.feed.drain()
        changes.freed |= self.holds.absorb(changes.gangs, self.state, self.now)
        changes.freed |= self.holds.expire(self.now)
        self.queue.absorb(changes, self.state)
        freed = self.holds.drop(lambda key: not self.queue.knows(key), self.now)
        self.queue.absorb(Changes(freed=freed), self.state)
        self.queue.wake_surplus(self.holds.take_freed(), self.state)
        self.queue.wake(HeldForReplacements)
        units = self.queue.take(0.0, 1 << 20)
        if not units:
            return False
        self.check_order(units)
        self.check_one_more_node(units)
        by_key = {unit.key: unit for unit in units}
        outcome = self.plan_with(self.holds, self.state, units)
        for refusal in outcome.refusals:
            self.queue.refuse(by_key[refusal.unit], refusal)
        for placement in outcome.placements:
            self.check_effect(placement, by_key[placement.unit])
            self.check_minimum(placement)
        for placement in outcome.placements:
            self.bind(placement)
        for placement in outcome.placements:
            self.check_network(placement)
        return bool(outcome.placements) or self.holds.next_due() == float("-inf")

    def plan_with(self, holds: Holds, state: ClusterState, units: list[Unit]) -> Plan:
        return holds.plan(open_cycle(state), units, plan_in, SCORING, self.now)

    def bind(self, placement: Placement) -> None:
        count = len(placement.assignments)
        self.remember(placement)
        for one in placement.assignments:
            gang = one.pod.gang
            strength = placement.strengths.get(gang.key, 0) if gang is not None else 0
            recorded = RecordedPlan(one.node, placement.plan_id, placement.group, count, strength)
            self.state.upsert_pod(
                replace(one.pod, node=one.node, recorded=recorded, is_gated=False)
            )

    def remember(self, placement: Placement) -> None:
        """Note which pods each gang was started with, and which came later."""
        uids = {one.pod.uid for one in placement.assignments}
        gangs = {one.pod.gang.key for one in placement.assignments if one.pod.gang}
        for key in gangs:
            group = self.state.gangs.group(key).gangs
            is_started = self.has_started(key)
            others = [one for one in group if self.has_started(one) == is_started]
            for other in others:
                self.incarnations.setdefault(other, set()).update(uids)

    # What must hold

    def alive(self, key: str) -> list[Pod]:
        pods = self.state.pods.values()
        return [pod for pod in pods if pod.gang and pod.gang.key == key and pod.is_alive]

    def has_started(self, key: str) -> bool:
        """Whether a pod lives that was released when the gang was, or later."""
        group = self.state.gangs.group(key).gangs
        return any(
            pod.uid in self.incarnations.get(key, ())
            for other in group
            for pod in self.alive(other)
            if pod.node
        )

    def check_effect(self, placement: Placement, unit: Unit) -> None:
        """What is placed can be bound: otherwise the same plan would follow, without end."""
        for demand in unit.demands:
            placed = placement.uids & {pod.uid for pod in demand.pods}
            assert len(placed) >= demand.required, (unit, placement)

    def check_minimum(self, placement: Placement) -> None:
        """No gang that has not started is left below its minimum, nor any that starts with it."""
        placed = {one.pod.uid for one in placement.assignments}
        members = {one.pod.gang.key for one in placement.assignments if one.pod.gang}
        for key in members:
            group = self.state.gangs.group(key).gangs
            for other in (one for one in group if not self.has_started(one)):
                if self.has_started(key):
                    continue
                bound = [pod for pod in self.alive(other) if pod.node or pod.uid in placed]
                needed = self.groups[other].spec.min_member - self.count_done(other)
                assert len(bound) >= needed, (key, other, placement)

    def count_done(self, key: str) -> int:
        """Count the members that have succeeded, of an earlier run only if it is not complete."""
        group = self.state.gangs.group(key).gangs
        if not all(len(self.succeeded(one)) >= self.min_of(one) for one in group):
            return len(self.succeeded(key))
        living = [pod.recorded for one in group for pod in self.alive(one) if pod.recorded]
        starts = {one.plan_id for one in living if one.member_count > 1}
        return sum(bool(p.recorded) and p.recorded.plan_id in starts for p in self.succeeded(key))

    def succeeded(self, key: str) -> list[Pod]:
        pods = (pod for pod in self.state.pods.values() if pod.gang and pod.gang.key == key)
        return [pod for pod in pods if pod.phase is PodPhase.SUCCEEDED and pod.node]

    def min_of(self, key: str) -> float:
        return self.groups[key].spec.min_member if key in self.groups else math.inf

    def check_order(self, units: list[Unit]) -> None:
        """The plan does not depend on the order of arrival."""
        if any(unit.lease_seconds for unit in units) or len(self.holds):
            return
        rebuilt = make_cluster().state
        self.furnish(rebuilt)
        for pod in reversed(list(self.state.pods.values())):
            rebuilt.upsert_pod(pod)
        for row in sorted(self.state.table.row_of.values(), reverse=True):
            rebuilt.upsert_node(self.state.table.node_at(row))
        for group in reversed(list(self.groups.values())):
            upsert_pod_group(rebuilt, group)
        first = plan_once(self.state, units)
        assert first == plan_once(rebuilt, units)
        feed, queue = rebuilt.feed(), Queue()
        queue.absorb(feed.drain(), rebuilt)
        again = {unit.key: unit for unit in queue.take(0.0, 1 << 20)}
        assert all(again[unit.key] == unit for unit in units)

    def check_one_more_node(self, units: list[Unit]) -> None:
        """A unit of equal pods that can be placed can be placed with one more node."""
        for unit in units[:2]:
            if len({pod.shape for pod in unit.pods}) > 1:
                continue
            if not plan_once(self.state, [unit]).placements:
                continue
            self.state.upsert_node(self.build_node("one-more", GPUS))
            assert plan_once(self.state, [unit]).placements
            self.state.remove_node("one-more")

    def check_reasons(self) -> None:
        """Every pending unit has a reason."""
        for pod in self.state.pods.values():
            if not pod.is_waiting:
                continue
            key = pod.gang.key if pod.gang else pod.uid
            if key in self.queue.waiting or self.queue.why_left_out(pod) is not None:
                continue
            keys = (pod.uid, *self.queue.units_of(key))
            blocked = [self.queue.blocked[one] for one in keys if one in self.queue.blocked]
            assert any(pod.uid in {one.uid for one in b.pods} for b in blocked), pod.key
        self.check_causes()

    def check_causes(self) -> None:
        """Reasons of pending units are current: a unit is requeued when the cause is gone."""
        asleep = dict(self.queue.blocked.items())
        units = [one.unit for one in asleep.values()]
        outcome = self.plan_with(deepcopy(self.holds), self.state, units)
        surplus = {key for key, one in asleep.items() if len(one.pods) < len(one.unit.pods)}
        assert {placement.unit for placement in outcome.placements} <= surplus
        for refusal in outcome.refusals:
            said = asleep[refusal.unit].reason
            if not {said.code, refusal.reason.code} <= NO_ROOM:
                assert refusal.reason.code == said.code, (refusal, said)

    @invariant()
    def no_node_is_over_capacity(self) -> None:
        table = self.state.table
        for _, row in table.live_rows():
            assert (table.used[:, row] <= table.allocatable[:, row]).all()


TestGangs = Gangs.TestCase
TestGangs.pytestmark = [pytest.mark.timeout(600)]  # what fails is made small first
TestGangs.settings = settings(
    max_examples=examples(12),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_steps() -> None:
    """The same, nightly."""
    check_100_000_steps(Gangs)
