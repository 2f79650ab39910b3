"""Turns in one planning cycle: order, what is reserved for whom, and what comes of each unit.

The rules are those of ``protection`` and ``order``; places are found by ``PlannedRoom``. All that
changes is on the undo log of the cycle: whoever plans and rolls back has changed nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol

from koord.core.engine.cycle import Cycle
from koord.core.model.gangs import QueueMemory
from koord.core.model.plan import Placement, Unit, UnitKey
from koord.core.model.reasons import Reason
from koord.core.model.run_terms import BackfillConsent
from koord.core.queue.blocked_heads import BlockedHeads
from koord.core.queue.blocked_units import PriorityLine
from koord.core.queue.counts import is_held
from koord.core.queue.delaying import find_delaying
from koord.core.queue.ends import Ends
from koord.core.queue.figures import QueueFigures
from koord.core.queue.order import Waiting
from koord.core.queue.planned_room import PlannedRoom, TryPlan
from koord.core.queue.protection import LEAST_GAIN, HeadProtection, RoundOfTurns
from koord.core.queue.quotas_in_time import QuotasInTime
from koord.core.queue.reasons import BehindHead, WouldDelay
from koord.core.queue.restored import EarlierRoom
from koord.core.queue.room import Reserved, UnitAsk
from koord.core.queue.run_time import Knowledge, RunTime
from koord.core.queue.unit_order import QueueUsers, UnitOrder
from koord.core.queue.usage import Ledger
from koord.core.quota.model import TreeId
from koord.core.quota.session import QuotaSession
from koord.isolation import Isolation


class QueueKnowledge(QueueUsers, Protocol):
    """What a round has to know of queues."""

    figures: QueueFigures

    @property
    def has_turns(self) -> bool:
        """Whether quotas and users take turns; otherwise units have the order that they come in."""

    def queue_of_unit(self, unit: Unit) -> str:
        """Return the queue of a unit."""

    def tree_of(self, queue: str) -> TreeId:
        """Return the quota tree of a queue."""

    def has_started(self, unit: Unit) -> bool:
        """Whether some of a unit runs already: it is completed, whatever turns there are."""

    def waits(self, unit: Unit) -> bool:
        """Whether all pods of a unit wait still."""

    def memory_of(self, unit: Unit) -> QueueMemory | None:
        """Return what an earlier process has left of a unit that was first, if this one is new."""

    def path_of(self, queue: str) -> Collection[str]:
        """Return a queue and all quotas above."""

    def run_time_of(self, unit: Unit) -> RunTime:
        """Return how long a waiting unit runs."""


class CycleTurns:
    """The turns of one cycle."""

    def __init__(
        self,
        cycle: Cycle,
        queues: QueueKnowledge,
        heads: BlockedHeads,
        room: PlannedRoom,
        ends: Ends,
    ) -> None:
        self._cycle, self._queues, self.room = cycle, queues, room
        self.heads = heads
        quotas = cycle.find_session(QuotaSession)
        self._quotas = None if quotas is None else QuotasInTime(cycle, quotas, ends, room.started)
        room.quotas = self._quotas
        self.order = UnitOrder(queues, quotas, self.heads, cycle.now, cycle.steps.late)
        self.order.never_starts = self._never_starts
        self._jobs: dict[UnitKey, UnitAsk] = {}
        self._out: dict[UnitKey, bool] = {}
        """Whether units do not start whatever room there is."""
        self._waiting: dict[UnitKey, bool] = {}
        """Whether units wait as of the beginning of the cycle: whoever is planned does."""
        self.round = RoundOfTurns(
            room, queues.settings_of, self.heads.protections, LEAST_GAIN, queues.tree_of
        )
        self._visited: set[UnitKey] = set()
        self._binding: Sequence[Reserved] = ()
        self._left: Sequence[Reserved] = ()
        """What the unit whose turn it is has to leave to others."""
        self._current: UnitKey = ""
        self._earlier_room: EarlierRoom | None = None
        """From when it matters on."""
        self.has_changed = False
        self.behind: dict[UnitKey, UnitKey] = {}
        """Unit -> the one that it may not pass."""
        self._isolated = Isolation("reserved room")
        room.started.end_of = lambda unit: self.job_of(unit).end_from(room.now)

    # --- in order --------------------------------------------------------------------------------

    def in_turn(self, units: Sequence[Unit], try_plan: TryPlan) -> Iterator[Unit]:
        """Yield units in order; those that wait and are not tried are passed over in theirs."""
        self.room.try_plan = try_plan
        for key in self.heads.protections:
            self.job_of(self.heads.blocked[key])
        heads = self._find_heads({unit.key for unit in units}) if self._cycle.is_deciding else []
        has_turns = self._queues.has_turns and len(units) + len(heads) > 1
        line = self.order.find_only_line(units) if has_turns and not heads else None
        if line is not None:
            yield from self._pass_heads(line, [])
        elif has_turns:
            yield from self._take_turns(units, {head.key: head for head in heads})
        else:
            yield from self._pass_heads(units, sorted(heads, key=self.order.rank, reverse=True))
        self.room.set_limits((), self.room.now, self.room.now)

    def _pass_heads(self, units: Iterable[Unit], heads: list[Unit]) -> Iterator[Unit]:
        """Yield units as they come; the last of the ``heads`` are the first."""
        for unit in units:
            while heads and self.order.rank(heads[-1]) < self.order.rank(unit):
                self._pass_over(heads.pop())
            self._begin(unit)
            yield unit

    def _take_turns(self, units: Sequence[Unit], heads: Mapping[UnitKey, Unit]) -> Iterator[Unit]:
        """Yield units; each that starts counts for its users and quotas before the next turn."""
        turns = self.order.contest([*units, *heads.values()])
        while (offered := turns.offer()) is not None:
            if offered.key in heads:
                self._pass_over(heads[offered.key])
            else:
                before = len(self.room.started.placed)
                unit = self.order.unit_of(offered)
                self._begin(unit)
                yield unit
                if len(self.room.started.placed) > before:
                    self.order.terms.shares.note_start(offered)
            turns.take(starts=False)

    def _find_heads(self, tried: set[UnitKey]) -> list[Unit]:
        """Return those that wait, are not tried, and matter: the first of each queue."""
        if self.heads.firsts is None:
            self._look_through()
        return [
            unit
            for unit in self.heads.firsts or ()
            if unit.key not in tried and unit.key not in self._visited
        ]

    def _look_through(self) -> None:
        """Find who is the first by now, of its queue and of its user."""
        self.heads.look_through(
            lambda queue: self._queues.settings_of(queue).reserve_depth,
            self.order.rank_in,
            self._waits,
            self.room.now,
        )

    def _waits(self, unit: Unit) -> bool:
        """Whether a unit waits; each is looked at once."""
        waits = self._waiting.get(unit.key)
        if waits is None:
            waits = self._waiting[unit.key] = self._queues.waits(unit)
        return waits

    def _never_starts(self, unit: Unit) -> bool:
        """Whether a unit is held by its owner, or does not fit when nothing else runs."""
        is_out = self._out.get(unit.key)
        if is_out is None:
            is_out = not self._queues.has_started(unit) and (
                is_held(unit) or not self.room.fits_ever(self.job_of(unit))
            )
            self._out[unit.key] = is_out
        return is_out

    def _line_of(self, unit: Unit) -> PriorityLine:
        pod = unit.pods[0]
        return self._queues.queue_of(pod), self._queues.user_of(pod), unit.priority

    def _pass_over(self, unit: Unit) -> None:
        job = self.job_of(unit)
        self._visited.add(unit.key)
        if self.room.fits_ever(job):
            self.round.pass_over(job)

    def _begin(self, unit: Unit) -> None:
        self._current, self._binding, self._left = unit.key, (), ()
        is_free = not self.round.has_blocked and self._reserved_of(unit.key) is None
        if self._cycle.is_deciding and is_free:
            self.room.set_limits((), self.room.now, self.room.now)
            return
        if self._queues.has_started(unit):
            self.room.set_limits((), self.room.now, self.room.now)
            return
        if not self._cycle.is_deciding:
            self._ask_about(unit)
            return
        job = self.job_of(unit)
        self._binding = self.round.binding(job)
        self._left = self.round.to_leave(job, self._binding)
        self.room.set_limits(self._left, self.room.now, job.end_from(self.room.now))

    def _ask_about(self, unit: Unit) -> None:
        """Plan a unit beside what is reserved for those before it, as of the last decisions."""
        before = [
            reserved
            for key in self.heads.protections
            if key != unit.key
            and (reserved := self._reserved_of(key)) is not None
            and self.order.is_before(self.heads.blocked[key], unit)
        ]
        if before or self.room.limits is not None:
            end = self.job_of(unit).end_from(self.room.now)
            self.room.set_limits(before, self.room.now, end)

    # --- what comes of it ------------------------------------------------------------------------

    def why_behind(self, unit: Unit) -> Reason | None:
        """Return why a unit may not pass those that wait before it."""
        if unit.key != self._current or not (self.round.has_blocked and self._cycle.is_deciding):
            return None
        if self._queues.has_started(unit):
            return None
        head = self.round.find_stopping(self.job_of(unit))
        if head is None:
            return None
        self.behind[unit.key] = head.key
        return BehindHead(self._title_of(head.key))

    def why_over_quota(self, unit: Unit) -> Reason | None:
        """Return whose start the quotas would not allow beside a unit that they have admitted."""
        limits = self.room.limits
        if limits is None or self._quotas is None or not limits.moments:
            return None
        path = self._queues.path_of(self._queues.queue_of_unit(unit))
        for moment in limits.moments:
            reserved = self._quotas.find_over(moment, limits.base, self.room.units, path)
            if reserved is not None:
                return self._make_delay(reserved)
        return None

    def _make_delay(self, reserved: Reserved) -> WouldDelay:
        start = None if reserved.is_open else reserved.start
        return WouldDelay(self._title_of(reserved.job.key), start, self.room.now)

    def may_keep(self, unit: Unit, placement: Placement) -> bool:
        """Whether what was given to a unit delays nobody; if it does, avoid those nodes."""
        limits = self.room.limits
        if limits is not None and limits.moments:
            rows = find_delaying(self._cycle, placement, limits)
            if rows:
                self.room.avoid(rows)
                return False
        if self._cycle.is_deciding:
            self._note_start(unit, placement)
        return True

    def refused(self, unit: Unit, reason: Reason) -> Reason:
        """Take note that a unit does not start, reserve for it if it is its turn; say why."""
        if not self._cycle.is_deciding:
            return reason
        if (
            unit.key != self._current
            or self._queues.has_started(unit)
            or not _waits_for_room(reason)
        ):
            self._forget(unit)
            return reason
        self._remember(unit)
        self.heads.firsts = None
        job, waiting = self.job_of(unit), self.waiting_of(unit)
        self._visited.add(unit.key)
        if not self.room.fits_ever(job):
            self.has_changed |= self._reserved_of(unit.key) is not None
            self.heads.drop((unit.key,))
            return reason
        if not isinstance(reason, BehindHead):
            self.room.note_refused(job, self._left)
        restored = self._restore_head(unit)
        before = len(self.round.refusing)
        self.room.set_limits((), self.room.now, self.room.now)
        reserved = self._reserved_of(unit.key)
        with self._isolated.of(unit.key), self._queues.figures.searching():
            self.round.note_refusal(waiting, job, self._binding)
        if restored is not None and self._reserved_of(unit.key) is not None:
            self.heads.protections[unit.key].since = restored
        self.has_changed |= reserved != self._reserved_of(unit.key)
        self._waiting[unit.key] = True
        self.heads.blocked.put(unit, self._line_of(unit))
        if self._earlier_room is not None:
            self._earlier_room.note_waiting(job.quota, unit.priority)
        refusing = self.round.refusing[before:]
        if refusing:
            last = self._reserved_of(refusing[-1])
            return reason if last is None else self._make_delay(last)
        return reason

    def _restore_head(self, unit: Unit) -> int | None:
        """Protect a unit as an earlier process did; return since when it had room reserved."""
        memory = self._queues.memory_of(unit)
        if memory is None or unit.key in self.heads.protections:
            return None
        # Whatever a status says: no unit was first before it was there.
        since = min(max(memory.head_since, int(unit.since)), self.room.now)
        self.heads.line_heads.setdefault(unit.key, since)
        protection = HeadProtection(since, idle_time=memory.idle_seconds)
        self.heads.protections[unit.key] = protection
        if memory.reserved_since is None:
            return None
        reserved_since = min(max(memory.reserved_since, since), self.room.now)
        job = self.job_of(unit)
        settings = self._queues.settings_of(job.quota)
        if self.room.now - since >= settings.protect_after:
            with self._isolated.of(unit.key):
                protection.reserved = self._find_earlier_room().find(
                    memory, job, unit.priority, settings, self._binding
                )
            if protection.reserved is not None and memory.idle_seconds:
                protection.refused_at = reserved_since
        return reserved_since

    def _find_earlier_room(self) -> EarlierRoom:
        if self._earlier_room is None:
            self._earlier_room = EarlierRoom(self.room, self.heads.blocked.count_lines())
        return self._earlier_room

    def _note_start(self, unit: Unit, placement: Placement) -> None:
        if unit.key in self.heads.blocked or unit.key in self._visited:
            self._remember(unit)
        else:
            self._cycle.undo.push(self._forget_start, unit.key, len(self.room.started.placed))
        self._visited.add(unit.key)
        self.room.started.placed.append((unit, placement))
        self.has_changed |= self._reserved_of(unit.key) is not None
        if unit.key in self.heads.blocked:
            self.heads.drop((unit.key,))

    def _forget(self, unit: Unit) -> None:
        if unit.key in self.heads.blocked:
            self._remember(unit)
            self.has_changed |= self._reserved_of(unit.key) is not None
            self.heads.drop((unit.key,))

    def find_displaced(self, before: BlockedHeads) -> Iterator[tuple[UnitKey, UnitKey]]:
        """Yield a unit whose promise is later than before, and each with room and an earlier turn.

        By the next cycle their turns may be the other way round.
        """
        came_before: list[UnitKey] = []
        for key in self.round.reserved_in_turn:
            earlier, now = before.promised(key), self.heads.promised(key)
            if earlier is not None and now is not None and now.start > earlier.start:
                yield from ((key, other) for other in came_before)
            came_before.append(key)

    def settle(self) -> BlockedHeads:
        """Return what lasts beyond the cycle."""
        self.round.settle()
        # Those that were refused before are not tried again while nothing changes for them.
        idle = dict.fromkeys((*self.heads.idle, *self.round.outcome.idle))
        self.heads.idle = {
            key: ready // max(reserved.job.amount, 1)
            for key in idle
            if (reserved := self._reserved_of(key)) is not None
            and (ready := self.room.ready(reserved))
        }
        if self.heads.firsts is None:
            self._look_through()
        self.heads.used_at_start = self._count_used_at_start()
        return self.heads

    def _count_used_at_start(self) -> dict[UnitKey, dict[str, Ledger]]:
        """Return what the quotas of those that others gave way to use when these start."""
        used: dict[UnitKey, dict[str, Ledger]] = {}
        for key in self.heads.protections if self._quotas is not None else ():
            reserved, unit = self._reserved_of(key), self.heads.blocked.get(key)
            if self._quotas is None or unit is None or reserved is None or reserved.is_open:
                continue
            if self.heads.place_of(key) is not None:
                path = self._queues.path_of(self._queues.queue_of_unit(unit))
                used[key] = self._quotas.used_at(path, self.room.now, reserved.start)
        return used

    # --- values ----------------------------------------------------------------------------------

    def job_of(self, unit: Unit) -> UnitAsk:
        """Return what a unit asks for; what is beyond its minimum is not reserved for."""
        job = self._jobs.get(unit.key)
        if job is None:
            required = with_required_only(unit)
            self.room.units[unit.key] = required
            queue = self._queues.queue_of_unit(unit)
            settings, run_time = self._queues.settings_of(queue), self._queues.run_time_of(unit)
            is_known = run_time.level.is_at_least(settings.backfill_on)
            job = self._jobs[unit.key] = UnitAsk(
                unit.key,
                queue,
                len(required.pods),
                self.room.part_of(required),
                run_time.bound if is_known else None,
                is_enforced=run_time.level is Knowledge.DECLARED,
                may_overtake=all(
                    demand.run.backfill is not BackfillConsent.NEVER for demand in unit.demands
                ),
            )
        return job

    def waiting_of(self, unit: Unit) -> Waiting:
        """Return a unit as the rules of order know it."""
        queue = self._queues.queue_of_unit(unit)
        return Waiting(unit.key, queue, "", unit.priority, int(unit.since), {})

    def _reserved_of(self, key: UnitKey) -> Reserved | None:
        protection = self.heads.protections.get(key)
        return None if protection is None else protection.reserved

    def _title_of(self, key: UnitKey) -> str:
        unit = self.room.units.get(key)
        if unit is None:
            return key
        return unit.group or unit.pods[0].key

    def _forget_start(self, key: UnitKey, started: int) -> None:
        self._visited.discard(key)
        self.room.started.forget_since(started)

    def _remember(self, unit: Unit) -> None:
        """Log what is known of a unit, for the case that the cycle is rolled back."""
        queue, protection = self._queues.queue_of_unit(unit), self.heads.protections.get(unit.key)
        self._cycle.undo.push(
            self._restore,
            (unit.key, queue, self.round.mark(queue)),
            self.heads.blocked.get(unit.key),
            copy(protection),
            (unit.key in self._visited, len(self.room.started.placed), self.has_changed),
        )

    def _restore(
        self,
        at: tuple[UnitKey, str, tuple[int, int, int, int, int]],
        blocked: Unit | None,
        protection: HeadProtection | None,
        state: tuple[bool, int, bool],
    ) -> None:
        key, queue, mark = at
        self.round.go_back(queue, mark)
        self.heads.drop((key,))
        if blocked is not None:
            self.heads.blocked.put(blocked, self._line_of(blocked))
        if protection is not None:
            self.heads.protections[key] = protection
        is_visited, started, self.has_changed = state
        if not is_visited:
            self._visited.discard(key)
        self.room.started.forget_since(started)


def with_required_only(unit: Unit) -> Unit:
    """Return a unit without pods beyond its minimum."""
    if unit.required in {0, len(unit.pods)}:
        return unit
    demands = (replace(demand, pods=demand.pods[: demand.required]) for demand in unit.demands)
    return replace(unit, demands=tuple(demand for demand in demands if demand.pods))


def _waits_for_room(reason: Reason) -> bool:
    return reason.is_capacity or isinstance(reason, BehindHead | WouldDelay)
