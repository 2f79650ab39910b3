"""A cluster in memory for the tests of the core: filled fluently, planned by hand.

The only place in these tests that constructs a ``ClusterState`` and opens cycles. Knows no rule.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tests.builders import (
    NodeBuilder,
    PodBuilder,
    PodGroupBuilder,
    make_node,
    make_pod,
    make_pod_group,
)
from tests.objects import upsert_pod_group, upsert_quota, upsert_topology

from koord.core.engine.planner import plan
from koord.core.engine.queue import Queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Demand, Plan, Unit
from koord.core.topology.cache import Topology
from koord.domains.registry import make_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from koord.core.engine.cycle import Cycle
    from koord.core.engine.plugin import Plugin
    from koord.core.model.changes import Feed
    from koord.core.model.nodes import Node
    from koord.core.model.pods import Pod
    from koord.core.model.reasons import Reason
    from koord.core.quota.model import QuotaSpec
    from koord.core.topology.layers import Layer

SCORING = Scoring()


def open_cycle(
    state: ClusterState,
    pending: Callable[[], Iterable[Unit]] = tuple,
    *,
    is_deciding: bool = False,
) -> Cycle:
    """Open a cycle on a state that somebody else has filled."""
    state.refresh()
    return state.open_cycle(pending, is_deciding=is_deciding)


def plan_in(cycle: Cycle, units: Iterable[Unit]) -> Plan:
    """Plan units in a cycle, which afterwards holds the outcome."""
    return plan(cycle, units, SCORING)


def plan_once(state: ClusterState, units: Iterable[Unit]) -> Plan:
    """Plan units in a cycle of their own; the state stays as it is."""
    return plan_in(open_cycle(state), units)


class FakeCluster:
    """A ``ClusterState`` with a queue; methods that fill it return the cluster."""

    def __init__(
        self, *, compat: bool = False, more_plugins: Iterable[Plugin] = (), **options: Any
    ) -> None:
        plugins = make_plugins(*options.values(), compat=compat)
        self.state = ClusterState([*plugins, *more_plugins], compat=compat)

    @cached_property
    def feed(self) -> Feed:
        return self.state.feed()

    @cached_property
    def queue(self) -> Queue:
        return Queue()

    # Content

    def nodes(self, *nodes: Node | NodeBuilder) -> Self:
        for node in nodes:
            self.state.upsert_node(node.build() if isinstance(node, NodeBuilder) else node)
        return self

    def pods(self, *pods: Pod | PodBuilder) -> Self:
        for pod in pods:
            self.state.upsert_pod(pod.build() if isinstance(pod, PodBuilder) else pod)
        return self

    def pod_groups(self, *groups: Any) -> Self:
        for group in groups:
            built = group.build() if isinstance(group, PodGroupBuilder) else group
            upsert_pod_group(self.state, built)
        return self

    def gang(self, name: str, count: int, minimum: int | None = None, *, gpus: int = 8) -> Self:
        """Add PodGroup ``default/name`` and its members ``name-0`` …, which are waiting."""
        key = f"default/{name}"
        self.pod_groups(make_pod_group(key, count if minimum is None else minimum))
        return self.pods(
            *(make_pod(f"{name}-{at}").gang(key).gpu(gpus).created(at) for at in range(count))
        )

    def quotas(self, *specs: QuotaSpec) -> Self:
        for spec in specs:
            upsert_quota(self.state, spec)
        return self

    def topology(self, *layers: Layer, name: str = "default") -> Self:
        upsert_topology(self.state, Topology(name, layers))
        return self

    def delete_pods(self, *names: str) -> Self:
        """Delete pods of namespace ``default``."""
        for name in names:
            self.state.remove_pod(self.pod(name).uid)
        return self

    def pod(self, name: str) -> Pod:
        """Return a pod of namespace ``default``."""
        pod = self.state.pod_by_key(f"default/{name}")
        assert pod is not None, name
        return pod

    def row(self, node: str) -> int:
        """Return the row of a node in the node table."""
        return self.state.table.row_of[node]

    # Planning without the queue

    def open_cycle(self, pending: Callable[[], Iterable[Unit]] = tuple) -> Cycle:
        return open_cycle(self.state, pending)

    def copies(self, pod: Pod | PodBuilder) -> dict[str, int]:
        """Return, per node in the order of rows, how many pods like this one it can take."""
        subject = pod.build() if isinstance(pod, PodBuilder) else pod
        cycle = self.open_cycle()
        room = cycle.room(cycle.shape_of(subject))
        return {name: int(room[row]) for name, row in self.state.table.live_rows()}

    def feasible(self, pod: Pod | PodBuilder) -> str:
        """Return the names of the nodes that can take a pod, separated by spaces."""
        return " ".join(name for name, count in self.copies(pod).items() if count)

    def plan(self, *units: Unit, pending: Callable[[], Iterable[Unit]] = tuple) -> Plan:
        """Plan units; the state stays as it is."""
        return plan_in(self.open_cycle(pending), units)

    def place(self, *units: Unit) -> Plan:
        """Plan units and assume the outcome."""
        outcome = self.plan(*units)
        self.assume(outcome)
        return outcome

    def assume(self, outcome: Plan) -> list[str]:
        """Count placed pods on their nodes; return their names."""
        placed = [
            assignment for placement in outcome.placements for assignment in placement.assignments
        ]
        for assignment in placed:
            self.state.assume(assignment.pod.uid, assignment.node, assignment.allocations)
        return [assignment.pod.name for assignment in placed]

    # Planning with the queue, as the operators do

    def absorb(self) -> Queue:
        """Let the queue see what has changed."""
        self.queue.absorb(self.feed.drain(), self.state)
        self.queue.wake_units(self.state.take_due())
        return self.queue

    def take(self, now: float = 0.0, most: int = 100) -> list[Unit]:
        """Return the units that are due."""
        queue = self.absorb()
        queue.refresh(now)
        return list(queue.take(now, most, self.state))

    def decide(self, units: Iterable[Unit]) -> Plan:
        """Plan units that were taken, and put those that are refused to sleep."""
        taken = {unit.key: unit for unit in units}
        cycle = open_cycle(
            self.state, lambda: self.queue.by_time(*taken.values()), is_deciding=True
        )
        outcome = plan_in(cycle, taken.values())
        self.state.note_plan(cycle, outcome)
        for refusal in outcome.refusals:
            self.queue.refuse(taken[refusal.unit], refusal)
        return outcome

    def step(self, now: float = 0.0) -> list[str]:
        """Plan everything that is due and assume the outcome; return the names of pods placed."""
        return self.assume(self.decide(self.take(now)))

    def reasons(self) -> dict[str, Reason]:
        """Return why each unit sleeps, by the name of its first pod."""
        return {
            blocked_unit.pods[0].name: blocked_unit.reason
            for blocked_unit in self.queue.blocked.values()
        }

    def reason(self) -> Reason:
        """Return why the only sleeping unit sleeps."""
        (blocked,) = self.queue.blocked.values()
        return blocked.reason


def make_cluster(nodes: int = 0, *, gpus: int = 8, **options: Any) -> FakeCluster:
    """Start a cluster of equal nodes ``n0`` …; ``options`` are those of domains."""
    cluster = FakeCluster(**options)
    return cluster.nodes(*(make_node(f"n{at}").gpu(gpus) for at in range(nodes)))


def make_unit(name: str, pods: Iterable[Pod | PodBuilder], required: int | None = None) -> Unit:
    """Make a unit of one demand; without ``required`` all pods are."""
    built = tuple(pod.build() if isinstance(pod, PodBuilder) else pod for pod in pods)
    return Unit(name, (Demand(name, built, len(built) if required is None else required),), name)


def nodes_of(outcome: Plan, at: int = 0) -> dict[str, str]:
    """Return pod name -> node of one placement, which has to be there."""
    return {
        assignment.pod.name: assignment.node for assignment in outcome.placements[at].assignments
    }


def placed_on(outcome: Plan) -> dict[str, str]:
    """Return pod name -> node of all placements; empty when nothing was placed."""
    return {
        assignment.pod.name: assignment.node
        for placement in outcome.placements
        for assignment in placement.assignments
    }
