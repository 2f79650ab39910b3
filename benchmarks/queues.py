"""Speed of turns, in process and without a cluster.

    python -m benchmarks.queues [--units 10000] [--leaves 200] [--nodes 5000] [--pods 512]
        [--only burst]

Prints the median and the spread of the processor time over the runs, in milliseconds.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tests.builders import make_pod as build_pod
from tests.builders import make_pod_group, make_quota
from tests.cluster import make_cluster

from benchmarks.plan import GPU, make_gang, make_pod, make_singles
from benchmarks.quota import measure
from koord.core.engine.planner import plan
from koord.core.engine.queue import find_pending
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.core.queue.counted_room import CountedNode, CountedRoom, QuotaLimit
from koord.core.queue.order import (
    Aging,
    OrderTerms,
    QueueQuota,
    Tournament,
    Waiting,
    make_tournament,
)
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.room import Run, UnitAsk
from koord.core.queue.run_time import QueueHints
from koord.core.queue.simulation import SimulatedShares
from koord.core.queue.usage import Decay
from koord.domains.registry import make_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from koord.core.model.plan import Unit

KEYS = ("cpu", "memory", "nvidia.com/gpu", "koordinator.sh/rdma")
USERS = 5
AMOUNTS = {"cpu": 64_000, "memory": 1 << 40, "pods": 110, GPU: 8}


SECTIONS = ("order", "plan", "find", "reserve", "burst")
BURST_GANGS, BURST_SIZE, BURST_QUOTAS = 100, 8, 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues")
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--leaves", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=512)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    options = parser.parse_args()
    print(
        f"{options.units} units in {options.leaves} queues, {options.nodes} nodes, a gang of "
        f"{options.pods}, {options.runs} runs; milliseconds"
    )
    print(f"{'':46}{'median':>8}{'min':>8}{'max':>8}")
    sections: dict[str, Callable[[], Iterator[tuple[str, Callable[[], object]]]]] = {
        "order": partial(ordering, options.units, options.leaves),
        "plan": partial(planning, options.units, options.leaves),
        "find": partial(finding, options.nodes, options.pods),
        "reserve": partial(reserving, options.nodes, options.pods),
    }
    for section, rows in sections.items():
        for name, call in rows() if section in options.only else ():
            print_row(name, measure(call, options.runs))
    if "burst" in options.only:
        plain, queued = alternate(plan_burst(""), plan_burst("Backfill"), options.runs)
        print_row("a burst of 800 pods, no settings of queues", plain)
        print_row("the same with queues in use", queued)
        ratios = [100 * after / before for before, after in zip(plain, queued, strict=True)]
        print_row("the second in percent of the first", ratios)


def print_row(name: str, values: Sequence[float]) -> None:
    print(f"{name:46}{statistics.median(values):8.2f}{min(values):8.2f}{max(values):8.2f}")


def alternate(
    first: Callable[[], object], second: Callable[[], object], runs: int
) -> tuple[list[float], list[float]]:
    """Return what both take, measured in turns: the machine changes from minute to minute."""
    pairs = [measure(call, 1)[0] for _ in range(runs) for call in (first, second)]
    return pairs[::2], pairs[1::2]


def plan_burst(policy: str) -> Callable[[], object]:
    """Return what plans gangs that all fit, in quotas: with a policy of queues, or none."""
    cluster = make_cluster(
        BURST_GANGS * BURST_SIZE, queue=QueueOptions({"policy": policy} if policy else {})
    )
    cluster.quotas(*(make_quota(f"q{at}", max={GPU: 1 << 20}) for at in range(BURST_QUOTAS)))
    for gang in range(BURST_GANGS):
        name = f"default/burst{gang}"
        cluster.pod_groups(make_pod_group(name, BURST_SIZE))
        for at in range(BURST_SIZE):
            pod = build_pod(f"burst{gang}-{at}").gpu(8).quota(f"q{gang % BURST_QUOTAS}")
            cluster.pods(pod.created(gang).gang(name))
    units = find_pending(cluster.state)
    cluster.state.refresh()

    def plan_all() -> None:
        cycle = cluster.state.open_cycle(lambda: units, is_deciding=True)
        outcome = plan(cycle, units, Scoring())
        cycle.close()
        assert len(outcome.placements) == BURST_GANGS

    return plan_all


def ordering(units: int, leaves: int) -> Iterator[tuple[str, Callable[[], object]]]:
    draw = random.Random(1)  # noqa: S311 - chance that can be repeated
    quotas = make_quotas(leaves)
    waiting = [make_unit(draw, at, leaves) for at in range(units)]
    terms = OrderTerms(units, lambda _: Aging(3600, 4), SimulatedShares(Decay(), 1))

    def make() -> Tournament:
        return make_tournament(quotas, waiting, terms)

    yield "all lines, at the start of a round", make
    tournament = make()

    def turn() -> None:
        nonlocal tournament
        if tournament.offer() is None:
            tournament = make()
        tournament.take(starts=True)

    yield "one turn, and the start counts", turn
    yield "all turns", lambda: list(make().turns(starts=True))


def planning(units: int, leaves: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield how long the planner's own units take: one turn of many, and the first thousand."""
    draw = random.Random(3)  # noqa: S311 - chance that can be repeated
    cluster = make_cluster(1, queue=QueueOptions({"max_running": units}))
    cluster.quotas(
        *(make_quota(f"q{at}", min={GPU: 4}, max={GPU: 8 * units}) for at in range(leaves))
    )
    pods = (build_pod(f"u{at}").gpu(1).created(at) for at in range(units))
    cluster.pods(*(pod.quota(f"q{draw.randrange(leaves)}") for pod in pods))
    waiting = cluster.absorb().by_time()
    queues = cluster.state.plugin(Queues)
    yield "first turn of the planner", lambda: next(iter(queues.order(waiting)))
    yield "a thousand turns of the planner", lambda: list(islice(queues.order(waiting), 1000))


def make_quotas(leaves: int) -> list[QueueQuota]:
    """Return a tree of three levels; ten leaves below each of those above them."""
    amounts = dict.fromkeys(KEYS, 1000)
    names = [(f"d{at}", "") for at in range(leaves // 10 or 1)]
    names += [(f"q{at}", f"d{at // 10}") for at in range(leaves)]
    used = dict.fromkeys(KEYS, 1)
    return [QueueQuota(name, parent, used, amounts, amounts) for name, parent in names]


def make_unit(draw: random.Random, at: int, leaves: int) -> Waiting:
    return Waiting(
        f"u{at}",
        f"q{draw.randrange(leaves)}",
        f"user{draw.randrange(USERS)}",
        draw.choice([0, 0, 0, 10]),
        draw.randrange(1000),
        {key: draw.randrange(1, 16) for key in KEYS},
        draw.choice([None, 3]),
    )


def finding(nodes: int, pods: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield how long it takes to find when a gang fits on nodes that are all full."""
    draw = random.Random(2)  # noqa: S311 - chance that can be repeated
    names = [f"n{at}" for at in range(nodes)]
    room = CountedRoom({name: CountedNode(name, 8) for name in names}, {})
    room.set_quota("q", QuotaLimit(8 * nodes, 8 * nodes))
    for name in names:
        for part in range(2):
            job = UnitAsk(f"{name}-{part}", "q", 1, 4)
            room.add(Run(job, {name: 4}, 0, draw.randrange(1, 86_400)))
    gang = UnitAsk("gang", "q", pods, 8, 3600)
    yield "start of a gang, by counts", lambda: room.find_start(gang, ())


def reserving(nodes: int, pods: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what a cycle takes that refuses a gang, and one that plans when and where it starts."""
    for policy, name in (("BestEffort", "is refused"), ("Backfill", "and its start is planned")):
        state, gang = make_full(nodes, policy), make_gang(pods, gpus=8)

        def decide(state: ClusterState = state, gang: Unit = gang) -> None:
            cycle = state.open_cycle(lambda: [gang], is_deciding=True)
            plan(cycle, [gang], Scoring())
            cycle.close()

        yield f"a gang {name}", decide
    state, gang, singles = make_full(nodes, "Backfill"), make_gang(pods, gpus=8), make_singles(100)
    for at in range(pods // 2):
        state.upsert_node(Node(name=f"free{at}", allocatable=AMOUNTS))
    state.refresh()

    def decide_all() -> None:
        cycle = state.open_cycle(lambda: [gang, *singles], is_deciding=True)
        plan(cycle, [gang, *singles], Scoring())
        cycle.close()

    yield "and 100 pods may not use its room", decide_all


def make_full(nodes: int, policy: str) -> ClusterState:
    """Return nodes with two pods each that end at some time within a day."""
    draw = random.Random(2)  # noqa: S311 - chance that can be repeated
    settings = QueueOptions({"policy": policy, "protect_after": 0})
    state = ClusterState(make_plugins(settings))
    now = 1_000_000_000
    for at in range(nodes):
        name = f"n{at}"
        state.upsert_node(Node(name=name, allocatable=AMOUNTS))
        for part in range(2):
            hints = QueueHints(deadline=draw.randrange(1, 86_400))
            pod = make_pod(f"{name}-{part}", gpus=4, node=name)
            says = (("queue", hints),)
            state.upsert_pod(replace(pod, extensions=says, started=float(now)))
    state.advance(float(now))
    state.refresh()
    return state


if __name__ == "__main__":
    main()
