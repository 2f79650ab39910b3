"""Gangs with sub-groups: each in its own domain, all of them or as many as needed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import SCORING, make_cluster, placed_on, plan_in
from tests.objects import remove_topology, upsert_pod_group

from koord.core.engine.holds import Holds
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.reasons import GangCount, MissingMembers
from koord.core.model.gangs import ROOT, GangMode, SubGroup, SubGroupTree
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer
from koord.core.topology.plugin import TopologySession
from koord.core.topology.reasons import MultipleNotMet, NoDomainFits, UnknownLayer

if TYPE_CHECKING:
    from koord.core.model.plan import Plan
    from koord.core.model.pods import Pod

A, B = "default/a", "default/b"
LAYERS = (Layer("Spine", "", ("s",)), Layer("Rack", "Spine", ("r",)), Layer(NODE_LAYER, "Rack"))
RACKS = {"r0": "s0", "r1": "s0", "r2": "s1", "r3": "s1"}


def make_sub_groups(*groups: SubGroup, least: int | None = None) -> SubGroupTree:
    return SubGroupTree(SubGroup(ROOT, min_sub_groups=least), groups)


def replicas(count: int, members: int = 2, layer: str = "Rack") -> tuple[SubGroup, ...]:
    return tuple(SubGroup(f"g{at}", members, layer) for at in range(count))


def member(group: str, at: int, gpus: int = 8) -> Pod:
    pod = make_pod(f"{group or 'x'}-{at}").gang(A).gpu(gpus).build()
    return replace(pod, sub_group=group)


class Scene:
    """Four racks of two nodes, two spines, and one gang."""

    def __init__(
        self,
        sub_groups: SubGroupTree,
        *pods: Pod,
        minimum: int = 1,
        constraint: TopologyConstraint | None = None,
    ):
        self.cluster = make_cluster().topology(*LAYERS)
        self.state = self.cluster.state
        for rack, spine in RACKS.items():
            for at in range(2):
                self.add_node(f"{rack}-{at}", rack, spine)
        group = make_pod_group(A, minimum).topology(constraint).build()
        upsert_pod_group(
            self.state, replace(group, spec=replace(group.spec, sub_groups=sub_groups))
        )
        for pod in pods:
            self.state.upsert_pod(pod)

    def add_node(self, name: str, rack: str, spine: str) -> None:
        self.state.upsert_node(make_node(name).gpu(8).label("r", rack).label("s", spine).build())

    def fill(self, *nodes: str) -> None:
        for node in nodes:
            self.state.upsert_pod(make_pod(f"filler-{node}").gpu(8).running(node).build())

    def decide(self) -> Plan:
        ready = demands(self.state.gangs, A)
        assert isinstance(ready, Ready), ready
        return self.cluster.plan(*ready.units)

    def place(self) -> dict[str, set[str]]:
        """Plan and bind; return the racks of each sub-group."""
        racks: dict[str, set[str]] = defaultdict(set)
        for placement in self.decide().placements:
            for one in placement.assignments:
                racks[one.pod.sub_group].add(one.node.partition("-")[0])
                count, strength = len(placement.assignments), placement.strengths.get(A, 0)
                pod = make_pod(one.pod.name).gang(A).gpu(8)
                pod = pod.released(one.node, placement.plan_id, A, count, strength)
                bound = replace(pod.running(one.node).build(), sub_group=one.pod.sub_group)
                self.state.upsert_pod(bound)
        return dict(racks)


def members(*groups: SubGroup) -> list[Pod]:
    return [member(one.name, at) for one in groups for at in range(one.min_member)]


def test_each_sub_group_shares_a_rack() -> None:
    groups = replicas(4)
    racks = Scene(make_sub_groups(*groups), *members(*groups), minimum=8).place()
    assert sorted(len(one) for one in racks.values()) == [1] * 4
    assert set().union(*racks.values()) == set(RACKS)


def test_sub_group_without_a_rack_refuses_the_gang() -> None:
    groups = replicas(4)
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=8)
    scene.fill("r3-1")
    (refusal,) = scene.decide().refusals
    assert isinstance(refusal.reason, NoDomainFits)
    assert refusal.reason.layer == "Rack"


def test_sub_groups_stay_in_the_domain_of_their_parent() -> None:
    pipeline = SubGroup("pipe", layer="Spine")
    stages = [one._replace(parent="pipe") for one in replicas(2)]
    scene = Scene(make_sub_groups(pipeline, *stages), *members(*stages), minimum=4)
    scene.fill("r0-0", "r2-0", "r1-1")
    (refusal,) = scene.decide().refusals
    assert isinstance(refusal.reason, NoDomainFits)
    scene.state.remove_pod("uid-default-filler-r2-0")
    racks = scene.place()
    assert set().union(*racks.values()) == {"r2", "r3"}


def test_constraint_of_the_gang_applies_to_all_sub_groups() -> None:
    constraint = TopologyConstraint((LayerConstraint("Spine", GatherStrategy.MUST),))
    groups = replicas(2)
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=4, constraint=constraint)
    scene.fill("r0-0", "r2-0")
    assert not scene.place()
    scene.state.remove_pod("uid-default-filler-r0-0")
    assert set().union(*scene.place().values()) == {"r0", "r1"}


def test_needed_sub_groups_start_first_others_follow_whole() -> None:
    groups = replicas(3)
    scene = Scene(make_sub_groups(*groups, least=2), *members(*groups), minimum=4)
    scene.fill("r2-0", "r3-0")
    assert scene.place().keys() == {"g0", "g1"}
    assert not scene.place(), "half a sub-group is of no use"
    scene.state.remove_pod("uid-default-filler-r3-0")
    assert scene.place() == {"g2": {"r3"}}


@pytest.mark.parametrize("least", [2, None])
def test_quorum_counts_complete_sub_groups_bottom_up(least: int | None) -> None:
    groups = replicas(3)
    some = members(*groups)[:-1]
    found = demands(Scene(make_sub_groups(*groups, least=least), *some, minimum=1).state.gangs, A)
    if least is None:
        assert found == MissingMembers((GangCount(f"{A}/g2", 1, 2),))
    else:
        assert isinstance(found, Ready)


def test_replacement_goes_to_the_rack_of_its_sub_group() -> None:
    groups = replicas(2)
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=4)
    racks = scene.place()
    (home,) = racks["g1"]
    lost = next(pod for pod in scene.state.pods.values() if pod.name == "g1-1")
    scene.state.remove_pod(lost.uid)
    scene.fill(lost.node)
    scene.state.upsert_pod(member("g1", 2))
    assert not scene.place(), "there is room in other racks only"
    scene.add_node(f"{home}-9", home, RACKS[home])
    assert scene.place() == {"g1": {home}}


def test_members_without_sub_group_use_the_domain_of_the_gang() -> None:
    groups = replicas(2)
    scene = Scene(make_sub_groups(*groups), *members(*groups), member("", 0), minimum=5)
    assert scene.place().keys() == {"g0", "g1", ""}


def test_unknown_layer_of_a_sub_group_is_named() -> None:
    groups = replicas(1, layer="Row")
    (refusal,) = Scene(make_sub_groups(*groups), *members(*groups)).decide().refusals
    assert isinstance(refusal.reason, UnknownLayer)


def test_surplus_does_not_take_the_room_of_other_sub_groups() -> None:
    groups = replicas(2, members=1, layer="Spine")
    pods = [member("g0", at) for at in range(9)] + [member("g1", 0)]
    scene = Scene(make_sub_groups(*groups), *pods, minimum=2)
    scene.fill("r0-0", "r1-0", "r2-0", "r3-0", "r3-1")
    placed = [one.pod for one in scene.decide().placements[0].assignments]
    counts = {name: sum(pod.sub_group == name for pod in placed) for name in ("g0", "g1")}
    assert counts["g1"] == 1
    assert counts["g0"] >= 1


@pytest.mark.parametrize("seed", range(25))
def test_equal_sub_groups_are_always_placed_if_possible(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same every time
    groups = replicas(dice.randint(1, 5))
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=2 * len(groups))
    taken = [node for node in scene.state.table.row_of if dice.random() < 0.3]
    scene.fill(*taken)
    free = Counter(node.partition("-")[0] for node in scene.state.table.row_of.keys() - set(taken))
    can_be = sum(count // 2 for count in free.values()) >= len(groups)
    assert bool(scene.place()) is can_be


def test_sub_groups_of_two_gangs_may_have_the_same_name() -> None:
    both = tuple(sorted((A, B)))
    groups = replicas(2, members=2)
    scene = Scene(make_sub_groups(*groups, least=1))
    for key in both:
        group = make_pod_group(key, 2).group(*both).build()
        spec = replace(group.spec, sub_groups=make_sub_groups(*groups, least=1))
        upsert_pod_group(scene.state, replace(group, spec=spec))
        for at in range(2):
            pod = make_pod(f"{key[-1]}-{at}").gang(key).released("r0-0", "p", ",".join(both), 4, 2)
            bound = replace(pod.gpu(1).running("r0-0").build(), sub_group="g0")
            scene.state.upsert_pod(bound)
            late = make_pod(f"{key[-1]}-late-{at}").gang(key).gpu(8).build()
            scene.state.upsert_pod(replace(late, sub_group="g1"))
    ready = demands(scene.state.gangs, A)
    assert isinstance(ready, Ready)
    assert sorted(unit.key for unit in ready.units) == [f"{A}/g1", f"{B}/g1"]


def test_more_sub_groups_start_if_the_gang_needs_their_members() -> None:
    groups = replicas(3)
    scene = Scene(make_sub_groups(*groups, least=1), *members(*groups), minimum=4)
    scene.fill("r1-0", "r2-0", "r3-0")
    assert not scene.place(), "one sub-group would be less than the minimum of the gang"
    scene.state.remove_pod("uid-default-filler-r2-0")
    assert scene.place().keys() == {"g0", "g1"}


def test_members_of_incomplete_sub_groups_do_not_count_for_the_gang() -> None:
    groups = replicas(2)
    some = [*members(groups[0]), member("g1", 0)]
    found = demands(Scene(make_sub_groups(*groups, least=1), *some, minimum=3).state.gangs, A)
    assert found == MissingMembers((GangCount(A, 2, 3), GangCount(f"{A}/g1", 1, 2)))


def test_gang_with_sub_groups_shares_no_domain_with_its_group() -> None:
    groups = replicas(1)
    constraint = TopologyConstraint((LayerConstraint("Spine", GatherStrategy.MUST, 2),))
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=2, constraint=constraint)
    for key in (A, B):
        group = make_pod_group(key, 2).group(A, B).topology(constraint).build()
        sub_groups = make_sub_groups(*groups) if key == A else None
        upsert_pod_group(
            scene.state, replace(group, spec=replace(group.spec, sub_groups=sub_groups))
        )
    network = scene.cluster.open_cycle().session(TopologySession).view
    scene.state.upsert_pod(make_pod("b-0").gang(B).gpu(8).running("r0-0").build())
    assert [one.name for one in network.placed_members_of(B)] == ["b-0"]
    assert not list(network.placed_members_of(A))


def test_replacements_of_a_sub_group_share_its_domain_while_others_keep_room() -> None:
    g0, g1 = SubGroup("g0", 1, "Rack"), SubGroup("g1", 1, "Rack")
    scene, holds = Scene(make_sub_groups(g0, g1), minimum=2), Holds()
    cluster = scene.cluster
    scene.fill("r0-1", "r1-1", "r2-1")
    running = make_pod("g1-0").gang(A).gpu(8).released("r2-0", "p", A).running("r2-0").build()
    waiting = make_pod_group(B, 5).mode(GangMode.NON_STRICT).keeps_room(is_kept=True)
    cluster.pods(replace(running, sub_group="g1")).pod_groups(waiting)
    cluster.pods(*(make_pod(f"b-{at}").gang(B).gpu(6).selector(r="r3").build() for at in range(5)))
    assert not holds.plan(cluster.open_cycle(), cluster.take(), plan_in, SCORING, 0.0).placements
    # B keeps both nodes of r3; in r0 and r1 one node is left each.
    cluster.pods(member("g0", 0), member("g0", 1))
    outcome = holds.plan(cluster.open_cycle(), cluster.take(), plan_in, SCORING, 0.0)
    assert len(placed_on(outcome)) == 1
    assert isinstance(outcome.refusals[0].reason, NoDomainFits)


def quarters(group: SubGroup) -> list[Pod]:
    """Make members of which four fit on a node."""
    return [member(group.name, at, gpus=2) for at in range(group.min_member)]


@pytest.mark.parametrize("strategy", GatherStrategy)
def test_multiples_apply_to_each_sub_group(strategy: GatherStrategy) -> None:
    constraint = TopologyConstraint(
        (
            LayerConstraint(NODE_LAYER, GatherStrategy.PREFER, 2),
            LayerConstraint("Rack", strategy, 4),
        )
    )
    groups = replicas(1, members=4)
    scene = Scene(make_sub_groups(*groups), *quarters(groups[0]), minimum=4, constraint=constraint)
    for at, rack in enumerate(RACKS):
        for node in range(2):
            # Three more fit on each node: in pairs no more than one, and four in each rack.
            filler = make_pod(f"filler-{at}-{node}").gpu(2).running(f"{rack}-{node}").build()
            scene.state.upsert_pod(filler)
    (placement,) = scene.decide().placements
    counts = Counter(one.node for one in placement.assignments)
    assert sorted(counts.values()) == [2, 2]


def test_multiples_that_a_sub_group_cannot_reach_are_reported() -> None:
    constraint = TopologyConstraint((LayerConstraint(NODE_LAYER, GatherStrategy.PREFER, 4),))
    groups = replicas(2, members=6)
    pods = [pod for group in groups for pod in quarters(group)]
    (refusal,) = (
        Scene(make_sub_groups(*groups), *pods, minimum=12, constraint=constraint).decide().refusals
    )
    assert isinstance(refusal.reason, MultipleNotMet)
    assert f"podCountMultiple constraints: {NODE_LAYER}=4" in refusal.reason.text(compat=True)


def test_replacement_completes_the_multiple_of_its_sub_group() -> None:
    constraint = TopologyConstraint((LayerConstraint(NODE_LAYER, GatherStrategy.PREFER, 2),))
    groups = replicas(1, members=4)
    living = [replace(pod, sub_group="g0") for pod in running_quarters("r0-0", "r0-1", "r0-1")]
    scene = Scene(
        make_sub_groups(*groups), *living, member("g0", 3, gpus=2), minimum=4, constraint=constraint
    )
    (placement,) = scene.decide().placements
    assert [one.node for one in placement.assignments] == ["r0-0"]


def running_quarters(*nodes: str) -> list[Pod]:
    return [
        make_pod(f"old-{at}").gang(A).gpu(2).released(node, "p", A, 4, 4).running(node).build()
        for at, node in enumerate(nodes)
    ]


def make_halves(scene: Scene, count: int) -> None:
    """Add spines with room for four members, but none for two in any rack."""
    for spine in range(count):
        for rack in range(4):
            scene.add_node(f"x{spine}{rack}-0", f"x{rack}", f"x{spine}")


PARTS = SubGroup("pipe", layer="Spine"), *(one._replace(parent="pipe") for one in replicas(2))


def test_domain_with_most_room_is_tried_when_there_are_too_many() -> None:
    scene = Scene(make_sub_groups(*PARTS), *members(*PARTS), minimum=4)
    scene.fill(*scene.state.table.row_of)
    make_halves(scene, 30)
    for at, rack in enumerate("aabbc"):
        scene.add_node(f"{rack}-{at}", rack, "z")
    assert set().union(*scene.place().values()) == {"a", "b"}


def test_untried_domains_are_counted() -> None:
    scene = Scene(make_sub_groups(*PARTS), *members(*PARTS), minimum=4)
    scene.fill(*scene.state.table.row_of)
    make_halves(scene, 30)
    (refusal,) = scene.decide().refusals
    assert isinstance(refusal.reason, NoDomainFits)
    assert refusal.reason.untried == 6
    assert "Domains not tried for its sub-groups: 6." in refusal.reason.text()


def test_without_a_topology_surplus_sub_groups_are_placed_whole() -> None:
    groups = replicas(3, layer="")
    scene = Scene(make_sub_groups(*groups, least=1), *members(*groups), minimum=2)
    remove_topology(scene.state, "default")
    nodes = sorted(scene.state.table.row_of)
    scene.fill(*nodes[3:])
    assert scene.place().keys() == {"g0"}, "half a sub-group is of no use"
    scene.state.remove_pod(f"uid-default-filler-{nodes[3]}")
    assert scene.place().keys() == {"g1"}


def test_without_a_topology_surplus_members_are_placed_one_by_one() -> None:
    groups = replicas(1, layer="")
    more = [member("g0", 2), member("g0", 3), member("", 0)]
    scene = Scene(make_sub_groups(*groups), *members(*groups), *more, minimum=2)
    remove_topology(scene.state, "default")
    nodes = sorted(scene.state.table.row_of)
    scene.fill(*nodes[3:])
    placed = scene.decide().placements[0].assignments
    assert len(placed) == 3


@pytest.mark.parametrize(("filled", "gap"), [(("r0-0",), ("Rack", 1)), ((), None)])
def test_sub_groups_that_may_be_closer_have_a_gap(
    filled: tuple[str, ...], gap: tuple[str, int] | None
) -> None:
    groups = replicas(2, members=1)
    scene = Scene(make_sub_groups(*groups), *members(*groups), minimum=2)
    scene.fill(*filled)
    (placement,) = scene.decide().placements
    (where,) = placement.topologies
    assert where.gap == gap
    assert dict(where.used)["Rack"] == (1 if gap is None else 2)
