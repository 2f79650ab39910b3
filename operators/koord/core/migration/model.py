"""Values of migration: a job with its status, the pod that it moves, the options of it all.

All values are immutable, and times are seconds since the epoch. What is decided from them stands
beside; nothing here knows API objects, clocks or writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from koord.core.model.pods import OwnerReference
from koord.core.model.selectors import LabelSelector

MINUTE: Final = 60.0
NEVER_EVICT: Final = 2**31 - 1
"""The eviction cost of a pod that must not be moved."""
SYSTEM_CRITICAL: Final = 2_000_000_000
OPERATOR: Final = "koord-podmigrationjob"
"""What creates reservations for jobs."""


class JobPhase(StrEnum):
    """``status.phase``."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"

    @property
    def is_over(self) -> bool:
        return self in _OVER


_OVER: Final = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.ABORTED})


class JobMode(StrEnum):
    """Whether the place is reserved before the pod is evicted."""

    RESERVATION_FIRST = "ReservationFirst"
    EVICT_DIRECTLY = "EvictDirectly"


class EvictPolicy(StrEnum):
    """How a pod ends: by eviction, by deletion, or by whoever reads that it is asked to end."""

    EVICTION = "Eviction"
    DELETE = "Delete"
    SOFT_EVICTION = "SoftEviction"


class JobStep(StrEnum):
    """Types of conditions."""

    RESERVATION_CREATED = "ReservationCreated"
    RESERVATION_SCHEDULED = "ReservationScheduled"
    EVICTION = "Eviction"
    POD_BOUND = "PodBoundReservation"
    RESERVATION_BOUND = "ReservationBound"
    POD_READY = "BoundPodReady"
    CONFLICT = "Conflict"


class JobReason(StrEnum):
    """Reasons of conditions and of the status."""

    TIMEOUT = "Timeout"
    FAILED_CREATE_RESERVATION = "FailedCreateReservation"
    RESERVATION_EXPIRED = "ReservationExpired"
    UNSCHEDULABLE = "Unschedulable"
    FORBIDDEN = "ForbiddenMigratePod"
    INVALID = "InvalidPodRef"
    MISSING_POD = "MissingPod"
    MISSING_RESERVATION = "MissingReservation"
    EVICTING = "Evicting"
    EVICTED = "EvictComplete"
    WAIT_FOR_POD = "WaitForPodBindReservation"
    WAIT_FOR_READY = "WaitForBoundPodReady"
    CONFLICT = "Conflict"
    PAUSED = "Paused"
    COMPLETE = "Complete"


@dataclass(frozen=True, slots=True)
class StepCondition:
    """One condition of a job."""

    is_true: bool
    reason: str = ""
    message: str = ""
    changed: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class PodReference:
    """Which pod; without ``uid`` whichever has the name."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class MoveOrigin:
    """What a job moves, as recorded when it starts: from which node, and of which workload."""

    node: str = ""
    workload: str = ""
    """The uid of what makes the pod and its like."""
    gang: str = ""
    pod_created: float = 0.0
    """When the pod was; 0: that was not recorded."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is."""

    phase: JobPhase = JobPhase.PENDING
    status: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    """The node of the new place."""
    pod: PodReference | None = None
    """The pod that has taken it."""
    conditions: Mapping[JobStep, StepCondition] = field(default_factory=dict)

    def has(self, step: JobStep) -> bool:
        """Whether a step is done."""
        condition = self.conditions.get(step)
        return condition is not None and condition.is_true

    @property
    def is_evicting(self) -> bool:
        """Whether the pod is to be evicted, as was written before anybody tried."""
        condition = self.conditions.get(JobStep.EVICTION)
        return self.phase is JobPhase.RUNNING and condition is not None and not condition.is_true

    @property
    def evicted_at(self) -> float | None:
        """When the pod had gone; None if it has not been evicted by this job."""
        condition = self.conditions.get(JobStep.EVICTION)
        return condition.changed if condition is not None and condition.is_true else None

    def with_step(
        self, step: JobStep, reason: str = "", message: str = "", *, is_true: bool = True
    ) -> "JobStatus":
        """Return the status with a condition, which names what the job does now."""
        condition = StepCondition(is_true, reason, message)
        conditions = {**self.conditions, step: condition}
        return replace(self, conditions=conditions, status=reason or step, reason="", message="")

    def without(self, *steps: JobStep) -> "JobStatus":
        kept = {step: seen for step, seen in self.conditions.items() if step not in steps}
        return replace(self, conditions=kept)

    def fail(self, reason: str, message: str) -> "JobStatus":
        return replace(
            self, phase=JobPhase.FAILED, status=JobPhase.FAILED, reason=reason, message=message
        )


@dataclass(frozen=True, slots=True)
class MigrationJob:
    """A PodMigrationJob. ``ttl`` None: it has no limit. ``reservation`` is the one it refers to."""

    name: str
    uid: str
    pod: PodReference
    created: float = 0.0
    ttl: float | None = None
    mode: JobMode | None = None
    is_paused: bool = False
    is_admitted: bool = False
    """Whether arbitration has let it start."""
    reservation: str = ""
    group: str = ""
    group_size: int = 1
    """How many jobs the group has; more than can ever be there if that cannot be read."""
    target: str = ""
    policy: str = ""
    """How the pod ends, by the label of the job."""
    reason: str = ""
    """Why, for people."""
    created_by: str = ""
    evicts_protected: bool = False
    """Whether the annotation ``evict`` of the job skips the rate per workload."""
    grace: int | None = None
    """Seconds that the pod may take to end; None: what the pod says."""
    origin: MoveOrigin = MoveOrigin()
    status: JobStatus = JobStatus()
    problem: str = ""
    """What is wrong with its spec."""
    generation: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """What goes together: the group, or the job alone."""
        return f"group/{self.group}" if self.group else self.uid

    @property
    def workload(self) -> str:
        """What makes the pod and its like, in its namespace: others may name the same; or ""."""
        return f"{self.pod.namespace}/{self.origin.workload}" if self.origin.workload else ""

    @property
    def is_active(self) -> bool:
        """Whether it counts as migrating: it may start, and is not over."""
        return self.is_admitted and not self.status.phase.is_over

    @property
    def reservation_name(self) -> str:
        """The reservation that it uses: the one it refers to, or the one that is made for it."""
        return self.reservation or self.uid


@dataclass(frozen=True, slots=True)
class MovedPod:
    """The pod of a job, with what only its manifest says; see ``Eligibility``."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    owners: tuple[OwnerReference, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    created: float = 0.0
    phase: str = "Running"
    qos: str = ""
    """Kubernetes' class."""
    scheduler: str = ""
    is_ours: bool = False
    """Whether we place what replaces it, by gate or by the name of the scheduler."""
    gang: str = ""
    is_ready: bool = True
    is_terminating: bool = False
    is_static: bool = False
    has_local_storage: bool = False
    has_memory_storage: bool = False
    has_claims: bool = False
    evicts_protected: bool = False
    """Whether its annotation ``evict`` skips the rules that would protect it."""
    eviction_cost: int = 0
    deletion_cost: int = 0
    policy: str = ""
    """How it ends, by its label."""
    node_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.owners if owner.is_controller), None)

    @property
    def workload(self) -> str:
        """The uid of what makes such pods; its own if nothing does."""
        controller = self.controller
        return self.uid if controller is None else controller.uid

    @property
    def is_available(self) -> bool:
        """Active and ready."""
        is_active = not self.is_terminating and self.phase not in {"Succeeded", "Failed"}
        return is_active and self.is_ready


@dataclass(frozen=True, slots=True)
class ObjectLimit:
    """How many pods of a workload or namespace go within ``seconds``; 0: as computed, or no limit.

    ``burst`` go at once.
    """

    most: str = "0"
    seconds: float = 5 * MINUTE
    burst: int = 1


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """Which namespaces; with neither list all."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()

    def __contains__(self, namespace: str) -> bool:
        return namespace not in self.exclude and (not self.include or namespace in self.include)


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """What is chosen of the rules; names are those of Koordinator's MigrationController.

    Amounts are whole numbers or percentages as texts; "" computes them from the replicas.
    """

    is_on: bool = False
    is_dry: bool = False
    compat: bool = False
    default_mode: JobMode = JobMode.RESERVATION_FIRST
    schedulers: frozenset[str] = frozenset({"koord-scheduler"})
    default_policy: EvictPolicy = EvictPolicy.EVICTION
    may_delete: bool = False
    """Whether the policy ``Delete`` is allowed; otherwise such pods are evicted."""
    most_globally: int | None = None
    most_per_namespace: int | None = None
    most_per_node: int | None = 2
    most_per_workload: str = ""
    most_unavailable: str = ""
    skips_expected_replicas: bool = False
    workload_limit: ObjectLimit | None = ObjectLimit()
    namespace_limit: ObjectLimit | None = None
    namespaces: NamespaceChoice = NamespaceChoice()
    evicts_failed_bare: bool = False
    evicts_all_bare: bool = False
    evicts_local_storage: bool = False
    evicts_critical: bool = False
    ignores_claims: bool = False
    priority_threshold: int | None = None
    threshold_class: str = ""
    """The PriorityClass whose value is the threshold, if none is given."""
    label_selector: LabelSelector = ()
    node_selector: LabelSelector = ()
    """Of the nodes that pods leave."""
    skipped: frozenset[str] = frozenset()
    """Names of gates that are not checked."""
    arbitrates: bool = True
    memory: float = 30 * MINUTE
    """How long a workload is not moved away again from where it went, nor the same pod moved."""

    def checks(self, gate: str) -> bool:
        return gate not in self.skipped
