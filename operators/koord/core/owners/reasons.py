"""Why pods wait whose gang is found from their owners, and cannot be found, or cannot start."""

from dataclasses import dataclass
from typing import ClassVar

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import UnknownGang
from koord.core.model.text import format_time, plural


@dataclass(frozen=True, slots=True)
class OwnerNotFound(UnknownGang):
    """The pods name an owner that does not exist, or is another object of that name."""

    code: ClassVar = "OwnerNotFound"
    reason_class: ClassVar = ReasonClass.INCOMPLETE
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "the object that controls the pods is not there, or has another uid: it was deleted, or "
        "somebody else wrote the reference"
    )
    way_out: ClassVar = (
        "wait: Kubernetes deletes pods whose owner has gone. Create others through an owner"
    )
    says: ClassVar = (
        "{owner} does not exist in this namespace under the uid that the pods name, so their gang "
        "is not known"
    )
    owner: str


@dataclass(frozen=True, slots=True)
class OwnerUnreadable(UnknownGang):
    """The operators may not read the kind of the owner, or the cluster does not serve it."""

    code: ClassVar = "OwnerUnreadable"
    reason_class: ClassVar = ReasonClass.OPERATORS
    is_incomplete: ClassVar = True
    way_out: ClassVar = (
        "grant the rights of `manifests/overlays/owners`, install the definition of the kind, or "
        "opt the pods out"
    )
    says: ClassVar = (
        "the gang of these pods is known to {owner} only, and {is_forbidden:?the operators may not "
        "read {kind}|the cluster does not serve {kind}}"
    )
    advises: ClassVar = ("{is_forbidden:?Grant the operators the right to list and watch {kind}.}",)
    owner: str
    kind: str
    is_forbidden: bool


@dataclass(frozen=True, slots=True)
class OwnerSuspended(UnknownGang):
    """The owner of the pods is suspended: its controller takes them away."""

    code: ClassVar = "OwnerSuspended"
    reason_class: ClassVar = ReasonClass.HELD
    way_out: ClassVar = "resume the owner"
    says: ClassVar = "{owner} is suspended"
    owner: str


@dataclass(frozen=True, slots=True)
class BehindGroups(UnknownGang):
    """As many pods that come later are planned for groups of its namespace and quota as may be."""

    code: ClassVar = "BehindGroups"
    reason_class: ClassVar = ReasonClass.ORDER
    meaning: ClassVar = (
        "it starts with room for pods that come later, and gangs with [512 such "
        "pods](owners.md#room-for-pods-that-come-later) of its namespace and quota are before it"
    )
    way_out: ClassVar = "wait until earlier gangs of the namespace start"
    says: ClassVar = (
        "it starts with room for pods that come later, and gangs of its namespace and quota that "
        "are before it are planned first"
    )


@dataclass(frozen=True, slots=True)
class RoomBackoff(UnknownGang):
    """Room was held in vain in its namespace, where such gangs start one by one for a while."""

    code: ClassVar = "RoomBackoff"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = (
        "see why the pods that were waited for did not come to the room held for them"
    )
    says: ClassVar = (
        "{_times} in a row no pods came to the room held for them in namespace {namespace}; gangs "
        "that need such room are tried one by one, the next one from {_when} on"
    )
    advises: ClassVar = (
        "See why the first pods did not become ready, or the others were not made.",
    )
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
class MinAboveSize(UnknownGang):
    """The minimum of a gang is above what its owner has at the same time."""

    code: ClassVar = "MinAboveSize"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    way_out: ClassVar = (
        "lower the minimum, or raise the number of pods; a StatefulSet that starts its pods one "
        "after the other (`OrderedReady`) has one at a time: set `podManagementPolicy: Parallel`"
    )
    says: ClassVar = (
        "{owner} asks for {least:# pod} at least, and has at most {size} at the same time, so its "
        "gang can never start"
    )
    owner: str
    least: int
    size: int


@dataclass(frozen=True, slots=True)
class InvalidOwner(UnknownGang):
    """The owner says something of its pods that cannot be used."""

    code: ClassVar = "InvalidOwner"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "what the object that owns the pods says of their number, their roles or their order is no "
        "whole number, too large, or makes no sense; the message has the field and the value"
    )
    way_out: ClassVar = "correct the owner"
    says: ClassVar = "{owner}: {field} {problem}{value:?, and not {value}}"
    advises: ClassVar = ("Correct {field} of {owner}.",)
    owner: str
    field: str
    problem: str
    value: str = ""
