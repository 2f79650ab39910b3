"""Whose turn is to be decided again, of time alone or as others moved.

A refused unit waits for room; what keeps it away may also be reserved room that moves or is given
up, or a time that has come.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from koord.core.engine.state_view import StateView
from koord.core.model.plan import Plan, Unit, UnitKey
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.counts import waits
from koord.core.queue.order import Aging
from koord.core.queue.reasons import BehindHead, WouldDelay
from koord.core.queue.settings import QueueSettings

if TYPE_CHECKING:
    from koord.core.model.changes import Changes, Feed

MANY: Final = 100
"""From so many units on that wait for reserved room they are tried again at intervals."""
MOST_IN_VAIN: Final = 16
"""So often others are tried again at once though nobody has started since: then at intervals, too.

Room that moves to and fro between units that wait would keep the planner busy for ever.
"""
PLAN_AGAIN_SECONDS: Final = 10
"""Room is not reserved anew more often than that as nodes become free."""


class DueTurns:
    """The units that are to be tried again although nothing has changed for them."""

    def __init__(self, view: StateView, settings_of_unit: Callable[[Unit], QueueSettings]) -> None:
        self._view, self._settings_of_unit = view, settings_of_unit
        self._feed: Feed | None = None
        self._has_moved = False
        """Whether nodes have more room than when room was reserved, or are gone, or others ask."""
        self._again_at = 0.0
        self._tiers: Mapping[UnitKey, int] = {}
        """Unit -> when it has aged by another step."""
        self._tier_at = float("inf")
        self._taken_at = 0.0
        self._now: set[UnitKey] = set()
        self._delayed: set[UnitKey] = set()
        """Units that were refused for reserved room."""
        self._woken_at = float("-inf")
        self._in_vain = 0
        """How often others were tried again since somebody started, without a pause."""
        self._wakes_later = False

    def note_changes(self, heads: BlockedHeads) -> None:
        """Note that nodes have more room, or are gone, while room is reserved."""
        is_reserved = bool(heads.protections)
        if self._feed is None:
            if is_reserved:
                self._feed = self._view.feed()
                self._feed.drain()
            return
        changes = self._feed.drain()
        self._has_moved |= is_reserved and bool(changes.freed or changes.removed)
        for key in heads.protections:
            unit = heads.blocked.get(key)
            if unit is not None and self._has_gone(unit, changes):
                self._wake_others(heads)

    def _has_gone(self, unit: Unit, changes: "Changes") -> bool:
        """Whether a unit for which room is reserved does not wait any more as it did."""
        is_changed = any(demand.gang in changes.gangs for demand in unit.demands)
        is_changed = is_changed or any(pod.uid in changes.singles for pod in unit.pods)
        return is_changed and not waits(unit, self._view)

    def note_heads(self, heads: BlockedHeads, now: float) -> None:
        """Note when those that are first gain another tier: then they may be before others."""
        self._tiers = dict(heads.next_tiers(self._aging_of, int(now)))
        self._tier_at = min(self._tiers.values(), default=float("inf"))

    def _aging_of(self, unit: Unit) -> Aging:
        settings = self._settings_of_unit(unit)
        return Aging(settings.age_step, settings.age_tiers)

    def note_plan(self, plan: Plan, heads: BlockedHeads, *, has_changed: bool) -> None:
        """Note who was refused for reserved room; with ``has_changed`` that is other room now."""
        for refusal in plan.refusals:
            if isinstance(refusal.reason, WouldDelay | BehindHead):
                # Whoever asks for more may have taken from a quota what the room was reserved by.
                self._has_moved |= refusal.unit not in self._delayed
                self._delayed.add(refusal.unit)
        for placement in plan.placements:
            self._delayed.discard(placement.unit)
            self._in_vain = 0
        if has_changed:
            self._wake_others(heads)

    def _wake_others(self, heads: BlockedHeads) -> None:
        """Have those tried again that gave way to reserved room, or to more of it than may be.

        Whoever was held back by what is promised behind it, as well.

        Where they are many, not whenever somebody deletes a unit: trying them keeps all others.
        """
        now = self._view.now
        is_again = now < self._woken_at + PLAN_AGAIN_SECONDS
        self._in_vain = self._in_vain if is_again else 0
        are_many = len(self._delayed) > MANY or self._in_vain >= MOST_IN_VAIN
        self._wakes_later = is_again and are_many
        if self._wakes_later:
            return
        self._woken_at = now
        self._in_vain += 1
        behind = {
            key
            for key, protection in heads.protections.items()
            if protection.is_behind or protection.is_held_back
        }
        self._now |= self._delayed | behind
        self._delayed = set()

    def take(self, heads: BlockedHeads) -> Collection[UnitKey]:
        """Return whose turn is to be decided again now, each once."""
        now = self._view.now
        if self._wakes_later:
            self._wake_others(heads)
        due = {key for key, at in self._times(heads) if at <= now} | self._now
        if self._has_moved and now >= self._again_at:
            due |= heads.protections.keys()
            self._has_moved, self._again_at = False, now + PLAN_AGAIN_SECONDS
        if now >= self._tier_at:
            due |= {key for key, at in self._tiers.items() if at <= now}
            self.note_heads(heads, now)
        self._now, self._taken_at = set(), now
        return due

    def next(self, heads: BlockedHeads) -> float | None:
        """Return when :meth:`take` returns some."""
        times = [at for _, at in self._times(heads)]
        if self._tiers:
            times.append(self._tier_at)
        if self._now:
            times.append(self._view.now)
        if self._has_moved:
            times.append(self._again_at)
        if self._wakes_later:
            times.append(self._woken_at + PLAN_AGAIN_SECONDS)
        return min(times, default=None)

    def _times(self, heads: BlockedHeads) -> Iterator[tuple[UnitKey, float]]:
        for key, protection in heads.protections.items():
            unit = heads.blocked.get(key)
            if unit is None:
                continue
            for at in protection.dues(self._settings_of_unit(unit), int(heads.at)):
                if at > max(heads.at, self._taken_at):
                    yield key, at
