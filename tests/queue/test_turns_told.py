"""Who is ahead of whom, for those who tell people: counted as each pair would be compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster

from koord.core.engine.queue import find_pending
from koord.core.queue.plugin import Queues
from koord.core.queue.turns import Competition, make_turns

GPU = "nvidia.com/gpu"
WAITING = st.lists(
    st.tuples(
        st.sampled_from(("q", "r", "")),
        st.sampled_from(("a", "b", "")),
        st.sampled_from((1, 2, 3, 10**14)),
    ),
    max_size=7,
)
MOST = 8
"""GPUs of a node: what asks for more takes nothing away from those behind it."""


@settings(max_examples=25)
@given(WAITING)
def test_those_are_ahead_that_compete_and_come_before(waiting: list[tuple[str, str, int]]) -> None:
    cluster = make_cluster().quotas(make_quota("q"), make_quota("r"))
    cluster.nodes(*(make_node(f"n-{zone}").gpu(MOST).label("zone", zone) for zone in "ab"))
    for at, (quota, zone, gpus) in enumerate(waiting):
        pod = make_pod(f"p{at}").gpu(gpus).created(at)
        pod = pod.quota(quota) if quota else pod
        cluster.pods(pod.selector(zone=zone) if zone else pod)
    state = cluster.state
    state.refresh()
    units = find_pending(state)
    cycle = state.open_cycle(lambda: units)
    competition = Competition(cycle, lambda unit: state.plugin(Queues).queue_of(unit.pods[0]))
    seen = {unit.key for unit in units}
    turns = make_turns(units, competition, lambda _: False, lambda _: (None, None), seen)
    for at, (turn, unit) in enumerate(zip(turns, units, strict=True)):
        wanted, before = competition.of(unit), units[:at]
        ahead = [each for each in before if competition.competes(wanted, competition.of(each))]
        requests: Counter[str] = Counter()
        for each in ahead:
            asked = dict(each.pods[0].shape.requests)
            requests.update(asked if asked[GPU] <= MOST else {})
        expected: Any = (unit.key, len(ahead), dict(requests))
        assert (turn.unit, turn.ahead, turn.ahead_requests) == expected
