"""Why a suspended Job is not planned, or not running yet."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, plural


@dataclass(frozen=True, slots=True)
class JobNotPlannable(Reason):
    """Its template cannot be planned, so the operators leave it suspended."""

    code: ClassVar = "JobNotPlannable"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "create the Job again with another template"
    says: ClassVar = "it stays suspended: {problem}"
    advises: ClassVar = (
        "Create it again with the gate of the operators, or their scheduler name, in its template.",
    )
    problem: str


@dataclass(frozen=True, slots=True)
class JobBackoff(Reason):
    """It was resumed in vain: its pods did not come to the room that was held for them."""

    code: ClassVar = "Backoff"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "see in the events of the Job why its controller could not create the pods"
    says: ClassVar = (
        "it was suspended again {_times} because its pods did not come to the room that was held "
        "for them; it is tried again at {_when}"
    )
    advises: ClassVar = ("See with kubectl describe job why its pods are not created.",)
    failures: int
    until: float

    @property
    def _times(self) -> str:
        return plural(self.failures, "time") if self.failures else "by its owner"

    @property
    def _when(self) -> str:
        return format_time(self.until)


@dataclass(frozen=True, slots=True)
class NamespaceBackoff(Reason):
    """Room was held in vain for Jobs of its namespace, which are tried one by one for a while."""

    code: ClassVar = "NamespaceBackoff"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "see in the events of the Jobs why their controller could not create pods"
    says: ClassVar = (
        "{_times} in a row no pods came to the room held for Jobs of namespace {namespace}; "
        "they are tried one by one, the next one from {_when} on"
    )
    advises: ClassVar = ("See with kubectl describe jobs why their pods are not created.",)
    namespace: str
    failures: int
    until: float

    @property
    def _times(self) -> str:
        return plural(self.failures, "time")

    @property
    def _when(self) -> str:
        return format_time(self.until)


@dataclass(frozen=True, slots=True)
class BehindJobs(Reason):
    """As many pods of Jobs of its namespace and quota that are before it are planned as may be."""

    code: ClassVar = "BehindJobs"
    reason_class: ClassVar = ReasonClass.ORDER
    way_out: ClassVar = "wait until earlier Jobs of the namespace start"
    says: ClassVar = "Jobs of its namespace and quota that are before it are planned first"


@dataclass(frozen=True, slots=True)
class JobPlanned(Reason):
    """It is its turn to be looked at: no outcome is known yet."""

    code: ClassVar = "Planning"
    reason_class: ClassVar = ReasonClass.WRITING
    says: ClassVar = "it is planned next"


@dataclass(frozen=True, slots=True)
class RoomHeld(Reason):
    """It was resumed, and room is held until its pods have come."""

    code: ClassVar = "RoomHeld"
    reason_class: ClassVar = ReasonClass.WRITING
    says: ClassVar = "{landed} of {count} pods have come; room is held for the others until {_when}"
    landed: int
    count: int
    until: float

    @property
    def _when(self) -> str:
        return format_time(self.until)


@dataclass(frozen=True, slots=True)
class JobStarted(Reason):
    """All of its pods have come to the room that was held for them."""

    code: ClassVar = "Started"
    is_placed: ClassVar = True
    says: ClassVar = "all of its pods have nodes"
