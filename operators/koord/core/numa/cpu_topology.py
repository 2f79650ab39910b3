"""CPUs of a node: where each one is, how often it is in use, and how sets of CPUs are written.

A set of CPUs is an integer with one bit per CPU. All values are immutable and compare by content.
Which CPUs a pod is given is decided elsewhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Self, TypeAlias

from koord.core.model.text import cut

Cpus: TypeAlias = int
"""A set of CPUs: bit n is CPU n."""

MAX_CPUS: Final = 8192
"""CPUs that Linux supports on one machine; larger numbers are rejected."""
_MAX_TEXT: Final = 1 << 16
"""Every second one of ``MAX_CPUS`` CPUs takes less."""


@dataclass(frozen=True, slots=True)
class InvalidCpuset:
    """A text is not a set of CPUs; ``part`` is the first part that is wrong."""

    part: str

    def describe(self) -> str:
        return (
            f'"{cut(self.part)}" is not a CPU or a range of CPUs; write them like 0-3,32-35, '
            f"up to {MAX_CPUS - 1}"
        )


def parse_cpuset(text: str) -> Cpus | InvalidCpuset:
    """Read ``0-3,32-35``; the empty text is the empty set."""
    if len(text) > _MAX_TEXT:
        return InvalidCpuset(text)
    cpus = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low, high = _number(first), _number(last if dash else first)
        if not 0 <= low <= high < MAX_CPUS:
            return InvalidCpuset(part)
        cpus |= (1 << (high + 1)) - (1 << low)
    return cpus


def _number(text: str) -> int:
    # Python reads digits of other scripts, and takes long for thousands of digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_CPUS))
    return int(text) if is_number else -1


def format_cpuset(cpus: Cpus) -> str:
    """Write ``0-3,32-35``: numbers ascending, neighbours as a range."""
    parts = []
    while cpus:
        start = (cpus & -cpus).bit_length() - 1
        length = ((cpus >> start) + 1 & ~(cpus >> start)).bit_length() - 1
        parts.append(f"{start}-{start + length - 1}" if length > 1 else str(start))
        cpus &= ~((1 << start + length) - 1)
    return ",".join(parts)


def lowest_cpus(cpus: Cpus, count: int) -> Cpus:
    """Return the ``count`` CPUs with the lowest numbers, or all if there are fewer."""
    if cpus.bit_count() <= count:
        return cpus
    low, high = 0, cpus.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (cpus & (1 << middle) - 1).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return cpus & (1 << low) - 1


@dataclass(frozen=True, slots=True)
class CpuPlace:
    """Where one CPU is. Numbers of cores are unique within a socket."""

    cpu: int
    core: int
    socket: int
    numa: int


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """The CPUs of a NUMA node or of a socket.

    ``cores`` in the order of socket and number. ``around``: the CPUs of the sockets that a NUMA
    node belongs to; empty for a socket.
    """

    number: int
    cpus: Cpus
    cores: tuple[Cpus, ...]
    around: Cpus = 0


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """The CPUs of a node by core, NUMA node and socket.

    ``cores`` are in the order of socket and number. A core with fewer CPUs than the others, because
    some are offline, is never a whole core.
    """

    cpus: Cpus
    cores: tuple[Cpus, ...]
    core_places: tuple[tuple[int, int], ...]
    """Of each core the index of its socket and of its NUMA node."""
    numa_nodes: tuple[CpuGroup, ...]
    sockets: tuple[CpuGroup, ...]
    cpus_per_core: int
    cpus_per_numa: int
    cpus_per_socket: int
    core_numbers: tuple[int, ...] = field(default=(), compare=False)
    """Of each core its number, for people: nothing is decided by it."""

    def cpus_in(self, numa_nodes: int) -> Cpus:
        """Return the CPUs of a set of NUMA nodes (bit n is node n)."""
        return sum(
            numa_node.cpus for numa_node in self.numa_nodes if numa_nodes >> numa_node.number & 1
        )

    def numa_of(self, cpus: Cpus) -> int:
        """Return the set of NUMA nodes that CPUs belong to."""
        return sum(1 << numa_node.number for numa_node in self.numa_nodes if numa_node.cpus & cpus)


def make_topology(places: Iterable[CpuPlace]) -> CpuTopology | None:
    """Return the topology; None: there are no CPUs, or their places contradict each other."""
    ordered_places = sorted(places, key=lambda place: (place.socket, place.core, place.cpu))
    numa_of = {(place.socket, place.core): place.numa for place in ordered_places}
    is_valid = (
        len({place.cpu for place in ordered_places}) == len(ordered_places)
        and all(
            0 <= place.cpu < MAX_CPUS and 0 <= place.numa < MAX_CPUS for place in ordered_places
        )
        and all(numa_of[place.socket, place.core] == place.numa for place in ordered_places)
    )
    if not ordered_places or not is_valid:
        return None
    by_core = _collect(((place.socket, place.core), place.cpu) for place in ordered_places)
    cores = tuple(by_core.values())
    sockets = _make_groups((((place.socket,), place.cpu) for place in ordered_places), cores)
    numa_nodes = _make_groups(
        (((place.numa,), place.cpu) for place in ordered_places), cores, sockets
    )
    return CpuTopology(
        cpus=sum(cores),
        cores=cores,
        core_places=tuple((_index(sockets, core), _index(numa_nodes, core)) for core in cores),
        numa_nodes=numa_nodes,
        sockets=sockets,
        cpus_per_core=max(core.bit_count() for core in cores),
        cpus_per_numa=max(numa_node.cpus.bit_count() for numa_node in numa_nodes),
        cpus_per_socket=max(socket.cpus.bit_count() for socket in sockets),
        core_numbers=tuple(number for _, number in by_core),
    )


_Numbered: TypeAlias = Iterable[tuple[tuple[int, ...], int]]
"""CPUs, each with the number of what it is part of."""


def _collect(numbered: _Numbered) -> dict[tuple[int, ...], Cpus]:
    cpus_of: dict[tuple[int, ...], Cpus] = {}
    for number, cpu in numbered:
        cpus_of[number] = cpus_of.get(number, 0) | 1 << cpu
    return cpus_of


def _make_groups(
    numbered: _Numbered, cores: Sequence[Cpus], sockets: Sequence[CpuGroup] = ()
) -> tuple[CpuGroup, ...]:
    return tuple(
        CpuGroup(
            number,
            cpus,
            cores=tuple(core for core in cores if core & cpus),
            around=sum(socket.cpus for socket in sockets if socket.cpus & cpus),
        )
        for (number,), cpus in sorted(_collect(numbered).items())
    )


def _index(groups: Sequence[CpuGroup], core: Cpus) -> int:
    return next(index for index, group in enumerate(groups) if group.cpus & core)


@dataclass(frozen=True, slots=True)
class RefCounts:
    """How often CPUs are in use: ``levels[n]`` are those in use more than ``n`` times."""

    levels: tuple[Cpus, ...] = ()

    def add(self, cpus: Cpus) -> Self:
        levels = []
        for level in self.levels:
            levels.append(level | cpus)
            cpus &= level
        return self._with((*levels, cpus))

    def remove(self, cpus: Cpus) -> Self:
        """Undo one ``add``; CPUs that are not in use stay so."""
        above = (*self.levels[1:], 0)
        return self._with(
            level & (~cpus | more) for level, more in zip(self.levels, above, strict=False)
        )

    def at_least(self, count: int) -> Cpus:
        """Return the CPUs in use ``count`` times (at least 1) or more."""
        return self.levels[count - 1] if count <= len(self.levels) else 0

    def total(self, cpus: Cpus) -> int:
        return sum((level & cpus).bit_count() for level in self.levels)

    def first(self, cpus: Cpus) -> Cpus:
        """Return the first one of the CPUs used least."""
        return self.least_used(cpus, 1) if self.levels else cpus & -cpus

    def least_used(self, cpus: Cpus, count: int) -> Cpus:
        """Return ``count`` of the CPUs: the least used, among those the lowest numbers."""
        taken = 0
        for level in self.levels:
            taken |= lowest_cpus(cpus & ~level, count - taken.bit_count())
            cpus &= level
        return taken | lowest_cpus(cpus, count - taken.bit_count())

    def _with(self, levels: Iterable[Cpus]) -> Self:
        return replace(self, levels=tuple(level for level in levels if level))


class CpuExclusive(StrEnum):
    """Whom a pod avoids: pods with the same policy on the same core, or the same NUMA node."""

    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


@dataclass(frozen=True, slots=True)
class CpusInUse:
    """The CPUs that pods of one node hold: all of them, and those held under each policy."""

    counts: RefCounts = RefCounts()
    by_core: RefCounts = RefCounts()
    """Of pods that avoid each other on a core."""
    by_numa: RefCounts = RefCounts()
    """Of pods that avoid each other on a NUMA node."""

    def hold(self, cpus: Cpus, exclusive: CpuExclusive | None = None) -> Self:
        """Count exactly these CPUs for one more pod, whether or not they are free."""
        return self._change(RefCounts.add, cpus, exclusive)

    def give_back(self, cpus: Cpus, exclusive: CpuExclusive | None = None) -> Self:
        """Undo one ``hold`` with the same arguments."""
        return self._change(RefCounts.remove, cpus, exclusive)

    def _change(
        self,
        change: Callable[[RefCounts, Cpus], RefCounts],
        cpus: Cpus,
        exclusive: CpuExclusive | None,
    ) -> Self:
        by_core, by_numa = self.by_core, self.by_numa
        if exclusive is CpuExclusive.PCPU_LEVEL:
            by_core = change(by_core, cpus)
        elif exclusive is CpuExclusive.NUMA_NODE_LEVEL:
            by_numa = change(by_numa, cpus)
        return replace(self, counts=change(self.counts, cpus), by_core=by_core, by_numa=by_numa)
