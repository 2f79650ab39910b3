"""NodeSLO: what the agent of one node is to do for the pods there, by their QoS classes.

Compatible with Koordinator's, whose koordlet reads it. The operators only write it: without that
agent nothing applies it. Fields that are not known here are kept, as agents may be newer.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from koord.api.model import Marker, Model, Rule
from koord.api.resource import AGE, Int64, Names, Resource

SLO_GROUP: Final = "slo.koordinator.sh"
MAX_PARTS: Final = 128
"""Of lists: block devices, applications."""
_OPEN: Final = Marker({"x-kubernetes-preserve-unknown-fields": True})
_LARGEST: Final = 2**53 - 1
"""Bounds are floating-point numbers in the schema of a CRD."""

Percent = Annotated[int, Field(ge=0, le=100), Marker({"format": "int64"})]
Switch = Annotated[int, Field(ge=0, le=1), Marker({"format": "int64"})]
Amount = Annotated[int, Field(ge=0, le=_LARGEST), Marker({"format": "int64"})]
Bandwidth = Annotated[
    int | Annotated[str, Field(max_length=64)],
    Marker(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 64,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""Bits per second as a quantity, or a percentage of the node's bandwidth."""
_Text = Annotated[str, Field(max_length=253)]
_Path = Annotated[str, Field(max_length=4096)]


def _below(lower: str, upper: str) -> Rule:
    """Return the rule that a lower bound is less than its threshold, where both are given."""
    names = [_to_field(name) for name in (lower, upper)]
    cel = f"!has(self.{names[0]}) || !has(self.{names[1]}) || self.{names[0]} < self.{names[1]}"
    return Rule(cel, f"{names[0]} must be less than {names[1]}", _is_below(lower, upper))


def _is_below(lower: str, upper: str) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        low, high = getattr(value, lower), getattr(value, upper)
        return low is None or high is None or low < high

    return holds


_FIELDS: Final = {
    "cpu_evict_be_satisfaction_lower_percent": "cpuEvictBESatisfactionLowerPercent",
    "cpu_evict_be_satisfaction_upper_percent": "cpuEvictBESatisfactionUpperPercent",
}


def _to_field(name: str) -> str:
    head, *words = name.split("_")
    return _FIELDS.get(name) or head + "".join(part.capitalize() for part in words)


class ThresholdStrategy(Model):
    """When the agent suppresses or evicts best-effort pods."""

    markers = (_OPEN,)
    rules = (
        _below("memory_evict_lower_percent", "memory_evict_threshold_percent"),
        _below("cpu_evict_lower_percent", "cpu_evict_threshold_percent"),
        _below(
            "cpu_evict_be_satisfaction_lower_percent", "cpu_evict_be_satisfaction_upper_percent"
        ),
        _below("cpu_allocatable_evict_lower_percent", "cpu_allocatable_evict_threshold_percent"),
        _below(
            "memory_allocatable_evict_lower_percent", "memory_allocatable_evict_threshold_percent"
        ),
    )

    enable: bool | None = None
    """Whether anything of this is done."""
    cpu_suppress_threshold_percent: Percent | None = None
    """CPU of the node above which best-effort pods get less."""
    cpu_suppress_min_percent: Percent | None = None
    """What they keep."""
    cpu_suppress_policy: Literal["cpuset", "cfsQuota"] | None = None
    """How they get less."""
    memory_evict_threshold_percent: Percent | None = None
    """Memory of the node above which best-effort pods are evicted."""
    memory_evict_lower_percent: Percent | None = None
    """Down to where."""
    cpu_evict_be_usage_threshold_percent: Annotated[
        Percent | None, Field(alias="cpuEvictBEUsageThresholdPercent")
    ] = None
    """Use of their CPU from which they are evicted for it."""
    cpu_evict_be_satisfaction_lower_percent: Annotated[
        Percent | None, Field(alias="cpuEvictBESatisfactionLowerPercent")
    ] = None
    """Share of their requests below which they are evicted."""
    cpu_evict_be_satisfaction_upper_percent: Annotated[
        Percent | None, Field(alias="cpuEvictBESatisfactionUpperPercent")
    ] = None
    """Up to where."""
    cpu_evict_policy: Literal["evictByRealLimit", "evictByAllocatable"] | None = None
    """What that share is of."""
    cpu_evict_time_window_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Over how long CPU is averaged."""
    cpu_evict_threshold_percent: Percent | None = None
    """CPU of the node above which pods are evicted."""
    cpu_evict_lower_percent: Percent | None = None
    """Down to where."""
    cpu_allocatable_evict_threshold_percent: Percent | None = None
    """Requested CPU above which pods are evicted."""
    cpu_allocatable_evict_lower_percent: Percent | None = None
    """Down to where."""
    memory_allocatable_evict_threshold_percent: Percent | None = None
    """Requested memory above which pods are evicted."""
    memory_allocatable_evict_lower_percent: Percent | None = None
    """Down to where."""
    evict_enabled_priority_threshold: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    """Pods up to this priority may be evicted for what the node uses."""
    allocatable_evict_priority_threshold: Annotated[int, Field(ge=-(2**31), le=7999)] | None = None
    """Pods up to this priority may be evicted for what is requested."""


class CpuQos(Model):
    """CPU of one class."""

    markers = (_OPEN,)

    enable: bool | None = None
    """Whether it is set."""
    group_identity: Annotated[int, Field(ge=-1, le=2)] | None = None
    """Group identity of the kernel: 2 is most sensitive to latency."""
    sched_idle: Switch | None = None
    """1: runs only when nothing else does."""
    core_expeller: bool | None = None
    """Whether others are kept off the sibling CPUs."""


class MemoryQos(Model):
    """Memory of one class."""

    markers = (_OPEN,)

    enable: bool | None = None
    """Whether it is set."""
    min_limit_percent: Percent | None = None
    """Of the request: never reclaimed."""
    low_limit_percent: Percent | None = None
    """Of the request: reclaimed last."""
    throttling_percent: Percent | None = None
    """Of the limit: allocation is slowed down from there on."""
    wmark_ratio: Percent | None = None
    """Of the limit: reclaimed in the background from there on."""
    wmark_scale_permill: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How far below that reclaim stops."""
    wmark_min_adj: Annotated[int, Field(ge=-25, le=50)] | None = None
    """Change of the node's minimum watermark for the class."""
    priority_enable: Switch | None = None
    """Whether the priority counts when memory runs out."""
    priority: Annotated[int, Field(ge=0, le=12)] | None = None
    """Priority when memory runs out; lower ones go first."""
    oom_kill_group: Switch | None = None
    """1: all processes of a pod go together."""


class IoLimits(Model):
    """Limits of one block device; 0 is none."""

    markers = (_OPEN,)

    read_iops: Annotated[Amount | None, Field(alias="readIOPS")] = None
    """Reads per second."""
    write_iops: Annotated[Amount | None, Field(alias="writeIOPS")] = None
    """Writes per second."""
    read_bps: Annotated[Amount | None, Field(alias="readBPS")] = None
    """Bytes read per second."""
    write_bps: Annotated[Amount | None, Field(alias="writeBPS")] = None
    """Bytes written per second."""
    io_weight_percent: Annotated[
        Annotated[int, Field(ge=1, le=100)] | None, Field(alias="ioWeightPercent")
    ] = None
    """Weight among classes."""


class Block(Model):
    """One block device, and its limits."""

    markers = (_OPEN,)

    name: _Text | None = None
    """The device, volume group, or volume of the pod."""
    type: Literal["device", "volumegroup", "podvolume"] | None = None
    """What the name is of."""
    io_cfg: IoLimits | None = None
    """Its limits."""


class BlkioQos(Model):
    """Block devices of one class."""

    markers = (_OPEN,)

    enable: bool | None = None
    """Whether it is set."""
    blocks: Annotated[list[Block], Field(max_length=MAX_PARTS)] | None = None
    """The devices."""


class ResctrlQos(Model):
    """Cache and memory bandwidth of one class."""

    markers = (_OPEN,)
    rules = (_below("cat_range_start_percent", "cat_range_end_percent"),)

    enable: bool | None = None
    """Whether it is set."""
    cat_range_start_percent: Percent | None = None
    """Where its part of the last-level cache begins."""
    cat_range_end_percent: Percent | None = None
    """Where it ends."""
    mba_percent: Percent | None = None
    """Its memory bandwidth."""


class NetworkQos(Model):
    """Network of one class."""

    markers = (_OPEN,)

    enable: bool | None = None
    """Whether it is set."""
    ingress_request: Bandwidth | None = None
    """Guaranteed, received."""
    ingress_limit: Bandwidth | None = None
    """At most, received."""
    egress_request: Bandwidth | None = None
    """Guaranteed, sent."""
    egress_limit: Bandwidth | None = None
    """At most, sent."""


class QosOfClass(Model):
    """What one class gets."""

    markers = (_OPEN,)

    cpu_qos: Annotated[CpuQos | None, Field(alias="cpuQOS")] = None
    """CPU."""
    memory_qos: Annotated[MemoryQos | None, Field(alias="memoryQOS")] = None
    """Memory."""
    blkio_qos: Annotated[BlkioQos | None, Field(alias="blkioQOS")] = None
    """Block devices."""
    resctrl_qos: Annotated[ResctrlQos | None, Field(alias="resctrlQOS")] = None
    """Cache and memory bandwidth."""
    network_qos: Annotated[NetworkQos | None, Field(alias="networkQOS")] = None
    """Network."""


class QosPolicies(Model):
    """How classes are kept apart."""

    markers = (_OPEN,)

    cpu_policy: Literal["groupIdentity", "coreSched"] | None = None
    """On CPUs."""
    net_qos_policy: Annotated[Literal["tc", "terway-qos"] | None, Field(alias="netQOSPolicy")] = (
        None
    )
    """In the network."""


class QosStrategy(Model):
    """What each class gets."""

    markers = (_OPEN,)

    policies: QosPolicies | None = None
    """How classes are kept apart."""
    lsr_class: QosOfClass | None = None
    """LSR and LSE."""
    ls_class: QosOfClass | None = None
    """LS."""
    be_class: QosOfClass | None = None
    """BE."""
    system_class: QosOfClass | None = None
    """SYSTEM."""
    cgroup_root: QosOfClass | None = None
    """The root of all; only its block devices count."""


class CpuBurstStrategy(Model):
    """Whether containers may use more CPU than their limit for a while."""

    markers = (_OPEN,)

    policy: Literal["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"] | None = None
    """Which of the two ways is used."""
    cpu_burst_percent: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Of the limit, saved up for later."""
    cfs_quota_burst_percent: (
        Annotated[int, Field(ge=100, le=_LARGEST), Marker({"format": "int64"})] | None
    ) = None
    """Of the limit, lent when the node is idle."""
    cfs_quota_burst_period_seconds: (
        Annotated[int, Field(ge=-1, le=_LARGEST), Marker({"format": "int64"})] | None
    ) = None
    """For how long; -1 is without end."""
    share_pool_threshold_percent: Percent | None = None
    """Use of shared CPUs up to which CPU is lent."""


class SystemStrategy(Model):
    """Settings of the kernel."""

    markers = (_OPEN,)

    min_free_kbytes_factor: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Hundredths of a percent of memory that are kept free."""
    watermark_scale_factor: Annotated[int, Field(ge=1, le=400)] | None = None
    """vm.watermark_scale_factor."""
    memcg_reap_back_ground: Switch | None = None
    """1: memory of cgroups that are gone is reclaimed."""
    sched_features: Annotated[dict[str, bool], Field(max_length=64)] | None = None
    """Features of the scheduler of the kernel."""
    total_network_bandwidth: Bandwidth | None = None
    """Of the node; its annotation network-bandwidth goes before it."""


class CgroupPath(Model):
    """Where the cgroup of an application is."""

    markers = (_OPEN,)

    base: Literal["CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"] | None = None
    """Below what."""
    parent_dir: _Path | None = None
    """The directory above."""
    relative_path: _Path | None = None
    """The directory itself."""


class HostApplicationSpec(Model):
    """An application that is no pod."""

    markers = (_OPEN,)

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name."""
    priority: Literal["koord-prod", "koord-mid", "koord-batch", "koord-free", ""] | None = None
    """Its priority band."""
    qos: Literal["LSE", "LSR", "LS", "BE", "SYSTEM", ""] | None = None
    """Its QoS class."""
    cgroup_path: CgroupPath | None = None
    """Its cgroup."""


class NodeSLOSpec(Model):
    """What the agent of the node is to do."""

    markers = (_OPEN,)

    resource_used_threshold_with_be: Annotated[
        ThresholdStrategy | None, Field(alias="resourceUsedThresholdWithBE")
    ] = None
    """When best-effort pods are suppressed or evicted."""
    resource_qos_strategy: Annotated[QosStrategy | None, Field(alias="resourceQOSStrategy")] = None
    """What each QoS class gets."""
    cpu_burst_strategy: CpuBurstStrategy | None = None
    """Whether containers may use more CPU than their limit."""
    system_strategy: SystemStrategy | None = None
    """Settings of the kernel."""
    host_applications: Annotated[list[HostApplicationSpec], Field(max_length=MAX_PARTS)] | None = (
        None
    )
    """Applications that are no pods."""
    extensions: Annotated[dict[str, Any], _OPEN] | None = None
    """What is not known here; it is kept as it is."""


class NodeSLOStatus(Model):
    """Nothing is reported here: koordlet reports in NodeMetrics."""

    observed_generation: Int64 | None = None
    """Not written by the operators."""


class NodeSLO(Resource):
    """Tells the agent of the node of the same name what to do; needs koordlet there."""

    names: ClassVar = Names(
        group=SLO_GROUP,
        kind="NodeSLO",
        plural="nodeslos",
        short=(),
        namespaced=False,
        columns=(AGE,),
    )

    spec: NodeSLOSpec = NodeSLOSpec()
    """What the agent of the node is to do."""
    status: NodeSLOStatus = NodeSLOStatus()
    """Nothing."""
