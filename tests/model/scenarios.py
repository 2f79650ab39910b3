"""Scenarios, generated from a seed.

The remainders of the seed choose the family of pods, the capacity and the trouble (none, others who
interfere, a failing server), so consecutive seeds cover all combinations.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.model.network import Fault
from tests.model.objects import OTHER_GATE, OTHER_SCHEDULER, PodPlan, make_pod_group
from tests.model.steps import Step, Story
from tests.model.store import NODES, POD_GROUPS, PODS

from koord.api.keys import operators

FAMILIES = (
    "gated",
    "ungated",
    "pinned",
    "mixed",
    "group",
    "singles",
    "elastic",
    "crowded",
    "raced",
)
"""Kinds of pods. Raced: a member is deleted while its gang starts, watches are late, and others
compete for the room."""
CAPACITY = {"spare": 2, "exact": 0, "short": -1}
"""Capacity -> nodes beyond those that the pods need."""
TROUBLES = ("none", "others", "server", "both")
KINDS = len(FAMILIES) * len(CAPACITY) * len(TROUBLES)
"""This many consecutive seeds cover all combinations once."""
POLICIES = ("", "", "waiting-and-running", "only-waiting")
FAULTS = (
    Fault.LOST_BEFORE,
    Fault.LOST_AFTER,
    Fault.CONFLICT,
    Fault.TOO_MANY,
    Fault.UNAVAILABLE,
    Fault.SLOW,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story with the parameters that it was made from."""

    family: str
    capacity: str
    trouble: str
    story: Story


def make_scenario(seed: int) -> Scenario:
    rest, family = divmod(seed, len(FAMILIES))
    rest, capacity = divmod(rest, len(CAPACITY))
    maker = _Maker(seed, FAMILIES[family], TROUBLES[rest % len(TROUBLES)])
    return maker.make(tuple(CAPACITY)[capacity])


class _Maker:
    def __init__(self, seed: int, family: str, trouble: str) -> None:
        self._rng = random.Random(f"scenario {seed}")
        self._seed = seed
        self._family = family
        self._trouble = trouble
        self._pods: list[PodPlan] = []
        self._gangs: dict[str, int] = {}

    def make(self, capacity: str) -> Scenario:
        rng = self._rng
        if self._family == "raced":
            return Scenario(self._family, capacity, self._trouble, self._make_race(capacity))
        arrivals = [step for source in self._make_sources() for step in source]
        nodes = max(1, self._count_nodes() + CAPACITY[capacity])
        steps = [Step(0.0, "add_node", (f"n{at}",)) for at in range(nodes)]
        early = rng.choice((0, len(arrivals) // 2, len(arrivals)))
        later = arrivals[early:]
        if self._trouble in {"others", "both"}:
            for step in self._interfere(nodes):
                later.insert(rng.randint(0, len(later)), step)
        start = Step(0.0, rng.choice(("start", "begin_with_standby")))
        steps = [self._make_faults(), *steps, *arrivals[:early], start, *later]
        story = Story(self._seed, tuple(steps))
        return Scenario(self._family, capacity, self._trouble, story)

    def _make_race(self, capacity: str) -> Story:
        """A gang that loses a member while it is released, and rivals for the room."""
        rng = self._rng
        members = rng.randint(2, 4)
        kind = PodPlan("", 8, scheduler=rng.choice((OTHER_SCHEDULER, operators.SCHEDULER_NAME)))
        plans = [replace(kind, name=f"a-{at}", gang="a") for at in range(members)]
        rivals = [PodPlan(f"p-{at}", 8, gated=rng.random() < 0.5) for at in range(2)]
        nodes = range(members + max(0, CAPACITY[capacity]))
        lost = Step(rng.choice((0.0, 0.02, 0.1)), "delete_pod", (rng.choice(plans).name,))
        interferences = self._interfere(len(nodes)) if self._trouble in {"others", "both"} else ()
        self._pods += plans
        self._gangs["a"] = members
        steps = [
            *(Step(0.0, "add_node", (f"n{at}",)) for at in nodes),
            Step(0.0, "put_pod_group", (make_pod_group("a", members),)),
            Step(0.0, rng.choice(("start", "begin_with_standby"))),
            replace(self._make_faults((0.5, 3.0)), wait=0.1),
            *(self._create(plan) for plan in plans),
            *(Step(0.0, "create_pod", (plan,)) for plan in rivals),
            lost,
            *interferences,
        ]
        return Story(self._seed, tuple(steps))

    def _make_faults(self, lags: tuple[float, ...] = (0.0, 0.02, 0.5, 3.0)) -> Step:
        rng = self._rng
        lag = rng.choice(lags)
        faults: tuple[Fault, ...] = ()
        if self._trouble in {"server", "both"}:
            faults = tuple(rng.sample(FAULTS, 2))
        return Step(0.0, "inject_faults", (faults, rng.choice((0.15, 0.6)), lag))

    def _make_sources(self) -> Iterator[list[Step]]:
        if self._family == "singles":
            for at in range(self._rng.randint(2, 5)):
                yield [self._create(self._plan(f"p-{at}", ""))]
        elif self._family == "group":
            groups = ("a", "b", "c")[: self._rng.randint(2, 3)]
            for name in groups:
                yield self._make_gang(name, groups)
        else:
            for name in "abc"[: 3 if self._family == "crowded" else self._rng.randint(1, 2)]:
                yield self._make_gang(name)

    def _make_gang(self, name: str, groups: tuple[str, ...] = ()) -> list[Step]:
        rng = self._rng
        members = rng.randint(2, 4)
        minimum = members - (rng.randint(1, 2) if self._family == "elastic" else 0)
        priority = rng.choice((0, 0, 5))
        policy = rng.choice(POLICIES)
        self._gangs[name] = minimum
        steps = [Step(0.0, "put_pod_group", (make_pod_group(name, minimum, groups, policy),))]
        for at in range(members):
            plan = replace(self._plan(f"{name}-{at}", name), priority=priority)
            steps.insert(rng.randint(0, len(steps)), self._create(plan))
        return steps

    def _plan(self, name: str, gang: str) -> PodPlan:
        rng = self._rng
        gated = PodPlan(name, gpus=8 if self._family != "crowded" else 4, gang=gang)
        ungated = replace(gated, gated=False)
        pinned = replace(gated, scheduler=OTHER_SCHEDULER)
        match self._family:
            case "ungated":
                return ungated
            case "pinned":
                return pinned
            case "mixed" | "crowded":
                return rng.choice((gated, ungated, pinned))
            case "singles":
                return rng.choice((gated, ungated, pinned, replace(gated, other_gate=True)))
        return gated

    def _create(self, plan: PodPlan) -> Step:
        self._pods.append(plan)
        return Step(self._rng.choice((0.0, 0.0, 0.01, 0.3)), "create_pod", (plan,))

    def _count_nodes(self) -> int:
        return -(-sum(plan.gpus for plan in self._pods) // 8)

    def _interfere(self, nodes: int) -> Iterator[Step]:
        rng = self._rng
        for at in range(rng.randint(1, 4)):
            wait = rng.choice((0.0, 0.01, 0.05, 1.0))
            call, *args = rng.choice(self._list_interferences(at, f"n{rng.randrange(nodes)}"))
            yield Step(wait, call, tuple(args))

    def _list_interferences(self, at: int, node: str) -> list[tuple[object, ...]]:
        rng = self._rng
        plan = rng.choice(self._pods)
        stranger = PodPlan(f"s-{at}", gated=False, scheduler=OTHER_SCHEDULER)
        found: list[tuple[object, ...]] = [
            ("delete_pod", plan.name),
            ("create_pod", plan),
            ("end_pod", plan.name, rng.choice(("Succeeded", "Failed"))),
            ("create_pod", stranger),
            ("create_pod", replace(stranger, node=node)),
            ("bind_for_others", plan.name, node),
            ("remove_node", node),
            ("cordon", node),
            ("resize_node", node, 4),
            ("add_node", f"m{at}"),
            ("expire", rng.choice((PODS, NODES, POD_GROUPS))),
            ("drop_gate", plan.name, operators.PLACEMENT_GATE),
            ("drop_gate", plan.name, OTHER_GATE),
        ]
        if plan.gang:
            minimum = max(1, self._gangs[plan.gang] + rng.choice((-1, 1)))
            found += [
                ("put_pod_group", make_pod_group(plan.gang, minimum)),
                ("delete_pod_group", plan.gang),
                ("move_pod", plan.name, rng.choice(("a", "b", ""))),
            ]
        return found
