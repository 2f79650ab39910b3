"""Why NUMA nodes and CPUs keep a pod from being placed on any node; what one node lacks for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.model.reasons import InvalidPodAnnotation
from koord.core.model.text import listed
from koord.core.model.units import CPU, format_amount
from koord.core.numa.cpus import CpuCause, CpuRequest, request_cpus
from koord.core.numa.states import NumaCause, NumaDemand, NumaState
from koord.core.numa.zones import InsufficientNuma, NumaZone

MOST_ZONES: Final = 16
"""More are counted only."""


@dataclass(frozen=True, slots=True)
class InvalidNumaAnnotation(InvalidPodAnnotation):
    """An annotation about NUMA nodes or CPUs cannot be read; the message names field and value."""

    code: ClassVar = "InvalidNUMAAnnotation"
    way_out: ClassVar = "correct it"


def describe_detail(numa_cause: NumaCause) -> str:
    """Return what nodes with one cause are counted by."""
    if isinstance(numa_cause, InsufficientNuma):
        return ", ".join(key for key, _ in numa_cause.missing)
    return numa_cause.describe()


def describe_cost(count: int, cost: int, left: int, offered: int) -> str:
    """Return why CPUs cannot be pinned where they are amplified; all but ``count`` in milli-CPU."""
    cost_text, left_text, offered_text = (format_amount(CPU, n) for n in (cost, left, offered))
    return f"{count} pinned CPUs cost {cost_text} of {left_text} free, {offered_text} are offered"


def explain_zones(
    state: NumaState,
    demand: NumaDemand,
    numa_cause: NumaCause,
    problems: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the free amounts of each NUMA node: ``NUMA node 0: 12 of 16 CPUs free``.

    ``problems`` of the NodeResourceTopology, if no room that is freed would help.
    """
    if not numa_cause.is_resolvable:
        return listed((f"{field} {text}" for field, text in problems), "; ")
    request = request_cpus(demand.cpus, state.layout.cpus, state.layout.bind)
    pinned = request if isinstance(request, CpuRequest) else None
    zones = state.zones_for(pinned)
    texts = [
        f"NUMA node {zone.number}: {', '.join(_describe_zone(zone, demand))}"
        for zone in zones[:MOST_ZONES]
    ]
    if isinstance(numa_cause, CpuCause) and not zones:
        texts = [f"{numa_cause.of} of {numa_cause.wanted // 1000} CPUs can be pinned"]
    if len(zones) > MOST_ZONES:
        texts.append(f"{len(zones) - MOST_ZONES} more")
    if isinstance(numa_cause, (CpuCause, InsufficientNuma)) or not zones:
        return "; ".join(texts)
    return "; ".join([numa_cause.describe(), *texts])


def _describe_zone(zone: NumaZone, demand: NumaDemand) -> Iterator[str]:
    for key in sorted(demand.requests.keys() & zone.total.keys()):
        free, total = (format_amount(key, amounts[key]) for amounts in (zone.available, zone.total))
        yield f"{free} of {total} CPUs free" if key == CPU else f"{key} {free} of {total} free"
