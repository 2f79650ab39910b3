"""Restarts gangs: evicts the remaining members of a gang that cannot continue.

All or nothing: while a PodDisruptionBudget does not allow evicting all of them, none is evicted,
because a partial gang is useless; users see ``RestartProtected``.

Level-triggered like placement: whether a gang must restart is derived from its members every time,
and a failed eviction is retried while that holds, at the pace of ``RestartPace``. An interrupted
start gets the gang's wait time, counted from when it was first observed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.restart_pace import RestartPace
from koord.core.engine.state import ClusterState
from koord.core.gang.failure import Restart, find_restart
from koord.core.gang.reasons import RestartingGang, RestartProtected
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.isolation import Isolation
from koord.kube.evictor import Eviction

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""When a failed eviction is retried; each failure doubles it."""
CHECK_AGAIN_SECONDS: Final = 1.0
"""When a gang whose members are being written is checked again."""


class GangEvictor(Protocol):
    """Evicts pods."""

    async def may_go(self, pods: tuple[Pod, ...]) -> bool: ...
    async def restart(self, pod: Pod) -> Eviction: ...


class RestartReporter(Protocol):
    """Reports to users."""

    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None: ...


@dataclass(slots=True)
class GangRestarts:
    """Checks changed gangs; at most one restart per gang runs at a time.

    ``is_committing`` returns whether members of a gang are being written: a pod that is about to be
    bound is not lost. ``clock`` is that of the planner.
    """

    state: ClusterState
    evictor: GangEvictor
    announcer: RestartReporter
    clock: Callable[[], float]
    is_committing: Callable[[GangKey], bool] = field(default=lambda _: False)
    record: Callable[[ObservedPodGroup, Happened, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("restarts"))
    _pace: RestartPace = field(default_factory=RestartPace)
    _due: dict[GangKey, float] = field(default_factory=dict)
    _interrupted_since: dict[GangKey, float] = field(default_factory=dict)
    _restarting: dict[GangKey, tuple[GangKey, ...]] = field(default_factory=dict)
    """Gangs being restarted -> all gangs of their group when the restart began."""
    _held_up: set[GangKey] = field(default_factory=set)
    """Gangs reported as protected."""

    def note(self, gangs: Iterable[GangKey]) -> None:
        self._due |= dict.fromkeys(gangs, self.clock())

    def next_due(self) -> float | None:
        return min(self._due.values(), default=None)

    def take(self) -> list[Restart]:
        now = self.clock()
        taken: list[Restart] = []
        due = [gang for gang, at in self._due.items() if at <= now]
        for gang in sorted(due, key=lambda gang: (self._pace.count_failures(gang), gang)):
            del self._due[gang]
            restart = None
            with self._isolated.of(gang, now):
                restart = None if self._is_restarting(gang) else self._check(gang, now)
            again_at = self._isolated.again_at(gang)
            if restart is not None and (until := self._pace.wait_until(gang, now)) > now:
                restart, again_at = None, until
            if again_at is not None:
                self._due[gang] = again_at
            if restart is not None:
                self._pace.note_try(gang, now)
                self._restarting[gang] = self.state.gangs.group(gang).gangs
                taken.append(restart)
        return taken

    def _is_restarting(self, gang: GangKey) -> bool:
        return any(gang in together for together in self._restarting.values())

    def _check(self, gang: GangKey, now: float) -> Restart | None:
        if self._is_in_flight(gang):
            self._due[gang] = now + CHECK_AGAIN_SECONDS
            return None
        restart = find_restart(self.state.gangs, gang)
        if restart is None:
            self._held_up.discard(gang)
        if restart is None or restart.lost:
            self._interrupted_since.pop(gang, None)
            return restart
        spec = self.state.gangs.spec(gang)
        since = self._interrupted_since.setdefault(gang, now)
        until = since + (spec.wait_seconds if spec is not None else 0)
        if now >= until:
            return restart
        self._due[gang] = until
        return None

    def _is_in_flight(self, gang: GangKey) -> bool:
        """Whether members are being bound, or the watch has not confirmed it."""
        assumed, members = self.state.assumed, self.state.gangs.members(gang)
        return self.is_committing(gang) or any(uid in assumed for uid in members)

    async def carry_out(self, restart: Restart) -> None:
        outcomes: list[Eviction] = []
        try:
            if await self._may_go(restart):
                outcomes = await asyncio.gather(*map(self.evictor.restart, restart.pods))
        finally:
            self._restarting.pop(restart.gang, None)
            is_done = bool(outcomes) and all(outcome.is_done for outcome in outcomes)
            # Also after success, to check what the watch delivers until then.
            now = self.clock()
            until = self._pace.note_end(restart.gang, now, RETRY_SECONDS, is_done=is_done)
            self._due[restart.gang] = until
        failed = sum(not outcome.is_done for outcome in outcomes)
        if failed:
            log.warning(
                "Could not evict members of a gang",
                extra={"gang": restart.gang, "pods": failed},
            )

    async def _may_go(self, restart: Restart) -> bool:
        """Whether all of a gang may be evicted now; reported to users."""
        gang, counts = (
            restart.gang,
            (restart.lost, restart.unbound, len(restart.pods), restart.what),
        )
        is_allowed = await self.evictor.may_go(restart.pods)
        reason = RestartingGang(*counts) if is_allowed else RestartProtected(*counts)
        if is_allowed or gang not in self._held_up:
            log.info(reason.text(), extra={"gang": gang, "pods": len(restart.pods)})
            pod_group = self.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.announcer.announce_event(pod_group, reason, reason.text())
                if is_allowed:
                    self.record(pod_group, Happened.RESTARTED, reason.text())
        (self._held_up.discard if is_allowed else self._held_up.add)(gang)
        return is_allowed
