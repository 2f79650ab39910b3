"""Plans units so that one which makes the planner fail does not stop the others.

It is refused with ``InternalError``; whoever decides and whoever answers questions use the same.
Without this a unit of one tenant would keep everybody from being placed, and from answers about
what waits.
"""

from collections.abc import Sequence

from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Placement, Plan, Unit, Unplaced
from koord.core.model.reasons import InternalError
from koord.isolation import Isolation

_isolated = Isolation("planning")


def plan_safely(cycle: Cycle, units: Sequence[Unit], scoring: Scoring) -> Plan:
    """Plan units together; if that fails, one at a time, and refuse those that fail."""
    mark = cycle.checkpoint()
    try:
        return plan(cycle, units, scoring)
    except Exception:  # noqa: BLE001 - the unit that fails is counted below
        cycle.rollback(mark)
    placements: list[Placement] = []
    refusals: list[Unplaced] = []
    for unit in units:
        outcome = _plan_one(cycle, unit, scoring)
        placements += outcome.placements
        refusals += outcome.refusals
    return Plan(tuple(placements), tuple(refusals))


def _plan_one(cycle: Cycle, unit: Unit, scoring: Scoring) -> Plan:
    mark = cycle.checkpoint()
    try:
        return plan(cycle, (unit,), scoring)
    except Exception as error:  # noqa: BLE001 - counted and reported
        cycle.rollback(mark)
        _isolated.note(unit.key, error)
        refusal = Unplaced(unit.key, unit.pods, InternalError(type(error).__name__))
        return Plan(refusals=(refusal,))
