"""Keeps the placeholders of reservations, and hands their room over to owners: for ``placement``.

Schedulers of others see the pods of a node, not what we plan. So the order of writes decides
whether they find room that is meant for an owner. All writes concern pods, so whoever watches pods
sees them in this order:

1. A *guard* is created on the node: kube-scheduler puts no pod on a node that has one.
2. The placeholders of the reservation are deleted; the kubelet does not count them any more.
3. The owners are bound; owners that arrive meanwhile join in.
4. A placeholder for the rest is created, and the guard is deleted.

After a crash the next leader creates the placeholders that are missing and deletes guards that are
left. A placeholder that a kubelet rejected, or that was preempted, is created again later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakValueDictionary

from koord.controllers.coalescing import Pause
from koord.controllers.writes_in_flight import Turns, WaitObserver
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Assignment
from koord.core.model.pods import Handling
from koord.core.model.reasons import BindFailed
from koord.core.model.units import Amounts
from koord.core.reservation.model import HoldProtection, Placeholder, ReservationInfo
from koord.core.reservation.placeholders import account_of, missing, wanted
from koord.core.reservation.plugin import Reservations, find_use
from koord.kube.errors import ApiError, KubeError
from koord.kube.outcomes import Done, Outcome, Refused, Unknown
from koord.kube.retry import is_transient

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
"""After a placeholder was rejected, preempted or refused."""
_REPEAT_SECONDS: Final = 1.0
_OPEN_SECONDS: Final = 0.2
"""While a node has a guard, what failed is tried again after this time."""
_OPEN_PATIENCE_SECONDS: Final = 60.0
"""After this time the owner gives its room back: nothing has been written on it."""
_LAG_SECONDS: Final = 60.0
"""What was written is observed within this time, or never."""
_PAUSE: Final = Pause(0.02, 0.2)


class PlaceholderApi(Protocol):
    """Creates and deletes placeholders; raises ``KubeError``."""

    async def create(self, reservation: ReservationInfo, requests: Amounts) -> Placeholder: ...
    async def create_guard(self, node: str) -> Placeholder: ...
    async def delete(self, placeholder: Placeholder) -> None: ...


@dataclass(slots=True, weakref_slot=True)
class _Site:
    """A node on which placeholders may be replaced; changed under ``lock`` only."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owners: int = 0
    """Hand-overs under way; counted before the lock is taken."""
    guard: Placeholder | None = None
    opened: set[str] = field(default_factory=set)
    """Reservations that have no placeholders until their owners are bound."""


@dataclass(slots=True)
class Placeholders:
    """The policy of a status controller, by uid of the reservation, and the turns of its owners.

    ``report`` gets what the API server says to a placeholder that it refuses; ``clock`` is
    monotonic.
    """

    state: ClusterState
    writer: PlaceholderApi
    turns: Turns
    report: Callable[[ReservationInfo, str], None]
    clock: Callable[[], float]
    _seen: int = 0
    _sites: WeakValueDictionary[str, _Site] = field(default_factory=WeakValueDictionary)
    _bound: set[str] = field(default_factory=set)
    """Owners that were bound and are not observed on their nodes yet."""
    _made: dict[str, tuple[Placeholder, float]] = field(default_factory=dict)
    """Uid -> a pod that was created and is not observed yet, and when."""
    _deleted: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that was deleted and may still be observed -> when."""
    _last_seen: dict[str, set[str]] = field(default_factory=dict)
    """Reservation -> its placeholders, as of the last look."""
    _not_before: dict[str, float] = field(default_factory=dict)
    """Reservation -> when it may get its next placeholder, if it lost one."""

    # --- the policy ------------------------------------------------------------------------------

    def changed(self) -> list[str]:
        self._forget_observed()
        changes = self._plugin.changes
        changed, self._seen = list(changes.after(self._seen)), changes.last
        return changed

    def pause_for(self, _uid: str) -> Pause:
        return _PAUSE

    async def update(self, uid: str) -> float | None:
        """Make the placeholders of a reservation right; of "": delete guards that are left."""
        if not uid:
            return await self._delete_guards()
        nodes = {placeholder.node for placeholder in self._there(uid)}
        reservation = self._plugin.reservations.get(uid)
        if reservation is not None and _is_shown(reservation):
            nodes.add(reservation.status.node)
        elif not nodes:
            self._last_seen.pop(uid, None)
            return None
        if any(self._site(node).owners for node in nodes):
            return _REPEAT_SECONDS  # The last of them does it.
        self._note_lost(uid)
        again_at = self._not_before.get(uid)
        for node in sorted(nodes):
            site = self._site(node)
            async with site.lock:
                if site.owners:
                    again_at = again_at or self.clock()
                elif await self._try(uid, self._correct(site, uid, node)) is not None:
                    again_at = self.clock() + AGAIN_SECONDS
        return None if again_at is None else max(again_at - self.clock(), _REPEAT_SECONDS)

    def _note_lost(self, uid: str) -> None:
        """Wait after placeholders ended by themselves: whoever took the room would do it again."""
        now = {placeholder.uid for placeholder in self._there(uid) if placeholder.holds}
        if self._last_seen.get(uid, set()) - now:
            self._not_before[uid] = self.clock() + AGAIN_SECONDS
        elif self._not_before.get(uid, 0.0) <= self.clock():
            self._not_before.pop(uid, None)
        self._last_seen[uid] = now

    async def _delete_guards(self) -> float | None:
        """Delete the guards of a process that has ended."""
        is_done = True
        for guard in self._there(""):
            site = self._site(guard.node)
            async with site.lock:
                if site.guard is None:
                    is_done &= await self._try("", self._delete(guard)) is None
        return None if is_done else AGAIN_SECONDS

    # --- hand-overs ------------------------------------------------------------------------------

    async def bind(
        self, member: Assignment, write: Callable[[], Awaitable[Outcome]], waits: WaitObserver
    ) -> Outcome:
        """Bind a pod; an owner gets the room of the placeholders of its reservation."""
        use = find_use(member.allocations)
        reservation = None if use is None else self._plugin.reservations.get(use.uid)
        if reservation is None or not (_is_shown(reservation) or self._there(reservation.uid)):
            return await self.turns.bind(member, write, waits)
        uid = reservation.uid
        return await self.turns.bind(
            member, lambda: self._hand_over(uid, member, write, waits), waits
        )

    async def _hand_over(
        self,
        uid: str,
        member: Assignment,
        write: Callable[[], Awaitable[Outcome]],
        waits: WaitObserver,
    ) -> Outcome:
        site = self._site(member.node)
        # Before the lock is taken: whoever has it leaves the placeholders to us.
        site.owners += 1
        try:
            async with site.lock:
                until = self.clock() + _OPEN_PATIENCE_SECONDS
                while (error := await self._open(site, uid, member.node)) is not None:
                    if self.clock() >= until:
                        return Refused(*_describe(error))
                    waits.note_waiting(member, BindFailed(member.pod.key, *_describe(error)))
                    await asyncio.sleep(_OPEN_SECONDS)
                waits.note_known(member)
            outcome = await write()
            if isinstance(outcome, Done | Unknown):
                self._bound.add(member.pod.uid)
        finally:
            # Also before the lock, and looked at under it: only the last owner closes.
            site.owners -= 1
            async with site.lock:
                if not site.owners:
                    await self._close(site, member.node)
        return outcome

    async def _open(self, site: _Site, uid: str, node: str) -> KubeError | None:
        """Delete the placeholders of a reservation behind a guard."""
        there = [placeholder for placeholder in self._there(uid) if placeholder.node == node]
        try:
            if there:
                await self._guard(site, node)
            for placeholder in there:
                await self._delete(placeholder)
        except KubeError as error:
            return error
        site.opened.add(uid)
        return None

    async def _close(self, site: _Site, node: str) -> None:
        """Create placeholders for what is left, then delete the guard."""
        for uid in sorted(site.opened):
            while (error := await self._try(uid, self._correct(site, uid, node))) is not None:
                if not is_transient(error):
                    break
                await asyncio.sleep(_OPEN_SECONDS)
        site.opened.clear()
        await self._unguard(site)

    # --- one reservation on one node, under the lock of the node ----------------------------------

    async def _correct(self, site: _Site, uid: str, node: str) -> None:
        """Have the placeholders on a node request just what is held there."""
        there, want = [], self._wanted(uid, node)
        for placeholder in self._there(uid):
            if placeholder.node == node and placeholder.holds:
                there.append(placeholder)
            elif placeholder.node == node:
                await self._delete(placeholder)
        lacking = missing(want, there)
        if any(n < 0 for n in lacking.values()):
            if want:
                await self._guard(site, node)
            for placeholder in there:
                await self._delete(placeholder)
            lacking = want
        reservation = self._plugin.reservations.get(uid)
        if lacking and reservation is not None and uid not in self._not_before:
            made = await self.writer.create(reservation, lacking)
            self._made[made.uid] = (made, self.clock())
            self._last_seen.setdefault(uid, set()).add(made.uid)
        if not site.opened:
            await self._unguard(site)

    def _wanted(self, uid: str, node: str) -> dict[str, int]:
        self._plugin.absorb()
        account = account_of(self.state, uid, is_in=self._is_in)
        is_here = account is not None and account.reservation.status.node == node
        if account is None or not is_here or not _is_shown(account.reservation):
            return {}
        return wanted(self.state, account)

    def _is_in(self, uid: str) -> bool:
        """Whether a pod has taken its part: it is bound, or left to kube-scheduler to bind."""
        pod = self.state.observed(uid)
        if pod is None or pod.node or uid in self._bound:
            return True
        return pod.handling is Handling.NOT_OURS and pod.recorded is not None

    async def _guard(self, site: _Site, node: str) -> None:
        if site.guard is None:
            site.guard = await self.writer.create_guard(node)

    async def _unguard(self, site: _Site) -> None:
        guard, site.guard = site.guard, None
        if guard is not None:
            # One that could not be deleted is observed, and deleted later.
            await self._try("", self._delete(guard))

    async def _delete(self, placeholder: Placeholder) -> None:
        # The watch may show that it is gone before the answer is here.
        self._deleted[placeholder.uid] = self.clock()
        self._last_seen.get(placeholder.reservation, set()).discard(placeholder.uid)
        try:
            await self.writer.delete(placeholder)
        except KubeError:
            del self._deleted[placeholder.uid]
            raise
        self._made.pop(placeholder.uid, None)

    async def _try(self, uid: str, write: Awaitable[None]) -> KubeError | None:
        try:
            await write
        except KubeError as error:
            log.warning("Cannot write placeholders; trying again", extra={"problem": str(error)})
            reservation = self._plugin.reservations.get(uid)
            if reservation is not None and isinstance(error, ApiError) and not is_transient(error):
                self.report(reservation, error.message)
            return error
        return None

    # --- what there is ---------------------------------------------------------------------------

    @property
    def _plugin(self) -> Reservations:
        return self.state.plugin(Reservations)

    def _site(self, node: str) -> _Site:
        return self._sites.setdefault(node, _Site())

    def _there(self, uid: str) -> list[Placeholder]:
        """Return the placeholders of a reservation (of "" the guards), as written last."""
        seen = {placeholder.uid: placeholder for placeholder in self._plugin.placeholders_of(uid)}
        made = {
            placeholder.uid: placeholder
            for placeholder, _ in self._made.values()
            if placeholder.reservation == uid
        }
        all_placeholders = made | seen
        return [
            placeholder
            for placeholder in all_placeholders.values()
            if placeholder.uid not in self._deleted
        ]

    def _forget_observed(self) -> None:
        observed, since = self._plugin.placeholders, self.clock() - _LAG_SECONDS
        self._deleted = {
            uid: at for uid, at in self._deleted.items() if uid in observed or at > since
        }
        self._made = {
            uid: made for uid, made in self._made.items() if uid not in observed and made[1] > since
        }
        for uid in list(self._bound):
            pod = self.state.observed(uid)
            if pod is None or pod.node:
                self._bound.discard(uid)


def _is_shown(reservation: ReservationInfo) -> bool:
    """Whether a reservation holds its room with placeholders."""
    is_asked = reservation.protection is HoldProtection.PLACEHOLDER
    return is_asked and reservation.status.is_active


def _describe(error: KubeError) -> tuple[int, str]:
    return (error.status, error.message) if isinstance(error, ApiError) else (0, str(error))
