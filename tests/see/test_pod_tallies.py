"""What is counted of pods as they change is what counting all of them gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.laws import examples

from koord.answers.encoding import encode
from koord.answers.fragmentation import view_fragmentation
from koord.answers.pod_tallies import tally_pods
from koord.answers.queue_sight import WrittenEntries
from koord.answers.queue_view import QueueEntry
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling
from koord.core.model.reasons import Planned

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


def test_an_entry_at_another_place_is_written_as_it_is() -> None:
    written = WrittenEntries()
    entry = QueueEntry(1, "pod", ("a/b",), 1, 1, Planned(1, 1, waits=True), 0.0, gpus=8)
    for each in (entry, entry.move_to(7, 64), entry.move_to(0, 0)):
        assert written.write(each) == encode(each)
        assert list(written.write(each)) == list(encode(each))
