"""Isolates bugs: a unit that makes the planner fail does not stop the others.

Otherwise the process would crash, restart, meet the same unit and crash again, and nothing would be
placed. Here such a unit is refused with ``InternalError``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Placement, Plan, Unit, Unplaced
from koord.core.model.reasons import InternalError
from koord.isolation import Isolation

log = logging.getLogger(__name__)
_isolated = Isolation("planning")


def plan_with_holds(
    holds: Holds,
    make_snapshot: Callable[[], Cycle],
    units: Sequence[Unit],
    scoring: Scoring,
    now: float,
) -> Plan:
    """Plan units with the room that ``holds`` reserves; if that fails, without it."""
    try:
        return holds.plan(
            make_snapshot(),
            units,
            lambda cycle, kept_units: plan_safely(cycle, kept_units, scoring),
            scoring,
            now,
        )
    except Exception as error:  # noqa: BLE001 - counted and reported
        _isolated.note("room for lost members", error)
        return plan_safely(make_snapshot(), units, scoring)


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


class FailureLog:
    """Logs each bug in quota computation once."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def note(self, failures: Mapping[str, Exception]) -> None:
        for subject, error in failures.items():
            if self._logged.get(subject) != repr(error):
                log.error(
                    "Quota computation failed; the affected units stay pending",
                    exc_info=error,
                    extra={"what": subject},
                )
        self._logged = {subject: repr(error) for subject, error in failures.items()}


def _plan_one(cycle: Cycle, unit: Unit, scoring: Scoring) -> Plan:
    mark = cycle.checkpoint()
    try:
        return plan(cycle, (unit,), scoring)
    except Exception as error:  # noqa: BLE001 - counted and reported
        cycle.rollback(mark)
        _isolated.note(unit.key, error)
        refusal = Unplaced(unit.key, unit.pods, InternalError(type(error).__name__))
        return Plan(refusals=(refusal,))
