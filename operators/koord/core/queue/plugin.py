"""Joins queues to the planner: who may not start now, whatever room there is.

A leaf quota is a queue; its settings are inherited. Order, protection and reserved room are not
asked yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Admission, Admitting, Plugin, QueueingHint
from koord.core.engine.state_view import StateView
from koord.core.model.plan import Unit, UnitKey, Unplaced
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.queue.counts import Line, StartedUnits, has_started, lines_of
from koord.core.queue.limits import RunLimits
from koord.core.queue.reasons import (
    NAME,
    HeldByOwner,
    NotItsTurn,
    QueueFull,
    QueueStopped,
    TooManyRunning,
)
from koord.core.queue.run_time import hints_of
from koord.core.queue.settings import QueueSettings, settle
from koord.core.queue.turns import Competition, StartReservation, Turn, make_turns
from koord.core.quota.plugin import Quotas

_MOST_LEVELS: Final = 64


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What holds for queues where no quota says anything else, by setting."""

    values: Mapping[str, Any] = field(default_factory=dict)


class Queues(Plugin):
    """The queues of a cluster."""

    name = NAME
    after = ("quota",)

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._settings: dict[str, QueueSettings] = {}
        self._edits: object = None
        self._started: StartedUnits | None = None
        self.is_limiting = False

    @override
    def attach(self, view: StateView) -> None:
        super().attach(view)
        self._default = settle(self._options.values, ())
        self._note_limits()
        self.limits = RunLimits(view, self.queue_of, self.settings_of)

    @override
    def absorb(self) -> None:
        """Count started units, once anything limits them."""
        catalog = self.view.plugin(Quotas).cache.catalog
        if self._edits != catalog.edits:
            self._edits = catalog.edits
            self._settings = {}
            self._note_limits()
        if not self.is_limiting:
            self._started = None
            return
        if self._started is None:
            self._started = StartedUnits(self.view, self.queue_of)
        self._started.update()

    def queue_of(self, pod: Pod) -> str:
        """Return the leaf quota that a pod charges."""
        return self.view.plugin(Quotas).cache.quota_of(pod)

    def settings_of(self, queue: str) -> QueueSettings:
        """Return what is in effect for a queue."""
        settings = self._settings.get(queue)
        if settings is None:
            registry = self.view.plugin(Quotas).cache.catalog.registry
            path: list[Mapping[str, Any]] = []
            spec = registry.get(queue)
            while spec is not None and len(path) < _MOST_LEVELS:
                path.insert(0, spec.queue)
                spec = registry.get(spec.parent)
            settings = self._settings[queue] = settle(self._options.values, path)
        return settings

    def started(self) -> Counter[Line]:
        """Return how many units have started, by queue and user."""
        return Counter() if self._started is None else self._started.counts

    @override
    def time_limit(self, pod: Pod) -> int | None:
        left = self.limits.left_of(pod)
        return None if left is None else max(left, 1)

    def turns(self, cycle: Cycle) -> tuple[Turn, ...]:
        """Return the turns of all complete units that wait, in order."""
        competition = Competition(cycle, lambda unit: self.queue_of(unit.pods[0]))
        return tuple(make_turns(cycle.pending(), competition, _is_held, self._find_head))

    def _find_head(self, _unit: UnitKey) -> tuple[int | None, StartReservation | None]:
        return None, None

    @override
    def queueing_hint(self, pending: Callable[[], Iterable[Unit]]) -> QueueingHint:
        """Have all tried again when a unit has started or ended, or others wait than before."""
        version = 0 if self._started is None else self._started.version
        waiting = frozenset(unit.key for unit in pending()) if self.is_limiting else frozenset()
        return QueueingHint(self._edits, (self._edits, version, hash(waiting)), _is_ours)

    @override
    def open(self, cycle: Cycle) -> "HoldSession":
        return (QueueTurnSession if self.is_limiting else HoldSession)(self, cycle)

    def _note_limits(self) -> None:
        specs = self.view.plugin(Quotas).cache.catalog.registry.specs
        self.is_limiting = bool(self._options.values) or any(spec.queue for spec in specs.values())


class HoldSession(Admitting):
    """Units held back by their owners, or with no time left: all there is without settings."""

    name = NAME

    def __init__(self, queues: Queues, cycle: Cycle) -> None:
        self._queues, self._cycle = queues, cycle

    @override
    def admit(self, unit: Unit) -> Reason | None:
        if _is_held(unit) and not self.has_started(unit):
            return HeldByOwner()
        return self._queues.limits.refuse(unit)

    def has_started(self, unit: Unit) -> bool:
        return has_started(unit, self._queues.view)


class QueueTurnSession(HoldSession):
    """Queues in one cycle; units that start in it are on the undo log of the cycle."""

    def __init__(self, queues: Queues, cycle: Cycle) -> None:
        super().__init__(queues, cycle)
        self._more: Counter[Line] = Counter()
        self._parked: Mapping[str, QueueFull] | None = None

    @override
    def admit(self, unit: Unit) -> Reason | None:
        refused = super().admit(unit)
        if refused is not None or self.has_started(unit):
            return refused
        queue = self._queues.queue_of(unit.pods[0])
        stop = self._queues.settings_of(queue).stop
        if stop != "None":
            return QueueStopped(queue, stop)
        return self._find_parked().get(unit.key)

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Count a unit that starts, or refuse it."""
        if self.has_started(unit):
            return Admission(unit)
        pod = unit.pods[0]
        queue = self._queues.queue_of(pod)
        settings = self._queues.settings_of(queue)
        limits = (
            ("", settings.max_running, "maxRunning"),
            (pod.namespace, settings.max_running_per_user, "maxRunningPerUser"),
        )
        started = self._queues.started()
        for user, limit, setting in limits:
            running = started[queue, user] + self._more[queue, user]
            if limit is not None and running >= limit:
                reason = TooManyRunning(queue, user, running, limit, setting)
                return Unplaced(unit.key, unit.pods, reason)
        self._count(lines_of(queue, pod.namespace), 1)
        self._cycle.undo.push(self._count, lines_of(queue, pod.namespace), -1)
        return Admission(unit)

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
                settings = self._queues.settings_of(queue)
                limits = (
                    ("", settings.max_pending, "maxPending"),
                    (pod.namespace, settings.max_pending_per_user, "maxPendingPerUser"),
                )
                for user, limit, setting in limits:
                    if limit is not None and waiting[queue, user] >= limit:
                        self._parked[unit.key] = QueueFull(queue, user, limit, setting)
                if unit.key not in self._parked and not _is_held(unit):
                    waiting.update(lines_of(queue, pod.namespace))
        return self._parked


def _is_ours(_unit: Unit, reason: Reason) -> bool:
    return isinstance(reason, NotItsTurn)


def _is_held(unit: Unit) -> bool:
    return any(demand.is_held for demand in unit.demands) or any(
        hints_of(pod).is_held for pod in unit.pods if pod.extensions
    )
