"""What a question is about: the kind, namespace and name of an object."""

from dataclasses import dataclass
from enum import StrEnum

from koord.core.reservation.model import POD_PREFIX


class TargetKind(StrEnum):
    """The kinds of objects that can be asked about."""

    POD = "Pod"
    POD_GROUP = "PodGroup"
    JOB = "Job"
    """Stands for its gang, or for the first of its pods; so do the other workloads."""
    STATEFUL_SET = "StatefulSet"
    DEPLOYMENT = "Deployment"
    REPLICA_SET = "ReplicaSet"
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class Target:
    """The object of the question; the namespace of a reservation is that of its template."""

    kind: TargetKind
    namespace: str
    name: str

    @property
    def is_planned_alone(self) -> bool:
        """Whether it is a pod to the planner."""
        return self.kind in {TargetKind.POD, TargetKind.RESERVATION}

    @property
    def key(self) -> str:
        prefix = POD_PREFIX if self.kind is TargetKind.RESERVATION else ""
        return f"{self.namespace}/{prefix}{self.name}"

    @property
    def title(self) -> str:
        """What users call it, without its kind."""
        return self.name if self.kind is TargetKind.RESERVATION else self.key


class TargetNotFoundError(LookupError):
    """The pod or PodGroup does not exist, or cannot be understood."""
