"""Looks that remember segments see the same as looks that do not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, PodBuilder, make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.support.laws import examples

from koord.answers.usage import SegmentMemory, look_at

PODS = 4
CHANGES = ("waits", "runs", "goes", "asks more", "other quota", "same")


def make_changed(change: str, at: int) -> PodBuilder:
    pod = make_pod(f"p{at}").gpu(2 if change == "asks more" else 1).created(1.0)
    pod = pod.quota("b" if change == "other quota" else "a").labels(user=change)
    return pod if change == "waits" else pod.running(f"n{at % 2}")


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.lists(st.sampled_from(CHANGES), min_size=PODS, max_size=PODS), max_size=5))
def test_what_is_remembered_changes_nothing(steps: list[list[str]]) -> None:
    cluster = make_cluster(0).nodes(make_node("n0").gpu(8), make_node("n1").gpu(8))
    cluster.quotas(make_quota("a", max={GPU: 8}), make_quota("b", max={GPU: 8}))
    memory = SegmentMemory()
    for step, changes in enumerate(steps):
        now = 1000.0 + 60 * step
        for at, change in enumerate(changes):
            if change == "goes" and cluster.state.pod_by_key(f"default/p{at}") is not None:
                cluster.delete_pods(f"p{at}")
            elif change not in {"same", "goes"}:
                cluster.pods(make_changed(change, at))
        cluster.state.advance(now)
        look = look_at(cluster.state, now, "user", memory)
        assert look == look_at(cluster.state, now, "user")


def test_a_pod_that_stays_as_it_is_is_measured_once() -> None:
    cluster = make_cluster(0).nodes(make_node("n0").gpu(8))
    cluster.pods(make_pod("p").gpu(1).created(1.0).running("n0"))
    memory = SegmentMemory()
    (first,) = look_at(cluster.state, 100.0, "", memory).segments
    (second,) = look_at(cluster.state, 160.0, "", memory).segments
    assert second.end - first.end == 60_000
    assert second.holder is first.holder
