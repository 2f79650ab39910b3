"""The order of the planner's units: the tournament of ``order`` over units that wait.

Of ten thousand that wait the turn of few comes, so values are made of those only that are offered.
What a quota uses is read where the planner counts it: in a cycle each start counts before the next
turn. Knows no nodes, and nothing of what is reserved but for whom.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.order import (
    ROOT,
    Aging,
    OrderTerms,
    QueueQuota,
    Rank,
    Tournament,
    Waiting,
    rank_in_queue,
    standing_of,
)
from koord.core.queue.quotas_in_time import quota_path
from koord.core.queue.settings import Across, QueueSettings
from koord.core.quota.session import QuotaSession


class QueueUsers(Protocol):
    """What the order has to know of queues and their users."""

    def queue_of(self, pod: Pod) -> str:
        """Return the leaf quota that a pod charges."""

    def user_of(self, pod: Pod) -> str:
        """Return for whom a pod runs."""

    def settings_of(self, queue: str) -> QueueSettings:
        """Return what is in effect for a queue, or for a quota above."""

    def user_share(self, queue: str, user: str) -> Fraction:
        """Return what a user has used of a queue lately; equal for all where it does not count."""

    def charge_of(self, queue: str, user: str, unit: Unit) -> Fraction:
        """Return by how much that grows at once when a unit starts."""


def priority_of(unit: Unit, settings: QueueSettings, now: float) -> int:
    """Return the priority of a unit in turns: higher once it has waited for too long."""
    if settings.max_wait is None or settings.max_wait_priority is None:
        return unit.priority
    has_waited = now - unit.since >= settings.max_wait
    return max(unit.priority, settings.max_wait_priority) if has_waited else unit.priority


class UnitOrder:
    """The order at one time; units of the namespaces ``late`` come after others as important."""

    def __init__(
        self,
        queues: QueueUsers,
        quotas: QuotaSession | None,
        heads: BlockedHeads,
        now: float,
        late: Collection[str] = (),
    ) -> None:
        self._queues, self._quotas, self._heads = queues, quotas, heads
        self._now, self._late = int(now), late
        self.never_starts: Callable[[Unit], bool] = lambda _: False
        """Whether a unit does not start whatever room there is, if anybody knows. It has its turn
        at once: so it hides nobody behind it in its queue from the turns of other quotas."""
        self._units: dict[UnitKey, Unit] = {}
        self._values: dict[UnitKey, Waiting] = {}
        self._aging: dict[str, Aging] = {}
        self._aged_queues: Collection[str] | None = None
        self._shares = _SharesNow(queues, self._units)
        self.terms = OrderTerms(
            self._now,
            self.aging_of,
            self._shares,
            self._across,
            lambda offered: self.never_starts(self._units[offered.key]),
        )

    def sort(self, units: Iterable[Unit]) -> Iterator[Unit]:
        """Yield units, which come by priority and time, in their turns: as if each started."""
        waiting = list(units)
        line = self.find_only_line(waiting, is_sorted=True)
        if line is not None:
            yield from line
            return
        turns = self.contest(waiting, is_sorted=True)
        while turns.offer() is not None:
            yield self._units[turns.take(starts=True).key]

    def contest(self, units: Iterable[Unit], *, is_sorted: bool = False) -> Tournament:
        """Return the turns of units; ``is_sorted``: they come by priority and time."""
        lines: dict[str, dict[str, list[Unit]]] = {}
        fair: dict[str, bool] = {}
        for unit in units:
            pod = unit.pods[0]
            queue = self._queues.queue_of(pod)
            if queue not in fair:
                fair[queue] = self._queues.settings_of(queue).user_fairness != "None"
                lines[queue] = defaultdict(list)
            lines[queue][self._queues.user_of(pod) if fair[queue] else ""].append(unit)
        raised = self._find_raised()
        contests = {
            queue: {
                user: self._make_line(queue, line, raised, is_sorted=is_sorted)
                for user, line in users.items()
            }
            for queue, users in lines.items()
        }
        return Tournament(self._find_quotas(lines), contests, self.terms)

    def find_only_line(
        self, units: Collection[Unit], *, is_sorted: bool = False
    ) -> Iterator[Unit] | None:
        """Return units in order if they are of one queue, where users do not matter; else None.

        Then whatever starts, nobody's turn comes sooner or later.
        """
        queues = {self._queues.queue_of(unit.pods[0]) for unit in units}
        queue = queues.pop() if len(queues) == 1 else None
        if queue is None or self._queues.settings_of(queue).user_fairness != "None":
            return None
        line = self._make_line(queue, list(units), self._find_raised(), is_sorted=is_sorted)
        return reversed(line.units)

    def unit_of(self, offered: Waiting) -> Unit:
        """Return the unit of an offer."""
        return self._units[offered.key]

    def is_before(self, unit: Unit, other: Unit) -> bool:
        """Whether a unit has its turn before another one, if no third one waits."""
        offered = self.contest((unit, other)).offer()
        return offered is not None and offered.key == unit.key

    def rank_in(self, queue: str) -> Callable[[Unit], Rank]:
        """Return what tells where a unit of a queue stands, apart from protected ones."""
        settings = self._queues.settings_of(queue)
        is_by_time = settings.user_fairness == "None" and settings.max_wait is None
        return _rank_by_time if is_by_time and queue not in self._aged() else self.rank

    def _aged(self) -> Collection[str]:
        """Return the queues in which the first of some user has aged."""
        if self._aged_queues is None:
            queue_of, heads = self._heads.blocked.queue_of, self._heads.line_heads.items()
            self._aged_queues = {
                queue
                for key, since in heads
                if (queue := queue_of(key)) is not None
                and self.aging_of(queue).tier_at(since, self._now)
            }
        return self._aged_queues

    def rank(self, unit: Unit) -> Rank:
        """Return where a unit stands in its queue."""
        pod = unit.pods[0]
        queue = self._queues.queue_of(pod)
        standing = standing_of(
            priority_of(unit, self._queues.settings_of(queue), self._now),
            self._heads.place_of(unit.key),
            self.tier_of(queue, unit),
            is_late=self._is_late(unit),
        )
        share = self._shares.of(queue, self._queues.user_of(pod))
        return rank_in_queue(standing, share, unit.since, unit.key, is_repair=unit.is_repair)

    def tier_of(self, queue: str, unit: Unit) -> int:
        """Return how far the first of a line has aged."""
        since = self._heads.line_heads.get(unit.key)
        return 0 if since is None else self.aging_of(queue).tier_at(since, self._now)

    def aging_of(self, queue: str) -> Aging:
        aging = self._aging.get(queue)
        if aging is None:
            settings = self._queues.settings_of(queue)
            aging = self._aging[queue] = Aging(settings.age_step, settings.age_tiers)
        return aging

    def _is_late(self, unit: Unit) -> bool:
        return bool(self._late) and unit.pods[0].namespace in self._late

    def _across(self, parent: str) -> Across:
        return Across.TIME if parent == ROOT else self._queues.settings_of(parent).across_quotas

    def _find_raised(self) -> Collection[UnitKey]:
        """Return the units that come before others of their line which have waited for longer."""
        return {
            *(key for key in self._heads.protections if self._heads.place_of(key) is not None),
            *(
                key
                for key in self._heads.line_heads
                if (unit := self._heads.blocked.get(key)) is not None
                and self.tier_of(self._queues.queue_of(unit.pods[0]), unit)
            ),
        }

    def _make_line(
        self, queue: str, units: list[Unit], raised: Collection[UnitKey], *, is_sorted: bool
    ) -> "_UnitLine":
        is_plain = self._queues.settings_of(queue).max_wait is None and not (
            raised and any(unit.key in raised for unit in units)
        )
        if not (is_sorted and is_plain):
            units.sort(key=self.rank)
        units.reverse()
        return _UnitLine(units, self._value_of)

    def _value_of(self, unit: Unit) -> Waiting:
        value = self._values.get(unit.key)
        if value is None:
            pod = unit.pods[0]
            queue = self._queues.queue_of(pod)
            self._units[unit.key] = unit
            value = self._values[unit.key] = Waiting(
                unit.key,
                queue,
                self._queues.user_of(pod),
                priority_of(unit, self._queues.settings_of(queue), self._now),
                unit.since,
                {} if self._quotas is None else self._quotas.ask_of(unit),
                self._heads.line_heads.get(unit.key),
                self._heads.place_of(unit.key),
                self._heads.used_at_start.get(unit.key, {}),
                unit.is_repair,
                self._is_late(unit),
            )
        return value

    def _find_quotas(self, queues: Iterable[str]) -> Iterable[QueueQuota]:
        quotas: dict[str, QueueQuota] = {}
        for queue in queues:
            quotas |= {quota.name: quota for quota in quota_path(self._quotas, queue)}
        return quotas.values()


def _rank_by_time(unit: Unit) -> Rank:
    return (not unit.is_repair, -unit.priority, unit.since, unit.key)


@dataclass(slots=True)
class _UnitLine:
    """Units of which values are made when they are offered."""

    units: list[Unit]
    """Last first."""
    value_of: Callable[[Unit], Waiting]

    def offer(self) -> Waiting | None:
        return self.value_of(self.units[-1]) if self.units else None

    def take(self) -> Waiting:
        return self.value_of(self.units.pop())


class _SharesNow:
    """What users have used by now, and what was started since."""

    def __init__(self, queues: QueueUsers, units: Mapping[UnitKey, Unit]) -> None:
        self._queues, self._units = queues, units
        self._of: dict[tuple[str, str], Fraction] = {}

    def of(self, queue: str, user: str) -> Fraction:
        share = self._of.get((queue, user))
        if share is None:
            share = self._of[queue, user] = self._queues.user_share(queue, user)
        return share

    def note_start(self, unit: Waiting) -> None:
        if self._queues.settings_of(unit.queue).user_fairness != "None":
            charge = self._queues.charge_of(unit.queue, unit.user, self._units[unit.key])
            self._of[unit.queue, unit.user] = self.of(unit.queue, unit.user) + charge
