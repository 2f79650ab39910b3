"""What over-commitment costs: a cluster whose nodes report what they use once a minute.

    python -m benchmarks.colocation [--nodes 5000] [--minutes 7]

In process and in virtual time. Each report is decoded and applied as it comes from a watch, each
node is decided and, where it differs enough, written; a stand-in takes the write and sends the node
back as the watch would. What is measured is the processor time of each minute, and the writes.
"""

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from tests.builders import make_pod
from tests.cluster import FakeCluster

from koord.controllers.over_commit import PER_SECOND, OverCommitPublisher
from koord.core.colocation.plugin import ColocationPolicies
from koord.core.engine.policies import ObservedPolicy
from koord.core.load.plugin import Loads
from koord.core.model.nodes import Node
from koord.domains.load import NODE_METRICS
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.cluster_objects import translate_node
from koord.kube.translate.colocation import translate_policy
from koord.kube.wire import WireNode, WireNodeMetric
from koord.runtime.app import GC_THRESHOLDS_LATER

NOW: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
PODS: Final = 20
"""Of each node: as many as request CPU and memory on a busy one."""
CAPACITY: Final = {"cpu": "64", "memory": "512Gi", "pods": "110"}
NOISE: Final = 0.02
"""How much the use of a pod differs from minute to minute."""
DRIFT: Final = 0.1
"""How many of the nodes use something else than before, in each minute."""


class Nodes:
    """Stands in for the API server: takes patches, and sends the nodes back."""

    def __init__(self, cluster: FakeCluster, count: int) -> None:
        self._cluster = cluster
        self._objects: dict[str, dict[str, Any]] = {}
        self.writes = 0
        for at in range(count):
            name = f"n{at}"
            self._objects[name] = {
                "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {}},
                "status": {"capacity": dict(CAPACITY), "allocatable": dict(CAPACITY)},
            }
            self._send(name)

    async def change(self, node: Node, operations: Iterable[Mapping[str, Any]]) -> None:
        self.writes += 1
        for operation in operations:
            *path, last = (
                part.replace("~1", "/") for part in operation["path"].removeprefix("/").split("/")
            )
            part = self._objects[node.name]
            for step in path:
                part = part[step]
            if operation["op"] == "add":
                part[last] = operation["value"]
            elif operation["op"] == "remove":
                del part[last]
        self._send(node.name)

    def _send(self, name: str) -> None:
        text = msgspec.json.encode(self._objects[name])
        wire = msgspec.json.decode(text, type=WireNode)
        self._cluster.state.upsert_node(translate_node(wire))


class Usage:
    """What every pod uses; each minute some nodes use more or less."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - a simulation
        self._levels = [self._draw.uniform(0.2, 0.7) for _ in range(nodes)]

    def reports(self, now: float) -> list[bytes]:
        """Return the NodeMetrics of a minute, as a watch sends them."""
        for at in range(len(self._levels)):
            if self._draw.random() < DRIFT:
                self._levels[at] = self._draw.uniform(0.2, 0.7)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        return [self._report(at, level, stamp) for at, level in enumerate(self._levels)]

    def _report(self, at: int, level: float, stamp: str) -> bytes:
        used = [int(2000 * level * self._draw.uniform(1 - NOISE, 1 + NOISE)) for _ in range(PODS)]
        total = {"resources": {"cpu": f"{sum(used) + 1000}m", "memory": "200Gi"}}
        pods = [
            {
                "namespace": "default",
                "name": f"p{at}-{pod}",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": f"{cpu}m", "memory": f"{cpu}Mi"}},
            }
            for pod, cpu in enumerate(used)
        ]
        system = {"resources": {"cpu": "1", "memory": "4Gi"}}
        status = {
            "updateTime": stamp,
            "nodeMetric": {"nodeUsage": total, "systemUsage": system},
            "podsMetric": pods,
        }
        return msgspec.json.encode({"metadata": {"name": f"n{at}"}, "status": status})


def make_cluster(nodes: int) -> tuple[FakeCluster, Nodes]:
    cluster = FakeCluster()
    written = Nodes(cluster, nodes)
    for at in range(nodes):
        for pod in range(PODS):
            made = make_pod(f"p{at}-{pod}").resource("cpu", 2000).resource("memory", 8 << 30)
            cluster.state.upsert_pod(made.running(f"n{at}").build())
    settings = translate_policy(b"{}")
    policy = ObservedPolicy("p", "uid-p", 1, 1.0, settings)
    cluster.state.plugin(ColocationPolicies).upsert(policy)
    return cluster, written


async def measure(nodes: int, minutes: int, seed: int) -> list[tuple[float, int]]:
    """Return processor seconds and writes of each minute."""
    cluster, written = make_cluster(nodes)
    state, now = cluster.state, NOW

    async def sleep(_: float) -> None:
        """Take no time: how long writes are spread is counted, not waited for."""

    publisher = OverCommitPublisher(state, written, lambda: now, sleep=sleep)  # type: ignore[arg-type]
    loads, policies = state.plugin(Loads), state.plugin(ColocationPolicies)
    loads.listeners.append(policies.note)
    translate = NODE_METRICS.make_translator(TranslatorOptions()).translate
    decoder, usage = msgspec.json.Decoder(WireNodeMetric), Usage(nodes, seed)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS_LATER)
    figures = []
    for _ in range(minutes):
        now += 60.0
        reports, before = usage.reports(now), written.writes
        began = time.process_time()
        for report in reports:
            loads.upsert(translate(decoder.decode(report)))
        for name in list(publisher.changed()):
            await publisher.update(name)
        figures.append((time.process_time() - began, written.writes - before))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Times over-commitment.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--minutes", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    first, *later = asyncio.run(measure(options.nodes, options.minutes, options.seed))
    print(f"first minute: {first[0]:.2f} s, {first[1]} writes")
    seconds, writes = ([figure[part] for figure in later] for part in (0, 1))
    middle = statistics.median(seconds)
    print(
        f"each later minute: {middle:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
        f"{middle / 60:.1%} of a processor"
    )
    many = statistics.median(writes)
    print(
        f"writes: {many:.0f} ({min(writes)} to {max(writes)}) a minute, {many / 60:.1f}/s; "
        f"at most {PER_SECOND:.0f}/s"
    )


if __name__ == "__main__":
    main()
