"""Gangs with topology constraints in quotas: both are satisfied, or nothing is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster

from koord.core.model.plan import Demand, Plan, Unit
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.quota.reasons import InsufficientMax, RequestAboveMax
from koord.core.topology.layers import Layer
from koord.core.topology.reasons import NoDomainFits

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

LAYERS = (Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
ONE_BLOCK = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))


def make_state(most: int) -> FakeCluster:
    """Two blocks of two nodes with one CPU each, and a quota of ``most`` CPUs."""
    cluster = make_cluster()
    cluster.topology(*LAYERS)
    for at in range(4):
        cluster.nodes(make_node(f"n{at}").cpu(1000).label("block", f"b{at // 2}"))
    cluster.quotas(make_quota("t", max={"cpu": most * 1000}))
    return cluster


def make_gang(cluster: FakeCluster, name: str, count: int, minimum: int) -> Unit:
    group = make_pod_group(f"default/{name}", minimum).topology(ONE_BLOCK).build()
    cluster.pod_groups(group)
    pods: list[Pod] = [
        make_pod(f"{name}-{at}").requests(cpu=1000).quota("t").gang(group.key).index(at).build()
        for at in range(count)
    ]
    for pod in pods:
        cluster.pods(pod)
    return Unit(group.key, (Demand(group.key, tuple(pods), minimum),), group.key)


def run(cluster: FakeCluster, *units: Unit) -> Plan:
    return cluster.plan(*units)


def test_gang_that_fits_no_domain_uses_no_quota() -> None:
    cluster = make_state(most=3)
    outcome = run(cluster, make_gang(cluster, "wide", 3, 3), make_gang(cluster, "tight", 2, 2))
    assert [one.unit for one in outcome.placements] == ["default/tight"]
    (refusal,) = outcome.refusals
    assert isinstance(refusal.reason, NoDomainFits)


def test_gang_over_its_quota_uses_no_domain() -> None:
    cluster = make_state(most=2)
    big, small = make_gang(cluster, "big", 3, 3), make_gang(cluster, "small", 2, 2)
    outcome = run(cluster, big, small)
    assert [one.unit for one in outcome.placements] == ["default/small"]
    assert [type(one.reason) for one in outcome.refusals] == [RequestAboveMax]
    where = outcome.placements[0].topologies[0]
    assert dict(where.used)["Block"] == 1


def test_surplus_over_the_quota_waits_the_rest_is_placed() -> None:
    cluster = make_state(most=2)
    outcome = run(cluster, make_gang(cluster, "g", 4, 1))
    nodes = {one.node for one in outcome.placements[0].assignments}
    assert nodes in ({"n0", "n1"}, {"n2", "n3"})
    (refusal,) = outcome.refusals
    assert [pod.name for pod in refusal.pods] == ["g-2", "g-3"]
    assert isinstance(refusal.reason, InsufficientMax)
