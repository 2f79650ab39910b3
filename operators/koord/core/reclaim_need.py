"""How much of the over-use of a quota waiting units need: who benefits, and which victims stay.

A unit benefits if it is entitled to start, lacks what is over-used, and finds nodes without the
over-use. All units that benefit together are found first. Then victims are spared, the most
important first, as long as all of these units could still start: what nobody can use stays with
who has it. This module does not know who is chosen as a victim, nor evicts.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from koord.core.framework.planner import plan
from koord.core.framework.scoring import Scoring
from koord.core.plan import Unit, UnitKey
from koord.core.pods import Pod
from koord.core.queue import Blocked
from koord.core.quota.admission import try_charge
from koord.core.quota.capacity import add_up
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import ROOT, QuotaCharge, QuotaName
from koord.core.quota.plugin import Quotas
from koord.core.quota.reclaim import Overuse, RunningUnit, find_entitlement, find_overuse
from koord.core.quota.usage import count_devices
from koord.core.state import ClusterState
from koord.core.units import Amounts

MOST_UNITS: Final = 1024
"""Waiting units that are looked at, per quota and call."""
MOST_TRIED: Final = 48
"""Plans that are made, per quota and call. More victims than needed may go once they are used."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running unit and all pods that are evicted with it; with the core of a gang its surplus."""

    unit: RunningUnit
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The over-use of a quota, and the units without which there is none, most important first.

    ``leaving`` are the amounts of the pods that are terminating already.
    """

    quota: QuotaName
    over: tuple[Overuse, ...] = ()
    units: tuple[Candidate, ...] = ()
    leaving: Amounts = field(default_factory=dict)
    terminating: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """The victims that are needed, and the first unit that benefits; empty if there is none."""

    units: tuple[Candidate, ...] = ()
    beneficiary: UnitKey = ""


def find_need(
    state: ClusterState,
    ledger: Ledger,
    selection: Selection,
    blocked: Iterable[Blocked],
    choose_others: Callable[[QuotaName], tuple[Selection, ...]],
) -> Need:
    """Return what of a selection is needed; ``blocked`` are the waiting units with their reasons.

    ``choose_others`` returns the selections of the other over-used quotas.
    """
    trials = _Trials(state, ledger, selection, choose_others)
    waiting = [one.unit for one in blocked if one.reason.is_capacity]
    candidates = [unit for unit in waiting if trials.may_benefit(unit)][:MOST_UNITS]
    found = trials.find_beneficiaries(candidates)
    if not found:
        return Need()
    return Need(_spare(selection.units, lambda left: trials.can_start(found, left)), found[0].key)


def without_parts(units: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return units without the surplus of gangs whose core goes, which includes it."""
    cores = _cores(units)
    return tuple(one for one in units if not one.unit.part or one.unit.gang not in cores)


def _spare(
    units: tuple[Candidate, ...], is_enough: Callable[[tuple[Candidate, ...]], bool]
) -> tuple[Candidate, ...]:
    """Return as few of the units as are enough; many are spared at once while that is possible."""
    size = len(units)
    while size:
        at = 0
        while at < len(units):
            left = _with_parts(units, units[:at] + units[at + size :])
            if len(left) < len(units) and is_enough(left):
                units = left
            else:
                at += size
        size //= 2
    return units


def _with_parts(units: Sequence[Candidate], left: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return what is left, with the surplus of gangs whose core goes."""
    cores = _cores(left)
    return tuple(one for one in units if one in left or (one.unit.part and one.unit.gang in cores))


def _cores(units: Sequence[Candidate]) -> set[str]:
    return {one.unit.gang for one in units if one.unit.gang and not one.unit.part}


class _Trials:
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
        self._keys = {one.resource for one in selection.over}
        self._capacity = _TreeCapacity(ledger, selection.quota, self._keys)
        self._charges: dict[UnitKey, list[QuotaCharge]] = {}
        self._tried = 0

    def may_benefit(self, unit: Unit) -> bool:
        """Whether a unit requests what is over-used, and may reclaim it from this quota."""
        ledger, name = self._ledger, self._selection.quota
        charges = self._charges[unit.key] = _charges_of(self._state, unit)
        return (
            all(one.quota != name and ledger.find(one.quota) for one in charges)
            and any(one.request.get(key, 0) > 0 for one in charges for key in self._keys)
            and self._may_reclaim(unit)
        )

    def find_beneficiaries(self, waiting: Sequence[Unit]) -> list[Unit]:
        """Return the units, in their order, that could start together without all victims."""
        every = self._selection.units
        while waiting and self._tried < MOST_TRIED:
            entitled = self._find_entitled(waiting, every)
            if not entitled:
                return []
            placed = self._place(entitled, every)
            if len(placed) == len(entitled):
                return entitled
            # Those without nodes leave their share to the others.
            hopeless = {unit.key for unit in entitled} - placed
            waiting = [unit for unit in waiting if unit.key not in hopeless]
        return []

    def can_start(self, units: Sequence[Unit], victims: Sequence[Candidate]) -> bool:
        """Whether all units could start if only these victims go."""
        return (
            self._tried < MOST_TRIED
            and len(self._find_entitled(units, victims)) == len(units)
            and len(self._place(units, victims)) == len(units)
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

    def _find_entitled(self, units: Sequence[Unit], victims: Sequence[Candidate]) -> list[Unit]:
        """Return the units that could be charged, one after the other, without the victims."""
        ledger, selection = self._ledger, self._selection
        freed = add_up((selection.leaving, *(one.unit.request for one in victims)))
        mark, found = ledger.checkpoint(), []
        ledger.charge(QuotaCharge(selection.quota, {key: -n for key, n in freed.items()}))
        for unit in units:
            before = ledger.checkpoint()
            if try_charge(ledger, self._charges[unit.key]) is None and self._capacity.is_enough():
                found.append(unit)
            else:
                ledger.rollback(before)
        ledger.rollback(mark)
        return found

    def _place(self, units: Sequence[Unit], victims: Sequence[Candidate]) -> set[UnitKey]:
        """Return which units find nodes without the victims, or those of all over-used quotas.

        The other quotas are asked only if this one cannot give enough; then they give everything.
        """
        own = [pod for one in victims for pod in one.pods]
        placed = self._plan(units, own)
        if len(placed) == len(units) or not self._others:
            return placed
        return self._plan(units, [*own, *self._others])

    def _plan(self, units: Sequence[Unit], victims: Iterable[Pod]) -> set[UnitKey]:
        self._tried += 1
        gone = {pod.uid: pod for pod in (*victims, *self._terminating)}
        with closing(self._state.open_cycle(without={Quotas.name})) as cycle:  # already checked
            cycle.remove(gone.values())
            return {one.unit for one in plan(cycle, units, Scoring()).placements}

    @cached_property
    def _other_quotas(self) -> tuple[Selection, ...]:
        return self._choose_others(self._selection.quota)

    @cached_property
    def _others(self) -> list[Pod]:
        return [pod for one in self._other_quotas for unit in one.units for pod in unit.pods]

    @cached_property
    def _terminating(self) -> list[Pod]:
        """Pods of over-used quotas that are going already."""
        return [pod for one in (self._selection, *self._other_quotas) for pod in one.terminating]


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
