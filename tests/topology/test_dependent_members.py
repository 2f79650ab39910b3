"""Gangs with topology constraints whose members have affinity or topology spread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import make_pod, make_pod_group, select_pods
from tests.cluster import FakeCluster, nodes_of
from tests.topology.test_gang_topology import (
    GANG,
    ask,
    make_network,
    must,
    run,
)

from koord.core.gang.quorum import Ready, demands
from koord.core.model.gangs import ROOT, SubGroup, SubGroupTree
from koord.core.model.topology_constraint import TopologyConstraint

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

HOST = "kubernetes.io/hostname"


def make_spread(count: int) -> list[Pod]:
    """Make members with topology spread over hosts, of skew 1."""
    return [
        make_pod(f"w-{at}")
        .gang(GANG)
        .labels(app="w")
        .spread(select_pods(app="w"), key=HOST)
        .requests(cpu=1000)
        .build()
        for at in range(count)
    ]


@pytest.mark.parametrize("first", ["master", "worker"])
def test_workers_with_affinity_are_placed_with_their_master(first: str) -> None:
    near = select_pods(app="master")
    master = make_pod("master").gang(GANG).labels(app="master").requests(cpu=2000).build()
    workers = [
        make_pod(f"worker-{at}").gang(GANG).near(near, key="block").requests(cpu=4000).build()
        for at in range(2)
    ]
    cluster = make_network({"s0": {"a": [4, 2]}, "s1": {"b": [6, 4, 4]}})
    ask(cluster, must("Block"))
    pods = [master, *workers] if first == "master" else [*workers, master]
    assert set(nodes_of(run(cluster, pods)).values()) <= {"node-2", "node-3", "node-4"}


def test_topology_spread_with_more_members_than_hosts() -> None:
    cluster = make_network({"s0": {"a": [8, 8]}})
    ask(cluster, must("Block"))
    placed = nodes_of(run(cluster, make_spread(4)))
    assert sorted(placed.values()) == ["node-0", "node-0", "node-1", "node-1"]


def test_topology_spread_within_a_sub_group() -> None:
    cluster = make_network({"s0": {"a": [8, 8]}})
    groups = SubGroup("replica", layer="Block"), SubGroup("tensor", 4, parent="replica")
    place_nested(cluster, groups)
    ready = demands(cluster.state.gangs, GANG)
    assert isinstance(ready, Ready)
    placed = nodes_of(cluster.plan(*ready.units))
    assert sorted(placed.values()) == ["node-0", "node-0", "node-1", "node-1"]


def place_nested(cluster: FakeCluster, groups: tuple[SubGroup, ...]) -> None:
    """Put four members in the last of some sub-groups."""
    group = make_pod_group(GANG, 4).topology(TopologyConstraint(())).build()
    sub_groups = SubGroupTree(SubGroup(ROOT), groups)
    cluster.pod_groups(replace(group, spec=replace(group.spec, sub_groups=sub_groups)))
    for pod in make_spread(4):
        cluster.pods(replace(pod, sub_group=groups[-1].name))
