"""A unit that makes the planner fail is refused alone."""

from functools import partial

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import SCORING, make_cluster, open_cycle
from tests.objects import upsert_quota

from koord.controllers import error_isolation
from koord.core.engine import safe_planner
from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.planner import plan
from koord.core.engine.queue import unit_of
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Plan, Unit
from koord.core.model.reasons import InternalError


@pytest.mark.isolates
def test_unit_that_fails_to_plan_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("team", max={GPU: 8}))
    pods = [make_pod(name).gpu(4).quota("team").build() for name in ("a", "bad", "b")]
    for pod in pods:
        state.upsert_pod(pod)
    units = [unit_of(pod) for pod in pods]

    def fail_on_bad(cycle: object, asked: tuple[Unit, ...], scoring: Scoring) -> Plan:
        for unit in asked:
            if unit.pods[0].name == "bad":
                plan(cycle, asked, scoring)  # half done …
                raise ZeroDivisionError
        return plan(cycle, asked, scoring)

    monkeypatch.setattr(safe_planner, "plan", fail_on_bad)
    outcome = safe_planner.plan_safely(open_cycle(state), units, SCORING)
    placed = [one.assignments[0].pod.name for one in outcome.placements]
    assert placed == ["a", "b"]
    (refusal,) = outcome.refusals
    assert refusal.reason == InternalError("ZeroDivisionError")


class BrokenHolds(Holds):
    """Fails in the middle of planning."""

    def plan(self, cycle: Cycle, *_: object) -> Plan:
        cycle.place(make_pod("x").gpu(8).build().shape, 0)
        raise ZeroDivisionError


@pytest.mark.isolates
def test_failure_to_reserve_room_does_not_stop_planning() -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n").gpu(8).build())
    units = [unit_of(make_pod("p").gpu(8).build())]
    outcome = error_isolation.plan_with_holds(
        BrokenHolds(), partial(open_cycle, state), units, SCORING, 0.0
    )
    assert len(outcome.placements) == 1


def test_quota_failure_is_logged_once_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = error_isolation.FailureLog()
    broken = {"tree": ZeroDivisionError()}
    for found in (broken, broken, {}, broken):
        failures.note(found)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
