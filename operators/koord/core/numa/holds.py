"""Holds of NUMA nodes and CPUs: the remainder of a hold, and what of it a pod gets.

A pod gets all of its amounts out of holds if these suffice; of the resources in ``strict`` it gets
nothing else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from koord.core.model.units import CPU
from koord.core.numa.cpu_topology import Cpus, lowest_cpus
from koord.core.numa.cpus import MILLI
from koord.core.numa.model import NumaAllocation, NumaLayout
from koord.core.numa.states import (
    NumaCause,
    NumaChoice,
    NumaDemand,
    NumaState,
    OtherHints,
    choose,
)
from koord.core.numa.zones import NumaShare


def left_of(allocation: NumaAllocation, layout: NumaLayout) -> NumaAllocation:
    """Return what no pod uses of a hold; of the allocation of a plain pod, all of it.

    A pod that shares its CPUs with others leaves as many fewer to be pinned.
    """
    if not allocation.users:
        return allocation
    cpus, taken = allocation.cpus, dict[int, dict[str, int]]()
    # Pinned pods first: the others take the lowest CPUs of what these leave, whoever came first.
    for user in sorted(allocation.users, key=lambda user: not user.cpus):
        cpus &= ~user.cpus
        for share in user.shares:
            amounts = taken.setdefault(share.number, {})
            for name, amount in share.amounts:
                amounts[name] = amounts.get(name, 0) + amount
            if layout.cpus is not None and not user.cpus and allocation.cpus:
                inside = cpus & layout.cpus.cpus_in(1 << share.number)
                cpus &= ~lowest_cpus(inside, -(-dict(share.amounts).get(CPU, 0) // MILLI))
    shares = tuple(_subtract(allocation.shares, taken))
    return replace(allocation, cpus=cpus, shares=shares, users=())


def _subtract(shares: Iterable[NumaShare], taken: dict[int, dict[str, int]]) -> Iterator[NumaShare]:
    for share in shares:
        used = taken.get(share.number, {})
        amounts = ((name, amount - used.get(name, 0)) for name, amount in share.amounts)
        if left := tuple((name, amount) for name, amount in amounts if amount > 0):
            yield NumaShare(share.number, left)


def names_of(allocation: NumaAllocation) -> frozenset[str]:
    """Return the resources of which something is held on NUMA nodes, or as CPUs."""
    named = {name for share in allocation.shares for name, _ in share.amounts}
    return frozenset(named | {CPU} if allocation.cpus else named)


@dataclass(frozen=True)
class NumaHoldTerms:
    """What a pod may use of the holds on a node; compared by value.

    ``left`` is that of all holds that it may use together, ``resources`` are those of which they
    hold something, and ``strict`` those of which none of them lets it use more.
    """

    left: tuple[NumaAllocation, ...]
    resources: frozenset[str]
    strict: frozenset[str] = frozenset()

    def lift(self, state: NumaState) -> NumaState:
        for allocation in self.left:
            state = state.after(allocation, -1)
        return state

    def choose(
        self, state: NumaState, demand: NumaDemand, other_hints: OtherHints
    ) -> NumaChoice | NumaCause:
        """Return what a pod gets: out of holds alone if possible."""
        lifted = self.lift(state)
        names = self.resources & demand.requests.keys()
        inside = choose(self._limit(lifted, names), demand, other_hints)
        if names <= self.strict:
            return inside
        anywhere = choose(self._limit(lifted, self.strict & names), demand, other_hints)
        if not isinstance(inside, NumaChoice) or not isinstance(anywhere, NumaChoice):
            return inside if isinstance(inside, NumaChoice) else anywhere
        return replace(inside, most=max(inside.most, anywhere.most))

    @property
    def _cpus(self) -> Cpus:
        cpus = 0
        for allocation in self.left:
            cpus |= allocation.cpus
        return cpus

    def _limit(self, lifted: NumaState, names: Iterable[str]) -> NumaState:
        """Return the state in which only holds are free of some resources.

        Of CPUs that are held the pod gets those first in any case.
        """
        names, layout = set(names), lifted.layout
        cpus = self._cpus
        if layout.pool is not None and cpus:
            layout = replace(layout, pool=replace(layout.pool, preferred=cpus))
        if not names:
            return NumaState(layout, lifted.used, lifted.cpus, lifted.pinned)
        free: dict[int, dict[str, int]] = {}
        for allocation in self.left:
            for number, part in allocation.amounts(layout):
                amounts = free.setdefault(number, {})
                for name, amount in part:
                    amounts[name] = amounts.get(name, 0) + amount
        used = {}
        for zone in lifted.zones:
            amounts = dict(lifted.used.get(zone.number, ()))
            for name in names & zone.total.keys():
                most = min(zone.available.get(name, 0), free.get(zone.number, {}).get(name, 0))
                amounts[name] = zone.total[name] - most
            used[zone.number] = tuple(sorted((name, n) for name, n in amounts.items() if n))
        if CPU in names and layout.pool is not None and cpus:
            pool = replace(layout.pool, usable=layout.pool.usable & cpus)
            layout = replace(layout, pool=pool)
        return NumaState(layout, used, lifted.cpus, lifted.pinned)
