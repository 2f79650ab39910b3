"""The operator ``placement``: takes changes in, plans, and commits what was planned.

One cycle is numbered below. It is level-triggered: nothing is remembered that could not be read
from the API objects again, except what is on its way (assumed pods) and how long to leave failures
alone.
The cycle itself never awaits, so that a plan is made and assumed on one state of the cluster;
commits run beside it, each in a task of its own.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from koord.controllers.attempts import AttemptCounter, Attempts
from koord.controllers.commit import Commit, CommitFailure, WriteObserver, commit
from koord.controllers.error_isolation import FailureLog, plan_keeping
from koord.controllers.restart import GangRestarts
from koord.controllers.writes_in_flight import Flight, WritesInFlight
from koord.core.changes import Changes
from koord.core.framework.cycle import Cycle
from koord.core.framework.scoring import Scoring
from koord.core.gang.failure import Restart
from koord.core.gang.model import GangKey
from koord.core.gang.reasons import KeptForReplacements
from koord.core.holds import Holds
from koord.core.plan import Placement, Plan, Refusal, Unit
from koord.core.pods import Handling, Pod
from koord.core.queue import News, Queue
from koord.core.reasons import BindFailed, Reason, WaitingForForeignGate
from koord.core.state import ClusterState
from koord.kube.binder import Binder

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.005
"""Events that come within this time are planned together: members of a gang come in bursts."""
MOST_PODS_PER_CYCLE = 256
"""A cycle decides about this many pods, then lets others have the event loop."""
MOST_PODS_IN_FLIGHT = 256
"""While this many are being committed nothing more is decided: what is begun is finished first, and
a decision is made on what is known when its turn comes. What is held up does not count."""

LOOK_AGAIN_SECONDS = 300.0
"""What sleeps is tried again after this long although nothing relevant has happened: should a
change ever be overlooked, it costs minutes. kube-scheduler does the same."""


class PlacementObserver(WriteObserver, Protocol):
    """Who is told what happened: metrics."""

    def observe_cycle(self, seconds: float) -> None:
        """Take the duration of one plan."""

    def count_planned(self, *, placed: int, refused: int) -> None:
        """Take the number of pods that one plan placed and refused."""

    def observe_bind_latency(self, seconds: float) -> None:
        """Take the time from a complete unit to a binding of one of its pods."""


class WaitReporter(Protocol):
    """Who explains to users why things wait, and that they no longer do."""

    def note(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Look at these gangs and single pods (uids) again, soon."""

    def note_numbers(self, gangs: set[GangKey], singles: set[str]) -> None:
        """Look at these again when it is time to say other numbers of the same reason."""

    def placed(self, unit: Unit, outcome: Commit) -> None:
        """Learn what became of a unit."""


@dataclass(slots=True)
class PlacementController:
    """Plans and commits for as long as :meth:`run` runs.

    ``is_synced`` tells whether ``state`` is complete and followed: nothing is planned on a copy
    that is known to be old. ``clock`` gives seconds that never go back, ``wall_clock`` seconds
    since the epoch.
    """

    state: ClusterState
    binder: Binder
    scoring: Scoring
    observer: PlacementObserver
    reporter: WaitReporter
    restarts: GangRestarts
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    queue: Queue = field(default_factory=Queue)
    holds: Holds = field(default_factory=Holds)
    attempts: AttemptCounter = field(init=False)
    flights: WritesInFlight = field(init=False)
    failures: dict[str, BindFailed] = field(default_factory=dict)
    """Pod uid -> the refused write that keeps it waiting, its own or that of another member; until
    there is newer word of it."""
    _kept: dict[GangKey, int] = field(default_factory=dict)
    """What was kept for lost members in the cycle before."""
    _failures: FailureLog = field(default_factory=FailureLog)
    _look_again_at: float = float("-inf")
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self.attempts = AttemptCounter(self.state.book)
        self.flights = WritesInFlight(self._note_held_up)
        self.restarts.is_committing = self.queue.is_committing

    def wake(self) -> None:
        """Say that the state has changed."""
        self._woken.set()

    def stop(self) -> None:
        """Plan nothing more."""
        self._stopped = True
        self.wake()

    async def run(self) -> None:
        """Plan until :meth:`stop`, then return when all that was planned is committed.

        Cancelled instead, it cuts off what is under way between two writes, which is safe.
        """
        feed = self.state.feed()
        async with asyncio.TaskGroup() as commits:
            while not self._stopped:
                # 1. What changed makes units, and wakes those that it may help.
                changes = feed.drain()
                self._absorb(changes)
                self._drop_stale_failures()
                self.attempts.drop_gone(changes.gangs)
                self.reporter.note(changes.gangs, changes.singles)
                # … Gangs that are not to live on without those they lost go whole.
                self.restarts.note(changes.gangs)
                for restart in self._take_restarts():
                    commits.create_task(self._restart(restart))
                # 2. The first units in order are decided on one snapshot.
                units = {unit.key: unit for unit in self._take()}
                outcome = self._plan(units)
                # 3. What was refused sleeps; what was placed counts as placed from here on.
                for refusal in outcome.refusals:
                    self._refuse(units[refusal.unit], refusal)
                for placement in outcome.placements:
                    flight = self._assume(units[placement.unit], placement)
                    commits.create_task(self._commit(flight))
                # 4. Sleep until something changes or a back-off ends.
                await self._rest()

    def reason_for(self, pod: Pod) -> Reason | None:
        """Say why a waiting pod waits, as far as it is known by now.

        A failure counts for as long as nothing newer is known: until the next attempt.
        """
        doubt = self.doubt_about(pod)
        if doubt is not None:
            return doubt
        for key in self._sources_of(pod):
            blocked = self.queue.blocked.get(key)
            if blocked is not None and any(one.uid == pod.uid for one in blocked.pods):
                return blocked.reason
            if key in self.queue.waiting:
                return self.queue.waiting[key]
        if pod.handling is Handling.FOREIGN_GATE:
            # Its gang goes on without it.
            return WaitingForForeignGate(pod.key, pod.foreign_gates)
        return self.failures.get(pod.uid)

    def doubt_about(self, pod: Pod) -> Reason | None:
        """Say which write holds up a pod that has a place assumed; None if it just takes its time.

        It may be the write of another pod that was placed with it.
        """
        return self.flights.doubt_about(pod.uid) if pod.uid in self.state.assumed else None

    def attempts_of(self, gang: GangKey) -> Attempts:
        """Say how often a place was sought for a gang in vain."""
        return self.attempts.of(gang)

    def _sources_of(self, pod: Pod) -> tuple[str, ...]:
        if pod.gang is None:
            return (pod.uid,)
        return (pod.uid, *self.queue.units_of(pod.gang.key), pod.gang.key)

    def _take(self) -> list[Unit]:
        if not self._may_plan or not len(self.queue):
            return []
        return self.queue.take(self.clock(), MOST_PODS_PER_CYCLE)

    async def _restart(self, restart: Restart) -> None:
        await self.restarts.carry_out(restart)
        self.wake()

    def _take_restarts(self) -> list[Restart]:
        return self.restarts.take() if self.is_synced() else []

    @property
    def _may_plan(self) -> bool:
        return self.flights.pods < MOST_PODS_IN_FLIGHT and self.is_synced()

    def _plan(self, units: dict[str, Unit]) -> Plan:
        if not units:
            return Plan()
        began = self.clock()
        self.state.refresh(began)
        snapshots: list[Cycle] = []

        def make_snapshot() -> Cycle:
            snapshots.append(self.state.open_cycle(lambda: self.queue.pending(*units.values())))
            return snapshots[-1]

        outcome = plan_keeping(
            self.holds, make_snapshot, tuple(units.values()), self.scoring, began
        )
        self.state.note_plan(snapshots[-1], outcome)
        self._failures.note(self.state.quotas.defects)
        self.observer.observe_cycle(self.clock() - began)
        self.observer.count_planned(
            placed=sum(len(placement.assignments) for placement in outcome.placements),
            refused=sum(len(refusal.pods) for refusal in outcome.refusals),
        )
        return outcome

    def _absorb(self, changes: Changes) -> None:
        """Make units, keep room for what was lost, wake those who wait for what is kept no more.

        Room that a NonStrict gang keeps goes with the unit it was kept for.
        """
        now = self.clock()
        changes.freed |= self.holds.absorb(changes.gangs, self.state, now)
        changes.freed |= self.holds.expire(now)
        self.queue.absorb(changes, self.state)
        if now >= self._look_again_at:
            self._look_again_at = now + LOOK_AGAIN_SECONDS
            self.queue.wake_all()
        freed = self.holds.drop(lambda key: not self.queue.knows(key))
        if freed:
            self.queue.absorb(Changes(freed=freed), self.state)
        kept = self.holds.kept_for_lost()
        if kept != self._kept:
            self._kept = kept
            self.queue.wake(KeptForReplacements.code)

    def _refuse(self, unit: Unit, refusal: Refusal) -> None:
        news = self.queue.refuse(unit, refusal)
        if news is not News.NOTHING:
            note = self.reporter.note if news is News.REASON else self.reporter.note_numbers
            note(_gangs_of(unit), {pod.uid for pod in refusal.pods if pod.gang is None})
        self.attempts.fail(unit, self.wall_clock())
        for pod in refusal.pods:
            self.failures.pop(pod.uid, None)

    def _assume(self, unit: Unit, placement: Placement) -> Flight:
        self.queue.begin(unit)
        for assignment in placement.assignments:
            self.state.assume(assignment.pod.uid, assignment.node)
        return self.flights.begin(unit, placement)

    async def _commit(self, flight: Flight) -> None:
        unit = flight.unit
        outcome = await commit(self.binder, unit, flight.placement, self.observer, flight)
        self.queue.end(unit)
        flight.end()
        for uid in outcome.not_bound - outcome.pinned:
            self.state.forget(uid)
        for uid in outcome.not_bound & outcome.pinned:
            self.state.forget_once_released(uid)
        self._note_failures(outcome)
        if outcome.failures:
            self.attempts.fail(unit, self.wall_clock())
        else:
            self.attempts.succeed(unit)
        # Tried again at once, an outdated pod would be written to until the watch tells of it.
        self.queue.penalise(outcome.failures.keys() | outcome.outdated, self.clock())
        self.queue.forgive(outcome.bound)
        for uid in outcome.bound:
            self.failures.pop(uid, None)
        # Between two clocks, and in whole seconds: the API server's tells when pods were created.
        waited = max(0.0, self.wall_clock() - unit.since)
        for _ in outcome.bound:
            self.observer.observe_bind_latency(waited)
        self.reporter.placed(unit, outcome)
        self.wake()

    def _note_held_up(self, unit: Unit, reason: BindFailed) -> None:
        """Have it told what holds a unit up, and plan on: it is no longer in flight."""
        log.warning(
            "it is not known whether the API server has carried out a write, which is repeated",
            extra={"pod": reason.pod, "status": reason.status, "answer": reason.message},
        )
        self.reporter.note(_gangs_of(unit), {pod.uid for pod in unit.pods if pod.gang is None})
        self.wake()

    def _drop_stale_failures(self) -> None:
        for uid in [uid for uid in self.failures if uid not in self.state.pods]:
            del self.failures[uid]

    def _note_failures(self, outcome: Commit) -> None:
        """Note what the server refused, for those refused and for those that it held up."""
        for uid, failure in outcome.failures.items():
            self._note_failure(uid, failure)
        first = next((self.failures[uid] for uid in outcome.failures if uid in self.failures), None)
        if first is not None:
            held_up = outcome.not_bound - outcome.failures.keys()
            self.failures |= dict.fromkeys(held_up & self.state.pods.keys(), first)

    def _note_failure(self, uid: str, failure: CommitFailure) -> None:
        pod = self.state.pods.get(uid)
        if pod is None:
            return
        self.failures[uid] = BindFailed(pod.key, failure.status, failure.message)
        log.warning(
            "the API server refused to place a pod",
            extra={"pod": pod.key, "status": failure.status, "answer": failure.message},
        )

    async def _rest(self) -> None:
        dues = [self.queue.next_due() if self._may_plan else None, self.holds.next_expiry()]
        dues.append(self.restarts.next_due() if self.is_synced() else None)
        dues.append(self._look_again_at if self.queue.blocked else None)
        due = min((at for at in dues if at is not None), default=None)
        delay = None if due is None else max(0.0, due - self.clock())
        if delay == 0.0:
            await asyncio.sleep(0)
        else:
            try:
                async with asyncio.timeout(delay):
                    await self._woken.wait()
            except TimeoutError:
                return
            await asyncio.sleep(COALESCE_SECONDS)
        self._woken.clear()


def _gangs_of(unit: Unit) -> set[GangKey]:
    return {demand.gang for demand in unit.demands if demand.gang}
