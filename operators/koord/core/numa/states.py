"""What is used of the NUMA nodes and CPUs of nodes, as numbered states with remembered answers.

Nodes with an equal layout and equal use are in the same state. What a pod gets also depends on the
hints of other domains, which are part of the question. Numbers stay valid until
:meth:`NumaStates.compact`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol, TypeAlias

from koord.core.engine.arrays import NO_LIMIT
from koord.core.engine.steps import Steps
from koord.core.model.units import CPU, Amounts
from koord.core.model.zone_hints import Hints, NumaNodes
from koord.core.numa.cpu_topology import Cpus, CpusInUse, lowest_cpus
from koord.core.numa.cpus import (
    BAD_RATIO,
    MILLI,
    CpuBind,
    CpuCause,
    CpuHints,
    CpuPool,
    CpuRequest,
    free_cpus,
    request_cpus,
    take_cpus,
)
from koord.core.numa.model import NumaAllocation, NumaAllocationHints, NumaLayout, Part
from koord.core.numa.policy import (
    NumaOccupancy,
    NumaPolicy,
    PolicyCause,
    Unaligned,
    align,
    choose_exclusive,
    choose_policy,
    find_occupancy,
)
from koord.core.numa.zones import (
    InsufficientNuma,
    NumaShare,
    NumaZone,
    distribute,
    make_zone_hints,
)

StateId: TypeAlias = int
UNKNOWN: Final[StateId] = 0
"""The state of nodes of which nothing is reported and that demand nothing."""
OtherHints: TypeAlias = tuple[tuple[str, Hints], ...]
NumaCause: TypeAlias = PolicyCause | Unaligned | InsufficientNuma | CpuCause

MOST_STATES: Final = 20_000
MOST_ANSWERS: Final = 50_000
"""When there are more, those that no node is in, and all answers, are forgotten."""


@dataclass(frozen=True, eq=False)
class NumaDemand:
    """What pods with equal requests and allocation hints ask for; compared by identity."""

    requests: Amounts
    allocation_hints: NumaAllocationHints

    @cached_property
    def cpus(self) -> CpuHints:
        allocation_hints = self.allocation_hints
        return CpuHints(
            self.requests.get(CPU, 0),
            allocation_hints.is_pinned,
            allocation_hints.required,
            allocation_hints.preferred,
            allocation_hints.cpu_exclusive,
        )


@dataclass(frozen=True, slots=True)
class NumaChoice:
    """What one more pod gets. ``zones``: NUMA nodes that its devices must be on; None: any.

    ``most``: an upper bound of the pods like it that fit one after the other. ``cost`` of its CPUs
    where CPUs are amplified, in milli-CPU; otherwise 0.
    """

    zones: NumaNodes | None = None
    shares: tuple[NumaShare, ...] = ()
    cpus: Cpus = 0
    most: int = NO_LIMIT
    cost: int = 0


FREE_CHOICE: Final = NumaChoice()
"""Nothing of the pod belongs to certain NUMA nodes or CPUs."""


class NumaState:
    """The layout of a node and its use: an immutable value.

    ``pinned`` counts pods by the NUMA nodes that their CPUs belong to.
    """

    def __init__(
        self,
        layout: NumaLayout,
        used: Mapping[int, Part] | None = None,
        cpus: CpusInUse | None = None,
        pinned: Mapping[NumaNodes, int] | None = None,
    ) -> None:
        self.layout = layout
        self.used = used or {}
        self.cpus = cpus or CpusInUse()
        self.pinned = pinned or {}

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        used, pinned = frozenset(self.used.items()), frozenset(self.pinned.items())
        return id(self.layout), used, self.cpus, pinned

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumaState) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def after(self, allocation: NumaAllocation, count: int = 1) -> "NumaState":
        """Return the state with an allocation given (1) or taken back (-1)."""
        layout, used, pinned = self.layout, dict(self.used), dict(self.pinned)
        for number, part in allocation.amounts(layout):
            amounts = dict(used.pop(number, ()))
            for key, amount in part:
                amounts[key] = amounts.get(key, 0) + count * amount
            if left := tuple(sorted((key, n) for key, n in amounts.items() if n)):
                used[number] = left
        cpus = self.cpus
        if allocation.cpus:
            cpus = (cpus.hold if count > 0 else cpus.give_back)(
                allocation.cpus, allocation.exclusive
            )
            nodes = layout.cpus.numa_of(allocation.cpus) if layout.cpus is not None else 0
            pinned[nodes] = pinned.get(nodes, 0) + count
            if not pinned[nodes]:
                del pinned[nodes]
        return NumaState(layout, used, cpus, pinned)

    @cached_property
    def occupancy(self) -> NumaOccupancy:
        return find_occupancy(self.pinned)

    @cached_property
    def zones(self) -> tuple[NumaZone, ...]:
        return tuple(
            NumaZone(number, total := dict(part), _subtract(total, dict(self.used.get(number, ()))))
            for number, part in self.layout.zones
        )

    @property
    def is_overused(self) -> bool:
        """Whether more is used than there is, or a CPU by two pods."""
        return bool(self.cpus.counts.at_least(2)) or any(
            amount > dict(part).get(key, 0)
            for number, part in self.layout.zones
            for key, amount in self.used.get(number, ())
        )

    def zones_for(self, request: CpuRequest | None) -> Sequence[NumaZone]:
        """Return the NUMA nodes; only whole CPUs that may be pinned count for pinned ones."""
        pool = self.layout.pool
        if request is None or pool is None:
            return self.zones
        return [
            replace(zone, available={**zone.available, CPU: min(whole, free)})
            for zone in self.zones
            for whole in (zone.available.get(CPU, 0) // self.layout.cost * MILLI,)
            for inside in (pool.topology.cpus_in(1 << zone.number),)
            for free in (free_cpus(pool, self.cpus, request, inside).bit_count() * MILLI,)
        ]

    def pinnable(self, pool: CpuPool) -> Cpus:
        """Return the CPUs that may be pinned, leaving as many as other pods use of NUMA nodes."""
        cpus = pool.usable & ~self.cpus.counts.at_least(pool.max_refs)
        for zone in self.zones:
            inside = cpus & pool.topology.cpus_in(1 << zone.number)
            room = zone.available.get(CPU, 0) // self.layout.cost
            if CPU not in zone.total or inside.bit_count() <= room:
                continue
            cpus &= ~inside
            for core in pool.topology.cores:
                lowest = lowest_cpus(core & inside, room)
                cpus |= lowest
                room -= lowest.bit_count()
        return cpus

    def take(self, request: CpuRequest | None, shares: Sequence[NumaShare] = ()) -> Cpus | CpuCause:
        """Choose CPUs: of each NUMA node as many as its share, or from anywhere."""
        pool, taken = self.layout.pool, 0
        if request is None or pool is None:
            return 0
        counts = [(share.number, dict(share.amounts).get(CPU, 0) // MILLI) for share in shares]
        parts = [
            (replace(request, count=count), pool.topology.cpus_in(1 << number))
            for number, count in counts
            if count
        ]
        for part, within in parts or ((request, self.pinnable(pool)),):
            chosen = take_cpus(pool, self.cpus, part, within)
            if isinstance(chosen, CpuCause):
                return chosen
            taken |= chosen
        return taken

    def cost_of(self, cpus: Cpus) -> int:
        cost = self.layout.cost
        return cpus.bit_count() * cost if cost > MILLI else 0

    @property
    def extra(self) -> int:
        """The milli-CPU that pinned CPUs cost beyond what their pods request."""
        pinned = sum(level.bit_count() for level in self.cpus.counts.levels)
        return pinned * (self.layout.cost - MILLI)

    def count(self, request: CpuRequest | None) -> int:
        """Return how many pods may have their CPUs pinned, at most."""
        pool = self.layout.pool
        if request is None or pool is None:
            return NO_LIMIT
        return self.pinnable(pool).bit_count() // request.count


def _subtract(total: Amounts, used: Amounts) -> dict[str, int]:
    return {key: max(0, amount - used.get(key, 0)) for key, amount in total.items()}


def choose(
    state: NumaState, demand: NumaDemand, other_hints: OtherHints = ()
) -> NumaChoice | NumaCause:
    """Return the NUMA nodes and CPUs of one more pod, with the hints of other domains."""
    layout = state.layout
    request = request_cpus(demand.cpus, layout.cpus, layout.bind)
    if isinstance(request, CpuCause):
        return request
    if request is not None and not layout.is_cost_known:
        return CpuCause(BAD_RATIO, demand.cpus.milli)
    all_nodes = layout.all_nodes
    for _, hints in other_hints:
        for hint in hints or ():
            all_nodes |= hint.nodes or 0
    allocation_hints = demand.allocation_hints
    policy = choose_policy(
        allocation_hints.policy, label=layout.label, kubelet=layout.kubelet, all_nodes=all_nodes
    )
    if isinstance(policy, PolicyCause):
        return policy
    if policy is None:
        return _pin(state, request) if request is not None else FREE_CHOICE
    return _Alignment(state, demand, request, policy, all_nodes).choose(other_hints)


def _pin(state: NumaState, request: CpuRequest) -> NumaChoice | CpuCause:
    cpus = state.take(request)
    if isinstance(cpus, CpuCause):
        return cpus
    return NumaChoice(cpus=cpus, most=state.count(request), cost=state.cost_of(cpus))


@dataclass(frozen=True, slots=True)
class _Alignment:
    """One pod on one node with a policy."""

    state: NumaState
    demand: NumaDemand
    request: CpuRequest | None
    policy: NumaPolicy
    all_nodes: NumaNodes

    def choose(self, other_hints: OtherHints) -> NumaChoice | NumaCause:
        state, allocation_hints = self.state, self.demand.allocation_hints
        zones = state.zones_for(self.request)
        own = make_zone_hints(
            self.demand.requests,
            zones,
            lambda nodes: not isinstance(self._divide(zones, nodes), InsufficientNuma),
            self.policy,
        )
        aligned = align(
            self.policy,
            self.all_nodes,
            [*own.items(), *other_hints],
            choose_exclusive(allocation_hints.policy, allocation_hints.exclusive),
            state.occupancy,
        )
        if aligned.cause is not None:
            return aligned.cause
        nodes = aligned.hint.nodes or self.all_nodes
        shares = self._divide(zones, nodes)
        if isinstance(shares, InsufficientNuma):
            if self.policy.may_refuse:
                return shares
            shares = ()
        cpus = state.take(self.request, shares)
        if isinstance(cpus, CpuCause):
            return cpus
        only = nodes if nodes != self.all_nodes else None
        return NumaChoice(only, shares, cpus, self._most(), state.cost_of(cpus))

    def _divide(
        self, zones: Sequence[NumaZone], nodes: NumaNodes
    ) -> tuple[NumaShare, ...] | InsufficientNuma:
        step, cpus = 1, self.state.layout.cpus
        if self.request is not None and cpus is not None:
            step = self.request.step(cpus) * MILLI
        return distribute(self.demand.requests, zones, nodes, step)

    def _most(self) -> int:
        """Return an upper bound: one by one where a pod has one NUMA node, else of their sums."""
        request = self.request
        if request is not None and request.bind is CpuBind.SPREAD_BY_PCPUS:
            # The other CPUs of a core are for the next pods.
            request = replace(request, is_required=False)
        zones = self.state.zones_for(request)
        if not self.policy.may_refuse:
            return self.state.count(self.request)
        named = [
            (key, amount)
            for key, amount in self.demand.requests.items()
            if amount and any(key in zone.total for zone in zones)
        ]
        groups = [[zone] for zone in zones]
        if self.policy is not NumaPolicy.SINGLE_NUMA_NODE:
            groups = [list(zones)]
        counts = (
            min(
                (sum(z.available.get(k, 0) for z in group) // n for k, n in named), default=NO_LIMIT
            )
            for group in groups
        )
        return sum(counts) if named else NO_LIMIT


class Chooser(Protocol):
    """Another rule than :func:`choose`; compared by value."""

    def choose(
        self, state: NumaState, demand: NumaDemand, other_hints: OtherHints
    ) -> NumaChoice | NumaCause:
        """Return what one more pod gets."""

    def __hash__(self) -> int: ...


PER_ANSWER: Final = 20
PER_CORE: Final = 1
PER_COMBINATION: Final = 8
"""Operations, in the unit of :class:`Steps`, of one answer: in all, for each core of the node, and
for each combination of NUMA nodes where they are aligned."""


class NumaStates:
    """All states that nodes are in, or may get into.

    An answer that is remembered costs nothing; ``steps`` are those of the cycle that asks.
    """

    def __init__(self) -> None:
        self.steps = Steps()
        self._states: list[NumaState] = []
        self._number_of: dict[NumaState, StateId] = {}
        self._layouts: dict[NumaLayout, NumaLayout] = {}
        self._answers: dict[
            tuple[StateId, NumaDemand, OtherHints, Chooser | None], NumaChoice | NumaCause
        ] = {}
        self.compact(())

    def compact(self, used: Iterable[NumaState]) -> None:
        """Forget all states but these, which get new numbers in this order, and all answers."""
        used_states = list(used)
        self._states, self._number_of, self._layouts = [], {}, {}
        self._answers.clear()
        for state in (NumaState(NumaLayout()), *used_states):
            layout = self.intern(state.layout)
            self.number(NumaState(layout, state.used, state.cpus, state.pinned))

    @property
    def is_full(self) -> bool:
        return len(self._states) > MOST_STATES or len(self._answers) > MOST_ANSWERS

    def intern(self, layout: NumaLayout) -> NumaLayout:
        """Return the one layout of all nodes with equal hardware and policies."""
        return self._layouts.setdefault(layout, layout)

    def number(self, state: NumaState) -> StateId:
        state_id = self._number_of.get(state)
        if state_id is None:
            state_id = self._number_of[state] = len(self._states)
            self._states.append(state)
        return state_id

    def state(self, number: StateId) -> NumaState:
        return self._states[number]

    def choose(
        self,
        number: StateId,
        demand: NumaDemand,
        other_hints: OtherHints,
        chooser: "Chooser | None" = None,
    ) -> NumaChoice | NumaCause:
        """Return what one more pod gets in a state; ``chooser`` decides if it may use a hold."""
        key = (number, demand, other_hints, chooser)
        answer = self._answers.get(key)
        if answer is None:
            rule = choose if chooser is None else chooser.choose
            self._take(self._states[number].layout, demand)
            answer = self._answers[key] = rule(self._states[number], demand, other_hints)
        return answer

    def _take(self, layout: NumaLayout, demand: NumaDemand) -> None:
        """Count the work of one answer, which is about to begin."""
        operations = PER_ANSWER
        if layout.pool is not None:
            operations += PER_CORE * len(layout.pool.topology.cores)
        if demand.allocation_hints.policy or layout.label or layout.kubelet:
            operations += PER_COMBINATION << len(layout.zones)
        self.steps.spend(0, operations)

    def most_when_empty(self, number: StateId, demand: NumaDemand) -> int:
        """Return how many pods an empty node of the same layout takes, at most."""
        layout = self._states[number].layout
        if not layout.zones and layout.pool is None:
            return NO_LIMIT
        numa_choice = self.choose(self.number(NumaState(layout)), demand, ())
        return numa_choice.most if isinstance(numa_choice, NumaChoice) else 0

    def after(self, number: StateId, allocation: NumaAllocation, count: int = 1) -> StateId:
        return self.number(self._states[number].after(allocation, count))
