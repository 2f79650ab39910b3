"""The one catalogue of answers: why something waits, was refused, or is done.

A reason is a value: a code and the numbers behind it. It travels from the rule that made it to the
condition, the event, the metric and ``koord explain`` unchanged. Text is made in ``messages`` only.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from koord.core.gang.model import BadValue, DeprecatedKey, GangKey, OnMemberFailure
from koord.core.reasons.codes import NodeRefusal, ReasonCode, VolumeProblem
from koord.core.reasons.quota import (
    QUOTA_REASONS,
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaCheckFailed,
    QuotaExceeded,
    QuotaIsParent,
    QuotaNotInForce,
    QuotaShortage,
    SubmissionExceeded,
)

__all__ = [
    "QUOTA_REASONS",
    "AncestorInsufficient",
    "InsufficientEntitlement",
    "InsufficientMax",
    "NodeRefusal",
    "NonPreemptibleOverMin",
    "QuotaCheckFailed",
    "QuotaExceeded",
    "QuotaIsParent",
    "QuotaNotInForce",
    "QuotaShortage",
    "ReasonCode",
    "SubmissionExceeded",
    "VolumeProblem",
]


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """How many nodes refuse for one cause; ``resource`` is set for ``RESOURCE`` only."""

    refusal: NodeRefusal
    nodes: int
    resource: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GangCount:
    """Members present of one gang, and how many must be.

    ``waiting_only`` says that members with a node do not count (match policy ``only-waiting``).
    ``strangers`` are alive and neither ours to place nor on a node: they do not count yet.
    """

    gang: GangKey
    present: int
    min_member: int
    waiting_only: bool = False
    strangers: int = 0


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """Some gang of the group has fewer live members than its minimum."""

    code: ClassVar = ReasonCode.MISSING_MEMBERS
    gangs: tuple[GangCount, ...]


@dataclass(frozen=True, slots=True)
class MissingPodGroup:
    """Pods name a PodGroup that does not exist."""

    code: ClassVar = ReasonCode.MISSING_POD_GROUP
    gang: GangKey


@dataclass(frozen=True, slots=True)
class MissingGang:
    """The group lists gangs of which nothing is known."""

    code: ClassVar = ReasonCode.MISSING_GANG
    gang: GangKey
    missing: tuple[GangKey, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """Every gang of the group has its quorum."""

    code: ClassVar = ReasonCode.REACHED
    gangs: tuple[GangCount, ...]


@dataclass(frozen=True, slots=True)
class InvalidAnnotation:
    """Settings that could not be used; defaults are in force where there is one."""

    code: ClassVar = ReasonCode.INVALID_ANNOTATION
    values: tuple[BadValue, ...]


@dataclass(frozen=True, slots=True)
class InconsistentGroup:
    """Gangs of one group do not list each other: ``silent`` ones do not list ``gang`` back."""

    code: ClassVar = ReasonCode.INCONSISTENT_GROUP
    gang: GangKey
    silent: tuple[GangKey, ...]


@dataclass(frozen=True, slots=True)
class SpecValid:
    """Nothing is wrong with the settings; some may be written under keys that are deprecated."""

    code: ClassVar = ReasonCode.SPEC_VALID
    deprecated: tuple[DeprecatedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class InsufficientNodes:
    """The pods of a unit do not all fit.

    ``want`` pods must be placed, ``fit`` of them could be now, of a cluster of ``nodes`` nodes.
    ``refused`` says what the nodes lack for the first member that does not fit, ``first``.
    ``resource`` is the scarcest one (empty: none is short), ``request`` what one pod asks of it,
    ``more_nodes`` how many more nodes, empty and as large as the largest here, would close the gap
    (0: no node here takes such a pod even when empty; None: it depends on other pods or volumes).
    """

    code: ClassVar = ReasonCode.INSUFFICIENT_NODES
    want: int
    fit: int
    nodes: int
    refused: tuple[RefusedNodes, ...]
    first: str
    resource: str = ""
    request: int = 0
    more_nodes: int | None = 0


@dataclass(frozen=True, slots=True)
class DomainOffer:
    """How many members of a gang a domain of the network takes; the root has an empty path."""

    path: tuple[str, ...]
    offer: int


@dataclass(frozen=True, slots=True)
class NoDomainFits:
    """No domain of the layer that a gang must share, or of the whole topology, takes all of it.

    ``want`` members must be placed together. ``offers`` are the largest ones of the ``domains``
    that the ``layer`` has. ``shortage`` tells what the nodes lack for one more member beyond what
    they could take. ``multiples`` are those asked for, by layer. ``untried`` counts domains that
    might hold the sub-groups of the gang and were not tried: there were too many.
    """

    code: ClassVar = ReasonCode.NO_DOMAIN_FITS
    topology: str
    layer: str
    want: int
    offers: tuple[DomainOffer, ...]
    domains: int
    shortage: InsufficientNodes
    multiples: tuple[tuple[str, int], ...] = ()
    untried: int = 0


@dataclass(frozen=True, slots=True)
class MultipleNotMet:
    """The gang would fit if the members per domain did not have to be whole multiples."""

    code: ClassVar = ReasonCode.MULTIPLE_NOT_MET
    topology: str
    layer: str
    want: int
    offers: tuple[DomainOffer, ...]
    domains: int
    shortage: InsufficientNodes
    multiples: tuple[tuple[str, int], ...] = ()
    untried: int = 0


@dataclass(frozen=True, slots=True)
class MembersApart:
    """Members that have their place already share no domain of the layer that they must share."""

    code: ClassVar = ReasonCode.MEMBERS_APART
    topology: str
    layer: str
    nodes: tuple[str, ...]
    """Nodes of members, one per domain."""


@dataclass(frozen=True, slots=True)
class MissingTopology:
    """A gang asks for a network topology that does not exist, or never was valid."""

    code: ClassVar = ReasonCode.MISSING_TOPOLOGY
    topology: str
    exists: bool


@dataclass(frozen=True, slots=True)
class UnknownLayer:
    """A gang must share layers that the topology does not have; ``known`` are those it has."""

    code: ClassVar = ReasonCode.UNKNOWN_LAYER
    topology: str
    layers: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedsKubeScheduler:
    """A pod asks for something that only kube-scheduler can serve, in the named spec fields."""

    code: ClassVar = ReasonCode.NEEDS_KUBE_SCHEDULER
    pod: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumeNotReady:
    """A volume claim that a pod uses cannot be used yet; ``volume`` is what it names, if any."""

    code: ClassVar = ReasonCode.VOLUME_NOT_READY
    pod: str
    claim: str
    problem: VolumeProblem
    volume: str = ""


@dataclass(frozen=True, slots=True)
class WaitingForForeignGate:
    """Scheduling gates of others stand on members of the unit."""

    code: ClassVar = ReasonCode.WAITING_FOR_FOREIGN_GATE
    pod: str
    gates: tuple[str, ...]
    pods: int = 1


@dataclass(frozen=True, slots=True)
class PinnedNodeUnfit:
    """A released pod is pinned to a node that can no longer take it."""

    code: ClassVar = ReasonCode.PINNED_NODE_UNFIT
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class KeptForReplacements:
    """There is room, and it is kept for lost members of gangs that run; for so long at most."""

    code: ClassVar = ReasonCode.KEPT_FOR_REPLACEMENTS
    gangs: tuple[GangKey, ...]
    pods: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A place was found for all of the unit; ``by_others`` of the pods were placed by others."""

    code: ClassVar = ReasonCode.PLANNED
    pods: int
    nodes: int
    plan_id: str = ""
    by_others: int = 0


@dataclass(frozen=True, slots=True)
class AllBound:
    """At least the minimum is bound, and nothing that is ours to place waits."""

    code: ClassVar = ReasonCode.ALL_BOUND
    bound: int
    present: int


@dataclass(frozen=True, slots=True)
class PartiallyBound:
    """Some members are bound and some still wait."""

    code: ClassVar = ReasonCode.PARTIALLY_BOUND
    bound: int
    present: int


@dataclass(frozen=True, slots=True)
class BindFailed:
    """The API server refused a write for a member, or fails to carry it out; it is tried again.

    ``status`` 0: there is no answer, or none that makes sense.
    """

    code: ClassVar = ReasonCode.BIND_FAILED
    pod: str
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class BelowMin:
    """A gang that had started has lost members and runs below its minimum."""

    code: ClassVar = ReasonCode.BELOW_MIN
    bound: int
    min_member: int
    policy: OnMemberFailure = OnMemberFailure.REPLACE


@dataclass(frozen=True, slots=True)
class MemberOnFailedNode:
    """Members run on nodes of which nothing is heard; they may be lost."""

    code: ClassVar = ReasonCode.MEMBER_ON_FAILED_NODE
    members: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestartingGang:
    """What is left of a gang is evicted: members were lost, or released ones got no node."""

    code: ClassVar = ReasonCode.RESTARTING_GANG
    lost: int
    unbound: int
    pods: int


@dataclass(frozen=True, slots=True)
class RestartProtected:
    """What is left of a gang is to be evicted, and may not be: a disruption budget keeps it."""

    code: ClassVar = ReasonCode.RESTART_PROTECTED
    lost: int
    unbound: int
    pods: int


@dataclass(frozen=True, slots=True)
class AtStrength:
    """The gang does not run, or has its minimum or more."""

    code: ClassVar = ReasonCode.NOT_DEGRADED
    has_minimum: bool


@dataclass(frozen=True, slots=True)
class ScheduleTimeout:
    """All members were present longer than the gang's wait time and no place was found."""

    code: ClassVar = ReasonCode.SCHEDULE_TIMEOUT
    waited_seconds: int
    limit_seconds: int


@dataclass(frozen=True, slots=True)
class WithinTime:
    """The wait time has not run out."""

    code: ClassVar = ReasonCode.WITHIN_TIME
    limit_seconds: int


@dataclass(frozen=True, slots=True)
class InternalError:
    """Planning failed by a defect of ours; ``error`` names its kind, the log has the rest.

    ``quota`` is the one whose shares cannot be computed, if that is what failed.
    """

    code: ClassVar = ReasonCode.INTERNAL_ERROR
    error: str
    quota: str = ""


Reason: TypeAlias = (
    MissingMembers
    | MissingPodGroup
    | MissingGang
    | Reached
    | InvalidAnnotation
    | InconsistentGroup
    | SpecValid
    | InsufficientNodes
    | NoDomainFits
    | MultipleNotMet
    | MembersApart
    | MissingTopology
    | UnknownLayer
    | NeedsKubeScheduler
    | VolumeNotReady
    | WaitingForForeignGate
    | PinnedNodeUnfit
    | KeptForReplacements
    | Planned
    | AllBound
    | PartiallyBound
    | BindFailed
    | BelowMin
    | MemberOnFailedNode
    | RestartingGang
    | RestartProtected
    | AtStrength
    | ScheduleTimeout
    | WithinTime
    | InsufficientEntitlement
    | InsufficientMax
    | AncestorInsufficient
    | NonPreemptibleOverMin
    | QuotaCheckFailed
    | QuotaIsParent
    | QuotaNotInForce
    | SubmissionExceeded
    | InternalError
)
