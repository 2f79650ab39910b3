"""A gang wants nodes of pods whose owners write whatever keeps these pods there.

Everything is made from a seed: who runs, and which lies it tells. There are finalizers that nobody
takes off, grace periods of years, owners of kind DaemonSet that do not exist, and pods that
terminate for ever before the gang comes. Judged from the objects of the API alone, after all
deadlines: the gang runs if enough pods can go; if not, nobody was deleted in vain. No room is kept:
who waits has it. Nothing stays marked or nominated.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.network import CrashPoint
from tests.model.objects import (
    PodPlan,
    condition_of,
    gang_of,
    is_alive,
    is_terminating,
    make_pod_group,
    name_of,
    node_of,
)
from tests.model.preemptions import Outcome
from tests.model.steps import Step, Story, quiet
from tests.model.world import World, open_world

from koord.api.keys import operators

GPUS = 8
"""Of a node, and of every pod."""
YEARS = 1_000_000_000
DEADLINE = 120.0
"""After all that is waited for: some detours of half a minute each."""
LIES = ("none", "none", "finalizer", "finalizer", "years", "daemon", "ghost")
_STAYS = frozenset({"finalizer", "ghost"})


@dataclass(frozen=True, slots=True)
class Siege:
    """A story, and the lie of each running pod."""

    story: Story
    wanted: int
    lies: dict[str, str] = field(default_factory=dict)

    @property
    def may_run(self) -> bool:
        """Whether the gang can be given room: what never goes holds a node."""
        return sum(lie not in _STAYS for lie in self.lies.values()) >= self.wanted


def make_siege(seed: int) -> Siege:
    rng = random.Random(f"siege {seed}")
    nodes, wanted = rng.randint(2, 5), rng.randint(1, 3)
    lies = {f"low-{at}": rng.choice(LIES) for at in range(nodes)}
    # Liars are the cheapest victims, or as cheap as others.
    dear = rng.choice((0, 1))
    low = [
        PodPlan(
            name,
            GPUS,
            priority=dear if lie == "none" else 0,
            finalizer=lie in _STAYS,
            grace=YEARS if lie == "years" else 0,
            is_daemon=lie == "daemon",
        )
        for name, lie in lies.items()
    ]
    steps = (
        Step(0.0, "be_impatient"),
        *(Step(0.0, "add_node", (f"n{at}", GPUS)) for at in range(nodes)),
        *(Step(0.0, "create_pod", (plan,)) for plan in low),
        Step(0.0, "start"),
        *(Step(6.0, "delete_pod", (name,)) for name, lie in lies.items() if lie == "ghost"),
        Step(6.0, "put_pod_group", (make_pod_group("high", wanted),)),
        *(
            Step(0.0, "create_pod", (PodPlan(f"high-{at}", GPUS, gang="high", priority=10),))
            for at in range(wanted)
        ),
        *(Step(0.0, "create_pod", (PodPlan(f"next-{at}", GPUS),)) for at in range(nodes)),
        Step(DEADLINE, "wait"),
    )
    return Siege(Story(seed, steps), wanted, lies)


def run_siege(siege: Siege, crash: CrashPoint | None = None) -> Outcome:
    """Run a siege to its end."""
    steps = siege.story.steps
    if crash is not None:
        steps = (Step(0.0, "crash_at", (crash,)), *steps)
    with quiet(), open_world(siege.story.seed) as world:
        for step in steps:
            step.take(world)
        world.settle()
        evicted = [one.name for one in world.ledger.pods.values() if one.is_evicted]
        violations = [*world.ledger.violations, *_judge(world, siege, evicted)]
        kinds = list(world.network.kinds_of_writes[0])
        return Outcome(violations, kinds, len(evicted), len(world.processes))


def _judge(world: World, siege: Siege, evicted: list[str]) -> Iterator[str]:
    alive = [pod for pod in world.pods() if is_alive(pod)]
    bound = sum(gang_of(pod) == "high" and bool(node_of(pod)) for pod in alive)
    if bound != (siege.wanted if siege.may_run else 0):
        yield f"{bound} of {siege.wanted} are bound, lies: {siege.lies}"
    innocent = [name for name in evicted if siege.lies.get(name) == "none"]
    if innocent and not bound:
        yield f"{innocent} were deleted in vain"
    if len(innocent) > siege.wanted:
        yield f"{innocent} were deleted for {siege.wanted}"
    for pod in alive:
        marked = condition_of(pod, operators.PREEMPTED)
        if marked is not None and marked["status"] == "True":
            yield f"{name_of(pod)} is still marked"
        if not node_of(pod) and operators.NOMINATION in (pod["metadata"].get("annotations") or {}):
            yield f"{name_of(pod)} is still nominated"
    there = [pod for pod in world.pods() if node_of(pod) and (is_alive(pod) or is_terminating(pod))]
    idle = {name_of(node) for node in world.nodes()} - {node_of(pod) for pod in there}
    if idle and any(not node_of(pod) for pod in alive):
        yield f"{sorted(idle)} are idle, and pods wait"
