"""The search finds the cheapest victims of all sets; ``make soak`` tries more clusters."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit
from tests.preemption.soak import check
from tests.support.laws import examples

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext, plan_preemption

CLUSTERS = examples(80)
SLICES = 8
NOW = 100_000.0


@pytest.mark.parametrize("part", range(SLICES))
def test_no_other_victims_are_cheaper_and_none_can_be_spared(part: int) -> None:
    for seed in range(part, CLUSTERS, SLICES):
        check(seed)


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_nodes_are_emptied_in_clusters_too_large_to_try_all_sets(seed: int) -> None:
    """Each member takes a whole node: the lowest priorities that are enough, then least work."""
    chance, cluster, want = random.Random(seed), make_cluster(), 10
    price: list[tuple[int, int]] = []
    for at in range(40):
        cluster.nodes(make_node(f"n{at}").gpu(8))
        pods = []
        for slot in range(8):
            pod = make_pod(f"low{at}-{slot}").gpu(1).priority(chance.choice((0, 0, 0, 0, 0, 5)))
            built = pod.released(f"n{at}", "p").running(f"n{at}").build()
            pods.append(replace(built, started=float(chance.randint(1, 90_000))))
        cluster.pods(*pods)
        work = sum(100 * int(NOW - pod.started) for pod in pods)
        price.append((max(pod.priority for pod in pods), work))
    limit = sorted(priority for priority, _ in price)[want - 1]
    works = sorted(work for priority, work in price if priority <= limit)
    unit = make_unit("hp", [make_pod(f"hp{at}").gpu(8).priority(10) for at in range(want)])
    answer = plan_preemption(cluster.state, unit, context=PreemptionContext(NOW))
    assert isinstance(answer, Preemption)
    assert answer.cost.priority == limit
    assert answer.cost.work == sum(works[:want])
