"""Settings of over-commitment: what nodes offer to batch and mid pods.

Names and defaults are those of Koordinator's ``colocation-config``. What they do is decided
elsewhere. Percentages of capacity may exceed 100 where that promises more than there is.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from koord.api.model import Marker, Model
from koord.api.quotaprofile import NodeSelector
from koord.api.resource import Int32, Int64

_ATOMIC_LIST = Marker({"x-kubernetes-list-type": "atomic"})
Overcommitted = Annotated[Int32, Field(ge=0, le=1000)]
"""A percentage of capacity that may be exceeded, up to ten times of it."""
Part = Annotated[Int32, Field(ge=0, le=100)]


class ColocationStrategy(Model):
    """What nodes offer to batch and mid pods."""

    enable: bool | None = None
    """Whether batch and mid resources are computed and published."""
    cpu_reclaim_threshold_percent: Overcommitted | None = None
    """Up to which percentage of its capacity the CPUs of a node are given out in all, batch pods
    included; 60 by default."""
    memory_reclaim_threshold_percent: Overcommitted | None = None
    """The same of memory; 65 by default."""
    cpu_calculate_policy: Literal["usage", "request", "maxUsageRequest"] | None = None
    """What pods of higher priority count for: what they use (the default), what they request, or
    the larger of both for each pod."""
    memory_calculate_policy: Literal["usage", "request", "maxUsageRequest"] | None = None
    """The same of memory."""
    batch_cpu_threshold_percent: Annotated[
        Overcommitted | None, Field(alias="batchCPUThresholdPercent")
    ] = None
    """Percentage of its capacity that a node offers to batch pods at most; no limit by default."""
    batch_memory_threshold_percent: Overcommitted | None = None
    """The same of memory."""
    mid_cpu_threshold_percent: Annotated[Part | None, Field(alias="midCPUThresholdPercent")] = None
    """Percentage of its capacity that a node offers to mid pods at most; 100 by default."""
    mid_memory_threshold_percent: Part | None = None
    """The same of memory."""
    mid_unallocated_percent: Part | None = None
    """Percentage of what pods of class prod do not request that mid pods may have; 0 by default."""
    mid_reclaim_mode: Literal["static"] | None = None
    """With static a fixed part of each node is for mid pods, whatever is used."""
    mid_static_cpu_reserved_percent: Annotated[
        Part | None, Field(alias="midStaticCPUReservedPercent")
    ] = None
    """That part, in percent of the capacity; 0 by default."""
    mid_static_memory_reserved_percent: Part | None = None
    """The same of memory."""
    degrade_time_minutes: Annotated[Int64, Field(ge=1, le=10080)] | None = None
    """A report of what a node uses counts for so long; afterwards the node offers nothing. 15 by
    default."""
    update_time_threshold_seconds: Annotated[Int64, Field(ge=1, le=604800)] | None = None
    """After so long smaller differences than `resourceDiffThreshold` are written, too. By default
    they never are."""
    resource_diff_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """A node is written when an amount differs from the published one by more than this part of it;
    0.1 by default."""


class ColocationConfigStrategy(ColocationStrategy):
    """The same with fields that only Koordinator's node agent reads."""

    metric_aggregate_duration_seconds: Annotated[Int64, Field(ge=1)] | None = None
    """Read by the node agent."""
    metric_report_interval_seconds: Annotated[Int64, Field(ge=1)] | None = None
    """Read by the node agent."""
    metric_aggregate_policy: dict[str, Any] | None = None
    """Read by the node agent."""
    metric_memory_collect_policy: Annotated[str, Field(min_length=1)] | None = None
    """Read by the node agent."""
    extensions: dict[str, Any] | None = None
    """What others add; nothing here reads it."""


class NodeColocationConfig(ColocationConfigStrategy):
    """Settings of some nodes, over those of the cluster."""

    name: str | None = None
    """A name for people."""
    node_selector: NodeSelector
    """The nodes."""


class ColocationConfig(ColocationConfigStrategy):
    """The key ``colocation-config`` of the ConfigMap ``slo-controller-config``."""

    node_configs: Annotated[list[NodeColocationConfig], Field(max_length=256), _ATOMIC_LIST] | (
        None
    ) = None
    """Settings of some nodes; the first entry that selects a node counts."""
