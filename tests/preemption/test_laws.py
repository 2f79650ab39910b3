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

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext, plan_preemption

SEEDS = st.integers(0, 1 << 32)


def search(scene: RandomScene) -> Preemption | None:
    context = PreemptionContext(NOW, scene.budgets)
    found = plan_preemption(scene.cluster.state, scene.unit, context=context)
    return found if isinstance(found, Preemption) else None


@given(SEEDS)
@settings(max_examples=150)
def test_nobody_of_equal_or_higher_priority_is_evicted(seed: int) -> None:
    scene = make_scene(seed)
    found = search(scene)
    lowest = min(pod.priority for pod in scene.unit.pods)
    assert found is None or all(pod.priority < lowest for pod in found.pods)


@given(SEEDS)
@settings(max_examples=150)
def test_no_gang_lives_on_below_its_minimum(seed: int) -> None:
    scene = make_scene(seed)
    found = search(scene)
    gone = {pod.uid for pod in found.pods} if found else set()
    pods = scene.cluster.state.pods
    for gang, least in scene.gangs.items():
        members = [p for p in pods.values() if p.gang and p.gang.key == gang and p.node]
        left = sum(pod.uid not in gone for pod in members)
        assert left in {0, len(members)} or left >= least


@given(SEEDS)
@settings(max_examples=150)
def test_every_plan_places_the_whole_unit_within_the_nodes(seed: int) -> None:
    scene = make_scene(seed)
    found = search(scene)
    if found is None:
        return
    placed = found.placement.assignments
    assert len(placed) >= scene.unit.required
    assert fits_without(scene, found.victims)
    gone = {pod.uid for pod in found.pods}
    used = {node.name: 0 for node in scene.cluster.state.table.nodes if node is not None}
    for pod in scene.cluster.state.pods.values():
        if pod.node and pod.uid not in gone:
            used[pod.node] += dict(pod.shape.requests)[GPU]
    for one in placed:
        used[one.node] += dict(one.pod.shape.requests)[GPU]
    for node in scene.cluster.state.table.nodes:
        assert node is None or used[node.name] <= node.allocatable[GPU]


@given(SEEDS)
@settings(max_examples=150)
def test_nobody_can_be_spared(seed: int) -> None:
    scene = make_scene(seed)
    found = search(scene)
    if found is None:
        return
    assert found.certificate.is_minimal
    for one in found.victims:
        rest = [other for other in found.victims if other is not one]
        assert not fits_without(scene, rest)


@given(SEEDS)
@settings(max_examples=150)
def test_protected_pods_and_guarantees_of_other_quotas_are_kept(seed: int) -> None:
    scene = make_scene(seed)
    found = search(scene)
    if found is None:
        return
    assert not any(pod.is_protected for pod in found.pods)
    assert keeps_guarantees(scene, found.victims)


@given(SEEDS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_in_which_objects_are_seen_decides_nothing(
    seed: int, chance: random.Random
) -> None:
    scene = make_scene(seed)
    shuffled = replace(scene, cluster=_copy(scene.cluster, chance))
    one, other = search(scene), search(shuffled)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert _names(one) == _names(other)
        assert one.placement.plan_id == other.placement.plan_id


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_preemption_ends_and_each_one_binds(seed: int) -> None:
    Simulation(random.Random(seed)).run()


def _names(found: Preemption) -> list[str]:
    return sorted(pod.name for pod in found.pods)


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
