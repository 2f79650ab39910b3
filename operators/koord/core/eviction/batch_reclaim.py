"""Reclaiming from batch pods on a real cluster: which nodes are short, and who may leave them.

Batch pods are those that request batch resources, whatever their labels say, and those whose labels
or priority put them into class batch or free. Pods that request nothing at all are not meant: most
of their owners know no classes. Units are those of preemption (``candidates``): a pod, a member
above the minimum of its gang, or a gang as a whole. What a job would not evict stays. Who goes is
decided in ``core.balance.batch_reclaim``; jobs evict.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koord.core.balance.batch_reclaim import (
    MOST_REMEMBERED,
    BatchEviction,
    BatchPod,
    BatchReclaimRules,
    BatchUnit,
    NodeShortage,
    PastReclaim,
    ReclaimOutcome,
    ReclaimPast,
    SeenReport,
    ShortageCause,
    choose,
    find_memory_shortage,
)
from koord.core.balance.outcome import MoveRefusal
from koord.core.balance.policy import RebalanceSettings
from koord.core.colocation.node_facts import facts_of
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import ANY_PRIORITY, find_candidates
from koord.core.eviction.mobility import describe, resolve_options
from koord.core.eviction.model import Costs, Exempt, VictimKind, VictimUnit
from koord.core.eviction.rebalance import OVER_BUDGET, UNSELECTED, BalanceContext
from koord.core.load.model import NodeLoad
from koord.core.load.options import own_limits_of
from koord.core.load.plugin import Loads
from koord.core.migration.eligibility import find_ineligible
from koord.core.migration.model import JobMode, MigrationOptions
from koord.core.model.koordinator_class import BATCH_CPU, BATCH_MEMORY, KoordinatorClass, find_class
from koord.core.model.nodes import Node
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.model.selectors import is_selected
from koord.core.model.units import MEMORY
from koord.isolation import Isolation

BATCH_RESOURCES: Final = (BATCH_CPU, BATCH_MEMORY)
_LOW_CLASSES: Final = {KoordinatorClass.FREE: 1, KoordinatorClass.BATCH: 2}
_NO_UNIT: Final = Unit("", (), "batch reclaim")
"""For whom room is made: nobody in particular."""
_UNKNOWN: Final = MoveRefusal("Unknown", "whether it may be evicted cannot be found out")
_isolated: Final = Isolation("batch-reclaim")


def is_batch(pod: Pod) -> bool:
    """Whether a pod runs on what others leave."""
    if any(dict(pod.shape.requests).get(name) for name in BATCH_RESOURCES):
        return True
    return _class_of(pod) in _LOW_CLASSES


def _class_of(pod: Pod) -> KoordinatorClass:
    return find_class(dict(pod.profile.labels), pod.priority, is_best_effort=False)


def look(
    state: ClusterState, settings: RebalanceSettings, past: ReclaimPast, context: BalanceContext
) -> ReclaimOutcome:
    """Decide who leaves now. ``past`` notes what is seen; who leaves is noted by the caller."""
    rules = settings.batch_reclaim
    if rules is None:
        return ReclaimOutcome()
    seen = _Look(state, settings, rules, past, context)
    shortages = tuple(seen.find_shortages())
    if not shortages:
        return ReclaimOutcome()
    room = MOST_REMEMBERED - len(past.reclaims)
    units = seen.find_units({shortage.node for shortage in shortages})
    return choose(shortages, units, past.pausing(context.moment.now), seen.refuse, room)


@dataclass(slots=True)
class _Look:
    state: ClusterState
    settings: RebalanceSettings
    rules: BatchReclaimRules
    past: ReclaimPast
    context: BalanceContext
    costs: Costs = field(init=False)
    options: MigrationOptions = field(init=False)
    reports: dict[str, NodeLoad] = field(init=False)

    def __post_init__(self) -> None:
        self.costs = Costs(self.context.budgets)
        self.options = resolve_options(self.state, self.context.migration)
        self.reports = dict(self._find_reports())
        self.past.observe(
            self.context.moment.now,
            lambda past: (pod := self.state.pods.get(past.uid)) is not None and pod.is_alive,
            self._is_over,
            {name: _seen(report) for name, report in self.reports.items()},
        )

    def _is_over(self, past: PastReclaim) -> bool:
        return self.context.moving.keys().isdisjoint((past.uid, past.pod))

    def _find_reports(self) -> Iterator[tuple[str, NodeLoad]]:
        """Yield the reports that count: nobody leaves a node of which nothing is known."""
        loads, now = self.state.plugin(Loads), self.context.moment.now
        selector = self.settings.pools[0].selector
        for node in filter(None, self.state.table.nodes):
            report = loads.of(node.name)
            if report is None or not report.is_reported or node.has_failed:
                continue
            is_meant = selector is None or is_selected(node.labels, selector)
            if is_meant and not report.is_outdated(now, self.settings.expiration):
                yield node.name, report

    def _is_leaving(self, pod: Pod) -> bool:
        return not pod.is_alive or not self.context.moving.keys().isdisjoint((pod.uid, pod.key))

    def find_shortages(self) -> Iterator[NodeShortage]:
        """Yield what nodes have too little of, by node."""
        nodes = [node for node in self.state.table.nodes if node and node.name in self.reports]
        for node in nodes:
            shortage = _isolated.call(node.name, self._find_memory, node)
            if shortage is not None:
                yield shortage
        if self.rules.overcommit_grace is None:
            self.past.overcommitted = {}
            return
        shortages = {
            node.name: _isolated.call(node.name, self._find_overcommitted, node) or ()
            for node in nodes
        }
        now, grace = self.context.moment.now, self.rules.overcommit_grace
        self.past.note_overcommitted((name for name, over in shortages.items() if over), now)
        for name, since in self.past.overcommitted.items():
            if now >= since + grace:
                yield from shortages[name]

    def _find_memory(self, node: Node) -> NodeShortage | None:
        report = self.reports[node.name]
        real = {**node.allocatable, **dict(own_limits_of(node).raw_allocatable)}
        used, capacity = report.usage.get(MEMORY, 0), real.get(MEMORY, 0)
        threshold = self.rules.memory_threshold
        if find_memory_shortage(node.name, used, capacity, threshold) is None:
            return None
        # Averages have pods that are gone, and those that are about to go.
        leaving = dict(self._find_leaving_loads(node.name, report))
        used -= sum(leaving.values()) + self.past.freed(
            node.name,
            lambda past: past.uid not in self.state.pods and past.pod not in leaving,
            _seen(report),
        )
        return find_memory_shortage(node.name, used, capacity, threshold)

    def _find_leaving_loads(self, node: str, report: NodeLoad) -> Iterator[tuple[str, int]]:
        """Yield the keys of reported pods that the node will soon be without, and their memory."""
        for key, load in report.pods.items():
            pod = self.state.pod_by_key(key)
            if pod is None or pod.node != node or self._is_leaving(pod):
                yield key, load.usage.get(MEMORY, 0)

    def _find_overcommitted(self, node: Node) -> tuple[NodeShortage, ...]:
        return tuple(self._list_overcommitted(node))

    def _list_overcommitted(self, node: Node) -> Iterator[NodeShortage]:
        """Yield the batch resources of which more is requested than offered.

        A node that does not name one offers nobody anything to compare with. Nor does one whose
        over-commitment is switched off: that evicts nobody.
        """
        held, withdrawn = self.state.used_on(node.name), facts_of(node).withdrawn
        offered = {
            name: node.allocatable[name]
            for name in BATCH_RESOURCES
            if name in node.allocatable and name not in withdrawn
        }
        if not any(held.get(name, 0) > most for name, most in offered.items()):
            return
        pods = [pod for pod in self.state.pods_on(node.name) if self._holds(pod)]
        for name, most in offered.items():
            used = sum(dict(pod.shape.requests).get(name, 0) for pod in pods)
            if used > most:
                cause = ShortageCause.OVERCOMMIT
                yield NodeShortage(node.name, cause, name, used, most, most)

    def _holds(self, pod: Pod) -> bool:
        is_real = pod.handling not in {Handling.RESERVE, Handling.STAND_IN}
        return bool(pod.node) and is_real and pod.is_accepted and not self._is_leaving(pod)

    # --- who may leave ----------------------------------------------------------------------------

    def find_units(self, nodes: set[str]) -> list[BatchUnit]:
        """Return the units of batch pods on some nodes that may be evicted."""
        exempt = Exempt(terminating=frozenset(self._find_leaving()), moment=self.context.moment)
        units = []
        for unit in find_candidates(self.state, _NO_UNIT, exempt, ANY_PRIORITY).units:
            with _isolated.of(unit.key):
                if _is_meant(unit, nodes):
                    units.append(self._make_unit(unit))
        return units

    def _find_leaving(self) -> Iterator[str]:
        for name in self.context.moving:
            pod = self.state.pods.get(name) or self.state.pod_by_key(name)
            if pod is not None:
                yield pod.uid

    def _make_unit(self, unit: VictimUnit) -> BatchUnit:
        highest = max(_LOW_CLASSES.get(_class_of(pod), 2) for pod in unit.pods)
        return BatchUnit(
            unit.key,
            tuple(map(self._make_pod, unit.pods)),
            (highest, unit.priority),
            unit.kind is VictimKind.GANG,
            max(pod.created for pod in unit.pods),
        )

    def _make_pod(self, pod: Pod) -> BatchPod:
        report = self.reports.get(pod.node)
        requests = dict(pod.shape.requests)
        return BatchPod(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.node,
            0 if report is None else _memory_of(pod, report),
            {name: requests[name] for name in BATCH_RESOURCES if name in requests},
        )

    def refuse(self, unit: BatchUnit, before: Sequence[BatchEviction]) -> MoveRefusal | None:
        """Return the first rule that keeps a unit where it is, after others that leave."""
        with _isolated.of(unit.key):
            return self._find_refusal(unit, before)
        return _UNKNOWN

    def _find_refusal(self, unit: BatchUnit, before: Sequence[BatchEviction]) -> MoveRefusal | None:
        pods = [self.state.pods[pod.uid] for pod in unit.pods]
        for pod in pods:
            refusal = self.context.find_refusal(pod)
            if refusal is not None:
                return refusal
            if not self.settings.allows(pod.namespace, dict(pod.profile.labels)):
                return UNSELECTED
            broken = find_ineligible(
                describe(self.state, pod), self.options, mode=JobMode.EVICT_DIRECTLY
            )
            if broken is not None:
                return MoveRefusal("E-5", str(broken))
        leaving = [self.state.pods[pod.uid] for going in before for pod in going.unit.pods]
        count = self.costs.count_violations
        return OVER_BUDGET if count((*leaving, *pods)) > count(leaving) else None


def _is_meant(unit: VictimUnit, nodes: set[str]) -> bool:
    if unit.kind is VictimKind.RESERVATION or nodes.isdisjoint(pod.node for pod in unit.pods):
        return False
    return all(map(is_batch, unit.pods))


def _seen(report: NodeLoad) -> SeenReport:
    return SeenReport(report.updated, report.window)


def _memory_of(pod: Pod, report: NodeLoad) -> int:
    load = report.pods.get(pod.key)
    usage: Mapping[str, int] = {} if load is None else load.usage
    return usage.get(MEMORY, 0)
