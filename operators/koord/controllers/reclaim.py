"""The policy of reclaim: evicts units of quotas that use more than they are entitled to.

A quota that has been over its entitlement for longer than the grace period loses the units that
others are entitled to, the quota furthest over first. Pods are evicted through ``pods/eviction``;
for units that a PodDisruptionBudget protects others are chosen; where there are none, they go after
a while (``budget_grace``). A gang is evicted as a whole. All
its pods are marked first: a marked pod counts as terminating, so that no replacement joins the
gang, and after a crash the next leader completes the eviction.

If any pod wants time to end by itself, all units that go for the same unit wait for the last
deadline among them. They stay if the unit that benefits waits no longer, or, without one, if the
quota is not over any more. After a crash only the marks of pods and what they wish for are known,
and each unit waits for its own deadline.

A budget is written by the owner of the pods. So it delays what others are entitled to, and does not
prevent it: a unit that has been protected for the grace period, and in whose stead no other may go,
goes whatever its budgets say. Since when it is protected is a condition of its pods, so a restart
changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from typing_extensions import override

from koord.controllers.eviction import Evict, EvictionController, EvictionPolicy, EvictionRun
from koord.controllers.status_publishing import ReclaimAnnouncer
from koord.core.engine.refused_units import Blocked
from koord.core.engine.state import ClusterState
from koord.core.eviction.limits import EvictionLimit, LimitScope, Pauses
from koord.core.eviction.model import EvictionPlan, Exempt, Moment, Outcome
from koord.core.eviction.preemption import find_deadline
from koord.core.eviction.reclaim import Reclaim, can_keep_running, plan_reclaim, write_plan
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import format_time, named
from koord.core.quota.model import QuotaName
from koord.core.quota.reclaim import Overuse, OveruseTimer, find_overuse, write_overuse
from koord.isolation import Isolation
from koord.kube.evictor import Eviction, Evictor

log = logging.getLogger(__name__)

UNMARKED_SECONDS: Final = 60.0
"""How long others are chosen in place of a unit that could not be marked."""
MAX_ATTEMPTS: Final = 16
"""How often units are chosen per quota and round, also in place of protected ones."""


WANTED_SECONDS: Final = 5.0
"""A unit that is being planned or committed does not wait for as long."""
CANCELLED: Final = "not evicted: nobody needs its room any more"
RECLAIM: Final = "reclaim"


@dataclass(frozen=True, slots=True)
class ReclaimOptions:
    """``is_on`` enables reclaiming. ``delay`` is the grace period; both times are in seconds.

    With ``is_dry`` plans are announced, and nobody is evicted. A quota that has lost
    ``most_per_minute`` pods within a minute loses no further unit for now; 0 is no limit.
    ``min_runtime`` is as in ``Moment``.
    """

    is_on: bool = False
    delay: float = 120.0
    interval: float = 1.0
    is_dry: bool = False
    most_per_minute: int = 0
    min_runtime: float = 0.0
    budget_grace: float = 600.0
    """How long PodDisruptionBudgets protect pods that others need."""

    @property
    def limits(self) -> tuple[EvictionLimit, ...]:
        most = self.most_per_minute
        return (EvictionLimit(LimitScope.QUOTA, most, RECLAIM),) if most else ()


@dataclass(slots=True, eq=False)
class ReclaimRun(EvictionRun):
    """One unit that is being evicted."""

    unit: Reclaim = field(kw_only=True)
    by: Evict = field(kw_only=True)
    """Ends one pod."""
    protected: float = 0.0
    """Since when budgets protect it; 0: they do not."""
    refusal: Eviction | None = None


@dataclass(slots=True)
class BudgetGrace:
    """``seconds`` is how long budgets protect; ``tell`` says why a unit is to go."""

    state: ClusterState
    writer: Evictor
    clock: Callable[[], float]
    seconds: float
    tell: Callable[[Reclaim], str]

    def since(self, unit: Reclaim) -> float:
        """Return since when budgets protect a unit; 0: they do not yet."""
        pods = (self.state.pods.get(pod.uid) for pod in unit.pods)
        return min((pod.protected for pod in pods if pod and pod.protected), default=0.0)

    async def note(self, units: Sequence[Reclaim]) -> list[Reclaim]:
        """Write since when units are protected; return those whose time is over."""
        now = self.clock()
        for unit in units:
            await self.restore(unit, self.since(unit) or now, is_missing_only=True)
        return [
            unit for unit in units if (since := self.since(unit)) and now > since + self.seconds
        ]

    async def restore(self, unit: Reclaim, since: float, *, is_missing_only: bool = False) -> None:
        """Write on the pods of a unit that they are protected since then."""
        text = self.write(unit, since)
        pods = [self.state.pods.get(pod.uid, pod) for pod in unit.pods]
        await asyncio.gather(
            *(
                self.writer.protect(pod, text, since)
                for pod in pods
                if pod.handling is not Handling.RESERVE and not (is_missing_only and pod.protected)
            )
        )

    def write(self, unit: Reclaim, since: float) -> str:
        return (
            f"{self.tell(unit).rstrip('.')}. PodDisruptionBudgets protect it until "
            f"{format_time(since + self.seconds)}; then it is evicted whatever they say"
        )

    async def retract(self, is_over: Callable[[QuotaName], bool]) -> None:
        """Take back what was written on pods of quotas from which nothing is wanted any more."""
        marked = (self.state.pods[uid] for uid in sorted(self.state.protected))
        pods = [pod for pod in marked if pod.is_alive]
        gone = [pod for pod in pods if not is_over(self.state.quotas.quota_of(pod))]
        await asyncio.gather(*(self.writer.unmark(pod, CANCELLED) for pod in gone))


@dataclass(slots=True)
class Reclaims(EvictionPolicy[ReclaimRun]):
    """Checks all quotas periodically; ``blocked`` returns pending units and their reasons."""

    name: ClassVar = RECLAIM
    is_serial: ClassVar = True
    controller: EvictionController
    evictor: Evictor
    reporter: ReclaimAnnouncer
    blocked: Callable[[], Iterable[Blocked]]
    options: ReclaimOptions = field(default_factory=ReclaimOptions)
    record: Callable[[ObservedPodGroup, Happened, str, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""
    note: Callable[[Iterable[Pod]], None] = field(default=lambda _: None)
    """Requests reports on waiting pods."""
    state: ClusterState = field(init=False)
    isolated: Isolation = field(default_factory=lambda: Isolation("reclaim"))
    _budgets: BudgetGrace = field(init=False)
    _patience: OveruseTimer = field(init=False)
    _over: dict[QuotaName, float] = field(default_factory=dict)
    """Over-used quotas and how far they are over, as a part of what they are entitled to."""
    _planned: dict[QuotaName, str] = field(default_factory=dict)
    """The last plan that was announced, of quotas that are over."""
    _unmarked: Pauses = field(default_factory=lambda: Pauses(UNMARKED_SECONDS, UNMARKED_SECONDS))
    """Units that could not be marked: others are chosen instead."""
    _wanted: dict[str, float] = field(default_factory=dict)
    """When each purpose of plans that wait was last seen to be of use."""
    _seen: tuple[int, int] = (-1, -1)
    """Version of the quotas at the last check."""

    def __post_init__(self) -> None:
        self.state = self.controller.state
        self.interval = self.options.interval
        self._patience = OveruseTimer(self.options.delay)
        self._budgets = BudgetGrace(
            self.state,
            self.evictor,
            self.controller.clock,
            self.options.budget_grace,
            self._tell,
        )

    # --- deciding --------------------------------------------------------------------------------

    @override
    def observe(self) -> None:
        self.isolated.call("what waits", self._note_waiting)

    @override
    async def look(self) -> None:
        """Reclaim from quotas that are over for too long, the most first."""
        if self.options.is_on and self.state.quotas.is_in_use:
            now = self.controller.clock()
            due = self.isolated.call("what is over", self._find_due) or ()
            await self._budgets.retract(self._over.__contains__)
            for name in due:
                if not self.isolated.rests(name, now):
                    with self.isolated.of(name, now):
                        await self._reclaim(name)

    def _note_waiting(self) -> None:
        """Let quotas use leftovers again once the unit they gave up resources for is placed.

        Plans whose pods may end by themselves go on only while that unit waits.
        """
        without, runs = self.state.quotas.without_leftovers, self.controller.runs_of(self)
        if not without and not runs:
            return
        waiting, now = {blocked_unit.unit.key for blocked_unit in self.blocked()}, self._now()
        for name in [name for name, beneficiary in without.items() if beneficiary not in waiting]:
            del without[name]
        for run in runs:
            unit = run.unit
            by = unit.beneficiary
            if by in waiting if by else unit.over[0].quota in self._over:
                self._wanted[run.plan.purpose] = now

    def _now(self) -> float:
        return self.controller.clock()

    def _find_due(self) -> list[QuotaName]:
        ledger = self.state.open_ledger()
        if self._seen != self.state.quotas.version:
            self._seen = self.state.quotas.version
            self._note_overuse(find_overuse(ledger))
        due = self._patience.note(self._over.keys(), self._now())
        return sorted(due, key=lambda name: -self._over[name])

    def _note_overuse(self, overuses: Iterable[Overuse]) -> None:
        over: dict[QuotaName, float] = {}
        for overuse in overuses:
            over[overuse.quota] = max(
                over.get(overuse.quota, 0.0), overuse.over / max(overuse.entitled, 1)
            )
        specs = self.state.quotas.catalog.registry.specs
        for name in self._over.keys() - over:
            self._planned.pop(name, None)
            if name in specs:
                self.reporter.retract_overuse(specs[name])
        self._over = over

    async def _reclaim(self, name: QuotaName) -> None:
        refused: dict[str, Eviction] = {}
        for _ in range(MAX_ATTEMPTS):
            chosen = self._choose(name, self._exempt(refused))
            if not chosen:
                break
            outcomes = {reclaim.key: await self._check(reclaim) for reclaim in chosen}
            refused |= {key: outcome for key, outcome in outcomes.items() if not outcome.is_done}
            allowed = [reclaim for reclaim in chosen if reclaim.key not in refused]
            if self.options.is_dry and len(allowed) < len(chosen):
                continue
            self._announce_plan(name, allowed)
            if self.options.is_dry:
                return
            if chosen[0].beneficiary:
                self.state.quotas.without_leftovers[name] = chosen[0].beneficiary
            waits = any(self.controller.grant(pod) for unit in allowed for pod in unit.pods)
            for reclaim in reversed(allowed):  # the least important first
                outcome = await self._evict_unit(reclaim, self.evictor.reclaim, waits=waits)
                if outcome is None:
                    return
                if outcome.is_denied:
                    refused[reclaim.key] = outcome
        if not self.options.is_dry:
            await self._keep_protected(name, refused)

    def _exempt(self, refused: Collection[str]) -> Exempt:
        moment = Moment(self.controller.clock(), self.options.min_runtime)
        now = self._now()
        self._unmarked.drop_old(now)
        return Exempt(
            {*refused, *self._unmarked.active(now)},
            self.controller.evicted,
            self.controller.patience,
            moment=moment,
        )

    async def _keep_protected(self, name: QuotaName, refused: Mapping[str, Eviction]) -> None:
        """Go on with units that only budgets protect, and in whose stead no others may go."""
        by_budget = {key for key, eviction in refused.items() if eviction is Eviction.PROTECTED}
        exempt = self._exempt(refused.keys() - by_budget)
        chosen = self._choose(name, exempt) if by_budget else ()
        units = [reclaim for reclaim in chosen if reclaim.key in by_budget]
        if not units:
            await self._budgets.retract(lambda other: other != name)
            return
        quota = self.state.quotas.catalog.registry.specs.get(name)
        if quota is not None and not self._budgets.since(units[0]):
            text = self._budgets.write(units[0], self._now())
            self.reporter.announce_protected(quota, text)
            wanted = {unit.beneficiary for unit in units}
            self.note(
                pod
                for blocked_unit in self.blocked()
                if blocked_unit.unit.key in wanted
                for pod in blocked_unit.pods
            )
        for reclaim in reversed(await self._budgets.note(units)):
            await self._evict_unit(reclaim, self.evictor.overrule, waits=False)

    async def _check(self, unit: Reclaim) -> Eviction:
        outcome = await self.evictor.check(unit.pods)
        self.controller.counts[self.name][Eviction.PROTECTED] += not outcome.is_done
        return outcome

    def _announce_plan(self, name: QuotaName, chosen: Sequence[Reclaim]) -> None:
        quota = self.state.quotas.catalog.registry.specs.get(name)
        if quota is None or not chosen:
            return
        beneficiary = self._name_of(chosen[0].beneficiary)
        text = write_plan(
            chosen, beneficiary, is_dry=self.options.is_dry, compat=self.state.gangs.compat
        )
        if self._planned.get(name) != text:
            self._planned[name] = text
            self.reporter.announce_plan(quota, text)

    def _name_of(self, beneficiary: UnitKey) -> str:
        by = self.state.pods.get(beneficiary)
        return by.title if by is not None else beneficiary

    def _choose(self, name: QuotaName, exempt: Exempt) -> tuple[Reclaim, ...]:
        ledger = self.state.open_ledger()
        if ledger.find(name) is None:
            return ()
        return plan_reclaim(self.state, ledger, name, self.blocked(), exempt)

    # --- carrying out ----------------------------------------------------------------------------

    async def _evict_unit(self, unit: Reclaim, by: Evict, *, waits: bool) -> Eviction | None:
        """Mark a unit and evict it; one that ``waits`` goes when the time of its plan is over.

        None: a limit does not allow it now.
        """
        quota, now = unit.over[0].quota, self._now()
        purpose = f"{quota} for {unit.beneficiary}"
        plan = EvictionPlan(self.name, unit.key, unit.pods, purpose, "", quota, unit.beneficiary)
        if self.controller.admit(plan, now) > now:
            return None
        protected = self._budgets.since(unit)
        run = ReclaimRun(plan, now, waits=waits, unit=unit, by=by, protected=protected)
        outcome = await self.controller.carry_out(self, run)
        if outcome is Outcome.UNMARKED:
            return Eviction.REFUSED
        return run.refusal or Eviction.EVICTED

    @override
    async def mark(self, run: ReclaimRun, pod: Pod, seconds: float) -> bool:
        return await self.evictor.mark(pod, self._tell(run.unit), seconds=seconds)

    @override
    async def check_marked(self, run: ReclaimRun) -> Outcome | None:
        # No reservation ends by itself, and none has a mark by which to find it later.
        now = [pod for pod in run.plan.pods if pod.handling is Handling.RESERVE]
        run.waits = bool(run.waits) and len(now) < len(run.plan.pods)
        is_refused = run.waits and now and await self._evict_now(run, now)
        return Outcome.FAILED if is_refused else None

    @override
    def judge(self, run: ReclaimRun) -> Outcome | None:
        present = (self.state.pods.get(pod.uid) for pod in run.plan.pods)
        pods = [pod for pod in present if pod is not None and pod.handling is not Handling.RESERVE]
        if all(pod.phase.is_terminal for pod in pods):
            return Outcome.ENDED
        since = self._wanted.get(run.plan.purpose, run.began)
        return Outcome.NOT_NEEDED if self._now() > since + WANTED_SECONDS else None

    @override
    def choose_next(self, run: ReclaimRun, left: Sequence[Pod]) -> Sequence[Pod]:
        return self._find_pending(run) if run.waits else run.plan.pods

    @override
    async def evict(self, run: ReclaimRun, pods: Sequence[Pod]) -> list[Pod]:
        if run.waits:
            await self._finish(run, pods)
            return []
        return [pods[0]] if await self._evict_now(run, pods) else []

    async def _evict_now(self, run: ReclaimRun, pods: Sequence[Pod]) -> bool:
        """Evict pods; return whether that is refused."""
        outcome = await self.controller.evict_unit(self.name, pods, run.by)
        run.refusal = outcome if outcome.is_denied else None
        return outcome.is_denied

    @override
    async def cancel(self, run: ReclaimRun, outcome: Outcome) -> None:
        """Take marks back; those of a unit that hangs stay, and are finished as of no plan."""
        if outcome is Outcome.NOT_NEEDED:
            await self._finish(run, self._find_pending(run), is_spared=True)
        elif outcome is Outcome.STUCK:
            return
        elif run.protected:
            await self._budgets.restore(run.unit, run.protected)
        else:
            await asyncio.gather(*map(self.evictor.unmark, run.plan.pods))

    def _find_pending(self, run: ReclaimRun) -> list[Pod]:
        """Return the pods that are marked, and not evicted yet."""
        pending = self.state.eviction_pending - self.controller.evicted
        return [self.state.pods[pod.uid] for pod in run.plan.pods if pod.uid in pending]

    @override
    def find_marked(self) -> Iterable[str]:
        return self.state.eviction_pending

    @override
    async def finish_marked(self, unit: str, pods: Sequence[Pod]) -> None:
        """Evict marked pods whose time is over, whoever marked them."""
        if find_deadline(pods, self.controller.soft_limit, self._now()) <= self._now():
            await self._finish_unit(pods, is_spared=False)

    async def _finish(
        self, run: ReclaimRun, pods: Sequence[Pod], *, is_spared: bool = False
    ) -> None:
        """Evict what is left of a unit whose time is over, or spare what can go on."""
        units = self.controller.by_unit(pods).values()
        gone = [await self._finish_unit(unit, is_spared=is_spared) for unit in units]
        if any(gone):
            self._report(run.unit)

    async def _finish_unit(self, pods: Sequence[Pod], *, is_spared: bool) -> bool:
        """Return whether the pods are evicted."""
        may_stay = can_keep_running(self.state.gangs, pods)
        if is_spared and may_stay:
            await asyncio.gather(*(self.evictor.unmark(pod, CANCELLED) for pod in pods))
            for pod in pods:
                self.reporter.announce_spared(pod, CANCELLED)
            return False
        evict = self.evictor.reclaim
        if not (await self.controller.evict_unit(self.name, pods, evict)).is_denied:
            return True
        if may_stay:
            await asyncio.gather(*map(self.evictor.unmark, pods))
        elif self._is_overdue(pods):
            await self.controller.evict_unit(self.name, pods, self.evictor.overrule)
        return False

    def _is_overdue(self, pods: Sequence[Pod]) -> bool:
        """Whether budgets have protected the rest of a unit for long enough."""
        marked = min((pod.marked for pod in pods if pod.marked), default=self._now())
        return self._now() > marked + self.options.budget_grace

    # --- reports ---------------------------------------------------------------------------------

    @override
    def note_unmarked(self, run: ReclaimRun, pods: Sequence[Pod]) -> None:
        self._unmarked.note(run.unit.key, self._now())

    @override
    def note_marked(self, run: ReclaimRun) -> None:
        """Tell pods that may end by themselves."""
        if not run.waits:
            return
        self._wanted[run.plan.purpose] = self._now()
        text_for_pods = self._tell(run.unit).rstrip(".")
        for pod in run.plan.pods:
            if seconds := self.controller.grant(pod):
                text = f"It has {int(seconds)} s to save its work and end by itself."
                self.reporter.announce_soft_eviction(pod, f"{text_for_pods}. {text}")

    @override
    def note_end(self, run: ReclaimRun, outcome: Outcome) -> None:
        if outcome is Outcome.ENDED and not (run.waits and run.has_evicted):
            self._report(run.unit)
        purposes = {other.plan.purpose for other in self.controller.runs_of(self)}
        if run.plan.purpose not in purposes:
            self._wanted.pop(run.plan.purpose, None)

    def _write(self, unit: Reclaim) -> str:
        return write_overuse(unit.over, compat=self.state.gangs.compat)

    def _tell(self, unit: Reclaim) -> str:
        """Return the message for victims: the over-use, and for whom they are evicted."""
        text = self._write(unit)
        return f"{text}. For {self._name_of(unit.beneficiary)}." if unit.beneficiary else text

    def _report(self, unit: Reclaim) -> None:
        over, pods, text, text_for_pods = unit.over, unit.pods, self._write(unit), self._tell(unit)
        by = self._name_of(unit.beneficiary)
        units = sorted({pod.key if pod.gang is None else pod.gang.key for pod in pods})
        values = {"unit": named(units), "quota": over[0].quota, "pods": len(pods), "by": by}
        log.info("Reclaimed", extra={**values, "why": text})
        quota = self.state.quotas.catalog.registry.specs.get(over[0].quota)
        if quota is not None:
            self.reporter.announce_overuse(quota, text)
        for pod in pods:
            self.reporter.announce_reclaimed(pod, text_for_pods)
        for gang in sorted({pod.gang.key for pod in pods if pod.gang is not None}):
            pod_group = self.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.record(pod_group, Happened.RECLAIMED, text, by)
