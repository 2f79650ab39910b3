"""The search for victims: which running units have to go so that a waiting unit can start.

The only judge of a fit is the planner itself, on a cycle of its own: victims are removed, the unit
is planned, and everything is rolled back. The search is bounded by steps of the planner, so the
same cluster gives the same answer on any machine. It evicts nobody.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from koord.core.budgets import Budget
from koord.core.framework.cycle import Cycle
from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.plan import Placement, Unit
from koord.core.preemption.candidates import Candidates, Moment, find_candidates
from koord.core.preemption.cost import Costs
from koord.core.preemption.model import Certificate, Exempt, Preemption, VictimUnit
from koord.core.preemption.reasons import (
    NobodyLower,
    NotAQuestionOfRoom,
    OnlySurplus,
    PreemptionNever,
    PreemptionNotHelpful,
    VictimsProtected,
    WaitsForTermination,
)
from koord.core.reasons import Reason
from koord.core.state import ClusterState

if TYPE_CHECKING:
    from koord.core.pods import Pod

MOST_STEPS: Final = 500_000_000
"""Steps of the planner that one search may take."""


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """Settings of the search; ``min_runtime`` are the seconds that a pod may run undisturbed."""

    min_runtime: float = 0.0
    most_steps: int = MOST_STEPS
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True, slots=True)
class Context:
    """What the search has to know that is not in the state.

    ``now`` is seconds since the epoch. ``prepare`` charges room to the cycle that is held for
    others.
    """

    now: float = 0.0
    budgets: tuple[Budget, ...] = ()
    prepare: Callable[[Cycle], object] | None = None


DEFAULT_OPTIONS: Final = PreemptionOptions()
NOBODY: Final = Exempt()
NO_CONTEXT: Final = Context()


def plan_preemption(
    state: ClusterState,
    unit: Unit,
    options: PreemptionOptions = DEFAULT_OPTIONS,
    exempt: Exempt = NOBODY,
    context: Context = NO_CONTEXT,
) -> Preemption | Reason:
    """Return the cheapest victims for a unit that does not fit, or why there are none."""
    refusal = _find_obstacle(unit)
    if refusal is not None:
        return refusal
    moment = Moment(context.now, options.min_runtime)
    candidates = find_candidates(state, unit, moment, exempt)
    state.refresh(context.now)
    with closing(state.open_cycle()) as cycle:
        if context.prepare is not None:
            context.prepare(cycle)
        costs = Costs(context.budgets)
        return _Search(cycle, unit, candidates, costs, options).run()


def _find_obstacle(unit: Unit) -> Reason | None:
    """Return why a unit may not preempt at all."""
    for pod in unit.pods:
        if pod.never_preempts:
            return PreemptionNever(pod.key)
    if not unit.required:
        return OnlySurplus(unit.demands[0].gang)
    return None


class _Search:
    def __init__(
        self,
        cycle: Cycle,
        unit: Unit,
        candidates: Candidates,
        costs: Costs,
        options: PreemptionOptions,
    ) -> None:
        self._cycle = cycle
        self._unit = unit
        self._candidates = candidates
        self._costs = costs
        self._options = options

    def run(self) -> Preemption | Reason:
        self._cycle.remove(self._candidates.terminating)
        without = self._try(())
        if isinstance(without, Placement):
            names = tuple(sorted(pod.key for pod in self._candidates.terminating))
            return WaitsForTermination(names)
        if not without.is_capacity:
            return NotAQuestionOfRoom(without)
        units = sorted(self._candidates.units, key=self._costs.order_of)
        if not units:
            return self._explain_nobody()
        found = self._try(units)
        if not isinstance(found, Placement):
            pods = len({pod.uid for one in units for pod in one.pods})
            return PreemptionNotHelpful(pods, found, self._candidates.protected)
        victims, placement = self._put_back(units, found)
        steps = self._cycle.steps.taken
        return Preemption(
            self._unit.key,
            tuple(victims),
            placement,
            self._costs.of(victims),
            Certificate(is_minimal=True, is_cheapest=False, steps=steps),
        )

    def _explain_nobody(self) -> Reason:
        lowest = min(pod.priority for pod in self._unit.pods)
        if self._candidates.protected:
            return VictimsProtected(lowest, self._candidates.protected)
        return NobodyLower(lowest, self._candidates.running)

    def _put_back(
        self, units: Sequence[VictimUnit], placement: Placement
    ) -> tuple[list[VictimUnit], Placement]:
        """Put units back, the dearest first, until none can be spared."""
        victims = list(units)
        is_changed = True
        while is_changed:
            is_changed = False
            for one in reversed(tuple(victims)):
                rest = [other for other in victims if other is not one]
                found = self._try(rest)
                if isinstance(found, Placement):
                    victims, placement, is_changed = rest, found, True
        return victims, placement

    def _try(self, victims: Collection[VictimUnit]) -> Placement | Reason:
        """Plan the unit without some units."""
        cycle = self._cycle
        mark = cycle.checkpoint()
        pods: dict[str, Pod] = {pod.uid: pod for one in victims for pod in one.pods}
        cycle.remove(pods.values())
        outcome = plan(cycle, (self._unit,), self._options.scoring)
        cycle.rollback(mark)
        if outcome.placements:
            return outcome.placements[0]
        return outcome.refusals[0].reason
