"""Decides when, and for which units, victims are searched: the pace of ``PreemptionController``.

A unit is tried once after each refusal by the planner, and from time to time, because running pods
may have become evictable. After a cancelled preemption it pauses, longer each time.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from koord.core.engine.holds import Holds
from koord.core.engine.queue import Blocked, Queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Exempt, Preemption
from koord.core.eviction.progress import find_leaving, fits
from koord.core.eviction.reasons import TerminationStuck, WaitsForTermination
from koord.core.eviction.search import (
    DEFAULT_OPTIONS,
    PreemptionContext,
    PreemptionOptions,
    plan_preemption,
)
from koord.core.model.budgets import Budget
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.isolation import Isolation

log = logging.getLogger(__name__)

SEARCHES_PER_LOOK: Final = 4
"""Searches between two pauses for everything else."""
RETRY_ALL_SECONDS: Final = 30.0
"""How often blocked units are tried without having been refused again."""
BUDGET_SECONDS: Final = 2.0
"""How old PodDisruptionBudgets may be."""
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Between preemptions of a unit of which the last one was cancelled."""
REFUSED_SECONDS: Final = 300.0
"""How long a unit is exempt after the server refused to evict it."""
FIRST_EXEMPTION_SECONDS: Final = 20.0
"""How long a unit is exempt after it could not be marked; four times as long each time after."""


@dataclass(slots=True)
class _SearchPause:
    failures: int
    until: float


@dataclass(slots=True)
class PreemptionSearch:
    """``list_budgets`` reads all PodDisruptionBudgets."""

    state: ClusterState
    queue: Queue
    holds: Holds
    list_budgets: Callable[[], Awaitable[tuple[Budget, ...]]]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    options: PreemptionOptions = DEFAULT_OPTIONS
    patience: Patience = FOREVER
    _isolated: Isolation = field(default_factory=lambda: Isolation("preemption-search"))
    _why_not: dict[UnitKey, Reason] = field(default_factory=dict)
    """Units for which nobody is preempted because of pods that leave."""
    _tried: dict[UnitKey, Blocked] = field(default_factory=dict)
    """Unit -> the refusal after which it was tried last."""
    _pauses: dict[UnitKey, _SearchPause] = field(default_factory=dict)
    _exempt: dict[str, _SearchPause] = field(default_factory=dict)
    """Victim unit -> until when it is exempt."""
    _budgets: tuple[Budget, ...] = ()
    _budgets_at: float = float("-inf")
    _retry_all_at: float = 0.0

    def take_due(self, busy: Collection[UnitKey]) -> list[Blocked]:
        """Return the units to try now, in order; not those that are ``busy`` preempting."""
        now = self.clock()
        if now >= self._retry_all_at:
            self._retry_all_at = now + RETRY_ALL_SECONDS
            self._tried.clear()
        self._drop_stale(now)
        self._retry_overdue()
        due = [
            blocked_unit
            for key, blocked_unit in self.queue.blocked.items()
            if key not in busy and self._is_due(blocked_unit, now)
        ]
        if not due:
            return []
        lowest = min(self.state.evictable, default=float("inf"))
        for blocked_unit in due:
            if min(pod.priority for pod in blocked_unit.unit.pods) <= lowest:
                self._tried[blocked_unit.unit.key] = blocked_unit
        return sorted(
            (
                blocked_unit
                for blocked_unit in due
                if self._tried.get(blocked_unit.unit.key) is not blocked_unit
            ),
            key=_order,
        )

    def is_worth_it(self, blocked: Blocked) -> bool:
        """Whether a unit is still waiting for the same reason; counts as an attempt."""
        key = blocked.unit.key
        self._tried[key] = blocked
        return self.queue.blocked.get(key) is blocked

    async def read_budgets(self) -> None:
        if self.clock() < self._budgets_at + BUDGET_SECONDS:
            return
        try:
            self._budgets = await self.list_budgets()
        except Exception:
            log.exception("Cannot read PodDisruptionBudgets; the last known ones count")
        self._budgets_at = self.clock()

    def find(self, unit: Unit, terminating: Collection[str]) -> Preemption | None:
        """Return a preemption for a unit; ``terminating`` are uids that were evicted already."""
        ours = {pod.uid for nomination in self.state.nominations for pod in nomination.victims}
        now = self.clock()
        units = {key for key, pause in self._exempt.items() if pause.until > now}
        exempt = Exempt(units, ours | set(terminating), self.patience)
        context = self._context_of(unit)
        preemption = self._isolated.call(
            unit.key, plan_preemption, self.state, unit, self.options, exempt, context
        )
        self._why_not.pop(unit.key, None)
        if isinstance(preemption, WaitsForTermination | TerminationStuck):
            self._why_not[unit.key] = preemption
        return (
            preemption
            if isinstance(preemption, Preemption) and self._lasts(unit, preemption)
            else None
        )

    def why_not(self, unit: UnitKey) -> Reason | None:
        """Return which pods that leave are the reason why nobody is preempted for a unit."""
        return self._why_not.get(unit)

    def _retry_overdue(self) -> None:
        """Try units again that have waited long enough for pods that leave."""
        now = self.wall_clock()
        for key, reason in self._why_not.items():
            if isinstance(reason, WaitsForTermination) and now > reason.until:
                self._tried.pop(key, None)

    def fits(self, unit: Unit, gone: Collection[Pod] = (), ahead: Iterable[Unit] = ()) -> bool:
        """Whether a unit fits without some pods, after units that are ``ahead`` of it."""
        return fits(self.state, unit, gone, ahead, self._context_of(unit))

    def _context_of(self, unit: Unit) -> PreemptionContext:
        return PreemptionContext(
            self.wall_clock(),
            self._budgets,
            lambda cycle: self.holds.reserve(cycle, unit, Scoring()),
            self.queue.pending,
        )

    def exempt(self, units: Iterable[str]) -> None:
        """Do not choose these victims for a while."""
        self._exempt |= {key: _SearchPause(0, self.clock() + REFUSED_SECONDS) for key in units}

    def exempt_for_now(self, units: Iterable[str]) -> None:
        """Do not choose victims that could not be marked: for longer each time."""
        for key in set(units):
            pause = self._exempt.setdefault(key, _SearchPause(0, 0.0))
            seconds = min(FIRST_EXEMPTION_SECONDS * 4.0**pause.failures, REFUSED_SECONDS)
            pause.failures = min(pause.failures + 1, 16)
            pause.until = self.clock() + seconds

    def note_end(self, unit: UnitKey, *, is_done: bool) -> None:
        """Note the end of a preemption; unless it is done, the unit pauses and is tried again."""
        self._tried.pop(unit, None)
        if is_done:
            self._pauses.pop(unit, None)
            return
        pause = self._pauses.setdefault(unit, _SearchPause(0, 0.0))
        delay = min(FIRST_PAUSE_SECONDS * 2.0**pause.failures, LONGEST_PAUSE_SECONDS)
        pause.failures = min(pause.failures + 1, 16)
        pause.until = self.clock() + delay

    def _is_due(self, blocked: Blocked, now: float) -> bool:
        unit = blocked.unit
        pause = self._pauses.get(unit.key)
        return (
            blocked.reason.is_capacity
            and self._tried.get(unit.key) is not blocked
            and (pause is None or pause.until <= now)
            and bool(unit.required)
            and len(blocked.pods) == len(unit.pods)
        )

    def _drop_stale(self, now: float) -> None:
        blocked = self.queue.blocked
        self._tried = {
            key: blocked_unit for key, blocked_unit in self._tried.items() if key in blocked
        }
        self._exempt = {
            key: pause for key, pause in self._exempt.items() if pause.until > now - REFUSED_SECONDS
        }
        self._why_not = {key: reason for key, reason in self._why_not.items() if key in blocked}
        self._pauses = {
            key: pause
            for key, pause in self._pauses.items()
            if pause.until > now - LONGEST_PAUSE_SECONDS and self.queue.find(key) is not None
        }

    def _lasts(self, unit: Unit, preemption: Preemption) -> bool:
        """Whether units that go first would leave the room to this one."""
        ahead = [
            blocked_unit
            for blocked_unit in self.queue.blocked.values()
            if blocked_unit.reason.is_capacity and blocked_unit.unit.priority > unit.priority
        ]
        if not ahead:
            return True
        units = [blocked_unit.unit for blocked_unit in sorted(ahead, key=_order)]
        leaving = find_leaving(self.state, self.patience, self.wall_clock())
        return self.fits(unit, [*preemption.pods, *leaving], units)


def _order(blocked: Blocked) -> tuple[int, float, str]:
    unit = blocked.unit
    return -unit.priority, unit.since, unit.key
