"""Logs how a decision came about, while somebody wants to see it: scores, refusing nodes, dumps.

What is wanted is read before each cycle; while nothing is, planning does nothing more than ask.
Lines have the forms that scripts for the logs of Koordinator's scheduler look for. Decides nothing.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from koord.answers.decision_trace import describe_scores, dump_refusal, plugin_of
from koord.core.engine.cycle import Cycle
from koord.core.engine.decision_trace import DecisionTrace, trace
from koord.core.engine.scoring import Scoring
from koord.core.eviction.preemption import name_of
from koord.core.model.plan import Unit, Unplaced
from koord.core.model.reasons import Reason
from koord.isolation import Isolation

log = logging.getLogger(__name__)

MOST_LINES: Final = 2000
"""Lines of one second; the decisions after that are only counted."""


class Wishes(Protocol):
    """What is to be logged."""

    @property
    def top_scores(self) -> int: ...
    @property
    def shows_failures(self) -> bool: ...
    @property
    def dumps(self) -> bool: ...


@dataclass(slots=True)
class DecisionTracer:
    """Follows the units of one cycle; ``clock`` returns seconds since the epoch."""

    wishes: Wishes
    scoring: Scoring
    clock: Callable[[], float]
    preempting: Callable[[str], Reason | None] = lambda _: None
    """Returns how far the preemption for a unit is; None if there is none."""
    _traces: dict[str, DecisionTrace] = field(default_factory=dict)
    """Of the units of this cycle, by key."""
    _second: int = 0
    _lines: int = 0
    _left_out: int = 0
    _isolated: Isolation = field(default_factory=lambda: Isolation("tracing"))

    def begin(self, cycle: Cycle) -> None:
        """Follow a cycle, if anything is wanted."""
        self._traces.clear()
        wishes = self.wishes
        if wishes.top_scores or wishes.shows_failures or wishes.dumps:
            cycle.before_unit = partial(self._follow, cycle)

    def find(self, unit: str) -> DecisionTrace | None:
        """Return what the nodes said to a unit of this cycle, if that was asked for."""
        return self._traces.get(unit)

    def decided(self, unit: Unit, refusal: Unplaced | None) -> None:
        """Log what led to a decision; without a refusal the unit was placed."""
        seen = self._traces.get(unit.key)
        if seen is not None:
            self._isolated.call(unit.key, self._log, unit, seen, refusal)

    def _follow(self, cycle: Cycle, unit: Unit) -> None:
        wishes, mark = self.wishes, cycle.checkpoint()
        seen = self._isolated.call(
            unit.key,
            partial(
                trace,
                scores=wishes.top_scores,
                shows_refusals=wishes.shows_failures or wishes.dumps,
            ),
            cycle,
            unit,
            self.scoring,
        )
        cycle.rollback(mark)
        if seen is not None:
            self._traces[unit.key] = seen

    def _log(self, unit: Unit, seen: DecisionTrace, refusal: Unplaced | None) -> None:
        lines = list(self._describe(unit, seen, refusal))
        if not self._may_log(len(lines)):
            return
        for text, fields in lines:
            log.info(text, extra=fields)

    def _may_log(self, lines: int) -> bool:
        """Whether so many more lines may be logged in this second."""
        second = int(self.clock())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._left_out:
                log.info("Left out decisions: there were too many", extra={"count": self._left_out})
                self._left_out = 0
        if self._lines and self._lines + lines > MOST_LINES:
            self._left_out += 1
            return False
        self._lines += lines
        return True

    def _describe(
        self, unit: Unit, seen: DecisionTrace, refusal: Unplaced | None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for table in seen.tables:
            for line in describe_scores(table):
                yield line, {}
        if self.wishes.shows_failures:
            for refusing in seen.refusing:
                nodes = ", ".join(refusing.nodes)
                fields = {"pod": seen.pod.key, "why": refusing.text, "plugin": plugin_of(refusing)}
                yield "Refused by nodes", {**fields, "count": refusing.many, "nodes": nodes}
        if self.wishes.dumps and refusal is not None:
            under_way = self.preempting(unit.key)
            yield dump_refusal(name_of(unit), seen, refusal.reason, under_way, self.clock()), {}
