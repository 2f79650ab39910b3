"""Gangs: the settings that a PodGroup or a pod's own annotations declare, and who claims to belong.

Source of the rules: Koordinator's coscheduling (PodGroup, gang annotations, gang groups); our page
``docs/gangs.md`` carries them with every key and default.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from koord.core.gang.sub_group_tree import SubGroupTree
from koord.core.topology_constraint import TopologyConstraint

GangKey: TypeAlias = str
"""``namespace/name`` of a gang."""

DEFAULT_WAIT_SECONDS = 600


class GangMode(StrEnum):
    """What happens to members that could be placed while another cannot."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count towards the quorum."""

    ONCE_SATISFIED = "once-satisfied"
    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"


class OnMemberFailure(StrEnum):
    """What becomes of a started gang that has lost members and is below its minimum."""

    REPLACE = "Replace"
    RESTART_GANG = "RestartGang"
    IGNORE = "Ignore"


class OnBindFailure(StrEnum):
    """What becomes of a gang of which some members got their nodes, and the minimum did not."""

    RETRY = "Retry"
    RESTART_GANG = "RestartGang"


class GangSource(StrEnum):
    """Where the settings of a gang come from."""

    POD_GROUP = "GangFromPodGroupCrd"
    ANNOTATION = "GangFromPodAnnotation"
    NATIVE = "GangFromNativePodGroup"
    """A PodGroup of Kubernetes' own: read, and never written."""

    @property
    def has_object(self) -> bool:
        """Whether an object carries the settings, not the pods."""
        return self is not GangSource.ANNOTATION


@dataclass(frozen=True, slots=True)
class BadValue:
    """A setting that could not be used: the key, what was written, what is in force instead."""

    key: str
    value: str
    in_force: str
    problem: str


@dataclass(frozen=True, slots=True)
class DeprecatedKey:
    """A key that is in use and should not be: it still counts."""

    key: str
    instead: str


@dataclass(frozen=True, slots=True)
class GangSpec:
    """The settings of one gang.

    ``group`` holds the gang keys that it lists, sorted: itself alone when it lists nothing. A gang
    whose list leaves it out belongs to its own group all the same.
    """

    key: GangKey
    min_member: int
    total: int
    wait_seconds: int = DEFAULT_WAIT_SECONDS
    mode: GangMode = GangMode.STRICT
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    group: tuple[GangKey, ...] = ()
    source: GangSource = GangSource.POD_GROUP
    bad_values: tuple[BadValue, ...] = ()
    topology: TopologyConstraint | None = None
    """What it asks of the network; None if it asks nothing."""
    on_member_failure: OnMemberFailure = OnMemberFailure.REPLACE
    on_bind_failure: OnBindFailure = OnBindFailure.RETRY
    nest: SubGroupTree | None = None
    """Its sub-groups; None if it has none."""


@dataclass(frozen=True, slots=True)
class GangClaim:
    """A pod's word that it belongs to a gang.

    ``declared`` holds the settings from the pod's own annotations. It is None when the gang is
    named by the PodGroup label (the object carries the settings) or when the pod gave no usable
    minimum.
    """

    key: GangKey
    source: GangSource
    declared: GangSpec | None = None
    bad_values: tuple[BadValue, ...] = ()
    deprecated: tuple[DeprecatedKey, ...] = ()


class Phase(StrEnum):
    """``status.phase`` of a PodGroup, as upstream defines it."""

    UNSET = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup object: its settings, and of its status what outlives a restart.

    ``attempts`` is how often the placement operator had sought a place in vain when it last said
    why the gang has none; None if that stands no longer in the status. ``wait_reason`` is the
    reason of the condition ``Placed`` if it is not True. It decides nothing, but two operators
    write that condition, and who finds the word of the other in its place has to look again.
    """

    key: GangKey
    uid: str
    spec: GangSpec
    generation: int = 0
    created: float = 0.0
    is_terminating: bool = False
    phase: Phase = Phase.UNSET
    occupied_by: str = ""
    schedule_start: float | None = None
    attempts: int | None = None
    wait_reason: str = ""
