"""The search is bounded by steps, and says what it could not prove."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster, make_unit

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import (
    MOST_STEPS,
    PreemptionContext,
    PreemptionOptions,
    plan_preemption,
)
from koord.core.eviction.trials import Room, Want

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from koord.core.engine.arrays import Ints, Mask


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


def test_gains_of_thousands_of_gangs_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs of two fill the cluster: each that goes must not ask about all others one by one."""
    count, asked = 40, list[int]()
    gains = Room.gains

    def check(room: Room, want: Want, freed: Ints, units: Sequence[int], rows: Mask | None) -> Ints:
        found = gains(room, want, freed, units, rows)
        now = room.sum(want, freed, rows)
        each = [room.sum(want, freed + room.freed([unit]), rows) - now for unit in units]
        assert found.tolist() == each
        asked.append(len(units))
        return found

    monkeypatch.setattr(Room, "gains", check)
    cluster, chance = make_cluster(), random.Random(2)
    cluster.nodes(*(make_node(f"n{at}").gpu(8) for at in range(count)))
    for at in range(count):
        cluster.pod_groups(make_pod_group(f"default/g{at}", 2))
        for n in range(2):
            node = f"n{at}" if chance.random() < 0.5 else f"n{(at + n) % count}"
            pod = make_pod(f"g{at}-{n}").gang(f"default/g{at}").gpu(4 if node == f"n{at}" else 2)
            cluster.pods(pod.released(node, f"p{at}").running(node))
    pods = [make_pod(f"hp{at}").gpu(8).priority(10) for at in range(15)]
    answer = plan_preemption(cluster.state, make_unit("hp", pods))
    assert isinstance(answer, Preemption)
    assert asked[0] == count
    assert len(asked) >= 15


def test_a_gang_of_which_no_two_pods_are_equal_is_looked_at_as_a_few_sizes() -> None:
    """Two of its pods take the place of four: as many nodes are emptied as are needed."""
    cluster = make_cluster()
    for at in range(30):
        cluster.nodes(make_node(f"n{at}").gpu(8).cpu(90_000))
        for n in range(4):
            pod = make_pod(f"low{at}-{n}").requests(**{"nvidia.com/gpu": 2, "cpu": 1000 + at})
            cluster.pods(pod.released(f"n{at}", "p").running(f"n{at}"))
    amounts = [{"nvidia.com/gpu": 4, "cpu": 2000 + at} for at in range(40)]
    pods = [make_pod(f"hp{at}").requests(**each).priority(10) for at, each in enumerate(amounts)]
    answer = plan_preemption(cluster.state, make_unit("hp", pods))
    assert isinstance(answer, Preemption)
    assert answer.certificate.is_minimal
    assert len(answer.victims) == 80
    assert answer.certificate.steps < MOST_STEPS // 10


def test_shapes_that_no_few_sizes_tell_are_looked_at_one_by_one() -> None:
    """One pod needs the only large node, the others what is left: together they fit exactly."""
    cluster = make_cluster()
    for name, gpus in (("large", 16), *((f"n{at}", 1) for at in range(12))):
        cluster.nodes(make_node(name).gpu(gpus))
        low = make_pod(f"low-{name}").gpu(gpus)
        cluster.pods(low.released(name, "p").running(name))
    pods = [make_pod("hp").gpu(16).priority(10)]
    pods += [
        make_pod(f"hp{at}").requests(**{"nvidia.com/gpu": 1, "cpu": at}).priority(10)
        for at in range(12)
    ]
    answer = plan_preemption(cluster.state, make_unit("hp", pods))
    assert isinstance(answer, Preemption)
    assert len(answer.victims) == 13
