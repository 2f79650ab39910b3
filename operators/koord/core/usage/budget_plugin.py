"""Refuses to start anything in quotas that have used up their GPU hours of this month.

What runs goes on, and what repairs a gang that has started is never refused. Nothing is counted
unless some quota has a budget. Knows no quotas and no queues: what it needs of them it asks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Admission, Admitting, Plugin, QueueingHint
from koord.core.model.plan import Demand, Unit, Unplaced
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.usage.budgets import RECORD_MS, BudgetRecord, MonthlyUse
from koord.core.usage.periods import month_at
from koord.core.usage.reasons import HOUR_OF_A_GPU, NAME, BudgetSpent
from koord.core.usage.segments import MS_PER_SECOND, start_of
from koord.isolation import Isolation

if TYPE_CHECKING:
    from koord.core.engine.state_view import StateView
    from koord.core.model.changes import Feed


@dataclass(frozen=True, slots=True)
class BudgetSources:
    """What is known outside of this domain.

    ``limits_of`` returns the GPU hours of a month that quotas may use, of those that have a limit,
    and another object as soon as any may have changed. ``quota_of`` returns the quota of a pod,
    ``version_of`` another object as soon as pods may count for other quotas. ``measure`` returns
    the thousandths of GPUs that a pod holds, ``record_of`` what was kept of a quota.
    ``has_started`` says whether some of a unit had its turn and goes on.
    """

    limits_of: Callable[["StateView"], Mapping[str, int]]
    quota_of: Callable[["StateView", Pod], str]
    version_of: Callable[["StateView"], object]
    measure: Callable[[Pod], int]
    record_of: Callable[["StateView", str], BudgetRecord | None]
    has_started: Callable[["StateView", Unit], bool]


class Budgets(Plugin):
    """GPU hours of a month."""

    name = NAME
    after = ("quota", "queue")

    def __init__(self, sources: BudgetSources) -> None:
        self._sources = sources
        self._limits: Mapping[str, int] = {}
        self._feed: Feed | None = None
        self._use = MonthlyUse()
        self._pods: dict[str, Pod] = {}
        """Those that hold something."""
        self._gangs: dict[str, set[str]] = {}
        """Gang -> its pods that are counted, or have been."""
        self._minima: dict[str, int] = {}
        """Gang with pods that hold something -> its minimum when that was seen first."""
        self._version: object = None
        self._time = 0.0
        self._records: dict[str, tuple[int, BudgetRecord]] = {}
        self._has_refused = False
        self._isolated = Isolation("budgets")

    @override
    def absorb(self) -> None:
        self._time = max(self._time, self.view.now)
        self._limits = self._sources.limits_of(self.view)
        if not self._limits or not self._time:
            self._stop()
            return
        if self._feed is None:
            self._feed = self.view.feed()
        for quota in self._limits:
            if not self._use.knows(quota):
                self._use.restore(quota, self._sources.record_of(self.view, quota), self._now)
        version = self._sources.version_of(self.view)
        moved = list(self._pods.values()) if version is not self._version else []
        self._version = version
        changes = self._feed.drain()
        for uid in changes.singles:
            pod = self.view.pods.get(uid)
            self._look({uid}, () if pod is None or pod.gang is not None else (pod,))
        for gang in changes.gangs:
            members = self.view.gangs.members(gang).values()
            self._look(self._gangs.pop(gang, set()), members)
            if members:
                self._gangs[gang] = {pod.uid for pod in members}
            self._note_minimum(gang)
        for pod in moved:
            if pod.uid in self._pods:
                self._isolated.call(pod.uid, self._count, pod)

    def _note_minimum(self, gang: str) -> None:
        """Keep how many members a started gang needs: its owner may raise that later."""
        if self._pods.keys().isdisjoint(self._gangs.get(gang, ())):
            self._minima.pop(gang, None)
            return
        spec = self.view.gangs.spec(gang)
        if spec is not None:
            self._minima.setdefault(gang, spec.min_member)

    def count_lacking(self, demand: Demand) -> int:
        """Return how many members a started gang lacks of its minimum; 0 for one that is new."""
        if not demand.placed and demand.gang not in self._minima:
            return 0
        least = min(demand.min_member, self._minima.get(demand.gang, demand.min_member))
        return max(0, least - demand.placed)

    def has_started(self, unit: Unit) -> bool:
        """Whether some of a unit had its turn, and goes on."""
        return self._sources.has_started(self.view, unit)

    def _stop(self) -> None:
        """Forget everything: no quota has a budget."""
        if self._feed is not None:
            self._feed, self._use, self._version = None, MonthlyUse(), None
            self._pods, self._gangs, self._minima, self._records = {}, {}, {}, {}
            self._has_refused = False

    def _look(self, before: Iterable[str], pods: Iterable[Pod]) -> None:
        present = {pod.uid: pod for pod in pods}
        for uid in before:
            if uid not in present:
                self._pods.pop(uid, None)
                self._use.forget(uid, self._now)
        for uid, pod in present.items():
            self._isolated.call(uid, self._count, pod)

    def _count(self, pod: Pod) -> None:
        if not pod.node or pod.handling in {Handling.RESERVE, Handling.STAND_IN}:
            return
        milli, start = self._sources.measure(pod), start_of(pod)
        quota = self._sources.quota_of(self.view, pod)
        if pod.phase.is_terminal:
            self._pods.pop(pod.uid, None)
            end = round((pod.finished or pod.started) * MS_PER_SECOND) or start
            self._use.note_ended(pod.uid, quota, milli, (start, end), self._now)
            return
        self._pods[pod.uid] = pod
        self._use.hold(pod.uid, quota, milli, start, self._now)

    @property
    def _now(self) -> int:
        return round(self._time * MS_PER_SECOND)

    # --- what others ask ----------------------------------------------------------------------

    def remember(self, now: float) -> Mapping[str, int]:
        """Count until ``now``, in seconds since the epoch; return the limits of quotas."""
        self._time = max(self._time, now)
        self.absorb()
        return self._limits

    def record(self, quota: str) -> BudgetRecord:
        """Return what is to be kept of a quota that has a budget: a new one each minute at most."""
        tick = self._now // RECORD_MS
        before = self._records.get(quota)
        if before is None or before[0] != tick:
            before = self._records[quota] = (tick, self._use.record(quota, self._now))
        return before[1]

    def find_spent(self, now: float) -> Mapping[str, BudgetSpent]:
        """Return the quotas in which nothing new starts, with the reason."""
        ms = round(now * MS_PER_SECOND)
        spent = {
            quota: used
            for quota, limit in self._limits.items()
            if (used := self._use.used(quota, ms)) >= limit * HOUR_OF_A_GPU
        }
        if not spent:
            return {}
        month = month_at(ms)
        ends = month.window.end // MS_PER_SECOND
        return {
            quota: BudgetSpent(quota, month.name, used // HOUR_OF_A_GPU, self._limits[quota], ends)
            for quota, used in spent.items()
        }

    def find_quotas(self, unit: Unit) -> Iterator[str]:
        """Yield the quota of each pod of a unit: the members of a gang may be in several."""
        for pod in unit.pods:
            yield self._sources.quota_of(self.view, pod)

    def note_refused(self) -> None:
        """Have those that are refused tried again once the month is over."""
        self._has_refused = True

    @override
    def next_due(self) -> float | None:
        if not self._has_refused:
            return None
        return month_at(self._now).window.end / MS_PER_SECOND

    @override
    def queueing_hint(self, pending: Callable[[], Iterable[Unit]]) -> QueueingHint:
        spent = self.find_spent(self.view.now)
        self._has_refused = self._has_refused and bool(spent)
        version = frozenset((quota, reason.month) for quota, reason in spent.items())

        def is_relieved(_: Unit, reason: Reason) -> bool:
            return isinstance(reason, BudgetSpent) and reason.queue not in spent

        return QueueingHint((), version, is_relieved)

    @override
    def open(self, cycle: Cycle) -> "BudgetSession | None":
        return BudgetSession(self, cycle) if self._limits and self._feed is not None else None


class BudgetSession(Admitting):
    """Budgets in one cycle."""

    name = NAME

    def __init__(self, budgets: Budgets, cycle: Cycle) -> None:
        self._budgets, self._cycle = budgets, cycle
        self._at: float | None = None
        self._spent: Mapping[str, BudgetSpent] = {}

    @override
    def admit(self, unit: Unit) -> Reason | None:
        reason = self._find_reason(unit)
        if reason is None or self._goes_on(unit):
            return None
        if self._cycle.is_deciding:
            self._budgets.note_refused()
        return reason

    @override
    def pre_filter(self, unit: Unit) -> Admission | Unplaced:
        """Leave out what would be added to a started gang beyond what it lacks."""
        surplus = tuple(
            pod
            for demand in unit.demands
            if demand.placed and demand.sub_groups is None
            for pod in demand.pods[demand.required :]
        )
        reason = self._find_reason(unit) if surplus and not self._has_turn(unit) else None
        if reason is None:
            return Admission(unit)
        if self._cycle.is_deciding:
            self._budgets.note_refused()
        kept = (
            replace(demand, pods=demand.pods[: demand.required])
            if demand.placed and demand.sub_groups is None
            else demand
            for demand in unit.demands
        )
        left = replace(unit, demands=tuple(demand for demand in kept if demand.pods))
        if not left.demands:
            return Unplaced(unit.key, unit.pods, reason)
        return Admission(left, surplus, reason)

    def _find_reason(self, unit: Unit) -> BudgetSpent | None:
        if self._at != self._cycle.now:  # time may be played forward
            self._at = self._cycle.now
            self._spent = self._budgets.find_spent(self._at)
        if not self._spent:
            return None
        quotas = self._budgets.find_quotas(unit)
        return next((self._spent[quota] for quota in quotas if quota in self._spent), None)

    def _goes_on(self, unit: Unit) -> bool:
        """Whether a unit only completes what has started: what adds to its minimum is new."""
        if self._has_turn(unit):
            return True
        return self._budgets.has_started(unit) and all(
            demand.required <= self._budgets.count_lacking(demand) for demand in unit.demands
        )

    def _has_turn(self, unit: Unit) -> bool:
        return all(map(self._budgets.view.has_turn, unit.pods))
