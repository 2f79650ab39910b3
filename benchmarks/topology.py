"""Speed of placement by network topology, in process and without a cluster.

    python -m benchmarks.topology [--nodes 5000] [--runs 10]

First, many gangs of four on racks: pods planned per second, each gang looking at every domain. Then
one gang of 1,024 equal pods on a tree of four layers, asked in several ways, on nodes that have few
kinds of free capacity and on nodes that all differ: median, min and max over the runs, each from a
fresh snapshot.
"""

import argparse
import statistics
import time
from functools import partial

from tests.cluster import make_cluster, plan_once
from tests.objects import upsert_pod_group, upsert_topology

from benchmarks.plan import ask, measure
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangMembership, GangSource, GangSpec, ObservedPodGroup
from koord.core.model.nodes import Node
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer

GPU = "nvidia.com/gpu"
GIB = 1 << 30
RACKS = 50
MEMBERS = 1024
GANGS = 2250
GANG_SIZE = 4
BLOCK = 50
"""Nodes per block of the tree of four layers; ten blocks make a spine, five spines a hall."""

MUST, PREFER = GatherStrategy.MUST, GatherStrategy.PREFER
QUESTIONS = (
    ("one spine, multiples of 8 per block", (("Spine", MUST, 1), ("Block", PREFER, 8))),
    (
        "one spine, 8 per block, 2 per node",
        (("Spine", MUST, 1), ("Block", PREFER, 8), (NODE_LAYER, PREFER, 2)),
    ),
    ("one hall, multiples of 8 per block", (("Hall", MUST, 1), ("Block", PREFER, 8))),
    ("one spine", (("Spine", MUST, 1),)),
    ("blocks and spines if possible", (("Block", PREFER, 1), ("Spine", PREFER, 1))),
)
CLUSTERS = (
    ("16 kinds of nodes", 16),
    ("all nodes differ", 0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times placing by network topology.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--gangs", type=int, default=GANGS)
    options = parser.parse_args()
    rate = measure_rate(options.nodes, options.gangs)
    print(f"{options.nodes} nodes, {options.runs} runs")
    print(f"{options.gangs} gangs of {GANG_SIZE} on {RACKS} racks: {rate:,.0f} pods/s planned")
    print(f"{MEMBERS} equal pods, four layers; milliseconds")
    print(f"{'':20}{'':38}{'median':>8}{'min':>8}{'max':>8}  outcome")
    for kind, kinds in CLUSTERS:
        for name, constraint in QUESTIONS:
            state = make_halls(options.nodes, kinds)
            unit = make_gang(state, "job", MEMBERS, make_constraint(constraint), gpus=1)
            times, outcome = measure(partial(ask, state, [unit]), options.runs)
            verdict = "placed" if outcome.placements else "refused"
            row = f"{statistics.median(times):8.1f}{min(times):8.1f}{max(times):8.1f}"
            print(f"{kind:20}{name:38}{row}  {verdict}")


def measure_rate(nodes: int, gangs: int) -> float:
    """Return pods planned per second: all gangs on one snapshot, each to one rack."""
    state = make_racks(nodes)
    constraint = make_constraint((("Rack", MUST, 1),))
    units = [make_gang(state, f"job-{at:05}", GANG_SIZE, constraint, gpus=4) for at in range(gangs)]
    began = time.perf_counter()
    outcome = plan_once(state, units)
    seconds = time.perf_counter() - began
    if len(outcome.placements) != gangs:
        raise RuntimeError(f"{len(outcome.placements)} of {gangs} gangs were placed")
    return gangs * GANG_SIZE / seconds


def make_racks(nodes: int) -> ClusterState:
    state = make_cluster().state
    layers = (Layer("Rack", "", ("rack",)), Layer(NODE_LAYER, "Rack"))
    upsert_topology(state, Topology("default", layers))
    allocatable = {"cpu": 64_000, "memory": 512 * GIB, "pods": 110, GPU: 8}
    for at in range(nodes):
        labels = {"rack": f"rack-{at * RACKS // nodes:02}"}
        state.upsert_node(Node(name=f"node-{at:05}", labels=labels, allocatable=allocatable))
    return state


def make_halls(nodes: int, kinds: int) -> ClusterState:
    """Make nodes in blocks, spines and halls; ``kinds`` of capacity, or 0 for one per node."""
    state = make_cluster().state
    layers = (
        Layer("Hall", "", ("hall",)),
        Layer("Spine", "Hall", ("spine",)),
        Layer("Block", "Spine", ("block",)),
        Layer(NODE_LAYER, "Block"),
    )
    upsert_topology(state, Topology("default", layers))
    for at in range(nodes):
        block = at // BLOCK
        kind = at * 7919 % (kinds or nodes)
        allocatable = {
            "cpu": 64_000 + kind,
            "memory": 512 * GIB + kind,
            "pods": 110,
            GPU: 1 + kind * 7 % 16,
        }
        labels = {"hall": f"h{block // 50}", "spine": f"s{block // 10}", "block": f"b{block}"}
        state.upsert_node(Node(name=f"node-{at:05}", labels=labels, allocatable=allocatable))
    return state


def make_constraint(layers: tuple[tuple[str, GatherStrategy, int], ...]) -> TopologyConstraint:
    """Make a topology constraint of (layer, strategy, multiple)."""
    return TopologyConstraint(tuple(LayerConstraint(*one) for one in layers))


def make_gang(
    state: ClusterState, name: str, count: int, constraint: TopologyConstraint, gpus: int
) -> Unit:
    """Add a gang of equal pods, all of which must be placed, and return it as a unit."""
    key = f"default/{name}"
    spec = GangSpec(key, count, count, group=(key,), topology=constraint)
    upsert_pod_group(state, ObservedPodGroup(key=key, uid=key, spec=spec))
    requests = {"cpu": 4000, "memory": 16 * GIB, "pods": 1, GPU: gpus}
    shape = SHAPES.setdefault(gpus, PodShape(tuple(sorted(requests.items()))))
    claim = GangMembership(key, GangSource.POD_GROUP)
    pods = tuple(
        Pod(
            f"{name}-{at}",
            "default",
            f"{name}-{at}",
            shape,
            handling=Handling.RELEASE_AND_BIND,
            gang=claim,
            index=at,
        )
        for at in range(count)
    )
    for pod in pods:
        state.upsert_pod(pod)
    return Unit(key, (Demand(key, pods, count),), key)


SHAPES: dict[int, PodShape] = {}


if __name__ == "__main__":
    main()
