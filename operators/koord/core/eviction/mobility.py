"""Whether a running pod may be moved: one answer for balance, defragmentation and drained nodes.

A pod is moved by a job, so it stays if a job would be refused (``core/migration/eligibility.py``),
and if nothing would create it again elsewhere. Whether it may be evicted at all, and whether its
gang and disruption budgets allow it, depends on what else moves, and is decided elsewhere.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from koord.core.engine.state import ClusterState
from koord.core.eviction.limits import workload_of
from koord.core.eviction.reasons import Protection
from koord.core.migration.eligibility import Ineligible, find_ineligible
from koord.core.migration.model import MigrationOptions, MovedPod
from koord.core.migration.workload import Workload
from koord.core.model.pods import Pod, PodPhase
from koord.core.reservation.model import NAME as RESERVATION
from koord.core.reservation.model import ReservationHints
from koord.core.reservation.plugin import Reservations

Obstacle: TypeAlias = Protection | Ineligible

_OF_RULES: Final = {
    "LocalStorage": Protection.STORAGE,
    "EvictionCost": Protection.COST,
    "ExpectedReplicas": Protection.REPLICAS,
}


def protection_of(ineligible: Ineligible) -> Protection:
    """Return by what pods are counted together that jobs would not move."""
    return _OF_RULES.get(ineligible.rule, Protection.SETTINGS)


def find_pod_obstacle(pod: Pod) -> Protection | None:
    """Return why a pod that may be evicted would not start again elsewhere; None if it would."""
    controller = next((owner for owner in pod.owners if owner.is_controller), None)
    if controller is None or not pod.node:
        return Protection.OWNERLESS
    if controller.is_of_one_node:
        return Protection.DAEMON
    hints = _hints_of(pod)
    return Protection.RESERVED if hints is not None and hints.has_affinity else None


def _hints_of(pod: Pod) -> ReservationHints | None:
    hints = (hints for name, hints in pod.extensions if name == RESERVATION)
    return next((hint for hint in hints if isinstance(hint, ReservationHints)), None)


def resolve_options(state: ClusterState, options: MigrationOptions) -> MigrationOptions:
    """Return options with the value of the PriorityClass that they name."""
    named = state.plugin(Reservations).classes.get(options.threshold_class)
    if named is None or options.priority_threshold is not None:
        return options
    return replace(options, priority_threshold=named.value)


@dataclass(slots=True)
class Mobility:
    """Which pods may be moved, as long as the state does not change."""

    state: ClusterState
    options: MigrationOptions = field(default_factory=MigrationOptions)
    _replicas: Counter[str] | None = None

    def __post_init__(self) -> None:
        self.options = resolve_options(self.state, self.options)

    def find_obstacle(self, pod: Pod, *, is_alone: bool = True) -> Obstacle | None:
        """Return why a pod would not be moved; ``is_alone``: its workload goes on without it."""
        obstacle = find_pod_obstacle(pod)
        if obstacle is not None:
            return obstacle
        workload = self._workload_of(pod) if is_alone and pod.gang is None else None
        return find_ineligible(describe(self.state, pod), self.options, workload=workload)

    def _workload_of(self, pod: Pod) -> Workload:
        if self._replicas is None:
            self._replicas = Counter(
                workload_of(other)
                for other in self.state.pods.values()
                if other.is_alive and other.phase is PodPhase.RUNNING
            )
        uid = workload_of(pod)
        name = next((owner.name for owner in pod.owners if owner.is_controller), pod.name)
        return Workload(uid, name, max(self._replicas[uid], 1))


def describe(state: ClusterState, pod: Pod) -> MovedPod:
    """Return a pod that may be evicted as the rules of jobs see it."""
    hints = pod.move_hints
    return MovedPod(
        pod.namespace,
        pod.name,
        pod.uid,
        node=pod.node,
        owners=pod.owners,
        labels=dict(pod.profile.labels),
        priority=pod.priority,
        created=pod.created,
        phase=pod.phase.value,
        is_ours=True,  # others must not be evicted
        is_terminating=pod.is_terminating,
        is_static=hints.is_static,
        has_local_storage=hints.has_local_storage,
        has_memory_storage=hints.has_memory_storage,
        has_claims=bool(pod.claims),
        evicts_protected=hints.evicts_protected,
        eviction_cost=hints.eviction_cost,
        node_labels=labels_of_node(state, pod.node),
    )


def labels_of_node(state: ClusterState, name: str) -> Mapping[str, str]:
    """Return the labels of a node; none if there is no such node."""
    row = state.table.row_of.get(name)
    return {} if row is None else state.table.node_at(row).labels
