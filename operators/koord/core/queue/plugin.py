"""Joins queues to the planner: whose turn it is, who may not start now, what is reserved for whom.

A leaf quota is a queue; its settings are inherited.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin, QueueingHint, Session
from koord.core.engine.state_view import StateView
from koord.core.model.gangs import QueueMemory
from koord.core.model.plan import Plan, Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.counts import Line, StartedUnits, has_started, is_held, waits
from koord.core.queue.cycle_turns import CycleTurns
from koord.core.queue.due import DueTurns
from koord.core.queue.ends import Ends, KnownRuns
from koord.core.queue.figures import QueueFigures
from koord.core.queue.inherited import SettingsOfQueues
from koord.core.queue.limits import RunLimits
from koord.core.queue.memory import QueueRecord, RunMemory
from koord.core.queue.order import Aging
from koord.core.queue.planned_room import PlannedRoom
from koord.core.queue.reasons import NAME, BehindHead, HeldByOwner, NotItsTurn, TooManyRunning
from koord.core.queue.reserved_limits import PlannedStart
from koord.core.queue.run_time import Estimate, Knowledge, RunTime, hints_of, is_overdue
from koord.core.queue.sessions import HoldSession, QueueLimitSession, QueueTurnSession
from koord.core.queue.settings import QueueSettings
from koord.core.queue.turns import (
    OPEN,
    TIMED,
    Competition,
    StartReservation,
    Turn,
    make_turns,
)
from koord.core.queue.unit_order import UnitOrder, priority_of
from koord.core.queue.vain_holds import VainHolds
from koord.core.quota.cache import is_used
from koord.core.quota.model import DEFAULT_TREE, TreeId
from koord.core.quota.plugin import Quotas

_NO_SHARE: Final = Fraction(0)
"""One value: what is the very same is compared at once."""
MOST_KEPT: Final = 20_000
RESTORE_SECONDS: Final = 60
"""For so long a new process takes over what statuses say of heads: they are not newer than it."""


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
        self._options, self._is_compat = options, is_compat
        self._started: StartedUnits | None = None
        self._memory: RunMemory | None = None
        self._heads = BlockedHeads()
        self._vain_holds = VainHolds(self._find_rest)
        self._behind: dict[UnitKey, UnitKey] = {}
        """Unit -> the one that it may not pass, as of its last refusal."""
        self._displacing: dict[UnitKey, dict[UnitKey, Unit]] = {}
        """Unit whose promise has moved later -> units with room that had turns before it then."""
        self._queue_of: dict[str, tuple[Pod, str]] = {}
        """Pods that wait, each with its queue: asked for several times in each plan."""
        self._bindings: object = None
        """As of which quotas that is."""
        self._began: float | None = None
        """When it was decided first."""
        self.figures = QueueFigures()
        self.end_of_owner: Callable[[Pod], int | None] = lambda _: None
        """Returns when Kubernetes ends what a pod belongs to; whoever knows it sets it."""

    @override
    def attach(self, view: StateView) -> None:
        super().attach(view)
        self._quotas = view.plugin(Quotas)
        catalog = self._quotas.cache.catalog
        self._settings = SettingsOfQueues(catalog, self._options.values, is_compat=self._is_compat)
        self._due = DueTurns(view, lambda unit: self.settings_of(self.queue_of_unit(unit)))
        self.limits = RunLimits(
            view, self.queue_of, self.settings_of, self._estimate, self._find_owner_end
        )
        self.limits.percent_of = self._expected_percent
        self._runs = KnownRuns(view, self.limits, self._known_beside, self._find_owner_end)

    @property
    def is_limiting(self) -> bool:
        """Whether anybody says anything of queues."""
        return self._settings.is_limiting

    @property
    @override
    def is_ordering(self) -> bool:  # type: ignore[override]
        return self._settings.is_ordering

    @property
    def is_parking(self) -> bool:
        """Whether some queue limits how many units wait."""
        return self._settings.is_parking

    @property
    def has_turns(self) -> bool:
        """Whether quotas and users take turns, and not by what another plugin says."""
        return self.view.is_ordered_by(self)

    @override
    def absorb(self) -> None:
        """Count started units, once anything limits them."""
        self._settings.update()
        self._due.note_changes(self._heads)
        if not self.is_limiting:
            self._started = self._memory = None
            return
        if self._started is None:
            self._started = StartedUnits(self.view, self.queue_of, self.user_of)
        self._started.update()
        if self._memory is None:
            self._memory = RunMemory(self.view, self.queue_of, self.user_of, self._record_of)
            self._memory.on_end = self._note_end
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
            return _NO_SHARE
        return self._memory.share(queue, user, settings.user_weights.get(user, 1))

    @override
    def order(self, units: Sequence[Unit]) -> Iterable[Unit]:
        """Let quotas take turns, and users of a queue where their use counts."""
        quotas = self._quotas.open_session(lambda: units)
        return UnitOrder(self, quotas, self._heads, self.view.now).sort(units)

    def charge_of(self, queue: str, user: str, unit: Unit) -> Fraction:
        """Return by how much the share of a user grows at once when a unit starts."""
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

    def _find_owner_end(self, pod: Pod) -> int | None:
        return self.end_of_owner(pod)

    def _estimate(self, pods: Sequence[Pod]) -> Estimate | None:
        return None if self._memory is None or not pods else self._memory.estimate(pods)

    def _expected_percent(self, pod: Pod, limit: int, ran: int) -> int:
        return 100 if self._memory is None else self._memory.expected_percent(pod, limit, ran)

    def _known_beside(self, pod: Pod) -> object:
        """Return what the run time of a pod on a node follows from beside its limit."""
        spec = None if pod.gang is None else self.view.gangs.spec(pod.gang.key)
        terms = None if spec is None else spec.run
        earlier = None if self._memory is None else self._memory.known_by(pod)
        return self._settings.edits, terms, earlier, self.end_of_owner(pod)

    def queue_of(self, pod: Pod) -> str:
        """Return the leaf quota that a pod charges."""
        cache = self._quotas.cache
        if cache.bindings_version is not self._bindings or len(self._queue_of) > MOST_KEPT:
            self._bindings, self._queue_of = cache.bindings_version, {}
        kept = self._queue_of.get(pod.uid)
        if kept is not None and kept[0] is pod:
            return kept[1]
        queue = cache.quota_of(pod)
        if not is_used(pod):
            self._queue_of[pod.uid] = (pod, queue)
        return queue

    def settings_of(self, queue: str) -> QueueSettings:
        """Return what is in effect for a queue."""
        return self._settings.of(queue)

    def try_settings(self, values: Mapping[str, Any]) -> None:
        """Have all queues follow these settings, whatever their quotas say: for a question."""
        self._settings.try_out(values)
        self._heads = BlockedHeads()
        self._runs = KnownRuns(self.view, self.limits, self._known_beside, self._find_owner_end)

    def path_of(self, queue: str) -> Collection[str]:
        """Return a queue and all quotas above."""
        return self._settings.path_of(queue)

    def started(self) -> Counter[Line]:
        """Return how many units have started, by queue and user."""
        return Counter() if self._started is None else self._started.counts

    @override
    def time_limit(self, pod: Pod) -> int | None:
        left = self.limits.left_of(pod)
        return None if left is None else max(left, 1)

    def turns(self, cycle: Cycle, seen: Collection[UnitKey]) -> tuple[Turn, ...]:
        """Return the turns of those that are ``seen`` of the complete units that wait, in order."""
        competition = Competition(cycle, lambda unit: self.queue_of(unit.pods[0]))
        return tuple(make_turns(cycle.pending(), competition, is_held, self._find_head, seen))

    def is_protected(self, unit: UnitKey) -> bool:
        """Whether the room of a unit has kept others away: it comes before those as important."""
        return self._heads.place_of(unit) is not None

    def reserved_units(self) -> set[UnitKey]:
        """Return the waiting units for which room is reserved."""
        protections = self._heads.protections
        return {key for key, protection in protections.items() if protection.reserved is not None}

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

    def priority_of(self, unit: Unit) -> int:
        """Return the priority that a unit has in turns by now; it gives no right to preempt."""
        return priority_of(unit, self.settings_of(self.queue_of_unit(unit)), self.view.now)

    def tier_of(self, unit: Unit, head_since: int | None) -> int:
        """Return how far a unit has aged that is first since then."""
        settings = self.settings_of(self.queue_of_unit(unit))
        aging = Aging(settings.age_step, settings.age_tiers)
        return 0 if head_since is None else aging.tier_at(head_since, int(self.view.now))

    def has_started(self, unit: Unit) -> bool:
        """Whether some of a unit runs already: it is completed, whatever turns there are."""
        return has_started(unit, self.view)

    def waits(self, unit: Unit) -> bool:
        """Whether all pods of a unit wait still."""
        return waits(unit, self.view)

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

    def known_levels(self, queue: str) -> Collection[Knowledge]:
        """Return what knowledge of the end of a pod counts as its end, for a queue."""
        least = self.settings_of(queue).backfill_on
        return frozenset(level for level in Knowledge if level.is_at_least(least))

    def make_turns(self, cycle: Cycle) -> CycleTurns:
        """Return the turns of a cycle."""
        if self._began is None and cycle.is_deciding:
            self._began = cycle.now
        ends = Ends(self.view, self._runs, int(cycle.now))
        competition = Competition(cycle, self.queue_of_unit)
        room = PlannedRoom(cycle, ends, competition, self.known_levels)
        heads = self._heads.copy()
        heads.drop([unit.key for unit in heads.firsts or () if not self.waits(unit)])
        for key in heads.idle:
            if key in heads.protections:
                heads.protections[key].idle_time += int(cycle.now - self._heads.at)
        return CycleTurns(cycle, self, heads, room, ends)

    def tree_of(self, queue: str) -> TreeId:
        """Return the quota tree of a queue."""
        spec = self._quotas.cache.catalog.registry.get(queue)
        return DEFAULT_TREE if spec is None else spec.tree_id

    def _find_tree(self, unit: Unit) -> TreeId:
        return self.tree_of(self.queue_of_unit(unit))

    def largest_shares(self, most: int) -> Iterable[tuple[str, list[Fraction]]]:
        """Yield queues with the shares of those who have used most of them lately."""
        return () if self._memory is None else self._memory.largest_shares(most)

    def _note_end(self, pods: Sequence[Pod], seconds: int) -> None:
        run_time = self.limits.run_time_of_running(pods)
        if run_time.expected:
            self.figures.on_end(run_time.level, seconds / run_time.expected)

    def _find_rest(self, unit: Unit) -> tuple[str, int]:
        return self.user_of(unit.pods[0]), self.settings_of(self.queue_of_unit(unit)).hold_cool_down

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        """Keep who is blocked, and what is reserved; have those tried again whom it concerns."""
        if not isinstance(session, QueueTurnSession) or session.turns is None:
            return
        before, self._heads = self._heads, session.turns.settle()
        self.figures.count_idle(before, session.now, self.view, self._find_tree)
        self._heads.at = session.now
        if len(self._behind) > MOST_KEPT:
            self._behind = {}  # of whom nothing is known is tried again
        self._behind |= session.turns.behind
        started = [placement.unit for placement in plan.placements]
        self._vain_holds.follow(before, self._heads, started)
        self._note_displaced(session.turns, before)
        self._due.note_heads(self._heads, session.now)
        self._due.note_plan(plan, self._heads, has_changed=session.turns.has_changed)

    def _note_displaced(self, turns: CycleTurns, before: BlockedHeads) -> None:
        """Remember who has taken the room of promises, for those whose promises they were."""
        for gone in self._displacing.keys() - self._heads.protections.keys():
            del self._displacing[gone]
        for key, other in turns.find_displaced(before):
            self._displacing.setdefault(key, {})[other] = self._heads.blocked[other]

    def take_displacing(self) -> Mapping[UnitKey, Collection[Unit]]:
        """Return units whose promise has moved since this was asked last -> who had turns before.

        These wait with room reserved; of those that have started nothing is said.
        """
        displacing, self._displacing = self._displacing, {}
        return {key: tuple(units.values()) for key, units in displacing.items()}

    @override
    def take_due(self) -> Collection[UnitKey]:
        """Return whose turn has to be decided again now: of time alone, or as others moved."""
        return self._due.take(self._heads)

    @override
    def next_due(self) -> float | None:
        return self._due.next(self._heads)

    def _find_head(self, unit: UnitKey) -> tuple[int | None, StartReservation | None]:
        protection, since = self._heads.protections.get(unit), self._heads.head_since(unit)
        reserved = None if protection is None else protection.reserved
        if protection is None or not isinstance(reserved, PlannedStart):
            return since, None
        return since, StartReservation(
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
        edits = self._settings.edits

        def is_relieved(unit: Unit, reason: Reason) -> bool:
            """Whether what a unit waits for may have come: thousands may wait for one thing."""
            if isinstance(reason, BehindHead):
                head = self._behind.get(unit.key, "")
                return head not in waiting or head not in self._heads.blocked
            if isinstance(reason, TooManyRunning):
                return self.started()[reason.queue, reason.user] < reason.limit
            return isinstance(reason, NotItsTurn) and not isinstance(reason, HeldByOwner)

        return QueueingHint(edits, (edits, version, hash(waiting)), is_relieved)

    @override
    def open(self, cycle: Cycle) -> HoldSession:
        if not self.is_limiting:
            return HoldSession(self, cycle)
        return (QueueLimitSession if self._settings.is_bounding else QueueTurnSession)(self, cycle)
