"""What is counted of pods as they change is what counting all of them gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.device.nodes import a100x8, report
from tests.device.test_plugin import gpu_cluster, recover, settle, whole
from tests.objects import remove_devices, upsert_devices
from tests.support.laws import examples

from koord.answers import fragmentation, health
from koord.answers.encoding import encode
from koord.answers.fragmentation import view_fragmentation
from koord.answers.gpus import measure_gpus
from koord.answers.health import find_sick
from koord.answers.pod_tallies import tally_pods
from koord.answers.queue_sight import WrittenEntries
from koord.answers.queue_view import QueueEntry
from koord.core.device.status import NodeDeviceStatus, observe_devices
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling
from koord.core.model.reasons import Planned

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from koord.core.device.model import DeviceReport
    from koord.core.device.plugin import Devices
    from koord.core.model.pods import Pod

NAMES = st.sampled_from(["team-a/x", "team-a/y", "team-b/x"])
STEPS = st.lists(
    st.tuples(NAMES, st.sampled_from(["waits", "in a gang", "runs", "ends", "goes"])), max_size=12
)


def change(cluster: FakeCluster, name: str, step: str) -> None:
    pod = make_pod(name).gpu(1).requests(cpu=100 + len(name))
    match step:
        case "waits":
            cluster.pods(pod)
        case "in a gang":
            cluster.pods(pod.gang(f"{name.partition('/')[0]}/gang"))
        case "runs":
            cluster.pods(pod.running("n0"))
        case "ends":
            cluster.state.upsert_pod(replace(pod.running("n0").build(), gone_by=30.0))
        case _:
            gone = cluster.state.pod_by_key(name)
            if gone is not None:
                cluster.state.remove_pod(gone.uid)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, st.sampled_from([0, 1]))
def test_counts_that_follow_are_those_of_all(steps: list[tuple[str, str]], quotas: int) -> None:
    cluster = make_cluster(1)
    for at, (name, step) in enumerate(steps):
        change(cluster, name, step)
        if quotas and at == len(steps) // 2:
            cluster.quotas(make_quota("team-a", namespace="team-a"))
        if at % 2:
            tally_pods(cluster.state)
    cluster.state.refresh()
    pods, cache = cluster.state.pods, cluster.state.quotas
    tallies = tally_pods(cluster.state)
    held = [
        pod.shape.requests
        for pod in pods.values()
        if node_charged(pod) and pod.handling is not Handling.RESERVE
    ]
    assert tallies.namespaces == Counter(pod.namespace for pod in pods.values())
    assert tallies.quotas == Counter((pod.namespace, cache.quota_of(pod)) for pod in pods.values())
    assert tallies.ending == {uid: pod for uid, pod in pods.items() if pod.node and pod.gone_by}
    on_nodes = Counter[str]()
    for pod in pods.values():
        if pod.node and not pod.phase.is_terminal:
            on_nodes[pod.node] += measure_gpus(pod).amount
    assert +tallies.milli_gpus == +on_nodes
    counted = Counter[object]()
    for shape, count in tallies.holding.items():
        counted[tallies.shapes[shape].requests] += count
    assert counted == Counter(held)


def test_gpus_that_are_counted_again_where_something_changed_are_those_of_all() -> None:
    cluster = make_cluster(3)
    for step in ("runs", "waits", "goes"):
        change(cluster, "team-a/x", step)
        followed = view_fragmentation(cluster.state)
        cluster.state.followers.clear()
        assert view_fragmentation(cluster.state) == followed


def test_devices_that_are_looked_at_again_where_their_use_changed_are_those_of_all() -> None:
    cluster = gpu_cluster(2)
    state = cluster.state
    for step in (
        lambda: None,
        lambda: settle(cluster, whole("four", 4)),
        lambda: settle(cluster, whole("eight", 8)),
        lambda: upsert_devices(state, report("n0", a100x8(sick={1}))),
        lambda: cluster.delete_pods("four"),
        lambda: upsert_devices(state, report("n0")),
        lambda: recover(cluster),
        lambda: remove_devices(state, "n1"),
        lambda: upsert_devices(state, report("n1")),
    ):
        step()
        followed = view_fragmentation(state), find_sick(state, state.now)
        state.followers.clear()
        assert (view_fragmentation(state), find_sick(state, state.now)) == followed


def test_nothing_is_looked_at_again_where_the_use_of_devices_did_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, looked = gpu_cluster(3), Counter[str]()

    def look(plugin: Devices, seen: DeviceReport, pods: Mapping[str, Pod]) -> NodeDeviceStatus:
        looked[seen.node] += 1
        return observe_devices(plugin, seen, pods)

    for module in (fragmentation, health):
        monkeypatch.setattr(module, "observe_devices", look)
    for changed in ({"n0", "n1", "n2"}, set(), {"n1"}):
        if changed == {"n1"}:
            upsert_devices(cluster.state, report("n1", a100x8(sick={1})))
        view_fragmentation(cluster.state)
        find_sick(cluster.state, 0.0)
        assert looked.keys() == changed
        looked.clear()


def test_an_entry_at_another_place_is_written_as_it_is() -> None:
    written = WrittenEntries()
    entry = QueueEntry(1, "pod", ("a/b",), 1, 1, Planned(1, 1, waits=True), 0.0, gpus=8)
    for each in (entry, entry.move_to(7, 64), entry.move_to(0, 0)):
        assert written.write(each) == encode(each)
        assert list(written.write(each)) == list(encode(each))
