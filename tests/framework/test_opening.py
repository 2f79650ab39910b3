"""Opening a cycle only reads; ``refresh`` does all computations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_quota
from tests.objects import upsert_quota

from koord.core.quota.hooks import Hooks, QuotaHook
from koord.domains.registry import make_cluster_state

if TYPE_CHECKING:
    from koord.core.quota.model import QuotaSpec
    from koord.core.quota.usage import PodUse


class Recorder(QuotaHook):
    """Records every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_quota_change(self, before: QuotaSpec | None, after: QuotaSpec | None) -> None:
        self.calls.append("quota")

    def on_pod_change(self, before: PodUse | None, after: PodUse | None) -> None:
        self.calls.append("pod")


def test_opening_a_cycle_changes_nothing_and_calls_no_hook() -> None:
    recorder = Recorder()
    state = make_cluster_state(Hooks({"recorder": recorder}))
    state.upsert_node(make_node("n").cpu(4000).build())
    upsert_quota(state, make_quota("q", namespace="ns", max={"cpu": 4000}))
    state.upsert_pod(make_pod("p").requests(cpu=1000).quota("q").build())
    before = state.quotas.version
    state.open_cycle()
    assert (recorder.calls, state.quotas.solutions, state.quotas.version) == ([], {}, before)
    state.refresh()
    assert recorder.calls == ["quota", "pod"]
    after = state.quotas.version
    state.open_cycle()
    assert (recorder.calls, state.quotas.version) == (["quota", "pod"], after)


def test_cycles_do_not_see_each_other() -> None:
    state = make_cluster_state()
    state.upsert_node(make_node("n").cpu(4000).build())
    pod = make_pod("p").requests(cpu=1000).build()
    one, other = state.open_cycle(), state.open_cycle()
    one.place(one.shape_of(pod), 0)
    assert [cycle.room(pod.shape)[state.table.row_of["n"]] for cycle in (one, other)] == [3, 4]
