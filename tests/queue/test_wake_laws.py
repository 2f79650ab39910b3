"""Whatever happens, nobody waits who would start if all were tried anew: no event is missed.

Room that is reserved for a unit keeps others waiting; it goes with the unit, and with all that it
depends on. What is not tried again then would wait until something else happens, for ever.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster
from tests.objects import remove_quota
from tests.support.laws import examples

from koord.core.queue.plugin import QueueOptions
from koord.core.queue.run_time import QueueHints
from koord.core.quota.catalog import key_of

GPU = "nvidia.com/gpu"
NOW = 1_000_000_000
NAMES = [f"u{at}" for at in range(5)]
NODES = ["a", "b", "c"]
LIMITS = [None, 60, 600, 6000]

Event = tuple[Any, ...]


class Happenings:
    """A cluster in which things happen one after the other, and are planned at once."""

    def __init__(self, policy: str) -> None:
        values = {"policy": policy, "protect_after": 0, "max_hold": 5000, "hold_cool_down": 500}
        self.cluster = FakeCluster(queue=QueueOptions(values))
        self.now = NOW
        self.cluster.state.advance(float(NOW))
        for node in NODES:
            self.cluster.nodes(make_node(node).gpu(8))
        for quota in ("p", "q"):
            self.cluster.quotas(make_quota(quota, max={GPU: 24}))

    def submit(self, name: str, size: str, limit: int | None, quota: str) -> None:
        self.remove(name)
        self.now += 1  # turns are in the order of seconds
        count, gpus = map(int, size.split("x"))
        says = (("queue", QueueHints(deadline=limit)),)
        if count > 1:
            self.cluster.pod_groups(make_pod_group(f"default/{name}", count))
        for at in range(count):
            pod = make_pod(f"{name}-{at}").gpu(gpus).quota(quota).created(self.now).says(says)
            self.cluster.pods(pod.gang(f"default/{name}") if count > 1 else pod)

    def remove(self, name: str) -> None:
        for pod in [*self.cluster.state.pods.values()]:
            if pod.name.startswith(f"{name}-"):
                self.cluster.state.remove_pod(pod.uid)

    def hold(self, name: str, *, is_held: bool) -> None:
        for pod in [*self.cluster.state.pods.values()]:
            if pod.name.startswith(f"{name}-") and not pod.node:
                hints = dict(pod.extensions).get("queue")
                assert isinstance(hints, QueueHints)
                says = (("queue", replace(hints, is_held=is_held)),)
                self.cluster.pods(replace(pod, extensions=says))

    def node(self, name: str, *, is_there: bool) -> None:
        if is_there:
            self.cluster.nodes(make_node(name).gpu(8))
        elif not any(pod.node == name for pod in self.cluster.state.pods.values()):
            self.cluster.state.remove_node(name)

    def quota(self, name: str, most: int) -> None:
        self.cluster.quotas(make_quota(name, max={GPU: most}))

    def drop_quota(self, name: str) -> None:
        remove_quota(self.cluster.state, key_of(make_quota(name)))

    def others(self, name: str, node: str, gpus: int) -> None:
        """Have a pod of another scheduler run, or end."""
        key = f"other-{name}"
        there = self.cluster.state.pod_by_key(f"default/{key}")
        if there is not None:
            self.cluster.state.remove_pod(there.uid)
        if gpus:
            self.cluster.pods(make_pod(key).not_ours().gpu(gpus).running(node))

    def wait(self, seconds: int) -> None:
        self.now += seconds

    def step(self) -> list[str]:
        self.cluster.state.advance(float(self.now))
        placed = self.cluster.step(float(self.now))
        for name in placed:
            pod = self.cluster.pod(name)
            observed = self.cluster.state.observed(pod.uid)
            assert observed is not None
            self.cluster.pods(replace(observed, node=pod.node, started=float(self.now)))
        return placed

    def settle(self) -> None:
        """Plan until nothing is due for some time."""
        self.step()
        for _ in range(40):
            due = self.cluster.state.next_due()
            if due is None or due > self.now + 10:
                return
            self.now = max(self.now, int(due))
            self.step()


BEFORE: list[Event] = [
    ("submit", "u0", "1x8", None, "p"), ("submit", "u1", "3x8", None, "p"),
    ("submit", "u2", "1x8", 600, "p"),
]  # fmt: skip
"""One runs, and room is reserved for the next, behind which another waits."""
events = st.one_of(
    st.tuples(
        st.just("submit"), st.sampled_from(NAMES), st.sampled_from(["1x8", "1x4", "2x8", "3x8"]),
        st.sampled_from(LIMITS), st.sampled_from("pq"),
    ),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("hold"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("quota"), st.sampled_from("pq"), st.sampled_from([0, 8, 16, 24])),
    st.tuples(
        st.just("others"), st.sampled_from("xy"), st.sampled_from(NODES), st.sampled_from([0, 0, 4])
    ),
    st.tuples(st.just("drop_quota"), st.sampled_from("pq")),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 700])),
)  # fmt: skip


@pytest.mark.parametrize("policy", ["Backfill", "Strict"])
@given(happens=st.lists(events, min_size=1, max_size=6))
@settings(max_examples=examples(5), deadline=None)
def test_nobody_waits_who_would_start_if_all_were_tried_anew(
    policy: str, happens: list[Event]
) -> None:
    cluster = Happenings(policy)
    for what, *terms in [*BEFORE, *happens]:
        if what == "hold":
            cluster.hold(terms[0], is_held=terms[1])
        elif what == "node":
            cluster.node(terms[0], is_there=terms[1])
        else:
            getattr(cluster, what)(*terms)
        cluster.settle()
        cluster.cluster.queue.wake_all()
        assert cluster.step() == []
