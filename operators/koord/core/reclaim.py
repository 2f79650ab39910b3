"""Whom to evict because a quota uses more than it is entitled to.

Lent capacity is taken back only where that serves a purpose: a unit of another quota (the
*claimant*) is entitled to start, does not for want of what is over, and would find nodes if nobody
was over; or the quota (or one above it) exceeds its max. So evictions come to an end: what is
evicted is not entitled to come back, nor given leftovers while the claimant waits. Only pods that
we placed are taken, since others would be placed again by whoever did so; of a gang what it can do
without, or all of it with its group. Nothing is evicted here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.gang.cache import GangCache
from koord.core.gang.group import Group
from koord.core.plan import Unit, UnitKey
from koord.core.pods import Handling, Pod
from koord.core.queue import Blocked
from koord.core.quota.admission import try_charge
from koord.core.quota.capacity import add_up, subtract
from koord.core.quota.ledger import Account, Ledger, mask
from koord.core.quota.model import ROOT, QuotaCharge, QuotaName
from koord.core.quota.plugin import Quotas
from koord.core.quota.reclaim import (
    Overuse,
    RunningUnit,
    choose_victims,
    find_entitlement,
    find_overuse,
    is_rounding,
)
from koord.core.quota.usage import count_devices
from koord.core.state import ClusterState
from koord.core.topology_constraint import Rank, rank_member
from koord.core.units import Amounts

MOST_TRIED: Final = 32
"""Units for which nodes are looked at, per quota and time."""
_YET_TO_START: Final = 1e11
"""After all that has started, in seconds since the epoch; from there on by when it was made."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Pods that go together or not at all, what their quota uses too much of, and for whom."""

    key: str
    pods: tuple[Pod, ...]
    over: tuple[Overuse, ...]
    claimant: UnitKey = ""


@dataclass(frozen=True, slots=True)
class Exempt:
    """What is not to be chosen: units by key, and pods (uids) that are on their way out already."""

    units: Collection[str] = ()
    leaving: Collection[str] = ()


def plan_revocations(
    state: ClusterState,
    ledger: Ledger,
    name: QuotaName,
    blocked: Iterable[Blocked],
    exempt: Exempt = Exempt(),
) -> tuple[Reclaim, ...]:
    """Return who of a quota is to go; ``blocked`` are the units that wait, and why."""
    cut = _choose(state, ledger, name, exempt)
    if not cut.pods:
        return ()
    claimant = ""
    if not any(_exceeds_max(ledger, one) for one in cut.over):
        claimant = _find_claimant(state, ledger, cut, blocked)
        if not claimant:
            return ()
    return tuple(Reclaim(one.unit.key, one.pods, cut.over, claimant) for one in cut.alone)


def can_stay(book: GangCache, pods: Collection[Pod]) -> bool:
    """Whether pods that are marked to go are enough to go on, should they not be evicted."""
    alive = Counter(pod.gang.key for pod in pods if pod.gang is not None)
    for gang, left in alive.items():
        spec, tally = book.spec(gang), book.tally(gang)
        if spec is not None and left + tally.placed + tally.succeeded < spec.min_member:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A unit, and all pods that go with it."""

    unit: RunningUnit
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """What a quota uses too much of, and who is to go for that; ``pods`` are all who go.

    ``alone`` are the units, surplus without its core; ``freed`` is what it uses less then, what is
    on its way out included.
    """

    quota: QuotaName
    over: tuple[Overuse, ...] = ()
    alone: tuple[_Candidate, ...] = ()
    freed: Amounts = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()


def _choose(state: ClusterState, ledger: Ledger, name: QuotaName, exempt: Exempt) -> _Cut:
    view = _View(state, ledger.account(name), exempt)
    over = tuple(_find_over(ledger, view))
    if not over:
        return _Cut(name)
    units = {one.unit.key: one for one in view.list_units()}
    limit = {one.resource: one.entitled for one in over}
    chosen = choose_victims([one.unit for one in units.values()], view.used, limit, ledger.rules)
    cores = {unit.gang for unit in chosen if unit.gang and not unit.part}
    alone = tuple(units[one.key] for one in chosen if not one.part or one.gang not in cores)
    going = subtract(ledger.account(name).used, view.used)
    freed = add_up((going, *(unit.request for unit in chosen)))
    return _Cut(name, over, alone, freed, tuple(pod for one in alone for pod in one.pods))


class _View:
    """One quota and its pods."""

    def __init__(self, state: ClusterState, account: Account, exempt: Exempt) -> None:
        self.account = account
        self._state = state
        self._exempt = exempt
        self._mine = [
            pod
            for pod in state.pods.values()
            if _has_place(pod) and state.quotas.quota_of(pod) == account.spec.name
        ]
        leaving = add_up(self._ask(pod) for pod in self._mine if self._is_leaving(pod))
        self.used = {key: amount - leaving.get(key, 0) for key, amount in account.used.items()}

    def list_units(self) -> Iterator[_Candidate]:
        """Yield what may go, and what must stay."""
        groups: dict[str, Group] = {}
        for pod in self._mine:
            if self._is_leaving(pod):
                continue
            if pod.gang is None:
                unit = RunningUnit(pod.uid, {}, pod.priority, _start(pod))
                yield self._make(unit, (pod,))
            else:
                group = self._state.gangs.group(pod.gang.key)
                groups[group.id] = group
        for group in groups.values():
            yield from self._divide(group)

    def _divide(self, group: Group) -> Iterator[_Candidate]:
        """Yield the surplus of a group, then its core."""
        members = tuple(
            pod
            for gang in group.gangs
            for pod in self._state.gangs.members(gang).values()
            if _has_place(pod) and not self._is_leaving(pod)
        )
        if any(pod.uid in self._state.assumed for pod in members):
            return  # it is being started, or restored
        rank = (max(pod.priority for pod in members), min(map(_start, members)))
        spares = [pod for gang in group.gangs for pod in self._spares_of(gang)]
        for part, pod in enumerate(reversed(spares), start=1):
            unit = RunningUnit(pod.uid, {}, *rank, gang=group.id, part=part)
            yield self._make(unit, (pod,))
        yield self._make(RunningUnit(group.id, {}, *rank, gang=group.id), members, spares)

    def _spares_of(self, gang: str) -> list[Pod]:
        """Return the members that a gang can do without, those that go first in front."""
        book = self._state.gangs
        spec = book.spec(gang)
        if spec is None:
            return []
        tally = book.tally(gang)
        leaving = sum(uid in self._exempt.leaving for uid in book.members(gang))
        count = tally.placed - leaving + tally.succeeded - spec.min_member
        free = [
            pod
            for pod in book.members(gang).values()
            if _has_place(pod) and not self._is_leaving(pod) and self._may_go(pod)
        ]
        return sorted(free, key=_rank, reverse=True)[: max(0, count)]

    def _make(
        self, unit: RunningUnit, pods: tuple[Pod, ...], besides: Collection[Pod] = ()
    ) -> _Candidate:
        """Return a unit with what its pods ask, but for those that may go ``besides``."""
        asked = add_up(self._ask(pod) for pod in pods if pod not in besides)
        is_non_preemptible = unit.key in self._exempt.units or not all(map(self._may_go, pods))
        return _Candidate(replace(unit, request=asked, is_non_preemptible=is_non_preemptible), pods)

    def _ask(self, pod: Pod) -> Amounts:
        asked = count_devices(dict(pod.shape.requests), self._state.quotas.rules)
        return mask(asked, self.account)

    def _may_go(self, pod: Pod) -> bool:
        """Whether a pod is ours to take: in this quota alone, evictable, and not being started."""
        return (
            self._state.quotas.quota_of(pod) == self.account.spec.name
            and not pod.is_non_preemptible
            and pod.uid not in self._state.assumed
            and (pod.handling is not Handling.NOT_OURS or pod.recorded is not None)
        )

    def _is_leaving(self, pod: Pod) -> bool:
        return pod.is_terminating or pod.uid in self._exempt.leaving


def _find_over(ledger: Ledger, view: _View) -> Iterator[Overuse]:
    name = view.account.spec.name
    for key, entitled in sorted(find_entitlement(ledger, name).items()):
        over = Overuse(name, key, view.used.get(key, 0), entitled)
        if over.over > 0 and (_exceeds_max(ledger, over) or not is_rounding(ledger, over)):
            yield over


def _exceeds_max(ledger: Ledger, over: Overuse) -> bool:
    accounts = (ledger.account(name) for name in ledger.account(over.quota).path)
    return any(
        one.used.get(over.resource, 0) > one.spec.max.get(over.resource, one.used[over.resource])
        for one in accounts
        if over.resource in one.used
    )


def _find_claimant(
    state: ClusterState, ledger: Ledger, cut: _Cut, blocked: Iterable[Blocked]
) -> UnitKey:
    """Return the first unit that would start if what is over was taken back; empty if none."""
    name, keys = cut.quota, {one.resource for one in cut.over}
    waiting = [one.unit for one in blocked if one.reason.is_capacity]
    legal = {unit.key for unit in waiting if _may_take(state, ledger, unit, cut)}
    room = _Room(ledger, name, keys)
    nodes = _Nodes(state, ledger, cut)
    mark = ledger.checkpoint()
    ledger.charge(QuotaCharge(name, {key: -amount for key, amount in cut.freed.items()}))
    after = ledger.checkpoint()
    found = ""
    for unit in waiting:
        charges = _charges_of(state, unit)
        may_claim = unit.key in legal and _is_claim(charges, name, keys, ledger)
        is_entitled = may_claim and try_charge(ledger, charges) is None
        if is_entitled and room.is_enough() and nodes.can_take(unit):
            found = unit.key
            break
        ledger.rollback(after)
    ledger.rollback(mark)
    return found


def _may_take(state: ClusterState, ledger: Ledger, unit: Unit, cut: _Cut) -> bool:
    """Whether a quota may lose something for a unit: with all above it that the unit is not under.

    Children of one parent take back from each other; what their parent is entitled to stays there.
    """
    names = {state.quotas.quota_of(pod) for pod in unit.pods[:1]}
    around = {above for name in names if ledger.find(name) for above in ledger.account(name).path}
    apart = [name for name in ledger.account(cut.quota).path if name not in around]
    if not apart:
        return False
    used, entitled = ledger.account(apart[-1]).used, find_entitlement(ledger, apart[-1])
    return any(used.get(one.resource, 0) > entitled.get(one.resource, 0) for one in cut.over)


class _Nodes:
    """Whether nodes take a unit once a quota is over no more, or else once nobody is."""

    def __init__(self, state: ClusterState, ledger: Ledger, cut: _Cut) -> None:
        self._state = state
        self._ledger = ledger
        self._cut = cut
        self._others: list[Pod] | None = None
        self._asked = 0

    def can_take(self, unit: Unit) -> bool:
        """Plan the unit on nodes without those who go."""
        self._asked += 1
        if self._asked > MOST_TRIED:
            return False
        return self._fits(unit, self._cut.pods) or self._fits(
            unit, [*self._cut.pods, *self._find_others()]
        )

    def _find_others(self) -> list[Pod]:
        """Return who would go of all other quotas that are over."""
        if self._others is None:
            names = {one.quota for one in find_overuse(self._ledger)} - {self._cut.quota}
            cuts = (_choose(self._state, self._ledger, one, Exempt()) for one in sorted(names))
            self._others = [pod for cut in cuts for pod in cut.pods]
        return self._others

    def _fits(self, unit: Unit, gone: Iterable[Pod]) -> bool:
        cycle = self._state.open_cycle(without={Quotas.name})  # they have been asked
        cycle.remove(gone)
        return bool(plan(cycle, (unit,), Scoring()).placements)


class _Room:
    """Whether a tree has enough of some resources, once nobody else is over either."""

    def __init__(self, ledger: Ledger, name: QuotaName, keys: Collection[str]) -> None:
        snapshot = ledger.solution(name).inputs
        self._ledger = ledger
        self._top = snapshot.tree.children(ROOT)
        self._most = {key: snapshot.total.get(key, 0) for key in keys}
        for one in find_overuse(ledger):
            spec = snapshot.tree.spec(one.quota)
            is_other = spec is not None and not spec.is_parent and one.quota != name
            if is_other and one.resource in self._most:
                self._most[one.resource] += one.over

    def is_enough(self) -> bool:
        """Whether all that is charged now fits."""
        return all(self._ledger.used_by(self._top, key) <= most for key, most in self._most.items())


def _is_claim(
    charges: Sequence[QuotaCharge], name: QuotaName, keys: Collection[str], ledger: Ledger
) -> bool:
    """Whether a unit of other quotas asks for what is over."""
    return all(one.quota != name and ledger.find(one.quota) for one in charges) and any(
        one.request.get(key, 0) > 0 for one in charges for key in keys
    )


def _has_place(pod: Pod) -> bool:
    is_released = pod.recorded is not None and not pod.is_gated
    return (bool(pod.node) or is_released) and not pod.phase.is_terminal


def _start(pod: Pod) -> float:
    """Return when a pod has started, which may be long after it was made."""
    return pod.started or _YET_TO_START + pod.created


def _rank(pod: Pod) -> Rank:
    return rank_member(pod.index, pod.name, pod.uid)


def _charges_of(state: ClusterState, unit: Unit) -> list[QuotaCharge]:
    """Return what a unit asks at least, of each quota."""
    asked: dict[QuotaName, list[Amounts]] = {}
    fixed: dict[QuotaName, list[Amounts]] = {}
    for demand in unit.demands:
        for pod in demand.pods[: demand.required] or demand.pods[:1]:
            if pod.recorded is None or pod.is_gated:
                name = state.quotas.quota_of(pod)
                amounts = count_devices(dict(pod.shape.requests), state.quotas.rules)
                asked.setdefault(name, []).append(amounts)
                if pod.is_non_preemptible:
                    fixed.setdefault(name, []).append(amounts)
    return [
        QuotaCharge(name, add_up(some), add_up(fixed.get(name, ())))
        for name, some in sorted(asked.items())
    ]
