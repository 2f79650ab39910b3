"""Reclaims over-use of quotas by evicting units: part of the operator ``placement``.

A quota that has been over its entitlement for longer than the grace period loses the units that
others are entitled to, the quota furthest over first. Pods are evicted through ``pods/eviction``;
for units that a PodDisruptionBudget protects others are chosen; where there are none, they go after
a while (``budget_grace``). A gang is evicted as a whole. All
its pods are marked first: a marked pod counts as terminating, so that no replacement joins the
gang, and after a crash the next leader completes the eviction. If any pod of a plan wants time to
end by itself, the plan waits once all its pods are marked (``asked_units``).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.unit_eviction import (
    CANCELLED,
    BudgetGrace,
    Evict,
    SoftEvictionAction,
    SoftEvictions,
    UnitEvictions,
)
from koord.core.engine.queue import Blocked
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Exempt, Moment
from koord.core.eviction.reclaim import Reclaim, can_keep_running, plan_reclaim, write_plan
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import named
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.reclaim import Overuse, OveruseTimer, find_overuse, write_overuse
from koord.isolation import Isolation
from koord.kube.evictor import Eviction, Evictor

log = logging.getLogger(__name__)

UNMARKED_SECONDS: Final = 60.0
"""How long others are chosen in place of a unit that could not be marked."""
MAX_ATTEMPTS: Final = 16
"""How often units are chosen per quota and round, also in place of protected ones."""


RATE_SECONDS: Final = 60.0
"""Over which the pods count that a quota has lost."""


class ReclaimReporter(Protocol):
    """Reports evictions and their cause to users."""

    def announce_plan(self, quota: QuotaSpec, text: str) -> None: ...
    def announce_protected(self, quota: QuotaSpec, text: str) -> None: ...
    def announce_overuse(self, quota: QuotaSpec, text: str) -> None: ...
    def announce_reclaimed(self, pod: Pod, text: str) -> None: ...
    def announce_soft_eviction(self, pod: Pod, text: str) -> None: ...
    def announce_spared(self, pod: Pod, text: str) -> None: ...
    def retract_overuse(self, quota: QuotaSpec) -> None: ...


@dataclass(frozen=True, slots=True)
class ReclaimOptions:
    """``is_on`` enables reclaiming. ``delay`` is the grace period; both times are in seconds.

    With ``is_dry`` plans are announced, and nobody is evicted. A quota that has lost
    ``most_per_minute`` pods within a minute loses no further unit for now; 0 is no limit.
    ``min_runtime`` is as in ``Moment``. Pods that want time to end by themselves get it, up to
    ``soft_eviction_limit`` seconds.
    """

    is_on: bool = False
    delay: float = 120.0
    interval: float = 1.0
    is_dry: bool = False
    most_per_minute: int = 0
    min_runtime: float = 0.0
    soft_eviction_limit: float = 0.0
    patience: Patience = FOREVER
    """Until when room is counted on that evicted pods leave."""
    budget_grace: float = 600.0
    """How long PodDisruptionBudgets protect pods that others need."""


@dataclass(slots=True)
class ReclaimController:
    """Checks all quotas periodically; ``blocked`` returns pending units and their reasons."""

    state: ClusterState
    evictor: Evictor
    reporter: ReclaimReporter
    blocked: Callable[[], Iterable[Blocked]]
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    options: ReclaimOptions = field(default_factory=ReclaimOptions)
    record: Callable[[ObservedPodGroup, Happened, str, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""
    note: Callable[[Iterable[Pod]], None] = field(default=lambda _: None)
    """Requests reports on waiting pods."""
    evictions: UnitEvictions = field(init=False)
    _isolated: Isolation = field(default_factory=lambda: Isolation("reclaim"))
    _asked: SoftEvictions = field(init=False)
    _budgets: BudgetGrace = field(init=False)
    _patience: OveruseTimer = field(init=False)
    _over: dict[QuotaName, float] = field(default_factory=dict)
    """Over-used quotas and how far they are over, as a part of what they are entitled to."""
    _lost: dict[QuotaName, list[tuple[float, int]]] = field(default_factory=dict)
    """When quotas lost how many pods, within the last minute."""
    _planned: dict[QuotaName, str] = field(default_factory=dict)
    """The last plan that was announced, of quotas that are over."""
    _unmarked: dict[str, float] = field(default_factory=dict)
    """Units that could not be marked -> until when others are chosen instead."""
    _seen: tuple[int, int] = (-1, -1)
    """Version of the quotas at the last check."""

    def __post_init__(self) -> None:
        self.evictions = UnitEvictions(self.state, self.evictor.reclaim)
        self._asked = SoftEvictions(self.state, self.options.soft_eviction_limit)
        self._patience = OveruseTimer(self.options.delay)
        self._budgets = BudgetGrace(
            self.state, self.evictor, self.wall_clock, self.options.budget_grace, self._tell
        )

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.options.interval)
            if self.is_synced():
                await self.look()

    async def look(self) -> None:
        """Complete marked evictions, then reclaim from quotas over for too long, the most first."""
        self.evictions.forget_confirmed()
        self._isolated.call("what waits", self._note_waiting)
        if self.state.eviction_pending:
            await self._finish_marked()
        if self.options.is_on and self.state.quotas.is_in_use:
            now, due = self.clock(), self._isolated.call("what is over", self._find_due) or ()
            await self._budgets.retract(self._over.__contains__)
            for name in due:
                if not self._isolated.rests(name, now):
                    with self._isolated.of(name, now):
                        await self._reclaim(name)

    def _note_waiting(self) -> None:
        """Let quotas use leftovers again once the unit they gave up resources for is placed.

        Plans whose pods were asked to end by themselves go on only while that unit waits.
        """
        without = self.state.quotas.without_leftovers
        if not without and not self._asked.has_any:
            return
        waiting = {blocked_unit.unit.key for blocked_unit in self.blocked()}
        for name in [name for name, beneficiary in without.items() if beneficiary not in waiting]:
            del without[name]
        for unit in self._asked.look(waiting, self._over, self.clock()):
            self._isolated.call(unit.key, self._report, unit)

    def _find_due(self) -> list[QuotaName]:
        ledger = self.state.open_ledger()
        if self._seen != self.state.quotas.version:
            self._seen = self.state.quotas.version
            self._note_overuse(find_overuse(ledger))
        due = self._patience.note(self._over.keys(), self.clock())
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
            waits = self._asked.wants_time(allowed)
            for reclaim in reversed(allowed):  # the least important first
                if self._has_lost_enough(name):
                    return
                if (outcome := await self._evict_unit(reclaim, waits=waits)).is_denied:
                    refused[reclaim.key] = outcome
        if not self.options.is_dry:
            await self._keep_protected(name, refused)

    def _exempt(self, refused: Collection[str]) -> Exempt:
        moment, now = Moment(self.wall_clock(), self.options.min_runtime), self.clock()
        self._unmarked = {key: until for key, until in self._unmarked.items() if until > now}
        return Exempt(
            {*refused, *self._unmarked},
            self.evictions.evicted,
            self.options.patience,
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
            text = self._budgets.write(units[0], self.wall_clock())
            self.reporter.announce_protected(quota, text)
            wanted = {unit.beneficiary for unit in units}
            self.note(
                pod
                for blocked_unit in self.blocked()
                if blocked_unit.unit.key in wanted
                for pod in blocked_unit.pods
            )
        for reclaim in reversed(await self._budgets.note(units)):
            if not self._has_lost_enough(name):
                await self._evict_unit(reclaim, waits=False, by=self.evictor.overrule)

    def _has_lost_enough(self, name: QuotaName) -> bool:
        since = self.clock() - RATE_SECONDS
        recent = [(at, pods) for at, pods in self._lost.pop(name, ()) if at > since]
        if recent:
            self._lost[name] = recent
        most = self.options.most_per_minute
        return bool(most) and sum(pods for _, pods in recent) >= most

    async def _check(self, unit: Reclaim) -> Eviction:
        outcome = await self.evictor.check(unit.pods)
        self.evictions.counts[Eviction.PROTECTED] += not outcome.is_done
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

    async def _evict_unit(self, unit: Reclaim, *, waits: bool, by: Evict | None = None) -> Eviction:
        """Mark a unit and evict it; one that ``waits`` is evicted when its plan's time is over."""
        protected = self._budgets.since(unit)
        outcome = Eviction.EVICTED if await self._mark(unit) else Eviction.REFUSED
        # No reservation ends by itself, and none has a mark by which to find it later.
        now = [pod for pod in unit.pods if not waits or pod.handling is Handling.RESERVE]
        waits = len(now) < len(unit.pods)
        if outcome.is_done and now:
            outcome = await self.evictions.evict_all(now, by)
        if outcome.is_denied:
            if protected:
                await self._budgets.restore(unit, protected)
            else:
                await asyncio.gather(*map(self.evictor.unmark, unit.pods))
            return outcome
        self._lost.setdefault(unit.over[0].quota, []).append((self.clock(), len(unit.pods)))
        if waits:
            self._ask(unit)
        else:
            self._report(unit)
        return outcome

    def _ask(self, unit: Reclaim) -> None:
        """Let a marked unit end by itself."""
        self._asked.note(unit, self.clock())
        text_for_pods = self._tell(unit).rstrip(".")
        for pod in unit.pods:
            if seconds := self._asked.grant(pod):
                text = f"It has {int(seconds)} s to save its work and end by itself."
                self.reporter.announce_soft_eviction(pod, f"{text_for_pods}. {text}")

    async def _mark(self, unit: Reclaim) -> bool:
        text = self._tell(unit)
        unmarked = await self.evictions.mark_each(
            unit.pods,
            lambda pod: self.evictor.mark(pod, text, seconds=self._asked.grant(pod)),
        )
        if unmarked:
            self._unmarked[unit.key] = self.clock() + UNMARKED_SECONDS
        return not unmarked

    async def _finish_marked(self) -> None:
        """Evict marked pods whose time is over, whoever marked them; unmark pods that can stay."""
        groups: dict[str, list[Pod]] = {}
        for uid in sorted(self.state.eviction_pending - self.evictions.evicted):
            pod = self.state.pods[uid]
            key = uid if pod.gang is None else self.state.gangs.group(pod.gang.key).id
            groups.setdefault(key, []).append(pod)
        for key, pods in groups.items():
            now = self.clock()
            if self._isolated.rests(key, now):
                continue
            with self._isolated.of(key, now):
                action = self._asked.judge(pods, now, self.wall_clock())
                if action is not SoftEvictionAction.WAIT:
                    await self._finish(pods, is_spared=action is SoftEvictionAction.SPARE)

    async def _finish(self, pods: Sequence[Pod], *, is_spared: bool) -> None:
        unit = self._asked.take(pods)
        may_stay = can_keep_running(self.state.gangs, pods)
        if is_spared and may_stay:
            await asyncio.gather(*(self.evictor.unmark(pod, CANCELLED) for pod in pods))
            for pod in pods:
                self.reporter.announce_spared(pod, CANCELLED)
        elif not (await self.evictions.evict_all(pods)).is_denied:
            if unit is not None:
                self._report(unit)
        elif may_stay:
            await asyncio.gather(*map(self.evictor.unmark, pods))
        elif self._is_overdue(pods):
            await self.evictions.evict_all(pods, self.evictor.overrule)

    def _is_overdue(self, pods: Sequence[Pod]) -> bool:
        """Whether budgets have protected the rest of a unit for long enough."""
        marked = min((pod.marked for pod in pods if pod.marked), default=self.wall_clock())
        return self.wall_clock() > marked + self.options.budget_grace

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
        log.info(
            "Reclaimed",
            extra={
                "unit": named(units),
                "quota": over[0].quota,
                "pods": len(pods),
                "by": by,
                "why": text,
            },
        )
        quota = self.state.quotas.catalog.registry.specs.get(over[0].quota)
        if quota is not None:
            self.reporter.announce_overuse(quota, text)
        for pod in pods:
            self.reporter.announce_reclaimed(pod, text_for_pods)
        for gang in sorted({pod.gang.key for pod in pods if pod.gang is not None}):
            pod_group = self.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.record(pod_group, Happened.RECLAIMED, text, by)
