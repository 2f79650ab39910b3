"""Room for replacements is kept with the priority of the gang that has lost members."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod, make_pod_group
from tests.cluster import SCORING, placed_on, plan_in
from tests.core.test_holds import A, B, Scene, started
from tests.objects import upsert_namespace
from tests.support.laws import examples

from koord.core.engine.holds import assume_holds
from koord.core.engine.queue import unit_of
from koord.core.eviction.model import Preemption, VictimKind
from koord.core.eviction.protection import ALLOWED_IN
from koord.core.eviction.search import PreemptionContext, plan_preemption
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.gang_history import Episode, Happened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koord.core.engine.cycle import Cycle
    from koord.core.model.plan import Plan, Unit
    from koord.core.model.reasons import Reason

LOW, HIGH = 10, 1000


def make_scene(nodes: int = 4, priority: int = LOW, *, is_protected: bool = False) -> Scene:
    """Make a gang of two that has lost one member, on a cluster that is empty otherwise."""
    members = [
        replace(started(f"a-{at}", f"n{at}"), priority=priority, is_protected=is_protected)
        for at in range(2)
    ]
    scene = Scene(nodes, members, [make_pod_group(A, 2).wait(600).build()])
    upsert_namespace(scene.state, "default", {ALLOWED_IN: "true"})
    scene.remove("uid-default-a-1")
    return scene


def add_gang(scene: Scene, count: int, priority: int) -> Unit:
    scene.cluster.pod_groups(make_pod_group(B, count).build())
    scene.put(
        *(make_pod(f"b-{at}").gang(B).gpu(8).priority(priority).build() for at in range(count))
    )
    (unit,) = scene.units(B)
    return unit


def search(scene: Scene, unit: Unit) -> Preemption | Reason:
    def prepare(cycle: Cycle) -> None:
        scene.holds.reserve(cycle, unit, SCORING)

    return plan_preemption(scene.state, unit, context=PreemptionContext(prepare=prepare))


def test_unit_of_higher_priority_takes_the_room_before_anybody_is_evicted() -> None:
    scene = make_scene()
    unit = add_gang(scene, 3, HIGH)
    assert sorted(placed_on(scene.plan(unit)).values()) == ["n1", "n2", "n3"]
    found = search(scene, unit)
    assert isinstance(found, Preemption)
    assert not found.victims


def test_room_is_not_taken_where_there_is_other_room() -> None:
    scene = make_scene()
    unit = add_gang(scene, 2, HIGH)
    assert sorted(placed_on(scene.plan(unit)).values()) == ["n2", "n3"]


def test_gang_that_has_lost_members_is_preempted_with_its_room() -> None:
    scene = make_scene()
    unit = add_gang(scene, 4, HIGH)
    (refusal,) = scene.plan(unit).refusals
    assert refusal.reason.is_capacity
    found = search(scene, unit)
    assert isinstance(found, Preemption)
    assert [(one.kind, one.key) for one in found.victims] == [(VictimKind.GANG, A)]


@pytest.mark.parametrize(("priority", "is_protected"), [(HIGH, False), (LOW, True)])
def test_room_is_kept_from_equal_priorities_and_by_protected_gangs(
    priority: int,
    is_protected: bool,  # noqa: FBT001 - a case
) -> None:
    scene = make_scene(priority=priority, is_protected=is_protected)
    unit = add_gang(scene, 3, HIGH)
    (refusal,) = scene.plan(unit).refusals
    assert isinstance(refusal.reason, HeldForReplacements)
    assert refusal.reason.gangs == (A,)
    assert refusal.reason.is_capacity, "others may be preempted for it"
    assert not isinstance(search(scene, unit), Preemption)


def test_room_is_moved_to_another_node_where_there_is_one() -> None:
    scene = make_scene(nodes=3)
    vip = make_pod("vip").gpu(8).priority(HIGH).selector(host="x").build()
    node = scene.state.table.node_at(scene.cluster.row("n1"))
    scene.cluster.nodes(replace(node, labels={**node.labels, "host": "x"}))
    assert placed_on(scene.plan(unit_of(vip))) == {"vip": "n1"}
    assert scene.holds.nodes_for_replacements() == {A: ("n2",)}


@pytest.mark.parametrize(("lost_at", "is_kept"), [(None, True), (500, True), (100, False)], ids=str)
def test_holds_are_known_from_objects_alone(
    lost_at: int | None,
    is_kept: bool,  # noqa: FBT001 - a case
) -> None:
    scene = make_scene()
    history = () if lost_at is None else (Episode(lost_at, Happened.DEGRADED, ""),)
    group = make_pod_group(A, 2).wait(600).build()
    scene.cluster.pod_groups(replace(group, history=history))
    assert bool(len(assume_holds(scene.state, 900.0))) is is_kept


def test_many_equal_units_are_tried_over_the_room_of_others_once() -> None:
    scene = make_scene(nodes=2)
    pods = [make_pod(f"p-{at}").gpu(9).priority(HIGH).build() for at in range(50)]
    runs = 0

    def run(cycle: Cycle, units: Sequence[Unit]) -> Plan:
        nonlocal runs
        runs += 1
        return plan_in(cycle, units)

    units = [unit_of(pod) for pod in pods]
    outcome = scene.holds.plan(scene.cluster.open_cycle(), units, run, SCORING, 0.0)
    assert len(outcome.refusals) == 50
    assert runs < 10


@settings(max_examples=examples(25), deadline=None)
@given(
    low=st.integers(0, 3),
    high=st.integers(0, 3),
    count=st.integers(1, 4),
    is_protected=st.booleans(),
)
def test_operators_place_what_the_search_needs_nobody_for(
    low: int, high: int, count: int, *, is_protected: bool
) -> None:
    scene = make_scene(priority=low, is_protected=is_protected)
    unit = add_gang(scene, count, high)
    found = search(scene, unit)
    needs_nobody = isinstance(found, Preemption) and not found.victims
    assert bool(scene.plan(unit).placements) is needs_nobody
