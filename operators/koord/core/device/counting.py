"""How many equal pods the devices of a node suffice for, by arithmetic.

Any number of pods with tiny requests fits, and a request may be as tiny as its author likes: so
devices are not given out one by one to be counted.
"""

from collections.abc import Sequence

from koord.core.device.allocate import AllocationSettings, size
from koord.core.device.causes import INSUFFICIENT, INSUFFICIENT_GPUS, DeviceCause
from koord.core.device.choice import Candidate, find_candidates
from koord.core.device.gpu_topology import must_honor
from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import (
    ANYWHERE,
    DeviceRequest,
    DeviceRules,
    Exclusive,
    Part,
    TypeRequest,
    make_part,
)
from koord.core.engine.arrays import NO_LIMIT
from koord.core.model.device_names import GPU, GPU_MEMORY, GPU_MEMORY_RATIO


def count_most(
    ledger: DeviceLedger, request: DeviceRequest, settings: AllocationSettings
) -> tuple[int, bool]:
    """Return an upper bound of the pods that fit one after the other, and whether it is exact.

    At least one must fit.
    """
    most, is_exact = NO_LIMIT, len(request.types) == 1
    for type_ in request.types:
        sized = size(ledger.inventory, type_)
        if isinstance(sized, DeviceCause):
            return 0, True
        candidates = find_candidates(ledger, sized, ANYWHERE, settings.rules, None)
        part = _least(sized.parts)
        counts = [
            _count_on(ledger, sized, part, candidate, settings.rules) for candidate in candidates
        ]
        most = min(most, _count_groups(counts, len(sized.parts)))
        is_exact = is_exact and _is_simple(ledger, request, sized, counts)
    return most, is_exact


def cause_after(request: DeviceRequest) -> DeviceCause:
    """Return why one more pod does not fit once as many as fit have their devices."""
    first = request.types[0]
    cause = INSUFFICIENT_GPUS if first.kind == GPU else INSUFFICIENT
    return DeviceCause(cause, first.kind, len(first.parts))


def _least(parts: Sequence[Part]) -> Part:
    """Return what every device gives at least."""
    first, *following = parts
    if all(other == first for other in following):
        return first
    amounts = [dict(part) for part in parts]
    return make_part({key: min(amount.get(key, 0) for amount in amounts) for key, _ in first})


def _count_on(
    ledger: DeviceLedger, request: TypeRequest, part: Part, candidate: Candidate, rules: DeviceRules
) -> int:
    """Return how often a device can give a part."""
    hint = request.hint
    if rules.keeps_exclusive and hint.exclusive is Exclusive.DEVICE:
        return int(candidate.fits(part))
    amounts, most = dict(part), NO_LIMIT
    if hint.function_selector is not None:
        most = len(candidate.functions)
    for key, amount in part:
        if amount > 0 and not (ledger.is_exact and key == GPU_MEMORY_RATIO):
            most = min(most, candidate.free.get(key, 0) // amount)
    if ledger.is_exact and amounts.get(GPU_MEMORY_RATIO, 0) > 0:
        most = min(most, _count_by_ratio(ledger, request, part, candidate))
    return most


def _count_by_ratio(
    ledger: DeviceLedger, request: TypeRequest, part: Part, candidate: Candidate
) -> int:
    """Return how often the ratio fits: by the remaining ratio, and by bytes (rounded down)."""
    total, ratio = dict(candidate.device.total), dict(part)[GPU_MEMORY_RATIO]
    use = ledger.use_of(request.kind, candidate.device.minor)
    whole = total.get(GPU_MEMORY_RATIO, 0)
    most = max(0, whole - dict(use.amounts).get(GPU_MEMORY_RATIO, 0)) // ratio
    memory, free = total.get(GPU_MEMORY, 0), candidate.free.get(GPU_MEMORY, 0)
    taken = dict(complete(part, total)).get(GPU_MEMORY, 0)
    if not memory or free * whole < ratio * memory:
        return most if not memory else 0
    return min(most, (free * whole - ratio * memory) // (taken * whole) + 1) if taken else most


def _count_groups(counts: Sequence[int], size: int) -> int:
    """Return how many groups of ``size`` different devices there are, at most."""
    groups = sum(counts) // size
    while groups and (fewer := sum(min(count, groups) for count in counts) // size) < groups:
        groups = fewer
    return min(groups, NO_LIMIT)


def _is_simple(
    ledger: DeviceLedger, request: DeviceRequest, sized: TypeRequest, counts: Sequence[int]
) -> bool:
    """Whether any choice of devices leaves as many for the next pods, and nothing else counts."""
    hint = sized.hint
    if hint.scope is not None or hint.exclusive is not None or not sized.is_uniform:
        return False
    if ledger.inventory.vendor in request.plugins:
        return False
    if (
        sized.kind == GPU
        and not sized.is_shared
        and (ledger.foreign or must_honor(ledger, request))
    ):
        return False
    return len(sized.parts) == 1 or max(counts, default=0) <= 1
