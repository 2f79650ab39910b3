"""A large cluster: how long the operators need to start, their memory, and the time of a plan.

    python -m benchmarks.scale [--nodes 5000] [--pods 50000]

The process is started with an empty API server, with the nodes, and with the nodes and the pods on
them, so that the differences say what a node and a pod cost.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.cluster import Cluster, open_cluster
from benchmarks.creator import Order
from benchmarks.measure import Laboratory
from benchmarks.objects import NAMESPACE
from benchmarks.processes import ROOT, Failed, Operators
from benchmarks.scenarios import CPU, WHOLE_NODE, Who
from benchmarks.usage import read_cpu_seconds, read_peak_mib, read_rss_mib

GANG: Final = 512
_METRICS_AGE: Final = 1.5
"""Seconds: the text of metrics is made once a second at most."""
_PATIENCE: Final = 300.0
_SETTLE_SECONDS: Final = 5.0


class Start(msgspec.Struct, frozen=True):
    """One start; times are from the start of the process to ``/readyz`` and the Lease."""

    nodes: int
    pods: int
    ready_seconds: float
    cpu_seconds: float
    rss_mib: float
    peak_mib: float


class Planned(msgspec.Struct, frozen=True):
    """What was created in the full cluster; times until its last binding."""

    what: str
    cycles: int
    planning_ms: float
    """All cycles together."""
    placed_seconds: float
    """From the first request of its creator."""


class Figures(msgspec.Struct, frozen=True):
    """The result."""

    starts: list[Start]
    plans: list[Planned]
    bytes_per_node: int
    bytes_per_pod: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "bench" / "scale.json", metavar="FILE"
    )
    options = parser.parse_args()
    with open_cluster() as cluster:
        figures = measure_scale(cluster, options.nodes, options.pods)
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(text + b"\n")
    print(text.decode())


def measure_scale(cluster: Cluster, nodes: int, pods: int) -> Figures:
    laboratory = Laboratory(cluster)
    starts, plans = [], []
    for size in ((0, 0), (nodes, 0), (nodes, pods)):
        cluster.furnish(*size)
        operators = laboratory.make_contender(Who.OPERATORS)
        assert isinstance(operators, Operators)
        began = time.monotonic()
        with operators:
            operators.wait_ready(_PATIENCE)
            ready = time.monotonic() - began
            time.sleep(_SETTLE_SECONDS)
            starts.append(describe(operators.pid, *size, ready))
            if pods and size == (nodes, pods):
                plans = list(measure_plans(cluster, operators))
    empty, furnished, full = starts
    return Figures(
        starts=starts,
        plans=plans,
        bytes_per_node=per_object(empty, furnished, nodes),
        bytes_per_pod=per_object(furnished, full, pods),
    )


def describe(pid: int, nodes: int, pods: int, ready: float) -> Start:
    used = read_cpu_seconds(pid)
    return Start(nodes, pods, ready, used, read_rss_mib(pid), read_peak_mib(pid))


def per_object(before: Start, after: Start, count: int) -> int:
    return int((after.rss_mib - before.rss_mib) * (1 << 20) / max(1, count))


def measure_plans(cluster: Cluster, operators: Operators) -> Iterator[Planned]:
    gang = min(GANG, len(cluster.nodes) // 2)
    for what, size, requests in ("one pod", 1, CPU), (f"a gang of {gang}", gang, WHOLE_NODE):
        order = Order(
            kubeconfig=str(cluster.box.kubeconfig),
            namespace=NAMESPACE,
            groups=1,
            size=size,
            requests=dict(requests),
            scheduler=operators.scheduler,
            gated=True,
        )
        cycles, spent = read_cycles(operators)
        cluster.forget_writes()
        began = time.time()
        cluster.create(order)
        placed = wait_bound(cluster, size) - began
        after, total = read_cycles(operators)
        yield Planned(what, after - cycles, (total - spent) * 1e3, placed)
        cluster.clear()


def read_cycles(operators: Operators) -> tuple[int, float]:
    """Return how many plans were made so far, and how many seconds they took."""
    time.sleep(_METRICS_AGE)
    page = (operators.read("/metrics") or b"").decode()
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[:1] != "#")
    return int(float(values["koord_cycle_seconds_count"])), float(values["koord_cycle_seconds_sum"])


def wait_bound(cluster: Cluster, count: int) -> float:
    """Return when the last of the bindings was answered."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        bound = [one.answered for one in cluster.read_writes() if one.subresource == "binding"]
        if len(bound) >= count:
            return max(bound)
        time.sleep(0.2)
    raise Failed(f"not all of {count} pods were bound")


if __name__ == "__main__":
    main()
