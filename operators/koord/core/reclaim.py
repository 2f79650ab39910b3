"""Chooses the victims when a quota uses more than it is entitled to. Nothing is evicted here.

Over-use is reclaimed in two cases only. Either a unit of another quota (the *beneficiary*) is
entitled to start, lacks the resources that are over-used, and fits on nodes without the over-use;
or the quota, or one above it, exceeds its max. So evictions come to an end: victims are not
entitled to start again, and get no leftovers while the beneficiary waits. Victims are pods that we
placed, because other schedulers would place theirs again: the surplus of a gang, or the whole gang
with its group.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.gang.cache import GangCache
from koord.core.gang.group import Group
from koord.core.plan import Unit, UnitKey
from koord.core.pods import Handling, Pod
from koord.core.preemption.candidates import find_protection, find_surplus, is_placed
from koord.core.preemption.model import NOBODY, Exempt
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
from koord.core.units import Amounts

MOST_TRIED: Final = 32
"""Waiting units that are planned on nodes, per quota and call."""
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
    if not selection.pods:
        return ()
    beneficiary = ""
    if not any(_exceeds_max(ledger, one) for one in selection.over):
        beneficiary = _find_beneficiary(state, ledger, selection, blocked)
        if not beneficiary:
            return ()
    return tuple(
        Reclaim(one.unit.key, one.pods, selection.over, beneficiary) for one in selection.victims
    )


def can_keep_running(gangs: GangCache, pods: Collection[Pod]) -> bool:
    """Whether gangs have their minimum if these pods, marked for eviction, are not evicted."""
    alive = Counter(pod.gang.key for pod in pods if pod.gang is not None)
    for gang, left in alive.items():
        spec, tally = gangs.spec(gang), gangs.tally(gang)
        if spec is not None and left + tally.placed + tally.succeeded < spec.min_member:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A running unit and all pods that are evicted with it."""

    unit: RunningUnit
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class _Selection:
    """The over-use of a quota and its victims; ``pods`` are the pods of all victims.

    ``victims`` excludes surplus whose gang is a victim itself. ``freed`` are the resources that the
    quota uses less afterwards, including pods that are terminating already.
    """

    quota: QuotaName
    over: tuple[Overuse, ...] = ()
    victims: tuple[_Candidate, ...] = ()
    freed: Amounts = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()


def _choose(state: ClusterState, ledger: Ledger, name: QuotaName, exempt: Exempt) -> _Selection:
    view = _QuotaPods(state, ledger.account(name), exempt)
    over = tuple(_find_over(ledger, view))
    if not over:
        return _Selection(name)
    units = {one.unit.key: one for one in view.list_units()}
    limit = {one.resource: one.entitled for one in over}
    chosen = choose_victims([one.unit for one in units.values()], view.used, limit, ledger.rules)
    cores = {unit.gang for unit in chosen if unit.gang and not unit.part}
    victims = tuple(units[one.key] for one in chosen if not one.part or one.gang not in cores)
    terminating = subtract(ledger.account(name).used, view.used)
    freed = add_up((terminating, *(unit.request for unit in chosen)))
    return _Selection(name, over, victims, freed, tuple(pod for one in victims for pod in one.pods))


class _QuotaPods:
    """One quota and its pods."""

    def __init__(self, state: ClusterState, account: Account, exempt: Exempt) -> None:
        self.account = account
        self._state = state
        self._exempt = exempt
        self._mine = [
            pod
            for pod in state.pods.values()
            if is_placed(pod) and state.quotas.quota_of(pod) == account.spec.name
        ]
        terminating = add_up(self._ask(pod) for pod in self._mine if self._is_terminating(pod))
        self.used = {key: amount - terminating.get(key, 0) for key, amount in account.used.items()}

    def list_units(self) -> Iterator[_Candidate]:
        """Yield all running units of the quota, evictable or not."""
        groups: dict[str, Group] = {}
        for pod in self._mine:
            if self._is_terminating(pod):
                continue
            if pod.gang is None:
                unit = RunningUnit(pod.uid, {}, pod.priority, _start(pod))
                yield self._make(unit, (pod,))
            else:
                group = self._state.gangs.group(pod.gang.key)
                groups[group.id] = group
        for group in groups.values():
            yield from self._split_group(group)

    def _split_group(self, group: Group) -> Iterator[_Candidate]:
        """Yield the surplus pods of a group, then its core."""
        members = tuple(
            pod
            for gang in group.gangs
            for pod in self._state.gangs.members(gang).values()
            if is_placed(pod) and not self._is_terminating(pod)
        )
        if any(pod.uid in self._state.assumed for pod in members):
            return  # being started or repaired
        rank = (max(pod.priority for pod in members), min(map(_start, members)))
        surplus = [pod for gang in group.gangs for pod in self._surplus_of(gang)]
        for part, pod in enumerate(reversed(surplus), start=1):
            unit = RunningUnit(pod.uid, {}, *rank, gang=group.id, part=part)
            yield self._make(unit, (pod,))
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
    ) -> _Candidate:
        """Return a unit with the requests of its pods, without those of its ``surplus``."""
        asked = add_up(self._ask(pod) for pod in pods if pod not in surplus)
        is_non_preemptible = unit.key in self._exempt.units or not all(
            map(self._is_evictable, pods)
        )
        return _Candidate(replace(unit, request=asked, is_non_preemptible=is_non_preemptible), pods)

    def _ask(self, pod: Pod) -> Amounts:
        asked = count_devices(dict(self._state.quotas.requests_of(pod)), self._state.quotas.rules)
        return mask(asked, self.account)

    def _is_evictable(self, pod: Pod) -> bool:
        """Whether a pod of this quota itself may be evicted."""
        return (
            self._state.quotas.quota_of(pod) == self.account.spec.name
            and find_protection(self._state, pod) is None
            and pod.handling is not Handling.RESERVE
        )

    def _is_terminating(self, pod: Pod) -> bool:
        return pod.is_terminating or pod.uid in self._exempt.terminating


def _find_over(ledger: Ledger, view: _QuotaPods) -> Iterator[Overuse]:
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


def _find_beneficiary(
    state: ClusterState, ledger: Ledger, selection: _Selection, blocked: Iterable[Blocked]
) -> UnitKey:
    """Return the first unit that could start without the over-use; empty if there is none."""
    name, keys = selection.quota, {one.resource for one in selection.over}
    waiting = [one.unit for one in blocked if one.reason.is_capacity]
    eligible = {unit.key for unit in waiting if _may_reclaim_from(state, ledger, unit, selection)}
    capacity = _TreeCapacity(ledger, name, keys)
    nodes = _NodeCheck(state, ledger, selection)
    mark = ledger.checkpoint()
    ledger.charge(QuotaCharge(name, {key: -amount for key, amount in selection.freed.items()}))
    after = ledger.checkpoint()
    found = ""
    for unit in waiting:
        charges = _charges_of(state, unit)
        may_benefit = unit.key in eligible and _needs_over_used(charges, name, keys, ledger)
        is_entitled = may_benefit and try_charge(ledger, charges) is None
        if is_entitled and capacity.is_enough() and nodes.can_place(unit):
            found = unit.key
            break
        ledger.rollback(after)
    ledger.rollback(mark)
    return found


def _may_reclaim_from(
    state: ClusterState, ledger: Ledger, unit: Unit, selection: _Selection
) -> bool:
    """Whether the topmost quota above the victims that is not above the unit is over-used, too.

    Children of one parent reclaim from each other; what the parent is entitled to stays below it.
    """
    names = {state.quotas.quota_of(pod) for pod in unit.pods[:1]}
    around = {above for name in names if ledger.find(name) for above in ledger.account(name).path}
    apart = [name for name in ledger.account(selection.quota).path if name not in around]
    if not apart:
        return False
    used, entitled = ledger.account(apart[-1]).used, find_entitlement(ledger, apart[-1])
    return any(used.get(one.resource, 0) > entitled.get(one.resource, 0) for one in selection.over)


class _NodeCheck:
    """Checks that a unit fits without the victims of this quota, or of all over-used quotas."""

    def __init__(self, state: ClusterState, ledger: Ledger, selection: _Selection) -> None:
        self._state = state
        self._ledger = ledger
        self._selection = selection
        self._others: list[Pod] | None = None
        self._tried = 0

    def can_place(self, unit: Unit) -> bool:
        """Whether the unit fits on nodes without the victims."""
        self._tried += 1
        if self._tried > MOST_TRIED:
            return False
        return self._fits(unit, self._selection.pods) or self._fits(
            unit, [*self._selection.pods, *self._find_others()]
        )

    def _find_others(self) -> list[Pod]:
        """Return the victims of all other over-used quotas."""
        if self._others is None:
            names = {one.quota for one in find_overuse(self._ledger)} - {self._selection.quota}
            selections = (_choose(self._state, self._ledger, one, NOBODY) for one in sorted(names))
            self._others = [pod for selection in selections for pod in selection.pods]
        return self._others

    def _fits(self, unit: Unit, gone: Iterable[Pod]) -> bool:
        with closing(self._state.open_cycle(without={Quotas.name})) as cycle:  # already checked
            cycle.remove(gone)
            return bool(plan(cycle, (unit,), Scoring()).placements)


class _TreeCapacity:
    """Checks that a tree has enough of some resources without the over-use of other quotas."""

    def __init__(self, ledger: Ledger, name: QuotaName, keys: Collection[str]) -> None:
        inputs = ledger.solution(name).inputs
        self._ledger = ledger
        self._top = inputs.tree.children(ROOT)
        self._most = {key: inputs.total.get(key, 0) for key in keys}
        for one in find_overuse(ledger):
            spec = inputs.tree.spec(one.quota)
            is_other = spec is not None and not spec.is_parent and one.quota != name
            if is_other and one.resource in self._most:
                self._most[one.resource] += one.over

    def is_enough(self) -> bool:
        """Whether everything charged to the ledger fits."""
        return all(self._ledger.used_by(self._top, key) <= most for key, most in self._most.items())


def _needs_over_used(
    charges: Sequence[QuotaCharge], name: QuotaName, keys: Collection[str], ledger: Ledger
) -> bool:
    """Whether a unit of other quotas requests an over-used resource."""
    return all(one.quota != name and ledger.find(one.quota) for one in charges) and any(
        one.request.get(key, 0) > 0 for one in charges for key in keys
    )


def _start(pod: Pod) -> float:
    return pod.started or _YET_TO_START + pod.created


def _charges_of(state: ClusterState, unit: Unit) -> list[QuotaCharge]:
    """Return the minimal requests of a unit, per quota."""
    asked: dict[QuotaName, list[Amounts]] = {}
    non_preemptible: dict[QuotaName, list[Amounts]] = {}
    for demand in unit.demands:
        for pod in demand.pods[: demand.required] or demand.pods[:1]:
            if pod.recorded is None or pod.is_gated:
                name = state.quotas.quota_of(pod)
                amounts = count_devices(dict(state.quotas.requests_of(pod)), state.quotas.rules)
                asked.setdefault(name, []).append(amounts)
                if pod.is_non_preemptible:
                    non_preemptible.setdefault(name, []).append(amounts)
    return [
        QuotaCharge(name, add_up(some), add_up(non_preemptible.get(name, ())))
        for name, some in sorted(asked.items())
    ]
