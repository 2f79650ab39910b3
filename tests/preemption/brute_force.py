"""All sets of victims on random small clusters, judged one by one by the planner."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.builders import (
    GPU,
    make_node,
    make_pod,
    make_pod_group,
    make_quota,
    select_labels,
)
from tests.cluster import SCORING, FakeCluster, make_cluster, make_unit
from tests.objects import upsert_namespace

from koord.core.engine.planner import plan
from koord.core.eviction.candidates import find_candidates
from koord.core.eviction.model import Exempt, Moment, VictimKind
from koord.core.eviction.protection import ALLOWED_IN
from koord.core.model.budgets import Budget, split_by_budgets
from koord.core.model.pods import OwnerReference
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.builders import PodBuilder

    from koord.core.eviction.model import VictimUnit
    from koord.core.model.plan import Unit
    from koord.core.model.pods import Pod as CorePod

NOW = 10_000.0
LAYERS = (Layer("Block", "", ("block",)), Layer(NODE_LAYER, "Block"))
Levels = tuple[int, int, int, int]


@dataclass
class Pod:
    """What budgets look at."""

    namespace: str
    name: str
    labels: dict[str, str]


@dataclass
class RandomScene:
    """A small cluster with running pods, and a unit that waits."""

    cluster: FakeCluster
    unit: Unit
    budgets: tuple[Budget, ...] = ()
    gangs: dict[str, int] = field(default_factory=dict)
    """Gang -> its minimum."""
    guaranteed: dict[str, int] = field(default_factory=dict)
    """Quota -> GPUs of its min; empty without quotas."""


def make_scene(seed: int) -> RandomScene:
    """Make the cluster of a seed."""
    return _Maker(random.Random(seed)).make()


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = make_cluster()
        upsert_namespace(self.cluster.state, "default", {ALLOWED_IN: "true"})
        self.free: dict[str, int] = {}
        self.gangs: dict[str, int] = {}
        self.guaranteed: dict[str, int] = {}
        self.left = chance.randint(3, 9)
        """How many running pods there may be."""

    def make(self) -> RandomScene:
        chance = self.chance
        for at in range(chance.randint(1, 4)):
            gpus = chance.choice((2, 4, 8))
            node = make_node(f"n{at}").gpu(gpus).label("block", f"b{at % 2}")
            self.cluster.nodes(node)
            self.free[f"n{at}"] = gpus
        self.cluster.topology(*LAYERS)
        if chance.random() < 0.3:
            self._add_quotas()
        at = 0
        while self.left > 0:
            if chance.random() < 0.35:
                self._add_gang(f"g{at}")
            else:
                self._put(make_pod(f"p{at}"), chance.choice((0, 0, 5, 9, 10, 20)))
                self.left -= 1
            at += 1
        budgets = tuple(
            Budget("default", select_labels(app=app), chance.randint(0, 2))
            for app in ("a", "b")
            if chance.random() < 0.3
        )
        unit = self._make_unit()
        return RandomScene(self.cluster, unit, budgets, self.gangs, self.guaranteed)

    def _add_quotas(self) -> None:
        for name in ("qa", "qb"):
            least = self.chance.choice((0, 0, 1, 2))
            self.guaranteed[name] = least
            most = self.chance.choice((4, 32))
            self.cluster.quotas(make_quota(name, min={GPU: least}, max={GPU: most}))

    def _add_gang(self, name: str) -> None:
        key, count = f"default/{name}", self.chance.randint(2, 4)
        least = self.chance.randint(1, count)
        self.gangs[key] = least
        self.cluster.pod_groups(make_pod_group(key, least))
        priority = self.chance.choice((0, 3, 9))
        for at in range(count):
            self._put(make_pod(f"{name}-{at}").gang(key), priority, key, least)
        self.left -= count

    def _put(self, pod, priority: int, group: str = "", least: int = 0) -> None:
        gpus = self.chance.choice((1, 2, 2, 4))
        nodes = [node for node, free in self.free.items() if free >= gpus]
        if not nodes:
            return
        node = self.chance.choice(nodes)
        self.free[node] -= gpus
        pod = pod.gpu(gpus).priority(priority).labels(app=self.chance.choice("abc"))
        if self.guaranteed:
            pod = pod.quota(self.chance.choice(("qa", "qb")))
        pod = self._protect(pod)
        pod = pod.released(node, "p", group, 1, least).running(node)
        pod = pod._set(started=NOW - self.chance.randint(1, 5))
        self.cluster.pods(pod)

    def _protect(self, pod: PodBuilder) -> PodBuilder:
        """Protect some pods from eviction."""
        chance = self.chance.random()
        if chance < 0.05:
            return pod._set(is_protected=True)
        if chance < 0.1:
            return pod._set(owners=(OwnerReference("d", "DaemonSet"),))  # spares nobody
        return pod

    def _make_unit(self) -> Unit:
        chance = self.chance
        count = chance.randint(1, 3)
        largest = max(self.free.values(), default=0) or 2
        sizes = [min(chance.choice((1, 2, 4, 4, 8)), 2 * largest)] * count
        if chance.random() < 0.25:
            sizes = [chance.choice((1, 2, 4)) for _ in range(count)]
        pods = [make_pod(f"w{at}").gpu(size).priority(10) for at, size in enumerate(sizes)]
        if self.guaranteed:
            pods = [pod.quota("qa") for pod in pods]
        if count > 1 and chance.random() < 0.4:
            must = TopologyConstraint((LayerConstraint("Block", GatherStrategy.MUST),))
            key = "default/w"
            self.cluster.pod_groups(make_pod_group(key, count).topology(must))
            self.cluster.pods(*(pod.gang(key) for pod in pods))
            self.cluster.queue  # noqa: B018 - made before the first change is read
            return next(unit for unit in self.cluster.take() if unit.key == key)
        required = count if chance.random() < 0.7 else chance.randint(1, count)
        return make_unit("w", pods, required)


def list_units(scene: RandomScene) -> Sequence[VictimUnit]:
    state = scene.cluster.state
    return find_candidates(state, scene.unit, Exempt(moment=Moment(NOW))).units


def fits_without(scene: RandomScene, victims: Sequence[VictimUnit]) -> bool:
    """Whether the planner places the unit without some units, on a cycle of its own."""
    scene.cluster.state.refresh()
    with closing(scene.cluster.state.open_cycle()) as cycle:
        cycle.remove({pod.uid: pod for victim in victims for pod in victim.pods}.values())
        return bool(plan(cycle, (scene.unit,), SCORING).placements)


def keeps_guarantees(scene: RandomScene, victims: Sequence[VictimUnit]) -> bool:
    """Whether the other quota keeps its min, if victims of it go."""
    pods = {pod.uid: pod for victim in victims for pod in victim.pods}
    lost = sum(_gpus(pod) for pod in pods.values() if pod.quota == "qb")
    running = (pod for pod in scene.cluster.state.pods.values() if pod.node)
    used = sum(_gpus(pod) for pod in running if pod.quota == "qb")
    return not lost or used - lost >= scene.guaranteed["qb"]


def _gpus(pod: CorePod) -> int:
    return dict(pod.shape.requests)[GPU]


def levels_of(scene: RandomScene, victims: Sequence[VictimUnit]) -> Levels:
    """Return the first four levels of the objective."""
    pods = {pod.key: pod for victim in victims for pod in victim.pods}
    shown = [
        Pod(pod.namespace, pod.name, dict(pod.profile.labels)) for _, pod in sorted(pods.items())
    ]
    return (
        len(split_by_budgets(shown, scene.budgets).violating),
        len({victim.group for victim in victims if victim.kind is VictimKind.GANG}),
        max((pod.priority for pod in pods.values()), default=0),
        sum(_gpus(pod) * 100 * int(NOW - pod.started) for pod in pods.values()),
    )


def find_best(scene: RandomScene) -> Levels | None:
    """Return the lowest levels of all sets that are enough; None if none is."""
    units = list_units(scene)
    best: Levels | None = None
    for count in range(len(units) + 1):
        for victims in itertools.combinations(units, count):
            whole = {victim.group for victim in victims if victim.kind is VictimKind.GANG}
            if any(
                victim.group in whole and victim.kind is VictimKind.SURPLUS for victim in victims
            ):
                continue
            if not keeps_guarantees(scene, victims):
                continue
            levels = levels_of(scene, victims)
            if (best is None or levels < best) and fits_without(scene, victims):
                best = levels
    return best
