"""Random operations in any order, as a state machine of hypothesis.

An operation is one action of a user, a node or the network, or a crash. Every operation becomes a
step of a story, so that a failure can be printed, replayed and shortened without hypothesis.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.model.network import Fault
from tests.model.objects import OTHER_GATE, OTHER_SCHEDULER, PodPlan, make_pod_group, name_of
from tests.model.quotas import LIMITS
from tests.model.steps import Step, Story, quiet, rest
from tests.model.store import KINDS
from tests.model.world import World, open_world

from koord.api.keys import operators

KINDS_OF_POD = {
    "gated": PodPlan(""),
    "ungated": PodPlan("", gated=False),
    "pinned": PodPlan("", scheduler=OTHER_SCHEDULER),
    "behind": PodPlan("", other_gate=True),
    "stranger": PodPlan("", gated=False, scheduler=OTHER_SCHEDULER),
}
OURS = ("gated", "ungated", "pinned")
GENTLE = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.TOO_MANY, Fault.UNAVAILABLE, Fault.SLOW)
WRONG = (Fault.CONFLICT, Fault.FORBIDDEN)
"""The server reports an error that is not true."""
QUOTA_OF = {"a": "qa", "b": "qb", "c": "qa", "p-0": "qa", "p-1": "qb", "p-2": "qb", "p-3": "qb"}
"""Gang or single pod -> its quota; the others have none."""
POLICIES = ("", "", "waiting-and-running", "only-waiting")

kinds = st.sampled_from(sorted(KINDS_OF_POD))
ours = st.sampled_from(OURS)
gangs = st.sampled_from(("a", "b", "c"))
indices = st.integers(0, 11)
sizes = st.sampled_from((2, 4, 8))
limits = st.sampled_from([(name, *pair) for name, pairs in LIMITS.items() for pair in pairs])
waits = st.sampled_from((0.0, 0.004, 0.02, 0.3))


class RuleBroken(AssertionError):  # noqa: N818 - the message is the finding
    """A rule was broken by the steps of ``story``."""

    def __init__(self, story: Story, violations: list[str]) -> None:
        super().__init__("\n".join(violations))
        self.story = story
        self.violations = violations


class Machine(RuleBasedStateMachine):
    """Draws operations; most take no time, so that they interleave with writes in flight."""

    operations = 0
    """Count over all machines."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._steps: list[Step] = []
        self._seed = 0
        self._has_quotas = False
        self._is_broken = False
        self.world: World

    @initialize(
        seed=st.integers(0, 1 << 30),
        nodes=st.integers(1, 4),
        lag=st.sampled_from((0.0, 0.02, 0.5)),
        has_standby=st.booleans(),
        has_quotas=st.booleans(),
    )
    def begin(
        self, seed: int, nodes: int, lag: float, *, has_standby: bool, has_quotas: bool
    ) -> None:
        self._seed = seed
        self._stack.enter_context(quiet())
        self.world = self._stack.enter_context(open_world(seed))
        self._take(0.0, "inject_faults", (), 0.0, lag)
        for at in range(nodes):
            self._take(0.0, "add_node", f"n{at}")
        if has_quotas:
            self._has_quotas = True
            self._take(0.0, "reclaim_over_use")
            for at in range(2):
                self._take(0.0, "add_node", f"large-{at}", 16)
            for name, limits in LIMITS.items():
                self._take(0.0, "put_quota", name, *limits[-1])
        self._take(0.0, "begin_with_standby" if has_standby else "start")
        self._take(0.1, "wait")

    # Pods and gangs

    @rule(
        name=gangs,
        shape=st.tuples(st.integers(2, 4), st.integers(0, 1)),
        kind=ours,
        gpus=sizes,
        policy=st.sampled_from(POLICIES),
        wait=waits,
    )
    def create_gang(self, name: str, *, shape: tuple[int, int], policy: str, **how: Any) -> None:
        minimum, spare = shape
        self._create_gang(make_pod_group(name, minimum, (), policy), minimum + spare, **how)

    @rule(kind=ours, gpus=sizes, wait=waits)
    def create_group(self, **how: Any) -> None:
        """Two gangs of one group."""
        for name in ("a", "b"):
            self._create_gang(make_pod_group(name, 2, ("a", "b")), 2, **how)

    @rule(name=gangs, size=st.integers(2, 4), at=indices, rival=st.integers(0, 5), wait=waits)
    def create_raced_gang(self, name: str, *, size: int, at: int, rival: int, wait: float) -> None:
        """A gang that loses a member at once, and a rival for the room."""
        kind = OURS[at % len(OURS)]
        self._create_gang(make_pod_group(name, size), size, kind=kind, gpus=8, wait=wait)
        self._do(0.0, "create_pod", self._plan("gated", f"p-{rival}", gpus=8))
        self._do(0.0, "delete_pod", f"{name}-{at % size}")

    @rule(name=gangs, at=st.integers(0, 5), kind=kinds, gpus=sizes, wait=waits)
    def create_member(self, name: str, at: int, kind: str, gpus: int, wait: float) -> None:
        """One member; the PodGroup may be missing."""
        self._do(wait, "create_pod", self._plan(kind, f"{name}-{at}", gpus=gpus))

    @rule(at=st.integers(0, 5), kind=kinds, gpus=sizes, finalizer=st.booleans(), wait=waits)
    def create_single(self, at: int, kind: str, wait: float, **what: Any) -> None:
        self._do(wait, "create_pod", self._plan(kind, f"p-{at}", **what))

    @rule(name=gangs, minimum=st.integers(1, 4), wait=waits)
    def put_pod_group(self, name: str, minimum: int, wait: float) -> None:
        self._do(wait, "put_pod_group", make_pod_group(name, minimum))

    @rule(name=gangs, wait=waits)
    def delete_pod_group(self, name: str, wait: float) -> None:
        self._do(wait, "delete_pod_group", name)

    @rule(at=indices, wait=waits)
    def delete_pod(self, at: int, wait: float) -> None:
        self._do_to_pod(at, wait, "delete_pod")

    @rule(at=indices, kind=kinds, gpus=sizes, wait=waits)
    def recreate_pod(self, at: int, kind: str, gpus: int, wait: float) -> None:
        """A new pod under the same name, before the deletion of the old one is observed."""
        if name := self._pick_pod(at):
            self._take(0.0, "delete_pod", name)
            self._do(wait, "create_pod", self._plan(kind, name, gpus=gpus))

    @rule(at=indices, phase=st.sampled_from(("Succeeded", "Failed")), wait=waits)
    def end_pod(self, at: int, phase: str, wait: float) -> None:
        self._do_to_pod(at, wait, "end_pod", phase)

    @rule(at=indices, gate=st.sampled_from((OTHER_GATE, operators.PLACEMENT_GATE)), wait=waits)
    def drop_gate(self, at: int, gate: str, wait: float) -> None:
        self._do_to_pod(at, wait, "drop_gate", gate)

    @rule(at=indices, gang=st.sampled_from(("a", "b", "c", "")), wait=waits)
    def move_pod(self, at: int, gang: str, wait: float) -> None:
        self._do_to_pod(at, wait, "move_pod", gang)

    @rule(at=indices, wait=waits)
    def drop_finalizers(self, at: int, wait: float) -> None:
        self._do_to_pod(at, wait, "drop_finalizers")

    @rule(at=indices, node=indices, wait=waits)
    def bind_for_others(self, at: int, node: int, wait: float) -> None:
        if target := self._pick_node(node):
            self._do_to_pod(at, wait, "bind_for_others", target)

    # Quotas

    @precondition(lambda self: self._has_quotas)
    @rule(limits=limits, wait=waits)
    def put_quota(self, limits: tuple[str, int, int], wait: float) -> None:
        """Other limits; what then is over-used is reclaimed for others, or beyond ``max``."""
        self._do(wait, "put_quota", *limits)

    # Nodes

    @rule(at=st.integers(0, 5), gpus=st.sampled_from((4, 8)), wait=waits)
    def add_node(self, at: int, gpus: int, wait: float) -> None:
        self._do(wait, "add_node", f"n{at}", gpus)

    @rule(at=indices, wait=waits)
    def remove_node(self, at: int, wait: float) -> None:
        if name := self._pick_node(at):
            self._do(wait, "remove_node", name)

    @rule(at=indices, gpus=st.sampled_from((0, 4, 8, 16)), wait=waits)
    def resize_node(self, at: int, gpus: int, wait: float) -> None:
        if name := self._pick_node(at):
            self._do(wait, "resize_node", name, gpus)

    @rule(at=indices, call=st.sampled_from(("cordon", "uncordon")), wait=waits)
    def cordon(self, at: int, call: str, wait: float) -> None:
        if name := self._pick_node(at):
            self._do(wait, call, name)

    # Network and crashes

    @rule(
        faults=st.sets(st.sampled_from(GENTLE), max_size=3),
        rate=st.sampled_from((0.1, 0.5)),
        lag=st.sampled_from((0.0, 0.02, 0.5, 5.0)),
    )
    def change_faults(self, faults: set[Fault], rate: float, lag: float) -> None:
        self._do(0.0, "inject_faults", tuple(sorted(faults)), rate, lag)

    @rule(fault=st.sampled_from(WRONG), other=st.sampled_from((Fault.SLOW, Fault.LOST_AFTER)))
    def refuse(self, fault: Fault, other: Fault) -> None:
        self._do(0.0, "inject_faults", (fault, other), 0.3, self.world.network.injected.lag)

    @rule(kind=st.sampled_from(KINDS), call=st.sampled_from(("break_watch", "expire")), wait=waits)
    def break_watches(self, kind: str, call: str, wait: float) -> None:
        self._do(wait, call, kind)

    @rule(writes=st.integers(0, 6), when=st.sampled_from(("before", "after")), wait=waits)
    def crash(self, writes: int, when: str, wait: float) -> None:
        """Crash the leader now, or a few writes later."""
        self._do(wait, "crash", writes, when)

    # Time

    @rule(seconds=st.sampled_from((0.01, 0.1, 1.0, 8.0)))
    def wait(self, seconds: float) -> None:
        self._do(seconds, "wait")

    @precondition(lambda self: self.world.actions >= 5)
    @rule()
    def rest(self) -> None:
        self._do(0.0, "rest")

    def teardown(self) -> None:
        with self._stack:
            if hasattr(self, "world") and not self._is_broken:
                rest(self.world)
                self._check()

    # Steps

    def _do(self, wait: float, call: str, *args: Any) -> None:
        """Take a step that counts as an operation."""
        Machine.operations += 1
        self._take(wait, call, *args)

    def _do_to_pod(self, at: int, wait: float, call: str, *args: Any) -> None:
        if name := self._pick_pod(at):
            self._do(wait, call, name, *args)

    def _take(self, wait: float, call: str, *args: Any) -> None:
        step = Step(wait, call, args)
        self._steps.append(step)
        step.take(self.world)
        self._check()

    def _create_gang(self, group: Any, count: int, *, kind: str, gpus: int, wait: float) -> None:
        name = name_of(group)
        self._do(wait, "put_pod_group", group)
        for at in range(count):
            self._take(0.0, "create_pod", self._plan(kind, f"{name}-{at}", gpus=gpus))

    def _plan(self, kind: str, name: str, **what: Any) -> PodPlan:
        """Describe a pod; its name says its gang and its quota."""
        owner = name[0]
        quota = QUOTA_OF.get(owner if owner != "p" else name, "") if self._has_quotas else ""
        gang = owner if owner != "p" else ""
        return replace(KINDS_OF_POD[kind], name=name, gang=gang, quota=quota, **what)

    def _check(self) -> None:
        if self.world.ledger.violations:
            self._is_broken = True
            raise RuleBroken(Story(self._seed, tuple(self._steps)), self.world.ledger.violations)

    def _pick_pod(self, at: int) -> str:
        return _pick([name_of(pod) for pod in self.world.pods()], at)

    def _pick_node(self, at: int) -> str:
        return _pick([name_of(node) for node in self.world.nodes()], at)


def _pick(names: list[str], at: int) -> str:
    return names[at % len(names)] if names else ""
