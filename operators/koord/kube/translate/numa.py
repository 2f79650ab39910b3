"""NUMA nodes and CPUs of nodes, and what pods say about them: from the wire to ``koord.core.numa``.

What cannot be read is left out and named; the rest stays usable.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from typing_extensions import override

from koord.api.annotations import NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC
from koord.api.keys.device import (
    AMPLIFICATION,
    CPU_BASIC_INFO,
    CPU_MANAGER_POLICY,
    CPU_TOPOLOGY,
    POD_CPU_ALLOCS,
    QOS_CLASS,
)
from koord.api.keys.reservation import INNER_RESERVED
from koord.api.parse import InvalidObject, cut
from koord.caches import cached_by_text
from koord.core.model.amplification import NOT_AMPLIFIED, Amplification, to_hundredths
from koord.core.model.koordinator_class import KoordinatorClass, find_class
from koord.core.model.pods import Allocation, PodShape
from koord.core.model.processor import Processor
from koord.core.model.units import CPU, MEMORY
from koord.core.model.zone_hints import MAX_NUMBER
from koord.core.numa.cpu_topology import (
    CpuExclusive,
    CpuPlace,
    Cpus,
    CpuTopology,
    make_topology,
    parse_cpuset,
)
from koord.core.numa.cpus import PINNED_QOS, CpuBind, wants_pinned
from koord.core.numa.model import (
    NAME,
    NO_ALLOCATION_HINTS,
    STATUS,
    NumaAllocation,
    NumaAllocationHints,
    NumaReport,
    Part,
)
from koord.core.numa.policy import NumaExclusive, NumaPolicy
from koord.core.numa.zones import NumaShare
from koord.kube.decode import MALFORMED
from koord.kube.kind import PodReader
from koord.kube.translate.amounts import parse_amount
from koord.kube.wire import WireNodeTopology, Zone, ZoneResource

T = TypeVar("T")
Problems = list[tuple[str, str]]

NODE_ZONE: Final = "Node"
MOST_AMPLIFIED: Final = 100
"""Larger ratios are refused."""
_ZONE_NAME: Final = "node-"
_STATIC: Final = "static"


class _Cpu(msgspec.Struct, gc=False):
    id: int
    core: int
    socket: int
    node: int


class _Cpus(msgspec.Struct, gc=False):
    detail: list[_Cpu] = []


class _PodCpus(msgspec.Struct, gc=False):
    uid: str = ""
    cpuset: str = ""


class _CpuManager(msgspec.Struct, gc=False):
    policy: str = ""
    options: dict[str, str] = {}
    reserved: str = msgspec.field(default="", name="reservedCPUs")


class _Reservation(msgspec.Struct, gc=False):
    reserved: str = msgspec.field(default="", name="reservedCPUs")


class _NumaShare(msgspec.Struct, gc=False):
    node: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
    resources: dict[str, str | int] = {}


class _ResourceStatus(msgspec.Struct, gc=False):
    cpuset: str = ""
    shares: list[_NumaShare] = msgspec.field(default_factory=list, name="numaNodeResources")


class _BasicInfo(msgspec.Struct, gc=False):
    model: str = msgspec.field(default="", name="cpuModel")
    has_hyper_threads: bool = msgspec.field(default=False, name="hyperThreadEnabled")
    has_turbo: bool = msgspec.field(default=False, name="turboEnabled")


_cpus_decoder = msgspec.json.Decoder(_Cpus)
_pods_decoder = msgspec.json.Decoder(list[_PodCpus])
_manager_decoder = msgspec.json.Decoder(_CpuManager)
_reservation_decoder = msgspec.json.Decoder(_Reservation)
_ratios_decoder = msgspec.json.Decoder(dict[str, float])
_processor_decoder = msgspec.json.Decoder(_BasicInfo)
_status_decoder = msgspec.json.Decoder(_ResourceStatus)


def translate_node_topology(wire: WireNodeTopology) -> NumaReport:
    annotations, problems = wire.metadata.annotations or {}, Problems()

    def read(key: str, make: Callable[[str], T]) -> T | None:
        try:
            return make(annotations[key]) if annotations.get(key) else None
        except MALFORMED as error:
            problems.append((f"metadata.annotations[{key}]", str(error)))
            return None

    manager = read(CPU_MANAGER_POLICY, _read_manager)
    bind, reserved = manager or (None, 0)
    return NumaReport(
        wire.metadata.name,
        tuple(sorted(_read_zones(wire.zones or (), problems))),
        read(CPU_TOPOLOGY, _read_topology),
        next(filter(None, map(_read_policy, wire.topology_policies or ())), None),
        bind,
        reserved,
        read(POD_CPU_ALLOCS, _read_pods) or (),
        is_amplified=bool(read(AMPLIFICATION, _ratios_decoder.decode)),
        processor=read(CPU_BASIC_INFO, _read_processor),
        problems=tuple(problems),
    )


def _read_zones(zones: Sequence[Zone], problems: Problems) -> Iterator[tuple[int, Part]]:
    seen: set[int] = set()
    for index, zone in enumerate(zones):
        if zone.type != NODE_ZONE:
            continue
        text = zone.name.removeprefix(_ZONE_NAME)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else -1
        if not 0 <= number <= MAX_NUMBER or number in seen:
            problems.append(
                (f"zones[{index}].name", f"{zone.name} is no NUMA node, or there twice")
            )
            continue
        seen.add(number)
        try:
            yield number, tuple(sorted(_read_resources(zone.resources or ())))
        except ValueError as error:
            problems.append((f"zones[{index}].resources", str(error)))


def _read_resources(resources: Iterable[ZoneResource]) -> Iterator[tuple[str, int]]:
    for resource in resources:
        amount = resource.capacity if resource.allocatable is None else resource.allocatable
        yield resource.name, parse_amount(resource.name, amount)


def _read_policy(text: str) -> NumaPolicy | None:
    """Return a policy of the kubelet; whether it is about pods or containers is not told apart."""
    name = text.removesuffix("PodLevel").removesuffix("ContainerLevel")
    return next((policy for policy in NumaPolicy if policy == name), None)


@cached_by_text()
def _read_topology(text: str) -> CpuTopology | None:
    """Read the places of CPUs, one value for all equal nodes. Raises ValueError."""
    listed = _cpus_decoder.decode(text).detail
    cpu_topology = make_topology(CpuPlace(cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in listed)
    if cpu_topology is None:
        raise ValueError("CPUs are missing, there twice, or their places contradict each other")
    return cpu_topology


def _read_manager(text: str) -> tuple[CpuBind | None, Cpus]:
    manager = _manager_decoder.decode(text)
    is_full = manager.policy == _STATIC and manager.options.get("full-pcpus-only") == "true"
    return CpuBind.FULL_PCPUS if is_full else None, _read_cpuset(manager.reserved)


def _read_pods(text: str) -> tuple[tuple[str, Cpus], ...]:
    return tuple(
        (pod_cpus.uid, _read_cpuset(pod_cpus.cpuset)) for pod_cpus in _pods_decoder.decode(text)
    )


def _read_cpuset(text: str) -> Cpus:
    """Read a set of CPUs. Raises ValueError."""
    cpus = parse_cpuset(text)
    if not isinstance(cpus, int):
        raise ValueError(cpus.describe())  # noqa: TRY004 - its text is wrong, not its type
    return cpus


def read_reserved(annotations: Mapping[str, str]) -> Cpus:
    """Return the CPUs that the annotation of a node reserves; none if it cannot be read."""
    text = annotations.get(INNER_RESERVED)
    try:
        return _read_cpuset(_reservation_decoder.decode(text).reserved) if text else 0
    except MALFORMED:
        return 0


def read_amplification(annotations: Mapping[str, str]) -> Amplification:
    """Return how many times a node offers its resources, or why that cannot be read."""
    text = annotations.get(AMPLIFICATION)
    return _read_ratios(text) if text else NOT_AMPLIFIED


@cached_by_text()
def _read_ratios(text: str) -> Amplification:
    try:
        ratios = _ratios_decoder.decode(text)
    except MALFORMED as error:
        return Amplification(problem=f"is no JSON object of numbers: {error}")
    for name, ratio in sorted(ratios.items()):
        if not 1 <= ratio <= MOST_AMPLIFIED:
            return Amplification(problem=f"{cut(name)} must be 1 to {MOST_AMPLIFIED}: {ratio:g}")
    cpu, memory = (to_hundredths(ratios.get(name, 1.0)) * 10 for name in (CPU, MEMORY))
    return Amplification(cpu, memory)


def _read_processor(text: str) -> Processor:
    basic = _processor_decoder.decode(text)
    return Processor(basic.model, basic.has_hyper_threads, basic.has_turbo)


def read_numa_hints(
    annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
) -> NumaAllocationHints:
    """Return what a pod says about NUMA nodes and CPUs, and what of it cannot be read."""
    qos = labels.get(QOS_CLASS, "")
    says_more = NUMA_TOPOLOGY_SPEC.key in annotations or RESOURCE_SPEC.key in annotations
    if not says_more and qos not in PINNED_QOS:
        return NO_ALLOCATION_HINTS
    numa, cpus = NUMA_TOPOLOGY_SPEC.read(annotations), RESOURCE_SPEC.read(annotations)
    invalid = [invalid for invalid in (numa, cpus) if isinstance(invalid, InvalidObject)]
    if invalid:
        problems = tuple(
            (problem.field, problem.message)
            for invalid_object in invalid
            for problem in invalid_object.problems
        )
        return NumaAllocationHints(problems=problems)
    band = find_class(labels, priority, is_best_effort=False)
    is_prod = band is KoordinatorClass.PROD
    hints: dict[str, Any] = {"is_pinned": wants_pinned(qos, is_prod=is_prod)}
    if numa is not None and not isinstance(numa, InvalidObject):
        policy, exclusive = numa.numa_topology_policy, numa.single_numa_node_exclusive
        hints["policy"] = NumaPolicy(policy) if policy else None
        hints["exclusive"] = NumaExclusive(exclusive) if exclusive else None
    if cpus is not None and not isinstance(cpus, InvalidObject):
        required = cpus.required_cpu_bind_policy
        hints["required"] = CpuBind(required) if required else None
        hints["preferred"] = CpuBind(cpus.preferred_cpu_bind_policy or CpuBind.DEFAULT)
        hints["cpu_exclusive"] = _read_exclusive(cpus.preferred_cpu_exclusive_policy)
    return NumaAllocationHints(**hints)


class NumaPodReader(PodReader):
    """Reads what pods say about NUMA nodes and CPUs, and which they were given."""

    name = NAME
    record = STATUS

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        hints = read_numa_hints(annotations, labels, priority)
        return None if hints is NO_ALLOCATION_HINTS else hints

    @override
    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        numa_hints = hints if isinstance(hints, NumaAllocationHints) else NO_ALLOCATION_HINTS
        return read_status(uid, text, numa_hints)

    @override
    def replace_lost(self, uid: str, shape: PodShape) -> Allocation:
        """Return an allocation of unknown CPUs: they are somewhere on the node."""
        return NumaAllocation(uid, lost=dict(shape.requests).get(CPU, 0))


def _read_exclusive(text: str | None) -> CpuExclusive | None:
    return CpuExclusive(text) if text and text != "None" else None


def read_status(pod: str, text: str, hints: NumaAllocationHints) -> NumaAllocation:
    """Return what the annotation resource-status of a pod (uid) says. Raises ValueError."""
    status = _status_decoder.decode(text)
    shares = tuple(
        NumaShare(
            share.node,
            tuple(sorted((key, parse_amount(key, n)) for key, n in share.resources.items())),
        )
        for share in sorted(status.shares, key=lambda share: share.node)
    )
    cpus = _read_cpuset(status.cpuset)
    return NumaAllocation(pod, cpus, shares, hints.cpu_exclusive if cpus else None)
