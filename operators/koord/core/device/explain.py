"""What exactly the devices of one node lack for a request: device by device, with numbers."""

from collections.abc import Iterator
from typing import Final

from koord.core.device.allocate import allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import DeviceRequest, NodeDevice, TypeRequest, make_part
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY_RATIO, PREFIX, WHOLE
from koord.core.model.units import format_amount

_WHOLE_GPU: Final = make_part({GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE})
MOST_DEVICES: Final = 16
"""More are counted only."""


def explain_devices(ledger: DeviceLedger, request: DeviceRequest) -> str:
    """Return, per type, what each device lacks, or which ones are free if that is not enough."""
    return "; ".join(_explain_type(ledger, type_) for type_ in request.types)


def _explain_type(ledger: DeviceLedger, request: TypeRequest) -> str:
    devices = ledger.inventory.of(request.kind)
    shortages = {device.minor: _describe_shortage(ledger, request, device) for device in devices}
    fitting = [minor for minor, shortage in shortages.items() if not shortage]
    wanted = len(request.parts)
    if len(fitting) >= wanted:
        return f"{request.kind} {_join(fitting)} {'is' if len(fitting) == 1 else 'are'} free" + (
            f", at most {find_largest(ledger)} for one pod" if request.kind == GPU else ""
        )
    texts = [f"{request.kind} {minor}: {text}" for minor, text in shortages.items() if text]
    hidden = f" and {len(texts) - MOST_DEVICES} more" if len(texts) > MOST_DEVICES else ""
    return f"{len(fitting)} of {wanted} {request.kind}; {', '.join(texts[:MOST_DEVICES])}{hidden}"


def _describe_shortage(ledger: DeviceLedger, request: TypeRequest, device: NodeDevice) -> str:
    if not device.total:
        return "unhealthy"
    free = ledger.free[request.kind, device.minor]
    return " and ".join(
        _write(key, free.get(key, 0), n) for key, n in _missing_amounts(free, request)
    )


def _missing_amounts(free: dict[str, int], request: TypeRequest) -> Iterator[tuple[str, int]]:
    for key, amount in min(request.parts):
        if free.get(key, 0) < amount:
            yield key, amount


def _write(key: str, free: int, requested: int) -> str:
    name = key.removeprefix(PREFIX)
    return f"{name} {format_amount(key, free)} free, {format_amount(key, requested)} asked"


def _join(minors: list[int]) -> str:
    return ", ".join(map(str, minors[:MOST_DEVICES]))


def find_largest(ledger: DeviceLedger) -> int:
    """Return the largest number of whole GPUs that one pod can get."""
    for count in range(len(ledger.inventory.of(GPU)), 0, -1):
        request = DeviceRequest((TypeRequest(GPU, (_WHOLE_GPU,) * count),))
        if not isinstance(allocate(ledger, request), DeviceCause):
            return count
    return 0
