"""Plans a scenario, and returns all that was decided as plain values.

All that is known here of how planning is done is known nowhere else in this package.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests import objects
from tests.objects import remove_quota, upsert_namespace, upsert_pod_group, upsert_storage_class
from tests.recorded.scenarios import Fate, Scenario

from koord.core.engine.holds import Holds
from koord.core.engine.planner import plan
from koord.core.engine.queue import Queue
from koord.core.engine.reasons import CauseCount
from koord.core.gang.start import make_start_id
from koord.core.model.pods import Handling, Pod, PodPhase, RecordedPlan
from koord.core.quota.model import QuotaOptions
from koord.core.quota.reasons import QuotaShortage
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.topology.reasons import UnknownLayer
from koord.domains.registry import make_cluster_state

if TYPE_CHECKING:
    from tests.recorded.changes import Change, Step

    from koord.core.model.plan import Assignment, Placement, Plan, Unit, Unplaced

Plain: TypeAlias = Any
"""What JSON can say."""
MOST_PODS: Final = 100_000


def decide(scenario: Scenario) -> list[dict[str, Plain]]:
    """Plan every round of a scenario; return what was decided in each."""
    cluster = _Cluster(scenario)
    return [cluster.take_step(step) for step in scenario.steps]


class _Cluster:
    """A cluster that is planned for in rounds, as the operators do."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.state = make_cluster_state(
            QuotaOptions(limits_by_share=scenario.limits_by_share), compat=scenario.is_compat
        )
        self.feed = self.state.feed()
        self.queue = Queue()
        self.holds = Holds()

    def take_step(self, step: Step) -> dict[str, Plain]:
        """Take changes in, plan, and let what was placed have its fate."""
        for change in step.changes:
            self._apply(change)
        self._absorb(step.now)
        if step.wakes_all:
            self.queue.wake_all()
        units = {unit.key: unit for unit in self.queue.take(step.now, MOST_PODS)}
        outcome = self._plan(units, step.now)
        for refusal in outcome.refusals:
            self.queue.refuse(units[refusal.unit], refusal)
        for placement in outcome.placements:
            self._commit(units[placement.unit], placement)
        return {
            "placements": [_tell_placement(one) for one in outcome.placements],
            "refusals": [_tell_refusal(one) for one in outcome.refusals],
            "kept": to_plain(self.holds.reserved_pods()),
            "leftovers": sorted(self.state.quotas.leftovers_given),
        }

    def _plan(self, units: dict[str, Unit], now: float) -> Plan:
        self.state.refresh()
        cycle = self.state.open_cycle(lambda: self.queue.pending(*units.values()))
        scoring = self.scenario.scoring
        outcome = self.holds.plan(
            cycle,
            tuple(units.values()),
            lambda some, them: plan(some, them, scoring),
            scoring,
            now,
        )
        self.state.note_plan(cycle, outcome)
        return outcome

    def _absorb(self, now: float) -> None:
        news = self.feed.drain()
        news.freed |= self.holds.absorb(news.gangs, self.state, now)
        news.freed |= self.holds.expire(now)
        self.queue.absorb(news, self.state)
        self.holds.drop(lambda key: not self.queue.knows(key), now)

    def _commit(self, unit: Unit, placement: Placement) -> None:
        self.queue.begin(unit)
        for one in placement.assignments:
            self.state.assume(one.pod.uid, one.node, one.allocations)
        for one in placement.assignments:
            self._meet_fate(one, placement)
        self.queue.end(unit)

    def _meet_fate(self, one: Assignment, placement: Placement) -> None:
        fate, pod = self.scenario.fate_of(one.pod.key), self.state.observed(one.pod.uid)
        if pod is None or fate is Fate.ASSUMED:
            return
        if fate is Fate.DENIED:
            self.state.forget(pod.uid)
            return
        released = _release(pod, one.node, placement)
        if fate is Fate.BOUND:
            released = replace(released, node=one.node, phase=PodPhase.RUNNING)
        self.state.upsert_pod(released)
        if fate is Fate.RELEASED:
            self.state.forget(pod.uid)

    def _apply(self, change: Change) -> None:
        state, value = self.state, change.value
        match change.verb:
            case "namespace":
                upsert_namespace(state, *value)
            case "fail pod" | "end pod" | "finish pod":
                self._end(value, change.verb)
            case "pod" | "node":
                getattr(state, f"upsert_{change.verb}")(value)
            case "quota" | "topology" | "volume" | "claim":
                getattr(objects, f"upsert_{change.verb}")(state, value)
            case "group":
                upsert_pod_group(state, value)
            case "storage class":
                upsert_storage_class(state, value)
            case "remove quota":
                remove_quota(state, "/".join(value))
            case "remove claim":
                objects.remove_claim(state, value)
            case "remove pod" | "remove node":
                getattr(state, change.verb.replace(" ", "_"))(value)

    def _end(self, uid: str, verb: str) -> None:
        pod = self.state.observed(uid)
        if pod is None:
            return
        if verb == "end pod":
            pod = replace(pod, is_terminating=True)
        else:
            is_failed = verb == "fail pod"
            pod = replace(pod, phase=PodPhase.FAILED if is_failed else PodPhase.SUCCEEDED)
        self.state.upsert_pod(pod)


def _release(pod: Pod, node: str, placement: Placement) -> Pod:
    """Return a pod past the commit point of the plan that it is placed by."""
    is_others = pod.handling is Handling.RELEASE_PINNED
    recorded = RecordedPlan(
        node=node,
        plan_id=placement.plan_id,
        group=placement.group,
        member_count=len(placement.assignments),
        strength=placement.strengths.get(pod.gang.key, 0) if pod.gang else 0,
        gap=placement.gap,
        youngest=placement.youngest,
        start_id=make_start_id(placement.uids),
    )
    return replace(
        pod,
        recorded=recorded,
        is_gated=False,
        pinned=pod.pinned or is_others,
        handling=Handling.NOT_OURS if is_others else Handling.BIND,
    )


_RECORDED_AS: Final[Mapping[tuple[type, str], str]] = {
    (CauseCount, "cause"): "refusal",
    (QuotaShortage, "requested"): "asked",
    (InvalidQuota, "rule"): "fault",
    (UnknownLayer, "existing"): "known",
}
"""Fields that were renamed since the plans were recorded, by their names of then."""


def _tell_placement(placement: Placement) -> dict[str, Plain]:
    return {
        "unit": placement.unit,
        "plan_id": placement.plan_id,
        "group": placement.group,
        "nodes": [[one.pod.key, one.node] for one in placement.assignments],
        "gathered": to_plain(placement.topologies),
        "strengths": to_plain(placement.strengths),
    }


def _tell_refusal(refusal: Unplaced) -> dict[str, Plain]:
    pods = [pod.key for pod in refusal.pods]
    reason = to_plain(refusal.reason)
    if isinstance(refusal.reason, UnknownLayer) and isinstance(reason, dict):
        reason.pop("shortage", None)  # in words only: it decides nothing
    if isinstance(reason, dict):
        for one in (reason, reason.get("shortage", {})):
            one.pop("elsewhere", None)  # in words only, too
    return {"unit": refusal.unit, "pods": pods, "reason": reason}


def to_plain(value: object) -> Plain:
    """Make a value of what JSON can say: objects become their public fields, with their code."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value):
        # The context is in words only: it decides nothing.
        names = [f.name for f in fields(value) if f.name[0] != "_" and f.name != "context"]
        code = {"code": to_plain(value.code)} if hasattr(value, "code") else {}
        return code | {
            _RECORDED_AS.get((type(value), name), name): to_plain(getattr(value, name))
            for name in names
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in sorted(value.items())}
    if isinstance(value, set | frozenset):
        return sorted(map(to_plain, value))
    if isinstance(value, Collection):
        return [to_plain(one) for one in value]
    raise TypeError(f"a {type(value).__name__} has no plain form")
