"""Room in time by planning: short cuts change no answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group, make_quota, select_pods
from tests.cluster import SCORING, FakeCluster
from tests.queue.planned import GPU, NOW
from tests.support.laws import examples

from koord.core.engine.planner import plan
from koord.core.queue.amounts_in_time import AmountsInTime
from koord.core.queue.ends import Ends
from koord.core.queue.plugin import QueueOptions, QueueTurnSession
from koord.core.queue.run_time import QueueHints

if TYPE_CHECKING:
    from koord.core.queue.reserved_limits import PlannedStart

APPS = "ab"


@st.composite
def busy_clusters(draw: Any) -> FakeCluster:
    """Nodes on which pods run until some time, some beside nobody of theirs; a gang that waits."""
    cluster = FakeCluster(queue=QueueOptions({"policy": "Backfill", "protect_after": 0}))
    names = "abcd"[: draw(st.integers(2, 4))]
    cluster.nodes(
        *(make_node(name).gpu(8).label("zone", "xxyy"[at]) for at, name in enumerate(names))
    )
    has_rules = draw(st.booleans())
    most = draw(st.sampled_from([8, 16]))
    cluster.quotas(make_quota("q", max={GPU: most}), make_quota("other", max={GPU: 99}))
    for name in names:
        for part in range(draw(st.sampled_from([0, 1, 2, 4]))):
            app = draw(st.sampled_from(APPS))
            pod = make_pod(f"{name}-{part}").gpu(2).labels(app=app).running(name)
            pod = pod.quota(draw(st.sampled_from(["q", "other"])))
            if has_rules and draw(st.booleans()):
                pod = pod.apart(select_pods("default", app=draw(st.sampled_from(APPS))))
            ends = QueueHints(deadline=draw(st.sampled_from([100, 200, 300, 400])))
            cluster.pods(replace(pod.says((("queue", ends),)).build(), started=float(NOW)))
    count = draw(st.integers(1, 2))
    cluster.pod_groups(make_pod_group("default/g", count))
    gpus, app = draw(st.sampled_from([4, 8])), draw(st.sampled_from(APPS))
    for at in range(count):
        pod = make_pod(f"g-{at}").gang("default/g").gpu(gpus).labels(app=app).quota("q")
        if has_rules and draw(st.booleans()):
            pod = pod.apart(select_pods("default", app=draw(st.sampled_from(APPS))))
        cluster.pods(pod)
    cluster.state.advance(float(NOW))
    return cluster


def find_start(cluster: FakeCluster) -> PlannedStart | None:
    """Return when the gang starts."""
    units = cluster.absorb().pending()
    cycle = cluster.state.open_cycle(lambda: units, is_deciding=True)
    plan(cycle, units, SCORING)
    turns = cycle.session(QueueTurnSession).turns
    assert turns is not None
    assume(turns.heads.protections)
    return turns.room.find_start(turns.job_of(units[0]), ())


@given(busy_clusters())
@settings(max_examples=examples(20))
def test_a_start_is_the_same_if_all_is_removed_that_has_ended(cluster: FakeCluster) -> None:
    quick = find_start(cluster)
    rows_with_room = AmountsInTime.rows_with_room
    AmountsInTime.rows_with_room = lambda *_: None  # type: ignore[method-assign]
    try:
        assert find_start(cluster) == quick
    finally:
        AmountsInTime.rows_with_room = rows_with_room  # type: ignore[method-assign]


def test_what_is_kept_of_ends_is_what_they_are() -> None:
    """From cycle to cycle, as pods change and time passes."""
    cluster = FakeCluster(queue=QueueOptions({"default_run_time": 50, "backfill_on": "History"}))
    cluster.nodes(make_node("a").gpu(8))
    limited = make_pod("limited").gpu(1).running("a").says((("queue", QueueHints(deadline=100)),))
    cluster.pods(replace(limited.build(), started=float(NOW)))
    cluster.pods(replace(make_pod("other").gpu(1).running("a").build(), started=float(NOW)))
    queues = next(plugin for plugin in cluster.state.plugins if plugin.name == "queue")

    def ends_at(now: int) -> dict[str, int]:
        cluster.state.advance(float(now))
        cluster.absorb()
        ends = Ends(cluster.state, queues._runs, now)
        return {running.pod.name: running.end - NOW for running in ends.all()}

    first = ends_at(NOW)
    assert first == ends_at(NOW + 1)
    assert first["other"] == 75
    late = ends_at(NOW + first["limited"])
    assert late["limited"] == first["limited"] + 60
    assert late["other"] > first["limited"]
    queues.end_of_owner = lambda _: NOW + 10
    assert ends_at(NOW + 1)["limited"] < first["limited"]
    queues.end_of_owner = lambda _: None
    longer = limited.says((("queue", QueueHints(deadline=300)),))
    cluster.pods(replace(longer.build(), started=float(NOW)))
    assert ends_at(NOW + 2)["limited"] == first["limited"] + 200


@given(busy_clusters(), st.integers(1, 3))
@settings(max_examples=examples(20))
def test_limits_that_are_kept_are_those_that_would_be_made(
    cluster: FakeCluster, count: int
) -> None:
    """For those behind a gang with reserved room, whatever else starts in between."""
    for at in range(2 * count + 1):
        pod = make_pod(f"s-{at}").gpu(2).quota("other").created(float(NOW + at))
        ends = QueueHints(deadline=20 * at) if at % 2 else QueueHints()
        cluster.pods(pod.says((("queue", ends),)))
    units = cluster.absorb().pending()
    cycle = cluster.state.open_cycle(lambda: units, is_deciding=True)
    plan(cycle, units, SCORING)
    turns = cycle.session(QueueTurnSession).turns
    assert turns is not None
    room, last = turns.room, turns.job_of(units[-1])
    reserved = turns.round.binding(last)
    assume(reserved)
    limits = []
    for _ in range(2):
        room.set_limits(reserved, room.now, last.end_from(room.now))
        assert room.limits is not None
        limits.append(room.limits.room(units[-1].pods[0].shape, np.arange(cycle.used.shape[1])))
        room._kept.clear()
    assert limits[0].tolist() == limits[1].tolist()
