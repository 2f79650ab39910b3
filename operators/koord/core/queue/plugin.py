"""Joins queues to the planner: whose turn it is, who may not start now, what is reserved for whom.

A leaf quota is a queue; its settings are inherited.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from koord.core.engine.arrays import Ints, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import (
    Admission,
    Admitting,
    FilterReach,
    Ordering,
    Plugin,
    QueueingHint,
    Session,
)
from koord.core.engine.state_view import StateView
from koord.core.model.gangs import QueueMemory
from koord.core.model.plan import Placement, Plan, Unit, UnitKey, Unplaced
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.queue.counts import Line, StartedUnits, has_started, lines_of
from koord.core.queue.cycle_turns import BlockedHeads, CycleTurns
from koord.core.queue.ends import EndingPod, Ends
from koord.core.queue.limits import RunLimits
from koord.core.queue.memory import QueueRecord, RunMemory
from koord.core.queue.planned_room import PlannedRoom, TryPlan
from koord.core.queue.reasons import (
    NAME,
    BehindHead,
    HeldByOwner,
    NotItsTurn,
    QueueFull,
    QueueStopped,
    TooManyRunning,
    WouldDelay,
)
from koord.core.queue.reserved_limits import PlannedStart
from koord.core.queue.run_time import Estimate, Knowledge, RunTime, hints_of, is_overdue
from koord.core.queue.settings import QueueSettings, settle
from koord.core.queue.turns import (
    OPEN,
    TIMED,
    Competition,
    StartReservation,
    Turn,
    make_turns,
)
from koord.core.queue.user_order import UserOrder
from koord.core.quota.model import QuotaSpec
from koord.core.quota.plugin import Quotas

if TYPE_CHECKING:
    from koord.core.model.changes import Feed

PLAN_AGAIN_SECONDS: Final = 10
"""Room is not reserved anew more often than that as nodes become free."""
RESTORE_SECONDS: Final = 60
"""For so long a new process takes over what statuses say of heads: they are not newer than it."""
_MOST_LEVELS: Final = 64
RESERVED_FOR_HEADS: Final = Cause(
    "ReservedForEarlierUnit",
    41,
    "node(s) had room reserved for a unit that comes before",
    is_held=True,
)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What holds for queues where no quota says anything else, by setting."""

    values: Mapping[str, Any] = field(default_factory=dict)
    are_users_stamped: bool = False
    """Whether a policy writes on each pod for whom it runs, so that it can be believed."""


class Queues(Plugin):
    """The queues of a cluster."""

    name = NAME
    after = ("quota",)
    orders_by_default = True

    def __init__(self, options: QueueOptions, *, is_compat: bool = False) -> None:
        self._options = options
        self._settings: dict[str, QueueSettings] = {}
        self._edits: object = None
        self._started: StartedUnits | None = None
        self._memory: RunMemory | None = None
        self._heads = BlockedHeads()
        self._heads_at = self._due_at = 0.0
        self._feed: Feed | None = None
        self._has_moved = False
        """Whether nodes have more room than when room was reserved, or are gone."""
        self._plan_again_at = 0.0
        self._began: float | None = None
        """When it was decided first."""
        self._due: set[UnitKey] = set()
        self._delayed: set[UnitKey] = set()
        """Units that were refused for reserved room."""
        self._is_compat = is_compat
        self._tried: Mapping[str, Any] = {}
        """Settings that all queues follow, for a question."""
        self.is_limiting = self.is_ordering = False

    @override
    def attach(self, view: StateView) -> None:
        super().attach(view)
        self._quotas = view.plugin(Quotas)
        self._default = settle(self._options.values, (), compat=self._is_compat)
        self._note_limits()
        self.limits = RunLimits(view, self.queue_of, self.settings_of, self._estimate)

    @override
    def absorb(self) -> None:
        """Count started units, once anything limits them."""
        catalog = self._quotas.cache.catalog
        if self._edits != catalog.edits:
            self._edits = catalog.edits
            self._settings = {}
            self._note_limits()
        self._note_moved()
        if not self.is_limiting:
            self._started = self._memory = None
            return
        if self._started is None:
            self._started = StartedUnits(self.view, self.queue_of, self.user_of)
        self._started.update()
        if self._memory is None:
            self._memory = RunMemory(self.view, self.queue_of, self.user_of, self._record_of)
        self._memory.update(self.view.now)

    def remember(self, now: float) -> RunMemory | None:
        """Return what queues remember by ``now``; None where nobody says anything of queues."""
        self.absorb()
        if self._memory is not None:
            self._memory.update(now)
        return self._memory

    def user_share(self, queue: str, user: str) -> Fraction:
        """Return what a user has used of a queue lately; equal for all where it does not count."""
        settings = self.settings_of(queue)
        if settings.user_fairness == "None" or self._memory is None:
            return Fraction(0)
        return self._memory.share(queue, user, settings.user_weights.get(user, 1))

    @override
    def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
        """Let users of a queue take turns where their use counts."""
        return UserOrder[Unit](
            self._fair_queue_of,
            lambda unit: self.user_of(unit.pods[0]),
            self.user_share,
            self._charge_of,
            self._heads.place_of,
        ).sort(units)

    def _fair_queue_of(self, unit: Unit) -> str:
        queue = self.queue_of_unit(unit) if unit.pods else ""
        return queue if queue and self.settings_of(queue).user_fairness != "None" else ""

    def _charge_of(self, queue: str, user: str, unit: Unit) -> Fraction:
        weight = self.settings_of(queue).user_weights.get(user, 1)
        return Fraction(0) if self._memory is None else self._memory.charge(unit.pods, weight)

    def user_of(self, pod: Pod) -> str:
        """Return for whom a pod runs: nobody can prove more than its namespace without a stamp."""
        stamped = hints_of(pod).terms.user if self._options.are_users_stamped else ""
        return stamped or pod.namespace

    def _record_of(self, queue: str) -> QueueRecord | None:
        spec = self._quotas.cache.catalog.registry.get(queue)
        record = None if spec is None else spec.queue_record
        return record if isinstance(record, QueueRecord) else None

    def _estimate(self, pods: Sequence[Pod]) -> Estimate | None:
        return None if self._memory is None or not pods else self._memory.estimate(pods)

    def _note_moved(self) -> None:
        """Note that nodes have more room, or are gone, while room is reserved."""
        is_reserved = bool(self._heads.protections)
        if self._feed is None:
            if is_reserved:
                self._feed = self.view.feed()
                self._feed.drain()
            return
        changes = self._feed.drain()
        self._has_moved |= is_reserved and bool(changes.freed or changes.removed)

    def queue_of(self, pod: Pod) -> str:
        """Return the leaf quota that a pod charges."""
        return self._quotas.cache.quota_of(pod)

    def settings_of(self, queue: str) -> QueueSettings:
        """Return what is in effect for a queue."""
        settings = self._settings.get(queue)
        if settings is None:
            path = [*(spec.queue for spec in self._specs_from_root(queue)), self._tried]
            settings = self._settings[queue] = settle(
                self._options.values, path, compat=self._is_compat
            )
        return settings

    def try_settings(self, values: Mapping[str, Any]) -> None:
        """Have all queues follow these settings, whatever their quotas say: for a question."""
        self._tried, self._settings, self._heads = values, {}, BlockedHeads()
        self._note_limits()

    def path_of(self, queue: str) -> Collection[str]:
        """Return a queue and all quotas above."""
        return [spec.name for spec in self._specs_from_root(queue)] or [queue]

    def _specs_from_root(self, queue: str) -> list[QuotaSpec]:
        registry = self._quotas.cache.catalog.registry
        path: list[QuotaSpec] = []
        spec = registry.get(queue)
        while spec is not None and len(path) < _MOST_LEVELS:
            path.insert(0, spec)
            spec = registry.get(spec.parent)
        return path

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

    def starts_soon(self, unit: Unit) -> bool:
        """Whether a unit has room reserved for a time so near that nobody is evicted for it.

        Only by limits that are enforced: whoever is merely expected to end may go on.
        """
        protection = self._heads.protections.get(unit.key)
        reserved = None if protection is None else protection.reserved
        if reserved is None or reserved.is_open:
            return False
        settings = self.settings_of(self.queue_of_unit(unit))
        is_certain = settings.backfill_on == Knowledge.DECLARED
        if not is_certain or reserved.start > self.view.now + settings.prefer_wait:
            return False
        pods = (pod for node in reserved.places for pod in self.view.pods_on(node))
        return not any(is_overdue(pod, self.view.now) for pod in pods)

    def has_started(self, unit: Unit) -> bool:
        """Whether some of a unit runs already: it is completed, whatever turns there are."""
        return has_started(unit, self.view)

    def queue_of_unit(self, unit: Unit) -> str:
        """Return the queue of a unit."""
        return self.queue_of(unit.pods[0])

    def run_time_of(self, unit: Unit) -> RunTime:
        """Return how long a waiting unit runs."""
        return self.limits.run_time_of(unit)

    def memory_of(self, unit: Unit) -> QueueMemory | None:
        """Return what an earlier process has left of a unit that was first, if this one is new."""
        if self._began is None or self.view.now > self._began + RESTORE_SECONDS:
            return None
        groups = (self.view.gangs.pod_group(demand.gang) for demand in unit.demands if demand.gang)
        memories = [group.queued for group in groups if group is not None and group.queued]
        return min(memories, key=lambda memory: memory.head_since, default=None)

    def is_known(self, queue: str, running: EndingPod) -> bool:
        """Whether what is known of the end of a pod counts as its end, for a queue."""
        return running.level.is_at_least(self.settings_of(queue).backfill_on)

    def make_turns(self, cycle: Cycle) -> CycleTurns:
        """Return the turns of a cycle."""
        if self._began is None and cycle.is_deciding:
            self._began = cycle.now
        ends = Ends(self.view, self.limits, int(cycle.now))
        competition = Competition(cycle, self.queue_of_unit)
        room = PlannedRoom(cycle, ends, competition, self.is_known)
        heads = self._heads.copy()
        looked_at = list(heads.blocked.values()) if heads.firsts is None else heads.firsts
        heads.drop([unit.key for unit in looked_at if not self._waits(unit)])
        for key in heads.idle:
            if key in heads.protections:
                heads.protections[key].idle_time += int(cycle.now - self._heads_at)
        return CycleTurns(cycle, self, heads, room, ends)

    def _waits(self, unit: Unit) -> bool:
        pods = self.view.pods
        return all(pod.uid in pods and pods[pod.uid].is_waiting for pod in unit.pods)

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        """Keep who is blocked, and what is reserved; have those tried again whom it concerns."""
        if not isinstance(session, QueueTurnSession) or session.turns is None:
            return
        self._heads, self._heads_at = session.turns.settle(), session.now
        for refusal in plan.refusals:
            if isinstance(refusal.reason, WouldDelay | BehindHead):
                self._delayed.add(refusal.unit)
        for placement in plan.placements:
            self._delayed.discard(placement.unit)
        if session.turns.has_changed:
            self._due |= self._delayed
            self._delayed = set()

    @override
    def take_due(self) -> Collection[UnitKey]:
        """Return whose turn has to be decided again now: of time alone, or as others moved."""
        now = self.view.now
        due = {key for key, at in self._dues() if at <= now} | self._due
        if self._has_moved and now >= self._plan_again_at:
            due |= self._heads.protections.keys()
            self._has_moved, self._plan_again_at = False, now + PLAN_AGAIN_SECONDS
        self._due, self._due_at = set(), now
        return due

    @override
    def next_due(self) -> float | None:
        dues = [at for _, at in self._dues()]
        if self._due:
            dues.append(self.view.now)
        if self._has_moved:
            dues.append(self._plan_again_at)
        return min(dues, default=None)

    def _dues(self) -> Iterator[tuple[UnitKey, float]]:
        for key, protection in self._heads.protections.items():
            unit = self._heads.blocked.get(key)
            if unit is None:
                continue
            settings = self.settings_of(self.queue_of_unit(unit))
            for at in protection.dues(settings, int(self._heads_at)):
                if at > max(self._heads_at, self._due_at):
                    yield key, at

    def _find_head(self, unit: UnitKey) -> tuple[int | None, StartReservation | None]:
        protection = self._heads.protections.get(unit)
        if protection is None:
            return None, None
        reserved = protection.reserved
        if not isinstance(reserved, PlannedStart):
            return protection.first_since, None
        return protection.first_since, StartReservation(
            OPEN if reserved.is_open else TIMED,
            reserved.start,
            protection.since,
            dict(reserved.places),
            idle_seconds=protection.idle_time,
        )

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
        specs = self._quotas.cache.catalog.registry.specs
        settings = [self._options.values, self._tried, *(spec.queue for spec in specs.values())]
        self.is_limiting = any(settings)
        self.is_ordering = any(values.get("user_fairness", "None") != "None" for values in settings)


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
        return self._queues.has_started(unit)


class QueueTurnSession(HoldSession, Ordering):
    """Queues in one cycle; units that start in it are on the undo log of the cycle."""

    reach = FilterReach.ROW
    after = ("quota",)

    def __init__(self, queues: Queues, cycle: Cycle) -> None:
        super().__init__(queues, cycle)
        self.turns: CycleTurns | None = None
        """From the first unit on that is planned."""
        self.now = cycle.now
        self._started_here: frozenset[UnitKey] = frozenset()
        """Units that have started in virtual time."""
        self._more: Counter[Line] = Counter()
        self._parked: Mapping[str, QueueFull] | None = None

    @override
    def admit(self, unit: Unit) -> Reason | None:
        refused = super().admit(unit)
        if refused is not None or self.has_started(unit):
            return refused
        limit = self._find_limit(unit)
        if limit is not None or self.turns is None:
            return limit
        return self.turns.why_behind(unit)

    def _find_limit(self, unit: Unit) -> Reason | None:
        queue = self._queues.queue_of(unit.pods[0])
        stop = self._queues.settings_of(queue).stop
        return QueueStopped(queue, stop) if stop != "None" else self._find_parked().get(unit.key)

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

    def go_on(self, started: Collection[UnitKey], ended: Iterable[Pod]) -> None:
        """Let turns be those of the time that the cycle has by now: time is played forward.

        ``started`` have had theirs by then; of each unit that has ended since there is one pod.
        """
        self.turns, self._started_here = None, frozenset(started)
        for pod in ended:
            self._count(lines_of(self._queues.queue_of(pod), pod.namespace), -1)

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
        """Count a unit that starts, or refuse it."""
        if self.has_started(unit):
            return Admission(unit)
        reason = None if self.turns is None else self.turns.why_over_quota(unit)
        if reason is not None:
            return Unplaced(unit.key, unit.pods, reason)
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
                settings, user = self._queues.settings_of(queue), self._queues.user_of(pod)
                limits = (
                    ("", settings.max_pending, "maxPending"),
                    (user, settings.max_pending_per_user, "maxPendingPerUser"),
                )
                for whom, limit, setting in limits:
                    if limit is not None and waiting[queue, whom] >= limit:
                        self._parked[unit.key] = QueueFull(queue, whom, limit, setting)
                if unit.key not in self._parked and not _is_held(unit):
                    waiting.update(lines_of(queue, user))
        return self._parked


def _is_ours(_unit: Unit, reason: Reason) -> bool:
    return isinstance(reason, NotItsTurn)


def _is_held(unit: Unit) -> bool:
    return any(demand.is_held for demand in unit.demands) or any(
        hints_of(pod).is_held for pod in unit.pods if pod.extensions
    )
