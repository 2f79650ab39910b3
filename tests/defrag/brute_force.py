"""All moves on random small clusters, judged by plain arithmetic alone.

Nodes have GPUs and a colour, pods request GPUs and may want a colour. A unit moves to nodes where
it fits beside everything that runs, then its old room is free.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group, select_labels
from tests.cluster import FakeCluster, make_cluster, make_unit

from koord.core.model.budgets import Budget
from koord.core.model.pods import OwnerReference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.builders import PodBuilder

    from koord.core.model.plan import Unit

NOW = 10_000.0
Levels = tuple[int, int, int, int, int]
"""Pods that move, whole gangs, the highest priority, work, and jobs."""


@dataclass(frozen=True)
class Runner:
    """A running pod."""

    name: str
    node: str
    gpus: int
    colour: str
    priority: int
    work: int
    app: str
    gang: str = ""
    is_owned: bool = True


@dataclass
class MoveScene:
    """A small cluster, and ``count`` pods of ``gpus`` that wait."""

    free: dict[str, int] = field(default_factory=dict)
    colours: dict[str, str] = field(default_factory=dict)
    runners: list[Runner] = field(default_factory=list)
    least: dict[str, int] = field(default_factory=dict)
    """Gang -> its minimum."""
    allowed: dict[str, int] = field(default_factory=dict)
    """App -> how many of its pods may be away at a time."""
    count: int = 1
    gpus: int = 8
    cluster: FakeCluster = field(default_factory=make_cluster)

    @property
    def unit(self) -> Unit:
        pods = [make_pod(f"w{at}").gpu(self.gpus).priority(3) for at in range(self.count)]
        return make_unit("w", pods)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return tuple(
            Budget("default", select_labels(app=app), most) for app, most in self.allowed.items()
        )


def make_scene(seed: int) -> MoveScene:
    """Make the cluster of a seed."""
    chance = random.Random(seed)
    scene = MoveScene()
    for at in range(chance.randint(2, 4)):
        name, colour = f"n{at}", chance.choice(("red", "red", "blue"))
        scene.free[name], scene.colours[name] = chance.choice((4, 8)), colour
        scene.cluster.nodes(make_node(name).gpu(scene.free[name]).label("colour", colour))
    for app in "ab":
        if chance.random() < 0.15:
            scene.allowed[app] = chance.randint(0, 2)
    left, at = chance.randint(3, 6), 0
    while left > 0:
        is_gang = left > 1 and chance.random() < 0.3
        members = chance.randint(2, min(left, 3)) if is_gang else 1
        gang = f"default/g{at}" if is_gang else ""
        priority = chance.choice((0, 5))
        if is_gang:
            scene.least[gang] = chance.randint(1, members)
            scene.cluster.pod_groups(make_pod_group(gang, scene.least[gang]))
        for member in range(members):
            _put(scene, chance, f"p{at}-{member}", gang, priority)
        left -= members
        at += 1
    largest = max(scene.free[name] + _used_on(scene, name) for name in scene.free)
    scene.count = chance.choice((1, 1, 1, 2, 3))
    sizes = [
        gpus for gpus in range(1, largest + 1) if _count_fitting(scene.free, gpus) < scene.count
    ]
    scene.gpus = chance.choice(sizes[:3] or [largest])
    return scene


def _count_fitting(free: Mapping[str, int], gpus: int) -> int:
    return sum(amount // gpus for amount in free.values())


def _used_on(scene: MoveScene, node: str) -> int:
    return sum(runner.gpus for runner in scene.runners if runner.node == node)


def _put(scene: MoveScene, chance: random.Random, name: str, gang: str, priority: int) -> None:
    gpus, colour = chance.choice((1, 1, 2, 2, 3, 4)), chance.choice(("", "", "", "red", "blue"))
    nodes = [
        node
        for node, free in scene.free.items()
        if free >= gpus and colour in {"", scene.colours[node]}
    ]
    if not nodes:
        return
    age = chance.randint(1, 4)
    runner = Runner(
        name,
        chance.choice(nodes),
        gpus,
        colour,
        priority,
        age * gpus * 100,
        chance.choice("abc"),
        gang,
        is_owned=chance.random() < 0.92,
    )
    scene.free[runner.node] -= gpus
    scene.runners.append(runner)
    scene.cluster.pods(make_runner(runner, NOW - age))


def make_runner(runner: Runner, started: float) -> PodBuilder:
    """Make the pod of a runner."""
    owners = (OwnerReference("rs", "ReplicaSet", "apps/v1", "uid-rs", is_controller=True),)
    pod = make_pod(runner.name).gpu(runner.gpus).priority(runner.priority).labels(app=runner.app)
    pod = pod.gang(runner.gang) if runner.gang else pod
    pod = pod.selector(colour=runner.colour) if runner.colour else pod
    pod = pod.released(runner.node, "p").running(runner.node)
    return pod._set(started=started, owners=owners if runner.is_owned else ())


@dataclass(frozen=True)
class Group:
    """Runners that move together."""

    runners: tuple[Runner, ...]
    is_whole: bool = False

    @property
    def gang(self) -> str:
        return self.runners[0].gang


def list_groups(scene: MoveScene) -> list[Group]:
    """Return what may move: pods without gang, members above the minimum, whole gangs."""
    groups = [Group((runner,)) for runner in scene.runners if not runner.gang]
    for gang, least in scene.least.items():
        members = [runner for runner in scene.runners if runner.gang == gang]
        surplus = max(len(members) - least, 0)
        last = sorted(members, key=lambda runner: runner.name)[len(members) - surplus :]
        groups += [Group((runner,)) for runner in last]
        groups += [Group(tuple(members), is_whole=True)] if members else []
    return [
        group
        for group in groups
        if all(runner.is_owned for runner in group.runners)
        and keeps_replicas(scene, group)
        and keeps_budgets(scene, [group])
    ]


def keeps_replicas(scene: MoveScene, group: Group) -> bool:
    """Whether some of the workload remain: all runners without a gang have the same controller."""
    is_of_gang = any(runner.gang for runner in group.runners)
    return is_of_gang or sum(runner.is_owned and not runner.gang for runner in scene.runners) > 1


def keeps_budgets(scene: MoveScene, groups: list[Group]) -> bool:
    """Whether these may be away together."""
    apps = [runner.app for group in groups for runner in group.runners]
    return all(apps.count(app) <= most for app, most in scene.allowed.items())


def levels_of(groups: list[Group]) -> Levels:
    """Return the objective."""
    runners = [runner for group in groups for runner in group.runners]
    return (
        len(runners),
        sum(group.is_whole for group in groups),
        max((runner.priority for runner in runners), default=0),
        sum(runner.work for runner in runners),
        len({runner.gang or runner.name for runner in runners}),
    )


def find_best(scene: MoveScene) -> Levels | None:
    """Return the lowest levels of all sets with any order and any nodes; None if none helps."""
    groups = list_groups(scene)
    chosen_sets = [
        list(chosen)
        for count in range(len(groups) + 1)
        for chosen in itertools.combinations(groups, count)
        if _is_legal(scene, list(chosen))
    ]
    for chosen in sorted(chosen_sets, key=levels_of):
        if _can_move(scene, scene.free, chosen):
            return levels_of(chosen)
    return None


def _is_legal(scene: MoveScene, groups: list[Group]) -> bool:
    whole = {group.gang for group in groups if group.is_whole}
    is_twice = any(group.gang in whole and not group.is_whole for group in groups)
    return not is_twice and keeps_budgets(scene, groups)


def _can_move(scene: MoveScene, free: Mapping[str, int], groups: list[Group]) -> bool:
    if not groups:
        return _count_fitting(free, scene.gpus) >= scene.count
    for group in groups:
        further = [other for other in groups if other is not group]
        for left in _ways(scene, free, group.runners):
            freed = dict(left)
            for runner in group.runners:
                freed[runner.node] += runner.gpus
            if _can_move(scene, freed, further):
                return True
    return False


def _ways(
    scene: MoveScene, free: Mapping[str, int], runners: tuple[Runner, ...]
) -> Iterator[Mapping[str, int]]:
    """Yield what is free with new places of runners, each on another node than before."""
    if not runners:
        yield free
        return
    runner, *further = runners
    for node, amount in free.items():
        is_allowed = node != runner.node and runner.colour in {"", scene.colours[node]}
        if is_allowed and amount >= runner.gpus:
            yield from _ways(scene, {**free, node: amount - runner.gpus}, tuple(further))


def replay(scene: MoveScene, steps: list[list[tuple[str, str]]]) -> None:
    """Carry out steps of (pod, new node) by arithmetic; the unit fits only afterwards."""
    runners, free = {runner.name: runner for runner in scene.runners}, dict(scene.free)

    def fits() -> bool:
        return _count_fitting(free, scene.gpus) >= scene.count

    assert not fits(), "it fits without moves"
    for step in steps:
        for name, node in step:
            runner = runners[name]
            assert node != runner.node
            assert runner.colour in {"", scene.colours[node]}
            free[node] -= runner.gpus
            assert free[node] >= 0, f"{name} has no room on {node} before it leaves"
        for name, _ in step:
            free[runners[name].node] += runners[name].gpus
    assert fits(), "it does not fit after the moves"
