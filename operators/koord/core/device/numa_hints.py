"""Which sets of NUMA nodes can give a pod its devices (NUMA hints). Source: Koordinator.

A set is feasible if the whole request can be met by its devices. The smallest feasible sets are
preferred; those on which the GPUs are the same as without any restriction get extra points, more
than CPUs and memory can give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from koord.core.device.allocate import DEFAULTS, AllocationSettings, allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import ANYWHERE, DeviceRequest, DeviceShare, DeviceTerms
from koord.core.model.device_names import GPU, DeviceType
from koord.core.model.zone_hints import MAX_NUMBER, Hints, NumaNodes, list_sets, make_hints

BEST_GPUS: Final = 500
MOST_LOOKS: Final = 16


def find_hints(
    ledger: DeviceLedger,
    request: DeviceRequest,
    terms: DeviceTerms = ANYWHERE,
    settings: AllocationSettings = DEFAULTS,
) -> Mapping[DeviceType, Hints] | DeviceCause:
    """Return the feasible sets, the same for every type; or why the whole node does not do.

    Without devices that have a NUMA node there is no preference.
    """
    nodes = _numa_nodes(ledger, request)
    whole = allocate(ledger, request, _within(terms, nodes) if nodes else terms, settings)
    if isinstance(whole, DeviceCause):
        return whole
    best = _gpus_of(whole)
    needed = _zones_of(ledger, whole) if _is_simple(ledger, request, terms) else None
    feasible: list[tuple[NumaNodes, int]] = []
    for chosen in list_sets(nodes):
        if needed is not None and any(chosen & smaller == smaller for smaller, _ in feasible):
            # A request that fits into a subset fits into the set, and its best GPUs stay the best.
            feasible.append((chosen, BEST_GPUS if chosen & needed == needed else 0))
            continue
        if not _has_enough(ledger, request, chosen):
            continue
        shares = allocate(ledger, request, _within(terms, chosen), settings)
        if not isinstance(shares, DeviceCause):
            feasible.append((chosen, BEST_GPUS if _gpus_of(shares) == best else 0))
    hints = make_hints(feasible) if nodes else None
    return {type_.kind: hints for type_ in request.types}


def _is_simple(ledger: DeviceLedger, request: DeviceRequest, terms: DeviceTerms) -> bool:
    """Whether devices are of one type, and more of them to choose from change no choice."""
    return (
        len(request.types) == 1
        and not terms.preferred
        and not ledger.foreign
        and ledger.inventory.vendor not in request.plugins
    )


def _has_enough(ledger: DeviceLedger, request: DeviceRequest, nodes: NumaNodes) -> bool:
    """Whether some NUMA nodes have as many devices as are asked for, used or not."""
    for type_ in request.types:
        places = (device.place for device in ledger.inventory.of(type_.kind))
        near = (place.numa < 0 or nodes >> place.numa & 1 for place in places if place is not None)
        if sum(map(bool, near)) < len(type_.parts):
            return False
    return True


def _zones_of(ledger: DeviceLedger, shares: Sequence[DeviceShare]) -> NumaNodes:
    """Return the NUMA nodes that the GPUs of a pod are on."""
    minors = _gpus_of(shares)
    places = (device.place for device in ledger.inventory.of(GPU) if device.minor in minors)
    numbers = {place.numa for place in places if place is not None}
    return sum(1 << number for number in numbers if 0 <= number <= MAX_NUMBER)


def count_looks(ledger: DeviceLedger, request: DeviceRequest) -> int:
    """Return about how often :func:`find_hints` looks for devices.

    On machines with many NUMA nodes devices of several types take more; their pods are not charged
    for that, so that the shape of a node does not refuse them.
    """
    return 2 + min(_numa_nodes(ledger, request).bit_count(), MOST_LOOKS)


def limit_to(
    ledger: DeviceLedger,
    request: DeviceRequest,
    nodes: NumaNodes | None,
    terms: DeviceTerms = ANYWHERE,
) -> DeviceTerms:
    """Limit terms to certain NUMA nodes; without effect where no device has a NUMA node."""
    return _within(terms, nodes) if nodes and _numa_nodes(ledger, request) else terms


def _numa_nodes(ledger: DeviceLedger, request: DeviceRequest) -> NumaNodes:
    places = (device.place for type_ in request.types for device in ledger.inventory.of(type_.kind))
    numbers = {place.numa for place in places if place}
    return sum(1 << number for number in numbers if 0 <= number <= MAX_NUMBER)


def _within(terms: DeviceTerms, nodes: NumaNodes) -> DeviceTerms:
    numbers = range(nodes.bit_length())
    return replace(terms, numa=frozenset(number for number in numbers if nodes >> number & 1))


def _gpus_of(shares: Sequence[DeviceShare]) -> frozenset[int]:
    return frozenset(share.minor for share in shares if share.kind == GPU)
