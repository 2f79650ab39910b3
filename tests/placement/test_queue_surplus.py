"""The surplus of a gang waits for room while the gang itself is being committed."""

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster


def test_room_for_surplus_does_not_requeue_the_committing_unit() -> None:
    cluster = make_cluster(2).gang("g", 3, minimum=2)
    (unit,) = cluster.take()
    outcome = cluster.decide([unit])
    assert len(outcome.placements) == len(outcome.refusals) == 1
    cluster.queue.begin(unit)
    cluster.assume(outcome)

    cluster.nodes(make_node("n2").gpu(8))
    assert cluster.take() == []

    cluster.queue.end(unit)
    assert [pod.name for unit in cluster.take() for pod in unit.pods] == ["g-2"]


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "leaves"])
def test_pod_that_becomes_surplus_or_single_is_planned(*, joins: bool) -> None:
    """A single pod and a surplus pod of a running gang are units with the same key."""
    cluster = make_cluster(1).pod_groups(make_pod_group("default/g", 1))
    cluster.pods(make_pod("g-0").gang("default/g").gpu(8).running("n0"))
    ways = [make_pod("late").gpu(8), make_pod("late").gang("default/g").gpu(8)]
    for pod in ways if joins else reversed(ways):
        cluster.pods(pod).absorb()
    assert [pod.name for unit in cluster.take() for pod in unit.pods] == ["late"]
