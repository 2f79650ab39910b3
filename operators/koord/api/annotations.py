"""Annotations with JSON values, and their types.

Plain values (modes, names, counts) and annotations written by the operators are handled by their
features.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter

from koord.api.keys import device, gang, operators, quota, reservation
from koord.api.model import Model
from koord.api.parse import InvalidObject, JsonAnnotation, Problem, UnknownFields
from koord.api.queue import QueueSpec
from koord.api.quotaprofile import NodeSelector
from koord.api.reservation import ReservationOwner
from koord.api.resource import LabelSelector, ResourceList, ResourceQuantity

T = TypeVar("T")


class GatherRule(Model):
    """Topology constraint of a gang for one layer of the network."""

    layer: Annotated[str, Field(min_length=1)]
    strategy: Literal["MustGather", "PreferGather"]
    pod_count_multiple: Annotated[int, Field(ge=0)] = 0


class NetworkTopologySpec(Model):
    """Topology constraints of a gang."""

    gather_strategy: Annotated[list[GatherRule], Field(max_length=16)] = Field(default_factory=list)


_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SubGroupSpec(Model):
    """Members of a gang that are useful only together."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    min_member: _Count = 0
    layer: Annotated[str, Field(max_length=253)] = ""
    parent: Annotated[str, Field(max_length=63)] = ""
    min_sub_groups: _Count | None = None


class SubGroups(Model):
    """The sub-groups of a gang, and how many at the top level must be complete."""

    min_sub_groups: _Count | None = None
    groups: Annotated[list[SubGroupSpec], Field(min_length=1, max_length=1024)]


class DeviceHint(Model):
    """A pod's requirements on devices of one type."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: Literal["ApplyForAll", "RequestsAsCount"] | None = None
    required_topology_scope: Literal["Device", "PCIe", "NUMANode", "Node"] | None = None
    exclusive_policy: Literal["DeviceLevel", "PCIeLevel"] | None = None


class DeviceJointAllocate(Model):
    """Device types to allocate close together; the first is the primary one."""

    device_types: list[str] = Field(default_factory=list)
    required_scope: Literal["SamePCIe"] | None = None


class GpuPart(Model):
    """What a pod requests of one of its GPUs."""

    core: Annotated[int, Field(ge=1, le=100)] | None = None
    memory: ResourceQuantity | None = None
    memory_ratio: Annotated[int, Field(ge=1, le=100)] | None = None


class GpuPartitionSpec(Model):
    """How strictly the partitions of the GPU fabric are followed."""

    allocate_policy: Literal["Restricted", "BestEffort"] = "BestEffort"
    ring_bus_bandwidth: ResourceQuantity | None = None


def _read_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


class GpuPartition(Model):
    """GPUs of a node that the fabric connects."""

    minors: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    gpu_link_type: str = ""
    ring_bus_bandwidth: ResourceQuantity | None = None
    allocation_score: Annotated[int, BeforeValidator(_read_number)] = 0
    """A string in published tables."""


class NumaTopologySpec(Model):
    """The NUMA policy of a pod."""

    numa_topology_policy: Literal["", "BestEffort", "Restricted", "SingleNUMANode"] = ""
    single_numa_node_exclusive: Annotated[
        Literal["Required", "Preferred"] | None, Field(alias="singleNUMANodeExclusive")
    ] = None


_BindPolicy = Literal["Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"]


class CpuBindSpec(Model):
    """How the CPUs of a pod are bound."""

    required_cpu_bind_policy: Annotated[
        _BindPolicy | None, Field(alias="requiredCPUBindPolicy")
    ] = None
    preferred_cpu_bind_policy: Annotated[
        _BindPolicy | None, Field(alias="preferredCPUBindPolicy")
    ] = None
    preferred_cpu_exclusive_policy: Annotated[
        Literal["None", "PCPULevel", "NUMANodeLevel"] | None,
        Field(alias="preferredCPUExclusivePolicy"),
    ] = None


class SelectorRequirement(Model):
    """One requirement on a label or a field."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = Field(default_factory=list)


class SelectorTermSpec(Model):
    """Requirements that are ANDed."""

    match_expressions: list[SelectorRequirement] = Field(default_factory=list)
    match_fields: list[SelectorRequirement] = Field(default_factory=list)


class ReservationSelector(Model):
    """Terms that are ORed."""

    reservation_selector_terms: list[SelectorTermSpec] = Field(default_factory=list)


class TolerationSpec(Model):
    """A toleration of a reservation's taints."""

    key: str = ""
    operator: Literal["", "Exists", "Equal"] = ""
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class ReservationAffinity(Model):
    """Which reservations a pod must use."""

    name: str = ""
    reservation_selector: dict[str, str] = Field(default_factory=dict)
    required_during_scheduling_ignored_during_execution: ReservationSelector | None = None
    tolerations: list[TolerationSpec] = Field(default_factory=list)


class ResourceNames(Model):
    """Resources whose amounts must be equal in pod and reservation."""

    resource_names: list[str] = Field(default_factory=list)


class RestrictedOptions(Model):
    """Resources that the policy Restricted applies to."""

    resources: list[str] = Field(default_factory=list)


class ResourceAmounts(Model):
    """An amount of resources; nodes may have more fields."""

    resources: ResourceList | None = None


_DEFINED: Final[list[JsonAnnotation[Any]]] = []


def _define(key: str, kind: type[T], when_empty: T | None = None) -> JsonAnnotation[T]:
    made = JsonAnnotation(key, TypeAdapter(kind), when_empty)
    _DEFINED.append(made)
    return made


NETWORK_TOPOLOGY_SPEC: Final = _define(gang.NETWORK_TOPOLOGY_SPEC, NetworkTopologySpec)
SUB_GROUPS: Final = _define(operators.SUB_GROUPS, SubGroups)

DEVICE_ALLOCATE_HINT: Final = _define(device.ALLOCATE_HINT, dict[str, DeviceHint])
DEVICE_JOINT_ALLOCATE: Final = _define(device.JOINT_ALLOCATE, DeviceJointAllocate)
GPU_REQUEST: Final = _define(device.GPU_REQUEST, list[GpuPart])
GPU_PARTITION_SPEC: Final = _define(device.GPU_PARTITION_SPEC, GpuPartitionSpec)
GPU_PARTITIONS: Final = _define(device.GPU_PARTITIONS, dict[str, list[GpuPartition]])
NUMA_TOPOLOGY_SPEC: Final = _define(device.NUMA_TOPOLOGY_SPEC, NumaTopologySpec)
RESOURCE_SPEC: Final = _define(device.RESOURCE_SPEC, CpuBindSpec)

RESERVATION_AFFINITY: Final = _define(
    reservation.AFFINITY,
    ReservationAffinity,
    ReservationAffinity(),  # the pod must use some reservation, any
)
EXACT_MATCH: Final = _define(reservation.EXACT_MATCH, ResourceNames)
RESTRICTED_OPTIONS: Final = _define(reservation.RESTRICTED_OPTIONS, RestrictedOptions)
RESIZE_ALLOCATABLE: Final = _define(reservation.RESIZE_ALLOCATABLE, ResourceAmounts)
INNER_RESERVED: Final = _define(reservation.INNER_RESERVED, ResourceAmounts)
RESERVATION_OWNERS: Final = _define(reservation.OWNERS, list[ReservationOwner])

SHARED_WEIGHT: Final = _define(quota.SHARED_WEIGHT, ResourceList)
QUOTA_NAMESPACES: Final = _define(quota.NAMESPACES, list[str])
TOTAL_RESOURCE: Final = _define(quota.TOTAL_RESOURCE, ResourceList)
UNSCHEDULABLE_RESOURCE: Final = _define(quota.UNSCHEDULABLE_RESOURCE, ResourceList)
QUOTA_SHARED_WITH: Final = _define(
    operators.SHARED_WITH,
    list[Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)$")]],
)
NODE_SELECTOR: Final = _define(operators.NODE_SELECTOR, NodeSelector)
QUEUE: Final = _define(operators.QUEUE, QueueSpec)
ADMISSION: Final = _define(quota.ADMISSION, ResourceList)
RESOURCE_KEYS: Final = _define(quota.RESOURCE_KEYS, list[Annotated[str, Field(min_length=1)]])
MAX_STRICT_CHECK_RESOURCE_KEYS: Final = _define(quota.MAX_STRICT_CHECK_RESOURCE_KEYS, list[str])

JSON_ANNOTATIONS: Final = tuple(_DEFINED)


def find_problems(
    annotations: Mapping[str, str], *, unknown_fields: UnknownFields = "ignore"
) -> tuple[Problem, ...]:
    values = (
        json_annotation.read(annotations, unknown_fields=unknown_fields)
        for json_annotation in JSON_ANNOTATIONS
    )
    return tuple(
        problem
        for invalid in values
        if isinstance(invalid, InvalidObject)
        for problem in invalid.problems
    )
