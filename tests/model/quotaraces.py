"""Two gangs of different quotas compete for the last GPUs, with a crash at one write.

Which of the two wins is left open; that it is exactly one, whole, and that no quota uses more than
it may at any moment, is judged from the API's objects. Everything is made from a seed: how much
there is and who limits it, when which object comes, and where the crash is.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.model.network import CrashPoint
from tests.model.objects import PodPlan, gang_of, gpus_of, make_pod_group, node_of, uid_of
from tests.model.quotas import PATH, make_quota
from tests.model.steps import Step, Story, quiet
from tests.model.store import PODS, Event, Obj
from tests.model.world import World, open_world

_MOST_WRITES = 16


@dataclass(frozen=True, slots=True)
class Race:
    """A story, and the most that each quota may use."""

    story: Story
    limits: dict[str, int]
    minimum: int


def make_race(seed: int) -> Race:
    """Make the race of a seed."""
    rng = random.Random(f"race {seed}")
    members, gpus = rng.randint(2, 4), rng.choice((4, 8))
    size = members * gpus
    spare = rng.choice((0, gpus, size - gpus))
    is_limited = rng.random() < 0.5
    """Whether the parent quota or the nodes limit both gangs."""
    most = size + spare
    limits = {"org": most, "a": rng.choice((size, most)), "b": rng.choice((size, most))}
    # Quotas come first: a pod whose quota does not exist belongs to none.
    quotas = [Step(0.0, "request", ("POST", PATH, one)) for one in _make_quotas(rng, limits)]
    rng.shuffle(quotas)
    arrivals: list[Step] = []
    for name in ("a", "b"):
        for step in _make_gang(rng, name, members, gpus):
            arrivals.insert(rng.randint(0, len(arrivals)), step)
    room = 2 * size if is_limited else most
    nodes = [Step(0.0, "add_node", (f"n{at}", gpus)) for at in range(room // gpus)]
    crash = CrashPoint(rng.randint(1, _MOST_WRITES), is_before=rng.random() < 0.5)
    early = rng.choice((0, len(arrivals) // 2, len(arrivals)))
    start = Step(0.0, rng.choice(("start", "begin_with_standby")))
    lag = rng.choice((0.0, 0.02, 0.5))
    steps = (
        Step(0.0, "inject_faults", ((), 0.0, lag)),
        Step(0.0, "crash_at", (crash,)),
        *nodes,
        *quotas,
        *arrivals[:early],
        start,
        *arrivals[early:],
    )
    return Race(Story(seed, steps), limits, members)


def _make_quotas(rng: random.Random, limits: dict[str, int]) -> list[Obj]:
    least = rng.choice((0, limits["org"] // 2))
    return [
        make_quota("org", least, limits["org"], {"is-parent": "true"}),
        *(
            make_quota(name, rng.choice((0, least // 2)), limits[name], {"parent": "org"})
            for name in ("a", "b")
        ),
    ]


def _make_gang(rng: random.Random, name: str, members: int, gpus: int) -> list[Step]:
    steps = [Step(0.0, "put_pod_group", (make_pod_group(name, members),))]
    is_gated = rng.random() < 0.8
    for at in range(members):
        pod = PodPlan(f"{name}-{at}", gpus=gpus, gang=name, gated=is_gated, quota=name)
        wait = rng.choice((0.0, 0.0, 0.01, 0.3))
        steps.insert(rng.randint(0, len(steps)), Step(wait, "create_pod", (pod,)))
    return steps


@dataclass(slots=True)
class _Watcher:
    """Sums up the bound pods at every change of a pod."""

    limits: dict[str, int]
    violations: list[str]
    _bound: dict[str, tuple[str, int]] = field(default_factory=dict)

    def hear(self, event: Event) -> None:
        if event.kind != PODS:
            return
        pod: dict[str, Any] = event.obj
        if event.type == "DELETED" or not node_of(pod):
            self._bound.pop(uid_of(pod), None)
            return
        self._bound[uid_of(pod)] = (gang_of(pod), gpus_of(pod))
        for name, most in self.limits.items():
            used = sum(n for quota, n in self._bound.values() if name in {quota, "org"})
            if used > most:
                self.violations.append(f"{name} uses {used} of {most}")


@dataclass(slots=True)
class Result:
    """The outcome of a race."""

    violations: list[str] = field(default_factory=list)
    has_crashed: bool = False


def run_race(race: Race) -> Result:
    """Run a race to its end."""
    result = Result()
    with quiet(), open_world(race.story.seed) as world:
        watcher = _Watcher(race.limits, result.violations)
        world.server.store.listeners.append(watcher.hear)
        for step in race.story.steps:
            step.take(world)
        world.settle()
        result.violations += [*world.ledger.violations, *_judge(world, race.minimum)]
        result.has_crashed = len(world.processes) > 1
    return result


def _judge(world: World, minimum: int) -> list[str]:
    counts = {"a": 0, "b": 0}
    for pod in world.pods():
        counts[gang_of(pod)] += bool(node_of(pod))
    if sorted(counts.values()) != [0, minimum]:
        return [f"of {minimum} members each these are bound: {counts}"]
    return []
