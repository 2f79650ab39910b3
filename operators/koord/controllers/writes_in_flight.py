"""Placements that are being committed, and what holds them up: writes, or the turns of nodes.

While the API server responds with failures (a failing admission webhook, for example), the outcome
of a write is unknown: 504 and some 500 are returned for writes that take effect later. So the
resources stay taken until the pod shows that nothing has come of them. Meanwhile such a placement
no longer counts as in flight, because it may last for minutes and must not block others, and it is
reported to users.

``BindTurns`` binds pods one after the other to a node whose device plugin looks for the pod that it
serves.

Such a plugin chooses among the pending pods of its node, so two that arrive at once may get each
other's devices. The next pod is bound when the one before has started, or after ``TURN_SECONDS``;
where the plugin knows a lock of the node, it is taken first, and the plugin removes it. A pod that
has ended, or is deleted before it starts, is served no more, and neither has nor needs a lock: what
counts is how a pod is, not that it exists. Which pods need a turn is decided by ``core.device``.
After a restart pods that have not started count as bound just now.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol
from weakref import WeakValueDictionary

from koord.controllers.commit import CommitFailure
from koord.core.device.plugin import Devices
from koord.core.device.reasons import NodeLocked
from koord.core.device.status import plugin_for
from koord.core.device.vendors import LOCK_SECONDS, DevicePlugin, Locked, NeedsLock
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Assignment, Placement, Unit
from koord.core.model.pods import Handling, Pod, PodPhase
from koord.core.model.reasons import Reason
from koord.kube.outcomes import Done, GivenUp, Outcome

TURN_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = LOCK_SECONDS + 60.0
"""A pod that has waited longer for its turn gives its room back, and is planned again."""
_POLL_SECONDS: Final = 0.5
_CLOCKS_DIFFER_SECONDS: Final = 10.0
"""A pod that was created so much later than a lock was taken is not the one that took it."""


class NodeLocks(Protocol):
    """Locks nodes for pods."""

    async def take(self, node: str, key: str, pod: str, needs_it: NeedsLock) -> Locked | None:
        """Lock a node for a pod (``namespace/name``); return the lock of another pod."""


class WaitObserver(Protocol):
    """Reports which members of a placement wait, and why."""

    def note_waiting(self, member: Assignment, reason: Reason) -> None: ...
    def note_known(self, member: Assignment) -> None: ...


class Turns(Protocol):
    """Binds a pod with ``write`` when its node is ready for it."""

    async def bind(
        self, member: Assignment, write: Callable[[], Awaitable[Outcome]], waits: WaitObserver
    ) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class BindTurns:
    """The turns of all nodes; ``clock`` is monotonic."""

    state: ClusterState
    locks: NodeLocks
    clock: Callable[[], float]
    _devices: Devices = field(init=False)
    _queues: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _served: dict[str, dict[str, float]] = field(default_factory=dict)
    """Node -> uid of a pod that has not started there -> when it was first seen as bound."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_devices", self.state.plugin(Devices))

    async def bind(
        self, member: Assignment, write: Callable[[], Awaitable[Outcome]], waits: WaitObserver
    ) -> Outcome:
        """Bind a pod with ``write`` when it is its turn."""
        plugin = plugin_for(self._devices, member.pod, member.node)
        if plugin is None:
            return await write()
        queue = self._queues.setdefault(member.node, asyncio.Lock())
        if queue.locked():
            waits.note_waiting(member, NodeLocked(member.pod.key, member.node, ""))
        async with queue:
            until = self.clock() + PATIENCE_SECONDS
            while (reason := await self._wait_for(member, plugin)) is not None:
                if self.clock() >= until:
                    return GivenUp(reason)
                waits.note_waiting(member, reason)
                await asyncio.sleep(_POLL_SECONDS)
            waits.note_known(member)
            outcome = await write()
            if isinstance(outcome, Done):
                self._served.setdefault(member.node, {})[member.pod.uid] = self.clock()
        return outcome

    async def _wait_for(self, member: Assignment, plugin: DevicePlugin) -> NodeLocked | None:
        """Return why a pod must wait; None if it is its turn, or if it is gone."""
        pod, node = member.pod, member.node
        if pod.uid not in self.state.pods:
            return None
        served = self._served_on(node)
        if served is not None:
            return NodeLocked(pod.key, node, self.state.pods[served].key)
        if not plugin.lock:
            return None
        needs_it = partial(self._needs_lock, node)
        locked = await self.locks.take(node, plugin.lock, pod.key, needs_it)
        return NodeLocked(pod.key, node, locked.holder, locked.lock) if locked else None

    def _needs_lock(self, node: str, key: str, since: float) -> bool:
        """Whether a pod that took the lock of a node may still be served there, or soon."""
        pod = self.state.pod_by_key(key)
        if pod is None or not _may_start(pod) or pod.created > since + _CLOCKS_DIFFER_SECONDS:
            return False
        # Pods that we are binding have their node here. Others may be bound by their own scheduler.
        return pod.node == node or (not pod.node and pod.handling is Handling.NOT_OURS)

    def _served_on(self, node: str) -> str | None:
        """Return a pod (uid) that the device plugin of a node may be serving now."""
        now, served = self.clock(), self._served.setdefault(node, {})
        for uid in self._devices.pods_on(node):
            pod = self.state.observed(uid)
            if pod is not None and pod.node and plugin_for(self._devices, pod, node) is not None:
                served.setdefault(uid, now)
        for uid in list(served):
            pod = self.state.pods.get(uid)
            if pod is None or not _may_start(pod):
                del served[uid]
        return next((uid for uid, at in served.items() if now - at < TURN_SECONDS), None)


def _may_start(pod: Pod) -> bool:
    """Whether the device plugin may yet be asked for a pod: before it runs, or is deleted."""
    return pod.phase is PodPhase.PENDING and not pod.gone_by


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
