"""API objects as they stand in JSON, reduced to what scheduling needs.

Every field has a default and unknown fields are skipped, so that a newer server or a sparse object
decodes. Parts that repeat over many objects (affinity, resources) stay raw bytes: they are looked
up, not parsed, when seen again. Nothing here interprets a value.
"""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

O = TypeVar("O")  # noqa: E741 - the object of a list or a watch event


class OwnerReference(Struct, gc=False):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, rename="camel", gc=False):
    """``metadata``."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


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


class Volume(Struct, rename="camel", gc=False):
    """One volume, only as far as it names a claim."""

    persistent_volume_claim: Raw = Raw()
    ephemeral: Raw = Raw()


class PodSpec(Struct, rename="camel", gc=False):
    """``spec`` of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    priority: int | None = None
    node_selector: Raw = Raw()
    affinity: Raw = Raw()
    tolerations: Raw = Raw()
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = Raw()
    resources: Raw = Raw()
    volumes: list[Volume] | None = None
    resource_claims: Raw = Raw()
    topology_spread_constraints: Raw = Raw()


class Condition(Struct, rename="camel", gc=False):
    """One condition, of any object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    """What a container has been given, after in-place resizes."""

    name: str = ""
    allocated_resources: Raw = Raw()
    resources: Raw = Raw()


class PodStatus(Struct, rename="camel", gc=False):
    """``status`` of a pod."""

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = Raw()
    resources: Raw = Raw()


class WirePod(Struct, gc=False):
    """A Pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(Struct, gc=False):
    """``spec`` of a node."""

    taints: Raw = Raw()
    unschedulable: bool | None = None


class NodeStatus(Struct, gc=False):
    """``status`` of a node; ``allocatable`` stays raw."""

    allocatable: Raw = Raw()


class WireNode(Struct, gc=False):
    """A Node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class PodGroupSpec(Struct, rename="camel", gc=False):
    """``spec`` of a PodGroup."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class WirePodGroup(Struct, gc=False):
    """A PodGroup; its status stays raw until someone compares it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: Raw = Raw()


class ElasticQuotaSpec(Struct, gc=False):
    """``spec`` of an ElasticQuota; the amounts stay raw."""

    min: Raw = Raw()
    max: Raw = Raw()


class WireElasticQuota(Struct, gc=False):
    """An ElasticQuota; its status stays raw until someone compares it."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: Raw = Raw()


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
    """Any object, when it cannot be decoded as a whole."""

    metadata: Identity = msgspec.field(default_factory=Identity)


class StatusDetails(Struct, rename="camel", gc=False):
    """Details of a ``Status``."""

    retry_after_seconds: int = 0


class Status(Struct, gc=False):
    """The API server's word on a request that failed."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None
