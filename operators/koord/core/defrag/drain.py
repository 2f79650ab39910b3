"""What would move where if nodes are emptied, in which order, and what cannot move, and why.

Every pod on the nodes is in exactly one of three lists: it moves, it ends with its node (pods of
daemons), or it cannot move. The largest move first: they have the fewest places.
"""

from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from koord.core.defrag.model import MoveStep
from koord.core.defrag.movable import find_movable, make_copies
from koord.core.defrag.reasons import NoOtherNode
from koord.core.defrag.search import DEFAULT_OPTIONS, DefragOptions
from koord.core.defrag.sequence import MoveTrials, TrialOptions
from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import find_protection
from koord.core.eviction.mobility import Mobility, Obstacle
from koord.core.eviction.model import Costs, Exempt, Moment, VictimUnit
from koord.core.eviction.reasons import Protection, tell_protection
from koord.core.eviction.search import NO_CONTEXT, PreemptionContext
from koord.core.migration.eligibility import Ineligible
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

_NOBODY_WAITS: Final = Unit("drain", (), "drain")


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that cannot move: the rule, or why the planner finds no other place."""

    pod: Pod
    cause: Obstacle | Reason

    @property
    def code(self) -> str:
        """The rule, or the code of the reason, for programs."""
        match self.cause:
            case Protection():
                return str(self.cause)
            case Ineligible(rule=rule):
                return rule
            case _:
                return str(self.cause.code)

    @property
    def text(self) -> str:
        """Why, for people."""
        if isinstance(self.cause, Protection):
            return tell_protection(self.cause)
        if isinstance(self.cause, Ineligible):
            return f"no job would move it: {self.cause}"
        return f"no other node has a place: {self.cause.text()}"


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What becomes of the pods of some nodes; ``unknown`` are names of no nodes."""

    nodes: tuple[str, ...]
    steps: tuple[MoveStep, ...]
    ending: tuple[Pod, ...]
    stuck: tuple[Stuck, ...]
    unknown: tuple[str, ...] = ()


def plan_drain(
    state: ClusterState,
    nodes: Collection[str],
    options: DefragOptions = DEFAULT_OPTIONS,
    context: PreemptionContext = NO_CONTEXT,
) -> DrainPlan:
    """Return what would become of all pods on these nodes."""
    state.refresh()
    there = [node for node in nodes if node in state.table.row_of]
    rows = {state.table.row_of[node] for node in there}
    costs = Costs(context.budgets)
    moment = Moment(context.now, options.min_runtime, options.max_per_day)
    mobility = Mobility(state, options.migration)
    movable = find_movable(state, _NOBODY_WAITS, costs, Exempt(moment=moment), mobility)
    pods = sorted(
        (
            pod
            for node in there
            for pod in state.pods_on(node)
            if not pod.is_terminating and not pod.phase.is_terminal
        ),
        key=lambda pod: pod.key,
    )
    with closing(state.open_cycle(context.pending)) as cycle:
        if context.prepare is not None:
            context.prepare(cycle)
        units = _choose(movable.units, {pod.uid for pod in pods})
        limits = TrialOptions(options.scoring, options.most_steps)
        trials = MoveTrials(state.gangs, cycle, _NOBODY_WAITS, units, limits)
        steps: list[MoveStep] = []
        for at in trials.hardest_first(range(len(units))):
            # The generator is not resumed: the cycle stays as it is after the first way.
            step = next(trials.steps_of(at, sorted(rows)), None)
            steps += [] if step is None else [step]
        moved = {move.pod.uid for step in steps for move in step.moves}
        tried = {pod.uid for unit in units for pod in unit.pods}
        ending, stuck = [], []
        for pod in pods:
            if pod.uid in moved:
                continue
            obstacle = mobility.find_obstacle(pod)
            if obstacle is Protection.DAEMON:
                ending.append(pod)
            elif pod.uid in tried:
                stuck.append(Stuck(pod, _explain(cycle, pod, options.scoring)))
            else:
                why = _find_protection(state, pod, costs, moment) or obstacle
                stuck.append(Stuck(pod, why or Protection.GANG))
    unknown = tuple(node for node in nodes if node not in state.table.row_of)
    return DrainPlan(tuple(there), tuple(steps), tuple(ending), tuple(stuck), unknown)


def _choose(units: Iterable[VictimUnit], uids: Collection[str]) -> list[VictimUnit]:
    """Return the units with pods on the nodes; members alone, where that is enough."""
    chosen: list[VictimUnit] = []
    left = set(uids)
    for unit in sorted(units, key=lambda unit: len(unit.pods)):
        is_alone = len(unit.pods) == 1
        if any(pod.uid in left for pod in unit.pods):
            members = {pod.uid for pod in unit.pods}
            if not is_alone:  # instead of those of its members that would move alone
                chosen = [other for other in chosen if other.pods[0].uid not in members]
            chosen.append(unit)
            left -= members
    return chosen


def _find_protection(
    state: ClusterState, pod: Pod, costs: Costs, moment: Moment
) -> Protection | None:
    protection = find_protection(state, pod, moment)
    if protection is None and costs.count_violations((pod,)):
        return Protection.BUDGET
    return protection


def _explain(cycle: Cycle, pod: Pod, scoring: Scoring) -> Reason:
    """Return why the planner places a pod nowhere else, its own node left out."""
    (copy,) = make_copies((pod,))
    unit = Unit(copy.uid, (Demand("", (copy,), 1),), "", copy.priority)
    mark = cycle.checkpoint()
    with cycle.without_admission():
        outcome = plan(cycle, (unit,), scoring)
    cycle.rollback(mark)
    return outcome.refusals[0].reason if outcome.refusals else NoOtherNode(pod.key)
