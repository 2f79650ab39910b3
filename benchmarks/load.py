"""Cost of load-aware placement, in process and without a cluster.

    python -m benchmarks.load [--nodes 5000] [--runs 9]

Placements with and without the columns of load, measured alternately: the plan, and what follows
before the next one (its pods are assumed and counted), each part at its fastest. And what it costs
to read and apply NodeMetrics, each with 50 pods, as a share of the minute in which every node
reports once.
"""

import argparse
import gc
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import msgspec
from tests.cluster import FakeCluster, plan_once

from benchmarks.plan import GIB, make_gang, make_pod
from koord.core.load.model import NAME, LoadHints
from koord.core.load.options import LoadOptions
from koord.core.model.nodes import Node
from koord.domains.load import NODE_METRICS
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WireNodeMetric
from koord.runtime.app import GC_THRESHOLDS_LATER

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
PODS = 50
LONG_AGO = ((NAME, LoadHints(scheduled=NOW - 3600)),)
GPU = "nvidia.com/gpu"


def main() -> None:
    parser = argparse.ArgumentParser(description="Times load-aware placement.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    for name, pods, gangs in (("gang of 10,000", 10_000, 1), ("1,000 gangs of 10", 10, 1000)):
        share = compare(options.nodes, pods, gangs, options.runs)
        print(f"{name}: {share:.0%} of the speed without load")
    seconds = time_reports(options.nodes)
    print(f"{options.nodes} reports: {seconds:.2f} s, {seconds / 60:.1%} of a minute")


def compare(nodes: int, pods: int, gangs: int, runs: int) -> float:
    """Return the speed of placements with load, as a share of that without."""
    without, with_load = [], []
    for _ in range(runs):
        without.append(time_placements(nodes, pods, gangs, LoadOptions()))
        with_load.append(time_placements(nodes, pods, gangs, LoadOptions(is_on=True)))
    return _fastest(without) / _fastest(with_load)


def _fastest(runs: Iterable[tuple[float, ...]]) -> float:
    """Return the sum of the parts, each of the run in which it was disturbed least."""
    return sum(map(min, zip(*runs, strict=True)))


def time_placements(nodes: int, pods: int, gangs: int, options: LoadOptions) -> tuple[float, ...]:
    """Return how long it takes to plan, to assume the pods, to count them, and to clean up."""
    cluster = make_cluster(nodes, options)
    state = cluster.state
    units = [make_gang(pods, gpus=0, name=f"gang-{at}") for at in range(gangs)]
    for unit in units:
        for pod in unit.pods:
            state.upsert_pod(pod)
    _collect()
    times = [time.process_time()]
    outcome = plan_once(state, units)
    times.append(time.process_time())
    for placement in outcome.placements:
        for assignment in placement.assignments:
            state.assume(assignment.pod.uid, assignment.node)
    times.append(time.process_time())
    state.refresh()
    times.append(time.process_time())
    gc.collect(0)  # what was made here, wherever the threshold was
    times.append(time.process_time())
    if len(outcome.placements) != gangs:
        raise AssertionError("not all gangs were placed")
    return tuple(after - before for before, after in pairwise(times))


def _collect() -> None:
    """Have garbage collection leave out what is there, as the operators do."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS_LATER)


def make_cluster(nodes: int, options: LoadOptions) -> FakeCluster:
    """Make nodes of 64 CPU and 512 GiB that use a quarter of that, as each has reported."""
    cluster = FakeCluster(load=options)
    cluster.state.advance(NOW)
    allocatable = {"cpu": 64_000, "memory": 512 * GIB, "pods": 110, GPU: 8}
    translate = NODE_METRICS.make_translator(TranslatorOptions()).translate
    for at in range(nodes):
        cluster.state.upsert_node(Node(name=f"node-{at:05}", allocatable=allocatable))
    if options.is_on:
        decode = msgspec.json.Decoder(WireNodeMetric).decode
        for at in range(nodes):
            NODE_METRICS.upsert(cluster.state, translate(decode(make_report(at, pods=0))))
    cluster.state.refresh()
    return cluster


def make_report(node: int, pods: int = PODS, more: int = 0) -> bytes:
    def use(cpu: int, memory: int) -> dict[str, object]:
        return {"resources": {"cpu": f"{cpu}m", "memory": f"{memory}Ki"}}

    aggregates = {kind: use(16_001 + more, 1 << 27) for kind in ("avg", "p50", "p90", "p95", "p99")}
    return msgspec.json.encode(
        {
            "metadata": {"name": f"node-{node:05}"},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {
                "updateTime": "2026-01-01T00:00:00Z",
                "nodeMetric": {
                    "nodeUsage": use(16_000 - more, 1 << 27),
                    "systemUsage": use(500, 1 << 20),
                    "aggregatedNodeUsages": [
                        {"duration": duration, "usage": aggregates}
                        for duration in ("5m0s", "10m0s", "30m0s")
                    ],
                },
                "podsMetric": [
                    {
                        "namespace": "default",
                        "name": f"other-{node}-{at}",
                        "priority": "koord-prod",
                        "podUsage": use(300 + at + more, 1 << 20),
                    }
                    for at in range(pods)
                ],
            },
        }
    )


def time_reports(nodes: int) -> float:
    """Return how long it takes to read one report of every node, and to apply it."""
    cluster = make_cluster(nodes, LoadOptions(is_on=True))
    for node in range(nodes):
        for at in range(PODS):
            pod = make_pod(f"other-{node}-{at}", 0, f"node-{node:05}")
            cluster.state.upsert_pod(replace(pod, extensions=LONG_AGO))
    cluster.state.refresh()
    translate = NODE_METRICS.make_translator(TranslatorOptions()).translate
    decode = msgspec.json.Decoder(WireNodeMetric).decode
    bodies = [make_report(node, more=node % 97) for node in range(nodes)]
    _collect()
    began = time.process_time()
    for body in bodies:
        NODE_METRICS.upsert(cluster.state, translate(decode(body)))
    cluster.state.refresh()
    return time.process_time() - began


if __name__ == "__main__":
    main()
