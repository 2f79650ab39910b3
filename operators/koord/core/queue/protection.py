"""Who starts now, and for whom room is reserved so that it starts some day.

The same rules decide in the planner and in simulations: what fits where and when, they ask a
``RoomInTime``; whose turn it is, a ``Tournament``. Nothing here knows nodes, pods or a clock.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Final

from koord.core.queue.order import Waiting
from koord.core.queue.room import Places, Reserved, RoomInTime, UnitAsk
from koord.core.queue.settings import Policy, QueueSettings

LEAST_GAIN: Final = 60
"""How much earlier a new plan has to be, in seconds, and in parts of the wait:"""
LEAST_GAIN_PERCENT: Final = 5


@dataclass(slots=True)
class HeadProtection:
    """What is remembered of a unit that is first, or has been."""

    first_since: int
    reserved: Reserved | None = None
    since: int = 0
    """When its room was reserved first: the oldest may hold more."""
    turn: int = 0
    """Its place among the reserved in the last pass."""
    refused_at: int | None = None
    """Its place among those that have refused others."""
    idle_time: int = 0
    """For how long its room was idle and refused to others, in all."""
    rests_until: int | None = None
    """After it has held room for too long."""
    queue: str = ""
    is_behind: bool = False
    """Whether as many queues of its tree as may have room reserved, or have waited for longer."""
    is_held_back: bool = False
    """Whether it had to leave room to promises behind it: it may start once these have moved."""

    def dues(self, settings: QueueSettings, now: int) -> Iterator[int]:
        """Yield when its turn is to be decided again though nothing happens."""
        if self.rests_until is not None:
            yield self.rests_until
        elif self.reserved is None:
            yield self.first_since + settings.protect_after
        elif not self.reserved.is_open:
            yield self.reserved.start
        if self.reserved is not None:
            yield now + max(1, settings.max_hold - self.idle_time)


@dataclass(slots=True)
class TurnsOutcome:
    """What one pass has decided."""

    started: dict[str, Places] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)
    idle: Counter[str] = field(default_factory=Counter)
    """Unit -> room that is reserved for it, idle now and refused to others."""
    has_given_way: bool = False
    """Whether somebody was refused for the sake of others, not for want of room."""
    is_unsettled: bool = False
    """Whether the same round once more may start somebody."""


class RoundOfTurns:
    """One round of turns: each unit once, in order.

    Who places units himself asks for each whether it :meth:`may_start`, places it beside what is
    ``binding``, and notes what came of it.
    """

    def __init__(
        self,
        room: RoomInTime,
        settings: Callable[[str], QueueSettings],
        protections: dict[str, HeadProtection],
        least_gain: int,
        tree_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._room, self._settings, self._protections = room, settings, protections
        self._tree_of = tree_of
        self._least_gain = least_gain
        self.outcome = TurnsOutcome()
        self._visited: list[Reserved] = []
        """What is reserved for units that had their turn, in order."""
        self._blocked: dict[str, list[UnitAsk]] = defaultdict(list)
        """Queue -> units that had their turn and did not start."""
        self._turns: dict[str, int] = {}
        self._held: set[str] = set()
        """Units whose open holds count, judged once: not again as others start in their room."""
        self.refusing: list[str] = []
        """Units whose room others were refused for, as often as that happened."""
        self._moved = 0
        """How many promises have moved or were kept."""

    def decide(self, unit: Waiting, job: UnitAsk) -> bool:
        """Start a unit if it may; otherwise reserve room for it if it is to have some."""
        if not self._room.fits_ever(job):
            self.note_misfit(unit)
            return False
        binding = self.binding(job)
        places = self._find_places(job, binding) if self.may_start(job) else None
        if places is None:
            self.note_refusal(unit, job, binding)
            return False
        self._room.start(job, places, self._lender_of(job, places))
        self.outcome.started[unit.key] = places
        self.note_start(unit)
        return True

    def may_start(self, job: UnitAsk) -> bool:
        """Whether its queue lets a unit start while the first of those before it waits."""
        return self.find_stopping(job) is None

    def find_stopping(self, job: UnitAsk) -> UnitAsk | None:
        """Return the earlier unit that waits and that this one may not pass."""
        heads = (head for head in self._stopping(job) if self._room.competes(job, head))
        return next(heads, None)

    def note_misfit(self, unit: Waiting) -> None:
        """Note that a unit does not even fit when nothing else runs: it delays nobody."""
        self._protections.pop(unit.key, None)

    def note_start(self, unit: Waiting) -> None:
        """Note that a unit starts."""
        protection = self._protections.pop(unit.key, None)
        self._moved += protection is not None and protection.reserved is not None

    def note_refusal(self, unit: Waiting, job: UnitAsk, binding: Sequence[Reserved]) -> None:
        """Note that a unit does not start now; reserve room for it if it is to have some."""
        if self.may_start(job):
            before = len(self.refusing)
            self._note_refusing(job, binding)
            self.outcome.has_given_way |= len(self.refusing) > before
        else:
            self.outcome.has_given_way = True
        self.outcome.blocked.append(unit.key)
        self._blocked[job.quota].append(job)
        self._protect(unit, job, self._settings(job.quota))

    def pass_over(self, job: UnitAsk) -> None:
        """Note that a unit is not tried: it waits as before, and what is reserved for it stays."""
        self._blocked[job.quota].append(job)
        reserved = self._reserved_of(job.key)
        if reserved is not None:
            self._visit(reserved)

    def to_leave(self, job: UnitAsk, binding: Sequence[Reserved]) -> Sequence[Reserved]:
        """Return what a unit has to leave to others that starts now.

        Before its own time that is also what was promised behind it. If its turn is early for a
        guarantee that it has only then, it is all that is promised to others.
        """
        protection = self._protections.get(job.key)
        own = None if protection is None else protection.reserved
        if protection is None or own is None:
            # What an earlier one of its queue has left to promises, it leaves as well.
            is_behind = any(map(self._is_held, self._blocked.get(job.quota, ())))
            return [*binding, *self._promised_to_others(job.key)] if is_behind else binding
        protection.is_held_back = False
        if own.is_open or own.start <= self._room.now:
            return binding
        is_early = self._is_before_guarantee(job, self._room.now, own)
        promised = self._promised_to_others(job.key) if is_early else self._later(job.key)
        protection.is_held_back = bool(promised)
        return [*binding, *promised]

    def _is_before_guarantee(self, job: UnitAsk, start: int, reserved: Reserved) -> bool:
        """Whether a unit would start before what is reserved for it, and before a guarantee."""
        later = reserved.start
        return start < later and self._room.gains_guarantee(job, start, later)

    def _find_places(self, job: UnitAsk, binding: Sequence[Reserved]) -> Places | None:
        own, now = self._reserved_of(job.key), self._room.now
        if own is not None and not own.is_open and own.start <= now:
            started = Reserved(job, now, job.end_from(now), own.places)
            if self._room.is_possible(started, binding):
                return own.places
        return self._room.fit(job, self.to_leave(job, binding))

    def _stopping(self, job: UnitAsk) -> Iterator[UnitAsk]:
        """Yield earlier units that wait, and that one which competes with them may not pass."""
        if self._settings(job.quota).policy is Policy.STRICT:
            yield from self._blocked.get(job.quota, ())[:1]
        if self._moved:
            # It may start by now: others wait for it, until it has had another turn.
            yield from (head for head in self._blocked.get(job.quota, ()) if self._is_held(head))
        if not job.may_overtake:
            yield from (head for heads in self._blocked.values() for head in heads)

    def _is_held(self, head: UnitAsk) -> bool:
        protection = self._protections.get(head.key)
        return protection is not None and protection.is_held_back

    def binding(self, job: UnitAsk) -> list[Reserved]:
        """Return what is reserved for earlier units and keeps this one away."""
        short_limit = self._settings(job.quota).short_limit
        is_short = job.is_enforced and job.limit is not None and job.limit <= short_limit
        return [
            reserved
            for reserved in self._visited
            if not reserved.is_open
            or (
                reserved.job.key in self._held
                and not job.is_evictable
                and not (is_short and self._room.ready(reserved) < reserved.job.total)
            )
        ]

    def _lender_of(self, job: UnitAsk, places: Places) -> str:
        """Return whose room without known ends a unit uses that goes when all of it is ready."""
        if not job.is_evictable:
            return ""
        return next(
            (
                reserved.job.key
                for reserved in self._visited
                if reserved.job.key in self._held and places.keys() & reserved.places.keys()
            ),
            "",
        )

    def _held_open(self) -> set[str]:
        """Return the units whose open holds count: the oldest, others within what may be idle."""
        capacity = self._room.capacity()
        held: set[str] = set()
        total = 0
        holds = [
            ((protection.since, self._turns.get(key, protection.turn), key), protection.reserved)
            for key, protection in self._protections.items()
            if protection.reserved and protection.reserved.is_open
        ]
        for at, ((*_, key), reserved) in enumerate(sorted(holds, key=itemgetter(0))):
            has_turn_later = reserved not in self._visited
            ready = self._room.ready(reserved, self._visited if has_turn_later else ())
            most = self._settings(reserved.job.quota).max_idle_share * capacity
            if at == 0 or (total + ready) * 100 <= most:
                total += ready
                held.add(key)
        return held

    def _reserved_of(self, key: str) -> Reserved | None:
        protection = self._protections.get(key)
        return protection.reserved if protection else None

    def _later(self, key: str) -> list[Reserved]:
        """Return what was promised behind a unit: by moving earlier it may not break that.

        Not what was promised to units that had their turns before it so far: it takes what it
        needs. Nor what is held without a known time: that promises nothing.
        """
        visited = {reserved.job.key for reserved in self._visited}
        turn = self._protections[key].turn
        return [
            protection.reserved
            for other, protection in self._protections.items()
            if protection.reserved and not protection.reserved.is_open
            if protection.turn > turn and other not in visited
        ]

    def _promised_to_others(self, key: str) -> list[Reserved]:
        """Return what was promised to others, and had no turn yet."""
        visited = {reserved.job.key for reserved in self._visited}
        return [
            protection.reserved
            for other, protection in self._protections.items()
            if protection.reserved and not protection.reserved.is_open
            if other != key and other not in visited
        ]

    def _note_refusing(self, job: UnitAsk, binding: Sequence[Reserved]) -> None:
        """Note who keeps a unit away that would fit: all up to the first who does."""
        if not binding or self._room.fit(job, ()) is None:
            return
        for at in range(1, len(binding) + 1):
            if self._room.fit(job, binding[:at]) is not None:
                continue
            self.refusing += [reserved.job.key for reserved in binding[:at]]
            return

    def _protect(self, unit: Waiting, job: UnitAsk, settings: QueueSettings) -> None:
        place = len(self._blocked[job.quota])
        is_first = place <= settings.reserve_depth or self._reserved_of(unit.key) is not None
        if settings.policy is Policy.BEST_EFFORT or not is_first:
            self._protections.pop(unit.key, None)
            return
        now = self._room.now
        protection = self._protections.setdefault(unit.key, HeadProtection(now))
        if protection.idle_time >= settings.max_hold and protection.rests_until is None:
            protection.rests_until = now + settings.hold_cool_down
        if protection.rests_until is not None:
            if now < protection.rests_until:
                protection.reserved = protection.refused_at = None
                return
            protection.rests_until, protection.idle_time = None, 0
        protection.queue = job.quota
        if now - protection.first_since < settings.protect_after:
            return
        protection.is_behind = protection.reserved is None and (
            self._count_longer(protection) >= settings.reserve_queues
        )
        if protection.is_behind:
            return
        if protection.reserved is None:
            protection.since = now
        before, protection.reserved = (
            protection.reserved,
            self._plan(unit, job, protection.reserved),
        )
        self._moved += before is not None and _has_moved(before, protection.reserved)
        if protection.reserved is not None:
            self._visit(protection.reserved)
        elif place > settings.reserve_depth:
            del self._protections[unit.key]

    def _count_longer(self, protection: HeadProtection) -> int:
        """Count the other queues of its tree with reserved room, or whose head waits for longer."""
        now, tree = self._room.now, self._tree_of(protection.queue)
        mine = (protection.first_since, protection.queue)
        longer: set[str] = set()
        for other in self._protections.values():
            if not other.queue or other.queue == protection.queue or other.rests_until is not None:
                continue
            is_due = now - other.first_since >= self._settings(other.queue).protect_after
            is_earlier = is_due and (other.first_since, other.queue) < mine
            if (other.reserved is not None or is_earlier) and self._tree_of(other.queue) == tree:
                longer.add(other.queue)
        return len(longer)

    def _visit(self, reserved: Reserved) -> None:
        key = reserved.job.key
        self._visited.append(reserved)
        self._turns[key] = len(self._visited)
        if key in self._held_open():
            self._held.add(key)

    def _plan(self, unit: Waiting, job: UnitAsk, before: Reserved | None) -> Reserved | None:
        """Return what is reserved for a unit from now on: the same as long as it is possible.

        Whose turn is early because it starts within its guarantee takes nothing from others by
        moving to where it would not: there their turns come first. Otherwise each would be first
        in every second round.
        """
        now, since = self._room.now, self._find_earliest(job)
        is_kept = (
            before is not None
            and not before.is_open
            and (since is None or since <= before.start)
            and self._room.is_possible(before, self._visited)
        )
        if since is None:
            return before if is_kept else None
        if before is not None and is_kept:
            wait = before.start - now
            gain = max(self._least_gain * 100, LEAST_GAIN_PERCENT * wait)
            until = before.start - -(-gain // 100)
            if until < now:
                return before
            later = self._later(unit.key)
            planned = self._room.find_start(job, [*self._visited, *later], until, since)
            if planned is not None and self._is_before_guarantee(job, planned.start, before):
                promised = self._promised_to_others(unit.key)
                planned = self._room.find_start(job, [*self._visited, *promised], until, since)
            return planned or before
        planned = self._room.find_start(job, self._visited, since=since)
        if planned is not None:
            return planned
        held = before if before is not None and before.is_open else None
        planned = self._room.hold_open(job, self._visited, held)
        if planned is None and held is not None:
            return self._room.hold_open(job, self._visited, None)
        return planned

    def _find_earliest(self, job: UnitAsk) -> int | None:
        """Return from when on a unit may start that may not pass some; None: nobody knows."""
        before: list[UnitAsk] = []
        if self._settings(job.quota).policy is Policy.STRICT:
            before += self._blocked.get(job.quota, ())
        if not job.may_overtake:
            before += (head for heads in self._blocked.values() for head in heads)
        earliest = self._room.now
        for head in before:
            if head.key == job.key or not self._room.competes(job, head):
                continue
            reserved = self._reserved_of(head.key)
            if reserved is None or reserved.is_open:
                return None
            earliest = max(earliest, reserved.start)
        return earliest

    @property
    def reserved_in_turn(self) -> Sequence[str]:
        """The units that have room reserved and had their turn, in order."""
        return [reserved.job.key for reserved in self._visited]

    @property
    def has_blocked(self) -> bool:
        """Whether a unit has had its turn and waits: without that nothing keeps others away."""
        return bool(self._blocked)

    def mark(self, queue: str) -> tuple[int, int, int, int, int]:
        """Return a point to go back to, if until then only units of one queue have turns."""
        blocked = len(self._blocked[queue]) if queue in self._blocked else 0
        refused = len(self.outcome.blocked)
        return blocked, len(self._visited), len(self.refusing), refused, self._moved

    def go_back(self, queue: str, mark: tuple[int, int, int, int, int]) -> None:
        """Forget all turns since then; the protections are those of whoever has made the round."""
        blocked, visited, refusing, refused, self._moved = mark
        for reserved in self._visited[visited:]:
            self._turns.pop(reserved.job.key, None)
            self._held.discard(reserved.job.key)
        del self._visited[visited:], self.refusing[refusing:], self.outcome.blocked[refused:]
        if queue in self._blocked:
            del self._blocked[queue][blocked:]
            if not blocked:
                del self._blocked[queue]

    def settle(self) -> None:
        """Count what is idle, and who has refused others for the first time."""
        places = (protection.refused_at or 0 for protection in self._protections.values())
        next_refusal = count(1 + max(places, default=0))
        for key, turn in self._turns.items():
            if key in self._protections:
                self._protections[key].turn = turn
        counted: list[Reserved] = []
        for key in dict.fromkeys(self.refusing):
            protection = self._protections.get(key)
            if protection is None or protection.reserved is None:
                continue
            if protection.refused_at is None:
                protection.refused_at = next(next_refusal)
            ready = self._room.ready(protection.reserved, counted)
            counted.append(protection.reserved)
            if ready:
                self.outcome.idle[key] = ready


def _has_moved(before: Reserved, now: Reserved | None) -> bool:
    """Whether other room is reserved than before: room held again without a known time is none."""
    if now is None or not (before.is_open and now.is_open):
        return before != now
    return before.places != now.places
