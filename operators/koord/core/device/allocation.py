"""The devices that a pod was given on its node, the annotations that record them, what they count.

The form of ``device-allocated`` is Koordinator's. ``gpu-uuids`` is ours: a container can be given
its GPUs by the downward API without an agent on the node. It names all GPUs or is not written: an
incomplete list would give a container fewer GPUs than it was charged.

Quotas count what a pod was given, or may be given at most. It can get more than the amounts it
requests: devices for itself alone, or memory whose share of a device depends on the model. Quotas
in other names for the same device would not see that.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.core.device.inventory import NamedDevices, Strayed
from koord.core.device.ledger import UnrecordedUse
from koord.core.device.model import (
    OURS,
    DeviceKey,
    DeviceName,
    DeviceRequest,
    DeviceShare,
    Exclusive,
    Inventory,
)
from koord.core.device.request import DeviceAllocationHints, read_request
from koord.core.device.vendors import (
    DEVICE_PLUGINS,
    NO_HAND_OFF,
    AllocatedGpu,
    HandOff,
    hand_off,
)
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE
from koord.core.model.pods import Allocation, AnnotationWrite
from koord.core.model.units import format_amount

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
GPU_UUIDS: Final = "scheduling.koordinator.sh/gpu-uuids"


@dataclass(frozen=True, slots=True)
class UnrecordedGpus:
    """GPUs of a pod that runs without a record of which ones they are."""

    use: UnrecordedUse

    def writes(self) -> Iterable[AnnotationWrite]:
        return ()


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """The devices of one pod (uid), in the order of types and minors, with their names.

    Names hold only the virtual functions that the pod was given, numbered from 0 in the shares, so
    that an allocation does not depend on what its Device object says later: see :meth:`numbered`.
    What device plugins read (``handed``) is written with the release, and not read back.
    """

    pod: str
    shares: tuple[DeviceShare, ...]
    names: tuple[DeviceName, ...]
    handed: HandOff = field(default=NO_HAND_OFF, compare=False)
    users: tuple["AllocatedDevices", ...] = ()
    """Of held devices: what other pods use."""

    def writes(self) -> Iterable[AnnotationWrite]:
        yield AnnotationWrite(self.pod, ALLOCATED, self._encode(), is_record=True)
        gpus = [
            (share.minor, name)
            for share, name in zip(self.shares, self.names, strict=True)
            if share.kind == GPU
        ]
        if gpus:
            yield AnnotationWrite(self.pod, GPU_MINORS, ",".join(str(minor) for minor, _ in gpus))
        if gpus and all(name.id for _, name in gpus):
            yield AnnotationWrite(self.pod, GPU_UUIDS, ",".join(name.id for _, name in gpus))
        for key in self.handed.timestamps:
            yield AnnotationWrite(self.pod, key, is_time=True)
        for key, value in self.handed.annotations.items():
            yield AnnotationWrite(self.pod, key, value)
        for key, value in self.handed.labels.items():
            yield AnnotationWrite(self.pod, key, value, is_label=True)

    def shared_with(self, used: Iterable[Allocation]) -> "AllocatedDevices":
        """Return it with what other pods use of its devices, or besides them."""
        return replace(
            self,
            users=tuple(
                allocation for allocation in used if isinstance(allocation, AllocatedDevices)
            ),
        )

    def handed_to(self, inventory: Inventory, isolation: str, node: str) -> "AllocatedDevices":
        """Return it with what the device plugin of its node reads."""
        vendor = inventory.vendor
        if not isolation and vendor not in DEVICE_PLUGINS:
            return self
        gpus = [
            AllocatedGpu(share.minor, dict(share.part), name.id, share.template)
            for share, name in zip(self.shares, self.names, strict=True)
            if share.kind == GPU
        ]
        model = inventory.model.removeprefix(f"{vendor}-")
        return replace(self, handed=hand_off(gpus, vendor, model, isolation, node))

    def numbered(self, devices: NamedDevices) -> tuple[DeviceShare, ...]:
        """Return the shares by the minors and numbers that devices and functions have now.

        Devices that the node no longer has are left out.
        """
        return tuple(self._numbered(devices))

    def strayed(self, devices: NamedDevices) -> tuple[Strayed, ...]:
        """Return the devices that are not where this record says."""
        return devices.strayed(self.shares, self.names)

    def _numbered(self, devices: NamedDevices) -> Iterator[DeviceShare]:
        for share, name in zip(self.shares, self.names, strict=True):
            minor = devices.locate(share.kind, share.minor, name)
            if minor is None:
                continue
            functions = devices.functions(share.kind, minor, name) if share.functions else ()
            is_same = minor == share.minor and functions == share.functions
            yield share if is_same else replace(share, minor=minor, functions=functions)

    def _encode(self) -> str:
        by_type: dict[str, list[dict[str, Any]]] = {}
        for share, name in zip(self.shares, self.names, strict=True):
            by_type.setdefault(share.kind, []).append(dict(_encode_share(share, name)))
        return json.dumps(by_type, separators=(",", ":"))


def record(
    pod: str, shares: Iterable[DeviceShare], names: Mapping[DeviceKey, DeviceName]
) -> AllocatedDevices:
    """Return the allocation of shares, by the names that devices have now."""
    recorded, recorded_names = [], []
    for share in shares:
        name = names.get((share.kind, share.minor), DeviceName())
        functions = [name.functions[n] for n in share.functions if n < len(name.functions)]
        recorded.append(replace(share, functions=tuple(range(len(functions)))))
        recorded_names.append(DeviceName(name.id, tuple(functions)))
    return AllocatedDevices(pod, tuple(recorded), tuple(recorded_names))


def _encode_share(share: DeviceShare, name: DeviceName) -> Iterator[tuple[str, Any]]:
    yield "minor", share.minor
    yield "resources", {key: format_amount(key, amount) for key, amount in share.part}
    if name.id:
        yield "id", name.id
    extension: dict[str, Any] = {}
    if share.functions:
        functions = [name.functions[number] for number in share.functions]
        extension["vfs"] = [
            {"minor": minor, "busID": bus_id} if minor else {"busID": bus_id}
            for minor, bus_id in functions
        ]
    if share.template:
        extension["gpuSharedResourceTemplate"] = share.template
    if extension:
        yield "extension", extension


Counted = tuple[tuple[str, int], ...]


# --- what quotas count ---------------------------------------------------------------------------


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
    raised = {key: amount for key, amount in least.items() if amount > requested.get(key, 0)}
    return tuple(sorted({**requested, **raised}.items())) if raised else ()
