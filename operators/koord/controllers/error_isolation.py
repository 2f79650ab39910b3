"""Isolates bugs of planning: without room for lost members, and told once while they last.

Otherwise the process would crash, restart, meet the same object and crash again, and nothing would
be placed. How a unit that makes the planner fail is refused is up to the planner.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.safe_planner import plan_safely
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Plan, Unit
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
