"""What becomes of everything that waits, as values that are compared: before edits and after them.

Only what decides is found for all of it; what else is behind a reason, when somebody is told.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from koord.answers.edits import UnitSource
from koord.answers.pending import find_pending, find_queue
from koord.answers.planned_units import PlannedUnits, plan_waiting, recall_plan
from koord.answers.queue_view import find_incomplete
from koord.answers.reason_context import ContextFinder
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_preempting
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a source that waits; ``unit`` None: none can be made of it."""

    starts: bool
    reason: Reason | None
    unit: Unit | None

    def differs_from(self, other: "Decision") -> bool:
        if self.starts or other.starts:
            return self.starts != other.starts
        return _code_of(self.reason) != _code_of(other.reason)


def _code_of(reason: Reason | None) -> str:
    return "" if reason is None else reason.code


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What becomes of everything that waits, in order; of ``left`` it is not known, for time."""

    waiting: Mapping[UnitSource, Decision]
    planned: PlannedUnits
    left: frozenset[UnitSource] = frozenset()


class Explainer:
    """Tells why sources wait, with what else is behind it; the state is as it was planned."""

    def __init__(self, outcomes: Outcomes, contexts: ContextFinder) -> None:
        self._planned, self._contexts = outcomes.planned, contexts
        self._told: dict[UnitKey, Reason] = {}
        """Unit that was planned -> its reason with the context, which all that are like it have."""

    def explain(self, decision: Decision) -> Reason | None:
        reason, unit, planned = decision.reason, decision.unit, self._planned
        if unit is None or reason is None or reason is not planned.refusals.get(unit.key):
            return reason
        like = planned.alike.get(unit.key, unit)
        if like.key not in self._told:
            self._told[like.key] = self._contexts.add(like, reason)
        return planned.tell_as_its_own(unit, self._told[like.key])


def view_outcomes(
    state: ClusterState, is_over: Callable[[], bool] = lambda: False, *, is_read: bool = False
) -> Outcomes:
    """Return what becomes of everything that waits, as far as it is planned until ``is_over``.

    ``is_read``: the state is as it was read, so that who has asked what waits had it planned.
    """
    state.refresh()
    queue, units = find_queue(state), find_pending(state)
    planned = recall_plan(state, units) if is_read else None
    if planned is None:
        cycle = state.open_cycle(lambda: units)
        planned = plan_waiting(cycle, state, units, Scoring(), is_over)
        cycle.close()
    preempting = {each.unit for each in state.nominations}
    placed, waiting, left = planned.count_placed(), dict[UnitSource, Decision](), set[UnitSource]()
    for unit in units:
        if unit.key in planned.left:
            left.update(_sources_of(unit))
            continue
        starts = placed[unit.key] >= max(unit.required, 1)
        victims = find_preempting(state, unit.key) if unit.key in preempting else None
        reason = victims or planned.refusals.get(unit.key)
        decision = Decision(starts, None if starts else reason, unit)
        waiting.update((source, decision) for source in _sources_of(unit))
    for incomplete in find_incomplete(state, queue):
        source = UnitSource(incomplete.name, incomplete.kind == "podgroup")
        waiting.setdefault(source, Decision(starts=False, reason=incomplete.reason, unit=None))
    return Outcomes(waiting, planned, frozenset(left))


def _sources_of(unit: Unit) -> Collection[UnitSource]:
    if len(unit.demands) == 1 and not unit.demands[0].gang:
        return (UnitSource(unit.pods[0].key),)
    gangs = dict.fromkeys(demand.gang for demand in unit.demands if demand.gang)
    return [UnitSource(gang, is_gang=True) for gang in gangs]
