"""The turns of whoever counts room himself: round after round, with what is remembered between.

The planner has no such rounds: it tries few units at a time, and what it remembers is on the undo
log of its cycle. Knows rounds and what they leave, no order of turns and no room.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Protocol, TypeAlias

from koord.core.queue.order import Waiting
from koord.core.queue.protection import LEAST_GAIN, HeadProtection, RoundOfTurns, TurnsOutcome
from koord.core.queue.room import Reserved, RoomInTime, UnitAsk
from koord.core.queue.settings import QueueSettings

TurnsState: TypeAlias = tuple[tuple[object, ...], ...]
"""What a round begins with beside what runs and waits: two that are equal decide the same."""


class Offers(Protocol):
    """Who has the next turn: a tournament, or what others have in its place."""

    def offer(self) -> Waiting | None:
        """Return the unit whose turn it is; None when all had theirs."""

    def take(self, *, starts: bool) -> Waiting:
        """Remove it."""


class QueueTurns:
    """The units of one quota tree, and what is reserved for some of them."""

    def __init__(
        self,
        room: RoomInTime,
        settings: Callable[[str], QueueSettings],
        *,
        least_gain: int = LEAST_GAIN,
    ) -> None:
        self._room, self._settings, self._least_gain = room, settings, least_gain
        self._protections: dict[str, HeadProtection] = {}
        self._queue_of: dict[str, str] = {}

    def copy_for(self, room: RoomInTime) -> "QueueTurns":
        """Return turns that go on from here in other room, for a look ahead."""
        turns = QueueTurns(room, self._settings, least_gain=self._least_gain)
        turns._protections = deepcopy(self._protections)
        turns._queue_of = dict(self._queue_of)
        return turns

    def reserved(self, key: str) -> Reserved | None:
        """Return what is reserved for a unit."""
        protection = self._protections.get(key)
        return protection.reserved if protection else None

    def reserved_units(self) -> list[str]:
        """Return the units that something is reserved for."""
        return [key for key, protection in self._protections.items() if protection.reserved]

    def place_of(self, key: str) -> int | None:
        """Return the place of a unit among the protected: it sorts before others of its kind."""
        protection = self._protections.get(key)
        return protection.refused_at if protection and protection.reserved else None

    def next_due(self) -> int | None:
        """Return when turns are to be decided again though nothing happens; None for never."""
        due = [
            time
            for key, protection in self._protections.items()
            for time in protection.dues(self._settings(self._queue_of[key]), self._room.now)
        ]
        return min((time for time in due if time > self._room.now), default=None)

    def note_time(self, idle: Iterable[str], seconds: int) -> None:
        """Count the time for which room was idle; after too long it is given up for a while."""
        for key in idle:
            protection = self._protections.get(key)
            if protection is not None:
                protection.idle_time += seconds

    def decide(self, tournament: Offers, jobs: Mapping[str, UnitAsk]) -> TurnsOutcome:
        """Decide about each unit in its turn."""
        for key in self._protections.keys() - jobs.keys():
            del self._protections[key]
        self._queue_of = {key: job.quota for key, job in jobs.items()}
        before = self._places_in_turns()
        decision = RoundOfTurns(self._room, self._settings, self._protections, self._least_gain)
        while (unit := tournament.offer()) is not None:
            starts = decision.decide(unit, jobs[unit.key])
            tournament.take(starts=starts)
        decision.settle()
        outcome = decision.outcome
        held_back = any(protection.is_held_back for protection in self._protections.values())
        outcome.is_unsettled = (outcome.has_given_way or held_back) and (
            bool(outcome.started) or before != self._places_in_turns()
        )
        return outcome

    def _places_in_turns(self) -> Mapping[str, object]:
        """Return what of the protected decides on the turns and the room of others."""
        return {
            key: (
                protection.refused_at,
                reserved and (reserved.is_open or reserved.start, reserved.places),
            )
            for key, protection in self._protections.items()
            for reserved in (protection.reserved,)
        }

    def state(self) -> TurnsState:
        """Return what the next round begins with."""
        by_refusal = sorted(
            self._protections, key=lambda key: (self._protections[key].refused_at or 0, key)
        )
        return tuple(
            (
                key,
                protection.refused_at is not None,
                protection.turn,
                protection.is_held_back,
                protection.is_behind,
                protection.rests_until,
                reserved and (reserved.is_open or reserved.start, *sorted(reserved.places.items())),
            )
            for key in by_refusal
            for protection in (self._protections[key],)
            for reserved in (protection.reserved,)
        )
