"""Loops of what pods hold over time."""

from typing import Any

from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.isolation.plays import NAMES, Patch, fail_on_bad, is_bad, play

from koord.answers import usage
from koord.core.model.pods import Pod
from koord.core.usage.budget_plugin import Budgets
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.domains.planning import PlanOptions
from koord.domains.usage import PLANNING


def running_pods(*plugins: Any) -> Any:
    state = make_cluster(more_plugins=plugins).state
    state.upsert_node(make_node("n").gpu(8).build())
    for name in NAMES:
        state.upsert_pod(make_pod(name).uid(name).gpu(1).running("n").build())
    return state


@play("usage")
def counters(patch: Patch) -> list[str]:
    plugins = PLANNING.make_plugins(PlanOptions(UsageOptions(is_on=True)))
    plugin = next(plugin for plugin in plugins if isinstance(plugin, UsageTimes))
    state, counted = running_pods(plugin), list[str]()

    def count(_: UsageTimes, uid: str) -> None:
        if is_bad(uid):
            raise ZeroDivisionError
        counted.append(uid)

    patch.setattr(UsageTimes, "_count", count)
    state.advance(1.0)
    state.refresh()
    return counted


@play("usage-segments")
def segments(patch: Patch) -> list[str]:
    state = running_pods()
    fail_on_bad(patch, usage, "make_holder")
    return [segment.uid for segment in usage.find_segments(state, 1.0)]


@play("budgets")
def budgets(patch: Patch) -> list[str]:
    counted = list[str]()

    def count(_: Budgets, pod: Pod) -> None:
        if is_bad(pod.uid):
            raise ZeroDivisionError
        counted.append(pod.uid)

    patch.setattr(Budgets, "_count", count)
    state = make_cluster().quotas(make_quota("q", queue={"max_gpu_hours_per_month": 1})).state
    for name in NAMES:
        state.upsert_pod(make_pod(name).uid(name).gpu(1).running("n").build())
    state.advance(1.0)
    state.refresh()
    return counted
