"""Resources of NUMA nodes, such as CPU and memory: hints, and shares of a request.

Hints name the sets of NUMA nodes that can serve a request; it is divided among the nodes of one.
Which set a pod gets is decided elsewhere, by policies.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.engine.cause import Cause
from koord.core.engine.scoring import MAX_SCORE, ScoringStrategy
from koord.core.model.units import CPU, MEMORY, Amounts
from koord.core.model.zone_hints import NumaHint, NumaNodes, list_sets, make_hints
from koord.core.numa.policy import UNALIGNED, NumaPolicy

INSUFFICIENT: Final = Cause(
    "InsufficientNUMA",
    UNALIGNED.rank + 1,
    "Insufficient NUMA {detail}",
    "Free {detail} on the NUMA nodes of {nodes}, or request less.",
    by_detail=True,
)


@dataclass(frozen=True, slots=True)
class NumaZone:
    """What one NUMA node has, and what of it is available; ``number`` up to ``MAX_NUMBER``."""

    number: int
    total: Amounts
    available: Amounts


def make_zone_hints(
    requests: Amounts,
    zones: Sequence[NumaZone],
    is_feasible: Callable[[NumaNodes], bool],
    policy: NumaPolicy,
    strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED,
) -> dict[str, tuple[NumaHint, ...]]:
    """Return hints for the requested resources that belong to NUMA nodes.

    ``is_feasible`` tries to allocate all of the request on a set of NUMA nodes. A set with a node
    that has nothing left of a resource is no hint for that resource.
    """
    resources = [name for name in requests if any(name in zone.total for zone in zones)]
    all_nodes = sum(1 << zone.number for zone in zones)
    feasible = [
        (nodes, score_zones(requests, _zones_in(zones, nodes), strategy))
        for nodes in list_sets(all_nodes)
        if is_feasible(nodes)
    ]
    exhausted = {
        name: sum(1 << zone.number for zone in zones if not zone.available.get(name))
        for name in resources
    }
    return {
        name: make_hints(
            [(nodes, score) for nodes, score in feasible if not nodes & exhausted[name]],
            prefer_all=policy is NumaPolicy.RESTRICTED,
        )
        for name in resources
    }


def score_zones(requests: Amounts, zones: Sequence[NumaZone], strategy: ScoringStrategy) -> int:
    """Score NUMA nodes together, 0 to 100: CPU and memory count alike."""
    shares = []
    for name in (CPU, MEMORY):
        if total := sum(zone.total.get(name, 0) for zone in zones):
            available = sum(zone.available.get(name, 0) for zone in zones)
            left = min(max(available - requests.get(name, 0), 0), total)
            is_packing = strategy is ScoringStrategy.MOST_ALLOCATED
            shares.append((total - left if is_packing else left) * MAX_SCORE // total)
    return sum(shares) // len(shares) if shares else 0


def _zones_in(zones: Iterable[NumaZone], nodes: NumaNodes) -> list[NumaZone]:
    return [zone for zone in zones if nodes >> zone.number & 1]


@dataclass(frozen=True, slots=True)
class NumaShare:
    """What a pod is given of one NUMA node; amounts in the order of names."""

    number: int
    amounts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class InsufficientNuma:
    """NUMA nodes lack something; ``missing`` amounts in the order of names."""

    missing: tuple[tuple[str, int], ...]

    cause: ClassVar = INSUFFICIENT
    is_resolvable: ClassVar = True

    def messages(self) -> tuple[str, ...]:
        """Return the messages of Koordinator."""
        return tuple(self.cause.describe(detail=resource) for resource, _ in self.missing)

    def describe(self) -> str:
        return "; ".join(self.messages())


def distribute(
    requests: Amounts, zones: Sequence[NumaZone], nodes: NumaNodes, cpu_step: int = 1
) -> tuple[NumaShare, ...] | InsufficientNuma:
    """Divide a request among a set of NUMA nodes, as evenly as the available amounts allow.

    CPU is divided in multiples of ``cpu_step`` milli-CPU. Resources that no NUMA node reports are
    left out.
    """
    inside = _zones_in(zones, nodes)
    shares: dict[int, dict[str, int]] = {}
    missing = []
    for name in sorted(requests):
        if not any(name in zone.total for zone in zones):
            continue
        step = cpu_step if name == CPU else 1
        remaining = requests[name]
        ascending = sorted((zone.available.get(name, 0) // step, zone.number) for zone in inside)
        for index, (room, number) in enumerate(ascending):
            share = min(remaining // step // (len(ascending) - index), room) * step
            if share > 0:
                shares.setdefault(number, {})[name] = share
                remaining -= share
        if remaining:
            missing.append((name, remaining))
    if missing:
        return InsufficientNuma(tuple(missing))
    return tuple(
        NumaShare(number, tuple(amounts.items())) for number, amounts in sorted(shares.items())
    )
