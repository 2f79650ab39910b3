"""Sets of PCIe switches on which the devices of several types can be chosen together.

Needed where all types must be on the same switches: the best GPUs alone may be next to NICs that
are taken, while other GPUs fit.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from koord.core.device.choice import Candidate, Picked, pick
from koord.core.device.model import TypeRequest

MOST_SWITCHES: Final = 16
"""A node with more tries sets of the first ones only."""


def rank_switches(
    candidates: Sequence[Candidate],
    request: TypeRequest,
    near: Sequence[Sequence[Candidate]],
    other_requests: Sequence[TypeRequest],
) -> Iterator[Picked]:
    """Yield choices of the first type, one per set of switches on which all types fit.

    Fewer switches come first, and among as many those of fewer NUMA nodes. Every switch of a set
    is used by every type.
    """
    eligible = _eligible(candidates, request, near, other_requests)[:MOST_SWITCHES]
    for size in range(1, min(len(eligible), len(request.parts)) + 1):
        sets = combinations(eligible, size)
        for switches in sorted(sets, key=lambda switch_set: len({numa for numa, _ in switch_set})):
            names = [name for _, name in switches]
            for other, devices in zip(other_requests, near, strict=True):
                part = other.parts[0]
                fitting = sum(
                    device.place.pcie in names and device.fits(part) for device in devices
                )
                if fitting < max(len(other.parts), size):
                    break
            else:
                picked = _pick_on_each(candidates, request, names)
                if picked is not None:
                    yield picked


def _eligible(
    candidates: Sequence[Candidate],
    request: TypeRequest,
    near: Sequence[Sequence[Candidate]],
    other_requests: Sequence[TypeRequest],
) -> list[tuple[int, str]]:
    """Return the switches, by NUMA node and name, with a fitting device of every type."""
    smallest = min(request.parts)
    switches = {
        (candidate.place.numa, candidate.place.pcie)
        for candidate in candidates
        if candidate.fits(smallest)
    }
    for other, devices in zip(other_requests, near, strict=True):
        usable = {device.place.pcie for device in devices if device.fits(other.parts[0])}
        switches = {switch for switch in switches if switch[1] in usable}
    return sorted(switches)


def _pick_on_each(
    candidates: Sequence[Candidate], request: TypeRequest, switches: Sequence[str]
) -> Picked | None:
    """Take devices from exactly these switches: one of each first, then the rest."""
    inside = [candidate for candidate in candidates if candidate.place.pcie in switches]
    first = [
        next(
            candidate
            for candidate in inside
            if candidate.place.pcie == name and _fits_any(candidate, request)
        )
        for name in switches
    ]
    return pick(first + [candidate for candidate in inside if candidate not in first], request)


def _fits_any(candidate: Candidate, request: TypeRequest) -> bool:
    return any(candidate.fits(part) for part in request.parts)
