"""The policy of restarts: evicts the remaining members of a gang that cannot continue.

All or nothing: while a PodDisruptionBudget does not allow evicting all of them, none is evicted,
because a partial gang is useless; users see ``RestartProtected``.

Level-triggered like placement: whether a gang must restart is derived from its members every time,
and a failed eviction is retried while that holds. An interrupted start gets the gang's wait time,
counted from when it was first observed.

A restart that is not allowed costs requests, and whoever owns the gang decides whether it is
allowed. So a gang pauses after each one, longer every time, whatever it looks like meanwhile, and
all gangs of a namespace share a number of restarts per minute.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from typing_extensions import override

from koord.controllers.eviction import EvictionController, EvictionPolicy, EvictionRun
from koord.controllers.status_publishing import PlacementAnnouncer
from koord.core.eviction.limits import EvictionLimit, LimitScope, Pauses
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.gang.failure import Restart, find_restart
from koord.core.gang.reasons import RestartingGang, RestartProtected
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.pods import Pod
from koord.isolation import Isolation
from koord.kube.evictor import Evictor

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""When a failed eviction is retried; each failure doubles it."""
LONGEST_PAUSE_SECONDS: Final = 120.0
REMEMBERED_SECONDS: Final = 3600.0
"""How long it counts that a gang could not be restarted: others come first."""
CHECK_AGAIN_SECONDS: Final = 1.0
"""When a gang whose members are being written is checked again."""
RESTARTS: Final = "restart"
RESTART_LIMIT: Final = EvictionLimit(LimitScope.NAMESPACE, 60, RESTARTS, counts_plans=True)
"""Restarts of one namespace, tried or carried out."""


@dataclass(slots=True, eq=False)
class RestartRun(EvictionRun):
    """One restart that is being carried out."""

    restart: Restart = field(kw_only=True)
    group: tuple[GangKey, ...] = ()
    """All gangs of the group when the restart began."""


@dataclass(slots=True)
class GangRestarts(EvictionPolicy[RestartRun]):
    """Checks changed gangs; at most one restart per gang runs at a time.

    Placement asks it in its own cycle: what it has just assumed is not lost. ``is_committing``
    returns whether members of a gang are being written: a pod that is about to be bound is not
    lost either.
    """

    name: ClassVar = RESTARTS
    controller: EvictionController
    evictor: Evictor
    announcer: PlacementAnnouncer
    is_committing: Callable[[GangKey], bool] = field(default=lambda _: False)
    record: Callable[[ObservedPodGroup, Happened, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""
    isolated: Isolation = field(default_factory=lambda: Isolation("restarts"))
    _pauses: Pauses = field(
        default_factory=lambda: Pauses(
            RETRY_SECONDS, LONGEST_PAUSE_SECONDS, remembered=REMEMBERED_SECONDS
        )
    )
    _due: dict[GangKey, float] = field(default_factory=dict)
    _interrupted_since: dict[GangKey, float] = field(default_factory=dict)
    _taken: dict[GangKey, RestartRun] = field(default_factory=dict)
    _held_up: set[GangKey] = field(default_factory=set)
    """Gangs reported as protected."""

    # --- deciding --------------------------------------------------------------------------------

    def note(self, gangs: Iterable[GangKey]) -> None:
        self._due |= dict.fromkeys(gangs, self.controller.clock())

    def next_due(self) -> float | None:
        return min(self._due.values(), default=None)

    def take(self) -> list[Restart]:
        now = self.controller.clock()
        due = [gang for gang, at in self._due.items() if at <= now]
        taken: list[Restart] = []
        for gang in sorted(due, key=lambda gang: (self._pauses.failures(gang), gang)):
            del self._due[gang]
            restart = None
            with self.isolated.of(gang, now):
                restart = None if self._is_restarting(gang) else self._check(gang, now)
            again_at = self.isolated.again_at(gang)
            if restart is not None and (until := self._begin(restart, now)) > now:
                restart, again_at = None, until
            if again_at is not None:
                self._due[gang] = again_at
            if restart is not None:
                taken.append(restart)
        if taken:
            self._pauses.drop_old(now)
        return taken

    def _begin(self, restart: Restart, now: float) -> float:
        """Admit a restart; return until when it has to wait, if that has not passed."""
        gang = restart.gang
        if (until := self._pauses.until(gang)) > now:
            return until
        namespace = gang.partition("/")[0]
        plan = EvictionPlan(self.name, gang, restart.pods, namespace=namespace)
        until = self.controller.admit(plan, now)
        if until <= now:
            group = self.controller.state.gangs.group(gang).gangs
            # Who is left of a gang that cannot go on has no work to save.
            run = RestartRun(plan, now, waits=False, restart=restart, group=group)
            self._taken[gang] = run
        return until

    def _is_restarting(self, gang: GangKey) -> bool:
        return any(gang in run.group for run in self._taken.values())

    def _check(self, gang: GangKey, now: float) -> Restart | None:
        gangs = self.controller.state.gangs
        if self._is_in_flight(gang):
            self._due[gang] = now + CHECK_AGAIN_SECONDS
            return None
        restart = find_restart(gangs, gang)
        if restart is None:
            self._held_up.discard(gang)
        if restart is None or restart.lost:
            self._interrupted_since.pop(gang, None)
            return restart
        spec = gangs.spec(gang)
        since = self._interrupted_since.setdefault(gang, now)
        until = since + (spec.wait_seconds if spec is not None else 0)
        if now >= until:
            return restart
        self._due[gang] = until
        return None

    def _is_in_flight(self, gang: GangKey) -> bool:
        """Whether members are being bound, or the watch has not confirmed it."""
        state = self.controller.state
        members = state.gangs.members(gang)
        return self.is_committing(gang) or any(uid in state.assumed for uid in members)

    # --- carrying out ----------------------------------------------------------------------------

    async def carry_out(self, restart: Restart) -> None:
        await self.controller.carry_out(self, self._taken[restart.gang])

    @override
    async def prepare(self, run: RestartRun) -> Outcome | None:
        """Ask whether all of a gang may be evicted now; reported to users."""
        restart = run.restart
        gang = restart.gang
        counts = restart.lost, restart.unbound, len(restart.pods), restart.what
        is_allowed = await self.evictor.may_go(restart.pods)
        reason = RestartingGang(*counts) if is_allowed else RestartProtected(*counts)
        if is_allowed or gang not in self._held_up:
            log.info(reason.text(), extra={"gang": gang, "pods": len(restart.pods)})
            pod_group = self.controller.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.announcer.announce_event(pod_group, reason, reason.text())
                if is_allowed:
                    self.record(pod_group, Happened.RESTARTED, reason.text())
        (self._held_up.discard if is_allowed else self._held_up.add)(gang)
        return None if is_allowed else Outcome.PROTECTED

    @override
    async def mark(self, run: RestartRun, pod: Pod, seconds: float) -> bool:
        # Each pod is marked in the moment in which it goes: no process has to find it again.
        return True

    @override
    def choose_next(self, run: RestartRun, left: Sequence[Pod]) -> Sequence[Pod]:
        """Return all members, also those that have no node yet."""
        return run.restart.pods

    @override
    async def evict(self, run: RestartRun, pods: Sequence[Pod]) -> list[Pod]:
        await self.controller.evict_each(self.name, pods, self.evictor.restart)
        failed = [pod for pod in pods if pod.uid not in self.controller.evicted]
        if failed:
            log.warning(
                "Could not evict members of a gang",
                extra={"gang": run.restart.gang, "pods": len(failed)},
            )
        return failed

    @override
    async def cancel(self, run: RestartRun, outcome: Outcome) -> None:
        """Leave the gang as it is: what was refused is unmarked, and all is tried again."""

    @override
    def note_end(self, run: RestartRun, outcome: Outcome) -> None:
        gang, now = run.restart.gang, self.controller.clock()
        del self._taken[gang]
        if outcome is Outcome.ENDED:
            self._pauses.end(gang)
            # Also after success, to check what the watch delivers until then.
            self._due[gang] = now + RETRY_SECONDS
        else:
            self._due[gang] = self._pauses.note(gang, now)
