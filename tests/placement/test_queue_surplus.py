"""The surplus of a gang waits for room while the gang itself is being committed."""

import pytest
from tests.builders import make_node, make_pod, make_pod_group

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.queue import Queue
from koord.core.state import ClusterState


def test_room_for_the_surplus_does_not_bring_back_what_is_being_committed() -> None:
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    for at in range(2):
        state.upsert_node(make_node(f"n{at}").gpu(8).build())
    state.upsert_pod_group(make_pod_group("default/g", 2).build())
    for at in range(3):
        state.upsert_pod(make_pod(f"g-{at}").gang("default/g").gpu(8).created(at).build())
    queue.absorb(feed.drain(), state)
    (unit,) = queue.take(0.0, 100)
    outcome = plan(state.snapshot(), [unit], Scoring())
    (placement,), (refusal,) = outcome.placements, outcome.refusals
    queue.refuse(unit, refusal)
    queue.begin(unit)
    for assignment in placement.assignments:
        state.assume(assignment.pod.uid, assignment.node)

    state.upsert_node(make_node("n2").gpu(8).build())
    queue.absorb(feed.drain(), state)
    assert queue.take(0.0, 100) == []

    queue.end(unit)
    queue.absorb(feed.drain(), state)
    assert [pod.name for unit in queue.take(0.0, 100) for pod in unit.pods] == ["g-2"]


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "leaves"])
def test_who_changes_between_alone_and_surplus_is_planned_all_the_same(*, joins: bool) -> None:
    """Alone and as the surplus of a gang that runs, a pod is a unit of the same key."""
    state, queue = ClusterState(), Queue()
    feed = state.feed()
    state.upsert_node(make_node("n").gpu(8).build())
    state.upsert_pod_group(make_pod_group("default/g", 1).build())
    state.upsert_pod(make_pod("g-0").gang("default/g").gpu(8).running("n").build())
    ways = [make_pod("late").gpu(8).build(), make_pod("late").gang("default/g").gpu(8).build()]
    for pod in ways if joins else reversed(ways):
        state.upsert_pod(pod)
        queue.absorb(feed.drain(), state)
    assert [pod.name for unit in queue.take(0.0, 100) for pod in unit.pods] == ["late"]
