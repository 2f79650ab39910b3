"""Tells users why things wait, while they wait: conditions on pods and PodGroups, events.

Said within two seconds of the cause, and not at once: what is placed soon is never said to wait,
and members that arrive one after the other do not each rewrite the conditions of all the others.
Conditions are written again when the reason changes; when only its numbers do, after a pause. This
module decides nothing, it asks.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from koord.controllers.attempts import Attempts
from koord.controllers.coalescing import Agenda, Pause
from koord.controllers.commit import Commit
from koord.core.gang.cache import order_of
from koord.core.gang.model import GangKey, PodGroup
from koord.core.gang.quorum import has_minimum
from koord.core.plan import Unit
from koord.core.pods import Handling, Pod
from koord.core.reasons import Planned, Reason
from koord.core.state import ClusterState

QUIET_SECONDS = 0.7
"""A gang or pod that waits is spoken of when nothing of it has changed for this long …"""
LONGEST_SECONDS = 1.5
"""… or this long after its first change, whichever comes first."""
SAY_AGAIN_AFTER_SECONDS = 10.0
"""Other numbers of a reason that was said of a gang are said after this long …"""
SAY_AGAIN_OF_PODS_AFTER_SECONDS = 60.0
"""… and of a pod after this long: thousands may wait for the same thing."""
LONGEST_SAY_AGAIN_SECONDS = 300.0
"""Numbers that keep changing are said ever more seldom, after this long in the end."""
FORGET_EVERY_SECONDS = 60.0
_TICK = 0.05

_PAUSE = Pause(QUIET_SECONDS, LONGEST_SECONDS)
_NONE = Attempts()
_OURS = frozenset(Handling) - {Handling.NOT_OURS}


class WaitReporter(Protocol):
    """Where conditions and events go; writes only what is not there already."""

    def announce_pod(self, pod: Pod, reason: Reason, *, is_placed: bool) -> None:
        """Set our condition on a pod, and ``PodScheduled`` where autoscalers look for it."""

    def announce_gang(self, pod_group: PodGroup, reason: Reason, attempts: Attempts) -> None:
        """Say on a PodGroup why it has no place, and how often one was sought."""

    def retract_gang(self, pod_group: PodGroup) -> None:
        """Take back what was said on a PodGroup, by this process or one before it."""

    def announce_event(self, pod_group: PodGroup, reason: Reason, note: str) -> None:
        """Emit one event on a PodGroup."""

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None:
        """Emit one event on a pod; for a gang without PodGroup, on one of its pods."""


class Planner(Protocol):
    """Who knows why things wait."""

    def reason_for(self, pod: Pod) -> Reason | None:
        """Say why a waiting pod waits, as far as it is known by now."""

    def doubt_about(self, pod: Pod) -> Reason | None:
        """Say what holds up a pod that has a place assumed; None if it just takes its time."""

    def attempts_of(self, gang: GangKey) -> Attempts:
        """Say how often a place was sought for a gang in vain."""


@dataclass(frozen=True, slots=True)
class _Said:
    reason: Reason
    at: float
    attempts: Attempts
    pause: float
    """How long other numbers of the same reason are not said."""

    @property
    def over_at(self) -> float:
        """When other numbers may be said."""
        return self.at + self.pause

    def is_enough(self, reason: Reason, now: float) -> bool:
        """Whether it need not be said anew yet that something waits for ``reason``."""
        if self.reason.code != reason.code:
            return False
        return self.reason == reason or now < self.over_at


def _say(
    before: _Said | None, reason: Reason, now: float, attempts: Attempts, first: float
) -> _Said:
    """Return what is said after ``before``; ``first`` is how long its numbers stay at first."""
    pause = first
    if before is not None and before.reason.code == reason.code:
        is_calm = now - before.at >= LONGEST_SAY_AGAIN_SECONDS
        pause = first if is_calm else min(2 * before.pause, LONGEST_SAY_AGAIN_SECONDS)
    return _Said(reason, now, attempts, pause)


@dataclass(slots=True)
class WaitReports:
    """Collects who to look at, and reports on each once its time has come."""

    state: ClusterState
    announcer: WaitReporter
    clock: Callable[[], float]
    _gangs_due: Agenda[GangKey] = field(default_factory=Agenda)
    _singles_due: Agenda[str] = field(default_factory=Agenda)
    _said_of_pods: dict[str, _Said] = field(default_factory=dict)
    _said_of_gangs: dict[GangKey, _Said] = field(default_factory=dict)
    _noted: asyncio.Event = field(default_factory=asyncio.Event)
    _forget_at: float = 0.0

    def note(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Look at these again once they have been quiet for a moment."""
        now = self.clock()
        for gang in gangs:
            self._gangs_due.put_off(gang, now, _PAUSE)
        for uid in singles:
            self._singles_due.put_off(uid, now, _PAUSE)
        if gangs or singles:
            self._noted.set()

    def note_numbers(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Look at these again when it is time to say other numbers of the same reason."""
        now = self.clock()
        for gang in gangs:
            self._gangs_due.look_at(gang, now + SAY_AGAIN_AFTER_SECONDS)
        for uid in singles:
            self._singles_due.look_at(uid, now + SAY_AGAIN_OF_PODS_AFTER_SECONDS)
        self._noted.set()

    def placed(self, unit: Unit, outcome: Commit) -> None:
        """Take back what was said of pods, and emit one event per gang that was placed whole."""
        for pod in unit.pods:
            # At once: what was said may not be written yet, and would come after the binding.
            if pod.uid in outcome.bound and self._said_of_pods.pop(pod.uid, None) is not None:
                self._announce_place(pod, speaks=pod.gang is None)
        if not unit.is_whole or not outcome.bound:
            return
        for demand in unit.demands:
            pod_group = self.state.book.pod_group(demand.gang)
            placed = [pod for pod in demand.pods if pod.uid in outcome.bound]
            if pod_group is None or not placed:
                continue
            nodes = {self.state.pods[pod.uid].node for pod in placed if pod.uid in self.state.pods}
            members = "member" if len(placed) == 1 else "members"
            on = "node" if len(nodes) == 1 else "nodes"
            note = f"{len(placed)} {members} placed on {len(nodes)} {on}"
            self.announcer.announce_event(pod_group, Planned(len(placed), len(nodes)), note)

    async def run(self, planner: Planner) -> None:
        """Report until cancelled."""
        while True:
            await self._rest()
            self.report(planner, self.clock())

    async def _rest(self) -> None:
        """Sleep until the first is due; what is noted meanwhile may be due before it."""
        self._noted.clear()
        moments = (self._gangs_due.first(), self._singles_due.first())
        first = min((at for at in moments if at is not None), default=None)
        until = None if first is None else max(first - self.clock(), _TICK)
        try:
            async with asyncio.timeout(until):
                await self._noted.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_TICK)

    def report(self, planner: Planner, now: float) -> None:
        """Report on those whose time has come."""
        for gang in self._gangs_due.take(now):
            speaker = self._speaker_of(gang)
            for pod in self.state.book.members(gang).values():
                self._report_pod(pod, planner, now, speaks=pod.uid == speaker)
            self._report_gang(gang, planner, now)
        for uid in self._singles_due.take(now):
            single = self.state.pods.get(uid)
            if single is not None:
                self._report_pod(single, planner, now, speaks=single.gang is None)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_SECONDS
            for uid in self._said_of_pods.keys() - self.state.pods.keys():
                del self._said_of_pods[uid]

    def _speaker_of(self, gang: GangKey) -> str:
        """Return the member that events of a gang without PodGroup are about: the oldest waiting.

        One per gang will do: each event is one more write.
        """
        if self.state.book.pod_group(gang) is not None:
            return ""
        tally = self.state.book.tally(gang)
        waiting = (*tally.plannable.values(), *tally.foreign.values())
        first = min(waiting, key=order_of, default=None)
        return first.uid if first is not None else ""

    def _report_pod(self, pod: Pod, planner: Planner, now: float, *, speaks: bool) -> None:
        """Say why a pod waits; who ``speaks`` does it with an event, too, if the reason is new."""
        if pod.handling not in _OURS and not pod.wait_reason and pod.uid not in self._said_of_pods:
            return
        reason = planner.doubt_about(pod)
        if reason is None and not pod.is_waiting:
            self._report_no_longer_waiting(pod, speaks=speaks)
            return
        reason = reason or planner.reason_for(pod)
        if reason is None:
            if pod.is_plannable:
                # Its turn has not come, and when it has, nothing of the pod itself will change.
                self._note_again(pod, now + QUIET_SECONDS)
            return
        said = self._said_of_pods.get(pod.uid)
        if said is not None and said.is_enough(reason, now):
            if said.reason != reason:
                self._note_again(pod, said.over_at)
            return
        before = pod.wait_reason if said is None else said.reason.code
        self._said_of_pods[pod.uid] = _say(
            said, reason, now, _NONE, SAY_AGAIN_OF_PODS_AFTER_SECONDS
        )
        self.announcer.announce_pod(pod, reason, is_placed=False)
        if speaks and before != reason.code:
            self.announcer.announce_pod_event(pod, reason)

    def _report_no_longer_waiting(self, pod: Pod, *, speaks: bool) -> None:
        if pod.uid in self.state.assumed:
            return
        said = self._said_of_pods.pop(pod.uid, None)
        was_said = said is not None or pod.wait_reason not in {"", Planned.code}
        if was_said and pod.is_alive:
            self._announce_place(pod, speaks=speaks)

    def _announce_place(self, pod: Pod, *, speaks: bool) -> None:
        self.announcer.announce_pod(pod, Planned(1, 1), is_placed=True)
        if speaks:
            self.announcer.announce_pod_event(pod, Planned(1, 1))

    def _note_again(self, pod: Pod, at: float) -> None:
        if pod.gang is None:
            self._singles_due.look_at(pod.uid, at)
        else:
            self._gangs_due.look_at(pod.gang.key, at)

    def _report_gang(self, gang: GangKey, planner: Planner, now: float) -> None:
        said = self._said_of_gangs.pop(gang, None)
        pod_group = self.state.book.pod_group(gang)
        if pod_group is None:
            return
        reason = self._obstacle_of(gang, planner)
        if reason is None:
            if said is not None or pod_group.attempts is not None:
                self.announcer.retract_gang(pod_group)
            return
        if reason.code != (pod_group.wait_reason if said is None else said.reason.code):
            self.announcer.announce_event(pod_group, reason, "")
        if said is None or not said.is_enough(reason, now):
            said = _say(said, reason, now, planner.attempts_of(gang), SAY_AGAIN_AFTER_SECONDS)
        elif said.reason != reason:
            self._gangs_due.look_at(gang, said.over_at)
        self._said_of_gangs[gang] = said
        # Said again also if it is the same: others write this condition, too.
        self.announcer.announce_gang(pod_group, said.reason, said.attempts)

    def _obstacle_of(self, gang: GangKey, planner: Planner) -> Reason | None:
        """Return what keeps a complete gang from being placed; surplus keeps no gang."""
        members = self.state.book.members(gang).values()
        doubts = [doubt for pod in members if (doubt := planner.doubt_about(pod)) is not None]
        if has_minimum(self.state.book, gang, without=len(doubts)):
            return None
        if doubts:
            return doubts[0]
        tally = self.state.book.tally(gang)
        pod = next(iter(tally.plannable.values()), None) or next(iter(tally.foreign.values()), None)
        reason = None if pod is None else planner.reason_for(pod)
        return None if reason is not None and reason.is_incomplete else reason
