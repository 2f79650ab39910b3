"""A gang waits with room reserved for it while others come and go, with a crash at one write.

Judged from the API's objects alone: once its status tells of reserved room, nobody who came later
starts before it, and its promise moves later only for a cause that is listed. Everything is made
from a seed.
"""

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.model.network import CrashPoint
from tests.model.objects import (
    NAMESPACE,
    PodPlan,
    gang_of,
    make_pod_group,
    name_of,
    node_of,
)
from tests.model.quotas import PATH, make_quota
from tests.model.steps import Step, Story, quiet
from tests.model.store import POD_GROUPS, PODS, Event, Obj
from tests.model.world import World, open_world

from koord.api.keys import operators
from koord.core.queue.promises import MoveCause

LARGE: Final = "large"
URGENT: Final = "urgent"
QUOTA: Final = "team"
_SIZE: Final = 8
_URGENT: Final = 2
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_MOST_WRITES: Final = 14
_TOLD_SECONDS: Final = 65.0
"""A status that changes soon after it was written is written again by then."""


@dataclass(frozen=True, slots=True)
class Race:
    """A story; ``nodes`` is how many there are, and how many members the gang has."""

    story: Story
    nodes: int


def make_race(seed: int) -> Race:
    """Make the race of a seed."""
    rng = random.Random(f"queue race {seed}")
    nodes = rng.randint(2, 4)
    depth = rng.choice((1, 1, 2))
    after = rng.choice((0, 2, 5))
    settings = f'{{"protectAfter": "{after}s", "reserveDepth": {depth}}}'
    quota = make_quota(QUOTA, 0, _SIZE * nodes, {})
    quota["metadata"]["annotations"] = {f"{operators.PREFIX}queue": settings}
    olds = [_make_old(rng, at) for at in range(nodes)]
    has_urgent = nodes > 2 and rng.random() < 0.5
    zones = ["a" if has_urgent and at < _URGENT else "b" for at in range(nodes)]
    small = [
        Step(rng.choice((0.0, 0.02, 0.4)), "create_pod", (_plan(f"small-{at}"),))
        for at in range(rng.randint(1, 3))
    ]
    members = [Step(0.0, "create_pod", (_plan(f"{LARGE}-{at}", LARGE),)) for at in range(nodes)]
    free = [at for at in range(nodes) if not has_urgent or zones[at] == "b"]
    freed = rng.sample(free, rng.randint(1, min(len(free), nodes - 1)))
    ends = [Step(rng.choice((0.0, 0.1, 1.0)), "delete_pod", (f"old-{at}",)) for at in freed]
    late = [*small, *ends]
    rng.shuffle(late)
    crash = CrashPoint(rng.randint(1, _MOST_WRITES), is_before=rng.random() < 0.5)
    steps = (
        Step(0.0, "inject_faults", ((), 0.0, rng.choice((0.0, 0.02, 0.3)))),
        Step(0.0, "crash_at", (crash,)),
        *(Step(0.0, "add_node", (f"n{at}", _SIZE, zone)) for at, zone in enumerate(zones)),
        Step(0.0, "request", ("POST", PATH, quota)),
        *(step for steps in olds for step in steps),
        Step(0.0, rng.choice(("start", "begin_with_standby"))),
        Step(0.3, "put_pod_group", (make_pod_group(LARGE, nodes),)),
        *members,
        Step(rng.choice((0.5, after + 1.5, _TOLD_SECONDS, _TOLD_SECONDS)), "wait"),
        *(_make_urgent(after) if has_urgent else ()),
        *late,
        Step(rng.choice((0.5, 4.0)), "crash"),
        Step(0.2, "create_pod", (_plan("small-late"),)),
        Step(after + 3.0, "wait"),
    )
    return Race(Story(seed, steps), nodes)


def _plan(name: str, gang: str = "") -> PodPlan:
    return PodPlan(name, gpus=_SIZE, gang=gang, quota=QUOTA)


def _make_urgent(after: int) -> list[Step]:
    """Return what creates a gang that comes first by then: it cannot start, and no small one may.

    The large one has room reserved still, though it is not the first of its queue any more.
    """
    steps = [Step(0.0, "put_pod_group", (make_pod_group(URGENT, _URGENT),))]
    for at in range(_URGENT):
        plan = PodPlan(
            f"{URGENT}-{at}", gpus=_SIZE, gang=URGENT, quota=QUOTA, zone="a", priority=10
        )
        pod = plan.render()
        pod["spec"]["activeDeadlineSeconds"] = 300
        steps.append(Step(0.0, "request", ("POST", _PODS, pod)))
    return [*steps, Step(after + 0.5, "wait")]


def _make_old(rng: random.Random, at: int) -> list[Step]:
    """Return what creates a pod that runs, with a limit; nobody may evict it."""
    name = f"old-{at}"
    pod = PodPlan(name, gpus=_SIZE, gated=False, quota=QUOTA, node=f"n{at}").render()
    pod["spec"] |= {"priority": 20, "activeDeadlineSeconds": rng.choice((300, 600, 900))}
    return [Step(0.0, "request", ("POST", _PODS, pod)), Step(0.0, "accept_pod", (name,))]


@dataclass(slots=True)
class _Watcher:
    """Follows what the status of the gang tells, and who starts."""

    world: World
    violations: list[str]
    is_reserved: bool = False
    """Whether a status has told of reserved room, once: nothing here takes that away."""
    promised: str = ""
    told: int = 0
    """How many statuses have told of reserved room."""
    _bound: set[str] = field(default_factory=set)

    def hear(self, event: Event) -> None:
        if event.kind == POD_GROUPS and name_of(event.obj) == LARGE:
            self._note_group(event.obj)
        elif event.kind == PODS and event.type != "DELETED":
            self._note_pod(event.obj)

    def _note_group(self, group: Obj) -> None:
        queue: dict[str, Any] = (group.get("status") or {}).get("queue") or {}
        is_told = bool(queue.get("reservation"))
        self.is_reserved |= is_told
        self.told += is_told
        latest = queue.get("startNoLaterThan", "")
        if self.promised and latest > self.promised:
            cause = (queue.get("lastMove") or {}).get("cause", "nothing")
            if cause in {"nothing", MoveCause.OTHER}:
                self.violations.append(f"{self.promised} moved to {latest} for {cause}")
        self.promised = latest or self.promised

    def _note_pod(self, pod: Obj) -> None:
        name = name_of(pod)
        if not node_of(pod) or name in self._bound:
            return
        self._bound.add(name)
        if self.is_reserved and name.startswith("small"):
            self.violations.append(f"{name} starts before the gang that it would delay")


@dataclass(slots=True)
class Result:
    """The outcome of a race."""

    violations: list[str] = field(default_factory=list)
    processes: int = 0
    told: int = 0


def run_race(race: Race) -> Result:
    """Run a race to its end: the last that run end, and the gang starts whole."""
    result = Result()
    with quiet(), open_world(race.story.seed) as world:
        watcher = _Watcher(world, result.violations)
        world.server.store.listeners.append(watcher.hear)
        for step in race.story.steps:
            step.take(world)
        small = [name_of(pod) for pod in world.pods() if _is_small(pod) and node_of(pod)]
        urgent = [name_of(pod) for pod in world.pods() if gang_of(pod) == URGENT]
        for name in [*small, *urgent, *(f"old-{at}" for at in range(race.nodes))]:
            world.delete_pod(name)
        world.settle()
        result.violations += world.ledger.violations
        members = [pod for pod in world.pods() if gang_of(pod) == LARGE]
        started = sum(bool(node_of(pod)) for pod in members)
        if started != race.nodes and watcher.told:
            result.violations.append(f"{started} of {race.nodes} members have started")
        result.processes, result.told = len(world.processes), watcher.told
    return result


def _is_small(pod: Obj) -> bool:
    return name_of(pod).startswith("small")
