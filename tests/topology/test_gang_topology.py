"""Planning of gangs with topology constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import make_node, make_pod, make_pod_group, select_pods
from tests.cluster import SCORING, FakeCluster, make_cluster, nodes_of, placed_on, plan_in
from tests.objects import remove_topology, upsert_topology

from koord.core.engine.holds import Holds
from koord.core.engine.queue import unit_of
from koord.core.model.gangs import GangMode
from koord.core.model.plan import Demand, Plan, Unit
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.core.topology.reasons import (
    MembersApart,
    MissingTopology,
    MultipleNotMet,
    NoDomainFits,
    UnknownLayer,
)

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

LAYERS = (
    Layer("Spine", "", ("spine",)),
    Layer("Block", "Spine", ("block",)),
    Layer(NODE_LAYER, "Block"),
)
GANG = "default/job"

Sizes = dict[str, dict[str, list[int]]]
"""Spine -> block -> CPUs of its nodes, which are numbered consecutively."""


def make_network(sizes: Sizes, layers: tuple[Layer, ...] = LAYERS) -> FakeCluster:
    cluster = make_cluster()
    cluster.topology(*layers)
    number = 0
    for spine, blocks in sizes.items():
        for block, nodes in blocks.items():
            for cpus in nodes:
                node = make_node(f"node-{number}").cpu(cpus * 1000)
                cluster.nodes(node.label("spine", spine).label("block", block))
                number += 1
    return cluster


def must(layer: str, multiple: int = 1) -> LayerConstraint:
    return LayerConstraint(layer, GatherStrategy.MUST, multiple)


def prefer(layer: str, multiple: int = 1) -> LayerConstraint:
    return LayerConstraint(layer, GatherStrategy.PREFER, multiple)


def ask(
    cluster: FakeCluster, *constraints: LayerConstraint, topology: str = "default", minimum: int = 1
) -> None:
    constraint = TopologyConstraint(constraints, topology)
    cluster.pod_groups(make_pod_group(GANG, minimum).topology(constraint))


def make_members(count: int, cpus: int = 8, prefix: str = "w") -> list[Pod]:
    return [
        make_pod(f"{prefix}-{at}").gang(GANG).index(at).requests(cpu=cpus * 1000).build()
        for at in range(count)
    ]


def run(cluster: FakeCluster, pods: list[Pod], required: int | None = None) -> Plan:
    for pod in pods:
        cluster.pods(pod)
    demand = Demand(GANG, tuple(pods), len(pods) if required is None else required)
    return cluster.plan(Unit(GANG, (demand,), GANG))


WEBSITE: Sizes = {
    "s0": {"b0": [8, 8, 8], "b1": [8, 8]},
    "s1": {"b2": [8, 8], "b3": [8, 8]},
    "s2": {"b4": [8, 8, 8]},
}


def test_tightest_spine_that_holds_all_is_chosen() -> None:
    cluster = make_network(WEBSITE)
    ask(cluster, must("Spine"))
    outcome = run(cluster, make_members(4))
    assert nodes_of(outcome) == {f"w-{at}": f"node-{at + 5}" for at in range(4)}
    where = outcome.placements[0].topologies[0]
    assert (where.layer, where.domain) == ("Spine", ("s1",))
    assert dict(where.used) == {"Spine": 1, "Block": 2, NODE_LAYER: 4}
    assert where.is_optimal


def test_refusal_names_offers_shortage_and_the_first_unplaced_member() -> None:
    cluster = make_network(WEBSITE)
    ask(cluster, must("Block"))
    reason = run(cluster, make_members(4)).refusals[0].reason
    assert isinstance(reason, NoDomainFits)
    assert (reason.layer, reason.want, reason.domains) == ("Block", 4, 5)
    offers = {one.path: one.offer for one in reason.offers}
    assert offers[("s0", "b0")] == 3
    assert offers[("s1", "b2")] == 2
    shortage = reason.shortage
    assert (shortage.first, shortage.resource) == ("default/w-3", "cpu")
    upstream = reason.text(compat=True)
    assert "desiredOfferSlot: 4, topology topologyNode Block/b0: 3;" in upstream
    assert "12 Insufficient cpu" in upstream
    assert "Most room: b0: 3, b4: 3" in reason.text()


def test_refusal_lists_at_most_five_offers() -> None:
    cluster = make_network({f"s{at}": {"b": [8]} for at in range(7)})
    ask(cluster, must("Block"))
    reason = run(cluster, make_members(2)).refusals[0].reason
    assert isinstance(reason, NoDomainFits)
    assert (len(reason.offers), reason.domains) == (5, 7)
    assert "s0/b: 1" in reason.text()
    assert "(2 more domains, none larger)" in reason.text()


def test_blocks_of_equal_name_under_two_spines_are_distinct() -> None:
    cluster = make_network({"s0": {"b": [8, 8]}, "s1": {"b": [8, 8]}})
    ask(cluster, must("Block"))
    assert run(cluster, make_members(3)).refusals


def test_preferred_layer_uses_few_domains_first() -> None:
    sizes: Sizes = {"s0": {"a": [8], "b": [8], "c": [8], "d": [8]}, "s1": {"e": [8, 8, 8]}}
    pods = make_members(4)
    plain = make_network(sizes)
    ask(plain, prefer("Spine"))
    assert dict(run(plain, pods).placements[0].topologies[0].used)["Block"] == 4
    gathering = make_network(sizes)
    ask(gathering, prefer("Block"))
    used = dict(run(gathering, pods).placements[0].topologies[0].used)
    assert used == {"Spine": 2, "Block": 2, NODE_LAYER: 4}


def test_members_take_neighbouring_nodes_by_index() -> None:
    cluster = make_network({"s0": {"a": [16], "b": [16], "c": [16]}})
    ask(cluster, prefer("Spine"))
    placed = nodes_of(run(cluster, make_members(6)))
    assert placed["w-0"] == placed["w-1"]
    assert placed["w-2"] == placed["w-3"]
    assert placed["w-4"] == placed["w-5"]


def test_members_per_domain_are_multiples() -> None:
    cluster = make_network({"s1": {"b1": [5, 7], "b2": [6, 4]}})
    ask(cluster, prefer(NODE_LAYER, 2), prefer("Block", 8))
    outcome = run(cluster, make_members(16, cpus=1))
    per_node: dict[str, int] = {}
    for node in nodes_of(outcome).values():
        per_node[node] = per_node.get(node, 0) + 1
    assert per_node == {"node-0": 2, "node-1": 6, "node-2": 6, "node-3": 2}


def test_refusal_by_multiples_only_says_so() -> None:
    cluster = make_network({"s1": {"b1": [5, 7], "b2": [6, 4]}})
    ask(cluster, prefer("Block", 8))
    reason = run(cluster, make_members(20, cpus=1)).refusals[0].reason
    assert isinstance(reason, MultipleNotMet)
    assert reason.multiples == (("Block", 8),)
    assert "podCountMultiple constraints: Block=8" in reason.text(compat=True)
    assert "multiple (Block=8)" in reason.text()


def test_multiple_larger_than_the_gang_is_reported() -> None:
    cluster = make_network({"s1": {"b1": [64]}})
    ask(cluster, prefer("Block", 8))
    assert isinstance(run(cluster, make_members(4)).refusals[0].reason, MultipleNotMet)


@pytest.mark.parametrize("mode", GangMode)
def test_started_and_waiting_gangs_of_a_group_keep_the_multiple_together(mode: GangMode) -> None:
    cluster = make_network({"s0": {"b0": [16]}})
    gangs = ("default/a", "default/b")
    for gang in gangs:
        group = make_pod_group(gang, 3).group(*gangs).mode(mode).keeps_room(is_kept=True)
        cluster.pod_groups(group.topology(TopologyConstraint((prefer("Spine", 2),))))
    for at in range(3):
        running = make_pod(f"a-{at}").gang("default/a").released("node-0", "p", "default/a")
        cluster.pods(running.running("node-0"), make_pod(f"b-{at}").gang("default/b"))
    cluster.pods(make_pod("a-3").gang("default/a"))
    units = cluster.take()
    outcome = Holds().plan(cluster.open_cycle(), units, plan_in, SCORING, 0.0)
    # Three run. One more makes four, or three more six; all four together would make seven.
    assert len(outcome.placements) == len(outcome.refusals) == 1
    assert (3 + len(placed_on(outcome))) % 2 == 0
    assert isinstance(outcome.refusals[0].reason, MultipleNotMet)


def test_upper_layer_is_tried_when_multiples_fail_below() -> None:
    # Block b holds six, but in portions of four only four of them.
    cluster = make_network({"s0": {"b": [3, 3], "c": [4]}})
    ask(cluster, prefer(NODE_LAYER, 1), prefer("Block", 4))
    used = dict(run(cluster, make_members(8, cpus=1)).placements[0].topologies[0].used)
    assert used["Block"] == 2


def test_replacement_goes_to_the_domain_of_its_gang() -> None:
    cluster = make_network({"s0": {"a": [8, 8]}, "s1": {"b": [8, 8, 8]}})
    ask(cluster, must("Spine"))
    cluster.pods(make_pod("w-0").gang(GANG).requests(cpu=8000).running("node-0"))
    outcome = run(cluster, make_members(1, prefix="new"))
    assert nodes_of(outcome) == {"new-0": "node-1"}
    full = run(cluster, make_members(2, prefix="more")).refusals[0].reason
    assert isinstance(full, NoDomainFits)


def test_replacement_goes_beside_its_neighbours_by_index() -> None:
    cluster = make_network({"s0": {"a": [24], "b": [24]}})
    ask(cluster, prefer("Spine"))
    for index, node in ((0, "node-0"), (1, "node-0"), (3, "node-1"), (4, "node-1")):
        pod = make_pod(f"w-{index}").gang(GANG).index(index).requests(cpu=8000)
        cluster.pods(pod.running(node))
    pod = make_pod("w-5").gang(GANG).index(5).requests(cpu=8000).build()
    assert nodes_of(run(cluster, [pod])) == {"w-5": "node-1"}


def test_members_in_different_required_domains_refuse_the_gang() -> None:
    cluster = make_network({"s0": {"a": [16]}, "s1": {"b": [16]}})
    ask(cluster, must("Spine"))
    for at in range(2):
        pod = make_pod(f"old-{at}").gang(GANG).requests(cpu=1000).running(f"node-{at}")
        cluster.pods(pod)
    reason = run(cluster, make_members(1)).refusals[0].reason
    assert isinstance(reason, MembersApart)
    assert reason.nodes == ("node-0", "node-1")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_nodes_named_as_apart_do_not_depend_on_order_of_arrival(
    order: tuple[int, ...],
) -> None:
    cluster = make_network({"s0": {"a": [16, 16]}, "s1": {"b": [16]}})
    ask(cluster, must("Spine"))
    for at in order:
        pod = make_pod(f"old-{at}").gang(GANG).requests(cpu=1000).running(f"node-{at}")
        cluster.pods(pod)
    reason = run(cluster, make_members(1)).refusals[0].reason
    assert isinstance(reason, MembersApart)
    assert reason.nodes == ("node-0", "node-2")


def test_members_outside_the_tree_refuse_the_gang() -> None:
    cluster = make_network({"s0": {"a": [16]}})
    cluster.nodes(make_node("stray").cpu(16000).label("block", "a"))
    ask(cluster, must("Spine"))
    cluster.pods(make_pod("old").gang(GANG).requests(cpu=1000).running("stray"))
    outcome = run(cluster, make_members(1))
    assert not outcome.placements
    assert outcome.refusals[0].reason == MembersApart("default", "Spine", ("stray",))


def test_surplus_joins_used_domains_first() -> None:
    cluster = make_network({"s0": {"a": [8, 8, 8]}, "s1": {"b": [8, 8]}})
    ask(cluster, must("Spine"))
    outcome = run(cluster, make_members(5), required=2)
    # Two fit tightly into s1; with three beyond them, none of those may leave it.
    assert set(nodes_of(outcome)) == {"w-0", "w-1", "w-2"}
    assert [pod.name for pod in outcome.refusals[0].pods] == ["w-3", "w-4"]
    assert isinstance(outcome.refusals[0].reason, NoDomainFits)


@pytest.mark.parametrize(("exists", "text"), [(False, "does not exist"), (True, "no valid layers")])
def test_gang_without_a_topology_tree_is_refused(*, exists: bool, text: str) -> None:
    cluster = make_network({"s0": {"a": [64]}})
    if exists:
        upsert_topology(cluster.state, Topology("other", (Layer("Spine"),)))
    ask(cluster, must("Spine"), topology="other")
    reason = run(cluster, make_members(2)).refusals[0].reason
    assert reason == MissingTopology("other", exists=exists)
    assert "no cluster network topology" in reason.text()
    assert text in reason.text()
    ask(cluster, prefer("Spine", 3), topology="other")
    assert run(cluster, make_members(2)).placements


def test_unknown_required_layer_is_refused_unknown_preferred_one_ignored() -> None:
    cluster = make_network({"s0": {"a": [64]}})
    ask(cluster, must("spine"))
    reason = run(cluster, make_members(9)).refusals[0].reason
    assert isinstance(reason, UnknownLayer)
    assert (reason.layers, reason.existing) == (("spine",), ("Spine", "Block", NODE_LAYER))
    assert reason.text().startswith('ClusterNetworkTopology default has no layer "spine"; its')
    assert reason.text(compat=True).endswith(
        "(no candidate topology nodes can accommodate job, desiredOfferSlot: 9, , "
        "0/1 nodes are available: 1 Insufficient cpu.)"
    )
    ask(cluster, prefer("spine", 3))
    assert run(cluster, make_members(2)).placements


def test_invalid_edit_keeps_the_tree_a_deletion_drops_it() -> None:
    cluster = make_network({"s0": {"a": [64]}})
    ask(cluster, must("Spine"))
    upsert_topology(cluster.state, Topology("default", (Layer("Spine"), Layer("Spine"))))
    assert cluster.state.topologies.problem("default") is not None
    assert run(cluster, make_members(2)).placements
    remove_topology(cluster.state, "default")
    assert isinstance(run(cluster, make_members(2)).refusals[0].reason, MissingTopology)


def test_nodes_without_labels_are_not_used() -> None:
    cluster = make_network({"s0": {"a": [8]}})
    cluster.nodes(make_node("bare"))
    ask(cluster, must("Spine"))
    reason = run(cluster, make_members(2)).refusals[0].reason
    assert isinstance(reason, NoDomainFits)
    assert [one.offer for one in reason.offers] == [1]


def test_master_and_workers_share_the_domain() -> None:
    cluster = make_network({"s0": {"a": [8, 8, 8]}, "s1": {"b": [16, 8, 8]}})
    ask(cluster, must("Block"))
    master = make_pod("master").gang(GANG).index(0).requests(cpu=16_000).build()
    outcome = run(cluster, [master, *make_members(2, prefix="worker")])
    placed = nodes_of(outcome)
    assert placed["master"] == "node-3"
    assert {placed["worker-0"], placed["worker-1"]} == {"node-4", "node-5"}
    assert outcome.placements[0].topologies[0].is_optimal


def test_refused_gang_uses_nothing() -> None:
    cluster = make_network(WEBSITE)
    ask(cluster, must("Block"))
    for pod in (big := make_members(9)):
        cluster.pods(pod)
    demand = Demand(GANG, tuple(big), 9)
    snapshot = cluster.open_cycle()
    before = snapshot.used.copy()
    assert plan_in(snapshot, [Unit(GANG, (demand,), GANG)]).refusals
    assert (snapshot.used == before).all()


def test_single_pod_is_attracted_by_its_selector() -> None:
    cluster = make_network({"s0": {"a": [8, 8]}, "s1": {"b": [16, 8]}, "s2": {"c": [64]}})
    cluster.nodes(make_node("bare").cpu(999_000))
    old = make_pod("old").attraction("x").requests(cpu=1000).running("node-2").build()
    cluster.pods(old)

    def place(cpus: int) -> str:
        pod = make_pod("new").attraction("x").requests(cpu=cpus * 1000).build()
        unit = Unit(pod.uid, (Demand("", (pod,), 1),))
        return nodes_of(cluster.plan(unit))["new"]

    assert [place(8), place(16), place(65)] == ["node-2", "node-4", "bare"]
    cluster.state.remove_pod(old.uid)
    assert place(1) == "bare"


def test_several_replacements_go_beside_their_neighbours() -> None:
    cluster = make_network({"s0": {"a": [24], "b": [24]}})
    ask(cluster, prefer("Spine"))
    for index, node in ((0, "node-1"), (1, "node-1"), (3, "node-0"), (5, "node-0")):
        pod = make_pod(f"w-{index}").gang(GANG).index(index).requests(cpu=8000)
        cluster.pods(pod.running(node))
    late = [
        make_pod(f"w-{index}").gang(GANG).index(index).requests(cpu=8000).build()
        for index in (2, 4)
    ]
    assert nodes_of(run(cluster, late)) == {"w-2": "node-1", "w-4": "node-0"}


def test_members_with_anti_affinity_share_a_domain() -> None:
    alone = select_pods(app="w")
    pods = [
        make_pod(f"w-{at}")
        .gang(GANG)
        .index(at)
        .labels(app="w")
        .apart(alone, key="kubernetes.io/hostname")
        .requests(cpu=1000)
        .build()
        for at in range(3)
    ]
    cluster = make_network({"s0": {"a": [64, 64]}, "s1": {"b": [8, 8, 8]}})
    ask(cluster, must("Block"))
    outcome = run(cluster, pods)
    assert set(nodes_of(outcome).values()) == {"node-2", "node-3", "node-4"}
    where = outcome.placements[0].topologies[0]
    assert (where.domain, where.is_optimal) == (("s1", "b"), False)
    ask(cluster, must(NODE_LAYER))
    assert isinstance(run(cluster, pods).refusals[0].reason, NoDomainFits)


def test_nodes_near_attracting_pods_then_in_tight_blocks_come_first() -> None:
    # As Koordinator ranks them: pods near by before the room that is left, on every layer. Were it
    # the other way round, node-3 (one place in its block) would come before node-1 and node-9.
    blocks = {"s1": {"b1": (8, 1, 9), "b2": (7, 2)}, "s2": {"b3": (6, 3), "b4": (4, 5)}}
    cluster = make_network({})
    for spine, inside in blocks.items():
        for block, numbers in inside.items():
            for number in numbers:
                node = make_node(f"node-{number}").cpu(16_000).label("spine", spine)
                cluster.nodes(node.label("block", block))
    for number in (8, 7, 6):
        old = make_pod(f"old-{number}").attraction("x").requests(cpu=16_000)
        cluster.pods(old.running(f"node-{number}"))
    order = []
    for at in range(6):
        pod = make_pod(f"new-{at}").attraction("x").requests(cpu=16_000).build()
        (placement,) = cluster.plan(unit_of(pod)).placements
        (one,) = placement.assignments
        order.append(one.node)
        # Taken by a pod that draws nobody.
        cluster.pods(make_pod(f"full-{at}").requests(cpu=16_000).running(one.node))
    assert order == [f"node-{number}" for number in (2, 1, 9, 3, 4, 5)]


def test_attraction_counts_before_tight_domains() -> None:
    cluster = make_network({"s0": {"a": [8, 8]}, "s1": {"b": [8, 8, 8]}})
    cluster.nodes(make_node("old").cpu(0).label("spine", "s1").label("block", "b"))
    cluster.pods(make_pod("old").attraction("x").running("old"))
    ask(cluster, must("Block"))
    pods = [
        make_pod(f"w-{at}").gang(GANG).attraction("x").requests(cpu=8000).build() for at in range(2)
    ]
    assert set(nodes_of(run(cluster, pods)).values()) == {"node-2", "node-3"}
