"""Carries out restarts of gangs: what is left of a gang is evicted, so that it starts anew.

All of it or nothing: while a disruption budget does not let all of it go, nobody is evicted, for
what is left would be of no more use than before. Users are told that it is held up.

Level-triggered, as all of placement: whether a gang is to go is read from its members every time,
and an eviction that failed is tried again for as long as it still is. A start that was cut off is
given the wait time of the gang, counted from when it was first seen.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.core.gang.failure import Restart, find_restart
from koord.core.gang.model import GangKey, PodGroup
from koord.core.gang.reasons import RestartingGang, RestartProtected
from koord.core.pods import Pod
from koord.core.reasons import Reason
from koord.core.state import ClusterState
from koord.kube.evictor import Eviction

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
"""How long an eviction that failed is left alone."""
LOOK_AGAIN_SECONDS: Final = 1.0
"""When a gang is looked at again of which members are being written."""


class GangEvictor(Protocol):
    """Who evicts pods."""

    async def may_go(self, pods: tuple[Pod, ...]) -> bool:
        """Tell whether all of them could be evicted now."""

    async def evict(self, pod: Pod) -> Eviction:
        """Evict a pod, and no other of its name."""


class RestartReporter(Protocol):
    """Who tells users."""

    def announce_event(self, pod_group: PodGroup, reason: Reason, note: str) -> None:
        """Emit one event on a PodGroup."""


@dataclass(slots=True)
class GangRestarts:
    """Looks at gangs that changed; evicts at most once at a time per gang.

    ``is_committing`` tells whether members of a gang are being written: what is about to get its
    node is not lost. ``clock`` gives seconds that never go back.
    """

    state: ClusterState
    evictor: GangEvictor
    announcer: RestartReporter
    clock: Callable[[], float]
    is_committing: Callable[[GangKey], bool] = field(default=lambda _: False)
    _due: dict[GangKey, float] = field(default_factory=dict)
    _cut_off_since: dict[GangKey, float] = field(default_factory=dict)
    _going: dict[GangKey, tuple[GangKey, ...]] = field(default_factory=dict)
    """Gangs that are carried out -> all that go with them, as it was when they were taken."""
    _held_up: set[GangKey] = field(default_factory=set)
    """Gangs of which users were told that they cannot be evicted."""

    def note(self, gangs: Iterable[GangKey]) -> None:
        """Look at these gangs next time."""
        self._due |= dict.fromkeys(gangs, self.clock())

    def next_due(self) -> float | None:
        """Return when there is something to look at."""
        return min(self._due.values(), default=None)

    def take(self) -> list[Restart]:
        """Return the restarts to be carried out now."""
        now = self.clock()
        taken: list[Restart] = []
        for gang in sorted(gang for gang, due in self._due.items() if due <= now):
            del self._due[gang]
            restart = None if self._is_going(gang) else self._judge(gang, now)
            if restart is not None:
                self._going[gang] = self.state.book.group(gang).gangs
                taken.append(restart)
        return taken

    def _is_going(self, gang: GangKey) -> bool:
        return any(gang in together for together in self._going.values())

    def _judge(self, gang: GangKey, now: float) -> Restart | None:
        if self._is_in_flight(gang):
            self._due[gang] = now + LOOK_AGAIN_SECONDS
            return None
        restart = find_restart(self.state.book, gang)
        if restart is None:
            self._held_up.discard(gang)
        if restart is None or restart.lost:
            self._cut_off_since.pop(gang, None)
            return restart
        spec = self.state.book.spec(gang)
        since = self._cut_off_since.setdefault(gang, now)
        until = since + (spec.wait_seconds if spec is not None else 0)
        if now >= until:
            return restart
        self._due[gang] = until
        return None

    def _is_in_flight(self, gang: GangKey) -> bool:
        """Whether members are being placed, or are and the watch has not shown it."""
        assumed, members = self.state.assumed, self.state.book.members(gang)
        return self.is_committing(gang) or any(uid in assumed for uid in members)

    async def carry_out(self, restart: Restart) -> None:
        """Evict every member; what fails is looked at again."""
        outcomes: list[Eviction] = []
        try:
            if await self._may_go(restart):
                outcomes = await asyncio.gather(*map(self.evictor.evict, restart.pods))
        finally:
            self._going.pop(restart.gang, None)
        failed = sum(not one.is_done for one in outcomes)
        if failed:
            log.warning(
                "members of a gang could not be evicted",
                extra={"gang": restart.gang, "pods": failed},
            )
        # Also if all went well: what the watch has yet to show is looked at then.
        self._due[restart.gang] = self.clock() + AGAIN_SECONDS

    async def _may_go(self, restart: Restart) -> bool:
        """Ask whether all of a gang may be evicted, and tell users."""
        gang, counts = restart.gang, (restart.lost, restart.unbound, len(restart.pods))
        is_allowed = await self.evictor.may_go(restart.pods)
        reason = RestartingGang(*counts) if is_allowed else RestartProtected(*counts)
        if is_allowed or gang not in self._held_up:
            log.info(reason.text(), extra={"gang": gang, "pods": len(restart.pods)})
            pod_group = self.state.book.pod_group(gang)
            if pod_group is not None:
                self.announcer.announce_event(pod_group, reason, reason.text())
        (self._held_up.discard if is_allowed else self._held_up.add)(gang)
        return is_allowed
