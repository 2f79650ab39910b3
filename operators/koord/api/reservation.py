"""Reservation: resources of a node that are reserved for future pods.

Compatible with Koordinator's Reservation. The pod template is not validated here.
"""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from koord.api.model import ATOMIC, DEFAULTED, ListMap, Model, Rule
from koord.api.resource import (
    AGE,
    Duration,
    Int64,
    LabelSelector,
    Names,
    ObjectReference,
    ObservedResources,
    PrinterColumn,
    Resource,
    TaintSpec,
    Time,
    reason_column,
)

KOORDINATOR_GROUP: Final = "scheduling.koordinator.sh"
DEFAULT_TTL: Final = "24h"


class ControllerReference(Model):
    """Matches pods by one of their owner references."""

    markers = (ATOMIC,)
    rules = (
        Rule(
            "(has(self.name) && self.name != '') || (has(self.uid) && self.uid != '')",
            "a controller must be named by name or uid: otherwise it is any",
            lambda reference: bool(reference.name or reference.uid),
        ),
    )

    api_version: str = ""
    """API version of the owner; empty matches any."""
    kind: str = ""
    """Kind of the owner; empty matches any."""
    name: str = ""
    """Name of the owner; empty matches any."""
    uid: str = ""
    """UID of the owner; empty matches any."""
    namespace: str | None = None
    """Namespace of the pod; empty means that of the template."""
    controller: bool | None = None
    """Whether the owner must be the managing controller."""
    block_owner_deletion: bool | None = None
    """Ignored; accepted because owner references have it."""


class ReservationOwner(Model):
    """Who may use the reservation; all fields that are set must match."""

    rules = (
        Rule(
            "has(self.object) || has(self.controller) || has(self.labelSelector)",
            "an owner must name object, controller or labelSelector: an empty one is every pod",
            lambda owner: bool(owner.object or owner.controller or owner.label_selector),
        ),
    )

    object: ObjectReference | None = None
    """Matches one pod by the fields that are set."""
    controller: ControllerReference | None = None
    """Matches pods by one of their owner references."""
    label_selector: LabelSelector | None = None
    """Matches pods by labels, in the namespace of the template."""


class PreAllocationPolicy(Model):
    """How running pods are selected for pre-allocation."""

    mode: Annotated[Literal["Default", "Cluster"], DEFAULTED] = "Default"
    """Default: owners of the reservation. Cluster: all pods marked as pre-allocatable."""
    enable_multiple: Annotated[bool, DEFAULTED] = False
    """Whether one reservation may pre-allocate several pods."""


class ReservationSpec(Model):
    """What is reserved, for whom, and for how long."""

    template: dict[str, Any]
    """Pod template with the resources to reserve and the node constraints.

    template.spec.nodeName pins the reservation to a node.
    """
    owners: Annotated[list[ReservationOwner], Field(min_length=1, max_length=256)]
    """Who may use the reservation; one match is enough."""
    ttl: Annotated[Duration, DEFAULTED] = DEFAULT_TTL
    """Lifetime of the reservation, such as 90m or 48h; 0 disables expiration."""
    expires: Time | None = None
    """When the reservation expires, unless ttl is over before; no effect if ttl is 0."""
    pre_allocation: bool | None = None
    """Whether the reservation may use the resources of running pods."""
    pre_allocation_policy: PreAllocationPolicy | None = None
    """How those pods are selected."""
    allocate_once: Annotated[bool, DEFAULTED] = True
    """Whether the first pod, or all pods that start with it, get all resources and end it."""
    allocate_policy: Literal["Aligned", "Restricted"] | None = None
    """Whether a pod may also use unreserved resources: Aligned may, Restricted may not."""
    unschedulable: bool | None = None
    """Whether new pods cannot use it."""
    taints: Annotated[list[TaintSpec], Field(max_length=64)] | None = None
    """Taints that the reservation affinity of a pod must tolerate."""


class ReservationCondition(Model):
    """One observed aspect of the reservation."""

    type: str
    """Scheduled, Ready, or another type."""
    status: str | None = None
    """True, False or Unknown."""
    reason: str | None = None
    """Why, as one CamelCase word."""
    message: str | None = None
    """Why, as a sentence."""
    last_probe_time: Time | None = None
    """When the condition was last checked."""
    last_transition_time: Time | None = None
    """When the status last changed."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this was observed at."""


class ReservationStatus(Model):
    """Node and users of the reservation."""

    phase: Annotated[str, DEFAULTED] = "Pending"
    """Pending, Available, Succeeded, Waiting or Failed."""
    conditions: Annotated[list[ReservationCondition], ListMap(("type",))] | None = None
    """Scheduled and Ready, with the reason why not."""
    current_owners: list[ObjectReference] | None = None
    """The pods that use it now."""
    node_name: str | None = None
    """The node it is on."""
    allocatable: ObservedResources | None = None
    """Total resources."""
    allocated: ObservedResources | None = None
    """Resources used by its current owners."""
    observed_generation: Int64 | None = None
    """The metadata.generation of the spec that this status describes."""


class Reservation(Resource):
    """Resources of a node that are reserved for future pods."""

    names: ClassVar = Names(
        group=KOORDINATOR_GROUP,
        kind="Reservation",
        plural="reservations",
        short=("rsv",),
        namespaced=False,
        columns=(
            PrinterColumn("Phase", ".status.phase", description="The phase of the reservation."),
            AGE,
            PrinterColumn("Node", ".status.nodeName"),
            PrinterColumn("TTL", ".spec.ttl"),
            PrinterColumn("Expires", ".spec.expires"),
            reason_column("Accepted"),
            reason_column("Ready", priority=1),
        ),
    )

    spec: ReservationSpec
    """What is reserved, for whom, and for how long."""
    status: ReservationStatus = ReservationStatus()
    """Node and users of the reservation."""
