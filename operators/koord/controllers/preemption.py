"""Preempts running units for waiting ones of higher priority: part of the operator ``placement``.

A preemption is nominated first: all pods of the preemptor record the plan and their nodes, and the
planner keeps that room from everybody else of the same or a lower priority. Then all victims are
marked, the plan is checked again, and the victims are deleted: first those that may not go, and the
others once these are gone. The preemptor is bound by ordinary placement afterwards. Whatever ends a
preemption before clears the nomination, and spares the victims that can go on. A victim that does
not go ends it, too: room is kept until a deadline, and another plan is made without that pod. One
that cannot be marked does so at once.

Level-triggered: after a crash the next leader reads nominations and marks from the pods. It goes on
if the preemptor fits without the marked pods, and cancels otherwise.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from koord.controllers.preemption_run import (
    WHY,
    WITHOUT_PAUSE,
    DeletionReport,
    Outcome,
    PodNominator,
    PreemptionPhase,
    PreemptionReporter,
    PreemptionRules,
    PreemptionRun,
    VictimEvictor,
    find_hanging_namespaces,
    find_next,
)
from koord.controllers.preemption_search import SEARCHES_PER_LOOK, PreemptionSearch
from koord.controllers.unit_eviction import UnitEvictions, write_each
from koord.core.engine.holds import Holds
from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption, write_victim_text
from koord.core.eviction.progress import (
    WaitingForPreemption,
    add_joined,
    breaks_gangs,
    can_go_on,
    find_deadline,
    find_leaving,
    find_left,
    find_nominations,
    grant_time,
    name_of,
    nominate,
    record,
    write_victims,
)
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod, PreemptedBy
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named
from koord.isolation import Isolation

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.5
RECHECK_SECONDS: Final = 1.0
"""How often at most a plan is checked again while its victims terminate."""
RETRY_SECONDS: Final = 2.0
"""When deletions without a known outcome are repeated."""
MARK_ROUNDS: Final = 3
"""How often at most members are marked that join a gang while it is being marked."""
KNOWN_SECONDS: Final = 5.0
"""A unit that is nominated when the operators start is known to the queue after this long."""


@dataclass(slots=True)
class PreemptionController:
    """Carries out preemptions while :meth:`run` runs; ``note`` requests reports on pods."""

    state: ClusterState
    queue: Queue
    holds: Holds
    evictor: VictimEvictor
    nominator: PodNominator
    reporter: PreemptionReporter
    note: Callable[[Iterable[Pod]], None]
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    settings: PreemptionRules = field(default_factory=PreemptionRules)
    counts: Counter[Outcome] = field(default_factory=Counter)
    """Ended preemptions, by outcome."""
    evictions: UnitEvictions = field(init=False)
    search: PreemptionSearch = field(init=False)
    _isolated: Isolation = field(default_factory=lambda: Isolation("preemption"))
    _runs: dict[UnitKey, PreemptionRun] = field(default_factory=dict)
    _recovered_at: float | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        evict = self.evictor.evict if self.settings.uses_eviction_api else self.evictor.delete
        self.evictions = UnitEvictions(self.state, evict)
        self.search = PreemptionSearch(
            self.state,
            self.queue,
            self.holds,
            self.evictor.list_budgets,
            self.clock,
            self.wall_clock,
            self.settings.options,
            self.settings.patience,
        )

    def wake(self) -> None:
        self._wake.set()

    def wake_if_busy(self) -> None:
        """Note that the cluster has changed, which may end a preemption."""
        if self._runs:
            self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                self._wake.clear()
                if self.is_synced():
                    await self.look()
                try:
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._tasks:
                task.cancel()

    async def look(self) -> None:
        """Advance what was begun, then try units that were refused since."""
        if self._recovered_at is None:
            return  # placement has not begun
        self.evictions.forget_confirmed()
        for run in tuple(self._runs.values()):
            if run.phase is PreemptionPhase.WAITING:
                self._isolated.call(run.nomination.unit, self._advance, run)
        self._isolated.call("orphans", self._spare_orphans)
        if self.settings.is_on:
            with self._isolated.of("search"):
                await self._try_blocked()

    def reason_for(self, unit: UnitKey) -> Reason | None:
        """Return how far the preemption for a unit is; None if there is none."""
        run = self._runs.get(unit)
        if run is None:
            return self.search.why_not(unit)
        left = self._find_left(run)
        if not left:
            return None
        count, plan_id = len(run.nomination.victims), run.nomination.plan_id
        deadline = 0.0 if run.has_deleted else self._find_deadline(run)
        until = format_time(deadline) if deadline else ""
        return WaitingForPreemption(run.victims, count, len(left), plan_id, until)

    # --- beginning -------------------------------------------------------------------------------

    async def _try_blocked(self) -> None:
        due = self.search.take_due(self._runs)
        if not due:
            return
        await self.search.read_budgets()
        for blocked in due[:SEARCHES_PER_LOOK]:
            if self.search.is_worth_it(blocked):
                self._isolated.call(blocked.unit.key, self._try, blocked.unit)
                await asyncio.sleep(0)
        if len(due) > SEARCHES_PER_LOOK:
            self.wake()

    def _try(self, unit: Unit) -> bool:
        """Begin a preemption for a unit if there is a plan; return whether there is."""
        before = self.search.why_not(unit.key)
        preemption = self.search.find(unit, self.evictions.evicted)
        if preemption is None:
            if self.search.why_not(unit.key) != before:
                self.note(unit.pods)
            return False
        nomination = nominate(preemption, self.wall_clock())
        run = PreemptionRun(
            nomination, PreemptionPhase.WRITING, self.clock(), write_victims(preemption.victims)
        )
        self.state.nominations.begin(nomination)
        self._runs[unit.key] = run
        self._spawn(self._go_on(run, self._carry_out(run, unit, preemption)))
        self.note(unit.pods)
        return True

    async def _carry_out(self, run: PreemptionRun, unit: Unit, preemption: Preemption) -> None:
        """Nominate, mark, check again, and delete."""
        plan_id = run.nomination.plan_id
        compat = self.state.gangs.compat
        by = PreemptedBy(plan_id, name_of(unit), unit.pods[0].title)
        text = write_victim_text(by, unit.priority, self.settings.scheduler, compat=compat)
        count = len(run.nomination.victims)
        log.info("Preempting", extra={"unit": by.preemptor, "plan": plan_id, "pods": count})
        outcome = self._judge(run) if await self._nominate(run) else Outcome.FAILED
        if outcome is not None:
            await self._cancel(run, outcome)
            return
        marked = await self._mark(run, preemption, by, text)
        if marked is None:
            await self._cancel(run, Outcome.UNMARKED)
            return
        outcome = self._judge(run)
        if outcome is not None:
            await self._cancel(run, outcome)
            return
        run.announce = DeletionReport(run, self.reporter, unit, marked, text).write
        self._announce_soft_eviction(run, text)
        if self._find_deadline(run) or await self._delete(run):
            run.phase = PreemptionPhase.WAITING
        self.wake()

    async def _mark(
        self, run: PreemptionRun, preemption: Preemption, by: PreemptedBy, text: str
    ) -> Preemption | None:
        """Mark all victims, with those that join their gangs meanwhile; None if a write fails.

        That is judged once: what becomes of the gangs afterwards spares nobody who is marked.
        """
        marked: set[str] = set()
        for _ in range(MARK_ROUNDS):
            pods = [pod for pod in preemption.pods if pod.uid not in marked]
            unmarked = await self.evictions.mark_each(
                pods,
                lambda pod: self.evictor.mark_preempted(pod, by, text, seconds=self._grant(pod)),
            )
            if unmarked:
                self.search.exempt_for_now(map(self._unit_of, unmarked))
                return None
            marked.update(pod.uid for pod in pods)
            preemption = add_joined(self.state, preemption)
            if len(preemption.pods) == len(marked):
                break
            run.nomination = replace(run.nomination, victims=preemption.pods)
            self.state.nominations.begin(run.nomination)
        return preemption

    async def _nominate(self, run: PreemptionRun) -> bool:
        nodes = {assignment.pod.uid: assignment.node for assignment in run.nomination.assignments}

        async def write(pod: Pod) -> bool:
            return await self.nominator.nominate(pod, record(run.nomination, nodes[pod.uid]))

        return all(await write_each(write, run.nomination.pods))

    async def _delete(self, run: PreemptionRun) -> bool:
        """Delete the victims whose turn it is; False if the preemption is cancelled."""
        run.deleted = self.clock()
        pods = self._find_next(run)
        refused = await self.evictions.evict_each(pods)
        run.deleted = self.clock()
        run.has_deleted = True
        if not refused:
            run.announce(pods)
            return True
        self.search.exempt(self._unit_of(pod) for pod in refused)
        await self._cancel(run, Outcome.FAILED)
        return False

    def _grant(self, pod: Pod) -> float:
        """Return how many seconds a victim gets to end by itself."""
        return grant_time(pod, self.settings.soft_eviction_limit)

    def _find_deadline(self, run: PreemptionRun) -> float:
        """Return until when the victims may end by themselves; 0 if they are to be deleted."""
        now = self.wall_clock()
        left = self._find_undeleted(run)
        deadline = find_deadline(left, self.settings.soft_eviction_limit, now)
        return deadline if deadline > now else 0.0

    def _announce_soft_eviction(self, run: PreemptionRun, text: str) -> None:
        victims = run.nomination.victims
        for seconds in sorted({self._grant(pod) for pod in victims} - {0}):
            pods = [pod for pod in victims if self._grant(pod) == seconds]
            self.reporter.announce_soft_eviction(
                pods, f"{text}. It has {int(seconds)} s to save its work and end by itself."
            )

    # --- while victims terminate -----------------------------------------------------------------

    def _advance(self, run: PreemptionRun) -> None:
        now = self.clock()
        waiting = self._find_waiting(run)
        if waiting and now < run.rechecked + RECHECK_SECONDS:
            return
        is_new = run.is_recovered and now < run.began + KNOWN_SECONDS
        if is_new and waiting and self.queue.find(run.nomination.unit) is None:
            return
        run.is_recovered = False
        run.rechecked = now
        outcome = self._judge(run)
        if outcome is Outcome.NOT_NEEDED and run.has_deleted and not self._find_undeleted(run):
            outcome = None  # it is about to be placed
        if outcome is not None:
            self._begin_cancel(run, outcome)
            return
        if self._end_if_hanging(run):
            return
        is_due = now >= run.deleted + RETRY_SECONDS and not self._find_deadline(run)
        if is_due and self._find_next(run):
            run.phase = PreemptionPhase.WRITING
            self._spawn(self._go_on(run, self._delete_again(run)))
            return
        self.note(waiting)

    async def _delete_again(self, run: PreemptionRun) -> None:
        if await self._delete(run):
            run.phase = PreemptionPhase.WAITING

    def _end_if_hanging(self, run: PreemptionRun) -> bool:
        """End a preemption of which a victim does not go; another plan takes its place."""
        now, patience = self.wall_clock(), self.settings.patience
        hanging = [p for p in self._find_left(run) if p.gone_by and patience.hangs(p, now)]
        if not hanging:
            return False
        names = named(sorted(pod.key for pod in hanging))
        log.warning("Preempted pods do not go", extra={"pods": names})
        if not self._find_undeleted(run):
            # Nobody is to be spared, so that the room of those that have gone is not given away.
            self._free(run)
            unit = self.queue.find(run.nomination.unit)
            if unit is not None and self._try(unit):
                self.counts[Outcome.STUCK] += 1
                return True
        self._begin_cancel(run, Outcome.STUCK)
        return True

    def _judge(self, run: PreemptionRun) -> Outcome | None:
        """Return why a preemption ends; None if it goes on."""
        nominees = [self.state.pods.get(pod.uid) for pod in run.nomination.pods]
        alive = [pod for pod in nominees if pod is not None and pod.is_alive]
        waiting = [pod for pod in alive if not pod.node]
        if not waiting:
            return Outcome.BOUND if alive else Outcome.PREEMPTOR_GONE
        key = run.nomination.unit
        if self._is_committing(waiting):
            return None
        if len(waiting) < len(alive) and not self._find_left(run):
            return Outcome.BOUND
        unit = self.queue.find(key)
        if unit is None:
            return Outcome.PREEMPTOR_GONE
        if not {pod.uid for pod in waiting} <= {pod.uid for pod in unit.pods}:
            return Outcome.PREEMPTOR_GONE
        return self._judge_fit(unit, run)

    def _judge_fit(self, unit: Unit, run: PreemptionRun) -> Outcome | None:
        if self.wall_clock() > run.nomination.since + self.settings.patience.longest:
            return Outcome.EXPIRED
        left = self._find_left(run)
        try:
            if left and self.search.fits(unit):
                return Outcome.NOT_NEEDED
            if run.may_be_partial and breaks_gangs(self.state.gangs, self._find_undeleted(run)):
                return Outcome.INVALID
            leaving = find_leaving(self.state, self.settings.patience, self.wall_clock())
            gone = {pod.uid: pod for pod in (*left, *leaving)}
            return None if self.search.fits(unit, tuple(gone.values())) else Outcome.INVALID
        except Exception:
            log.exception("Cannot plan a nominated unit", extra={"unit": unit.key})
            return Outcome.INVALID

    def _is_committing(self, pods: Iterable[Pod]) -> bool:
        return any(pod.gang and self.queue.is_committing(pod.gang.key) for pod in pods)

    def _find_waiting(self, run: PreemptionRun) -> list[Pod]:
        pods = (self.state.pods.get(pod.uid) for pod in run.nomination.pods)
        return [pod for pod in pods if pod is not None and pod.is_waiting]

    def _find_left(self, run: PreemptionRun) -> list[Pod]:
        return find_left(self.state, run.nomination)

    def _find_undeleted(self, run: PreemptionRun) -> list[Pod]:
        done = self.evictions.evicted
        return [pod for pod in self._find_left(run) if not pod.gone_by and pod.uid not in done]

    def _find_next(self, run: PreemptionRun) -> list[Pod]:
        patience = self.settings.patience
        suspect = find_hanging_namespaces(self.state, patience, self.wall_clock())
        return find_next(
            self._find_left(run),
            self._find_undeleted(run),
            self._unit_of,
            lambda pod: 2 * patience.is_doubtful(self._now(pod)) + (pod.namespace in suspect),
        )

    def _now(self, pod: Pod) -> Pod:
        """Return a pod as it is now: its owner may have changed it since it was marked."""
        return self.state.pods.get(pod.uid, pod)

    def _unit_of(self, pod: Pod) -> str:
        return pod.uid if pod.gang is None else self.state.gangs.group(pod.gang.key).id

    # --- ending ----------------------------------------------------------------------------------

    def _begin_cancel(self, run: PreemptionRun, outcome: Outcome) -> None:
        if outcome is Outcome.BOUND:
            self._end(run, outcome)
            return
        run.phase = PreemptionPhase.WRITING
        self._spawn(self._go_on(run, self._cancel(run, outcome)))

    def _end(self, run: PreemptionRun, outcome: Outcome) -> None:
        key = run.nomination.unit
        if self._runs.get(key) is run:
            del self._runs[key]
        self._free(run)
        self.counts[outcome] += 1
        self.search.note_end(key, is_done=outcome in WITHOUT_PAUSE)
        self.wake()

    def _free(self, run: PreemptionRun) -> None:
        """Keep the room of a nomination no longer."""
        key = run.nomination.unit
        if self.state.nominations.find(key) is run.nomination:
            self.state.note_freed(self.state.nominations.end(key))

    async def _cancel(self, run: PreemptionRun, outcome: Outcome) -> None:
        """End a preemption that was not carried out, and spare the victims that can go on."""
        if outcome is Outcome.BOUND:
            self._end(run, outcome)
            return
        text = f"preemption cancelled: {WHY[outcome]} (plan {run.nomination.plan_id})"
        log.info(text, extra={"unit": run.nomination.unit})
        await self._spare(self._find_undeleted(run), text)
        waiting = self._find_waiting(run)
        await write_each(self.nominator.clear, waiting)
        self._end(run, outcome)
        self.reporter.announce_cancelled(waiting, text)
        self.note(waiting)

    async def _spare(self, victims: Iterable[Pod], text: str) -> None:
        """Unmark the victims of units that can go on, and delete the others, which cannot."""
        units: dict[str, list[Pod]] = {}
        for pod in victims:
            units.setdefault(self._unit_of(pod), []).append(pod)
        for pods in units.values():
            if can_go_on(self.state.gangs, pods):
                await write_each(lambda pod: self.evictor.unmark_preempted(pod, text), pods)
            else:
                await self.evictions.evict_each(pods)

    # --- after a crash ---------------------------------------------------------------------------

    def recover(self) -> None:
        """Take over what pods record, before anything is planned."""
        self._recovered_at = self.clock()
        for nomination in find_nominations(self.state, self.wall_clock()):
            names = named(sorted(pod.key for pod in nomination.victims))
            self.state.nominations.begin(nomination)
            self._runs[nomination.unit] = PreemptionRun(
                nomination,
                PreemptionPhase.WAITING,
                self.clock(),
                names,
                is_recovered=True,
                may_be_partial=True,
            )

    def _spare_orphans(self) -> None:
        """Spare marked pods that no preemption here wants."""
        ours = {pod.uid for run in self._runs.values() for pod in run.nomination.victims}
        left = self.state.preempted - ours - self.evictions.evicted
        pods = [self.state.pods[uid] for uid in sorted(left)]
        orphans = [pod for pod in pods if not pod.gone_by and not pod.phase.is_terminal]
        if orphans and not self._tasks:
            self._spawn(self._spare(orphans, "preemption cancelled: its preemptor is gone"))

    async def _go_on(self, run: PreemptionRun, work: Coroutine[object, object, None]) -> None:
        """Write for a preemption; a failure ends it, so that it keeps no room for ever.

        Victims that are marked by then are spared as those that no preemption wants.
        """
        with self._isolated.of(run.nomination.unit):
            await work
            return
        self._end(run, Outcome.FAILED)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A preemption failed unexpectedly", exc_info=error)
