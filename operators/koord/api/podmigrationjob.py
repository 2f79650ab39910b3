"""PodMigrationJob: moves one pod to another node, where its place is reserved first.

Compatible with Koordinator's. Jobs that move a whole gang are a set, by a label and an annotation
of ours; see `koord.api.keys.migration`. Which pods may be moved is not checked here.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from koord.api.model import DEFAULTED, ListMap, Model, Rule
from koord.api.reservation import KOORDINATOR_GROUP
from koord.api.resource import (
    AGE,
    Duration,
    Int64,
    Names,
    ObjectReference,
    PrinterColumn,
    Resource,
    Time,
    reason_column,
)


class DeletePreconditions(Model):
    """What must hold for the pod to be deleted."""

    resource_version: str | None = None
    """Resource version that the pod must have."""
    uid: str | None = None
    """UID that the pod must have; that of the pod to move is always required."""


class DeleteOptions(Model):
    """Options of the eviction or deletion of the pod."""

    api_version: str | None = None
    """Accepted because options of deletions have it."""
    kind: str | None = None
    """Accepted because options of deletions have it."""
    dry_run: list[str] | None = None
    """Ignored; use the setting dryRun."""
    grace_period_seconds: Annotated[Int64, Field(ge=0)] | None = None
    """How long the pod may take to end; that of the pod if absent."""
    orphan_dependents: bool | None = None
    """Ignored; a pod has no dependents."""
    preconditions: DeletePreconditions | None = None
    """What must hold for the pod to be deleted."""
    propagation_policy: str | None = None
    """Ignored; a pod has no dependents."""


class MigrationPreemptionOptions(Model):
    """Nothing yet, as in Koordinator."""


class MigrationReservationOptions(Model):
    """The reservation that holds the new place of the pod."""

    preemption_options: MigrationPreemptionOptions | None = None
    """Accepted because Koordinator has it; no effect."""
    reservation_ref: ObjectReference | None = None
    """An existing Reservation to use; otherwise one is created."""
    template: dict[str, Any] | None = None
    """Metadata and spec of the Reservation to create; what is absent is taken from the pod."""


class PodMigrationJobSpec(Model):
    """Which pod is moved, and how."""

    paused: bool | None = None
    """Whether the job waits; unless its pod was evicted, it gives up the place it has reserved."""
    ttl: Duration | None = None
    """How long the move may take, from the creation of the job; no limit if absent or 0."""
    mode: Literal["ReservationFirst", "EvictDirectly"] | None = None
    """ReservationFirst, the default, evicts the pod only once its new place is reserved."""
    pod_ref: Annotated[
        ObjectReference,
        Rule(
            "has(self.__namespace__) && self.__namespace__ != '' "
            "&& has(self.name) && self.name != ''",
            "podRef must have the namespace and the name of a pod",
            lambda pod: bool(pod.namespace and pod.name),
        ),
    ]
    """The pod to move; its uid is filled in when the job starts."""
    reservation_options: MigrationReservationOptions | None = None
    """The reservation that holds the new place of the pod."""
    delete_options: DeleteOptions | None = None
    """Options of the eviction or deletion of the pod."""


class PodMigrationCondition(Model):
    """One observed step of the move."""

    type: str
    """ReservationCreated, ReservationScheduled, Eviction, or another type."""
    status: str
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


class PreemptedPodReservation(Model):
    """A reservation for a pod that was preempted for the move."""

    namespace: str | None = None
    """Namespace of the reservation."""
    name: str | None = None
    """Name of the reservation."""
    node_name: str | None = None
    """The node it is on."""
    phase: str | None = None
    """The phase of the reservation."""
    preempted_pod_ref: ObjectReference | None = None
    """The pod that was preempted."""
    pods_ref: list[ObjectReference] | None = None
    """The pods that use the reservation."""


class PodMigrationJobStatus(Model):
    """How far the move is."""

    phase: Annotated[str, DEFAULTED] = "Pending"
    """Pending, Running, Succeeded, Failed or Aborted."""
    status: str | None = None
    """What the job does now, as one CamelCase word."""
    reason: str | None = None
    """Why the job waits or has failed, as one CamelCase word."""
    message: str | None = None
    """Why, as a sentence."""
    conditions: Annotated[list[PodMigrationCondition], ListMap(("type",))] | None = None
    """The steps of the move."""
    node_name: str | None = None
    """The node of the new place."""
    pod_ref: ObjectReference | None = None
    """The pod that has taken the new place."""
    preempted_pods_ref: list[ObjectReference] | None = None
    """Pods that were preempted for the move; always empty here."""
    preempted_pods_reservation: list[PreemptedPodReservation] | None = None
    """Reservations for those pods; always empty here."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status was made from."""


class PodMigrationJob(Resource):
    """Moves one pod to another node, where its place is reserved first."""

    names: ClassVar = Names(
        group=KOORDINATOR_GROUP,
        kind="PodMigrationJob",
        plural="podmigrationjobs",
        short=("pmj",),
        namespaced=False,
        columns=(
            PrinterColumn("Phase", ".status.phase", description="The phase of the job."),
            PrinterColumn("Status", ".status.status", description="What the job does now."),
            AGE,
            PrinterColumn("Node", ".status.nodeName"),
            PrinterColumn("Reservation", ".spec.reservationOptions.reservationRef.name"),
            PrinterColumn("PodNamespace", ".spec.podRef.namespace"),
            PrinterColumn("Pod", ".spec.podRef.name"),
            PrinterColumn("NewPod", ".status.podRef.name"),
            PrinterColumn("TTL", ".spec.ttl"),
            reason_column("Accepted", priority=1),
        ),
    )

    spec: PodMigrationJobSpec
    """Which pod is moved, and how."""
    status: PodMigrationJobStatus = PodMigrationJobStatus()
    """How far the move is."""
