"""The worst inputs of a tenant, on nodes in memory: what each of them costs the others.

    python -m benchmarks.hostile [--only WORD,WORD] [--nodes 1000] [--output json]

For each input: the time to read its largest object, the longest cycle (taking changes in, and one
plan), the steps of the most expensive cycle as a share of what they may be, the memory it costs,
and how long an ordinary pod of another namespace waits that comes last. Times are processor times.
Every input runs in a process of its own. The command fails if any is over its bar.
"""

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.in_memory import World, rss_mib
from benchmarks.worst_inputs import Input, find_inputs, pod
from koord.runtime.app import GC_THRESHOLDS_LATER

MOST_OBJECT_SECONDS: Final = 0.2
MOST_CYCLE_SECONDS: Final = 1.0
MOST_WAIT_SECONDS: Final = 2.0
MOST_TIMES_SIZE: Final = 8.0
"""Memory, as a multiple of what was read."""
CACHES_MIB: Final = 64.0
"""Memory besides: bounded caches, and what the allocator keeps."""
CYCLES: Final = 40


class Result(msgspec.Struct, frozen=True):
    """What one input has cost; ``broken`` names the bars that it is over."""

    name: str
    point: str
    object_ms: float
    cycle_ms: float
    total_s: float
    steps_share: float
    too_expensive: int
    read_mib: float
    memory_mib: float
    wait_s: float
    broken: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD,WORD", help="of names and points")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    results, progress = list[Result](), Console(stderr=True)
    for one in find_inputs(options.only):
        progress.print(one.name, style="dim")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            results.append(alone.submit(measure, one.name, options.nodes).result())
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    else:
        show(results)
    sys.exit(any(one.broken for one in results))


def measure(name: str, nodes: int) -> Result:
    (one,) = (one for one in find_inputs("") if one.name == name)
    world = World()
    world.furnish(nodes)
    gc.collect()
    gc.freeze()  # as the operators do
    gc.set_threshold(*GC_THRESHOLDS_LATER)
    before = rss_mib()
    world.feed(one.make(one.size))
    wait = wait_for_ordinary_pod(world)
    world.run(CYCLES)
    return judge(one, world, wait, rss_mib() - before)


def wait_for_ordinary_pod(world: World) -> float:
    """Return the seconds of planning until an ordinary pod, which comes last, has a node."""
    kind, body = pod("ordinary")
    body["metadata"]["namespace"] = "ordinary"
    began = time.process_time()
    world.feed([(kind, body)])
    while not world.placed("ordinary/ordinary") and world.run(1):
        pass
    if not world.placed("ordinary/ordinary"):
        return float("inf")
    return time.process_time() - began


def judge(one: Input, world: World, wait: float, memory: float) -> Result:
    times, read = world.times, world.bytes_read / (1 << 20)
    bars = {
        "object": times.object > MOST_OBJECT_SECONDS,
        "cycle": times.cycle > MOST_CYCLE_SECONDS,
        "steps": times.steps > times.budget,
        "memory": memory > CACHES_MIB + MOST_TIMES_SIZE * read,
        "wait": wait > MOST_WAIT_SECONDS,
    }
    return Result(
        one.name,
        one.point,
        times.object * 1e3,
        times.cycle * 1e3,
        times.total,
        times.steps / max(1, times.budget),
        times.too_expensive,
        read,
        memory,
        wait,
        [name for name, is_broken in bars.items() if is_broken],
    )


def show(results: list[Result]) -> None:
    table = Table("input", "meant for")
    for title in (
        "object ms",
        "cycle ms",
        "all s",
        "steps",
        "too expensive",
        "MiB",
        "of",
        "wait s",
    ):
        table.add_column(title, justify="right")
    table.add_column("over")
    for one in results:
        table.add_row(
            one.name,
            one.point,
            f"{one.object_ms:.1f}",
            f"{one.cycle_ms:.0f}",
            f"{one.total_s:.1f}",
            f"{one.steps_share:.0%}",
            str(one.too_expensive),
            f"{one.memory_mib:.0f}",
            f"{one.read_mib:.1f}",
            f"{one.wait_s:.2f}",
            ", ".join(one.broken),
        )
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
