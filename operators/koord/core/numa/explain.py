"""What exactly the NUMA nodes of one node lack for a pod, with numbers."""

from collections.abc import Iterator, Sequence
from typing import Final

from koord.core.model.text import listed
from koord.core.model.units import CPU, format_amount
from koord.core.numa.cpus import CpuCause, CpuRequest, request_cpus
from koord.core.numa.states import NumaCause, NumaDemand, NumaState
from koord.core.numa.zones import InsufficientNuma, NumaZone

MOST_ZONES: Final = 16
"""More are counted only."""


def describe_detail(refusal: NumaCause) -> str:
    """Return what nodes with one cause are counted by."""
    if isinstance(refusal, InsufficientNuma):
        return ", ".join(key for key, _ in refusal.lacking)
    return refusal.describe()


def explain_zones(
    state: NumaState,
    asked: NumaDemand,
    refusal: NumaCause,
    problems: Sequence[tuple[str, str]] = (),
) -> str:
    """Return what is free of each NUMA node: ``NUMA node 0: 12 of 16 CPUs free``.

    ``problems`` of the NodeResourceTopology, if no room that is freed would help.
    """
    if not refusal.is_resolvable:
        return listed((f"{field} {text}" for field, text in problems), "; ")
    request = request_cpus(asked.cpus, state.layout.cpus, state.layout.bind)
    pinned = request if isinstance(request, CpuRequest) else None
    zones = state.zones_for(pinned)
    texts = [
        f"NUMA node {zone.number}: {', '.join(_describe_zone(zone, asked))}"
        for zone in zones[:MOST_ZONES]
    ]
    if isinstance(refusal, CpuCause) and not zones:
        texts = [f"{refusal.of} of {refusal.wanted // 1000} CPUs can be pinned"]
    if len(zones) > MOST_ZONES:
        texts.append(f"{len(zones) - MOST_ZONES} more")
    if isinstance(refusal, (CpuCause, InsufficientNuma)) or not zones:
        return "; ".join(texts)
    return "; ".join([refusal.describe(), *texts])


def _describe_zone(zone: NumaZone, asked: NumaDemand) -> Iterator[str]:
    for key in sorted(asked.requests.keys() & zone.total.keys()):
        free, total = (format_amount(key, one[key]) for one in (zone.available, zone.total))
        yield f"{free} of {total} CPUs free" if key == CPU else f"{key} {free} of {total} free"
