"""Loops of what the leader tells of devices and answers in objects."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.device.test_plugin import gpu_cluster, settle, whole
from tests.isolation.plays import NAMES, Patch, fail_on_bad, is_bad, play

from koord.answers import fragmentation, health, queue_sight, queue_view, timeline
from koord.answers.encoding import encode
from koord.answers.gaps import NO_TARGET
from koord.answers.queue_view import QueueEntry, view_queue
from koord.answers.reading import Reading
from koord.answers.reason_context import ContextFinder
from koord.answers.redaction import EVERYTHING, Sight
from koord.controllers import schedule_explanations
from koord.controllers.schedule_explanations import ExplanationAnswers
from koord.core.engine import safe_planner
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.gang_history import Episode
from koord.core.model.reasons import InternalError
from koord.kube.schedule_explanations import ExplanationKey, ExplanationSpec
from koord.runtime import device_series
from koord.runtime.device_series import DeviceSeries


@play("device-series")
def nodes_with_gpus(patch: Patch) -> list[str]:
    cluster = gpu_cluster(3)
    settle(cluster, *(whole(name, 8) for name in NAMES))
    state = cluster.state
    pods = {node: state.pods[uid].name for uid, node in state.assumed.items()}
    list_shares = device_series.list_card_shares

    def list_some(devices: Any, known: Any, node: str) -> Any:
        if pods[node] == "bad":
            raise ZeroDivisionError
        return list_shares(devices, known, node)

    patch.setattr(device_series, "list_card_shares", list_some)
    held = DeviceSeries(state, lambda: True).read()
    return sorted({share.pod for shares in held.nodes.values() for share in shares})


class FakeApi:
    """Objects that ask about pods of their names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.keys = [ExplanationKey("default", name, name, 0.0) for name in names]
        self.written: dict[str, Any] = {}
        self.deleted: list[str] = []

    async def list(self) -> list[ExplanationKey]:
        return self.keys

    async def read(self, key: ExplanationKey) -> ExplanationSpec | None:
        return ExplanationSpec(f"default/{key.name}", 3600)

    async def write(self, key: ExplanationKey, status: Any) -> None:
        self.written[key.name] = status

    async def delete(self, key: ExplanationKey) -> None:
        self.deleted.append(key.name)


@play("schedule-explanations")
def explained_objects(patch: Patch) -> list[str]:
    cluster = gpu_cluster(1)
    cluster.pods(*(make_pod(name) for name in NAMES))
    explain = schedule_explanations.explain_schedule

    def explain_some(state: ClusterState, question: Any, now: float) -> Any:
        if question.key.endswith("/bad"):
            raise ZeroDivisionError
        return explain(state, question, now)

    patch.setattr(schedule_explanations, "explain_schedule", explain_some)
    api = FakeApi(NAMES)
    answers = ExplanationAnswers(api, cluster.state, lambda: True, lambda: 100.0)

    async def look_at_all() -> None:
        for _ in NAMES:
            await answers.look()

    asyncio.run(look_at_all())
    return sorted(api.written)


@play("answers")
def findings_about_pods(patch: Patch) -> list[str]:
    cluster = make_cluster(1)
    for name in NAMES:
        pod = make_pod(name).running("n0").build()
        cluster.pods(replace(pod, gone_by=1.0, is_terminating=True))
    fail_on_bad(patch, health, "_describe_stuck")
    return sorted(finding.subject.name for finding in health.find_sick(cluster.state, 1e6))


@play("answers")
def findings_about_gangs(patch: Patch) -> list[str]:
    cluster = make_cluster(1)
    for name in NAMES:
        cluster.pod_groups(make_pod_group(f"default/{name}", 2))

    def count(_: ClusterState, gang: str) -> int:
        if is_bad(gang):
            raise ZeroDivisionError
        return 1

    patch.setattr(health, "_count_lost", count)
    return sorted(finding.subject.name for finding in health.find_sick(cluster.state, 1e6))


@play("answers")
def gpus_of_nodes(patch: Patch) -> list[str]:
    cluster = make_cluster().nodes(*(make_node(name).gpu(8) for name in NAMES))
    fail_on_bad(patch, fragmentation, "_count_plain")
    return sorted(gpus.node for gpus in fragmentation.find_gpus(cluster.state))


@play("answers")
def histories_of_gangs(patch: Patch) -> list[str]:
    cluster = make_cluster(1)
    for name in NAMES:
        made = make_pod_group(f"default/{name}", 1).build()
        cluster.pod_groups(replace(made, history=(Episode(1, "Preempted", "", ""),)))
    cluster.state.advance(1e6)
    fail_on_bad(patch, timeline, "tell_episodes")
    entries = timeline.make_timeline(Reading(cluster.state), NO_TARGET, ())
    return sorted(entry.happening.ref.partition("/")[2] for entry in entries)


def view_waiting() -> list[str]:
    """Return what is shown as waiting for room, of single pods for which there is none."""
    cluster = make_cluster(1)
    cluster.pods(*(make_pod(name).gpu(9 + at) for at, name in enumerate(NAMES)))
    entries = view_queue(cluster.state, Scoring())
    assert len(entries) == len(NAMES)
    return sorted(
        name.partition("/")[2]
        for entry in entries
        for name in entry.names
        if isinstance(entry.reason, InsufficientNodes)
    )


def show_waiting(patch: Patch, owner: Any, name: str, sight: Sight) -> list[str]:
    """Return the pods of the rows that are shown in full, where one cannot be shown."""
    cluster = make_cluster(1)
    cluster.pods(*(make_pod(name).gpu(9 + at) for at, name in enumerate(NAMES)))
    entries = view_queue(cluster.state, Scoring())
    show = getattr(owner, name)

    def show_some(entry: QueueEntry, *more: Any) -> Any:
        if is_bad(entry.names[0]) and not isinstance(entry.reason, InternalError):
            raise ZeroDivisionError
        return show(entry, *more)

    patch.setattr(owner, name, show_some)
    rows = encode(queue_sight.hide_others(entries, sight))
    assert len(rows) == len(NAMES)
    return sorted(
        name.partition("/")[2]
        for row in rows
        for name in row["names"]
        if row["reason"] != InternalError.code
    )


@play("answers")
def rows_that_are_written(patch: Patch) -> list[str]:
    return show_waiting(patch, queue_view, "_encode_entry", EVERYTHING)


@play("answers")
def rows_of_which_names_are_hidden(patch: Patch) -> list[str]:
    sight = Sight(frozenset({"default"}))
    return show_waiting(patch, queue_sight, "_hide_names", sight)


@play("planning")
def units_that_are_planned(patch: Patch) -> list[str]:
    plan = safe_planner.plan

    def plan_some(cycle: Any, units: Any, scoring: Scoring) -> Any:
        if any(is_bad(pod) for unit in units for pod in unit.pods):
            raise ZeroDivisionError
        return plan(cycle, units, scoring)

    patch.setattr(safe_planner, "plan", plan_some)
    return view_waiting()


@play("answers")
def contexts_of_reasons(patch: Patch) -> list[str]:
    add = ContextFinder.add

    def add_some(finder: ContextFinder, unit: Any, reason: Any) -> Any:
        if is_bad(unit.pods[0]):
            raise ZeroDivisionError
        return add(finder, unit, reason)

    patch.setattr(ContextFinder, "add", add_some)
    return [name for name in view_waiting() if name != "bad"]
