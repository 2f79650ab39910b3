"""Chooses the victims when a quota uses more than it is entitled to. Nothing is evicted here.

Over-use is reclaimed in two cases only. Either units of other quotas (the *beneficiaries*) are
entitled to start, lack the resources that are over-used, and fit on nodes without the over-use
(``reclaim_need``); then no more goes than they need. Or the quota, or one above it, exceeds its
max. So evictions come to an end: victims are not entitled to start again, and get no leftovers
while the first beneficiary waits. Pods that hang (``Patience``) give nothing back: the quota still
uses their room, so others of it go. Victims are pods that we placed, because other schedulers would
place theirs again: the surplus of a gang, or the whole gang with its group. So are reservations:
they lose their room, and wait for another. One that pods use goes with these pods, whose room it
would hold again otherwise.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from koord.core.engine.refused_units import Blocked
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import (
    find_core_protection,
    find_protection,
    find_surplus,
    is_placed,
    moment_of,
)
from koord.core.eviction.model import NOBODY, Exempt, Moment
from koord.core.eviction.protection import is_foreign, is_spared
from koord.core.eviction.reasons import Protection, tell_protection
from koord.core.eviction.reclaim_need import ReclaimUnit, Selection, find_need, without_parts
from koord.core.gang.cache import GangCache
from koord.core.gang.group import Group
from koord.core.gang.lost_members import count_strength
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import named, plural
from koord.core.model.units import Amounts
from koord.core.quota.entitlement import Reach
from koord.core.quota.ledger import Account, Ledger, mask
from koord.core.quota.model import QuotaName, add_up
from koord.core.quota.reclaim import (
    Overuse,
    RunningUnit,
    choose_victims,
    find_entitlement,
    find_overuse,
    is_rounding,
    least_important_first,
    write_overuse,
)
from koord.core.quota.usage import count_devices
from koord.core.reservation.lifecycle import HIGHEST
from koord.core.reservation.plugin import Reservations

_YET_TO_START: Final = 1e11
"""Start time of pods that have not started, plus their creation time: later than all others."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Victims that are evicted together or not at all; the over-use; the unit that benefits."""

    key: str
    pods: tuple[Pod, ...]
    over: tuple[Overuse, ...]
    beneficiary: UnitKey = ""


def plan_reclaim(
    state: ClusterState,
    ledger: Ledger,
    name: QuotaName,
    blocked: Iterable[Blocked],
    exempt: Exempt = NOBODY,
) -> tuple[Reclaim, ...]:
    """Return the victims of a quota; ``blocked`` are the waiting units with their reasons."""
    selection = _choose(state, ledger, name, exempt)
    if not selection.units:
        return ()
    units, beneficiary = selection.units, ""
    if not any(_exceeds_max(ledger, overuse) for overuse in selection.over):
        need = find_need(
            state, ledger, selection, blocked, partial(_choose_others, state, ledger, exempt)
        )
        units, beneficiary = need.units, need.beneficiary
    return tuple(
        Reclaim(reclaim_unit.unit.key, reclaim_unit.pods, selection.over, beneficiary)
        for reclaim_unit in without_parts(units)
    )


def write_plan(chosen: Sequence[Reclaim], beneficiary: str, *, is_dry: bool, compat: bool) -> str:
    """Say who is to be evicted of one quota, for whom, and why."""
    groups = {pod.gang.key for reclaim in chosen for pod in reclaim.pods if pod.gang is not None}
    names = sorted(
        groups | {pod.title for reclaim in chosen for pod in reclaim.pods if pod.gang is None}
    )
    reservations = sum(
        pod.handling is Handling.RESERVE for reclaim in chosen for pod in reclaim.pods
    )
    counts = {
        "pod": sum(len(reclaim.pods) for reclaim in chosen) - reservations,
        "reservation": reservations,
    }
    count = " and ".join(plural(n, what) for what, n in counts.items() if n)
    whom = f" for {beneficiary}" if beneficiary else ""
    does = "would evict (dry run)" if is_dry else "evicting"
    why = write_overuse(chosen[0].over, compat=compat)
    return f"{does} {named(names)} ({count}){whom}: {why}"


def _choose_others(
    state: ClusterState, ledger: Ledger, exempt: Exempt, name: QuotaName
) -> tuple[Selection, ...]:
    """Return the victims of all other over-used quotas."""
    exempt = Exempt(patience=exempt.patience, moment=exempt.moment)
    names = {overuse.quota for overuse in find_overuse(ledger)} - {name}
    return tuple(_choose(state, ledger, name, exempt) for name in sorted(names))


def find_reach(state: ClusterState, ledger: Ledger, name: QuotaName, key: str) -> Reach:
    """Return how much of a resource reclaim may take from a quota at some time, and what stays."""
    selection = _choose(state, ledger, name, NOBODY)
    if not any(overuse.resource == key for overuse in selection.over):
        return Reach()
    movable = sum(reclaim_unit.unit.request.get(key, 0) for reclaim_unit in selection.running)
    kept: Counter[Protection] = Counter()
    view = _QuotaPods(state, ledger.account(name), NOBODY)
    for reclaim_unit in view.list_units():
        if reclaim_unit.unit.is_non_preemptible:
            kept[view.find_protection(reclaim_unit.pods)] += reclaim_unit.unit.request.get(key, 0)
    for pod in view.pods:
        if view.is_kept(pod):
            kept[Protection.USED] += view.ask_all(pod).get(key, 0)
    stays = ((tell_protection(why), kept[why]) for why in Protection if kept[why])
    return Reach(movable, tuple(stays))


def find_hold_protection(
    state: ClusterState, pod: Pod, *, goes_with_users: bool = False
) -> Protection | None:
    """Return why the room of a reservation is not reclaimed; None if it may be.

    Its priority does not count here: nobody checks the class that a template names.
    """
    if is_spared(state, pod):
        return Protection.LABEL
    account = state.plugin(Reservations).accounts.get(pod.uid)
    if account is None or (account.pods and not goes_with_users):
        return Protection.USED
    return Protection.STARTING if pod.uid in state.assumed else None


def can_keep_running(gangs: GangCache, pods: Collection[Pod]) -> bool:
    """Whether gangs have their minimum if these pods, marked for eviction, are not evicted."""
    alive = Counter(pod.gang.key for pod in pods if pod.gang is not None)
    for gang, left in alive.items():
        spec = gangs.spec(gang)
        if spec is not None and left + count_strength(gangs, gang) < spec.min_member:
            return False
    return True


def _choose(state: ClusterState, ledger: Ledger, name: QuotaName, exempt: Exempt) -> Selection:
    view = _QuotaPods(state, ledger.account(name), exempt)
    over = tuple(_find_over(ledger, view))
    if not over:
        return Selection(name, terminating=view.terminating)
    units = {reclaim_unit.unit.key: reclaim_unit for reclaim_unit in view.list_units()}
    limit = {overuse.resource: overuse.entitled for overuse in over}
    chosen = choose_victims(
        [reclaim_unit.unit for reclaim_unit in units.values()], view.used, limit, ledger.rules
    )
    running = [
        reclaim_unit for reclaim_unit in units.values() if not reclaim_unit.unit.is_non_preemptible
    ]
    running.sort(key=lambda reclaim_unit: least_important_first(reclaim_unit.unit), reverse=True)
    cut = tuple(units[running_unit.key] for running_unit in chosen)
    return Selection(name, over, cut, tuple(running), view.leaving, view.terminating)


class _QuotaPods:
    """One quota and its pods."""

    def __init__(self, state: ClusterState, account: Account, exempt: Exempt) -> None:
        self.account = account
        self._state = state
        self._exempt = exempt
        self._moment = exempt.moment
        self._patience = exempt.patience
        self._moments: dict[str, Moment] = {}
        """Group -> the moment with what its gangs have lost already."""
        self._reservations = state.plugin(Reservations)
        self.pods = [
            pod
            for pod in state.pods.values()
            if is_placed(pod) and state.quotas.quota_of(pod) == account.spec.name
        ]
        self._has_hanging = any(self._patience.hangs(pod, self._moment.now) for pod in self.pods)
        self.terminating = tuple(pod for pod in self.pods if self._frees_room(pod))
        self._users: dict[str, tuple[Pod, ...]] = {}
        """Reservation -> the pods that use it, where all of them go with it."""
        self._reservations_of: dict[str, list[Pod]] = {}
        """Group -> such reservations, of those that its members use."""
        self._join_users()
        self.leaving = add_up(map(self._ask, self.terminating))
        self.used = {key: amount - self.leaving.get(key, 0) for key, amount in account.used.items()}

    def list_units(self) -> Iterator[ReclaimUnit]:
        """Yield all running units of the quota, evictable or not."""
        groups: dict[str, Group] = {}
        joined = {user.uid for users in self._users.values() for user in users if user.gang is None}
        joined |= {
            pod.uid for of_reservations in self._reservations_of.values() for pod in of_reservations
        }
        for pod in self.pods:
            if self._is_terminating(pod) or pod.uid in joined:
                continue
            if pod.gang is None:
                pods = (pod, *self._users.get(pod.uid, ()))
                among = pods[1:] or pods
                rank = max(map(_priority, among)), min(map(_start, among))
                yield self._make(RunningUnit(pod.uid, {}, *rank), pods)
            else:
                group = self._state.gangs.group(pod.gang.key)
                groups[group.id] = group
        for group in groups.values():
            yield from self._split_group(group)

    def _split_group(self, group: Group) -> Iterator[ReclaimUnit]:
        """Yield the surplus pods of a group, then its core."""
        placed = [
            pod
            for gang in group.gangs
            for pod in self._state.gangs.members(gang).values()
            if is_placed(pod) and not self._is_terminating(pod) and not is_foreign(pod)
        ]
        # A gang of other users that is in the group does not go with it, nor does it spare it.
        users = {pod.namespace for pod in placed if self._is_own(pod)}
        members = tuple(pod for pod in placed if pod.namespace in users)
        if not members:
            return
        if any(pod.uid in self._state.assumed for pod in members):
            return  # being started or repaired
        rank = (max(map(_priority, members)), min(map(_start, members)))
        surplus = [pod for gang in group.gangs for pod in self._surplus_of(gang)]
        for part, pod in enumerate(reversed(surplus), start=1):
            unit = RunningUnit(pod.uid, {}, *rank, gang=group.id, part=part)
            yield self._make(unit, (pod,))
        # Reservations first: once they are gone, nobody holds the room of the members.
        members = (*self._reservations_of.get(group.id, ()), *members)
        yield self._make(RunningUnit(group.id, {}, *rank, gang=group.id), members, surplus)

    def _surplus_of(self, gang: str) -> list[Pod]:
        """Return the members above the minimum of a gang, the first victims first."""
        evictable = [
            pod
            for pod in self._state.gangs.members(gang).values()
            if is_placed(pod) and not self._is_terminating(pod) and self._is_evictable(pod)
        ]
        return find_surplus(self._state, gang, evictable, self._exempt.terminating)

    def _make(
        self, unit: RunningUnit, pods: tuple[Pod, ...], surplus: Collection[Pod] = ()
    ) -> ReclaimUnit:
        """Return a unit with the requests of its pods, without those of its ``surplus``."""
        with_it = {pod.uid for pod in pods}
        request = add_up(
            self.ask_all(pod) if self._reservation_of(pod) in with_it else self._ask(pod)
            for pod in pods
            if self._is_own(pod) and (pod not in surplus or self.is_inside(pod))
        )
        is_non_preemptible = unit.key in self._exempt.units or not self._may_end(pods)
        return ReclaimUnit(
            replace(unit, request=request, is_non_preemptible=is_non_preemptible), pods
        )

    def _ask(self, pod: Pod) -> Amounts:
        """Return what the quota uses less without a pod: nothing if a reservation keeps it."""
        return {} if self.is_inside(pod) else self.ask_all(pod)

    def is_inside(self, pod: Pod) -> bool:
        """Whether a reservation that stays holds the room of a pod once that has gone."""
        reservation = self._reservation_of(pod)
        return bool(reservation) and reservation not in self._exempt.terminating

    def is_kept(self, pod: Pod) -> bool:
        """Whether a pod is in a reservation that does not go with it."""
        return self.is_inside(pod) and self._reservation_of(pod) not in self._users

    def _reservation_of(self, pod: Pod) -> str:
        """Return the reservation that a pod uses; empty for none."""
        use = self._reservations.given_to(pod.uid)
        return use.uid if use is not None and use.uid in self._reservations.accounts else ""

    def _join_users(self) -> None:
        """Find the reservations that may go with all pods that use them.

        These are of this quota, and in no gang or all in one group. What holds certain devices or
        CPUs stays.
        """
        mine = {pod.uid: pod for pod in self.pods if not self._is_terminating(pod)}
        for uid, pod in mine.items():
            if pod.handling is not Handling.RESERVE or pod.gang is not None:
                continue
            users = [mine.get(user.uid) for user in self._reservations.users_of(uid)]
            pods = tuple(user for user in users if user is not None)
            groups = {self._group_of(pod) for pod in pods}
            if len(pods) < len(users) or len(groups) != 1 or uid in self._reservations.exact:
                continue
            self._users[uid] = pods
            if group := groups.pop():
                self._reservations_of.setdefault(group, []).append(pod)

    def _group_of(self, pod: Pod) -> str:
        return "" if pod.gang is None else self._state.gangs.group(pod.gang.key).id

    def ask_all(self, pod: Pod) -> Amounts:
        """Return what the quota counts for a pod."""
        requests = count_devices(
            dict(self._state.quotas.requests_of(pod)), self._state.quotas.rules
        )
        return mask(requests, self.account)

    def _is_evictable(self, pod: Pod) -> bool:
        """Whether a pod of this quota itself may be evicted."""
        return self._is_own(pod) and self._find_protection(pod) is None

    def _is_own(self, pod: Pod) -> bool:
        return self._state.quotas.quota_of(pod) == self.account.spec.name

    def _may_end(self, pods: Sequence[Pod]) -> bool:
        """Whether pods may be evicted together; others than those of this quota are of its users.

        A label chooses the quota of a pod: one member in another quota spares nobody.
        """
        users = {pod.namespace for pod in pods if self._is_own(pod)}
        are_theirs = all(pod.namespace in users for pod in pods)
        return are_theirs and not any(self._find_protections(pods).values())

    def find_protection(self, pods: Sequence[Pod]) -> Protection:
        """Return why a unit that may not be evicted stays."""
        whys = set(self._find_protections(pods).values())
        return next((why for why in Protection if why in whys), Protection.GANG)

    def _find_protections(self, pods: Sequence[Pod]) -> dict[str, Protection | None]:
        whys = {pod.uid: self._find_protection(pod) for pod in pods}
        gangs = {pod.gang.key for pod in pods if pod.gang is not None} if len(pods) > 1 else ()
        surplus = {pod.uid for gang in gangs for pod in self._surplus_of(gang)}
        core = {pod.uid: pod for pod in pods if pod.gang is not None and pod.uid not in surplus}
        if not gangs or not core:
            return whys
        return whys | find_core_protection(
            self._state, core.values(), {uid: whys[uid] for uid in core}
        )

    def _find_protection(self, pod: Pod) -> Protection | None:
        if pod.handling is Handling.RESERVE:
            return find_hold_protection(self._state, pod, goes_with_users=pod.uid in self._users)
        return find_protection(self._state, pod, self._moment_of(pod))

    def _moment_of(self, pod: Pod) -> Moment:
        if pod.gang is None:
            return self._moment
        group = self._state.gangs.group(pod.gang.key)
        if group.id not in self._moments:
            self._moments[group.id] = moment_of(self._state, group.gangs, self._moment)
        return self._moments[group.id]

    def _is_terminating(self, pod: Pod) -> bool:
        return pod.is_terminating or pod.uid in self._exempt.terminating

    def _frees_room(self, pod: Pod) -> bool:
        """Whether a pod gives back what it uses.

        If one of its quota hangs, others may, too, that their owner deletes one after the other.
        """
        is_evicted = pod.is_marked or pod.uid in self._exempt.terminating
        is_doubted = self._has_hanging and not is_evicted and self._patience.is_doubtful(pod)
        hangs = is_doubted or self._patience.hangs(pod, self._moment.now)
        return self._is_terminating(pod) and not hangs


def _find_over(ledger: Ledger, view: _QuotaPods) -> Iterator[Overuse]:
    name = view.account.spec.name
    for key, entitled in sorted(find_entitlement(ledger, name).items()):
        over = Overuse(name, key, view.used.get(key, 0), entitled)
        if over.over > 0 and (_exceeds_max(ledger, over) or not is_rounding(ledger, over)):
            yield over


def _exceeds_max(ledger: Ledger, over: Overuse) -> bool:
    """Whether a quota, or one above it, uses more than its max.

    Without what other schedulers placed, which stays: otherwise one user of a quota would have
    those of others evicted by creating such pods.
    """
    key = over.resource
    for name in ledger.account(over.quota).path:
        account = ledger.account(name)
        used = account.used.get(key, 0)
        most = account.spec.max.get(key, used)
        if used - account.foreign.get(key, 0) > most:
            return True
    return False


def _priority(pod: Pod) -> int:
    """Return the priority of a pod within its quota; a reservation without class has none."""
    return 0 if pod.handling is Handling.RESERVE and pod.priority == HIGHEST else pod.priority


def _start(pod: Pod) -> float:
    return pod.started or _YET_TO_START + pod.created
