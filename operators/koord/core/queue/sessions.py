"""Queues in one planning cycle: who may not start now, whatever room there is.

Units that start are counted on the undo log of the cycle. Whose turn it is, and what is reserved
for whom, is asked of ``CycleTurns``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from koord.core.engine.arrays import Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Admission, Admitting, FilterReach, Ordering
from koord.core.model.plan import Placement, Unit, UnitKey, Unplaced
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.queue.counts import Line, is_held, lines_of
from koord.core.queue.planned_room import TryPlan
from koord.core.queue.reasons import NAME, HeldByOwner, QueueFull, QueueStopped, TooManyRunning

if TYPE_CHECKING:
    from koord.core.queue.cycle_turns import CycleTurns
    from koord.core.queue.plugin import Queues

RESERVED_FOR_HEADS: Final = Cause(
    "ReservedForEarlierUnit",
    41,
    "node(s) had room reserved for a unit that comes before",
    is_held=True,
)


class HoldSession(Admitting):
    """Units held back by their owners, or with no time left: all there is without settings."""

    name = NAME

    def __init__(self, queues: "Queues", cycle: Cycle) -> None:
        self._queues, self._cycle = queues, cycle
        self._started: dict[UnitKey, bool] = {}

    @override
    def admit(self, unit: Unit) -> Reason | None:
        if is_held(unit) and not self.has_started(unit):
            return HeldByOwner()
        return self._queues.limits.refuse(unit)

    def has_started(self, unit: Unit) -> bool:
        has_started = self._started.get(unit.key)
        if has_started is None:
            has_started = self._started[unit.key] = self._queues.has_started(unit)
        return has_started


class QueueTurnSession(HoldSession, Ordering):
    """Turns in one cycle, and room that is reserved for those that wait."""

    reach = FilterReach.ROW
    after = ("quota",)

    def __init__(self, queues: "Queues", cycle: Cycle) -> None:
        super().__init__(queues, cycle)
        self.turns: CycleTurns | None = None
        """From the first unit on that is planned."""
        self.now = cycle.now
        self._started_here: frozenset[UnitKey] = frozenset()
        """Units that have started in virtual time."""

    @override
    def admit(self, unit: Unit) -> Reason | None:
        refused = super().admit(unit) or self.find_limit(unit)
        if refused is not None or self.turns is None:
            return refused
        return self.turns.why_behind(unit)

    def find_limit(self, unit: Unit) -> Reason | None:  # noqa: ARG002 - for overriding
        """Return which limit of its queue keeps a unit waiting."""
        return None

    @property
    @override
    def version(self) -> int:
        return 0 if self.turns is None else self.turns.room.version

    @override
    def in_turn(self, units: Sequence[Unit], try_plan: TryPlan) -> Iterable[Unit]:
        if self.turns is None:
            self.turns = self._queues.make_turns(self._cycle)
            self.turns.heads.drop(self._started_here)
        return self.turns.in_turn(units, try_plan)

    def go_on(self, started: Collection[UnitKey], ended: Iterable[Pod]) -> None:  # noqa: ARG002
        """Let turns be those of the time that the cycle has by now: time is played forward.

        ``started`` have had theirs by then; of each unit that has ended since there is one pod.
        """
        self.turns, self._started_here = None, frozenset(started)

    @override
    def may_keep(self, unit: Unit, placement: Placement) -> bool:
        return self.turns is None or self.turns.may_keep(unit, placement)

    @override
    def refused(self, unit: Unit, reason: Reason) -> Reason:
        return reason if self.turns is None else self.turns.refused(unit, reason)

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        """Leave to others what is reserved for them."""
        limits = None if self.turns is None else self.turns.room.limits
        if limits is not None:
            yield RESERVED_FOR_HEADS, limits.room(shape, rows)

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Refuse a unit that would take what the quotas of others need at their start."""
        reason = None if self.turns is None else self.turns.why_over_quota(unit)
        if reason is None or self.has_started(unit):
            return Admission(unit)
        return Unplaced(unit.key, unit.pods, reason)


class QueueLimitSession(QueueTurnSession):
    """Also the limits that queues set; units that start are counted on the undo log."""

    def __init__(self, queues: "Queues", cycle: Cycle) -> None:
        super().__init__(queues, cycle)
        self._more: Counter[Line] = Counter()
        self._parked: Mapping[str, QueueFull] | None = None

    @override
    def find_limit(self, unit: Unit) -> Reason | None:
        if self.has_started(unit):
            return None
        queue = self._queues.queue_of(unit.pods[0])
        stop = self._queues.settings_of(queue).stop
        if stop != "None":
            return QueueStopped(queue, stop)
        return self._find_parked().get(unit.key) if self._queues.is_parking else None

    @override
    def go_on(self, started: Collection[UnitKey], ended: Iterable[Pod]) -> None:
        super().go_on(started, ended)
        for pod in ended:
            self._count(lines_of(self._queues.queue_of(pod), self._queues.user_of(pod)), -1)

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Count a unit that starts, or refuse it."""
        outcome = super().pre_filter(unit)
        if isinstance(outcome, Unplaced) or self.has_started(unit):
            return outcome
        pod = unit.pods[0]
        queue = self._queues.queue_of(pod)
        settings, user = self._queues.settings_of(queue), self._queues.user_of(pod)
        limits = (
            ("", settings.max_running, "maxRunning"),
            (user, settings.max_running_per_user, "maxRunningPerUser"),
        )
        started = self._queues.started()
        for whom, limit, setting in limits:
            running = started[queue, whom] + self._more[queue, whom]
            if limit is not None and running >= limit:
                reason = TooManyRunning(queue, whom, running, limit, setting)
                return Unplaced(unit.key, unit.pods, reason)
        self._count(lines_of(queue, user), 1)
        self._cycle.undo.push(self._count, lines_of(queue, user), -1)
        return outcome

    def _count(self, lines: tuple[Line, Line], count: int) -> None:
        for line in lines:
            self._more[line] += count

    def _find_parked(self) -> Mapping[str, QueueFull]:
        """Return the units beyond what may wait in their queue, in the order of their time."""
        if self._parked is None:
            waiting: Counter[Line] = Counter()
            self._parked = {}
            for unit in self._cycle.pending():
                pod = unit.pods[0]
                queue = self._queues.queue_of(pod)
                settings, user = self._queues.settings_of(queue), self._queues.user_of(pod)
                limits = (
                    ("", settings.max_pending, "maxPending"),
                    (user, settings.max_pending_per_user, "maxPendingPerUser"),
                )
                for whom, limit, setting in limits:
                    if limit is not None and waiting[queue, whom] >= limit:
                        self._parked[unit.key] = QueueFull(queue, whom, limit, setting)
                if unit.key not in self._parked and not is_held(unit):
                    waiting.update(lines_of(queue, user))
        return self._parked
