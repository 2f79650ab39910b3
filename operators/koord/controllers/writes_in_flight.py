"""Placements that are being committed, and what holds them up: writes, or the turns of nodes.

While the API server responds with failures (a failing admission webhook, for example), the outcome
of a write is unknown: 504 and some 500 are returned for writes that take effect later. So the
resources stay taken until the pod shows that nothing has come of them. Meanwhile such a placement
no longer counts as in flight, because it may last for minutes and must not block others, and it is
reported to users.
"""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from koord.controllers.bind_turns import Turns
from koord.controllers.commit import CommitFailure
from koord.core.model.plan import Assignment, Placement, Unit
from koord.core.model.reasons import Reason
from koord.kube.binder import Outcome

RETRY_SLOTS = 4
"""Writes of one namespace with unknown outcome that are repeated at once."""


class WritesInFlight:
    """All placements being committed; ``on_held_up`` is called when one is held up."""

    def __init__(self, on_held_up: Callable[[Unit, Reason], None], turns: Turns) -> None:
        self.turns = turns
        self.pods = 0
        """Pods in flight, without placements that are held up."""
        self._on_held_up = on_held_up
        self._held_up: dict[str, Flight] = {}
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def begin(self, unit: Unit, placement: Placement) -> "Flight":
        flight = Flight(self, unit, placement)
        self.pods += len(flight.placement.uids)
        return flight

    def held_up_by(self, uid: str) -> Reason | None:
        """Return what that holds a pod up: its own, or that of a pod placed with it."""
        flight = self._held_up.get(uid)
        return None if flight is None else flight.reason_for(uid)

    def held_up(self) -> dict[str, Reason]:
        """Return pod uid -> what holds it up."""
        reasons = {uid: self.held_up_by(uid) for uid in self._held_up}
        return {uid: reason for uid, reason in reasons.items() if reason is not None}

    def retry_slots(self, namespace: str) -> asyncio.Semaphore:
        """Return the slots for repeated writes of a namespace, separate from other namespaces."""
        slots = self._slots.get(namespace)
        if slots is None:
            slots = self._slots[namespace] = asyncio.Semaphore(RETRY_SLOTS)
        return slots

    def hold_up(self, flight: "Flight", reason: Reason) -> None:
        self._discount(flight)
        self._held_up |= dict.fromkeys(flight.placement.uids, flight)
        self._on_held_up(flight.unit, reason)

    def end(self, flight: "Flight") -> None:
        self._discount(flight)
        for uid in flight.placement.uids:
            self._held_up.pop(uid, None)

    def _discount(self, flight: "Flight") -> None:
        if flight.counts:
            flight.counts = False
            self.pods -= len(flight.placement.uids)


class Flight:
    """One placement being committed, and its writes with unknown outcome."""

    def __init__(self, flights: WritesInFlight, unit: Unit, placement: Placement) -> None:
        self.unit, self.placement = unit, placement
        self.counts = True
        """Whether it counts as in flight."""
        self._flights = flights
        self._waiting: dict[str, Reason] = {}

    def reason_for(self, uid: str) -> Reason | None:
        """Return what holds a pod up; all members wait for each other."""
        return self._waiting.get(uid) or next(iter(self._waiting.values()), None)

    def retry_slots(self, member: Assignment) -> asyncio.Semaphore:
        return self._flights.retry_slots(member.pod.namespace)

    async def in_turn(self, member: Assignment, bind: Callable[[], Awaitable[Outcome]]) -> Outcome:
        return await self._flights.turns.bind(member, bind, self)

    def note_unknown(self, member: Assignment, failure: CommitFailure) -> None:
        self.note_waiting(member, failure.reason_for(member.pod.key))

    def note_waiting(self, member: Assignment, reason: Reason) -> None:
        is_first = not self._waiting
        self._waiting[member.pod.uid] = reason
        if is_first:
            self._flights.hold_up(self, reason)

    def note_known(self, member: Assignment) -> None:
        self._waiting.pop(member.pod.uid, None)

    def end(self) -> None:
        self._flights.end(self)
