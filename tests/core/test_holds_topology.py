"""Room held for lost members of gangs that must share a topology domain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import placed_on
from tests.core.test_holds import A, Scene, started, waiting

from koord.core.engine.queue import unit_of
from koord.core.model.gangs import ROOT, SubGroup, SubGroupTree
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

LAYERS = (Layer("Rack", "", ("rack",)), Layer(NODE_LAYER, "Rack"))


def constraint(
    strategy: GatherStrategy = GatherStrategy.MUST, layer: str = "Rack"
) -> TopologyConstraint:
    return TopologyConstraint((LayerConstraint(layer, strategy),))


def add_node(scene: Scene, name: str, rack: str) -> None:
    scene.cluster.nodes(make_node(name).gpu(8).label("rack", rack))


def lose_a_node(asked: TopologyConstraint) -> Scene:
    """A gang of two in rack r0 that has lost a member, with its node."""
    scene = Scene(0, groups=[make_pod_group(A, 2).topology(asked).wait(60).build()])
    scene.cluster.topology(*LAYERS)
    add_node(scene, "n0", "r0")
    add_node(scene, "n1", "r0")
    scene.put(started("a-0", "n0"), started("a-1", "n1"))
    scene.state.remove_node("n1")
    scene.remove("uid-default-a-1")
    return scene


@pytest.mark.parametrize(
    ("asked", "rack", "is_kept"),
    [
        (constraint(), "r0", True),
        (constraint(), "r1", False),
        (constraint(GatherStrategy.PREFER), "r1", True),
        (constraint(layer="Unknown"), "r0", False),
        (constraint(layer=NODE_LAYER), "r0", False),
    ],
)
def test_room_is_held_in_the_replacement_domain(
    asked: TopologyConstraint,
    rack: str,
    is_kept: bool,  # noqa: FBT001 - a column of the table
) -> None:
    scene = lose_a_node(asked)
    thief = waiting("thief")
    assert not placed_on(scene.plan(unit_of(thief)))
    add_node(scene, "spare", rack)
    assert placed_on(scene.plan(unit_of(thief))) == ({} if is_kept else {"thief": "spare"})


def test_room_is_not_held_on_a_node_outside_the_domain() -> None:
    scene = lose_a_node(constraint())
    add_node(scene, "n1", "r1")
    assert placed_on(scene.plan(unit_of(waiting("thief")))) == {"thief": "n1"}


def test_replacement_uses_the_room_held_in_its_domain() -> None:
    scene = lose_a_node(constraint())
    add_node(scene, "far", "r1")
    add_node(scene, "near", "r0")
    scene.put(waiting("a-2", A))
    (repair,) = scene.units(A)
    thief = unit_of(waiting("thief"))
    assert placed_on(scene.plan(thief, repair)) == {"thief": "far", "a-2": "near"}


def test_domain_of_one_sub_group_does_not_restrict_others() -> None:
    sub_groups = SubGroupTree(SubGroup(ROOT), (SubGroup("tight", 2, "Rack"), SubGroup("loose", 2)))
    group = make_pod_group(A, 4).topology(TopologyConstraint(())).wait(60).build()
    spec = replace(group.spec, sub_groups=sub_groups)
    scene = Scene(0, groups=[replace(group, spec=spec)])
    scene.cluster.topology(*LAYERS)
    for rack, nodes in (("r0", 3), ("r1", 2), ("r2", 2)):
        for at in range(nodes):
            add_node(scene, f"{rack}-{at}", rack)
    members = {"tight-0": "r0-0", "tight-1": "r0-1", "loose-0": "r1-0", "loose-1": "r1-1"}
    for name, node in members.items():
        pod = make_pod(name).gang(A).gpu(8).released(node, "p", A, 4, 4).running(node).build()
        scene.put(replace(pod, sub_group=name.partition("-")[0]))
    for name in ("loose-1", "tight-1"):
        scene.remove(f"uid-default-{name}")
        scene.put(make_pod(f"thief-of-{name}").gpu(8).running(members[name]).build())
    others = [unit_of(waiting(f"other-{at}")) for at in range(2)]
    assert placed_on(scene.plan(*others)) == {"other-0": "r2-1"}
