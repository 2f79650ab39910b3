"""Draws how much of a cluster is used over a day, without batch resources and with them.

    PYTHONPATH=. .venv/bin/python tools/colocation_picture.py

A simulation: ten nodes of 32 CPUs with prod pods whose load has a peak in the afternoon, and jobs
of four batch pods that wait all the time. What nodes offer, where pods go and who leaves is decided
by the operators' own formulas, planner and rules; loads and durations are made up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import cos, pi
from pathlib import Path

from tests.builders import PodBuilder, make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_unit

from koord.core.balance.batch_reclaim import BatchReclaimRules, ReclaimPast
from koord.core.balance.model import Thresholds
from koord.core.balance.policy import PoolSettings, RebalanceSettings
from koord.core.colocation.formula import compute_batch
from koord.core.colocation.measured import ColocatedNode, CountedPod, add_up_pods
from koord.core.colocation.strategy import Strategy
from koord.core.eviction.batch_reclaim import look
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import BalanceContext
from koord.core.load.model import NodeLoad, PodLoad
from koord.core.load.plugin import Loads
from koord.core.migration.model import MigrationOptions
from koord.core.model.koordinator_class import KoordinatorClass

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "colocation.svg"
NODES, CPUS, GIB = 10, 32_000, 1 << 30
STEPS = 96
STEP_SECONDS = 900.0
LOOKS = 30
"""Looks for short nodes within a step: one each 30 seconds."""
PROD_PODS, PROD_CPUS = 7, 4000
SYSTEM_CPUS = 800
MEMBERS, BATCH_CPUS, BATCH_STEPS = 4, 2000, 8
BATCH_CPU = "kubernetes.io/batch-cpu"
WIDTH, HEIGHT, PANEL = 340, 150, 400
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 } .note { font-size: 12px } .axis { stroke: #8c959f }
  .prod { fill: #0969da } .batch { fill: #bf8700 }
  .requested { stroke: #8c959f; stroke-dasharray: 4 3; fill: none }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""
SETTINGS = RebalanceSettings(
    (PoolSettings("default", Thresholds()),),
    expiration=STEP_SECONDS,
    batch_reclaim=BatchReclaimRules(65.0, 300.0),
)


def _class_of(namespace: str) -> KoordinatorClass:
    return KoordinatorClass.PROD if namespace == "prod" else KoordinatorClass.BATCH


def load_of(step: int, node: int) -> float:
    """Return which part of their requests prod pods of a node use: the most in the afternoon."""
    hour = step * 24 / STEPS
    return 0.28 + 0.18 * cos((hour - 15 - node % 3) * pi / 12)


@dataclass
class Day:
    """A day of the cluster; without ``offers_batch`` batch pods request CPUs like all others."""

    offers_batch: bool
    prod: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)
    finished: int = 0
    evicted: int = 0
    _cluster: FakeCluster = field(default_factory=FakeCluster)
    _ends: dict[str, int] = field(default_factory=dict)
    _past: ReclaimPast = field(default_factory=ReclaimPast)
    _jobs: int = 0

    @property
    def resource(self) -> str:
        return BATCH_CPU if self.offers_batch else "cpu"

    def run(self) -> "Day":
        for node in range(NODES):
            for at in range(PROD_PODS):
                pod = make_pod(f"prod/n{node}-{at}").requests(cpu=PROD_CPUS).priority(9500)
                self._cluster.pods(pod.running(f"n{node}"))
        for step in range(STEPS):
            self._finish(step)
            self._measure(step)
            if self.offers_batch:
                self._reclaim(step)
            self._start(step)
            self._note(step)
        return self

    def _finish(self, step: int) -> None:
        over = [name for name, end in self._ends.items() if end <= step]
        for name in over:
            del self._ends[name]
            self._cluster.state.remove_pod(f"uid-batch-{name}")
        self.finished += len(over)

    def _measure(self, step: int) -> None:
        """Report what pods use, and offer what follows from it."""
        for at in range(NODES):
            name = f"n{at}"
            pods = self._cluster.state.pods_on(name)
            use = {
                pod.key: PodLoad({"cpu": int(PROD_CPUS * load_of(step, at))})
                for pod in pods
                if pod.namespace == "prod"
            }
            use |= {pod.key: PodLoad({"cpu": BATCH_CPUS}) for pod in pods if pod.key not in use}
            load = NodeLoad(
                name,
                updated=step * STEP_SECONDS + 1,
                window=60.0,
                usage={"memory": GIB},
                system={"cpu": SYSTEM_CPUS},
                pods=use,
            )
            self._cluster.state.plugin(Loads).upsert(load)
            amounts = {"cpu": CPUS, "memory": 128 * GIB}
            node = make_node(name).cpu(CPUS).memory(128 * GIB).pods(110)
            if self.offers_batch:
                counted = tuple(
                    CountedPod(pod.key, _class_of(pod.namespace), {"cpu": PROD_CPUS})
                    for pod in pods
                )
                seen = ColocatedNode(amounts, amounts, counted, load)
                offered = compute_batch("cpu", seen, add_up_pods(seen)["cpu"], Strategy())
                node = node.resource(BATCH_CPU, offered.value)
            self._cluster.nodes(node)

    def _reclaim(self, step: int) -> None:
        for at in range(LOOKS):
            now = step * STEP_SECONDS + 1 + at * 30.0
            context = BalanceContext(Moment(now), migration=MigrationOptions(evicts_all_bare=True))
            outcome = look(self._cluster.state, SETTINGS, self._past, context)
            for reclaim in outcome.reclaims:
                self._past.note(reclaim, now)
                for pod in reclaim.unit.pods:
                    self._ends.pop(pod.name)
                    self._cluster.state.remove_pod(pod.uid)
                    self.evicted += 1

    def _start(self, step: int) -> None:
        """Start jobs as long as one fits as a whole."""
        while True:
            name = f"batch/job-{self._jobs}"
            members = [self._make_member(f"{name}-{at}", name) for at in range(MEMBERS)]
            plan = self._cluster.plan(make_unit(name, members))
            if not plan.placements:
                return
            self._jobs += 1
            self._cluster.pod_groups(make_pod_group(name, MEMBERS))
            for placed in plan.placements[0].assignments:
                self._ends[placed.pod.name] = step + BATCH_STEPS
                self._cluster.pods(self._make_member(placed.pod.key, name).running(placed.node))

    def _make_member(self, name: str, gang: str) -> PodBuilder:
        return make_pod(name).gang(gang).priority(5500).resource(self.resource, BATCH_CPUS)

    def _note(self, step: int) -> None:
        total = NODES * CPUS
        prod = sum(PROD_PODS * PROD_CPUS * load_of(step, at) + SYSTEM_CPUS for at in range(NODES))
        self.prod.append(prod / total)
        self.batch.append(len(self._ends) * BATCH_CPUS / total)

    @property
    def average(self) -> float:
        return sum(self.prod + self.batch) / STEPS


def draw_panel(left: int, title: str, day: Day, notes: Sequence[str]) -> Iterator[str]:
    yield f'<text class="title" x="{left}" y="24">{title}</text>'
    both = [prod + batch for prod, batch in zip(day.prod, day.batch, strict=True)]
    yield _area("batch", left, both)
    yield _area("prod", left, day.prod)
    requested = 40 + HEIGHT * (1 - PROD_PODS * PROD_CPUS / CPUS)
    yield f'<path class="requested" d="M{left} {requested:.1f} h{WIDTH}"/>'
    yield f'<path class="axis" fill="none" d="M{left} 40 v{HEIGHT} h{WIDTH}"/>'
    for hour in (0, 6, 12, 18, 24):
        x = left + WIDTH * hour / 24
        yield f'<text class="note" x="{x - 12:.0f}" y="{HEIGHT + 56}">{hour}:00</text>'
    for at, note in enumerate(notes):
        yield f'<text class="note" x="{left}" y="{HEIGHT + 80 + 18 * at}">{note}</text>'


def _area(look_of: str, left: int, values: Sequence[float]) -> str:
    points = " ".join(
        f"L{left + WIDTH * at / (len(values) - 1):.1f} {40 + HEIGHT * (1 - value):.1f}"
        for at, value in enumerate(values)
    )
    bottom = 40 + HEIGHT
    return f'<path class="{look_of}" d="M{left} {bottom} {points} L{left + WIDTH} {bottom} Z"/>'


def draw(before: Day, after: Day) -> str:
    panels = (
        (30, "Batch pods request CPUs", before),
        (30 + PANEL, "Batch pods request batch resources", after),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * PANEL} {HEIGHT + 110}">',
        "<title>Used CPUs of a cluster over a day, without batch resources and with them</title>",
        f"<style>{STYLE}</style>",
    ]
    for left, title, day in panels:
        counts = f"{day.finished} batch pods finished, {day.evicted} evicted"
        notes = (
            f"{day.average:.0%} used on average; {counts}.",
            "Blue: prod, amber: batch; dashed: what prod pods request.",
        )
        lines += draw_panel(left, title, day, notes)
    return "\n".join([*lines, "</svg>"]) + "\n"


def make_picture() -> str:
    return draw(Day(offers_batch=False).run(), Day(offers_batch=True).run())


if __name__ == "__main__":
    TARGET.write_text(make_picture(), encoding="utf-8")
