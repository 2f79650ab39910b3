"""A week of generated load in virtual time: how long nodes are hot, with balancing and without.

    python -m benchmarks.balance [--nodes 500] [--days 7] [--seed 1]

Pods ask for a part of their node and use more or less than that: every workload has its hours, and
bursts of some hours. Nothing of it depends on the machine or the time. The decisions are those of
the operator; whether a pod fits is decided by its requests, and gangs keep their minimum.
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from koord.core.balance.decide import decide
from koord.core.balance.detectors import Detectors, make_condition
from koord.core.balance.memory import AVOIDED_SECONDS, SETTLED_SECONDS, BalancePast
from koord.core.balance.model import (
    BalanceNode,
    BalancePod,
    BalancePool,
    BalanceRules,
    MoveCaps,
    Thresholds,
)
from koord.core.balance.outcome import MoveRefusal

STEP = 300.0
HOUR = 3600.0
DAY = 24 * HOUR
CAPACITY = 32_000
HIGH, LOW = 65.0, 45.0
PODS_PER_NODE = 12
GROUP = 12
"""Pods of a workload."""


@dataclass(frozen=True)
class Workload:
    """Pods that are used at the same hours; a gang needs ``minimum`` of them."""

    name: str
    pods: range
    minimum: int
    is_prod: bool


class Load:
    """What every pod uses at a time, and what it asks for."""

    def __init__(self, nodes: int, days: int, seed: int) -> None:
        draw = random.Random(seed)  # noqa: S311 - a simulation
        self.count = nodes * PODS_PER_NODE
        self.steps = int(days * DAY / STEP)
        self.requests = [draw.choice([1000, 1500, 2000, 3000]) for _ in range(self.count)]
        self.workloads = [
            Workload(
                f"w{at}",
                range(at * GROUP, min((at + 1) * GROUP, self.count)),
                draw.choice([0, 0, 0, 0, GROUP, GROUP - 2]),
                draw.random() < 0.5,
            )
            for at in range((self.count + GROUP - 1) // GROUP)
        ]
        self.use = self._make(np.random.default_rng(seed))

    def _make(self, draw: np.random.Generator) -> npt.NDArray[np.float64]:
        """Return what is used, by step and pod."""
        hours = np.arange(self.steps) * STEP / HOUR
        use = np.empty((self.steps, self.count))
        requests = np.array(self.requests, dtype=float)
        for workload in self.workloads:
            peak, width = draw.uniform(0, 24), draw.uniform(3, 6)
            apart = np.abs((hours - peak + 12) % 24 - 12)
            daily = 0.35 + draw.uniform(0.1, 0.7) * np.exp(-((apart / width) ** 2))
            for pod in workload.pods:
                level = daily * draw.uniform(0.6, 1.4)
                for _ in range(draw.poisson(self.steps * STEP / DAY / 3)):
                    begin = int(draw.integers(self.steps))
                    level[begin : begin + int(draw.integers(24, 96))] += draw.uniform(0.5, 2.0)
                use[:, pod] = requests[pod] * level
        noise = draw.normal(1.0, 0.05, use.shape)
        return np.maximum(use * noise, 10.0)


@dataclass
class Figures:
    """What a week was like."""

    hot_hours: float = 0.0
    moves: int = 0
    most_per_pod_and_hour: int = 0
    returns: int = 0
    """Pods that went back to a node within the time in which it is avoided."""
    below_minimum: int = 0
    heated: int = 0
    """Moves after which the target was hot in the next step."""
    seconds: float = 0.0


@dataclass
class Week:
    """Plays the load on nodes; ``is_balanced``: pods are moved."""

    load: Load
    nodes: int
    is_balanced: bool
    seed: int
    place: npt.NDArray[np.int64] = field(init=False)
    since: npt.NDArray[np.float64] = field(init=False)
    free: list[int] = field(init=False)
    away: Counter[str] = field(default_factory=Counter)
    history: dict[int, list[tuple[float, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)  # noqa: S311 - a simulation
        self.free = [CAPACITY] * self.nodes
        self.place = np.zeros(self.load.count, dtype=np.int64)
        self.since = np.full(self.load.count, -DAY)
        for pod, request in enumerate(self.load.requests):
            fitting = [
                node for node in draw.choices(range(self.nodes), k=8) if self.free[node] >= request
            ]
            node = fitting[0] if fitting else max(range(self.nodes), key=self.free.__getitem__)
            self.place[pod] = node
            self.free[node] -= request

    def play(self) -> Figures:
        figures, begun = Figures(), time.process_time()
        past = BalancePast(Detectors(3 * STEP))
        rules = BalanceRules(
            (
                BalancePool(
                    "default",
                    Thresholds({"cpu": LOW}, {"cpu": HIGH}),
                    condition=make_condition(2, 3, 2 * STEP),
                ),
            ),
            MoveCaps(total=25, per_node=2, per_workload=2),
        )
        heated: list[int] = []
        for step in range(self.load.steps):
            now = step * STEP
            used = np.bincount(self.place, self.load.use[step], self.nodes)
            hot = used > CAPACITY * HIGH / 100
            figures.hot_hours += float(hot.sum()) * STEP / HOUR
            figures.heated += sum(bool(hot[node]) for node in heated)
            heated = []
            if not self.is_balanced:
                continue
            self.away.clear()  # what was moved in the last step runs again
            permission = _Requests(self)
            for move in decide(rules, self._measure(step), past, permission, now).moves:
                past.moves.note(move.pod, move.target, now)
                heated.append(int(move.target))
                self._move(int(move.pod.uid), int(move.target), now, figures)
        figures.seconds = time.process_time() - begun
        return figures

    def _measure(self, step: int) -> list[BalanceNode]:
        pods: list[list[BalancePod]] = [[] for _ in range(self.nodes)]
        use = self.load.use[step].astype(np.int64).tolist()
        place, since = self.place.tolist(), self.since.tolist()
        for workload in self.load.workloads:
            for pod in workload.pods:
                node = place[pod]
                name = str(pod)
                pods[node].append(
                    BalancePod(
                        name,
                        "default",
                        name,
                        str(node),
                        {"cpu": use[pod]},
                        workload.is_prod,
                        workload.name,
                        (int(workload.is_prod),),
                        since[pod],
                    )
                )
        capacity = {"cpu": CAPACITY, "memory": 1, "pods": 110}
        return [
            BalanceNode(str(node), capacity, {}, tuple(pods[node])) for node in range(self.nodes)
        ]

    def _move(self, pod: int, target: int, now: float, figures: Figures) -> None:
        figures.moves += 1
        moves, left = self.history[pod], int(self.place[pod])
        recent = [at for at, _, _ in moves if now - at < SETTLED_SECONDS]
        figures.most_per_pod_and_hour = max(figures.most_per_pod_and_hour, len(recent) + 1)
        figures.returns += any(
            node == target and now - at < AVOIDED_SECONDS for at, node, _ in moves
        )
        workload = self.load.workloads[pod // GROUP]
        running = len(workload.pods) - self.away[workload.name]
        figures.below_minimum += bool(workload.minimum) and running < workload.minimum
        moves.append((now, left, target))
        self.free[left] += self.load.requests[pod]
        self.place[pod], self.since[pod] = target, now


class _Requests:
    """Pods move where their requests fit, unless their gang needs them."""

    def __init__(self, week: Week) -> None:
        self._week = week

    def refuse(self, pod: BalancePod) -> MoveRefusal | None:
        workload = self._week.load.workloads[int(pod.uid) // GROUP]
        running = len(workload.pods) - self._week.away[workload.name]
        if workload.minimum and running - 1 < workload.minimum:
            return MoveRefusal("Gang", "its gang would fall below its minimum")
        return None

    def find_node(self, pod: BalancePod, nodes: Sequence[str]) -> str | None:
        request = self._week.load.requests[int(pod.uid)]
        return next((node for node in nodes if self._week.free[int(node)] >= request), None)

    def note(self, pod: BalancePod, node: str) -> None:
        self._week.free[int(node)] -= self._week.load.requests[int(pod.uid)]
        self._week.away[pod.workload] += 1


def simulate(nodes: int, days: int, seed: int) -> tuple[Figures, Figures]:
    """Return the week without and with balancing."""
    load = Load(nodes, days, seed)
    return Week(load, nodes, False, seed).play(), Week(load, nodes, True, seed).play()


def main() -> None:
    parser = argparse.ArgumentParser(description="Plays a week with and without balancing.")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    without, balanced = simulate(options.nodes, options.days, options.seed)
    print(f"{options.nodes} nodes, {options.nodes * PODS_PER_NODE} pods, {options.days} days")
    print(f"{'':44}{'without':>10}{'balanced':>10}")
    for text, name in (
        ("hot node-hours", "hot_hours"),
        ("moves", "moves"),
        ("most moves of a pod in an hour", "most_per_pod_and_hour"),
        ("pods that went back within half an hour", "returns"),
        ("gangs below their minimum", "below_minimum"),
        ("targets that were hot in the next step", "heated"),
        ("CPU seconds", "seconds"),
    ):
        print(f"{text:44}{getattr(without, name):>10.0f}{getattr(balanced, name):>10.0f}")


if __name__ == "__main__":
    main()
