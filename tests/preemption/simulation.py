"""A cluster that preempts at once: arrivals, placements and evictions until nothing changes.

Victims come back and wait. What is simulated is the decision alone; nobody takes time to die.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster

from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionOptions, plan_preemption

if TYPE_CHECKING:
    import random

    from koord.core.model.plan import Assignment, Unit
    from koord.core.model.pods import Pod

MOST_ROUNDS = 200
MOST_PRIORITY = 2**31
OPTIONS = PreemptionOptions(most_steps=20_000_000)


class Simulation:
    """Random arrivals on a few nodes; ``states`` counts the states that were looked at."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._cluster = make_cluster()
        self._quotas = chance.random() < 0.5
        self._born = 0
        self.states = 0
        self.preemptions = 0
        self._least: dict[str, int] = {}
        """Gang -> its minimum."""
        self._nodes = {f"n{at}": chance.choice((2, 4, 8)) for at in range(chance.randint(1, 4))}
        for node, gpus in self._nodes.items():
            self._cluster.nodes(make_node(node).gpu(gpus))
        if self._quotas:
            for name in ("qa", "qb"):
                least = chance.choice((0, 2))
                self._cluster.quotas(make_quota(name, min={GPU: least}, max={GPU: 32}))
        self._cluster.absorb()

    def run(self, arrivals: int = 8) -> None:
        """Let units arrive; after each, wait until nothing changes."""
        for _ in range(arrivals):
            self._arrive()
            self._settle()

    def _arrive(self) -> None:
        chance, name = self._chance, f"u{self._born}"
        self._born += 1
        priority, gpus = chance.choice((0, 5, 10, 20)), chance.choice((1, 1, 2, 4))
        quota = chance.choice(("qa", "qb")) if self._quotas else ""
        if chance.random() < 0.4:
            count = chance.randint(2, 4)
            least = self._least[f"default/{name}"] = chance.randint(1, count)
            self._cluster.pod_groups(make_pod_group(f"default/{name}", least))
            pods = [make_pod(f"{name}-{at}").gang(f"default/{name}") for at in range(count)]
        else:
            pods = [make_pod(name)]
        self._cluster.pods(*(pod.gpu(gpus).priority(priority).quota(quota) for pod in pods))

    def _settle(self) -> None:
        seen: set[frozenset[tuple[str, str]]] = set()
        for _ in range(MOST_ROUNDS):
            self.states += 1
            while self._bind_all():
                pass
            self._check()
            if not self._preempt():
                return
            running = frozenset(
                (pod.name, pod.node) for pod in self._cluster.state.pods.values() if pod.node
            )
            assert running not in seen, "a cycle"
            seen.add(running)
        raise AssertionError("preemption does not end")

    def _check(self) -> None:
        """No node is overcommitted, and no gang runs below its minimum."""
        state = self._cluster.state
        used = Counter[str]()
        for pod in state.pods.values():
            if pod.node:
                used[pod.node] += dict(pod.shape.requests).get(GPU, 0)
        for node, gpus in self._nodes.items():
            assert used[node] <= gpus, f"{node}: {used[node]} of {gpus}"
        for gang, least in self._least.items():
            running = sum(bool(pod.node) for pod in state.gangs.members(gang).values())
            assert running == 0 or running >= least, f"{gang}: {running} of {least}"

    def _bind_all(self) -> bool:
        """Bind what fits; return whether anything did."""
        units = self._cluster.take()
        outcome = self._cluster.decide(units)
        for placement in outcome.placements:
            self._bind(placement.assignments, placement.group)
        return bool(outcome.placements)

    def _preempt(self) -> bool:
        """Preempt for the first unit that can; return whether one did."""
        state = self._cluster.state
        lowest = min(state.evictable, default=MOST_PRIORITY)
        blocked = [
            waiting
            for waiting in self._cluster.queue.blocked.values()
            if min(pod.priority for pod in waiting.unit.pods) > lowest  # as the operators do
        ]
        for waiting in sorted(
            blocked, key=lambda waiting: (-waiting.unit.priority, waiting.unit.key)
        ):
            preemption = plan_preemption(state, waiting.unit, OPTIONS)
            if isinstance(preemption, Preemption) and preemption.victims:
                self.preemptions += 1
                self._carry_out(waiting.unit, preemption)
                return True
        return False

    def _carry_out(self, unit: Unit, preemption: Preemption) -> None:
        """Evict the victims, which wait again, and bind the preemptor as planned."""
        for pod in preemption.pods:
            assert pod.priority < min(pod.priority for pod in unit.pods)
            self._cluster.state.remove_pod(pod.uid)
        outcome = self._cluster.plan(unit)
        assert outcome.placements, "evicted for nothing"
        self._bind(preemption.placement.assignments, preemption.placement.group)
        self._cluster.pods(*(self._reborn(pod) for pod in preemption.pods))

    def _bind(self, assignments: tuple[Assignment, ...], group: str) -> None:
        for assignment in assignments:
            builder = make_pod(assignment.pod.name).released(assignment.node, "p", group, 1, 1)
            bound = builder.running(assignment.node).build()
            self._cluster.pods(
                replace(
                    assignment.pod,
                    node=assignment.node,
                    recorded=bound.recorded,
                    is_gated=False,
                    handling=bound.handling,
                    phase=bound.phase,
                )
            )

    def _reborn(self, pod: Pod) -> Pod:
        """Return the pod that its owner creates in place of a victim."""
        self._born += 1
        fresh = make_pod(pod.name).build()
        return replace(
            pod,
            uid=f"{pod.uid}-{self._born}",
            node="",
            recorded=None,
            is_gated=True,
            handling=fresh.handling,
            phase=fresh.phase,
        )
