"""What is on its way: how many pods are being written, and what the API server holds up.

While it answers that it could not carry out a write (an admission webhook that fails, say), nobody
knows whether it will yet: 504 and some 500 are said of writes that come into force later. So the
places stay taken. But such a placement no longer counts as in flight, because it may last for hours
and others are not to wait for it; and users are told.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from koord.controllers.commit import CommitFailure
from koord.core.plan import Assignment, Placement, Unit
from koord.core.reasons import BindFailed

LANE_WIDTH = 4
"""So many writes of one namespace are repeated at once whose outcome is not known."""


class WritesInFlight:
    """All placements that are being committed; ``on_held_up`` is told when one gets stuck."""

    def __init__(self, on_held_up: Callable[[Unit, BindFailed], None]) -> None:
        self.pods = 0
        """Pods in flight: those of all placements, but of those that have been held up."""
        self._on_held_up = on_held_up
        self._held_up: dict[str, Flight] = {}
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def begin(self, unit: Unit, placement: Placement) -> "Flight":
        """Count a placement, until its end."""
        flight = Flight(self, unit, placement)
        self.pods += len(flight.placement.uids)
        return flight

    def doubt_about(self, uid: str) -> BindFailed | None:
        """Return the write that holds a pod up, its own or that of another one placed with it."""
        flight = self._held_up.get(uid)
        return None if flight is None else flight.reason_for(uid)

    def doubts(self) -> dict[str, BindFailed]:
        """Return pod uid -> the write that holds it up."""
        found = {uid: self.doubt_about(uid) for uid in self._held_up}
        return {uid: reason for uid, reason in found.items() if reason is not None}

    def lane(self, namespace: str) -> asyncio.Semaphore:
        """Return where writes of a namespace queue up that are repeated: not before others."""
        lane = self._lanes.get(namespace)
        if lane is None:
            lane = self._lanes[namespace] = asyncio.Semaphore(LANE_WIDTH)
        return lane

    def hold_up(self, flight: "Flight", reason: BindFailed) -> None:
        """Take a placement out of the count, once; say so whenever it is held up anew."""
        self._discount(flight)
        self._held_up |= dict.fromkeys(flight.placement.uids, flight)
        self._on_held_up(flight.unit, reason)

    def end(self, flight: "Flight") -> None:
        """Count a placement no longer."""
        self._discount(flight)
        for uid in flight.placement.uids:
            self._held_up.pop(uid, None)

    def _discount(self, flight: "Flight") -> None:
        if flight.counts:
            flight.counts = False
            self.pods -= len(flight.placement.uids)


class Flight:
    """One placement that is being committed, and the writes for it whose outcome is not known."""

    def __init__(self, flights: WritesInFlight, unit: Unit, placement: Placement) -> None:
        self.unit, self.placement = unit, placement
        self.counts = True
        """Whether it counts as in flight."""
        self._flights = flights
        self._doubts: dict[str, BindFailed] = {}

    def reason_for(self, uid: str) -> BindFailed | None:
        """Return what is said of a pod: all wait for all."""
        return self._doubts.get(uid) or next(iter(self._doubts.values()), None)

    def lane(self, member: Assignment) -> asyncio.Semaphore:
        """Return where writes for a member queue up that are repeated."""
        return self._flights.lane(member.pod.namespace)

    def doubt(self, member: Assignment, failure: CommitFailure) -> None:
        """Learn that it is not known what became of a write."""
        is_news = not self._doubts
        reason = BindFailed(member.pod.key, failure.status, failure.message)
        self._doubts[member.pod.uid] = reason
        if is_news:
            self._flights.hold_up(self, reason)

    def settle(self, member: Assignment) -> None:
        """Learn that it is known."""
        self._doubts.pop(member.pod.uid, None)

    def end(self) -> None:
        """Learn that the fate of all is known."""
        self._flights.end(self)
