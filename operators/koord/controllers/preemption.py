"""The policy of preemption: running units go for waiting ones of higher priority.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from typing_extensions import override

from koord.controllers.eviction import EvictionController, EvictionPolicy, EvictionRun, write_each
from koord.controllers.status_publishing import PreemptionAnnouncer
from koord.core.engine.holds import Holds
from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import (
    EvictionPlan,
    Outcome,
    Preemption,
    write_victim_text,
)
from koord.core.eviction.preemption import (
    SEARCHES_PER_LOOK,
    PreemptionSearch,
    WaitingForPreemption,
    add_joined,
    breaks_gangs,
    can_go_on,
    find_hanging_namespaces,
    find_leaving,
    find_next,
    find_nominations,
    name_of,
    nominate,
    record,
    write_considered,
    write_victims,
)
from koord.core.eviction.search import DEFAULT_OPTIONS, PreemptionOptions
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod, PreemptedBy
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named, plural
from koord.core.plugins.nominations import Nomination
from koord.isolation import Isolation
from koord.kube.evictor import Evictor
from koord.kube.nominator import Nominator

log = logging.getLogger(__name__)

SPARED_SECONDS: Final = 5.0
"""It is observed within this time that a pod was unmarked, or never."""
TICK_SECONDS: Final = 0.5
RECHECK_SECONDS: Final = 1.0
"""How often at most a plan is checked again while its victims terminate."""
KNOWN_SECONDS: Final = 5.0
"""A unit that is nominated when the operators start is known to the queue after this long."""
BUDGET_SECONDS: Final = 2.0
"""How old PodDisruptionBudgets may be."""
PREEMPTION: Final = "preemption"

WHY: Final[Mapping[Outcome, str]] = {
    Outcome.NOT_NEEDED: "the preemptor fits without it",
    Outcome.PREEMPTOR_GONE: "the preemptor was deleted or changed",
    Outcome.INVALID: "the preemptor would not fit any more",
    Outcome.FAILED: "the API server refused a write",
    Outcome.STUCK: "victims do not terminate",
    Outcome.UNMARKED: "a victim cannot be marked, so another plan is made",
    Outcome.EXPIRED: "the preemptor was not bound in the time that room is kept for it",
}
WITHOUT_PAUSE: Final = frozenset(
    {Outcome.BOUND, Outcome.NOT_NEEDED, Outcome.STUCK, Outcome.UNMARKED}
)
"""Outcomes after which a unit may be tried at once: the next plan is another one."""
PREEMPTION_OUTCOMES: Final = (Outcome.BOUND, *WHY)


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """With ``uses_eviction_api`` victims are evicted, so that budgets are binding."""

    is_on: bool = True
    options: PreemptionOptions = DEFAULT_OPTIONS
    uses_eviction_api: bool = False
    scheduler: str = "koord-scheduler"


@dataclass(slots=True, eq=False)
class PreemptionRun(EvictionRun):
    """One preemption that is being carried out; ``victims`` are their names, for users.

    ``unit`` and ``preemption`` are unknown if a process before has begun it. That may have marked a
    part of a gang only.
    """

    nomination: Nomination = field(kw_only=True)
    victims: str = ""
    unit: Unit | None = None
    preemption: Preemption | None = None
    by: PreemptedBy = field(default_factory=lambda: PreemptedBy("", "", ""))
    text: str = ""
    """What marks the victims."""
    is_new: bool = False
    """Its unit may not be known to the queue yet."""
    reported: set[str] = field(default_factory=set)
    """uids of victims whose deletion is reported."""
    rechecked: float = float("-inf")


@dataclass(slots=True)
class Preemptions(EvictionPolicy[PreemptionRun]):
    """``note`` requests reports on pods."""

    name: ClassVar = PREEMPTION
    controller: EvictionController
    queue: Queue
    holds: Holds
    evictor: Evictor
    nominator: Nominator
    reporter: PreemptionAnnouncer
    note: Callable[[Iterable[Pod]], None]
    rules: PreemptionRules = field(default_factory=PreemptionRules)
    search: PreemptionSearch = field(init=False)
    state: ClusterState = field(init=False)
    isolated: Isolation = field(default_factory=lambda: Isolation("preemption"))
    _recovered_at: float | None = None
    _budgets_at: float = float("-inf")
    _spared: dict[str, float] = field(default_factory=dict)
    """uids of unmarked pods until the watch confirms it -> how long that is waited for."""

    def __post_init__(self) -> None:
        self.interval = TICK_SECONDS
        self.state = self.controller.state
        self.search = PreemptionSearch(
            self.state,
            self.queue,
            self.holds,
            self.controller.clock,
            self.rules.options,
            self.controller.patience,
        )

    def wake(self) -> None:
        self.controller.wake(self.name)

    def wake_if_busy(self) -> None:
        """Note that the cluster has changed, which may end a preemption."""
        if self.controller.runs_of(self) or self._spared:
            self.wake()

    @property
    @override
    def is_ready(self) -> bool:
        return self._recovered_at is not None  # placement has begun

    def reason_for(self, unit: UnitKey) -> Reason | None:
        """Return how far the preemption for a unit is; None if there is none."""
        run = self.controller.find(self, unit)
        if run is None:
            return self.search.why_not(unit)
        left = self.controller.find_left(run)
        if not left:
            return None
        count, plan_id = len(run.plan.pods), run.nomination.plan_id
        deadline = 0.0 if run.has_evicted else self.controller.find_deadline(self, run)
        until = format_time(deadline) if deadline else ""
        return WaitingForPreemption(run.victims, count, len(left), plan_id, until)

    # --- deciding --------------------------------------------------------------------------------

    @override
    async def look(self) -> None:
        """Try units that were refused since."""
        if not self.rules.is_on or self._awaits_spared():
            return
        with self.isolated.of("search"):
            await self._try_blocked()

    async def _try_blocked(self) -> None:
        due = self.search.take_due({run.plan.key for run in self.controller.runs_of(self)})
        if not due:
            return
        await self._read_budgets()
        for blocked in due[:SEARCHES_PER_LOOK]:
            if self.search.is_worth_it(blocked):
                self.isolated.call(blocked.unit.key, self._try, blocked.unit)
                await asyncio.sleep(0)
        if len(due) > SEARCHES_PER_LOOK:
            self.wake()

    async def _read_budgets(self) -> None:
        if self.controller.clock() < self._budgets_at + BUDGET_SECONDS:
            return
        try:
            self.search.budgets = await self.evictor.list_budgets()
        except Exception:
            log.exception("Cannot read PodDisruptionBudgets; the last known ones count")
        self._budgets_at = self.controller.clock()

    def _try(self, unit: Unit) -> bool:
        """Begin a preemption for a unit if there is a plan; return whether there is."""
        before = self.search.why_not(unit.key)
        preemption = self.search.find(unit, self.controller.evicted)
        if preemption is None:
            if self.search.why_not(unit.key) != before:
                self.note(unit.pods)
            return False
        now = self.controller.clock()
        plan = EvictionPlan(self.name, unit.key, preemption.pods, beneficiary=unit.key)
        if self.controller.admit(plan, now) > now:
            return False
        nomination = nominate(preemption, now)
        by = PreemptedBy(nomination.plan_id, name_of(unit), unit.pods[0].title)
        compat = self.state.gangs.compat
        run = PreemptionRun(
            plan,
            now,
            nomination=nomination,
            victims=write_victims(preemption.victims),
            unit=unit,
            preemption=preemption,
            by=by,
            text=write_victim_text(by, unit.priority, self.rules.scheduler, compat=compat),
        )
        self.state.nominations.begin(nomination)
        self.controller.begin(self, run)
        self.note(unit.pods)
        return True

    # --- carrying out ----------------------------------------------------------------------------

    @override
    async def prepare(self, run: PreemptionRun) -> Outcome | None:
        """Nominate the unit."""
        extra = {"unit": run.by.preemptor, "plan": run.by.plan_id, "pods": len(run.plan.pods)}
        log.info("Preempting", extra=extra)
        nodes = {assignment.pod.uid: assignment.node for assignment in run.nomination.assignments}

        async def write(pod: Pod) -> bool:
            return await self.nominator.nominate(pod, record(run.nomination, nodes[pod.uid]))

        is_written = all(await write_each(write, run.nomination.pods))
        return self.judge(run) if is_written else Outcome.FAILED

    @override
    async def mark(self, run: PreemptionRun, pod: Pod, seconds: float) -> bool:
        return await self.evictor.mark_preempted(pod, run.by, run.text, seconds=seconds)

    @override
    def add_joined(self, run: PreemptionRun) -> None:
        if run.preemption is None:
            return
        run.preemption = add_joined(self.state, run.preemption)
        if len(run.preemption.pods) > len(run.plan.pods):
            run.plan = replace(run.plan, pods=run.preemption.pods)
            run.nomination = replace(run.nomination, victims=run.plan.pods)
            self.state.nominations.begin(run.nomination)

    @override
    def choose_next(self, run: PreemptionRun, left: Sequence[Pod]) -> Sequence[Pod]:
        """Return the victims that may stay long, until they are gone, and then the others."""
        patience = self.controller.patience
        suspect = find_hanging_namespaces(self.state, patience, self.controller.clock())

        def doubt(pod: Pod) -> int:
            # As it is now: its owner may have changed it since it was marked.
            now = self.state.pods.get(pod.uid, pod)
            return 2 * patience.is_doubtful(now) + (pod.namespace in suspect)

        return find_next(self.controller.find_left(run), left, self.controller.unit_of, doubt)

    @override
    async def evict(self, run: PreemptionRun, pods: Sequence[Pod]) -> list[Pod]:
        return await self._evict(pods)

    async def _evict(self, pods: Iterable[Pod]) -> list[Pod]:
        evict = self.evictor.evict if self.rules.uses_eviction_api else self.evictor.delete
        return await self.controller.evict_each(self.name, pods, evict)

    @override
    async def cancel(self, run: PreemptionRun, outcome: Outcome) -> None:
        """Spare the victims that can go on, and take the nomination back."""
        text = f"preemption cancelled: {WHY[outcome]} (plan {run.nomination.plan_id})"
        log.info(text, extra={"unit": run.plan.key})
        for pods in self.controller.by_unit(self.controller.find_unevicted(run)).values():
            await self._spare(pods, text)
        waiting = self._find_waiting(run)
        await write_each(self.nominator.clear, waiting)
        self.reporter.announce_cancelled(waiting, text)

    async def _spare(self, pods: Sequence[Pod], text: str) -> None:
        """Unmark the victims of a unit that can go on, and delete those of another."""
        if can_go_on(self.state.gangs, pods):
            await write_each(lambda pod: self.evictor.unmark_preempted(pod, text), pods)
            until = self.controller.clock() + SPARED_SECONDS
            self._spared |= dict.fromkeys((pod.uid for pod in pods), until)
        else:
            await self._evict(pods)

    def _awaits_spared(self) -> bool:
        """Whether pods that were unmarked still look as if they were about to go.

        Another plan would count on their room, and others would be evicted in vain.
        """
        now, current = self.controller.clock(), self.state.pods
        self._spared = {
            uid: until
            for uid, until in self._spared.items()
            if now < until and (pod := current.get(uid)) and pod.preempted_by
        }
        return bool(self._spared)

    # --- judging ---------------------------------------------------------------------------------

    @override
    def is_due(self, run: PreemptionRun) -> bool:
        now, waiting = self.controller.clock(), self._find_waiting(run)
        if waiting and now < run.rechecked + RECHECK_SECONDS:
            return False
        is_new = run.is_new and now < run.began + KNOWN_SECONDS
        if is_new and waiting and self.queue.find(run.plan.key) is None:
            return False
        run.is_new, run.rechecked = False, now
        return True

    @override
    def judge(self, run: PreemptionRun) -> Outcome | None:
        """Return why a preemption ends; None if it goes on."""
        nominees = [self.state.pods.get(pod.uid) for pod in run.nomination.pods]
        alive = [pod for pod in nominees if pod is not None and pod.is_alive]
        waiting = [pod for pod in alive if not pod.node]
        if not waiting:
            return Outcome.BOUND if alive else Outcome.PREEMPTOR_GONE
        if self._is_committing(waiting):
            return None
        if len(waiting) < len(alive) and not self.controller.find_left(run):
            return Outcome.BOUND
        unit = self.queue.find(run.plan.key)
        if unit is None or not {pod.uid for pod in waiting} <= {pod.uid for pod in unit.pods}:
            return Outcome.PREEMPTOR_GONE
        outcome = self._judge_fit(unit, run)
        if outcome is not Outcome.NOT_NEEDED or not run.has_evicted:
            return outcome
        # With all victims deleted it is about to be placed.
        return outcome if self.controller.find_unevicted(run) else None

    def _judge_fit(self, unit: Unit, run: PreemptionRun) -> Outcome | None:
        patience, now = self.controller.patience, self.controller.clock()
        if now > run.nomination.since + patience.longest:
            return Outcome.EXPIRED
        left = self.controller.find_left(run)
        try:
            if left and self.search.fits(unit):
                return Outcome.NOT_NEEDED
            unevicted = self.controller.find_unevicted(run)
            if run.preemption is None and breaks_gangs(self.state.gangs, unevicted):
                return Outcome.INVALID
            leaving = find_leaving(self.state, patience, now)
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

    @override
    def take_over(self, run: PreemptionRun, hanging: Sequence[Pod]) -> bool:
        """Make another plan, if nobody is to be spared: the room is not given away meanwhile."""
        if self.controller.find_unevicted(run):
            return False
        self._free(run)
        unit = self.queue.find(run.plan.key)
        return unit is not None and self._try(unit)

    # --- reports ---------------------------------------------------------------------------------

    @override
    def note_unmarked(self, run: PreemptionRun, pods: Sequence[Pod]) -> None:
        self.search.exempt_for_now(map(self.controller.unit_of, pods))

    @override
    def note_refused(self, run: PreemptionRun, pods: Sequence[Pod]) -> None:
        self.search.exempt(map(self.controller.unit_of, pods))

    @override
    def note_marked(self, run: PreemptionRun) -> None:
        grant = self.controller.grant
        for seconds in sorted({grant(pod) for pod in run.plan.pods} - {0}):
            pods = [pod for pod in run.plan.pods if grant(pod) == seconds]
            self.reporter.announce_soft_eviction(
                pods, f"{run.text}. It has {int(seconds)} s to save its work and end by itself."
            )

    @override
    def note_evicted(self, run: PreemptionRun, pods: Sequence[Pod]) -> bool:
        """Report deletions once: victims that may not go are deleted before others."""
        if run.preemption is not None and run.unit is not None:
            self._report(run, run.preemption, run.unit, {pod.uid for pod in pods} - run.reported)
        self.wake()
        return True

    def _report(
        self, run: PreemptionRun, preemption: Preemption, unit: Unit, new: set[str]
    ) -> None:
        considered, plan_id = write_considered(preemption), run.nomination.plan_id
        if not run.reported:
            nodes = sorted({assignment.node for assignment in run.nomination.assignments})
            self.reporter.announce_preempting(
                unit.pods,
                f"preempting {run.victims} ({plural(len(preemption.pods), 'pod')}) to free "
                f"{named(nodes)} (plan {plan_id}).{considered}",
            )
        run.reported |= new
        by = name_of(unit)
        for victim in preemption.victims:
            pods = [pod for pod in victim.pods if pod.uid in new]
            if pods:
                values = {"unit": victim.name, "pods": len(pods), "by": by, "plan": plan_id}
                log.info("Preempted", extra=values)
                self.reporter.announce_preempted(pods, f"{run.text}.{considered}", by=by)

    @override
    def note_waiting(self, run: PreemptionRun) -> None:
        self.note(self._find_waiting(run))

    @override
    def note_end(self, run: PreemptionRun, outcome: Outcome) -> None:
        self._free(run)
        self.wake()
        self.search.note_end(run.plan.key, is_done=outcome in WITHOUT_PAUSE)
        if outcome is not Outcome.BOUND:
            self.note(self._find_waiting(run))

    def _free(self, run: PreemptionRun) -> None:
        """Keep the room of a nomination no longer."""
        key = run.plan.key
        if self.state.nominations.find(key) is run.nomination:
            self.state.note_freed(self.state.nominations.end(key))

    # --- after a crash ---------------------------------------------------------------------------

    def recover(self) -> None:
        """Take over what pods record, before anything is planned."""
        now = self._recovered_at = self.controller.clock()
        for nomination in find_nominations(self.state, now):
            names = named(sorted(pod.key for pod in nomination.victims))
            self.state.nominations.begin(nomination)
            key, victims = nomination.unit, nomination.victims
            plan = EvictionPlan(self.name, key, victims, beneficiary=key)
            run = PreemptionRun(plan, now, nomination=nomination, victims=names, is_new=True)
            self.controller.resume(self, run)

    @override
    def find_marked(self) -> Iterable[str]:
        # While plans are being written, pods may be marked that are about to join one.
        return () if self.controller.is_writing(self) else self.state.preempted

    @override
    async def finish_marked(self, unit: str, pods: Sequence[Pod]) -> None:
        """Spare marked pods that no preemption here wants."""
        left = [pod for pod in pods if not pod.gone_by and not pod.phase.is_terminal]
        if left:
            await self._spare(left, "preemption cancelled: its preemptor is gone")
