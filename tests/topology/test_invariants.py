"""Invariants of plans for gangs with topology constraints."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster
from tests.support.laws import examples

from koord.core.model.plan import Demand, Plan, Unit
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from koord.core.model.nodes import Node

LAYERS = (
    Layer("Spine", "", ("spine",)),
    Layer("Block", "Spine", ("block",)),
    Layer(NODE_LAYER, "Block"),
)
Nodes = list[tuple[str, str, int]]
"""Spine, block, CPUs."""
Gangs = list[tuple[TopologyConstraint, int, int, int]]
"""Constraint, CPUs per member, members, required members."""

nodes_of_clusters = st.lists(
    st.tuples(st.sampled_from("st"), st.sampled_from("abc"), st.integers(1, 6)),
    min_size=1,
    max_size=9,
)
layer_wishes = st.builds(
    LayerConstraint,
    st.sampled_from(("Spine", "Block", NODE_LAYER)),
    st.sampled_from(GatherStrategy),
    st.sampled_from((1, 1, 1, 2, 3)),
)
constraints = st.lists(layer_wishes, max_size=2, unique_by=lambda constraint: constraint.layer).map(
    lambda layers: TopologyConstraint(tuple(layers))
)
gangs_of_clusters = st.lists(
    st.tuples(constraints, st.integers(1, 3), st.integers(1, 6), st.integers(0, 3)),
    min_size=1,
    max_size=3,
)


def plan_for(nodes: Nodes, gangs: Gangs, shuffle: int = 0) -> Plan:
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    made: list[Node] = [
        make_node(f"n{at}").cpu(cpus * 1000).label("spine", spine).label("block", block).build()
        for at, (spine, block, cpus) in enumerate(nodes)
    ]
    random.Random(shuffle).shuffle(made)  # noqa: S311 - the same every time
    for node in made:
        cluster.nodes(node)
    units = []
    for at, (constraint, cpus, count, spare) in enumerate(gangs):
        key = f"default/g{at}"
        cluster.pod_groups(make_pod_group(key).topology(constraint))
        pods = tuple(
            make_pod(f"g{at}-{member}").gang(key).requests(cpu=cpus * 1000).build()
            for member in range(count)
        )
        for pod in reversed(pods) if shuffle else pods:
            cluster.pods(pod)
        units.append(Unit(key, (Demand(key, pods, max(count - spare, 1)),), key))
    return cluster.plan(*units)


@given(nodes_of_clusters, gangs_of_clusters)
@settings(max_examples=examples(40), deadline=None)
def test_plans_respect_capacity_layers_and_multiples(nodes: Nodes, gangs: Gangs) -> None:
    outcome = plan_for(nodes, gangs)
    load: Counter[int] = Counter()
    for placement in outcome.placements:
        constraint, cpus, count, spare = gangs[int(placement.unit.removeprefix("default/g"))]
        assert len(placement.assignments) >= max(count - spare, 1)
        places = [int(one.node[1:]) for one in placement.assignments]
        for at in places:
            load[at] += cpus
        domains = {
            "Spine": [nodes[at][0] for at in places],
            "Block": [nodes[at][:2] for at in places],
            NODE_LAYER: places,
        }
        for one in constraint.layers:
            counts = Counter(domains[one.layer])
            assert one.strategy is not GatherStrategy.MUST or len(counts) == 1
            assert all(members % one.multiple == 0 for members in counts.values())
        used = dict(placement.topologies[0].used) if placement.topologies else {}
        assert all(len(set(domains[layer])) == used[layer] for layer in used)
    assert all(taken <= nodes[at][2] for at, taken in load.items())


@given(nodes_of_clusters, gangs_of_clusters)
@settings(max_examples=examples(30), deadline=None)
def test_plans_do_not_depend_on_order_of_arrival(nodes: Nodes, gangs: Gangs) -> None:
    assert plan_for(nodes, gangs) == plan_for(nodes, gangs, shuffle=7)


@given(nodes_of_clusters, gangs_of_clusters.map(lambda gangs: gangs[:1]))
@settings(max_examples=examples(60), deadline=None)
def test_additional_node_keeps_gangs_placeable(nodes: Nodes, gangs: Gangs) -> None:
    if plan_for(nodes, gangs).placements:
        assert plan_for([*nodes, ("t", "c", 6)], gangs).placements


def lowest_that_holds(nodes: Nodes, cpus: int, count: int, must: str) -> int:
    """Return the number of the deepest layer with a domain that offers enough, -1 if none does.

    Koordinator's choice: go down from the domains that must be shared for as long as one suffices.
    """
    depths = {"": 0, "Spine": 1, "Block": 2, NODE_LAYER: 3}
    found = -1
    for depth in range(depths[must], 4):
        offers: Counter[tuple[object, ...]] = Counter()
        for at, (spine, block, size) in enumerate(nodes):
            offers[(spine, block, at)[:depth]] += size // cpus
        if max(offers.values()) >= count:
            found = depth
    return found


@given(
    nodes_of_clusters,
    st.sampled_from(("", "Spine", "Block", NODE_LAYER)),
    st.integers(1, 3),
    st.integers(1, 8),
)
@settings(max_examples=examples(60), deadline=None)
def test_common_domain_is_never_higher_than_with_koordinator(
    nodes: Nodes, must: str, cpus: int, count: int
) -> None:
    # To prefer few domains of a lower layer may be worth an upper one.
    layers = (
        (LayerConstraint(must, GatherStrategy.MUST),)
        if must
        else (LayerConstraint("Spine", GatherStrategy.PREFER),)
    )
    outcome = plan_for(nodes, [(TopologyConstraint(layers), cpus, count, 0)])
    lowest = lowest_that_holds(nodes, cpus, count, must)
    assert bool(outcome.placements) is (lowest >= 0)
    for placement in outcome.placements:
        (where,) = placement.topologies
        assert len(where.domain) >= lowest
