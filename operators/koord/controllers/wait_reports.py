"""Reports why pods and gangs are pending: conditions on pods and PodGroups, and events.

Reports are delayed by up to two seconds: a pod that is placed soon is never reported as pending,
and members that arrive one after another do not each rewrite the conditions of all others. A
condition is written again when its reason changes; if only the numbers change, after a pause.

``WaitEvents`` are about gangs that are not complete, and about members that wait beside running
ones.

There is one event per reason and gang: a complete gang that waits has it at once, see
``WaitReports``. These come later: only when a reason has lasted for a moment, while nothing is
being bound, and few in a second. So a gang whose members arrive one by one costs none.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.coalescing import Agenda, Pause
from koord.controllers.commit import Commit
from koord.controllers.placement_reports import Attempts
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.device.plugin import Devices
from koord.core.device.reasons import IsolationAbsent
from koord.core.device.status import isolation_reason
from koord.core.engine.state import ClusterState
from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.lost_members import has_minimum
from koord.core.gang.quorum import Ready, demands
from koord.core.load.aware import LoadAware
from koord.core.load.reasons import PlacedOverLoad
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import InternalError, Planned, Reason
from koord.isolation import Isolation

EVENT_SECONDS: Final = 3.0
"""How long a reason must have lasted."""
MOST_PER_SECOND: Final = 4
"""Less than what the recorder sends: other events must not wait for these."""
MAX_WAITING: Final = 4096


class EventReporter(Protocol):
    """Emits events that are new."""

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None: ...
    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None: ...


@dataclass(slots=True)
class WaitEvents:
    """``is_busy`` tells whether pods are being bound; ``reason_of`` why a pod waits, if it does."""

    state: ClusterState
    announcer: EventReporter
    is_busy: Callable[[], bool] = lambda: False
    _isolated: Isolation = field(default_factory=lambda: Isolation("wait-events"))
    _due: Agenda[str] = field(default_factory=Agenda)
    _codes: dict[str, str] = field(default_factory=dict)
    """Pod uid -> the reason of its event that is due."""
    _second: int = 0
    _sent: int = 0
    """Events in this second."""

    def note(self, pod: Pod, reason: Reason, now: float) -> None:
        """Emit an event for the gang of a pod, its oldest member that waits, if this lasts."""
        if pod.uid not in self._codes and len(self._codes) >= MAX_WAITING:
            return
        self._codes[pod.uid] = reason.code
        self._due.look_at(pod.uid, now + EVENT_SECONDS)

    def first_due(self) -> float | None:
        return self._due.first()

    def emit(self, reason_of: Callable[[Pod], Reason | None], now: float) -> None:
        """Emit what is due."""
        for uid in self._due.take(now):
            if self.is_busy() or not self._may_send(now):
                self._due.look_at(uid, now + 1.0)
                continue
            self._isolated.call(uid, self._emit, uid, self._codes.pop(uid, ""), reason_of)

    def _emit(self, uid: str, code: str, reason_of: Callable[[Pod], Reason | None]) -> None:
        pod = self.state.pods.get(uid)
        reason = reason_of(pod) if pod is not None and pod.is_waiting else None
        if pod is None or reason is None or reason.code != code:
            return  # a newer reason is noted when it is reported
        gang = None if pod.gang is None else self.state.gangs.pod_group(pod.gang.key)
        if gang is not None and reason.is_incomplete:
            self.announcer.announce_event(gang, reason, "")
        else:
            self.announcer.announce_pod_event(pod, reason)

    def _may_send(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._sent = int(now), 0
        self._sent += 1
        return self._sent <= MOST_PER_SECOND


QUIET_SECONDS = 0.7
"""A pending gang or pod is reported when it has not changed for this long …"""
LONGEST_SECONDS = 1.5
"""… or this long after its first change, whichever comes first."""
GANG_NUMBERS_SECONDS = 10.0
"""New numbers of the same reason are reported for a gang after this long …"""
PLACE_SECONDS = 60.0
"""Whether the place of a waiting gang in the queue has changed is looked at this often."""
POD_NUMBERS_SECONDS = 60.0
"""… and for a pod after this long: thousands may have the same reason."""
MAX_NUMBERS_SECONDS = 300.0
"""The pause doubles while numbers keep changing, up to this."""
FORGET_EVERY_SECONDS = 60.0
_TICK = 0.05

_PAUSE = Pause(QUIET_SECONDS, LONGEST_SECONDS)
_NONE = Attempts()
_OURS = frozenset(Handling) - {Handling.NOT_OURS, Handling.STAND_IN}


class StatusReporter(Protocol):
    """Writes conditions and events that are new."""

    def announce_pod(self, pod: Pod, reason: Reason, *, is_placed: bool) -> None:
        """Set our condition on a pod, and ``PodScheduled`` for autoscalers."""

    def announce_gang(
        self, pod_group: ObservedPodGroup, reason: Reason, attempts: Attempts
    ) -> None: ...
    def retract_gang(self, pod_group: ObservedPodGroup) -> None: ...
    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None: ...

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None:
        """Emit an event on a pod."""


class Planner(Protocol):
    """Knows the reasons; see ``PlacementController``."""

    def reason_for(self, pod: Pod) -> Reason | None: ...
    def held_up_by(self, pod: Pod) -> Reason | None: ...
    def attempts_of(self, gang: GangKey) -> Attempts: ...


@dataclass(frozen=True, slots=True)
class _Report:
    reason: Reason
    at: float
    attempts: Attempts
    pause: float
    """Seconds before new numbers of the same reason are reported."""

    @property
    def numbers_due(self) -> float:
        return self.at + self.pause

    def place_due(self, attempts: Attempts) -> float:
        """When a new place in the queue is reported, at the earliest: what is told first, at once.

        It is often found a little later than the reason.
        """
        if self.attempts.standing is not None:
            return self.at + PLACE_SECONDS
        return self.numbers_due if attempts.standing is None else self.at

    def is_enough(self, reason: Reason, now: float) -> bool:
        if (self.reason.code, self.reason.about) != (reason.code, reason.about):
            return False
        return self.reason == reason or now < self.numbers_due


def _next_report(
    before: _Report | None, reason: Reason, now: float, attempts: Attempts, first: float
) -> _Report:
    """Return the report after ``before``; ``first`` is the first pause for new numbers."""
    pause = first
    if before is not None and before.reason.code == reason.code:
        is_calm = now - before.at >= MAX_NUMBERS_SECONDS
        pause = first if is_calm else min(2 * before.pause, MAX_NUMBERS_SECONDS)
    return _Report(reason, now, attempts, pause)


@dataclass(slots=True)
class WaitReports:
    """Collects gangs and pods to report on, and reports each when it is due."""

    state: ClusterState
    announcer: StatusReporter
    clock: Callable[[], float]
    is_busy: Callable[[], bool] = lambda: False
    events: WaitEvents = field(init=False)
    _isolated: Isolation = field(default_factory=lambda: Isolation("wait-reports"))
    _gangs_due: Agenda[GangKey] = field(default_factory=Agenda)
    _singles_due: Agenda[str] = field(default_factory=Agenda)
    _pod_reports: dict[str, _Report] = field(default_factory=dict)
    _gang_reports: dict[GangKey, _Report] = field(default_factory=dict)
    _noted: asyncio.Event = field(default_factory=asyncio.Event)
    _forget_at: float = 0.0

    def __post_init__(self) -> None:
        self.events = WaitEvents(self.state, self.announcer, self.is_busy)

    def note(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Report on these gangs and single pods (uids) after a quiet moment."""
        now = self.clock()
        for gang in gangs:
            self._gangs_due.put_off(gang, now, _PAUSE)
        for uid in singles:
            self._singles_due.put_off(uid, now, _PAUSE)
        if gangs or singles:
            self._noted.set()

    def note_numbers(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Report new numbers of the same reason when they are due."""
        now = self.clock()
        for gang in gangs:
            self._gangs_due.look_at(gang, now + GANG_NUMBERS_SECONDS)
        for uid in singles:
            self._singles_due.look_at(uid, now + POD_NUMBERS_SECONDS)
        self._noted.set()

    def placed(self, unit: Unit, outcome: Commit) -> None:
        """Report bound pods as placed, and emit one event per gang that was placed whole."""
        for pod in unit.pods:
            # Immediately: a pending report may not be written yet, and must not follow the binding.
            if pod.uid not in outcome.bound:
                continue
            was_reported = self._pod_reports.pop(pod.uid, None) is not None
            if was_reported or self._remark_on(pod) is not None:
                self._announce_place(pod, speaks=was_reported and pod.gang is None)
        if not unit.is_whole or not outcome.bound:
            return
        for demand in unit.demands:
            pod_group = self.state.gangs.pod_group(demand.gang)
            placed = [pod for pod in demand.pods if pod.uid in outcome.bound]
            if pod_group is None or not placed:
                continue
            nodes = {self.state.pods[pod.uid].node for pod in placed if pod.uid in self.state.pods}
            members = "member" if len(placed) == 1 else "members"
            on = "node" if len(nodes) == 1 else "nodes"
            note = f"{len(placed)} {members} placed on {len(nodes)} {on}"
            self.announcer.announce_event(pod_group, Planned(len(placed), len(nodes)), note)

    async def run(self, planner: Planner) -> None:
        while True:
            await self._rest()
            self.report(planner, self.clock())

    async def _rest(self) -> None:
        self._noted.clear()
        moments = (self._gangs_due.first(), self._singles_due.first(), self.events.first_due())
        first = min((at for at in moments if at is not None), default=None)
        until = None if first is None else max(first - self.clock(), _TICK)
        try:
            async with asyncio.timeout(until):
                await self._noted.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_TICK)

    def report(self, planner: Planner, now: float) -> None:
        for gang in self._gangs_due.take(now):
            with self._isolated.of(gang, now):
                self._report_members(gang, planner, now)
            again_at = self._isolated.again_at(gang)
            if again_at is not None:
                self._gangs_due.look_at(gang, again_at)
        for uid in self._singles_due.take(now):
            single = self.state.pods.get(uid)
            if single is not None:
                self._report_safely(single, planner, now, speaks=single.gang is None)
        self.events.emit(lambda pod: planner.held_up_by(pod) or planner.reason_for(pod), now)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_SECONDS
            for uid in self._pod_reports.keys() - self.state.pods.keys():
                del self._pod_reports[uid]

    def _report_members(self, gang: GangKey, planner: Planner, now: float) -> None:
        first, new = self._find_first(gang), None
        has_pod_group = self.state.gangs.pod_group(gang) is not None
        for pod in self.state.gangs.members(gang).values():
            speaks = pod is first and not has_pod_group
            reason = self._report_safely(pod, planner, now, speaks=speaks)
            new = reason if pod is first else new
        self._report_gang(gang, planner, now)
        if first is not None and new is not None and has_pod_group:
            report = self._gang_reports.get(gang)
            if report is None or report.reason.code != new.code:
                self.events.note(first, new, now)

    def _report_safely(
        self, pod: Pod, planner: Planner, now: float, *, speaks: bool
    ) -> Reason | None:
        """Report on a pod; if that fails, report the failure, so that nobody waits unexplained."""
        with self._isolated.of(pod.uid, now):
            return self._report_pod(pod, planner, now, speaks=speaks)
        self._note_again(pod, self._isolated.again_at(pod.uid) or now)
        if pod.is_waiting:
            failure = InternalError(self._isolated.error_of(pod.uid))
            with self._isolated.of(("failure", pod.uid), now):
                self.announcer.announce_pod(pod, failure, is_placed=False)
        return None

    def _find_first(self, gang: GangKey) -> Pod | None:
        """Return the oldest pending pod of a gang: events about members are on it."""
        tally = self.state.gangs.tally(gang)
        waiting = (*tally.plannable.values(), *tally.foreign.values())
        return min(waiting, key=order_of, default=None)

    def _report_pod(self, pod: Pod, planner: Planner, now: float, *, speaks: bool) -> Reason | None:
        """Report why a pod is pending, with an event if it ``speaks`` and the reason is new.

        Return that reason if it is new.
        """
        if pod.handling not in _OURS and not pod.wait_reason and pod.uid not in self._pod_reports:
            return None
        reason = planner.held_up_by(pod)
        if reason is None and not pod.is_waiting:
            self._report_no_longer_waiting(pod, speaks=speaks)
            return None
        reason = reason or planner.reason_for(pod)
        if reason is None:
            if pod.is_plannable:
                # Not planned yet, which changes nothing of the pod itself. Thousands may wait.
                self._note_again(pod, now + LONGEST_SECONDS)
            return None
        last = self._pod_reports.get(pod.uid)
        if last is not None and last.is_enough(reason, now):
            if last.reason != reason:
                self._note_again(pod, last.numbers_due)
            return None
        before = pod.wait_reason if last is None else last.reason.code
        self._pod_reports[pod.uid] = _next_report(last, reason, now, _NONE, POD_NUMBERS_SECONDS)
        self.announcer.announce_pod(pod, reason, is_placed=False)
        if before == reason.code:
            return None
        if speaks:
            self.announcer.announce_pod_event(pod, reason)
        return reason

    def _report_no_longer_waiting(self, pod: Pod, *, speaks: bool) -> None:
        if pod.uid in self.state.assumed:
            return
        last = self._pod_reports.pop(pod.uid, None)
        settled = {"", Planned.code, IsolationAbsent.code, PlacedOverLoad.code}
        was_reported = last is not None or pod.wait_reason not in settled
        remark = self._remark_on(pod)
        if last is None and remark is not None and remark.code == pod.wait_reason:
            return
        if was_reported and pod.is_alive:
            self._announce_place(pod, speaks=speaks)

    def _announce_place(self, pod: Pod, *, speaks: bool) -> None:
        self.announcer.announce_pod(pod, self._remark_on(pod) or Planned(1, 1), is_placed=True)
        if speaks:
            self.announcer.announce_pod_event(pod, Planned(1, 1))

    def _remark_on(self, pod: Pod) -> Reason | None:
        """Return what is to be said of a pod although it has a node."""
        loads = (plugin for plugin in self.state.plugins if isinstance(plugin, LoadAware))
        over_load = next((load.over_load(pod) for load in loads), None)
        rooms = (plugin for plugin in self.state.plugins if isinstance(plugin, AwaitedRooms))
        room = next((awaited.remark_on(pod) for awaited in rooms), None)
        return isolation_reason(self.state.plugin(Devices), pod) or over_load or room

    def _note_again(self, pod: Pod, at: float) -> None:
        if pod.gang is None:
            self._singles_due.look_at(pod.uid, at)
        else:
            self._gangs_due.look_at(pod.gang.key, at)

    def _report_gang(self, gang: GangKey, planner: Planner, now: float) -> None:
        last = self._gang_reports.pop(gang, None)
        pod_group = self.state.gangs.pod_group(gang)
        if pod_group is None:
            return
        reason = self._reason_of(gang, planner)
        if reason is None:
            if last is not None or pod_group.attempts is not None:
                self.announcer.retract_gang(pod_group)
            return
        if reason.code != (pod_group.wait_reason if last is None else last.reason.code):
            self.announcer.announce_event(pod_group, reason, "")
        attempts = planner.attempts_of(gang)
        has_moved = last is not None and attempts.has_moved(last.attempts)
        is_due = last is None or (has_moved and now >= last.place_due(attempts))
        if last is None or is_due or not last.is_enough(reason, now):
            last = _next_report(last, reason, now, attempts, GANG_NUMBERS_SECONDS)
        elif has_moved or last.reason != reason:
            due = last.place_due(attempts) if has_moved else last.numbers_due
            self._gangs_due.look_at(gang, due)
        if attempts.place is not None:
            self._gangs_due.look_at(gang, now + PLACE_SECONDS)
        self._gang_reports[gang] = last
        # Also if it is the same: other writers set this condition, too.
        self.announcer.announce_gang(pod_group, last.reason, last.attempts)

    def _reason_of(self, gang: GangKey, planner: Planner) -> Reason | None:
        """Return why a complete gang is not placed; None if enough members are."""
        members = self.state.gangs.members(gang).values()
        held_up = [write for pod in members if (write := planner.held_up_by(pod)) is not None]
        if has_minimum(self.state.gangs, gang, without=len(held_up)):
            return None
        if held_up:
            return held_up[0]
        pod = _find_first_to_start(self.state.gangs, gang)
        reason = None if pod is None else planner.reason_for(pod)
        return None if reason is not None and reason.is_incomplete else reason


def _find_first_to_start(cache: GangCache, key: GangKey) -> Pod | None:
    """Return a waiting member that speaks for its gang: not one that is left out of its start."""
    tally, ready = cache.tally(key), demands(cache, key)
    left_out = ready.left_out if isinstance(ready, Ready) else ()
    uids = {pod.uid for left_out_unit in left_out for pod in left_out_unit.pods}
    waiting = (pod for pods in (tally.plannable, tally.foreign) for pod in pods.values())
    return next((pod for pod in waiting if pod.uid not in uids), None)
