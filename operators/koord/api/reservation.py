"""Reservation: room on a node, held for pods that come later.

Compatible with Koordinator's Reservation. The template is a pod template that this package does not
look into; when a pod may use a reservation is decided elsewhere.
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
    Taint,
    Time,
    reason_column,
)

KOORDINATOR_GROUP: Final = "scheduling.koordinator.sh"
DEFAULT_TTL: Final = "24h"


class ControllerReference(Model):
    """Matches pods by one of their owner references."""

    markers = (ATOMIC,)

    api_version: str
    """API version of the owner."""
    kind: str
    """Kind of the owner."""
    name: str
    """Name of the owner."""
    uid: str
    """UID of the owner; empty matches any."""
    namespace: str | None = None
    """Namespace of the pod; empty matches any."""
    controller: bool | None = None
    """Whether the owner must be the managing controller."""
    block_owner_deletion: bool | None = None
    """Not looked at; accepted because owner references carry it."""


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
    """Matches pods by labels, in every namespace."""


class PreAllocationPolicy(Model):
    """How pods that already run are found for a reservation laid over them."""

    mode: Annotated[Literal["Default", "Cluster"], DEFAULTED] = "Default"
    """Default: owners of the reservation. Cluster: pods marked as pre-allocatable anywhere."""
    enable_multiple: Annotated[bool, DEFAULTED] = False
    """Whether several pods may be taken over by one reservation."""


class ReservationSpec(Model):
    """What is reserved, for whom, and for how long."""

    rules = (
        Rule(
            f"!has(self.expires) || !has(self.ttl) || self.ttl == '{DEFAULT_TTL}'",
            "ttl and expires are mutually exclusive: remove one of them",
            lambda spec: spec.expires is None or spec.ttl in {None, DEFAULT_TTL},
        ),
    )

    template: dict[str, Any]
    """The pod template that says what to reserve and on which nodes.

    template.spec.nodeName pins the reservation to a node.
    """
    owners: Annotated[list[ReservationOwner], Field(min_length=1, max_length=256)]
    """Who may use the reservation; one match is enough."""
    ttl: Annotated[Duration, DEFAULTED] = DEFAULT_TTL
    """How long the reservation lives, such as 90m or 48h; 0 switches every expiration off."""
    expires: Time | None = None
    """When the reservation ends."""
    pre_allocation: bool | None = None
    """Whether the reservation may be laid over pods that already run."""
    pre_allocation_policy: PreAllocationPolicy | None = None
    """How those pods are found."""
    allocate_once: Annotated[bool, DEFAULTED] = True
    """Whether the first pod takes everything and ends the reservation."""
    allocate_policy: Literal["Aligned", "Restricted"] | None = None
    """Whether a pod may also use room outside: Aligned may, Restricted may not."""
    unschedulable: bool | None = None
    """Whether new pods are kept away."""
    taints: Annotated[list[Taint], Field(max_length=64)] | None = None
    """What a pod's reservation affinity must tolerate."""


class ReservationCondition(Model):
    """One observed aspect of the reservation."""

    type: str
    """Scheduled, Ready, or one of ours."""
    status: str | None = None
    """True, False or Unknown."""
    reason: str | None = None
    """Why, as one CamelCase word for programs."""
    message: str | None = None
    """Why, as a sentence."""
    last_probe_time: Time | None = None
    """When this was last looked at."""
    last_transition_time: Time | None = None
    """When the status last changed."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this was observed at."""


class ReservationStatus(Model):
    """Where the reservation is and who uses it."""

    phase: Annotated[str, DEFAULTED] = "Pending"
    """Pending, Available, Succeeded, Waiting or Failed."""
    conditions: Annotated[list[ReservationCondition], ListMap(("type",))] | None = None
    """Scheduled and Ready, with the reason why not."""
    current_owners: list[ObjectReference] | None = None
    """The pods that use it now."""
    node_name: str | None = None
    """The node it is on."""
    allocatable: ObservedResources | None = None
    """What it offers in total."""
    allocated: ObservedResources | None = None
    """What its current owners use of it."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""


class Reservation(Resource):
    """Room on a node, held for pods that come later."""

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
    """Where the reservation is and who uses it."""
