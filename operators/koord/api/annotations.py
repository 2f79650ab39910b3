"""What users write into annotations as JSON, and the type of each.

Plain texts (modes, names, counts) are read where their feature is; results that the operators write
into annotations themselves are encoded there, too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter

from koord.api.jsontext import JsonAnnotation
from koord.api.keys import device, gang, operators, quota, reservation
from koord.api.model import Model
from koord.api.parse import InvalidObject, Problem, UnknownFields
from koord.api.quotaprofile import NodeSelector
from koord.api.reservation import ReservationOwner
from koord.api.resource import LabelSelector, ResourceList, ResourceQuantity

T = TypeVar("T")


class GatherRule(Model):
    """How the gang wants to sit in one layer of the network."""

    layer: Annotated[str, Field(min_length=1)]
    strategy: Literal["MustGather", "PreferGather"]
    pod_count_multiple: Annotated[int, Field(ge=0)] = 0


class NetworkTopologySpec(Model):
    """Which layers of the network the gang must or should share."""

    gather_strategy: Annotated[list[GatherRule], Field(max_length=16)] = Field(default_factory=list)


_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SubGroup(Model):
    """Members of a gang that are of use only together."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    min_member: _Count = 0
    layer: Annotated[str, Field(max_length=253)] = ""
    parent: Annotated[str, Field(max_length=63)] = ""
    min_sub_groups: _Count | None = None


class SubGroups(Model):
    """The sub-groups of a gang, and how many of those right below it must be complete."""

    min_sub_groups: _Count | None = None
    groups: Annotated[list[SubGroup], Field(min_length=1, max_length=1024)]


class DeviceHint(Model):
    """What a pod asks of the devices of one type."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: Literal["ApplyForAll", "RequestsAsCount"] | None = None
    required_topology_scope: Literal["Device", "PCIe", "NUMANode", "Node"] | None = None
    exclusive_policy: Literal["DeviceLevel", "PCIeLevel"] | None = None


class DeviceJointAllocate(Model):
    """Device types that a pod wants close to each other; the first leads."""

    device_types: list[str] = Field(default_factory=list)
    required_scope: Literal["SamePCIe"] | None = None


class GpuPartitionSpec(Model):
    """How strictly a pod wants the partitions of the GPU fabric kept."""

    allocate_policy: Literal["Restricted", "BestEffort"] = "BestEffort"
    ring_bus_bandwidth: ResourceQuantity | None = None


def _read_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


class GpuPartition(Model):
    """GPUs of a node that the fabric lets work together."""

    minors: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    gpu_link_type: str = ""
    ring_bus_bandwidth: ResourceQuantity | None = None
    allocation_score: Annotated[int, BeforeValidator(_read_number)] = 0
    """Published tables write it as a text."""


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


class SelectorTerm(Model):
    """Requirements that must all hold."""

    match_expressions: list[SelectorRequirement] = Field(default_factory=list)
    match_fields: list[SelectorRequirement] = Field(default_factory=list)


class ReservationSelector(Model):
    """Terms of which one must hold."""

    reservation_selector_terms: list[SelectorTerm] = Field(default_factory=list)


class Toleration(Model):
    """Which taints of a reservation do not keep a pod away."""

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
    tolerations: list[Toleration] = Field(default_factory=list)


class ResourceNames(Model):
    """Resources in which a pod and its reservation must be equal."""

    resource_names: list[str] = Field(default_factory=list)


class RestrictedOptions(Model):
    """Resources that a restricted reservation is about."""

    resources: list[str] = Field(default_factory=list)


class HeldResources(Model):
    """An amount of resources; more fields may stand beside it on a node."""

    resources: ResourceList | None = None


def _define(key: str, kind: type[T], when_empty: T | None = None) -> JsonAnnotation[T]:
    return JsonAnnotation(key, TypeAdapter(kind), when_empty)


NETWORK_TOPOLOGY_SPEC: Final = _define(gang.NETWORK_TOPOLOGY_SPEC, NetworkTopologySpec)
SUB_GROUPS: Final = _define(operators.SUB_GROUPS, SubGroups)

DEVICE_ALLOCATE_HINT: Final = _define(device.ALLOCATE_HINT, dict[str, DeviceHint])
DEVICE_JOINT_ALLOCATE: Final = _define(device.JOINT_ALLOCATE, DeviceJointAllocate)
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
RESIZE_ALLOCATABLE: Final = _define(reservation.RESIZE_ALLOCATABLE, HeldResources)
INNER_RESERVED: Final = _define(reservation.INNER_RESERVED, HeldResources)
RESERVATION_OWNERS: Final = _define(reservation.OWNERS, list[ReservationOwner])

SHARED_WEIGHT: Final = _define(quota.SHARED_WEIGHT, ResourceList)
QUOTA_NAMESPACES: Final = _define(quota.NAMESPACES, list[str])
TOTAL_RESOURCE: Final = _define(quota.TOTAL_RESOURCE, ResourceList)
UNSCHEDULABLE_RESOURCE: Final = _define(quota.UNSCHEDULABLE_RESOURCE, ResourceList)
NODE_SELECTOR: Final = _define(operators.NODE_SELECTOR, NodeSelector)
ADMISSION: Final = _define(quota.ADMISSION, ResourceList)
RESOURCE_KEYS: Final = _define(quota.RESOURCE_KEYS, list[Annotated[str, Field(min_length=1)]])
MAX_STRICT_CHECK_RESOURCE_KEYS: Final = _define(quota.MAX_STRICT_CHECK_RESOURCE_KEYS, list[str])

JSON_ANNOTATIONS: Final[tuple[JsonAnnotation[Any], ...]] = (
    NETWORK_TOPOLOGY_SPEC,
    SUB_GROUPS,
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
    GPU_PARTITIONS,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    RESERVATION_AFFINITY,
    EXACT_MATCH,
    RESTRICTED_OPTIONS,
    RESIZE_ALLOCATABLE,
    INNER_RESERVED,
    RESERVATION_OWNERS,
    SHARED_WEIGHT,
    QUOTA_NAMESPACES,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
    NODE_SELECTOR,
    ADMISSION,
    RESOURCE_KEYS,
    MAX_STRICT_CHECK_RESOURCE_KEYS,
)


def find_problems(
    annotations: Mapping[str, str], *, unknown_fields: UnknownFields = "ignore"
) -> tuple[Problem, ...]:
    """Return what is wrong with the annotations of an object that are JSON."""
    found = (one.read(annotations, unknown_fields=unknown_fields) for one in JSON_ANNOTATIONS)
    return tuple(
        problem for one in found if isinstance(one, InvalidObject) for problem in one.problems
    )
