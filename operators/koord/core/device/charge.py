"""What quotas count for a pod that uses devices: what it was given, or may be given at most.

A pod can get more than the amounts it requests: devices for itself alone, or memory whose share of
a device depends on the model. Quotas in other names for the same device would not see that.
"""

from collections.abc import Iterable, Mapping

from koord.core.device.allocation import AllocatedDevices
from koord.core.device.model import OURS, DeviceRequest, Exclusive
from koord.core.device.request import DeviceAllocationHints, read_request
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE
from koord.core.model.pods import Allocation

Counted = tuple[tuple[str, int], ...]


def count_given(requests: Counted, allocations: Iterable[Allocation]) -> Counted:
    """Return requests raised to what was given; () if nothing was given beyond them."""
    given: dict[str, int] = {}
    for allocation in allocations:
        if isinstance(allocation, AllocatedDevices):
            for share in allocation.shares:
                for key, amount in share.part:
                    given[key] = given.get(key, 0) + amount
    return _raise(requests, given)


def count_possible(requests: Counted, allocation_hints: DeviceAllocationHints) -> Counted:
    """Return requests raised to what may be given at most; () if that is what they say.

    How much of a device its memory in bytes is, is not known before: it counts as a whole device.
    """
    amounts = dict(requests)
    is_alone = any(
        kind == GPU and hint.exclusive is Exclusive.DEVICE for kind, hint in allocation_hints.hints
    )
    if not is_alone and (GPU_MEMORY not in amounts or GPU_MEMORY_RATIO in amounts):
        return ()
    request = read_request(amounts, allocation_hints, OURS)
    gpus = request.by_type.get(GPU) if isinstance(request, DeviceRequest) else None
    if gpus is None:
        return ()
    whole = WHOLE * len(gpus.parts)
    names = (GPU_CORE, GPU_MEMORY_RATIO) if is_alone else (GPU_MEMORY_RATIO,)
    return _raise(requests, dict.fromkeys(names, whole))


def _raise(requests: Counted, least: Mapping[str, int]) -> Counted:
    requested = dict(requests)
    more = {key: amount for key, amount in least.items() if amount > requested.get(key, 0)}
    return tuple(sorted({**requested, **more}.items())) if more else ()
