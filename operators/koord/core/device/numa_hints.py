"""Which sets of NUMA nodes can give a pod its devices (NUMA hints). Source: Koordinator.

A set is feasible if the whole request can be met by its devices. The smallest feasible sets are
preferred; those on which the GPUs are the same as without any restriction get extra points, more
than CPUs and memory can give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Final

from koord.core.device.allocate import DEFAULTS, Settings, allocate
from koord.core.device.causes import Lacking
from koord.core.device.ledger import Ledger
from koord.core.device.model import ANYWHERE, DeviceRequest, Share, Terms
from koord.core.device.names import GPU, DeviceType

BEST_GPUS: Final = 500
MOST_NUMA_NODES: Final = 8
"""Of more, only single nodes and all together are tried."""


@dataclass(frozen=True, slots=True)
class DeviceHint:
    """A set of NUMA nodes that can give the devices of one type."""

    nodes: frozenset[int]
    is_preferred: bool
    score: int


def find_hints(
    ledger: Ledger,
    request: DeviceRequest,
    terms: Terms = ANYWHERE,
    settings: Settings = DEFAULTS,
) -> Mapping[DeviceType, Sequence[DeviceHint]] | Lacking:
    """Return the feasible sets, the same for every type; or what is lacking on the whole node."""
    nodes = _numa_nodes(ledger, request)
    # Without devices that have a NUMA node, nothing is restricted, and any node will do.
    whole = allocate(
        ledger, request, replace(terms, numa=frozenset(nodes)) if nodes else terms, settings
    )
    if isinstance(whole, Lacking):
        return whole
    best = _gpus_of(whole)
    feasible: list[tuple[frozenset[int], int]] = []
    for chosen in _sets(nodes):
        shares = allocate(ledger, request, replace(terms, numa=chosen), settings)
        if not isinstance(shares, Lacking):
            feasible.append((chosen, BEST_GPUS if _gpus_of(shares) == best else 0))
    smallest = min((len(chosen) for chosen, _ in feasible), default=0)
    hints = [DeviceHint(chosen, len(chosen) == smallest, score) for chosen, score in feasible]
    return {one.kind: hints for one in request.types}


def _numa_nodes(ledger: Ledger, request: DeviceRequest) -> list[int]:
    return sorted(
        {
            device.place.numa
            for one in request.types
            for device in ledger.inventory.of(one.kind)
            if device.place is not None and device.place.numa >= 0
        }
    )


def _sets(nodes: Sequence[int]) -> list[frozenset[int]]:
    sizes = range(1, len(nodes) + 1) if len(nodes) <= MOST_NUMA_NODES else {1, len(nodes)}
    return [frozenset(one) for one in chain.from_iterable(combinations(nodes, n) for n in sizes)]


def _gpus_of(shares: Sequence[Share]) -> frozenset[int]:
    return frozenset(share.minor for share in shares if share.kind == GPU)
