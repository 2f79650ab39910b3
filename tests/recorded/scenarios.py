"""Random clusters, each made of its number alone, and what happens to them in a few rounds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tests.builders import make_node, make_quota
from tests.recorded import changes
from tests.recorded.changes import Step
from tests.recorded.jobs import Job, JobMaker
from tests.recorded.quotas import Quotas, capacity_of, make_quotas
from tests.recorded.world import NAMESPACES, World, make_world

from koord.core.engine.scoring import DEFAULT_WEIGHTS, Scoring, ScoringStrategy, Weighed

if TYPE_CHECKING:
    from random import Random


class Fate(StrEnum):
    """What becomes of a pod that was given a node."""

    BOUND = "bound"
    ASSUMED = "assumed"
    """Its binding is not seen yet."""
    RELEASED = "released"
    """It was released, and then not bound."""
    DENIED = "denied"
    """Nothing of it was written."""


FATES = (Fate.BOUND,) * 14 + (Fate.ASSUMED, Fate.ASSUMED, Fate.RELEASED, Fate.RELEASED, Fate.DENIED)
SCORINGS = (
    Scoring(),
    Scoring(),
    Scoring({key: Weighed(ScoringStrategy.MOST_ALLOCATED, 1) for key in DEFAULT_WEIGHTS}),
    Scoring({key: Weighed(ScoringStrategy.LEAST_ALLOCATED, 2) for key in DEFAULT_WEIGHTS}),
)


@dataclass
class Scenario:
    """A cluster, and what happens to it before each round of planning."""

    number: int
    steps: list[Step]
    scoring: Scoring = field(default_factory=Scoring)
    is_compat: bool = False
    """Koordinator's rules instead of ours."""
    limits_by_share: bool = True
    features: dict[str, frozenset[str]] = field(default_factory=dict)
    """Job -> what it asks."""
    job_of: dict[str, str] = field(default_factory=dict)
    """Pod (``namespace/name``) -> job."""

    def fate_of(self, pod: str) -> Fate:
        """Say what becomes of a pod (its key) once it is placed."""
        return random.Random(f"{self.number} {pod}").choice(FATES)  # noqa: S311 - the same again


def make_scenario(number: int) -> Scenario:
    """Make a cluster by its number."""
    dice = random.Random(number)  # noqa: S311 - the same every time
    if dice.random() < 0.08:
        world, quotas, jobs, maker = make_rivals(dice)
    else:
        world = make_world(dice)
        quotas = make_quotas(dice, world.nodes)
        maker = JobMaker(world, quotas)
        jobs = [maker.make() for _ in range(count_jobs(dice, world))]
    steps = [make_first_step(world, quotas, jobs)]
    if dice.random() < 0.7:
        changes.lose_members(steps[0], maker, _started(jobs), 0.25)
    for _ in range(dice.choice((1, 2))):
        steps.append(make_step(steps[-1], maker, quotas, jobs))
    steps[-1].wakes_all = dice.random() < 0.5
    return Scenario(
        number,
        steps,
        dice.choice(SCORINGS),
        is_compat=dice.random() < 0.05,
        limits_by_share=dice.random() < 0.95,
        features={job.name: frozenset(job.features) for job in jobs},
        job_of=find_jobs(steps, jobs),
    )


def count_jobs(dice: Random, world: World) -> int:
    """Return how many jobs there are at first: some clusters are full, some are not."""
    return max(2, int(len(world.nodes) * dice.choice((0.25, 0.5, 0.8))))


def make_rivals(dice: Random) -> tuple[World, Quotas, list[Job], JobMaker]:
    """Make quotas without guarantee, each with a gang that needs more than its share."""
    world = World(dice)
    world.nodes = [make_node(f"n{at}").gpu(8).build() for at in range(dice.randint(2, 8))]
    world.free = {one.name: dict(one.allocatable) for one in world.nodes}
    quotas, whole = Quotas(), capacity_of(world.nodes)
    for at in range(dice.choice((2, 2, 3))):
        quotas.add(make_quota(f"team-{at}", "q", max=whole), "quotas of 1 level")
    maker = JobMaker(world, quotas)
    size = len(world.nodes)
    jobs = [
        maker.make_large(leaf, dice.randint((size + 1) // 2, size))
        for leaf in quotas.leaves
        for _ in range(2)
    ]
    jobs += [maker.make() for _ in range(dice.choice((0, 0, 1)))]
    return world, quotas, jobs, maker


def make_first_step(world: World, quotas: Quotas, jobs: list[Job]) -> Step:
    """Make everything known that there is at first."""
    step = Step(now=1000.0)
    for verb, values in (
        ("namespace", NAMESPACES.items()),
        ("topology", world.topologies),
        ("node", world.nodes),
        ("storage class", world.classes),
        ("volume", world.volumes),
        ("claim", world.claims),
        ("quota", quotas.specs),
        ("pod", world.residents),
    ):
        for value in values:
            step.add(verb, value)
    for job in jobs:
        changes.announce(step, job)
    return step


def make_step(before: Step, maker: JobMaker, quotas: Quotas, jobs: list[Job]) -> Step:
    """Make a round after another one: pods go and come, nodes and quotas change."""
    world, dice = maker.world, maker.dice
    step = Step(now=before.now + dice.choice((1.0, 15.0, 45.0)))
    changes.lose_members(step, maker, jobs, dice.choice((0.0, 0.1, 0.25)))
    changes.change_nodes(step, world)
    changes.change_quotas(step, dice, quotas)
    changes.change_claims(step, world)
    for _ in range(dice.randint(0, 2)):
        if world.residents:
            gone = world.residents.pop(dice.randrange(len(world.residents)))
            step.add("remove pod", gone.uid)
    for _ in range(dice.randint(1, 3)):
        jobs.append(maker.make())
        changes.announce(step, jobs[-1])
    return step


def find_jobs(steps: list[Step], jobs: list[Job]) -> dict[str, str]:
    """Return the job of every pod that ever comes; its name begins with that of the job."""
    names = {job.name for job in jobs}
    pods = (change.value for step in steps for change in step.changes if change.verb == "pod")
    heads = {pod.key: pod.name.partition("-")[0] for pod in pods}
    return {key: head for key, head in heads.items() if head in names}


def _started(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if "started gang" in job.features]
