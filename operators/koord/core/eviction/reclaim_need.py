"""How much of the over-use of a quota waiting units need: who benefits, and which victims stay.

A unit benefits if it is entitled to start, lacks what is over-used, and finds nodes without the
over-use. All units that benefit together are found first. Then the search of preemption finds
victims for one after the other: what nobody can use stays with who has it. Nothing is evicted.

In reclaim a unit may go only if its quota, and every quota above that is not above the beneficiary
too, still uses more than it is entitled to without the victims before it. So at most the last
victim of a quota reaches below the entitlement: a gang goes as a whole or not at all.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.refused_units import Blocked
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import Candidates
from koord.core.eviction.model import Costs, Preemption, VictimKind, VictimUnit
from koord.core.eviction.search import MOST_STEPS, find_victims
from koord.core.eviction.trials import Charges, Guarantees, Key, Trials, pods_of
from koord.core.eviction.turns import waits_instead
from koord.core.model.plan import Demand, Unit, UnitKey
from koord.core.model.pods import Handling, Pod
from koord.core.model.units import Amounts
from koord.core.quota.admission import try_charge
from koord.core.quota.ledger import Ledger, mask
from koord.core.quota.model import ROOT, QuotaCharge, QuotaName, add_up
from koord.core.quota.plugin import Quotas
from koord.core.quota.reclaim import Overuse, RunningUnit, find_entitlement, find_overuse
from koord.core.quota.usage import count_devices

MOST_UNITS: Final = 1024
"""Waiting units that are looked at, per quota and call."""
MOST_TRIED: Final = 16
"""Plans to find out who benefits, per quota and call."""
MOST_SEARCHES: Final = 12
"""Searches for victims, per quota and call."""


@dataclass(frozen=True, slots=True)
class ReclaimUnit:
    """A running unit and all pods that are evicted with it; with the core of a gang its surplus."""

    unit: RunningUnit
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The over-use of a quota, and the units without which there is none, most important first.

    ``running`` are all its units that may be evicted, ``leaving`` the amounts of the pods that are
    terminating already.
    """

    quota: QuotaName
    over: tuple[Overuse, ...] = ()
    units: tuple[ReclaimUnit, ...] = ()
    running: tuple[ReclaimUnit, ...] = ()
    leaving: Amounts = field(default_factory=dict)
    terminating: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """The victims that are needed, and the first unit that benefits; empty if there is none."""

    units: tuple[ReclaimUnit, ...] = ()
    beneficiary: UnitKey = ""


class Reclaimable(Guarantees):
    """The over-use of quotas, of the resources that the beneficiary requests.

    ``requests`` are the quota and the amounts of units by key; of others the pods are counted.
    """

    def __init__(
        self,
        state: ClusterState,
        unit: Unit,
        over: Mapping[Key, int],
        requests: Mapping[str, tuple[QuotaName, Amounts]],
    ) -> None:
        super().__init__(state, unit, is_reclaim=True)
        self._over = over
        self._requests = requests
        self._largest: Counter[Key] = Counter()

    @override
    def allows(self, units: Iterable[VictimUnit]) -> bool:
        """Whether all of these units may go together."""
        lost: dict[Key, int] = {}
        largest: dict[Key, int] = {}
        for unit in units:
            charges = self.charges_of(unit)
            if not any(self._over[key] > 0 for key in charges):
                return False
            for key, amount in charges.items():
                lost[key] = lost.get(key, 0) + amount
                largest[key] = max(largest.get(key, 0), amount)
        return self._is_over_before_last(lost, largest)

    @override
    def covers(self, lost: Charges) -> bool:
        """Whether units may go that use this, if one of them is the largest of all."""
        return self._is_over_before_last(lost, self._largest)

    @override
    def _add_up(self, unit: VictimUnit, ledger: Ledger) -> Charges:
        quota_and_request = self._requests.get(unit.key)
        if quota_and_request is None:
            amounts = super()._add_up(unit, ledger)
        else:
            name, request = quota_and_request
            path = [quota for quota in ledger.account(name).path if quota not in self._own]
            amounts = {(name, key): n for name in path for key, n in request.items() if n > 0}
        charges = {key: amount for key, amount in amounts.items() if key in self._over}
        self._largest |= Counter(charges)
        return charges

    def _is_over_before_last(self, lost: Charges, largest: Mapping[Key, int]) -> bool:
        left: defaultdict[QuotaName, list[int]] = defaultdict(list)
        for key, amount in lost.items():
            left[key[0]].append(self._over[key] - amount + largest[key])
        return all(max(amounts_left) > 0 for amounts_left in left.values())


def find_reclaimable(
    state: ClusterState,
    ledger: Ledger,
    selections: Sequence[Selection],
    going: Iterable[Pod],
    keys: Collection[str],
) -> dict[Key, int]:
    """Return how far quotas, and those above, are over without pods that leave or are ``going``.

    Only ``keys`` are counted, and no quota is over that is by rounding alone.
    """
    gone: Counter[Key] = Counter()
    for pod in (*going, *(pod for selection in selections for pod in selection.terminating)):
        account = ledger.account(state.quotas.quota_of(pod))
        requests = count_devices(dict(state.quotas.requests_of(pod)), state.quotas.rules)
        for key, amount in mask(requests, account).items():
            gone.update({(name, key): amount for name in account.path})
    reclaimable: dict[Key, int] = {}
    for selection in selections:
        counted = {over.resource for over in selection.over}
        for name in ledger.account(selection.quota).path:
            used = ledger.account(name).used
            for key, entitled in find_entitlement(ledger, name).items():
                is_over = name != selection.quota or key in counted
                if key in keys:
                    reclaimable[name, key] = is_over * (
                        used.get(key, 0) - gone[name, key] - entitled
                    )
    return reclaimable


def find_need(
    state: ClusterState,
    ledger: Ledger,
    selection: Selection,
    blocked: Iterable[Blocked],
    choose_others: Callable[[QuotaName], tuple[Selection, ...]],
) -> Need:
    """Return the victims that are needed; ``blocked`` are the waiting units with their reasons.

    ``choose_others`` returns the selections of the other over-used quotas.
    """
    trials = _NeedSearch(state, ledger, selection, choose_others)
    waiting = [
        waiting_unit.unit
        for waiting_unit in blocked
        if waiting_unit.reason.is_capacity and not waits_instead(state, waiting_unit.unit)
    ]
    candidates = [unit for unit in waiting if trials.may_benefit(unit)][:MOST_UNITS]
    return trials.find_victims(trials.find_beneficiaries(candidates))


def without_parts(units: Sequence[ReclaimUnit]) -> tuple[ReclaimUnit, ...]:
    """Return units without the surplus of gangs whose core goes, which includes it."""
    cores = _cores(units)
    return tuple(
        reclaim_unit
        for reclaim_unit in units
        if not reclaim_unit.unit.part or reclaim_unit.unit.gang not in cores
    )


def _cores(units: Sequence[ReclaimUnit]) -> set[str]:
    return {
        reclaim_unit.unit.gang
        for reclaim_unit in units
        if reclaim_unit.unit.gang and not reclaim_unit.unit.part
    }


class _NeedSearch:
    """Answers who could start without some of the victims. The ledger is as before afterwards."""

    def __init__(
        self,
        state: ClusterState,
        ledger: Ledger,
        selection: Selection,
        choose_others: Callable[[QuotaName], tuple[Selection, ...]],
    ) -> None:
        self._state, self._ledger, self._selection = state, ledger, selection
        self._choose_others = choose_others
        self._keys = {overuse.resource for overuse in selection.over}
        self._capacity = _TreeCapacity(ledger, selection.quota, self._keys)
        self._charges: dict[UnitKey, list[QuotaCharge]] = {}
        self._tried = 0

    def may_benefit(self, unit: Unit) -> bool:
        """Whether a unit requests what is over-used, and may reclaim it from this quota."""
        ledger, name = self._ledger, self._selection.quota
        charges = self._charges[unit.key] = _charges_of(self._state, unit)
        return (
            all(charge.quota != name and ledger.find(charge.quota) for charge in charges)
            and any(charge.request.get(key, 0) > 0 for charge in charges for key in self._keys)
            and self._may_reclaim(unit)
        )

    def find_beneficiaries(self, waiting: Sequence[Unit]) -> list[Unit]:
        """Return the units, in their order, that could start together without all victims."""
        while waiting and self._tried < MOST_TRIED:
            entitled = self._find_entitled(waiting)
            if not entitled:
                return []
            placed = self._place(entitled)
            if len(placed) == len(entitled):
                return entitled
            # Those without nodes leave their share to the others.
            hopeless = {unit.key for unit in entitled} - placed
            waiting = [unit for unit in waiting if unit.key not in hopeless]
        return []

    def find_victims(self, units: Sequence[Unit]) -> Need:
        """Return victims for each unit in turn, beside those before it: just enough of them."""
        preemptions: list[tuple[Unit, Preemption]] = []
        searches, left = 0, deque(self._join(units))
        with closing(self._state.open_cycle()) as cycle:
            cycle.remove(self._terminating)
            mark = cycle.checkpoint()
            while left and searches < MOST_SEARCHES:
                unit = left.popleft()
                going = {pod.uid: pod for _, preemption in preemptions for pod in preemption.pods}
                preemption = self._search(cycle, unit, going)
                searches += preemption is None or bool(preemption.victims)
                if preemption is None:
                    left.extendleft(_halve(unit))
                    continue
                cycle.remove(preemption.pods)
                plan(cycle, (unit,), Scoring())
                preemptions.append((unit, preemption))
            cycle.rollback(mark)
            victims = _reprieve(cycle, preemptions)
        going = pods_of(victims)
        own = [
            reclaim_unit
            for reclaim_unit in self._selection.running
            if all(pod.uid in going for pod in reclaim_unit.pods)
        ]
        first = next((unit.key for unit, preemption in preemptions if preemption.victims), "")
        return Need(tuple(own), first) if own else Need()

    def _join(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """Yield units; single pods that request the same are joined: one search for all."""
        joined: dict[Hashable, list[Unit]] = {}
        for unit in units:
            pod = unit.pods[0]
            is_single = not unit.group and len(unit.pods) == 1 and not pod.claims
            kind = (pod.quota, pod.namespace, pod.shape, pod.profile) if is_single else unit.key
            joined.setdefault(kind, []).append(unit)
        for alike in joined.values():
            pods = tuple(pod for unit in alike for pod in unit.pods)
            yield alike[0] if len(alike) == 1 else _as_one(alike[0], pods)

    def _search(self, cycle: Cycle, unit: Unit, going: Mapping[str, Pod]) -> Preemption | None:
        """Search victims in this quota, then in the other over-used quotas too."""
        keys = {key for charge in self._charges[unit.key] for key in charge.request}
        unit = replace(unit, demands=tuple(map(_with_required, unit.demands)))
        trials = Trials(cycle, unit, Scoring(), MOST_STEPS)
        for selections in ((self._selection,), (self._selection, *self._other_quotas)):
            left = tuple(self._as_victims(selections, going))
            over = find_reclaimable(self._state, self._ledger, selections, going.values(), keys)
            requests = {
                reclaim_unit.unit.key: (selection.quota, reclaim_unit.unit.request)
                for selection in selections
                for reclaim_unit in selection.running
                if len(reclaim_unit.pods) == 1
            }
            limits = partial(Reclaimable, self._state, unit, over, requests)
            candidates = Candidates(left, (), 0, ())
            preemption = find_victims(self._state, trials, candidates, Costs(()), limits)
            if isinstance(preemption, Preemption):
                return preemption
            if not self._other_quotas:
                break
        return None

    def _as_victims(
        self, selections: Iterable[Selection], going: Collection[str]
    ) -> Iterator[VictimUnit]:
        """Yield what may still be evicted, as the search knows it: the last started cost least."""
        running = [reclaim_unit for selection in selections for reclaim_unit in selection.running]
        newest = max((reclaim_unit.unit.started for reclaim_unit in running), default=0.0)
        parts = max((reclaim_unit.unit.part for reclaim_unit in running), default=0)
        for reclaim_unit in running:
            pods = tuple(pod for pod in reclaim_unit.pods if pod.uid not in going)
            if pods:
                unit = reclaim_unit.unit
                # Members of a gang have one start: of equal ones the last goes.
                work = int(newest - unit.started) * len(pods) + parts - unit.part
                gangs = {pod.gang.key for pod in pods if pod.gang is not None}
                is_core = bool(unit.gang) and not unit.part
                yield VictimUnit(
                    unit.key,
                    _kind_of(reclaim_unit),
                    pods,
                    unit.priority,
                    work,
                    unit.gang,
                    len(gangs) if is_core else 0,
                )

    def _may_reclaim(self, unit: Unit) -> bool:
        """Whether the topmost quota above the victims that is not above the unit is over-used, too.

        Children of one parent reclaim from each other; what the parent is entitled to stays below.
        """
        state, ledger, selection = self._state, self._ledger, self._selection
        names = {state.quotas.quota_of(pod) for pod in unit.pods[:1]}
        around = {top for name in names if ledger.find(name) for top in ledger.account(name).path}
        apart = [name for name in ledger.account(selection.quota).path if name not in around]
        if not apart:
            return False
        used, entitled = ledger.account(apart[-1]).used, find_entitlement(ledger, apart[-1])
        return any(used.get(key, 0) > entitled.get(key, 0) for key in self._keys)

    def _find_entitled(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units that could be charged, one after the other, without the over-use."""
        ledger, selection = self._ledger, self._selection
        freed = add_up(
            (selection.leaving, *(reclaim_unit.unit.request for reclaim_unit in selection.units))
        )
        mark, entitled = ledger.checkpoint(), []
        ledger.charge(QuotaCharge(selection.quota, {key: -n for key, n in freed.items()}))
        for unit in units:
            before = ledger.checkpoint()
            if try_charge(ledger, self._charges[unit.key]) is None and self._capacity.is_enough():
                entitled.append(unit)
            else:
                ledger.rollback(before)
        ledger.rollback(mark)
        return entitled

    def _place(self, units: Sequence[Unit]) -> set[UnitKey]:
        """Return which units may find nodes without any pods of this quota, or of all over-used.

        The other quotas are asked only if this one cannot give enough.
        """
        placed = self._plan(units, _pods_of([self._selection]))
        if len(placed) == len(units) or not self._other_quotas:
            return placed
        return self._plan(units, _pods_of([self._selection, *self._other_quotas]))

    def _plan(self, units: Sequence[Unit], victims: Iterable[Pod]) -> set[UnitKey]:
        self._tried += 1
        gone = {pod.uid: pod for pod in (*victims, *self._terminating)}
        with closing(self._state.open_cycle(without={Quotas.name})) as cycle:  # already checked
            cycle.remove(gone.values())
            return {placement.unit for placement in plan(cycle, units, Scoring()).placements}

    @cached_property
    def _other_quotas(self) -> tuple[Selection, ...]:
        return self._choose_others(self._selection.quota)

    @cached_property
    def _terminating(self) -> list[Pod]:
        """Pods of over-used quotas that are going already."""
        return [
            pod
            for selection in (self._selection, *self._other_quotas)
            for pod in selection.terminating
        ]


def _kind_of(reclaim_unit: ReclaimUnit) -> VictimKind:
    if reclaim_unit.unit.part:
        return VictimKind.SURPLUS
    if reclaim_unit.unit.gang:
        return VictimKind.GANG
    is_hold = reclaim_unit.pods[0].handling is Handling.RESERVE
    return VictimKind.RESERVATION if is_hold else VictimKind.POD


class _TreeCapacity:
    """Checks that a tree has enough of some resources without the over-use of other quotas."""

    def __init__(self, ledger: Ledger, name: QuotaName, keys: Collection[str]) -> None:
        inputs = ledger.solution(name).inputs
        self._ledger = ledger
        self._top = inputs.tree.children(ROOT)
        self._most = {key: inputs.total.get(key, 0) for key in keys}
        for overuse in find_overuse(ledger):
            spec = inputs.tree.spec(overuse.quota)
            is_other = spec is not None and not spec.is_parent and overuse.quota != name
            if is_other and overuse.resource in self._most:
                self._most[overuse.resource] += overuse.over

    def is_enough(self) -> bool:
        """Whether everything charged to the ledger fits."""
        return all(self._ledger.used_by(self._top, key) <= most for key, most in self._most.items())


def _pods_of(selections: Iterable[Selection]) -> Iterator[Pod]:
    return (
        pod
        for selection in selections
        for reclaim_unit in selection.running
        for pod in reclaim_unit.pods
    )


def _reprieve(cycle: Cycle, preemptions: Sequence[tuple[Unit, Preemption]]) -> list[VictimUnit]:
    """Return the victims without those that the ones of other searches make unneeded.

    The victims of one search are all needed for it. Surplus does not stay without its gang.
    """
    victims = [victim for _, preemption in preemptions for victim in preemption.victims]
    if sum(bool(preemption.victims) for _, preemption in preemptions) <= 1:
        return victims
    units = [unit for unit, _ in preemptions]
    cores = {victim.group for victim in victims if victim.gangs}
    spare = [victim for victim in victims if victim.gangs or victim.group not in cores]
    for candidate in sorted(spare, key=lambda candidate: -candidate.priority)[:MOST_TRIED]:
        left = [other for other in victims if other is not candidate]
        mark = cycle.checkpoint()
        cycle.remove(pods_of(left).values())
        if len(plan(cycle, units, Scoring()).placements) == len(units):
            victims = left
        cycle.rollback(mark)
    return victims


def _as_one(unit: Unit, pods: tuple[Pod, ...]) -> Unit:
    """Return the unit with these pods, all of which are needed."""
    return replace(unit, demands=(replace(unit.demands[0], pods=pods, required=len(pods)),))


def _halve(unit: Unit) -> tuple[Unit, ...]:
    """Return the halves of joined pods, in the order to put them in front of others."""
    middle = len(unit.pods) // 2
    if unit.group or not middle:
        return ()
    return _as_one(unit, unit.pods[middle:]), _as_one(unit, unit.pods[:middle])


def _with_required(demand: Demand) -> Demand:
    """Return a demand that wants at least one pod: surplus is searched room for one by one."""
    return demand if demand.required else replace(demand, required=1)


def _charges_of(state: ClusterState, unit: Unit) -> list[QuotaCharge]:
    """Return the minimal requests of a unit, per quota."""
    requests: dict[QuotaName, list[Amounts]] = {}
    non_preemptible: dict[QuotaName, list[Amounts]] = {}
    for demand in unit.demands:
        for pod in demand.pods[: demand.required] or demand.pods[:1]:
            if pod.recorded is None or pod.is_gated:
                name = state.quotas.quota_of(pod)
                amounts = count_devices(dict(state.quotas.requests_of(pod)), state.quotas.rules)
                requests.setdefault(name, []).append(amounts)
                if pod.is_non_preemptible:
                    non_preemptible.setdefault(name, []).append(amounts)
    return [
        QuotaCharge(name, add_up(amounts_of_quota), add_up(non_preemptible.get(name, ())))
        for name, amounts_of_quota in sorted(requests.items())
    ]
