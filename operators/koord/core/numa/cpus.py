"""CPU pinning: whether the CPUs of a pod are pinned, and which ones it is given on one node.

The order in which CPUs are tried is Koordinator's (its plugin NodeNUMAResource). The CPUs of a pod
are close together: in one NUMA node if they fit, else in one socket. ``FullPCPUs`` gives whole
cores; the other policies give CPUs of different cores first. Among NUMA nodes, ``MostAllocated``
takes the one with the fewest free CPUs that is enough, ``LeastAllocated`` the one with the most.
A pod with an exclusive policy avoids the cores, or NUMA nodes, of other pods with the same policy,
as long as that leaves enough CPUs close together.

A CPU may be given to several pods (``max_refs``); those in use the least are taken first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final

from koord.core.engine.cause import Cause
from koord.core.engine.scoring import ScoringStrategy
from koord.core.numa.cpu_topology import (
    CpuExclusive,
    CpuGroup,
    Cpus,
    CpusInUse,
    CpuTopology,
    RefCounts,
)

ANY_CPU: Final[Cpus] = -1
"""All CPUs, as a mask."""
MILLI: Final = 1000
"""One CPU, in the unit of requests."""
PINNED_QOS: Final = frozenset({"LSE", "LSR"})
"""QoS classes whose CPUs are pinned, in the priority band koord-prod."""

_RANK: Final = 50
"""After all that kube-scheduler checks first."""
NOT_WHOLE: Final = Cause(
    "InvalidCPURequest",
    _RANK,
    "the requested CPUs must be integer",
    "Request whole CPUs, because the CPUs of the pod are pinned.",
)
NO_TOPOLOGY: Final = Cause(
    "CPUTopologyMissing",
    _RANK + 1,
    "node(s) invalid CPU Topology",
    "Report the CPU topology of {nodes} (annotation cpu-topology of its NodeResourceTopology).",
)
CONFLICT: Final = Cause(
    "CPUBindPolicyConflict",
    _RANK + 2,
    "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
    "Drop requiredCPUBindPolicy of the pod, or the label cpu-bind-policy of {nodes}.",
)
NOT_WHOLE_CORES: Final = Cause(
    "CPUNotWholeCores",
    _RANK + 3,
    "node(s) requested cpus not multiple cpus per core",
    "Request a multiple of the CPUs per core of {nodes}.",
)
INSUFFICIENT: Final = Cause(
    "InsufficientCPUs",
    _RANK + 9,
    "not enough cpus available to satisfy request",
    "Free pinned CPUs on {nodes}, or request fewer.",
)
BAD_RATIO: Final = Cause(
    "InvalidAmplificationRatio",
    _RANK + 4,
    "node(s) invalid CPU amplification ratio",
    "Correct the annotation resource-amplification-ratio of {nodes}.",
)
AMPLIFIED: Final = Cause(
    "InsufficientAmplifiedCPU",
    _RANK + 9,
    "Insufficient amplified cpu",
    "Free CPUs on {nodes}, where a pinned CPU costs more than one.",
)


@dataclass(frozen=True, slots=True)
class CpuCause:
    """Why a node cannot pin the CPUs of a pod.

    ``wanted`` milli-CPU are requested. ``of``: CPUs that are free and meet the policy for
    ``INSUFFICIENT``, CPUs per core for ``NOT_WHOLE_CORES``.
    """

    cause: Cause
    wanted: int = 0
    of: int = 0

    @property
    def is_resolvable(self) -> bool:
        """Whether freeing CPUs of the node may help."""
        return self.cause is INSUFFICIENT

    def describe(self) -> str:
        """Return the message of Koordinator."""
        return self.cause.describe()


class CpuBind(StrEnum):
    """How the CPUs of a pod are laid out over cores."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"

    @property
    def meaning(self) -> "CpuBind":
        return CpuBind.FULL_PCPUS if self is CpuBind.DEFAULT else self


@dataclass(frozen=True, slots=True)
class CpuHints:
    """What a pod says about its CPUs; the policies count only where ``is_pinned``."""

    milli: int
    is_pinned: bool = False
    """Whether it asks for pinned CPUs itself, see :func:`wants_pinned`."""
    required: CpuBind | None = None
    preferred: CpuBind = CpuBind.DEFAULT
    exclusive: CpuExclusive | None = None


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """CPUs to be pinned on one node. ``is_required``: in no other way than ``bind``."""

    count: int
    bind: CpuBind = CpuBind.FULL_PCPUS
    is_required: bool = False
    exclusive: CpuExclusive | None = None

    def step(self, topology: CpuTopology) -> int:
        """Return the number of CPUs that every part of the request is a multiple of."""
        whole_cores = self.is_required and self.bind is CpuBind.FULL_PCPUS
        return topology.cpus_per_core if whole_cores else 1


def wants_pinned(qos: str, *, is_prod: bool) -> bool:
    """Whether a pod asks for pinned CPUs; ``is_prod``: of the priority band koord-prod."""
    return is_prod and qos in PINNED_QOS


def request_cpus(
    hints: CpuHints, topology: CpuTopology | None, node_bind: CpuBind | None = None
) -> CpuRequest | CpuCause | None:
    """Return what a pod asks a node for; None: its CPUs are not pinned there.

    ``node_bind``: the policy that the node demands of every pod, if any.
    """
    if not hints.milli or not (hints.is_pinned or node_bind):
        return None
    if hints.milli % MILLI:
        return CpuCause(NOT_WHOLE, hints.milli)
    if topology is None:
        return CpuCause(NO_TOPOLOGY, hints.milli)
    own = hints.required.meaning if hints.is_pinned and hints.required else None
    if node_bind and own not in {None, node_bind}:
        return CpuCause(CONFLICT, hints.milli)
    required = node_bind or own
    request = CpuRequest(
        hints.milli // MILLI,
        required or hints.preferred.meaning,
        is_required=required is not None,
        exclusive=hints.exclusive if hints.is_pinned else None,
    )
    if request.count % request.step(topology):
        return CpuCause(NOT_WHOLE_CORES, hints.milli, topology.cpus_per_core)
    return request


@dataclass(frozen=True, slots=True)
class CpuPool:
    """The CPUs of a node that may be pinned: all but reserved ones."""

    topology: CpuTopology
    usable: Cpus
    strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    max_refs: int = 1
    """How many pods may have the same CPU."""
    preferred: Cpus = 0
    """CPUs that come first, because they are held for the pod."""

    def counts(self, in_use: CpusInUse) -> RefCounts:
        """Return how often free CPUs are in use: never, unless several pods may have them."""
        return in_use.counts if self.max_refs > 1 else RefCounts()


def free_cpus(
    pool: CpuPool, in_use: CpusInUse, request: CpuRequest, within: Cpus = ANY_CPU
) -> Cpus:
    """Return the CPUs that a request may get: free, and as its required policy demands."""
    free = pool.usable & within & ~in_use.counts.at_least(pool.max_refs)
    if request.is_required and request.bind is CpuBind.FULL_PCPUS:
        return sum(_whole_cores(pool.topology.cores, free, pool.topology.cpus_per_core))
    if request.is_required and request.bind is CpuBind.SPREAD_BY_PCPUS:
        return _one_per_core(pool.topology.cores, free, pool.counts(in_use))
    return free


def take_cpus(
    pool: CpuPool, in_use: CpusInUse, request: CpuRequest, within: Cpus = ANY_CPU
) -> Cpus | CpuCause:
    """Choose exactly ``request.count`` CPUs, ``within`` the given ones.

    All of the preferred ones if they are not enough.
    """
    free = free_cpus(pool, in_use, request, within)
    if request.count > free.bit_count():
        return CpuCause(INSUFFICIENT, request.count * MILLI, free.bit_count())
    first = free & pool.preferred
    if request.step(pool.topology) > 1:
        first = sum(_whole_cores(pool.topology.cores, first, pool.topology.cpus_per_core))
    if first.bit_count() >= request.count:
        first, free = 0, first
    preferable = free & ~_avoided(pool.topology, in_use, request.exclusive)
    return first | _CpuSearch(
        pool.topology,
        free & ~first,
        preferable & ~first,
        pool.counts(in_use),
        1 if pool.strategy is ScoringStrategy.MOST_ALLOCATED else -1,
        request.count - first.bit_count(),
    ).run(request.bind)


def _avoided(topology: CpuTopology, in_use: CpusInUse, exclusive: CpuExclusive | None) -> Cpus:
    """Return the CPUs of the cores, or NUMA nodes, of other pods with the same policy."""
    match exclusive:
        case CpuExclusive.PCPU_LEVEL:
            in_use_alone = in_use.by_core.at_least(1)
            return (
                sum(core for core in topology.cores if core & in_use_alone) if in_use_alone else 0
            )
        case CpuExclusive.NUMA_NODE_LEVEL:
            return topology.cpus_in(topology.numa_of(in_use.by_numa.at_least(1)))
        case None:
            return 0


def _whole_cores(cores: Iterable[Cpus], free: Cpus, size: int) -> list[Cpus]:
    return [core for core in cores if core & free == core and core.bit_count() == size]


def _one_per_core(cores: Iterable[Cpus], free: Cpus, counts: RefCounts) -> Cpus:
    """Return one free CPU of every core that has any: the least used, then the first."""
    if not counts.levels:  # Written out: it takes most of the time on nodes with many cores.
        return sum(here & -here for core in cores if (here := core & free))
    return sum(counts.first(here) for core in cores if (here := core & free))


@dataclass(frozen=True, slots=True)
class _CpuSearch:
    """One request on one node that has enough free CPUs.

    ``preferable`` are the ``free`` CPUs outside of what exclusive policies avoid. ``counts`` are
    empty where CPUs are not shared. ``sign`` is 1 if the place with the fewest free CPUs comes
    first, and -1 if it is the one with the most.
    """

    topology: CpuTopology
    free: Cpus
    preferable: Cpus
    counts: RefCounts
    sign: int
    count: int

    def run(self, bind: CpuBind) -> Cpus:
        if bind is CpuBind.FULL_PCPUS or self.topology.cpus_per_core == 1:
            return self._whole_cores_together() or self._take_anywhere(self._whole_cores_anywhere())
        return self._spread_together() or self._take_anywhere(0)

    def _kinds_of_places(self) -> Iterator[tuple[CpuGroup, ...]]:
        """Yield NUMA nodes, then sockets, as long as one can be large enough."""
        if self.count <= self.topology.cpus_per_numa:
            yield self.topology.numa_nodes
        if self.count <= self.topology.cpus_per_socket:
            yield self.topology.sockets

    def _rounds(self) -> Iterator[Cpus]:
        """Yield the CPUs to choose from: first those that need not be avoided, then all."""
        if self.preferable != self.free:
            yield self.preferable
        yield self.free

    def _whole_cores_together(self) -> Cpus:
        """Take the first CPUs of the wholly free cores of one place; 0: none has enough."""
        for places in self._kinds_of_places():
            for free in self._rounds():
                offers = []
                for place in places:
                    cores = self._free_cores(place, free)
                    room = len(cores) * self.topology.cpus_per_core
                    if room >= self.count:
                        around = (free & place.around).bit_count()
                        offers.append((self.sign * room, self.sign * around, place.number, cores))
                if offers:
                    whole, remainder = divmod(self.count, self.topology.cpus_per_core)
                    cores = min(offers)[-1]
                    return sum(cores[:whole]) + self.counts.least_used(
                        sum(cores[whole : whole + 1]), remainder
                    )
        return 0

    def _whole_cores_anywhere(self) -> Cpus:
        """Take all free cores of sockets, the largest first, then some of the smallest left."""
        size = self.topology.cpus_per_core
        offers = [self._free_cores(socket, self.free) for socket in self.topology.sockets]
        missing, taken, left = self.count, 0, []
        for cores in sorted(offers, key=len, reverse=True):
            if len(cores) * size <= missing:
                taken |= sum(cores)
                missing -= len(cores) * size
            else:
                left.append(cores)
        for cores in sorted(left, key=len):
            last_cores = cores[: missing // size]
            taken |= sum(last_cores)
            missing -= len(last_cores) * size
        return taken

    def _free_cores(self, place: CpuGroup, free: Cpus) -> list[Cpus]:
        cores = _whole_cores(place.cores, free, self.topology.cpus_per_core)
        return sorted(cores, key=self.counts.total) if self.counts.levels else cores

    def _spread_together(self) -> Cpus:
        """Take CPUs of one place, of different cores as far as possible; 0: none has enough."""
        for places in self._kinds_of_places():
            cpus = self._spread_over(
                places, self.preferable, one_per_core=True
            ) or self._spread_over(places, self.free)
            if cpus:
                return cpus
        return 0

    def _spread_over(
        self, places: Iterable[CpuGroup], free: Cpus, *, one_per_core: bool = False
    ) -> Cpus:
        offers = []
        for place in places:
            inside = room = free & place.cpus
            if one_per_core and room.bit_count() >= self.count:
                inside = _one_per_core(place.cores, inside, self.counts)
            if inside.bit_count() >= self.count:
                # Sockets are compared by their offer, NUMA nodes by their free CPUs.
                size = (room if place.around else inside).bit_count()
                around = (free & place.around).bit_count()
                offers.append((self.sign * size, self.sign * around, place.number, place, inside))
        return self._interleave(*min(offers)[-2:]) if offers else 0

    def _interleave(self, place: CpuGroup, cpus: Cpus) -> Cpus:
        """Take one CPU of every core, then another one of every core, and so on."""
        taken = 0
        while True:
            layer = _one_per_core(place.cores, cpus & ~taken, self.counts)
            missing = self.count - taken.bit_count()
            if layer.bit_count() >= missing:
                return taken | self.counts.least_used(layer, missing)
            taken |= layer

    def _take_anywhere(self, taken: Cpus) -> Cpus:
        """Take the missing CPUs from anywhere, near to those already taken."""
        for free in self._rounds():
            cores = self._in_order(free & ~taken, taken)
            missing = self.count - taken.bit_count()
            while missing and cores:
                layer = [self.counts.first(core) for core in cores[:missing]]
                missing -= len(layer)
                taken |= sum(layer)
                cores = [left for core in cores if (left := core & ~taken)] if missing else []
        return taken

    def _in_order(self, free: Cpus, taken: Cpus) -> list[Cpus]:
        """Return the free CPUs of each core that has any, the cores in the order of their use."""
        sign, topology = self.sign, self.topology
        rooms = [sign * (free & numa_node.cpus).bit_count() for numa_node in topology.numa_nodes]
        sockets = [
            (-(taken & socket.cpus).bit_count(), sign * (free & socket.cpus).bit_count())
            for socket in topology.sockets
        ]
        entries = []
        for core, (socket, numa) in zip(topology.cores, topology.core_places, strict=True):
            if here := core & free:
                fullness = here.bit_count(), socket, self.counts.total(here)
                entries.append(((*sockets[socket], rooms[numa], *fullness), here))
        return [here for _, here in sorted(entries, key=itemgetter(0))]
