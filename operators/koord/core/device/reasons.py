"""Why devices keep a pod from every node, and what exactly those of one node lack for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.device.allocate import allocate
from koord.core.device.causes import DeviceCause
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import DeviceRequest, NodeDevice, TypeRequest, make_part
from koord.core.device.request import InvalidRequest
from koord.core.device.vendors import ISOLATION_LABEL
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY_RATIO, PREFIX, WHOLE
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import InvalidPodAnnotation, PodReason
from koord.core.model.units import format_amount


@dataclass(frozen=True, slots=True)
class InvalidDeviceRequest(PodReason):
    """The device resources of a pod are no valid request; the message names the resource."""

    code: ClassVar = "InvalidDeviceRequest"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "correct the requests; see [what may be combined](devices.md)"
    says: ClassVar = "{pod}: {problem.describe()} ({problem.amounts:list {0}: {1}}){_rejected}"
    advises: ClassVar = (
        "{problem.nearest:?Request {problem.nearest:list {0}: {1}} instead, for example.}",
    )
    problem: InvalidRequest

    @property
    def _rejected(self) -> str:
        return "".join(f"; {problem}" for problem in self.problem.problems)


@dataclass(frozen=True, slots=True)
class IsolationAbsent(PodReason):
    """The pod shares a GPU, and nothing keeps it to its part."""

    code: ClassVar = "IsolationAbsent"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = (
        "install what isolates, or allow it with `device.sharesWithoutIsolation: Start`"
    )
    says: ClassVar = (
        "{pod} shares a GPU without isolation: nothing keeps it to the memory and cores that it "
        "requests"
    )
    advises: ClassVar = (
        f"Add the label {ISOLATION_LABEL} if nodes have a provider, or request whole GPUs.",
    )


@dataclass(frozen=True, slots=True)
class NodeLocked(PodReason):
    """The device plugin of the planned node serves another pod, or its lock cannot be read."""

    code: ClassVar = "NodeLocked"
    reason_class: ClassVar = ReasonClass.WRITING
    way_out: ClassVar = "wait; pods of such a node start one after the other"
    says: ClassVar = (
        '{pod}: node "{node}" has been locked: its device plugin serves '
        '{holder:?{holder}|another pod}{lock:? ("{lock:cut}")}'
    )
    advises: ClassVar = (
        "Wait: pods with devices of this vendor start one after the other on each node.",
    )
    node: str
    holder: str
    """The other pod; "" if the lock does not say."""
    lock: str = ""


@dataclass(frozen=True, slots=True)
class InvalidDeviceAnnotation(InvalidPodAnnotation):
    """An annotation about devices cannot be read; the message names field and value."""

    code: ClassVar = "InvalidDeviceAnnotation"
    way_out: ClassVar = "correct it"


_WHOLE_GPU: Final = make_part({GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE})
MOST_DEVICES: Final = 16
"""More are counted only."""


# --- one node, device by device, with numbers ----------------------------------------------------


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
