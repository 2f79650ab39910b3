"""Quotas in the model: what they lend is reclaimed, and defects of the operators are found."""

from dataclasses import replace
from typing import Any

import pytest
from tests.model.network import Process
from tests.model.objects import PodPlan, make_pod_group, node_of, quota_of
from tests.model.quotas import ROOT
from tests.model.steps import Step, Story, play, quiet, rest
from tests.model.store import PODS, QUOTAS
from tests.model.world import open_world

import koord.controllers.reclaim as controller
from koord.core.eviction import reclaim
from koord.core.model.plan import Unit, Unplaced
from koord.core.quota.reasons import QuotaIsParent
from koord.core.quota.session import QuotaSession


def begin(nodes: int, **quotas: tuple[int, int]) -> tuple[Step, ...]:
    steps = [Step(0.0, "reclaim_over_use"), Step(0.0, "put_quota", (ROOT, 8, 64))]
    steps += [Step(0.0, "put_quota", (name, *limits)) for name, limits in quotas.items()]
    steps += [Step(0.0, "add_node", (f"n{at}", 8)) for at in range(nodes)]
    return (*steps, Step(0.0, "start"), Step(0.1, "wait"))


def gang(name: str, count: int, quota: str, wait: float = 0.0) -> tuple[Step, ...]:
    pods = (PodPlan(f"{name}-{at}", 4, gang=name, quota=quota) for at in range(count))
    group = Step(wait, "put_pod_group", (make_pod_group(name, count),))
    return (group, *(Step(0.0, "create_pod", (pod,)) for pod in pods))


STORIES = {
    "room for all": Story(0, (*begin(3, qa=(0, 16), qb=(0, 8)), *gang("a", 3, "qa"))),
    "room for one": Story(
        0,
        (*begin(4, qa=(0, 16), qb=(0, 8)), *gang("a", 3, "qa"), *gang("c", 2, "qa")),
    ),
    "a quota has more than its max": Story(
        0,
        (
            *begin(4, qa=(8, 32), qb=(0, 8)),
            *gang("a", 2, "qa"),
            *gang("c", 4, "qa", wait=3.0),
            Step(5.0, "put_quota", ("qa", 8, 16)),
        ),
    ),
    "what was lent is wanted back": Story(
        0,
        (
            *begin(2, qa=(4, 16), qb=(4, 16)),
            *(step for name in "ac" for step in gang(name, 2, "qa")),
            *gang("b", 2, "qb", wait=5.0),
        ),
    ),
}
RUNNING = {
    "room for all": {"qa": 3, "qb": 0},
    "room for one": {"qa": 3, "qb": 0},
    "a quota has more than its max": {"qa": 2, "qb": 0},
    "what was lent is wanted back": {"qa": 2, "qb": 2},
}


@pytest.mark.parametrize("name", STORIES)
def test_pods_that_run_in_the_end(name: str) -> None:
    with quiet(), open_world() as world:
        for step in STORIES[name].steps:
            step.take(world)
        rest(world)
        assert world.ledger.violations == []
        running = [quota_of(pod) for pod in world.pods() if node_of(pod)]
    assert {quota: running.count(quota) for quota in ("qa", "qb")} == RUNNING[name]


def evict_first(*args: Any) -> tuple[reclaim.Reclaim, ...]:
    """Evict one pod of each victim."""
    return tuple(replace(one, pods=one.pods[:1]) for one in reclaim.plan_reclaim(*args))


def refuse(_: QuotaSession, unit: Unit) -> Unplaced:
    return Unplaced(unit.key, unit.pods, QuotaIsParent("qa"))


DEFECTS = {
    "nothing is charged": (QuotaSession, "_charges_of", lambda *_: []),
    "all is refused": (QuotaSession, "pre_filter", refuse),
    "all is taken back": (reclaim, "find_entitlement", lambda *_: {"nvidia.com/gpu": 0}),
    "gangs are torn": (controller, "plan_reclaim", evict_first),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(map(play, STORIES.values()))


def test_what_arrived_since_a_decision_is_told_apart_from_what_was_known() -> None:
    process = Process(0)
    for revision, at in ((3, 1.0), (5, 1.5), (9, 2.0)):
        process.see(QUOTAS, revision, at)
    process.see(PODS, 8, 1.999)
    assert process.seen == {QUOTAS: 9, PODS: 8}
    assert process.seen_before(1.9) == {QUOTAS: 5, PODS: 0}
    assert process.seen_before(3.0) == process.seen
