"""What happens to a random cluster between one round of planning and the next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_quota
from tests.recorded.world import make_a_node

from koord.core.model.nodes import Node, Taint

if TYPE_CHECKING:
    from random import Random

    from tests.recorded.jobs import Job, JobMaker
    from tests.recorded.quotas import Quotas
    from tests.recorded.world import World

    from koord.core.quota.model import QuotaSpec


NO_EXECUTE = Taint("node.kubernetes.io/unreachable", effect="NoExecute")


@dataclass(frozen=True)
class Change:
    """One thing that becomes known: a verb (see ``adapter``) and what it is about."""

    verb: str
    value: Any


@dataclass
class Step:
    """One round: what has changed before it, the time, and whether all that sleeps is woken."""

    now: float
    changes: list[Change] = field(default_factory=list)
    wakes_all: bool = False

    def add(self, verb: str, value: object) -> None:
        """Say one thing more."""
        self.changes.append(Change(verb, value))


def announce(step: Step, job: Job) -> None:
    """Have a job come."""
    for claim in job.claims:
        step.add("claim", claim)
    for group in job.groups:
        step.add("group", group)
    for pod in job.pods:
        step.add("pod", pod)


def lose_members(step: Step, maker: JobMaker, jobs: list[Job], share: float) -> None:
    """Take pods away, wherever they are; many are replaced, at once or never."""
    dice = maker.dice
    for job in jobs:
        for pod in list(job.pods):
            if dice.random() >= share:
                continue
            verb = dice.choice(("remove pod", "remove pod", "fail pod", "end pod", "finish pod"))
            step.add(verb, pod.uid)
            if "started gang" in job.features:
                job.features.add("lost members")
            job.pods.remove(pod)
            if dice.random() < 0.6:
                again = maker.make_replacement(job, pod)
                job.pods.append(again)
                step.add("pod", again)


def change_nodes(step: Step, world: World) -> None:
    """Take a node away, close, fail or relabel it, or add one."""
    dice = world.dice
    for _ in range(dice.choice((0, 1, 1, 2))):
        at = dice.randrange(len(world.nodes))
        node, kind = world.nodes[at], dice.randrange(6)
        if kind == 0 and len(world.nodes) > 2:
            del world.nodes[at]
            step.add("remove node", node.name)
            continue
        if kind == 1:
            size = {key: n for key, n in node.allocatable.items() if key != "pods"}
            world.nodes.append(make_a_node(world, 60 + step_number(step), size))
            step.add("node", world.nodes[-1])
            continue
        world.nodes[at] = changed_node(dice, node, kind)
        step.add("node", world.nodes[at])


def step_number(step: Step) -> int:
    """Return a number that no other step of the scenario has, nor two changes of it."""
    return int(step.now) % 7 * 100 + len(step.changes)


def changed_node(dice: Random, node: Node, kind: int) -> Node:
    """Return a node as it is from now on."""
    if kind == 2:
        return replace(node, is_unschedulable=not node.is_unschedulable)
    if kind == 3:
        return replace(node, taints=() if node.taints else (NO_EXECUTE,))
    if kind == 4:
        zone = dice.choice(("z0", "z1"))
        return replace(node, labels={**node.labels, "zone": zone, "rack": "rack-0"})
    return replace(node, allocatable={**node.allocatable, "cpu": 12_000})


def change_quotas(step: Step, dice: Random, quotas: Quotas) -> None:
    """Change what a quota may have, or take it away."""
    for _ in range(dice.choice((0, 1, 1, 2)) if quotas.specs else 0):
        at = dice.randrange(len(quotas.specs))
        spec = quotas.specs[at]
        if dice.random() < 0.1:
            step.add("remove quota", (spec.namespace, spec.name))
            continue
        if spec.name == "broken":
            step.add("quota", make_quota(spec.parent, "q", is_parent=True, max=spec.max))
        quotas.specs[at] = changed_quota(dice, spec)
        step.add("quota", quotas.specs[at])


def changed_quota(dice: Random, spec: QuotaSpec) -> QuotaSpec:
    """Return a quota with another max, min or weight, or other rules."""
    kind = dice.randrange(5)
    if kind == 0:
        most = {key: amount * 3 // 2 for key, amount in spec.max.items()}
        return replace(spec, max=most)
    if kind == 1:
        most = {key: max(amount // 2, spec.min.get(key, 0)) for key, amount in spec.max.items()}
        return replace(spec, max=most)
    if kind == 2:
        return replace(spec, min={key: amount // 2 for key, amount in spec.min.items()})
    if kind == 3:
        return replace(spec, weight={key: dice.randint(1, 9) for key in spec.max})
    return replace(spec, lends=not spec.lends)


def change_claims(step: Step, world: World) -> None:
    """Bind a claim that was not, or lose one that was."""
    if not world.claims or world.dice.random() < 0.5:
        return
    at = world.dice.randrange(len(world.claims))
    claim = world.claims[at]
    if world.dice.random() < 0.3:
        step.add("remove claim", claim.key)
        return
    bound = replace(claim, volume=claim.volume or "volume-1", is_bound=True, is_lost=False)
    world.claims[at] = replace(bound, is_exclusive=not claim.is_exclusive)
    step.add("claim", world.claims[at])
