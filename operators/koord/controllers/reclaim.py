"""Reclaims over-use of quotas by evicting units: part of the operator ``placement``.

A quota that has been over its entitlement for longer than the grace period loses the units that
others are entitled to, the quota furthest over first. Pods are evicted through ``pods/eviction``;
for units that a PodDisruptionBudget protects others are chosen. A gang is evicted as a whole. All
its pods are marked first: a marked pod counts as terminating, so that no replacement joins the
gang, and after a crash the next leader completes the eviction.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.unit_eviction import UnitEvictions
from koord.core.gang_history import Happened
from koord.core.gang_model import PodGroup
from koord.core.pods import Pod
from koord.core.preemption.model import Exempt
from koord.core.queue import Blocked
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.reclaim import Overuse, OveruseTimer, find_overuse, write_overuse
from koord.core.reclaim import Reclaim, can_keep_running, plan_reclaim
from koord.core.state import ClusterState
from koord.kube.evictor import Eviction, Evictor

log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 16
"""How often units are chosen per quota and round, also in place of protected ones."""


class RevokeReporter(Protocol):
    """Reports evictions and their cause to users."""

    def announce_overuse(self, quota: QuotaSpec, text: str) -> None: ...
    def announce_revoked(self, pod: Pod, text: str) -> None: ...
    def retract_overuse(self, quota: QuotaSpec) -> None: ...


@dataclass(frozen=True, slots=True)
class RevokeOptions:
    """``is_on`` enables reclaiming. ``delay`` is the grace period; both times are in seconds."""

    is_on: bool = False
    delay: float = 120.0
    interval: float = 1.0


@dataclass(slots=True)
class RevokeController:
    """Checks all quotas periodically; ``blocked`` returns pending units and their reasons."""

    state: ClusterState
    evictor: Evictor
    reporter: RevokeReporter
    blocked: Callable[[], Iterable[Blocked]]
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    options: RevokeOptions = field(default_factory=RevokeOptions)
    record: Callable[[PodGroup, Happened, str, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""
    evictions: UnitEvictions = field(init=False)
    _patience: OveruseTimer = field(init=False)
    _over: dict[QuotaName, float] = field(default_factory=dict)
    """Over-used quotas and how far they are over, as a part of what they are entitled to."""
    _seen: tuple[int, int] = (-1, -1)
    """Version of the quotas at the last check."""

    def __post_init__(self) -> None:
        self.evictions = UnitEvictions(self.state, self.evictor.evict)
        self._patience = OveruseTimer(self.options.delay)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.options.interval)
            if self.is_synced():
                await self.look()

    async def look(self) -> None:
        """Complete marked evictions, then reclaim from quotas over for too long, the most first."""
        self.evictions.forget_confirmed()
        self._allow_leftovers()
        if self.state.eviction_pending:
            await self._finish_marked()
        if self.options.is_on and self.state.quotas.is_in_use:
            for name in self._find_due():
                await self._reclaim(name)

    def _allow_leftovers(self) -> None:
        """Let quotas use leftovers again once the unit they gave up resources for is placed."""
        without = self.state.quotas.without_leftovers
        waiting = {one.unit.key for one in self.blocked()} if without else set()
        for name in [name for name, beneficiary in without.items() if beneficiary not in waiting]:
            del without[name]

    def _find_due(self) -> list[QuotaName]:
        ledger = self.state.open_ledger()
        if self._seen != self.state.quotas.version:
            self._seen = self.state.quotas.version
            self._note_overuse(find_overuse(ledger))
        due = self._patience.note(self._over.keys(), self.clock())
        return sorted(due, key=lambda name: -self._over[name])

    def _note_overuse(self, found: Iterable[Overuse]) -> None:
        over: dict[QuotaName, float] = {}
        for one in found:
            over[one.quota] = max(over.get(one.quota, 0.0), one.over / max(one.entitled, 1))
        specs = self.state.quotas.catalog.registry.specs
        for name in self._over.keys() - over:
            if name in specs:
                self.reporter.retract_overuse(specs[name])
        self._over = over

    async def _reclaim(self, name: QuotaName) -> None:
        protected: set[str] = set()
        for _ in range(MAX_ATTEMPTS):
            chosen = self._choose(name, Exempt(protected, self.evictions.evicted))
            if chosen and chosen[0].beneficiary:
                self.state.quotas.without_leftovers[name] = chosen[0].beneficiary
            protected.update([one.key for one in chosen if not await self._evict_unit(one)])
            if not chosen:
                return

    def _choose(self, name: QuotaName, exempt: Exempt) -> tuple[Reclaim, ...]:
        try:
            ledger = self.state.open_ledger()
            if ledger.find(name) is None:
                return ()
            return plan_reclaim(self.state, ledger, name, self.blocked(), exempt)
        except Exception:
            # A bug in one quota must not stop reclaiming from others.
            log.exception("Cannot reclaim over-use", extra={"quota": name})
            return ()

    async def _evict_unit(self, unit: Reclaim) -> bool:
        pods, text = unit.pods, write_overuse(unit.over)
        if not await self.evictor.may_go(pods):
            self.evictions.counts[Eviction.PROTECTED] += 1
            return False
        is_marked = await self.evictions.mark_all(pods, lambda pod: self.evictor.mark(pod, text))
        is_gone = is_marked and await self.evictions.evict_all(pods)
        if not is_gone:
            await asyncio.gather(*map(self.evictor.unmark, pods))
            return False
        self._report(unit, text)
        return True

    async def _finish_marked(self) -> None:
        """Evict marked pods, whoever marked them; unmark pods that can stay."""
        groups: dict[str, list[Pod]] = {}
        for uid in sorted(self.state.eviction_pending - self.evictions.evicted):
            pod = self.state.pods[uid]
            key = uid if pod.gang is None else self.state.gangs.group(pod.gang.key).id
            groups.setdefault(key, []).append(pod)
        for pods in groups.values():
            if not await self.evictions.evict_all(pods) and can_keep_running(
                self.state.gangs, pods
            ):
                await asyncio.gather(*map(self.evictor.unmark, pods))

    def _report(self, unit: Reclaim, text: str) -> None:
        over, pods = unit.over, unit.pods
        log.info(
            "Reclaiming over-use of a quota",
            extra={"quota": over[0].quota, "pods": len(pods), "why": text},
        )
        quota = self.state.quotas.catalog.registry.specs.get(over[0].quota)
        if quota is not None:
            self.reporter.announce_overuse(quota, text)
        for pod in pods:
            self.reporter.announce_revoked(pod, text)
        by = self.state.pods.get(unit.beneficiary)
        named = by.key if by is not None else unit.beneficiary
        for gang in sorted({pod.gang.key for pod in pods if pod.gang is not None}):
            pod_group = self.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.record(pod_group, Happened.RECLAIMED, text, named)
