"""Takes back what quotas use beyond what they are entitled to: for the operator ``placement``.

Every quota that is over for longer than it may be loses units until it is not. Pods go through
``pods/eviction``; what a disruption budget protects is left for the next time, and others go in its
place. A gang goes as a whole. All of its pods are marked first: a marked pod counts as on its way
out from then on, so no replacement joins those that are left, and after a crash whoever comes next
finishes what was begun.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.core.pods import Pod
from koord.core.queue import Blocked
from koord.core.quota.model import QuotaName, QuotaSpec
from koord.core.quota.overuse import Overuse, Patience, find_overuse
from koord.core.quota_texts import write_overuse
from koord.core.reclaim import Exempt, Reclaim, can_stay, plan_revocations
from koord.core.state import ClusterState
from koord.kube.evictor import Eviction, Evictor

log = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 16
"""How often others are chosen in place of what a budget protects, per quota and time."""


class RevokeReporter(Protocol):
    """Who tells users."""

    def announce_overuse(self, quota: QuotaSpec, text: str) -> None:
        """Say that pods of a quota are evicted, and why."""

    def announce_revoked(self, pod: Pod, text: str) -> None:
        """Say that a pod is evicted, and why."""

    def retract_overuse(self, quota: QuotaSpec) -> None:
        """Let the next time be news."""


@dataclass(frozen=True, slots=True)
class RevokeOptions:
    """``is_on``: whether quotas are looked at. Times are in seconds."""

    is_on: bool = False
    delay: float = 120.0
    interval: float = 1.0


@dataclass(slots=True)
class RevokeController:
    """Looks at all quotas again and again; ``blocked`` returns the units that wait, and why."""

    state: ClusterState
    evictor: Evictor
    reporter: RevokeReporter
    blocked: Callable[[], Iterable[Blocked]]
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    options: RevokeOptions = field(default_factory=RevokeOptions)
    counts: Counter[Eviction] = field(default_factory=Counter)
    """Evictions so far, by what became of them."""
    _patience: Patience = field(init=False)
    _over: set[QuotaName] = field(default_factory=set)
    _seen: tuple[int, int] = (-1, -1)
    """What quotas used and might use when they were last looked at."""
    _leaving: set[str] = field(default_factory=set)
    """uids of pods that were evicted, until the watch shows it."""

    def __post_init__(self) -> None:
        self._patience = Patience(self.options.delay)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self.options.interval)
            if self.is_synced():
                await self.look()

    async def look(self) -> None:
        """Finish what was begun, then take back from those who have been over for too long."""
        pods = self.state.pods
        self._leaving = {u for u in self._leaving if u in pods and not pods[u].is_terminating}
        self._lift_bars()
        if self.state.doomed:
            await self._finish()
        if self.options.is_on and self.state.quotas.is_in_use:
            for name in self._find_due():
                await self._take_back(name)

    def _lift_bars(self) -> None:
        """Let quotas have leftovers again once nobody waits any more for what they gave back."""
        barred = self.state.quotas.barred
        waiting = {one.unit.key for one in self.blocked()} if barred else set()
        for name in [name for name, claimant in barred.items() if claimant not in waiting]:
            del barred[name]

    def _find_due(self) -> list[QuotaName]:
        ledger = self.state.open_ledger()
        if self._seen == self.state.quotas.version:
            return self._patience.note(self._over, self.clock())
        self._seen = self.state.quotas.version
        over = {one.quota for one in find_overuse(ledger)}
        specs = self.state.quotas.book.registry.specs
        for name in self._over - over:
            if name in specs:
                self.reporter.retract_overuse(specs[name])
        self._over = over
        return self._patience.note(over, self.clock())

    async def _take_back(self, name: QuotaName) -> None:
        protected: set[str] = set()
        for _ in range(MOST_ATTEMPTS):
            chosen = self._choose(name, Exempt(protected, self._leaving))
            if chosen and chosen[0].claimant:
                self.state.quotas.barred[name] = chosen[0].claimant
            refused = [one.key for one in chosen if not await self._revoke(one)]
            if not refused:
                return
            protected.update(refused)

    def _choose(self, name: QuotaName, exempt: Exempt) -> tuple[Reclaim, ...]:
        try:
            ledger = self.state.open_ledger()
            if ledger.find(name) is None:
                return ()
            return plan_revocations(self.state, ledger, name, self.blocked(), exempt)
        except Exception:
            # A defect that one quota shows keeps nothing from being taken back of others.
            log.exception("over-use cannot be taken back", extra={"quota": name})
            return ()

    async def _revoke(self, revocation: Reclaim) -> bool:
        """Evict all pods of a unit, or none; return whether they go."""
        pods, text = revocation.pods, write_overuse(revocation.over)
        if not await self.evictor.may_go(pods):
            self.counts[Eviction.PROTECTED] += 1
            return False
        marked = await asyncio.gather(*(self.evictor.mark(pod, text) for pod in pods))
        is_gone = all(marked) and await self._evict_all(pods)
        if not is_gone:
            await asyncio.gather(*map(self.evictor.unmark, pods))
            return False
        self._announce(revocation.over, pods, text)
        return True

    async def _evict_all(self, pods: Sequence[Pod]) -> bool:
        """Evict marked pods; return False if none goes. What is left then is tried again later."""
        first, *others = pods
        if (await self._evict(first)).is_denied:
            return False
        await asyncio.gather(*map(self._evict, others))
        return True

    async def _evict(self, pod: Pod) -> Eviction:
        outcome = await self.evictor.evict(pod)
        self.counts[outcome] += 1
        if outcome.is_done:
            self._leaving.add(pod.uid)
        return outcome

    async def _finish(self) -> None:
        """Evict what is marked, by whomever; take the mark back where nobody has to go."""
        groups: dict[str, list[Pod]] = {}
        for uid in sorted(self.state.doomed - self._leaving):
            pod = self.state.pods[uid]
            key = uid if pod.gang is None else self.state.book.group(pod.gang.key).id
            groups.setdefault(key, []).append(pod)
        for pods in groups.values():
            if not await self._evict_all(pods) and can_stay(self.state.book, pods):
                await asyncio.gather(*map(self.evictor.unmark, pods))

    def _announce(self, over: Sequence[Overuse], pods: Iterable[Pod], text: str) -> None:
        log.info("over-use is taken back", extra={"quota": over[0].quota, "why": text})
        quota = self.state.quotas.book.registry.specs.get(over[0].quota)
        if quota is not None:
            self.reporter.announce_overuse(quota, text)
        for pod in pods:
            self.reporter.announce_revoked(pod, text)
