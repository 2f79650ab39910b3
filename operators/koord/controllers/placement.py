"""The operator ``placement``: absorbs changes, plans units, and commits the placements.

The steps of a cycle are numbered below. It is level-triggered: all state except assumed pods and
backoffs can be read from the API objects again. A cycle does not await, so that a plan is made and
assumed on one state of the cluster; each commit runs in its own task.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from koord.answers.reason_context import ContextFinder
from koord.answers.standing import QueueStanding
from koord.controllers.commit import Commit, CommitFailure, WriteObserver, commit
from koord.controllers.decision_log import DecisionLog
from koord.controllers.decision_tracer import DecisionTracer
from koord.controllers.error_isolation import FailureLog, plan_with_holds
from koord.controllers.placement_reports import AttemptCounter, Attempts, QueuePlaces
from koord.controllers.restart import GangRestarts
from koord.controllers.writes_in_flight import Flight, Turns, WritesInFlight
from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.queue import News, Queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.engine.steps import MOST_PER_CALL
from koord.core.eviction.preemption import name_of
from koord.core.gang.failure import Restart
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.changes import Changes
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Placement, Plan, Unit, Unplaced
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import (
    BindFailed,
    InternalError,
    Reason,
    TooExpensive,
    WaitingForForeignGate,
)
from koord.core.model.text import named
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.reasons import QuotaExceeded
from koord.isolation import Isolation
from koord.kube.binder import Binder

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.005
"""Events within this time are planned together: members of a gang arrive in bursts."""
COALESCE_BUSY_SECONDS = 0.1
"""The same while ``BUSY_PODS`` are being committed. That takes longer, and each turn takes
in what has changed: more turns would place nothing sooner."""
BUSY_PODS = 128
MOST_PODS_PER_CYCLE = 256
"""A cycle plans this many pods, then yields the event loop."""
MOST_PODS_IN_FLIGHT = 256
"""Planning pauses while this many pods are being committed, so that later plans use newer state.
Placements that are held up do not count."""

FAILED_CYCLE_SECONDS = 1.0
"""After a cycle that failed before any unit could be told from the others."""
_CYCLE = "cycle"
RETRY_ALL_SECONDS = 300.0
"""Blocked units are retried this often without a relevant change, in case a wake-up was missed.
kube-scheduler does the same."""


class PlacementObserver(WriteObserver, Protocol):
    """Metrics of planning."""

    def observe_cycle(self, seconds: float) -> None: ...
    def count_planned(self, *, placed: int, refused: int) -> None: ...

    def count_futile_plan(self) -> None:
        """Count a unit that was planned, and written without any effect."""

    def observe_bind_latency(self, seconds: float) -> None:
        """Observe the time from the completion of a unit to the binding of one of its pods."""


class WaitReporter(Protocol):
    """Reports to users why pods are pending; see ``WaitReports``."""

    def note(self, gangs: set[GangKey], singles: set[str]) -> None: ...
    def note_numbers(self, gangs: set[GangKey], singles: set[str]) -> None: ...
    def placed(self, unit: Unit, outcome: Commit) -> None: ...


class CycleWitness(Protocol):
    """Sees each cycle: before it plans, and with its plan before anything of that is applied."""

    def begin(self) -> None: ...
    def end(self, units: Collection[Unit], plan: Plan) -> None: ...


@dataclass(slots=True)
class PlacementController:
    """Plans and commits while :meth:`run` runs.

    ``is_synced`` returns whether ``state`` is complete and current: nothing is planned on a stale
    cache. ``clock`` returns seconds since the epoch, for everything: see ``runtime/clock.py``.
    """

    state: ClusterState
    binder: Binder
    turns: Turns
    scoring: Scoring
    observer: PlacementObserver
    reporter: WaitReporter
    restarts: GangRestarts
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    queue: Queue = field(default_factory=Queue)
    holds: Holds = field(default_factory=Holds)
    recover: Callable[[], None] = lambda: None
    """Called once, before the first cycle."""
    on_refused: Callable[[], None] = lambda: None
    """Called after units were refused."""
    standing_of: Callable[[GangKey], QueueStanding | None] = lambda _: None
    """Returns where a gang stands in its queue."""
    on_started: Callable[[Unit], None] = lambda _: None
    """Called after a unit was placed."""
    preempting: Callable[[str], Reason | None] = lambda _: None
    """Returns how far the preemption for a unit is; None if there is none."""
    reclaim: ReclaimSetting = UNKNOWN
    audit: DecisionLog | None = None
    """What decisions are recorded in, if they are."""
    tracer: DecisionTracer | None = None
    """What logs how decisions come about, where somebody may want that."""
    witness: CycleWitness | None = None
    contexts: ContextFinder = field(init=False)
    attempts: AttemptCounter = field(init=False)
    places: QueuePlaces = field(init=False)
    flights: WritesInFlight = field(init=False)
    failures: dict[str, Reason] = field(default_factory=dict)
    """Pod uid -> the rejected write that keeps it pending, its own or another member's, or an error
    of the planner; until the next attempt."""
    _kept: dict[GangKey, tuple[str, ...]] = field(default_factory=dict)
    """Nodes with room reserved for lost members in the last cycle."""
    _failures: FailureLog = field(default_factory=FailureLog)
    _isolated: Isolation = field(default_factory=lambda: Isolation("placement"))
    _retry_all_at: float = float("-inf")
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self.attempts = AttemptCounter(self.state.gangs)
        self.places = QueuePlaces(self.queue, self.clock)
        self.contexts = ContextFinder(self.state, self.reclaim, clock=self.clock)
        self.flights = WritesInFlight(self._note_held_up, self.turns)
        self.restarts.is_committing = self.queue.is_committing

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    async def run(self) -> None:
        """Plan until :meth:`stop`, then return when all placements are committed.

        Cancellation interrupts commits between two writes, which is safe.
        """
        self._isolated.call("recovery", self.recover)
        feed = self.state.feed()
        async with asyncio.TaskGroup() as commits:
            while not self._stopped:
                with self._isolated.of(_CYCLE):
                    self._turn(feed.drain(), commits)
                if self._isolated.again_at(_CYCLE) is None:
                    # 4. Sleep until a change or the end of a backoff.
                    await self._rest()
                else:
                    # What the cycle had taken is lost: make all units again.
                    feed.note(self.state.everything())
                    await asyncio.sleep(FAILED_CYCLE_SECONDS)

    def _turn(self, changes: Changes, commits: asyncio.TaskGroup) -> None:
        # No await in here: a watch event between planning and assuming would let two units get the
        # same room.
        # 1. Changes make new units and wake blocked units that may fit now.
        self._absorb(changes)
        self._drop_stale_failures()
        self.attempts.drop_gone(changes.gangs)
        self.reporter.note(changes.gangs, changes.singles)
        if self.audit is not None:
            self.audit.note(changes)
        # … Gangs that lost members they need are restarted.
        self.restarts.note(changes.gangs)
        for restart in self._take_restarts():
            commits.create_task(self._restart(restart))
        # 2. The first units of the queue are planned on one cycle.
        units = {unit.key: unit for unit in self._take()}
        outcome = self._plan(units)
        # 3. Refused units are blocked; placed pods are assumed.
        for refusal in outcome.refusals:
            self._isolated.call(refusal.unit, self._refuse, units[refusal.unit], refusal)
        if outcome.refusals:
            self.on_refused()
        for placement in outcome.placements:
            flight = self._assume_safely(units[placement.unit], placement)
            if flight is not None:
                commits.create_task(self._commit_safely(flight))

    def reason_for(self, pod: Pod) -> Reason | None:
        """Return why a pod is pending, if known. A failure counts until the next attempt."""
        failing_write = self.held_up_by(pod)
        if failing_write is not None:
            return failing_write
        for key in self._sources_of(pod):
            blocked = self.queue.blocked.get(key)
            if blocked is not None and any(
                blocked_pod.uid == pod.uid for blocked_pod in blocked.pods
            ):
                return self.preempting(key) or self.contexts.add(blocked.unit, blocked.reason)
            if key in self.queue.waiting:
                return self.queue.waiting[key]
        left_out = self.queue.why_left_out(pod)
        if left_out is not None:
            return left_out
        if pod.handling is Handling.FOREIGN_GATE:
            # Its gang is planned without it.
            return WaitingForForeignGate(pod.key, pod.foreign_gates)
        return self.failures.get(pod.uid)

    def held_up_by(self, pod: Pod) -> Reason | None:
        """Return the write that holds up an assumed pod, its own or another member's, if any."""
        return self.flights.held_up_by(pod.uid) if pod.uid in self.state.assumed else None

    def attempts_of(self, gang: GangKey) -> Attempts:
        attempts = self.attempts.of(gang)
        return replace(attempts, place=self.places.of(gang), standing=self.standing_of(gang))

    def _sources_of(self, pod: Pod) -> tuple[str, ...]:
        if pod.gang is None:
            return (pod.uid,)
        return (pod.uid, *self.queue.units_of(pod.gang.key), pod.gang.key)

    def _take(self) -> list[Unit]:
        if not self._may_plan or not len(self.queue):
            return []
        return self.queue.take(self.clock(), MOST_PODS_PER_CYCLE, self.state)

    async def _restart(self, restart: Restart) -> None:
        with self._isolated.of(("restart", restart.gang)):
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
        self.state.refresh()
        cycles: list[Cycle] = []

        def make_snapshot() -> Cycle:
            cycle = self.state.open_cycle(
                lambda: self.queue.by_time(*units.values()), is_deciding=True
            )
            cycle.steps.most = MOST_PER_CALL
            cycle.steps.wasted = self.queue.wasted(began)
            cycle.steps.late = self.queue.yielding
            if self.tracer is not None:
                self.tracer.begin(cycle)
            cycles.append(cycle)
            return cycle

        if self.witness is not None:
            self.witness.begin()
        outcome = plan_with_holds(
            self.holds, make_snapshot, tuple(units.values()), self.scoring, began
        )
        if self.witness is not None:
            self.witness.end(units.values(), outcome)
        decided = {placement.unit for placement in outcome.placements} | {
            refusal.unit for refusal in outcome.refusals
        }
        undecided = [unit for key, unit in units.items() if key not in decided]
        self.queue.put_back(undecided)
        self.queue.yield_to_others(cycles[-1].steps.spent if undecided else {})
        self.state.note_plan(cycles[-1], outcome)
        for cycle in cycles:
            cycle.close()
        self._failures.note(self.state.quotas.defects)
        took = self.clock() - began
        self.observer.observe_cycle(took)
        if self.audit is not None:
            self.audit.planned(took)
        self.observer.count_planned(
            placed=sum(len(placement.assignments) for placement in outcome.placements),
            refused=sum(len(refusal.pods) for refusal in outcome.refusals),
        )
        return outcome

    def _absorb(self, changes: Changes) -> None:
        """Make units, reserve room for lost members, and wake units that wait for released room.

        Room reserved for a NonStrict gang is released with the unit it was reserved for.
        """
        now = self.clock()
        changes.freed |= self.state.advance(now)
        changes.freed |= self.holds.absorb(changes.gangs, self.state, now)
        expired = self.holds.expire(now)
        changes.freed |= expired
        self.queue.absorb(changes, self.state)
        self.queue.wake_units(self.state.take_due())
        self.queue.refresh(now)
        if now >= self._retry_all_at:
            self._retry_all_at = now + RETRY_ALL_SECONDS
            self.queue.wake_all()
        dropped = self.holds.drop(lambda key: not self.queue.knows(key), now)
        if dropped:
            self.queue.absorb(Changes(freed=dropped), self.state)
        self.queue.wake_surplus(expired | dropped | self.holds.take_freed(), self.state)
        kept = self.holds.nodes_for_replacements()
        if kept != self._kept:
            self._kept = kept
            self.queue.wake(HeldForReplacements, QuotaExceeded)

    def _refuse(self, unit: Unit, refusal: Unplaced) -> None:
        news = self.queue.refuse(unit, refusal)
        if news is not News.NOTHING:
            note = self.reporter.note if news is News.REASON else self.reporter.note_numbers
            note(_gangs_of(unit), {pod.uid for pod in refusal.pods if pod.gang is None})
        self.attempts.fail(unit, self.clock())
        if self.audit is not None:
            self.audit.refused(unit, refusal)
        if self.tracer is not None:
            self.tracer.decided(unit, refusal)
        if isinstance(refusal.reason, TooExpensive):
            self.queue.postpone(unit, refusal.reason.steps, self.clock())
        elif isinstance(refusal.reason, InternalError):
            self.queue.postpone(unit, 0, self.clock())
        for pod in refusal.pods:
            self.failures.pop(pod.uid, None)

    def _assume(self, unit: Unit, placement: Placement) -> Flight:
        self.queue.begin(unit)
        charged = self.state.quotas.charges_of(
            assignment.pod for assignment in placement.assignments
        )
        if charged:
            placement = replace(placement, charged=charged)
        writes = self.state.writes_before(placement)
        if writes:
            placement = replace(placement, writes=writes)
        limits = self.state.time_limits(placement)
        if limits:
            placement = replace(placement, time_limits=limits)
        for assignment in placement.assignments:
            self.state.assume(assignment.pod.uid, assignment.node, assignment.allocations)
        if self.audit is not None:
            self.audit.placed(unit, placement)
        if self.tracer is not None:
            self.tracer.decided(unit, None)
        return self.flights.begin(unit, placement)

    def _assume_safely(self, unit: Unit, placement: Placement) -> Flight | None:
        """Assume a placement; if that fails, none of its pods is."""
        with self._isolated.of(unit.key):
            return self._assume(unit, placement)
        self._give_up(unit)
        return None

    async def _commit_safely(self, flight: Flight) -> None:
        """Commit a placement; after a failure the watch shows which pods are bound."""
        with self._isolated.of(flight.unit.key):
            await self._commit(flight)
            return
        flight.end()
        self._give_up(flight.unit)

    def _give_up(self, unit: Unit) -> None:
        """Plan the pods of a unit again after a pause: what was done with it has failed."""
        self.queue.end(unit)
        self.queue.put_back((unit,))
        failure = InternalError(self._isolated.error_of(unit.key))
        for pod in unit.pods:
            self.state.forget(pod.uid)
            self.failures[pod.uid] = failure
        self.queue.penalise([pod.uid for pod in unit.pods], self.clock())
        self.reporter.note(_gangs_of(unit), {pod.uid for pod in unit.pods if pod.gang is None})
        self.wake()

    async def _commit(self, flight: Flight) -> None:
        unit, began = flight.unit, self.clock()
        outcome = await commit(self.binder, unit, flight.placement, self.observer, flight)
        for left_over in outcome.left_over:
            log.warning("A write before a binding stays", extra={"object": left_over.path})
        # No await from here on: the next cycle must find the unit either in flight or decided.
        self.queue.end(unit)
        flight.end()
        for uid in outcome.not_bound - outcome.pinned:
            self.state.forget(uid)
        for uid in outcome.not_bound & outcome.pinned:
            self.state.forget_once_released(uid)
        self._note_failures(outcome)
        if outcome.failures:
            self.attempts.fail(unit, self.clock())
        else:
            self.attempts.succeed(unit)
            self.on_started(unit)
        # Without a backoff an outdated pod would be written again until the watch catches up.
        self.queue.penalise(outcome.failures.keys() | outcome.outdated, self.clock())
        if outcome.is_futile:
            self._note_futile(unit, outcome)
        self.queue.forgive(outcome.bound)
        for uid in outcome.bound:
            self.failures.pop(uid, None)
        # Creation times are whole seconds of the API server's clock, so this may be negative.
        waited = max(0.0, self.clock() - unit.since)
        for _ in outcome.bound:
            self.observer.observe_bind_latency(waited)
        self.reporter.placed(unit, outcome)
        if self.audit is not None:
            self.audit.committed(unit, flight.placement, outcome, self.clock() - began)
        log_outcome(unit, flight.placement, outcome)
        self.wake()

    def _note_held_up(self, unit: Unit, reason: Reason) -> None:
        """Report what holds a unit up, and continue planning: it is no longer in flight."""
        if isinstance(reason, BindFailed):
            log.warning(
                "Outcome of a write is unknown; repeating it",
                extra={"pod": reason.pod, "status": reason.status, "answer": reason.message},
            )
        self.reporter.note(_gangs_of(unit), {pod.uid for pod in unit.pods if pod.gang is None})
        self.wake()

    def _drop_stale_failures(self) -> None:
        for uid in [uid for uid in self.failures if uid not in self.state.pods]:
            del self.failures[uid]

    def _note_failures(self, outcome: Commit) -> None:
        """Record rejected writes, for their pods and for the members held up by them."""
        for uid, failure in outcome.failures.items():
            self._note_failure(uid, failure)
        first = next((self.failures[uid] for uid in outcome.failures if uid in self.failures), None)
        if first is not None:
            held_up = outcome.not_bound - outcome.failures.keys()
            self.failures |= dict.fromkeys(held_up & self.state.pods.keys(), first)

    def _note_futile(self, unit: Unit, outcome: Commit) -> None:
        """Back off a unit that would be planned in the same way again: a defect of the planner."""
        self.observer.count_futile_plan()
        if not outcome.not_bound <= self.failures.keys():
            log.error("A plan was written without effect", extra={"unit": unit.key})
        unbound = outcome.not_bound & self.state.pods.keys()
        self.failures |= dict.fromkeys(unbound, InternalError("plan without effect"))
        self.queue.penalise(outcome.not_bound, self.clock())

    def _note_failure(self, uid: str, failure: CommitFailure) -> None:
        pod = self.state.pods.get(uid)
        if pod is None:
            return
        self.failures[uid] = failure.reason_for(pod.key)
        log.warning(
            "The API server rejected a write to a pod",
            extra={"pod": pod.key, "status": failure.status, "answer": failure.message},
        )

    async def _rest(self) -> None:
        dues = [self.queue.next_due() if self._may_plan else None, self.holds.next_due()]
        dues.append(self.restarts.next_due() if self.is_synced() else None)
        dues.append(self._retry_all_at if self.queue.blocked else None)
        dues.append(self.state.next_due())
        due = min((at for at in dues if at is not None), default=None)
        delay = None if due is None else max(0.0, due - self.clock())
        if delay == 0.0:
            await asyncio.sleep(0)
        else:
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                return
            is_busy = self.flights.pods >= BUSY_PODS
            await asyncio.sleep(COALESCE_BUSY_SECONDS if is_busy else COALESCE_SECONDS)
        # Only now: what happened during the pause is part of the next cycle.
        self._wake.clear()


def log_outcome(unit: Unit, placement: Placement, outcome: Commit) -> None:
    """Write one line for the pods of a unit that we bound, and one for those that others bind."""
    for text, uids in (("Placed", outcome.bound), ("Released", outcome.left_to_others)):
        nodes = [
            assignment.node for assignment in placement.assignments if assignment.pod.uid in uids
        ]
        if nodes:
            log.info(
                text,
                extra={
                    "unit": name_of(unit),
                    "plan": placement.plan_id,
                    "pods": len(nodes),
                    "nodes": named(sorted(set(nodes))),
                },
            )


def _gangs_of(unit: Unit) -> set[GangKey]:
    return {demand.gang for demand in unit.demands if demand.gang}
