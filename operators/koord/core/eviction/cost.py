"""What victims cost, in the order of the objective, and in which order they are considered."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from koord.core.eviction.candidates import rank_of
from koord.core.eviction.model import Cost, VictimUnit
from koord.core.model.budgets import Budget, split_by_budgets
from koord.core.model.pods import Pod, PodPhase
from koord.core.model.topology_constraint import Rank


class Price(NamedTuple):
    """What a unit costs by itself; the first difference decides."""

    violations: int
    gangs: int
    priority: int
    doubts: int
    work: int
    pods: int


@dataclass(frozen=True, slots=True)
class _BudgetVictim:
    """The fields of a pod that budgets match."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class Costs:
    """Computes what victims cost; ``budgets`` are the PodDisruptionBudgets of the cluster."""

    def __init__(self, budgets: tuple[Budget, ...]) -> None:
        self._budgets = budgets

    def of(self, victims: Collection[VictimUnit]) -> Cost:
        """Return the cost of a set of victims."""
        pods = {pod.uid: pod for victim in victims for pod in victim.pods}.values()
        return Cost(
            violations=self.count_violations(pods),
            gangs=sum(victim.gangs for victim in victims),
            priority=max((victim.priority for victim in victims), default=0),
            doubts=sum(victim.doubts for victim in victims),
            work=sum(victim.work for victim in victims),
            pods=len(pods),
            jobs=len({victim.group or victim.key for victim in victims}),
            nodes=len({pod.planned_node for pod in pods}),
        )

    def add(self, cost: Cost, victims: Collection[VictimUnit], more: VictimUnit) -> Cost:
        """Return the cost of ``victims``, which is ``cost``, and one more unit with other pods."""
        violations = cost.violations
        if self._budgets:
            violations = self.count_violations(
                [pod for victim in (*victims, more) for pod in victim.pods]
            )
        job = more.group or more.key
        return Cost(
            violations,
            cost.gangs + more.gangs,
            max(cost.priority, more.priority) if victims else more.priority,
            cost.doubts + more.doubts,
            cost.work + more.work,
            cost.pods + len(more.pods),
            cost.jobs + all((victim.group or victim.key) != job for victim in victims),
            nodes=0,
        )

    def count_violations(self, pods: Collection[Pod]) -> int:
        """Count pods whose eviction, in the order of their keys, a budget does not allow.

        Budgets do not count pods that are pending.
        """
        if not self._budgets:
            return 0
        covered = (
            _BudgetVictim(pod.namespace, pod.name, dict(pod.profile.labels))
            for pod in sorted(pods, key=lambda pod: pod.key)
            if pod.phase is not PodPhase.PENDING
        )
        return len(split_by_budgets(covered, self._budgets).violating)

    def sort(self, units: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Sort units, the cheapest first; of equal ones, the last by name."""
        return sorted(sorted(units, key=_name_of, reverse=True), key=self.price_of)

    def price_of(self, unit: VictimUnit) -> Price:
        """Return what a unit costs by itself."""
        violations = self.count_violations(unit.pods)
        return Price(violations, unit.gangs, unit.priority, unit.doubts, unit.work, len(unit.pods))


def _name_of(unit: VictimUnit) -> tuple[str, Rank]:
    """Return what equal units are sorted by: members of one gang by their index."""
    if unit.group:
        return unit.group, rank_of(unit.pods[0])
    return unit.name, (False, 0, (), unit.key)
