"""Speed of the planner, in process and without a cluster.

    python -m benchmarks.plan [--nodes 5000] [--runs 20]

Prints, per question, the median and the spread over the runs. A question is asked on a cluster in
which every third node runs a pod of another job already; every run starts from a fresh cycle.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

from tests.cluster import make_cluster, plan_once

from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.model.plan import Demand, Plan, Unit
from koord.core.model.pods import Handling, Pod, PodShape

GPU = "nvidia.com/gpu"
GIB = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the planner.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    state = make_state(options.nodes)
    print(f"{options.nodes} nodes, {options.runs} runs; milliseconds")
    print(f"{'':38}{'median':>8}{'min':>8}{'max':>8}  outcome")
    for name, units in questions(options.nodes):
        times, outcome = measure(partial(ask, state, units), options.runs)
        verdict = "placed" if outcome.placements else "refused"
        low, high = min(times), max(times)
        print(f"{name:38}{statistics.median(times):8.2f}{low:8.2f}{high:8.2f}  {verdict}")


def questions(nodes: int) -> list[tuple[str, list[Unit]]]:
    return [
        ("512 pods x 8 GPU", [make_gang(512, gpus=8)]),
        ("512 pods x 1 GPU", [make_gang(512, gpus=1)]),
        ("512 pods of CPU only", [make_gang(512, gpus=0)]),
        ("a gang of 10", [make_gang(10, gpus=8)]),
        ("one pod", [make_gang(1, gpus=1)]),
        ("256 pods, one after the other", make_singles(256)),
        ("512 pods x 16 GPU (no node has them)", [make_gang(512, gpus=16)]),
        ("all nodes and one more", [make_gang(nodes + 1, gpus=8)]),
    ]


def ask(state: ClusterState, units: list[Unit]) -> Plan:
    return plan_once(state, units)


def measure(call: Callable[[], Plan], runs: int) -> tuple[list[float], Plan]:
    """Return milliseconds per run and the last outcome; the first run is a warm-up."""
    outcome = call()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        outcome = call()
        times.append((time.perf_counter() - began) * 1e3)
    return times, outcome


def make_state(nodes: int) -> ClusterState:
    """Make nodes of 64 CPU, 512 GiB and 8 GPUs; every third runs something."""
    state = make_cluster().state
    allocatable = {"cpu": 64_000, "memory": 512 * GIB, "pods": 110, GPU: 8}
    for at in range(nodes):
        name = f"node-{at:05}"
        state.upsert_node(Node(name=name, allocatable=allocatable))
        if at % 3 == 0:
            state.upsert_pod(make_pod(f"other-{at}", gpus=1 + at % 4, node=name))
    return state


def make_singles(count: int) -> list[Unit]:
    """Make equal pods without a gang."""
    pods = (make_pod(f"single-{at}", gpus=1) for at in range(count))
    return [Unit(pod.uid, (Demand("", (pod,), 1),)) for pod in pods]


def make_gang(count: int, gpus: int, name: str = "gang") -> Unit:
    """Make a gang of equal pods, all of which must be placed."""
    pods = tuple(make_pod(f"{name}-worker-{at}", gpus=gpus) for at in range(count))
    key = f"default/{name}"
    return Unit(key, (Demand(key, pods, count),), key)


def make_pod(name: str, gpus: int, node: str = "") -> Pod:
    """Make a pod of 4 CPU, 16 GiB and some GPUs."""
    requests = {"cpu": 4000, "memory": 16 * GIB, "pods": 1, GPU: gpus}
    shape = SHAPES.setdefault(gpus, PodShape(tuple(sorted(requests.items()))))
    handling = Handling.NOT_OURS if node else Handling.RELEASE_AND_BIND
    return Pod(name, "default", name, shape, handling=handling, node=node)


SHAPES: dict[int, PodShape] = {}


if __name__ == "__main__":
    main()
