"""How long a plan of moves takes to find (``python -m benchmarks.defrag``). No cluster is needed.

500 nodes of 8 GPUs, 90 % used by pods that were placed at random: shares of a GPU from 10 % to 70 %
and 1 to 4 whole ones. ``single``: a pod of 8 GPUs waits. ``gang``: 4 of them. ``whole``: the same
as ``single`` without shares. ``chain``: the free GPUs are single ones, so that small pods have to
make way for larger ones first. ``full``: filled until nearly nothing fits any more.
Times are processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.device.nodes import MEMORY, a100x8, report

from koord.core.defrag.model import MovePlan
from koord.core.defrag.search import plan_moves
from koord.core.device.allocation import AllocatedDevices
from koord.core.device.model import DeviceName, DeviceShare, make_part
from koord.core.device.plugin import Devices
from koord.core.eviction.search import PreemptionContext
from koord.core.model.device_names import GPU as GPU_TYPE
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.core.model.pods import OwnerReference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from koord.core.model.plan import Unit

NOW = 100_000.0
GPUS = 8
SHARES = (10, 20, 25, 30, 50, 70)
OWNER = OwnerReference("rs", "ReplicaSet", "apps/v1", "uid-rs", is_controller=True)


class RandomFill:
    """Nodes that are filled with pods at random, each on the first devices that have room."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self.cluster: FakeCluster = make_cluster()
        self.free = {f"n{at:03}": [100] * GPUS for at in range(nodes)}
        self.count = 0
        for name in self.free:
            node = make_node(name).gpu(GPUS)
            for resource in (GPU_CORE, GPU_MEMORY_RATIO):
                node.resource(resource, 100 * GPUS)
            self.cluster.nodes(node)
            self.cluster.state.plugin(Devices).upsert(report(name, a100x8()))

    def fill(self, percent: int, sizes: Sequence[int]) -> FakeCluster:
        """Add pods of ``sizes`` (hundredths of GPUs) until so much is used."""
        used, most = 0, len(self.free) * GPUS * percent
        failed = 0
        while used < most and failed < 2000:
            size = self.chance.choice(sizes)
            is_put = self.put(self.chance.choice(list(self.free)), size)
            used += size if is_put else 0
            failed += not is_put
        return self.cluster

    def put(self, node: str, size: int) -> bool:
        """Add a pod on a node; whether it has the devices."""
        each, free = min(size, 100), self.free[node]
        minors = [minor for minor, left in enumerate(free) if left >= each]
        minors = self.chance.sample(minors, size // each) if len(minors) >= size // each else []
        if not minors:
            return False
        part = make_part({GPU_CORE: each, GPU_MEMORY: MEMORY * each // 100, GPU_MEMORY_RATIO: each})
        for minor in minors:
            free[minor] -= each
        name = f"p{self.count}"
        self.count += 1
        pod = make_pod(name).labels(app=name)
        if size >= 100:
            pod.gpu(size // 100)
        else:
            pod.resource(GPU_CORE, size).resource(GPU_MEMORY_RATIO, size)
        given = AllocatedDevices(
            f"uid-default-{name}",
            tuple(DeviceShare(GPU_TYPE, minor, part) for minor in sorted(minors)),
            tuple(DeviceName("") for _ in minors),
        )
        started = NOW - self.chance.randint(60, 86400)
        pod.released(node, "p").running(node)
        self.cluster.pods(pod._set(owners=(OWNER,), started=started, allocations=(given,)))  # noqa: SLF001
        return True


def waiting(count: int) -> Unit:
    return make_unit("job", [make_pod(f"w{at}").gpu(GPUS) for at in range(count)])


def make_random(seed: int) -> FakeCluster:
    return RandomFill(500, seed).fill(90, (*SHARES, 100, 100, 200, 200, 400))


def make_chain(seed: int) -> FakeCluster:
    filler = RandomFill(500, seed)
    for node in filler.free:
        filler.put(node, 400)
        for _ in range(filler.chance.randint(3, 4)):
            filler.put(node, 100)
    return filler.cluster


CASES: dict[str, Callable[[int], tuple[FakeCluster, Unit]]] = {
    "single": lambda seed: (make_random(seed), waiting(1)),
    "gang": lambda seed: (make_random(seed), waiting(4)),
    "whole": lambda seed: (RandomFill(500, seed).fill(90, (100, 200, 400)), waiting(1)),
    "chain": lambda seed: (make_chain(seed), waiting(1)),
    "full": lambda seed: (RandomFill(500, seed).fill(100, (100, 200)), waiting(1)),
}


def measure(name: str, runs: int) -> str:
    times, texts = [], []
    for seed in range(runs):
        cluster, unit = CASES[name](seed)
        cluster.state.refresh()
        start = time.process_time()
        answer = plan_moves(cluster.state, unit, context=PreemptionContext(NOW))
        text = "" if isinstance(answer, MovePlan) else answer.text()
        times.append((time.process_time() - start) * 1000)
        if isinstance(answer, MovePlan):
            proof = answer.proof
            text = f"{len(answer.moves)} moves ({'' if proof.is_cheapest else 'not '}proven best)"
        texts.append(text)
    took = f"{name:7} median {statistics.median(times):5.0f} ms, worst {max(times):5.0f} ms"
    return f"{took}: {'; '.join(dict.fromkeys(texts))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for name in options.cases:
        print(measure(name, options.runs), flush=True)


if __name__ == "__main__":
    main()
