"""What is expected of the run times of a trace: by limits, by earlier runs, or by the truth.

An estimate is a run time that is expected, and a bound: as the operators have them, see
``core/queue/run_time``. Knows jobs and their kinds; no turns, and no waits.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.queue_trace import HOUR
from koord.core.queue.history import PartsOfLimits, RunHistory
from koord.core.queue.run_time import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.queue_trace import Trace
    from koord.core.queue.simulation import TraceUnit

_EPOCH: Final = 1_000_000_000
"""When a trace begins, for those who count from 1970 on: what is learned before ended earlier."""


class Estimator(Protocol):
    """What is known of how long units run."""

    def of(self, unit: TraceUnit, ran: int = 0) -> Estimate:
        """Return what a unit is expected to take from its start on, and when it has ended.

        It ``ran`` for so long by now.
        """

    def note_end(self, unit: TraceUnit, ended: int) -> None:
        """Learn from a unit that has ended."""


class ByLimit:
    """The limit of a unit is all that is known of it."""

    def of(self, unit: TraceUnit, ran: int = 0) -> Estimate:  # noqa: ARG002 - for overriding
        limit = unit.job.limit or HOUR
        return Estimate(limit, limit)

    def note_end(self, unit: TraceUnit, ended: int) -> None:
        """Learn nothing."""


class ByDuration(ByLimit):
    """What nobody knows: how long a unit will really run."""

    def of(self, unit: TraceUnit, ran: int = 0) -> Estimate:
        return Estimate(unit.duration, super().of(unit, ran).bound)


class ByHistory(ByLimit):
    """What queues remember of earlier runs: of its kind, else what part of limits they took."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._histories: dict[str, RunHistory] = defaultdict(RunHistory)
        self._parts = PartsOfLimits()

    def of(self, unit: TraceUnit, ran: int = 0) -> Estimate:
        limit, quota = super().of(unit).bound, unit.job.quota
        kind = (unit.user, self._kinds[unit.job.key])
        history = self._histories[quota].estimate(kind)
        percent = self._parts.expected_percent((quota, unit.user), limit, ran)
        if history is None or (history.expected <= ran and percent < 100):
            return Estimate(-(-limit * percent // 100), limit)
        return Estimate(min(history.expected, limit), limit)

    def note_end(self, unit: TraceUnit, ended: int) -> None:
        kind, quota = (unit.user, self._kinds[unit.job.key]), unit.job.quota
        self._histories[quota].note(kind, unit.duration, _EPOCH + ended, has_failed=False)
        if unit.job.limit is not None:
            line = (quota, unit.user)
            self._parts.note(line, unit.duration, unit.job.limit, has_failed=False)


def learn(estimator: Estimator, past: Trace) -> None:
    """Have an estimator learn from jobs of a past that ends when what is played begins."""
    ended = [(unit.arrival + unit.duration - past.span, unit) for unit in past.units]
    for end, unit in sorted(ended, key=itemgetter(0)):
        if end <= 0:
            estimator.note_end(unit, end)


ESTIMATORS: Final[Mapping[str, Callable[[Mapping[str, str]], Estimator]]] = {
    "limits": lambda _: ByLimit(),
    "history": ByHistory,
    "durations": lambda _: ByDuration(),
}
