"""A gang wants nodes of pods whose owners write whatever keeps these pods there.

Everything is made from a seed: who runs, and which lies it tells. There are finalizers that nobody
takes off, grace periods of years, owners of kind DaemonSet that do not exist, pods that terminate
for ever before the gang comes, and disruption budgets: of 0, several for one pod, one of another
namespace that says nothing. Judged from the objects of the API alone, after all
deadlines: the gang runs if enough pods can go; if not, nobody was deleted in vain. No room is kept:
who waits has it. Nothing stays marked or nominated.
"""

import random
from collections.abc import Callable, Iterator
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
    quota_of,
)
from tests.model.preemptions import Outcome
from tests.model.quotas import ROOT
from tests.model.steps import Step, Story, quiet
from tests.model.world import World, open_world

from koord.api.keys import operators

GPUS = 8
"""Of a node, and of every pod."""
YEARS = 1_000_000_000
DEADLINE = 120.0
"""After all that is waited for: some detours of half a minute each."""
LIES = ("none", "none", "finalizer", "finalizer", "years", "daemon", "ghost", "budget", "budgets")
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
            app=name,
        )
        for name, lie in lies.items()
    ]
    steps = (
        Step(0.0, "be_impatient"),
        *(Step(0.0, "add_node", (f"n{at}", GPUS)) for at in range(nodes)),
        *(Step(0.0, "create_pod", (plan,)) for plan in low),
        *_make_budgets(lies),
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


def make_debt(seed: int) -> Siege:
    """Make a siege of a quota that lends: its owner is guaranteed what pods of another one use."""
    rng = random.Random(f"debt {seed}")
    nodes = rng.randint(2, 4)
    wanted = rng.randint(1, nodes)
    lies = {f"low-{at}": rng.choice([lie for lie in LIES if lie != "ghost"]) for at in range(nodes)}
    plans = [
        PodPlan(
            name,
            GPUS,
            quota="qa",
            finalizer=lie in _STAYS,
            grace=YEARS if lie == "years" else 0,
            is_daemon=lie == "daemon",
            app=name,
        )
        for name, lie in lies.items()
    ]
    steps = (
        Step(0.0, "reclaim_over_use"),
        Step(0.0, "put_quota", (ROOT, GPUS * wanted, 8 * GPUS)),
        Step(0.0, "put_quota", ("qa", 0, 8 * GPUS)),
        Step(0.0, "put_quota", ("qb", GPUS * wanted, 8 * GPUS)),
        *(Step(0.0, "add_node", (f"n{at}", GPUS)) for at in range(nodes)),
        *_make_budgets(lies),
        Step(0.0, "start"),
        *(Step(0.0, "create_pod", (plan,)) for plan in plans),
        *(
            Step(8.0 * (not at), "create_pod", (PodPlan(f"high-{at}", GPUS, quota="qb"),))
            for at in range(wanted)
        ),
        Step(DEADLINE, "wait"),
    )
    return Siege(Story(seed, steps), wanted, lies)


def _make_budgets(lies: dict[str, str]) -> Iterator[Step]:
    for name, lie in lies.items():
        if lie == "budget":
            yield Step(0.0, "put_budget", (name, name, 0))
        elif lie == "budgets":
            yield Step(0.0, "put_budget", (f"{name}-a", name, 1))
            yield Step(0.0, "put_budget", (f"{name}-b", name, 1))
        else:
            yield Step(0.0, "put_budget", (name, name, 0, "elsewhere"))


def run_debt(siege: Siege, crash: CrashPoint | None = None) -> Outcome:
    """Run a siege of a quota to its end."""
    return _run(siege, crash, _judge_debt)


def run_siege(siege: Siege, crash: CrashPoint | None = None) -> Outcome:
    """Run a siege to its end."""
    return _run(siege, crash, _judge)


def _run(
    siege: Siege,
    crash: CrashPoint | None,
    judge: Callable[[World, Siege, list[str]], Iterator[str]],
) -> Outcome:
    steps = siege.story.steps
    if crash is not None:
        steps = (Step(0.0, "crash_at", (crash,)), *steps)
    with quiet(), open_world(siege.story.seed) as world:
        for step in steps:
            step.take(world)
        world.settle()
        evicted = [one.name for one in world.ledger.pods.values() if one.is_evicted]
        violations = [*world.ledger.violations, *judge(world, siege, evicted)]
        kinds = list(world.network.kinds_of_writes[0])
        return Outcome(violations, kinds, len(evicted), len(world.processes))


def _judge_debt(world: World, siege: Siege, evicted: list[str]) -> Iterator[str]:
    """Everybody who is entitled runs for whom there is a pod that can go."""
    alive = [pod for pod in world.pods() if is_alive(pod)]
    bound = sum(quota_of(pod) == "qb" and bool(node_of(pod)) for pod in alive)
    movable = sum(lie not in _STAYS for lie in siege.lies.values())
    if bound != min(siege.wanted, movable):
        yield f"{bound} of {siege.wanted} are bound, lies: {siege.lies}"
    innocent = [name for name in evicted if siege.lies.get(name) == "none"]
    if len(innocent) > bound:
        yield f"{innocent} were evicted for {bound}"
    for pod in alive:
        marked = condition_of(pod, operators.OVER_ENTITLEMENT)
        if marked is not None and marked["status"] == "True":
            yield f"{name_of(pod)} is still marked"


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
