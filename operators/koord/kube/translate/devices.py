"""Devices, and what pods say about them: from the wire to values of ``koord.core.device``.

An entry that cannot be used is left out and named; the others stay usable.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from typing_extensions import override

from koord.api.annotations import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
    GPU_REQUEST,
    DeviceHint,
    DeviceJointAllocate,
    GpuPart,
    GpuPartitionSpec,
)
from koord.api.device import DeviceInfo, DeviceSpec, DeviceStatus, DeviceTopology, DeviceUse
from koord.api.device_partitions import parse_partitions
from koord.api.parse import InvalidObject, JsonAnnotation
from koord.api.shape import Shape
from koord.core.device.allocation import (
    ALLOCATED,
    AllocatedDevices,
    count_given,
    count_possible,
)
from koord.core.device.inventory import NamedDevices, compared
from koord.core.device.model import (
    AllocateStrategy,
    DeviceKey,
    DeviceLocation,
    DeviceName,
    DeviceReport,
    DeviceResourceClaim,
    DeviceShare,
    Exclusive,
    FunctionGroup,
    Hint,
    Joint,
    JointScope,
    Labels,
    NodeDevice,
    Part,
    Partition,
    PartitionHint,
    Scope,
    make_part,
    minors_of,
)
from koord.core.device.request import NO_ALLOCATION_HINTS, DeviceAllocationHints
from koord.core.device.session import NAME as DEVICES
from koord.core.device.vendors import GPU_DRIVERS, ISOLATION_LABEL
from koord.core.model.device_names import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    TYPE_OF,
    DeviceType,
    rename,
)
from koord.core.model.pods import Allocation, PodShape
from koord.core.model.text import MAX_QUOTED, cut
from koord.kube.decode import MALFORMED
from koord.kube.kind import Counted, PodReader
from koord.kube.translate.amounts import parse_amount, to_amounts
from koord.kube.translate.node_affinity import parse_node_selector, pinned_to, translate_selector
from koord.kube.translate.pod_conditions import read_time
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import WireCustomResource, WireResourceClaim

T = TypeVar("T")

MOST_DEVICES: Final = 512
MOST_MINOR: Final = 1023
MOST_FUNCTIONS: Final = 1024
"""More are cut off; the API server allows fewer devices already."""

_SCOPES: Final = {
    "Node": Scope.NODE,
    "NUMANode": Scope.NUMA_NODE,
    "PCIe": Scope.PCIE,
    "Device": Scope.DEVICE,
}
_SPEC: Final = Shape(
    DeviceSpec,
    ("spec",),
    only={
        DeviceInfo: (
            "type", "minor", "health", "id", "labels", "resources", "topology", "vf_groups"
        ),
        DeviceTopology: ("socket_id", "node_id", "pcie_id"),
    },
)  # fmt: skip
_STATUS: Final = Shape(
    DeviceStatus,
    only={DeviceStatus: ("devices",), DeviceUse: ("type", "minor", "id", "health")},
)
_Entries = dict[DeviceType, dict[int, tuple[NodeDevice, DeviceName]]]
_Owners = dict[tuple[DeviceType, str], int]
"""Type and id, or address of a virtual function -> the entry that has it."""


class DeviceTranslator(SeenStatuses):
    """Translates Devices, and keeps their statuses for their writers."""

    def translate(self, wire: WireCustomResource) -> DeviceReport:
        meta = wire.metadata
        raw = self._see(meta.uid, wire.status)
        problems: list[tuple[str, str]] = []
        listed = _SPEC.read(bytes(wire.spec)).devices or ()
        entries = _read_entries(listed, problems)
        names = {
            (kind, minor): name
            for kind, devices in entries.items()
            for minor, (_, name) in devices.items()
        }
        return DeviceReport(
            node=meta.name,
            devices=tuple(
                (kind, tuple(device for _, (device, _) in sorted(devices.items())))
                for kind, devices in sorted(entries.items())
            ),
            names=names,
            partitions=_read_partitions(meta.annotations or {}, problems),
            labels=meta.labels or {},
            problems=tuple(problems),
            shown_unhealthy=_read_unhealthy(raw, names),
            unhealthy_since=_read_since(bytes(wire.spec)) if _is_any_unhealthy(listed) else {},
            uid=meta.uid,
            generation=meta.generation,
        )


class _DeviceCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    since: str = msgspec.field(default="", name="lastTransitionTime")


class _DeviceConditions(msgspec.Struct, gc=False):
    type: str = ""
    minor: int = 0
    health: bool = False
    conditions: list[_DeviceCondition] | None = None


class _SpecConditions(msgspec.Struct, gc=False):
    devices: list[_DeviceConditions] | None = None


_conditions_decoder = msgspec.json.Decoder(_SpecConditions)
_HEALTHY: Final = "Healthy"


def _is_any_unhealthy(listed: Sequence[DeviceInfo]) -> bool:
    return any(not entry.health for entry in listed[:MOST_DEVICES])


def _read_since(spec: bytes) -> dict[DeviceKey, float]:
    """Return since when devices are unhealthy, as conditions say; they decide nothing.

    So one that cannot be read costs the times, and no device.
    """
    try:
        listed = _conditions_decoder.decode(spec).devices or ()
    except MALFORMED:
        return {}
    since: dict[DeviceKey, float] = {}
    for entry in listed[:MOST_DEVICES]:
        times = [
            read_time(condition.since)
            for condition in entry.conditions or ()
            if condition.type == _HEALTHY and condition.status == "False"
        ]
        if not entry.health and any(times):
            since[entry.type, entry.minor] = max(times)
    return since


def _read_unhealthy(status: bytes, names: Mapping[DeviceKey, DeviceName]) -> frozenset[DeviceKey]:
    """Return the devices that a status shows as unhealthy; none if it cannot be read.

    By the minors that they have now.
    """
    try:
        shown = _STATUS.read(status).devices or ()
    except MALFORMED:
        return frozenset()
    named = NamedDevices(names)
    unhealthy = (
        (device.type, named.locate(device.type, device.minor, DeviceName(device.id or "")))
        for device in shown
        if not device.health
    )
    return frozenset((kind, minor) for kind, minor in unhealthy if minor is not None)


def _read_entries(listed: Sequence[DeviceInfo], problems: list[tuple[str, str]]) -> _Entries:
    """Read the devices. What has a name that another has would be given out twice."""
    entries: _Entries = {}
    owners: _Owners = {}
    for index, entry in enumerate(listed[:MOST_DEVICES]):
        path, minor = f"spec.devices[{index}]", entry.minor
        devices = entries.setdefault(entry.type, {})
        if not entry.type or not 0 <= minor <= MOST_MINOR:
            problems.append((f"{path}.minor", f"{minor} is not within 0 and {MOST_MINOR}"))
        elif minor in devices:
            problems.append((f"{path}.minor", f"{minor} is there twice for type {entry.type}"))
        elif entry.id and _is_taken(owners, entry, entry.id, index):
            problems.append((f"{path}.id", _say_twice(entry, entry.id)))
        else:
            functions, twice = _read_functions(entry, owners, index)
            if twice:
                problems.append((f"{path}.vfGroups", _say_twice(entry, twice)))
            try:
                devices[minor] = _read_device(entry, minor, functions)
            except ValueError as error:
                problems.append((f"{path}.resources", str(error)))
    return {kind: devices for kind, devices in entries.items() if devices}


def _is_taken(owners: _Owners, entry: DeviceInfo, name: str, index: int) -> bool:
    """Return whether another entry has a name; it is this one's from now on if none has."""
    return owners.setdefault((entry.type, compared(name)), index) != index


def _say_twice(entry: DeviceInfo, name: str) -> str:
    return f"{cut(name, MAX_QUOTED)} is there twice for type {entry.type}"


def _read_functions(
    entry: DeviceInfo, owners: _Owners, index: int
) -> tuple[list[tuple[str, int]], str]:
    """Return the virtual functions, address and minor; and one that another device has."""
    twice, functions = "", {}
    for function in (function for group in entry.vf_groups or () for function in group.vfs or ()):
        bus_id = function.bus_id or ""
        if bus_id and _is_taken(owners, entry, bus_id, index):
            twice = bus_id
        else:
            functions[bus_id] = function.minor
    return sorted(functions.items())[:MOST_FUNCTIONS], twice


def _read_device(
    entry: DeviceInfo, minor: int, functions: Sequence[tuple[str, int]]
) -> tuple[NodeDevice, DeviceName]:
    """Translate one entry. Raises ValueError if its amounts are invalid."""
    amounts = rename(to_amounts(entry.resources))
    place = entry.topology
    number_of = {bus_id: number for number, (bus_id, _) in enumerate(functions)}
    groups = tuple(
        FunctionGroup(
            _labels(group.labels),
            tuple(
                sorted(
                    number_of[function.bus_id or ""]
                    for function in group.vfs or ()
                    if (function.bus_id or "") in number_of
                )
            ),
        )
        for group in entry.vf_groups or ()
    )
    device = NodeDevice(
        minor,
        make_part(amounts) if entry.health else (),
        DeviceLocation(place.socket_id, place.node_id, place.pcie_id)
        if place is not None
        else None,
        _labels(entry.labels),
        groups,
    )
    return device, DeviceName(entry.id or "", tuple((n, bus_id) for bus_id, n in functions))


def _labels(labels: Mapping[str, str] | None) -> Labels:
    return tuple(sorted((labels or {}).items()))


def _read_partitions(
    annotations: Mapping[str, str], problems: list[tuple[str, str]]
) -> tuple[tuple[int, tuple[Partition, ...]], ...] | None:
    parsed = parse_partitions(annotations)
    problems.extend((problem.field, problem.message) for problem in parsed.problems)
    if parsed.partitions is None:
        return None
    return tuple(
        (
            size,
            tuple(
                Partition(
                    minors_of(entry.minors),
                    entry.score,
                    entry.bandwidth,
                )
                for entry in listed
            ),
        )
        for size, listed in parsed.partitions.items()
    )


_EXTENDED_RESOURCE: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that kube-scheduler makes for a pod's requests, which count already."""


def translate_resource_claim(wire: WireResourceClaim) -> DeviceResourceClaim:
    """Return the GPUs that a claim was given; none if it names no single node."""
    meta, allocation = wire.metadata, wire.status.allocation
    key = f"{meta.namespace}/{meta.name}"
    if allocation is None or _EXTENDED_RESOURCE in (meta.annotations or {}):
        return DeviceResourceClaim(key)
    results = allocation.devices.results or ()
    gpus = sum(result.driver in GPU_DRIVERS and not result.admin_access for result in results)
    selector = bytes(allocation.node_selector)
    terms = parse_node_selector(selector) if gpus and selector else None
    return DeviceResourceClaim(key, pinned_to(terms or ()), gpus)


class _Function(msgspec.Struct, gc=False):
    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class _Extension(msgspec.Struct, gc=False):
    vfs: list[_Function] = []
    template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class _AllocatedDevice(msgspec.Struct, gc=False):
    minor: Annotated[int, msgspec.Meta(ge=0, le=MOST_MINOR)]
    resources: dict[str, str | int] = {}
    id: str = ""
    extension: _Extension | None = None


_NO_EXTENSION: Final = _Extension()
_allocated_decoder = msgspec.json.Decoder(dict[str, list[_AllocatedDevice]])


def read_allocated(
    pod: str, text: str, hints: DeviceAllocationHints = NO_ALLOCATION_HINTS
) -> AllocatedDevices:
    """Return what the annotation device-allocated of a pod (uid) says.

    Whether it keeps PCIe switches for itself is among its hints. Raises ValueError if the text is
    invalid.
    """
    alone = {kind for kind, hint in hints.hints if hint.exclusive is Exclusive.PCIE}
    entries = [
        (kind, entry)
        for kind, listed in sorted(_allocated_decoder.decode(text).items())
        for entry in sorted(listed, key=lambda share: share.minor)
    ]
    if len({(kind, entry.minor) for kind, entry in entries}) != len(entries):
        raise ValueError("a device is listed twice")
    shares, names = [], []
    for kind, entry in entries:
        extension = entry.extension or _NO_EXTENSION
        amounts = {key: parse_amount(key, amount) for key, amount in entry.resources.items()}
        part, functions = make_part(rename(amounts)), tuple(range(len(extension.vfs)))
        shares.append(
            DeviceShare(kind, entry.minor, part, functions, extension.template, kind in alone)
        )
        names.append(DeviceName(entry.id, tuple((f.minor, f.bus_id) for f in extension.vfs)))
    return AllocatedDevices(pod, tuple(shares), tuple(names))


def read_device_hints(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> DeviceAllocationHints:
    """Return what a pod says about its devices, and what of it cannot be read."""
    if not annotations and ISOLATION_LABEL not in labels:
        return NO_ALLOCATION_HINTS
    problems: list[tuple[str, str]] = []
    hints = _read(DEVICE_ALLOCATE_HINT, annotations, problems) or {}
    joint = _read(DEVICE_JOINT_ALLOCATE, annotations, problems)
    partition = _read(GPU_PARTITION_SPEC, annotations, problems)
    parts = _read(GPU_REQUEST, annotations, problems) or []
    return DeviceAllocationHints(
        tuple((kind, _make_hint(hint)) for kind, hint in sorted(hints.items())),
        _make_joint(joint) if joint is not None else None,
        _make_partition_hint(partition) if partition is not None else None,
        labels.get(ISOLATION_LABEL, ""),
        tuple(map(_make_part, parts)),
        problems=tuple(problems),
    )


class DevicePodReader(PodReader):
    """Reads what pods say about devices, and which they were given."""

    name = DEVICES
    record = ALLOCATED

    @override
    def concerns(self, shape: PodShape) -> bool:
        return any(key in TYPE_OF for key, _ in shape.requests)

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        hints = read_device_hints(annotations, labels)
        return None if hints == NO_ALLOCATION_HINTS else hints

    @override
    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        return read_allocated(uid, text, _hints_or_none(hints))

    @override
    def count(
        self, shape: PodShape, hints: Hashable | None, allocations: Sequence[Allocation]
    ) -> Counted:
        if allocations:
            return count_given(shape.requests, allocations)
        return count_possible(shape.requests, _hints_or_none(hints))


def _hints_or_none(hints: Hashable | None) -> DeviceAllocationHints:
    return hints if isinstance(hints, DeviceAllocationHints) else NO_ALLOCATION_HINTS


def _make_part(spec: GpuPart) -> Part:
    amounts = {
        GPU_CORE: spec.core,
        GPU_MEMORY: spec.memory.whole if spec.memory is not None else None,
        GPU_MEMORY_RATIO: spec.memory_ratio,
    }
    return make_part({key: amount for key, amount in amounts.items() if amount})


def _make_joint(spec: DeviceJointAllocate) -> Joint:
    scope = JointScope(spec.required_scope) if spec.required_scope else None
    return Joint(tuple(spec.device_types), scope)


def _make_partition_hint(spec: GpuPartitionSpec) -> PartitionHint:
    bandwidth = spec.ring_bus_bandwidth
    return PartitionHint(
        spec.allocate_policy == "Restricted", bandwidth.whole if bandwidth is not None else None
    )


def _read(
    annotation: JsonAnnotation[T], annotations: Mapping[str, str], problems: list[tuple[str, str]]
) -> T | None:
    value = annotation.read(annotations)
    if isinstance(value, InvalidObject):
        problems.extend(
            (problem.field, ": ".join(filter(None, (problem.value, problem.message))))
            for problem in value.problems
        )
        return None
    return value


def _make_hint(hint: DeviceHint) -> Hint:
    return Hint(
        translate_selector(hint.selector) if hint.selector is not None else (),
        translate_selector(hint.vf_selector) if hint.vf_selector is not None else None,
        AllocateStrategy(hint.allocate_strategy) if hint.allocate_strategy else None,
        _SCOPES[hint.required_topology_scope] if hint.required_topology_scope else None,
        Exclusive(hint.exclusive_policy) if hint.exclusive_policy else None,
    )
