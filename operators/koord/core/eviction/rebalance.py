"""Balancing on a real cluster: what nodes use, which pods may move, and which nodes take them.

A pod may move if it may be evicted at all, a job would move it, its gang does not need it, and no
disruption budget is against it. Its new node is found by a plan in which it has
left its node and all that was decided before has happened. Who moves is decided in
``core.balance``; how in ``core.migration``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from koord.core.autoscaler.nodes import may_end
from koord.core.balance.decide import decide
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import BalanceNode, BalancePod
from koord.core.balance.outcome import MoveRefusal, RoundOutcome
from koord.core.balance.policy import RebalanceSettings
from koord.core.defrag.movable import make_copies
from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.queue import unit_of
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import find_protection, find_surplus, moment_of
from koord.core.eviction.limits import workload_of
from koord.core.eviction.mobility import Mobility
from koord.core.eviction.model import Costs, Moment
from koord.core.eviction.reasons import Protection
from koord.core.load.model import NodeLoad
from koord.core.load.options import own_limits_of
from koord.core.load.plugin import Loads
from koord.core.migration.eligibility import EXPECTED_REPLICAS
from koord.core.migration.model import MigrationOptions
from koord.core.model.budgets import Budget
from koord.core.model.koordinator_class import KoordinatorClass, find_class, is_best_effort
from koord.core.model.nodes import Node
from koord.core.model.pods import Handling, Pod, PodPhase

_RANKS: Final = {
    KoordinatorClass.FREE: 1,
    KoordinatorClass.BATCH: 2,
    KoordinatorClass.MID: 3,
    KoordinatorClass.PROD: 4,
}
_REPLACES_ONE: Final = frozenset({"Job", "ReplicaSet", "StatefulSet"})
"""Controllers that create a single lost pod again, and leave the others alone."""
_MOST_TRIES: Final = 200
"""Plans in one round; what is not tried stays until the next."""

_PROTECTED: Final[Mapping[Protection, str]] = {
    Protection.LABEL: "its label spares it",
    Protection.CRITICAL: "its priority is one of the system",
    Protection.FOREIGN: "another scheduler placed it, and would place it again",
    Protection.YOUNG: "it runs for less than minRuntime",
    Protection.STARTING: "it is about to start",
    Protection.OWNERLESS: "nothing would create it again: it has no controller",
    Protection.DAEMON: "it was made for its node",
    Protection.RESERVED: "it has to use a reservation",
}


UNSELECTED: Final = MoveRefusal("E-5.1", "the policy leaves out its namespace or labels")
_DELETED: Final = MoveRefusal("E-5.3", "it is being deleted")
_NOT_RUNNING: Final = MoveRefusal("E-5.3", "it does not run yet")
_LAST_REPLICA: Final = MoveRefusal("E-5.11", "none of its workload would remain")
_OF_WHOLE_GANG: Final = MoveRefusal("Gang", "what runs its gang would start all of it again")
OVER_BUDGET: Final = MoveRefusal("Budget", "a PodDisruptionBudget does not allow it")


@dataclass(frozen=True, slots=True)
class BalanceContext:
    """What a round knows beside the state of the cluster: the time, and what spares pods then.

    ``find_refusal`` returns what else is known against moving a pod, such as that a job does so.
    """

    moment: Moment
    scoring: Scoring = field(default_factory=Scoring)
    budgets: tuple[Budget, ...] = ()
    find_refusal: Callable[[Pod], MoveRefusal | None] = lambda _: None
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    """Which pods jobs move."""
    moving: Mapping[str, str] = field(default_factory=dict)
    """Pods of jobs that are not over; see ``measure_cluster``."""


@dataclass(frozen=True, slots=True)
class MeasuredCluster:
    """The nodes whose use is known; ``unknown`` are those of which it is not."""

    nodes: tuple[BalanceNode, ...]
    unknown: tuple[str, ...]
    labels: Mapping[str, Mapping[str, str]]


def measure_cluster(
    state: ClusterState, expiration: float, now: float, moving: Mapping[str, str]
) -> MeasuredCluster:
    """Return what ready nodes use.

    Pods of jobs that are not over (``moving``, by uid or key) count where they go to: their node is
    to give no more for them, and its target takes no more.
    """
    nodes, unknown, labels = [], [], {}
    loads = state.plugin(Loads)
    arriving = _find_arriving(state, loads, moving)
    for node in state.table.nodes:
        if node is None:
            continue
        report = loads.of(node.name)
        is_known = report is not None and report.is_reported and not node.has_failed
        if report is None or not is_known or report.is_outdated(now, expiration):
            unknown.append(node.name)
        else:
            measured = _measure(state, node, report)
            staying = (pod for pod in measured.pods if moving.keys().isdisjoint((pod.uid, pod.key)))
            nodes.append(replace(measured, pods=(*staying, *arriving.get(node.name, ()))))
            labels[node.name] = node.labels
    return MeasuredCluster(tuple(nodes), tuple(sorted(unknown)), labels)


def _find_arriving(
    state: ClusterState, loads: Loads, moving: Mapping[str, str]
) -> dict[str, list[BalancePod]]:
    """Return the pods that are about to come to each node, with what they use now."""
    arriving: dict[str, list[BalancePod]] = {}
    for name, target in sorted(moving.items()):
        pod = state.pods.get(name) or state.pod_by_key(name)
        report = loads.of(pod.node) if pod is not None else None
        if pod is not None and report is not None and target and pod.node != target:
            moved = replace(_measure_pod(pod, report), node=target)
            arriving.setdefault(target, []).append(moved)
    return arriving


def _measure(state: ClusterState, node: Node, report: NodeLoad) -> BalanceNode:
    pods = [
        _measure_pod(pod, report)
        for pod in sorted(state.pods_on(node.name), key=lambda pod: pod.key)
        if not pod.phase.is_terminal and pod.handling not in {Handling.RESERVE, Handling.STAND_IN}
    ]
    is_schedulable = not (node.is_unschedulable or node.is_terminating or may_end(node))
    capacity = {**node.allocatable, **dict(own_limits_of(node).raw_allocatable)}
    return BalanceNode(node.name, capacity, report.system, tuple(pods), is_schedulable)


def _measure_pod(pod: Pod, report: NodeLoad) -> BalancePod:
    load = report.pods.get(pod.key)
    labels = dict(pod.profile.labels)
    koordinator_class = find_class(
        labels, pod.priority, is_best_effort=is_best_effort(pod.shape, {})
    )
    return BalancePod(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.planned_node,
        None if load is None else load.usage,
        koordinator_class is KoordinatorClass.PROD,
        workload_of(pod),
        (_RANKS[koordinator_class], pod.priority),
        pod.created,
    )


def run_round(
    state: ClusterState,
    settings: RebalanceSettings,
    measured: MeasuredCluster,
    past: BalancePast,
    context: BalanceContext,
) -> RoundOutcome:
    """Decide one round of a policy; nothing is written, and the state stays as it is."""
    rules = settings.make_rules(measured.labels, compat=state.gangs.compat)
    permission = PlannedMoves(state, settings, context)
    try:
        return decide(rules, measured.nodes, past, permission, context.moment.now)
    finally:
        permission.close()


class PlannedMoves:
    """Which pods may move, and where to, with all moves of the round so far."""

    def __init__(
        self, state: ClusterState, settings: RebalanceSettings, context: BalanceContext
    ) -> None:
        self._state = state
        self._settings = settings
        self._context = context
        self._costs = Costs(context.budgets)
        self._moved: dict[str, Pod] = {}
        self._mobility = Mobility(state, context.migration)
        self._cycle: Cycle | None = None
        self._tries = 0
        self._rules = (
            self._find_selection,
            self._find_phase,
            self._find_obstacle,
            self._find_gang,
            self._find_budget,
        )

    def refuse(self, pod: BalancePod) -> MoveRefusal | None:
        """Return the first rule that keeps a pod where it is."""
        whole = self._state.pods.get(pod.uid)
        if whole is None:
            return MoveRefusal("Gone", "it is gone")
        refusal = self._context.find_refusal(whole)
        if refusal is not None:
            return refusal
        return next(filter(None, (rule(whole) for rule in self._rules)), None)

    def find_node(self, pod: BalancePod, nodes: Sequence[str]) -> str | None:
        """Return the node on which the planner places a pod that has left its own."""
        whole = self._state.pods[pod.uid]
        if self._tries >= _MOST_TRIES:
            return None
        self._tries += 1
        cycle = self._open()
        mark = cycle.checkpoint()
        cycle.remove([whole])
        copy = replace(make_copies([whole])[0], gang=None, phase=PodPhase.PENDING)
        rows = np.zeros(cycle.used.shape[1], dtype=bool)
        rows[[self._state.table.row_of[name] for name in nodes]] = True
        cycle.expect([copy])
        with cycle.only({cycle.shape_of(copy): rows}):
            outcome = plan(cycle, [unit_of(copy)], self._context.scoring)
        if not outcome.placements:
            cycle.rollback(mark)
            return None
        return outcome.placements[0].assignments[0].node

    def note(self, pod: BalancePod, _node: str) -> None:
        """Count a pod as moved; its place is taken already."""
        self._moved[pod.uid] = self._state.pods[pod.uid]

    def _open(self) -> Cycle:
        if self._cycle is None:
            self._state.refresh()
            # What replaces a pod is charged to its quota once the pod has gone.
            self._cycle = self._state.open_cycle(without=("quota",))
        return self._cycle

    def close(self) -> None:
        """Release the plan."""
        if self._cycle is not None:
            self._cycle.close()

    # --- rules ------------------------------------------------------------------------------------

    def _find_selection(self, pod: Pod) -> MoveRefusal | None:
        is_allowed = self._settings.allows(pod.namespace, dict(pod.profile.labels))
        return None if is_allowed else UNSELECTED

    def _find_phase(self, pod: Pod) -> MoveRefusal | None:
        if not pod.is_alive:
            return _DELETED
        return None if pod.phase is PodPhase.RUNNING and pod.node else _NOT_RUNNING

    def _find_obstacle(self, pod: Pod) -> MoveRefusal | None:
        obstacle = self._mobility.find_obstacle(pod)
        if isinstance(obstacle, Protection):
            return MoveRefusal("E-5.4", _PROTECTED.get(obstacle, "it would not start elsewhere"))
        state, moment = self._state, self._context.moment
        if pod.gang is not None:
            moment = moment_of(state, state.gangs.group(pod.gang.key).gangs, moment)
        why = find_protection(state, pod, moment)
        if why is not None:
            return MoveRefusal("E-5.5", _PROTECTED.get(why, "it must not be evicted"))
        if obstacle is None:
            return None
        is_last = obstacle.number == EXPECTED_REPLICAS
        return _LAST_REPLICA if is_last else MoveRefusal("E-5", str(obstacle))

    def _find_gang(self, pod: Pod) -> MoveRefusal | None:
        if pod.gang is None:
            return None
        if not any(owner.is_controller and owner.kind in _REPLACES_ONE for owner in pod.owners):
            return _OF_WHOLE_GANG
        spec = self._state.gangs.spec(pod.gang.key)
        if spec is None or spec.topology is not None:
            return MoveRefusal("Gang", f"its gang {pod.gang.key} has to stay close together")
        if find_surplus(self._state, pod.gang.key, [pod], self._moved):
            return None
        return MoveRefusal("Gang", f"its gang {pod.gang.key} would fall below its minimum")

    def _find_budget(self, pod: Pod) -> MoveRefusal | None:
        before: Collection[Pod] = tuple(self._moved.values())
        after = self._costs.count_violations((*before, pod))
        return OVER_BUDGET if after > self._costs.count_violations(before) else None
