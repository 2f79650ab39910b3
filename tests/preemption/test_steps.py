"""The search is bounded by steps, and says what it could not prove."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import (
    MOST_STEPS,
    PreemptionContext,
    PreemptionOptions,
    plan_preemption,
)


def test_many_different_victims_take_no_more_steps_than_allowed() -> None:
    chance, cluster = random.Random(1), make_cluster()
    for at in range(40):
        cluster.nodes(make_node(f"n{at}").gpu(8))
        pod = make_pod(f"low{at}").gpu(chance.randint(4, 8)).priority(chance.randint(0, 2))
        built = pod.released(f"n{at}", "p").running(f"n{at}").build()
        cluster.pods(replace(built, started=float(chance.randint(1, 90_000))))
    pods = [make_pod(f"hp{at}").gpu(chance.randint(3, 5)).priority(10) for at in range(20)]
    unit, context = make_unit("hp", pods), PreemptionContext(now=100_000.0)
    answer = plan_preemption(cluster.state, unit, context=context)
    assert isinstance(answer, Preemption)
    assert answer.certificate.steps < 1.1 * MOST_STEPS
    assert not answer.certificate.is_cheapest
    assert answer.certificate.is_minimal
    fewer = PreemptionOptions(most_steps=MOST_STEPS // 10)
    answer = plan_preemption(cluster.state, unit, fewer, context=context)
    assert isinstance(answer, Preemption)
    assert answer.certificate.steps < MOST_STEPS // 5
