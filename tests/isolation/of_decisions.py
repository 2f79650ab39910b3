"""Loops of what is decided about pods, gangs and quotas."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import SCORING, make_cluster
from tests.controllers.scene import Scene
from tests.controllers.test_reclaim import Stage
from tests.controllers.test_wait_reports import Announcements
from tests.isolation.plays import NAMES, Patch, fail_on_bad, is_bad, play

from koord.api.misspelled_keys import MisspelledKey
from koord.controllers.placement_reports import Attempts
from koord.controllers.restart import GangRestarts
from koord.controllers.status_publishing import IgnoredKeys
from koord.controllers.wait_reports import EVENT_SECONDS, WaitEvents, WaitReports
from koord.core.engine import safe_planner
from koord.core.engine.holds import Holds
from koord.core.engine.queue import Queue, unit_of
from koord.core.engine.state import ClusterState
from koord.core.model.changes import Changes
from koord.core.model.pods import Pod
from koord.core.model.reasons import InternalError, Reason
from koord.core.numa.plugin import Numa
from koord.core.numa.states import UNKNOWN
from koord.core.quota import coverage
from koord.core.reservation.plugin import Reservations


class Planner:
    """Has a reason for everybody, or raises."""

    def reason_for(self, pod: Pod) -> Reason:
        if is_bad(pod):
            raise ZeroDivisionError
        return InternalError("x")

    def held_up_by(self, _: Pod) -> None:
        return None

    def attempts_of(self, _: str) -> Attempts:
        return Attempts()


def waiting_pods() -> ClusterState:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    return cluster.pods(*(make_pod(name).gpu(1) for name in NAMES)).state


def gangs_of_one() -> ClusterState:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    for name in NAMES:
        cluster.gang(name, 1, gpus=1)
    return cluster.state


@play("wait-reports")
def single_pods(_: Patch) -> list[str]:
    state, said = waiting_pods(), Announcements()
    reports = WaitReports(state, said, lambda: 9.0)
    reports.note(set(), set(state.pods))
    reports.report(Planner(), 20.0)
    assert ("bad", "InternalError") in said.pods, "it is told that something has failed"
    told = [name for name, _ in said.pods]
    assert reports._singles_due.first() is not None, "and it is tried again"
    return [name for name in told if name != "bad"]


@play("wait-reports")
def gangs(patch: Patch) -> list[str]:
    state, said = gangs_of_one(), Announcements()
    reports = WaitReports(state, said, lambda: 9.0)
    fail_on_bad(patch, WaitReports, "_find_first")
    reports.note({f"default/{name}" for name in NAMES}, set())
    patch.setattr(WaitReports, "_report_gang", lambda _, gang, *__: said.events.append(gang))
    reports.report(Planner(), 20.0)
    return sorted(name.removeprefix("default/") for name in said.events if "/" in name)


@play("wait-events")
def late_events(_: Patch) -> list[str]:
    state, said = waiting_pods(), Announcements()
    events = WaitEvents(state, said)
    for pod in state.pods.values():
        events.note(pod, InternalError("x"), 0.0)
    events.emit(Planner().reason_for, EVENT_SECONDS + 1)
    return [text.partition(":")[0] for text in said.events]


@play("ignored-keys")
def ignored_keys(patch: Patch) -> list[str]:
    told: list[str] = []
    recorder = SimpleNamespace(record=lambda ref, *_, **__: told.append(ref.name))
    key = MisspelledKey("koord", "is misspelled")
    ignored = {name: (make_pod(name).build(), key) for name in NAMES}
    fail_on_bad(patch, IgnoredKeys, "_warn")
    IgnoredKeys(ignored, cast("Any", recorder)).report()
    return told


@play("enforcement")
def covered_namespaces(patch: Patch) -> list[str]:
    state = make_cluster().quotas(*(make_quota(name, max={GPU: 1}) for name in NAMES)).state
    patch.setattr(coverage, "covers", lambda spec: (spec.name,))
    patch.setattr(coverage, "_list_limited", failing_names)
    return sorted(coverage.find_covered(state.quotas.catalog))


def failing_names(spec: Any, _: Any) -> list[str]:
    if is_bad(spec):
        raise ZeroDivisionError
    return [GPU]


@play("reclaim")
def over_used_quotas(patch: Patch) -> list[str]:
    stage, seen = Stage(a=4, b=4), list[str]()

    async def reclaim(name: str) -> None:
        if name == "bad":
            raise ZeroDivisionError
        seen.append(name)

    patch.setattr(type(stage.controller), "_find_due", lambda _: NAMES)
    patch.setattr(type(stage.controller), "_reclaim", lambda _, name: reclaim(name))
    stage.look()
    return seen


@play("reclaim")
def marked_pods(patch: Patch) -> list[str]:
    stage = Stage()
    for name in NAMES:
        stage.scene.single(name)
    state = stage.scene.state
    for pod in list(state.pods.values()):
        state.upsert_pod(replace(pod, is_eviction_pending=True, is_terminating=True))
    finish = type(stage.controller)._finish_unit

    async def fail(self: Any, pods: Any, *, is_spared: bool) -> bool:
        if is_bad(pods[0]):
            raise ZeroDivisionError
        return await finish(self, pods, is_spared=is_spared)

    patch.setattr(type(stage.controller), "_finish_unit", fail)
    stage.look()
    return stage.evictor.evicted


@play("restarts")
def restarts(patch: Patch) -> list[str]:
    scene, seen = Scene(), list[str]()
    restarts = scene.operator.restarts

    def check(_: GangRestarts, gang: str, now: float) -> None:
        if is_bad(gang):
            raise ZeroDivisionError
        seen.append(gang)

    patch.setattr(GangRestarts, "_check", check)
    restarts.note(NAMES)
    restarts.controller.clock = lambda: float("inf")
    restarts.take()
    return seen


@play("queue")
def units_made(patch: Patch) -> list[str]:
    state, queue = gangs_of_one(), Queue()
    fail_on_bad(patch, queue, "_units_of_gang")
    queue.absorb(state.everything(), state)
    assert isinstance(queue.waiting["default/bad"], InternalError)
    taken = [unit.pods[0].name.removesuffix("-0") for unit in queue.take(0.0, 100)]
    patch.undo()
    queue.wake_all()
    queue.absorb(Changes(), state)
    assert [unit.pods[0].name for unit in queue.take(0.0, 100)] == ["bad-0"], "it is tried again"
    return taken


@play("numa")
def nodes(patch: Patch) -> list[str]:
    plugin, seen = Numa(), list[str]()
    for row, name in enumerate(NAMES):
        plugin.upsert_node(row, make_node(name).build())

    def read(_: Numa, row: int) -> int:
        if row == 1:
            raise ZeroDivisionError
        seen.append(NAMES[row])
        return UNKNOWN

    patch.setattr(Numa, "_read", read)
    plugin._stale = {0, 1, 2}
    plugin.settle()
    assert plugin.state_of.tolist() == [UNKNOWN] * 3
    return seen


@play("holds")
def room_for_replacements(patch: Patch) -> list[str]:
    state, seen = gangs_of_one(), list[str]()

    def update(_: Holds, gang: str, *__: Any) -> set[str]:
        if is_bad(gang):
            raise ZeroDivisionError
        seen.append(gang)
        return set()

    patch.setattr(Holds, "_update", update)
    Holds().absorb(NAMES, state, 0.0)
    return seen


@play("quota-usage")
def usage_of_gangs(_: Patch) -> list[str]:
    state, seen = gangs_of_one(), list[str]()

    def is_complete(gang: str) -> bool:
        if is_bad(gang):
            raise ZeroDivisionError
        seen.append(gang.removeprefix("default/"))
        return True

    state.quotas.count_gangs({f"default/{name}" for name in NAMES}, state.gangs, is_complete)
    return seen


@play("reservations")
def accounts(patch: Patch) -> list[str]:
    state, seen = make_cluster().state, list[str]()
    plugin = state.plugin(Reservations)
    plugin._dirty = dict.fromkeys(NAMES)
    fail_on_bad(patch, plugin, "_settle")
    patch.setattr(plugin, "_show", seen.append)
    plugin.absorb()
    return seen


@play("planning")
def units_planned(patch: Patch) -> list[str]:
    state = waiting_pods()
    state.refresh()
    plan = safe_planner.plan

    def fail(cycle: Any, units: Any, scoring: Any) -> Any:
        if any(is_bad(unit.pods[0]) for unit in units):
            raise ZeroDivisionError
        return plan(cycle, units, scoring)

    patch.setattr(safe_planner, "plan", fail)
    units = [unit_of(pod) for pod in state.pods.values()]
    outcome = safe_planner.plan_safely(state.open_cycle(), units, SCORING)
    assert outcome.refusals[0].reason == InternalError("ZeroDivisionError")
    return [one.assignments[0].pod.name for one in outcome.placements]


@play("placement")
def commits(patch: Patch) -> list[str]:
    return asyncio.run(_placed(patch, "bind"))


@play("placement")
def assumed_placements(patch: Patch) -> list[str]:
    return asyncio.run(_placed(patch, "assume"))


@play("placement")
def refusals(patch: Patch) -> list[str]:
    return asyncio.run(_placed(patch, "refuse"))


async def _placed(patch: Patch, what: str) -> list[str]:
    scene = Scene()
    scene.state.upsert_node(make_node("n").gpu(8).build())
    match what:
        case "bind":
            bind = scene.writer.bind

            async def fail(assignment: Any, *more: Any, **options: Any) -> Any:
                if is_bad(assignment.pod):
                    raise ZeroDivisionError
                return await bind(assignment, *more, **options)

            patch.setattr(scene.writer, "bind", fail)
        case "assume":
            assume = type(scene.operator)._assume

            def fail_to_assume(self: Any, unit: Any, placement: Any) -> Any:
                if is_bad(unit):
                    raise ZeroDivisionError
                return assume(self, unit, placement)

            patch.setattr(type(scene.operator), "_assume", fail_to_assume)
        case _:
            fail_on_bad(patch, scene.operator.queue, "refuse")
    pods = [make_pod(name).gpu(99 if what == "refuse" and name == "bad" else 1) for name in NAMES]
    async with scene.running():
        scene.add(*(pod.build() for pod in pods))
        assert await scene.eventually(lambda: len(scene.writer.bound) == 2)
        if what != "refuse":
            assert scene.reason("bad") == "InternalError"
        scene.add(make_pod("later").gpu(1).build())
        assert await scene.eventually(lambda: "later" in scene.writer.bound)
    return sorted(scene.writer.bound.keys() - {"later"})


@play("placement")
def a_failed_cycle_is_repeated(patch: Patch) -> list[str]:
    patch.setattr("koord.controllers.placement.FAILED_CYCLE_SECONDS", 0.0)

    async def run() -> list[str]:
        scene, left = Scene(), [2]
        plan = scene.operator._plan

        def fail(units: Any) -> Any:
            if units and left[0]:
                left[0] -= 1
                raise ZeroDivisionError
            return plan(units)

        patch.setattr(type(scene.operator), "_plan", lambda _, units: fail(units))
        scene.state.upsert_node(make_node("n").gpu(8).build())
        async with scene.running():
            scene.add(make_pod("a").gpu(1).build(), make_pod("z").gpu(1).build())
            assert await scene.eventually(lambda: len(scene.writer.bound) == 2)
        return sorted(scene.writer.bound)

    return asyncio.run(run())
