"""Speed of the quota computations, in process and without a cluster.

    python -m benchmarks.quota [--quotas 1000] [--resources 8] [--pods 50000] [--runs 20]

Prints, per question, the median and the spread of the processor time over the runs. The tree has
three levels; every resource is asked for beyond what there is, so that every level has to be
divided by weight.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from koord.core.model.pods import PodShape
from koord.core.quota.model import QuotaRules, QuotaSpec, Usage
from koord.core.quota.solve import ShareInput, solve
from koord.core.quota.tree import make_tree, replace_spec
from koord.core.quota.usage import PodUse, UsageTracker, sum_pods

GIB = 1 << 30
BRANCH = 10
KEYS = (
    "cpu",
    "memory",
    "nvidia.com/gpu",
    "ephemeral-storage",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
)
UNITS = {"cpu": 1000, "memory": GIB, "ephemeral-storage": GIB, "koordinator.sh/gpu-memory": GIB}


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the quotas.")
    parser.add_argument("--quotas", type=int, default=1000)
    parser.add_argument("--resources", type=int, default=len(KEYS))
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    print(
        f"{options.quotas} quotas, {options.resources} resources, {options.pods} pods, "
        f"{options.runs} runs; milliseconds"
    )
    print(f"{'':46}{'median':>8}{'min':>8}{'max':>8}")
    keys = KEYS[: options.resources]
    for name, call in (*solving(options.quotas, keys), *summing(options.quotas, options.pods)):
        times = measure(call, options.runs)
        print(f"{name:46}{statistics.median(times):8.2f}{min(times):8.2f}{max(times):8.2f}")


def solving(quotas: int, keys: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], object]]]:
    specs = make_specs(quotas, keys)
    tree = make_tree(specs)
    usage = {spec.name: make_usage(at, keys) for at, spec in enumerate(specs) if not spec.is_parent}
    total = {key: 5 * quotas * UNITS.get(key, 1) for key in keys}
    snapshot = ShareInput(tree, total, usage, QuotaRules())
    solution = solve(snapshot)
    leaf = specs[-1]
    serial = count(1)

    def change_demand() -> object:
        changed = Usage(demand=_plus(usage[leaf.name].demand, next(serial)))
        return solve(replace(snapshot, usage={**usage, leaf.name: changed}), solution)

    def change_total() -> object:
        more = 64 * next(serial)
        grown = {key: amount + more * UNITS.get(key, 1) for key, amount in total.items()}
        return solve(replace(snapshot, total=grown), solution)

    def change_max() -> object:
        changed = replace(leaf, max=_plus(leaf.max, next(serial)))
        return solve(replace(snapshot, tree=replace_spec(tree, changed)), solution)

    yield "lay out the tree", lambda: make_tree(specs)
    yield "solve from scratch", lambda: solve(snapshot)
    yield "one quota asks more, of every resource", change_demand
    yield "a node more, with every resource", change_total
    yield "one max raised, of every resource", change_max


def summing(quotas: int, pods: int) -> Iterator[tuple[str, Callable[[], object]]]:
    uses = make_pods(quotas, pods)
    book = UsageTracker(QuotaRules(), uses)
    serial = count()

    def bind_one() -> object:
        pod = uses[next(serial)]
        book.upsert(pod._replace(is_used=not pod.is_used))
        return book.usage()

    yield "sum all pods", lambda: sum_pods(uses, QuotaRules())
    yield "one pod is bound", bind_one


def measure(call: Callable[[], object], runs: int) -> list[float]:
    """Return milliseconds of processor time per run; the first run is a warm-up."""
    call()
    times = []
    for _ in range(runs):
        began = time.process_time()
        call()
        times.append((time.process_time() - began) * 1e3)
    return times


def make_specs(quotas: int, keys: tuple[str, ...]) -> list[QuotaSpec]:
    """Make a tree in which every parent has ten children."""
    parents = (quotas - 2) // BRANCH + 1
    specs = []
    for at in range(quotas):
        size = 1 + at * 7 % 13
        above = {"parent": f"q{(at - BRANCH) // BRANCH:05}"} if at >= BRANCH else {}
        specs.append(
            QuotaSpec(
                name=f"q{at:05}",
                is_parent=at < parents - 1,
                min={key: (at % 3) * UNITS.get(key, 1) for key in keys},
                max={key: 2000 * size * UNITS.get(key, 1) for key in keys},
                lends=at % 5 != 0,
                **above,
            )
        )
    return specs


def make_usage(at: int, keys: tuple[str, ...]) -> Usage:
    return Usage(demand={key: (5 + at * 11 % 37) * UNITS.get(key, 1) for key in keys})


def make_pods(quotas: int, pods: int) -> list[PodUse]:
    """Make pods of 64 shapes, spread over the quotas."""
    shapes = [
        PodShape(
            (("cpu", 1000 * size), ("memory", 4 * size * GIB), ("nvidia.com/gpu", 1), ("pods", 1))
        )
        for size in range(1, 65)
    ]
    return [
        PodUse(f"uid-{at}", f"q{at % quotas:05}", shapes[at * 31 % 64], is_used=at % 3 > 0)
        for at in range(pods)
    ]


def _plus(amounts: dict[str, int], more: int) -> dict[str, int]:
    return {key: amount + more for key, amount in amounts.items()}


if __name__ == "__main__":
    main()
