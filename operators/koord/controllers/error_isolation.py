"""Keeps a defect that one unit brings to light from stopping all others.

The planner has no known way to fail. Should it fail all the same, the process would die, start
again, meet the same unit and die again: nothing would be placed any more. Here the unit that fails
is refused instead, and says so.
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
    """Plan units and keep room as ``holds`` says; if that fails, plan as if nothing was kept."""
    try:
        return holds.plan(
            make_snapshot(),
            units,
            lambda some, them: plan_safely(some, them, scoring),
            scoring,
            now,
        )
    except Exception:
        log.exception("room cannot be kept; planning goes on without")
        return plan_safely(make_snapshot(), units, scoring)


def plan_safely(snapshot: Cycle, units: Sequence[Unit], scoring: Scoring) -> Plan:
    """Plan units; if that fails, plan them one at a time and refuse those that fail."""
    mark = snapshot.checkpoint()
    try:
        return plan(snapshot, units, scoring)
    except Exception:
        snapshot.rollback(mark)
        log.exception("planning failed; every unit is now planned on its own")
    placements: list[Placement] = []
    refusals: list[Refusal] = []
    for unit in units:
        outcome = _plan_one(snapshot, unit, scoring)
        placements += outcome.placements
        refusals += outcome.refusals
    return Plan(tuple(placements), tuple(refusals))


class FailureLog:
    """Logs a defect that keeps something of quotas from being computed, once."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def note(self, failures: Mapping[str, Exception]) -> None:
        """Take what fails now: what it is about -> the defect."""
        for what, error in failures.items():
            if self._told.get(what) != repr(error):
                log.error(
                    "something of quotas cannot be computed; what needs it waits, all else goes on",
                    exc_info=error,
                    extra={"what": what},
                )
        self._told = {what: repr(error) for what, error in failures.items()}


class OneByOne:
    """Asks something about each of many; those that it fails for are logged once, and left out."""

    def __init__(self) -> None:
        self._log = FailureLog()

    def keep(self, names: Iterable[str], ask: Callable[[str], T]) -> list[T]:
        """Return the answers that there are, in order."""
        answers: list[T] = []
        failures: dict[str, Exception] = {}
        for name in names:
            try:
                answers.append(ask(name))
            except Exception as error:  # noqa: BLE001 - logged below
                failures[name] = error
        self._log.note(failures)
        return answers


def _plan_one(snapshot: Cycle, unit: Unit, scoring: Scoring) -> Plan:
    mark = snapshot.checkpoint()
    try:
        return plan(snapshot, (unit,), scoring)
    except Exception as error:
        snapshot.rollback(mark)
        log.exception("a unit cannot be planned", extra={"unit": unit.key})
        refusal = Refusal(unit.key, unit.pods, InternalError(type(error).__name__))
        return Plan(refusals=(refusal,))
