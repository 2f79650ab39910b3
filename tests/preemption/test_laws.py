"""The laws of ``docs/preemption.md``, on random clusters."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU
from tests.cluster import FakeCluster, make_cluster
from tests.preemption.brute_force import (
    LAYERS,
    NOW,
    RandomScene,
    fits_without,
    keeps_guarantees,
    make_scene,
)
from tests.preemption.simulation import Simulation
from tests.support.laws import examples

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext, plan_preemption

SEEDS = st.integers(0, 1 << 32)


def search(scene: RandomScene) -> Preemption | None:
    context = PreemptionContext(NOW, scene.budgets)
    answer = plan_preemption(scene.cluster.state, scene.unit, context=context)
    return answer if isinstance(answer, Preemption) else None


@given(SEEDS)
@settings(max_examples=examples(40))
def test_nobody_of_equal_or_higher_priority_is_evicted(seed: int) -> None:
    scene = make_scene(seed)
    answer = search(scene)
    lowest = min(pod.priority for pod in scene.unit.pods)
    assert answer is None or all(pod.priority < lowest for pod in answer.pods)


@given(SEEDS)
@settings(max_examples=examples(40))
def test_no_gang_lives_on_below_its_minimum(seed: int) -> None:
    scene = make_scene(seed)
    answer = search(scene)
    gone = {pod.uid for pod in answer.pods} if answer else set()
    pods = scene.cluster.state.pods
    for gang, least in scene.gangs.items():
        members = [p for p in pods.values() if p.gang and p.gang.key == gang and p.node]
        left = sum(pod.uid not in gone for pod in members)
        assert left in {0, len(members)} or left >= least


@given(SEEDS)
@settings(max_examples=examples(40))
def test_every_plan_places_the_whole_unit_within_the_nodes(seed: int) -> None:
    scene = make_scene(seed)
    answer = search(scene)
    if answer is None:
        return
    placed = answer.placement.assignments
    assert len(placed) >= scene.unit.required
    assert fits_without(scene, answer.victims)
    gone = {pod.uid for pod in answer.pods}
    used = {node.name: 0 for node in scene.cluster.state.table.nodes if node is not None}
    for pod in scene.cluster.state.pods.values():
        if pod.node and pod.uid not in gone:
            used[pod.node] += dict(pod.shape.requests)[GPU]
    for assignment in placed:
        used[assignment.node] += dict(assignment.pod.shape.requests)[GPU]
    for node in scene.cluster.state.table.nodes:
        assert node is None or used[node.name] <= node.allocatable[GPU]


@given(SEEDS)
@settings(max_examples=examples(30))
def test_nobody_can_be_spared(seed: int) -> None:
    scene = make_scene(seed)
    answer = search(scene)
    if answer is None:
        return
    assert answer.certificate.is_minimal
    for victim in answer.victims:
        remaining = [other for other in answer.victims if other is not victim]
        assert not fits_without(scene, remaining)


@given(SEEDS)
@settings(max_examples=examples(40))
def test_protected_pods_and_guarantees_of_other_quotas_are_kept(seed: int) -> None:
    scene = make_scene(seed)
    answer = search(scene)
    if answer is None:
        return
    assert not any(pod.is_protected for pod in answer.pods)
    assert keeps_guarantees(scene, answer.victims)


@given(SEEDS, st.randoms(use_true_random=False))
@settings(max_examples=examples(20))
def test_the_order_in_which_objects_are_seen_decides_nothing(
    seed: int, chance: random.Random
) -> None:
    scene = make_scene(seed)
    shuffled = replace(scene, cluster=_copy(scene.cluster, chance))
    first, second = search(scene), search(shuffled)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert _names(first) == _names(second)
        assert first.placement.plan_id == second.placement.plan_id


@given(SEEDS)
@settings(max_examples=examples(10), deadline=None)
def test_preemption_ends_and_each_one_binds(seed: int) -> None:
    Simulation(random.Random(seed)).run()


def _names(preemption: Preemption) -> list[str]:
    return sorted(pod.name for pod in preemption.pods)


def _copy(cluster: FakeCluster, chance: random.Random) -> FakeCluster:
    """Fill another cluster with the same objects in another order."""
    state, copy = cluster.state, make_cluster()
    copy.topology(*LAYERS)
    copy.quotas(*state.quotas.catalog.written.values())
    nodes = [node for node in state.table.nodes if node is not None]
    chance.shuffle(nodes)
    copy.nodes(*nodes)
    groups = {pod.gang.key for pod in state.pods.values() if pod.gang is not None}
    copy.pod_groups(*(state.gangs.pod_group(key) for key in sorted(groups)))
    pods = list(state.pods.values())
    chance.shuffle(pods)
    return copy.pods(*pods)
