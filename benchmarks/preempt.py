"""How long a preemption takes to decide (``python -m benchmarks.preempt``). No cluster is needed.

``gang``: 250 pods of 8 GPUs against 1,000 nodes, each full of 8 pods of one GPU. ``single``: one
pod of one GPU against 500 such nodes. ``no``: 10 pods of 8 GPUs on 500 full nodes, nobody
evictable, with the text of the refusal. ``topology``: the gang within one of 4 blocks of the nodes.
Times are processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster, make_unit

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext, plan_preemption
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from koord.core.model.plan import Unit

NOW = 100_000.0
GPUS = 8


def fill(nodes: int, priority: int = 0) -> FakeCluster:
    cluster = make_cluster()
    for at in range(nodes):
        node = f"n{at:04}"
        cluster.nodes(make_node(node).gpu(GPUS).label("block", f"b{at % 4}"))
        for slot in range(GPUS):
            pod = make_pod(f"low-{at}-{slot}").gpu(1).priority(priority).released(node, "p")
            started = NOW - 60 - (at * 7919 + slot * 104729) % 86400
            cluster.pods(pod.running(node)._set(started=started))  # noqa: SLF001
    return cluster


def gang(count: int, gpus: int = GPUS) -> Unit:
    return make_unit("high", [make_pod(f"h{at}").gpu(gpus).priority(10) for at in range(count)])


def in_block(cluster: FakeCluster, count: int) -> Unit:
    must = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))
    cluster.topology(Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
    cluster.pod_groups(make_pod_group("default/high", count).topology(must))
    pods = (make_pod(f"h{at}").gpu(GPUS).priority(10).gang("default/high") for at in range(count))
    cluster.pods(*pods)
    return next(one for one in cluster.take(most=count) if one.key == "default/high")


def make_gang() -> tuple[FakeCluster, Unit]:
    return fill(1000), gang(250)


def make_single() -> tuple[FakeCluster, Unit]:
    return fill(500), gang(1, 1)


def make_no() -> tuple[FakeCluster, Unit]:
    return fill(500, priority=10), gang(10)


def make_topology() -> tuple[FakeCluster, Unit]:
    cluster = fill(1000)
    return cluster, in_block(cluster, 250)


CASES: dict[str, Callable[[], tuple[FakeCluster, Unit]]] = {
    "gang": make_gang,
    "single": make_single,
    "no": make_no,
    "topology": make_topology,
}


def measure(name: str, runs: int) -> str:
    cluster, unit = CASES[name]()
    cluster.state.refresh()
    times = []
    for _ in range(runs):
        start = time.process_time()
        found = plan_preemption(cluster.state, unit, context=PreemptionContext(NOW))
        text = "" if isinstance(found, Preemption) else found.text()
        times.append((time.process_time() - start) * 1000)
    took = f"{name:9} median {statistics.median(times):6.0f} ms, worst {max(times):6.0f} ms"
    if isinstance(found, Preemption):
        proven = found.certificate
        return (
            f"{took}: {len(found.victims)} victims, minimal {proven.is_minimal}, "
            f"cheapest {proven.is_cheapest}, {proven.steps / 1e6:.0f} million steps"
        )
    return f"{took}: {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for name in options.cases:
        print(measure(name, options.runs), flush=True)


if __name__ == "__main__":
    main()
