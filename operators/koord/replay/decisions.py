"""What was decided about each unit that waits, as values that can be kept and compared.

Which nodes its pods get, or why it gets none, with the numbers of the reason. Texts are not
compared: they may be worded differently in another version.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from koord.answers.audit import write_fields
from koord.answers.pending import find_pending, find_queue
from koord.controllers.error_isolation import plan_with_holds
from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.safe_planner import plan_safely
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.engine.steps import MOST_PER_CALL
from koord.core.model.plan import Plan, Unit
from koord.replay.recorded import RecordedCluster


@dataclass(frozen=True, slots=True)
class UnitDecision:
    """The decision about one unit: its gangs or its pod, by name, and where each pod goes.

    ``reason`` is the code of why the unit, or what is left of it, waits; empty if nothing does.
    """

    names: tuple[str, ...]
    plan_id: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    """Pod (``namespace/name``) and node, by pod."""
    reason: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The numbers and names of the reason."""

    @property
    def title(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A unit about which two plans say something different; None: one says nothing of it."""

    names: tuple[str, ...]
    before: UnitDecision | None
    after: UnitDecision | None


def decide_all(state: ClusterState, scoring: Scoring) -> tuple[UnitDecision, ...]:
    """Plan all that waits in a state, in order; return what comes of it."""
    units = find_pending(state)
    with_all = state.open_cycle(lambda: units)
    return make_decisions(units, plan_safely(with_all, units, scoring))


def decide(cluster: RecordedCluster, state: ClusterState) -> tuple[UnitDecision, ...]:
    """Plan what was planned with a recorded cluster, in the ``state`` that was made of it."""
    turn = cluster.turn
    if turn is None:
        return decide_all(state, Scoring())
    waiting = {unit.key: unit for unit in find_pending(state)}
    units = [waiting[key] for key in turn.units if key in waiting]
    holds = Holds()
    holds.restore(turn.replacements, turn.partial)

    def open_cycle() -> Cycle:
        cycle = state.open_cycle(lambda: find_queue(state).by_time(), is_deciding=True)
        cycle.steps.most = MOST_PER_CALL
        cycle.steps.wasted, cycle.steps.late = turn.wasted, turn.late
        return cycle

    plan = plan_with_holds(holds, open_cycle, units, turn.scoring, state.now)
    return make_decisions(units, plan)


def make_decisions(units: Sequence[Unit], plan: Plan) -> tuple[UnitDecision, ...]:
    """Return what a plan decides about units, in their order."""
    placements = {placement.unit: placement for placement in plan.placements}
    reasons = {refusal.unit: refusal.reason for refusal in plan.refusals}
    decisions = []
    for unit in units:
        placement, reason = placements.get(unit.key), reasons.get(unit.key)
        if placement is None and reason is None:
            continue  # undecided: the cycle ended before
        assignments = () if placement is None else placement.assignments
        decisions.append(
            UnitDecision(
                names=names_of(unit),
                plan_id="" if placement is None else placement.plan_id,
                nodes=tuple(
                    sorted((assignment.pod.key, assignment.node) for assignment in assignments)
                ),
                reason="" if reason is None else reason.code,
                fields={} if reason is None else _plain(write_fields(reason)),
            )
        )
    return tuple(decisions)


def names_of(unit: Unit) -> tuple[str, ...]:
    gangs = tuple(dict.fromkeys(demand.gang for demand in unit.demands if demand.gang))
    return gangs or (unit.pods[0].key,)


def bare(decision: UnitDecision) -> UnitDecision:
    """Return a decision without what is made of names, or names some: plan ids and numbers."""
    return replace(decision, plan_id="", fields={})


def compare(
    before: Iterable[UnitDecision], after: Iterable[UnitDecision]
) -> Iterator[DecisionChange]:
    """Yield what differs: in the order of the second plan, then what it says nothing of."""
    was, then = _by_unit(before), _by_unit(after)
    for key in (*then, *(key for key in was if key not in then)):
        if was.get(key) != then.get(key):
            yield DecisionChange(key[0], was.get(key), then.get(key))


def _by_unit(
    decisions: Iterable[UnitDecision],
) -> dict[tuple[tuple[str, ...], int], UnitDecision]:
    """Return decisions by names; a gang may be several units, which are then numbered."""
    met: Counter[tuple[str, ...]] = Counter()
    by_unit = {}
    for decision in decisions:
        by_unit[decision.names, met[decision.names]] = decision
        met[decision.names] += 1
    return by_unit


def _plain(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields as they come out of JSON, so that they can be compared."""
    plain: Mapping[str, Any] = msgspec.to_builtins(fields, enc_hook=str, str_keys=True)
    return plain
