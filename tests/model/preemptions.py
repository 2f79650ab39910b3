"""A gang preempts running pods and gangs of lower priority, with a crash at one write.

Everything is made from a seed: who runs, what is wanted, and what others do meanwhile: delete a
member of the preemptor, or a node that it is about to get, or nothing. Judged from the objects of
the API alone: the preemptor starts as a whole if nobody interferes, no gang is left below its
minimum, nothing stays marked or nominated, and no pod was deleted that could have stayed.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.network import CrashPoint
from tests.model.objects import (
    PodPlan,
    condition_of,
    gang_of,
    gpus_of,
    is_alive,
    make_pod_group,
    name_of,
    node_of,
)
from tests.model.oracle import Oracle
from tests.model.steps import Step, Story, quiet
from tests.model.store import PODS, Event
from tests.model.world import World, open_world

from koord.api.keys import operators

GPUS = 8
"""Of a node, and of every pod."""
TROUBLES = ("none", "none", "member", "node", "room")


@dataclass(frozen=True, slots=True)
class Contest:
    """A story, and what is to come of it."""

    story: Story
    trouble: str
    wanted: int
    gangs: dict[str, int]
    """Gang of low priority -> its minimum."""


def make_contest(seed: int) -> Contest:
    rng = random.Random(f"preemption {seed}")
    politeness = random.Random(f"soft eviction {seed}")
    trouble = TROUBLES[seed % len(TROUBLES)]
    wanted = rng.randint(1, 3)
    spare = rng.choice((0, 0, 1)) if wanted > 1 else 0
    gangs: dict[str, int] = {}
    low: list[Step] = []
    count = 0
    while count < wanted - spare + rng.randint(0, 2):
        members = rng.choice((1, 1, 2, 3))
        soft = politeness.choice(("", "", "1s", "3s"))
        if members == 1:
            low.append(Step(0.0, "create_pod", (PodPlan(f"low-{count}", GPUS, soft=soft),)))
        else:
            name = f"g{len(gangs)}"
            gangs[name] = rng.randint(members - 1, members)
            low.append(Step(0.0, "put_pod_group", (make_pod_group(name, gangs[name]),)))
            low += [
                Step(0.0, "create_pod", (PodPlan(f"{name}-{at}", GPUS, gang=name, soft=soft),))
                for at in range(members)
            ]
        count += members
    nodes = count + spare
    high = [PodPlan(f"high-{at}", GPUS, gang="high", priority=10) for at in range(wanted)]
    steps = (
        *(Step(0.0, "add_node", (f"n{at}", GPUS)) for at in range(nodes)),
        *low,
        Step(0.0, "start"),
        Step(6.0, "put_pod_group", (make_pod_group("high", wanted),)),
        *(Step(0.0, "create_pod", (plan,)) for plan in high),
        *_interfere(rng, trouble, nodes),
    )
    return Contest(Story(seed, steps), trouble, wanted, gangs)


def _interfere(rng: random.Random, trouble: str, nodes: int) -> Iterator[Step]:
    wait = rng.choice((0.0, 0.02, 0.06, 0.3, 2.0))
    if trouble == "member":
        yield Step(wait, "delete_pod", ("high-0",))
    elif trouble == "node":
        yield Step(wait, "remove_node", (f"n{rng.randrange(nodes)}",))
    elif trouble == "room":
        yield Step(wait, "add_node", ("more", GPUS))


@dataclass(slots=True)
class Outcome:
    """Broken rules, kinds of writes of the first process, and how many pods were deleted."""

    violations: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    deleted: int = 0
    processes: int = 1


def run_contest(contest: Contest, crash: CrashPoint | None = None) -> Outcome:
    """Run a contest to its end."""
    steps = contest.story.steps
    if crash is not None:
        steps = (Step(0.0, "crash_at", (crash,)), *steps)
    with quiet(), open_world(contest.story.seed) as world:
        deleted: list[str] = []

        def hear(event: Event) -> None:
            if event.kind == PODS and event.type == "DELETED" and world.ledger.serving is None:
                deleted.append(name_of(event.obj))

        world.server.store.listeners.append(hear)
        for step in steps:
            step.take(world)
        world.settle()
        Oracle(world).judge()
        evicted = [one.name for one in world.ledger.pods.values() if one.is_evicted]
        violations = [*world.ledger.violations, *_judge(world, contest, evicted)]
        kinds = list(world.network.kinds_of_writes[0])
        return Outcome(violations, kinds, len(evicted), len(world.processes))


def try_every_crash(contest: Contest) -> Iterator[tuple[CrashPoint, Outcome]]:
    """Run a contest once per write of the first process, with a crash before and after it."""
    for at in range(1, len(run_contest(contest).writes) + 1):
        for is_before in (True, False):
            crash = CrashPoint(at, is_before)
            yield crash, run_contest(contest, crash)


def _judge(world: World, contest: Contest, evicted: list[str]) -> Iterator[str]:
    pods = [pod for pod in world.pods() if is_alive(pod)]
    running = Counter(gang_of(pod) for pod in pods if node_of(pod))
    for pod in pods:
        marked = condition_of(pod, operators.PREEMPTED)
        if marked is not None and marked["status"] == "True":
            yield f"{name_of(pod)} is still marked"
        annotations = pod["metadata"].get("annotations") or {}
        if not node_of(pod) and operators.NOMINATION in annotations:
            yield f"{name_of(pod)} is still nominated"
    for gang, minimum in contest.gangs.items():
        if 0 < running[gang] < minimum and contest.trouble != "node":
            yield f"{gang} is left with {running[gang]} of {minimum}"
    if contest.trouble == "none":
        if running["high"] != contest.wanted:
            yield f"{running['high']} of {contest.wanted} are bound"
        nodes = len(world.nodes())
        used = sum(gpus_of(pod) for pod in pods if node_of(pod)) // GPUS
        singles = [name for name in evicted if name.startswith("low-")]
        if singles and used < nodes:
            yield f"{singles} were deleted, and {nodes - used} nodes are free"
