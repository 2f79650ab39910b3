"""API objects as they are in JSON, reduced to the fields that scheduling needs.

Every field has a default and unknown fields are skipped, so that a newer server or a sparse object
decodes. Parts that repeat over many objects (affinity, resources) stay raw bytes: they are looked
up, not parsed, when seen again. Nothing here interprets a value.
"""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

O = TypeVar("O")  # noqa: E741 - the object of a list or a watch event


class WireOwnerReference(Struct, rename="camel", gc=False):
    """One entry of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class WireObjectMeta(Struct, rename="camel", gc=False):
    """``metadata``."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[WireOwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class SchedulingGate(Struct, gc=False):
    """One entry of ``spec.schedulingGates``."""

    name: str = ""


class ContainerPort(Struct, rename="camel", gc=False):
    """One entry of ``ports``."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Struct, rename="camel", gc=False):
    """One container; ``resources`` stays raw."""

    name: str = ""
    resources: Raw = Raw()
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class VolumeClaimSource(Struct, rename="camel", gc=False):
    """``persistentVolumeClaim`` of a volume."""

    claim_name: str = ""


class EmptyDirSource(Struct, rename="camel", gc=False):
    """``emptyDir`` of a volume."""

    medium: str | None = None


class WirePodVolume(Struct, rename="camel", gc=False):
    """One volume of a pod: the fields that decide where the pod may run, and whether it moves."""

    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None
    ephemeral: Raw = Raw()
    gce_persistent_disk: Raw = Raw()
    aws_elastic_block_store: Raw = Raw()
    iscsi: Raw = Raw()
    rbd: Raw = Raw()
    empty_dir: EmptyDirSource | None = None
    host_path: Raw = Raw()


class SchedulingGroup(Struct, rename="camel", gc=False):
    """``spec.schedulingGroup``: the native PodGroup that a pod belongs to."""

    pod_group_name: str = ""


class PodSpec(Struct, rename="camel", gc=False):
    """``spec`` of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: Raw = Raw()
    affinity: Raw = Raw()
    tolerations: Raw = Raw()
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = Raw()
    active_deadline_seconds: int | None = None
    resources: Raw = Raw()
    volumes: list[WirePodVolume] | None = None
    resource_claims: Raw = Raw()
    topology_spread_constraints: Raw = Raw()
    scheduling_group: SchedulingGroup | None = None


class WireCondition(Struct, rename="camel", gc=False):
    """One condition, of any object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    """The resources of a running container, after in-place resizes."""

    name: str = ""
    allocated_resources: Raw = Raw()
    resources: Raw = Raw()


class PodStatus(Struct, rename="camel", gc=False):
    """``status`` of a pod."""

    phase: str = ""
    reason: str = ""
    start_time: datetime | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = Raw()
    resources: Raw = Raw()


class WirePod(Struct, gc=False):
    """A Pod."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(Struct, gc=False):
    """``spec`` of a node."""

    taints: Raw = Raw()
    unschedulable: bool | None = None


class NodeStatus(Struct, gc=False):
    """``status`` of a node; amounts stay raw."""

    allocatable: Raw = Raw()
    capacity: Raw = Raw()


class WireNode(Struct, gc=False):
    """A Node."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class WireNamespace(Struct, gc=False):
    """A Namespace: its name and labels."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)


class WireConfigMap(Struct, gc=False):
    """A ConfigMap."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    data: dict[str, str] | None = None


class VolumeClaimSpec(Struct, rename="camel", gc=False):
    """``spec`` of a PersistentVolumeClaim."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    resources: Raw = Raw()
    selector: Raw = Raw()


class VolumeClaimStatus(Struct, gc=False):
    """``status`` of a PersistentVolumeClaim."""

    phase: str = ""


class WireVolumeClaim(Struct, gc=False):
    """A PersistentVolumeClaim."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: VolumeClaimSpec = msgspec.field(default_factory=VolumeClaimSpec)
    status: VolumeClaimStatus = msgspec.field(default_factory=VolumeClaimStatus)


class VolumeNodeAffinity(Struct, gc=False):
    """``nodeAffinity`` of a PersistentVolume."""

    required: Raw = Raw()


class VolumeClaimRef(Struct, gc=False):
    """``claimRef`` of a PersistentVolume."""

    namespace: str = ""
    name: str = ""


class VolumeSpec(Struct, rename="camel", gc=False):
    """``spec`` of a PersistentVolume: its place, what it offers, and whether it moved to CSI."""

    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    capacity: Raw = Raw()
    claim_ref: VolumeClaimRef | None = None
    gce_persistent_disk: Raw = Raw()
    aws_elastic_block_store: Raw = Raw()
    azure_disk: Raw = Raw()
    cinder: Raw = Raw()
    portworx_volume: Raw = Raw()


class VolumeStatus(Struct, gc=False):
    """``status`` of a PersistentVolume."""

    phase: str = ""


class WireVolume(Struct, gc=False):
    """A PersistentVolume."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class WireStorageClass(Struct, rename="camel", gc=False):
    """A StorageClass."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    volume_binding_mode: str | None = None
    provisioner: str = ""
    allowed_topologies: Raw = Raw()


class ClaimedDevice(Struct, rename="camel", gc=False):
    """A device that a ResourceClaim was given; with ``adminAccess`` others may use it, too."""

    driver: str = ""
    admin_access: bool | None = None


class ClaimedDevices(Struct, gc=False):
    """``status.allocation.devices`` of a ResourceClaim."""

    results: list[ClaimedDevice] | None = None


class ClaimAllocation(Struct, rename="camel", gc=False):
    """``status.allocation`` of a ResourceClaim."""

    devices: ClaimedDevices = msgspec.field(default_factory=ClaimedDevices)
    node_selector: Raw = Raw()


class ResourceClaimStatus(Struct, gc=False):
    """``status`` of a ResourceClaim."""

    allocation: ClaimAllocation | None = None


class WireResourceClaim(Struct, gc=False):
    """A ResourceClaim: what it was given by Dynamic Resource Allocation."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class WirePriorityClass(Struct, rename="camel", gc=False):
    """A PriorityClass."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    value: int = 0
    preemption_policy: str | None = None


class WireCustomResource(Struct, gc=False):
    """A custom resource of ours; the models in ``api`` read what is in it."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: Raw = Raw()
    status: Raw = Raw()


class ZoneResource(Struct, gc=False):
    """One of the ``resources`` of a zone."""

    name: str = ""
    capacity: str | int = 0
    allocatable: str | int | None = None


class Zone(Struct, gc=False):
    """One of the ``zones`` of a NodeResourceTopology."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] | None = None


class WireNodeTopology(Struct, rename="camel", gc=False):
    """A NodeResourceTopology."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    topology_policies: list[str] | None = None
    zones: list[Zone] | None = None


class NativeGangPolicy(Struct, rename="camel", gc=False):
    """``spec.schedulingPolicy.gang``."""

    min_count: int = 0


class NativePolicy(Struct, gc=False):
    """``spec.schedulingPolicy``: a gang, or pods that need not start together."""

    gang: NativeGangPolicy | None = None


class NativeTopology(Struct, gc=False):
    """One of ``spec.schedulingConstraints.topology``: a node label."""

    key: str = ""


class NativeConstraints(Struct, gc=False):
    """``spec.schedulingConstraints``."""

    topology: list[NativeTopology] | None = None


class NativeClaim(Struct, gc=False):
    """One of ``spec.resourceClaims``, which belong to the group."""

    name: str = ""


class NativePodGroupSpec(Struct, rename="camel", gc=False):
    """``spec`` of a native PodGroup. ``disruptionMode`` was a text first, and is a union since."""

    scheduling_policy: NativePolicy = msgspec.field(default_factory=NativePolicy)
    scheduling_constraints: NativeConstraints | None = None
    disruption_mode: Raw = Raw()
    priority: int | None = None
    preemption_policy: str | None = None
    resource_claims: list[NativeClaim] | None = None
    parent_composite_pod_group_name: str | None = None


class WireNativePodGroup(Struct, gc=False):
    """A native PodGroup, that is one of ``scheduling.k8s.io``."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: NativePodGroupSpec = msgspec.field(default_factory=NativePodGroupSpec)


class ListMeta(Struct, rename="camel", gc=False):
    """``metadata`` of a list; ``continue_`` is the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(Struct, Generic[O], gc=False):
    """One page of a list."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[O] | None = None


class WatchEvent(Struct, Generic[O], gc=False):
    """One line of a watch stream."""

    type: str
    object: O


class Identity(Struct, rename="camel", gc=False):
    """The part of ``metadata`` that names an object and its revision."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Identified(Struct, gc=False):
    """The metadata of an object that cannot be decoded as a whole."""

    metadata: Identity = msgspec.field(default_factory=Identity)


class StatusDetails(Struct, rename="camel", gc=False):
    """Details of a ``WireStatus``."""

    retry_after_seconds: int = 0


class WireStatus(Struct, gc=False):
    """The body of a failed request."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class NamedResources(Struct, gc=False):
    """``resources`` of a usage in a NodeMetric; it stays raw."""

    resources: Raw = Raw()


class AggregatedUsage(Struct, gc=False):
    """What a node used over some time, by kind of aggregation, such as ``p95``."""

    duration: str = ""
    usage: dict[str, NamedResources] | None = None


class NodeMetricInfo(Struct, rename="camel", gc=False):
    """``status.nodeMetric`` of a NodeMetric."""

    node_usage: NamedResources = msgspec.field(default_factory=NamedResources)
    system_usage: NamedResources = msgspec.field(default_factory=NamedResources)
    aggregated_node_usages: list[AggregatedUsage] | None = None


class PodMetric(Struct, rename="camel", gc=False):
    """One of ``status.podsMetric`` of a NodeMetric."""

    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: NamedResources = msgspec.field(default_factory=NamedResources)


class HostApplicationMetric(Struct, gc=False):
    """One of ``status.hostApplicationMetric`` of a NodeMetric: what runs beside pods."""

    name: str = ""
    priority: str = ""
    usage: NamedResources = msgspec.field(default_factory=NamedResources)


class ReclaimableMetric(Struct, gc=False):
    """``status.prodReclaimableMetric`` of a NodeMetric."""

    resource: NamedResources = msgspec.field(default_factory=NamedResources)


class CollectPolicy(Struct, rename="camel", gc=False):
    """``spec.metricCollectPolicy`` of a NodeMetric."""

    report_interval_seconds: int | None = None
    aggregate_duration_seconds: int | None = None


class NodeMetricSpec(Struct, rename="camel", gc=False):
    """``spec`` of a NodeMetric."""

    metric_collect_policy: CollectPolicy | None = None


class NodeMetricStatus(Struct, rename="camel", gc=False):
    """``status`` of a NodeMetric."""

    update_time: datetime | None = None
    node_metric: NodeMetricInfo | None = None
    pods_metric: list[PodMetric] | None = None
    host_application_metric: list[HostApplicationMetric] | None = None
    prod_reclaimable_metric: ReclaimableMetric | None = None


class WireNodeMetric(Struct, gc=False):
    """A NodeMetric, as Koordinator's agent writes it."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: NodeMetricSpec = msgspec.field(default_factory=NodeMetricSpec)
    status: NodeMetricStatus = msgspec.field(default_factory=NodeMetricStatus)
