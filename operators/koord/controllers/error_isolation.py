"""Isolates bugs: a unit that makes the planner fail does not stop the others.

Otherwise the process would crash, restart, meet the same unit and crash again, and nothing would be
placed. Here such a unit is refused with ``InternalError``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from koord.core.framework.cycle import Cycle
from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.holds import Holds
from koord.core.plan import Placement, Plan, Refusal, Unit
from koord.core.reasons import InternalError

T = TypeVar("T")
log = logging.getLogger(__name__)


def plan_keeping(
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
            lambda some, them: plan_safely(some, them, scoring),
            scoring,
            now,
        )
    except Exception:
        log.exception("Cannot reserve room for lost members; planning without it")
        return plan_safely(make_snapshot(), units, scoring)


def plan_safely(cycle: Cycle, units: Sequence[Unit], scoring: Scoring) -> Plan:
    """Plan units together; if that fails, one at a time, and refuse those that fail."""
    mark = cycle.checkpoint()
    try:
        return plan(cycle, units, scoring)
    except Exception:
        cycle.rollback(mark)
        log.exception("Planning failed; planning each unit separately")
    placements: list[Placement] = []
    refusals: list[Refusal] = []
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


class OneByOne:
    """Calls a function for each of many names; failures are logged once and left out."""

    def __init__(self) -> None:
        self._log = FailureLog()

    def keep(self, names: Iterable[str], call: Callable[[str], T]) -> list[T]:
        results: list[T] = []
        failures: dict[str, Exception] = {}
        for name in names:
            try:
                results.append(call(name))
            except Exception as error:  # noqa: BLE001 - logged below
                failures[name] = error
        self._log.note(failures)
        return results


def _plan_one(cycle: Cycle, unit: Unit, scoring: Scoring) -> Plan:
    mark = cycle.checkpoint()
    try:
        return plan(cycle, (unit,), scoring)
    except Exception as error:
        cycle.rollback(mark)
        log.exception("Cannot plan a unit", extra={"unit": unit.key})
        refusal = Refusal(unit.key, unit.pods, InternalError(type(error).__name__))
        return Plan(refusals=(refusal,))
