"""The cluster as far as a user may read it: what answers are computed from, and what is missing.

A kind that must not be read is no error but a *gap*: statements that depend on it are dropped,
never guessed, and the user is warned. Who reads the cluster fills these values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from koord.answers.leaders import Leader
from koord.answers.queue_view import QueuePlace
from koord.answers.quota_view import ReportedQuota
from koord.answers.redaction import EVERYTHING, Sight, redact
from koord.answers.reports import Reported, SeenCondition
from koord.answers.standing import QueueStanding
from koord.api.misspelled_keys import MisspelledKey
from koord.core.engine.state import ClusterState
from koord.core.gang.reasons import InconsistentGroup, MissingGang, MissingMembers
from koord.core.migration.model import MigrationOptions
from koord.core.model.gangs import GangKey
from koord.core.model.patience import Patience
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.reservation.model import POD_PREFIX
from koord.similar_names import MAX_SUGGESTIONS, find_similar


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

    kind: TargetKind | str
    """Another kind is that of an owner of pods, as somebody wrote it, or as the API has it."""
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


class KindName(StrEnum):
    """The kinds on whose extent answers depend, by the names that ``Reason.rests_on`` has too."""

    NODES = "nodes"
    PODS = "pods"
    NAMESPACES = "namespaces"
    POD_GROUPS = "podgroups"
    QUOTAS = "elasticquotas"
    TOPOLOGIES = "clusternetworktopologies"
    CLAIMS = "persistentvolumeclaims"
    VOLUMES = "persistentvolumes"
    STORAGE_CLASSES = "storageclasses"
    LOAD = "load"
    """What nodes really use, whoever reports it; only where that counts."""


VOLUME_KINDS: Final = (KindName.CLAIMS, KindName.VOLUMES, KindName.STORAGE_CLASSES)


class NamedKind(Protocol):
    """A kind of objects; as text it is ``plural.group``, as RBAC and kubectl name it."""

    @property
    def name(self) -> str:
        """The plural, unless two kinds share it."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ReportsOfLoad:
    """What reports the use of nodes, by the name that RBAC has for it."""

    title: str

    @property
    def name(self) -> str:
        return KindName.LOAD

    def __str__(self) -> str:
        return self.title


class Extent(StrEnum):
    """How much of a kind was read, if not all of it."""

    NAMESPACE = "Namespace"
    """The objects of the target's namespace."""
    NOTHING = "Nothing"
    NOT_SERVED = "NotServed"
    """There is no such kind on this server."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind of which not everything was read."""

    kind: NamedKind
    extent: Extent


@dataclass(frozen=True, slots=True)
class ReportedPreemption:
    """The settings of preemption; times are in seconds."""

    enabled: bool = True
    min_runtime: float = 0.0
    max_per_day: int = 0
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class TargetDetails:
    """Parts of the target that decide nothing but are shown."""

    conditions: Mapping[str, SeenCondition] = field(default_factory=dict)
    scheduler: str = ""
    owners: tuple[str, ...] = ()
    slips: tuple[MisspelledKey, ...] = ()
    """Probable misspellings of the keys that describe a gang."""
    agent_notes: tuple[str, ...] = ()
    """What is wrong with what a pod says to the agent of its node, or with its QoS."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster as far as it could be read.

    ``details`` is None if the target was not among what was read. ``rejected`` holds what made no
    sense, ``namespace/name`` -> problem; the state is without it. Hooks of quotas are those that
    are installed here.
    """

    state: ClusterState
    details: TargetDetails | None = None
    gaps: tuple[Gap, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    reclaim: ReclaimSetting = UNKNOWN
    """Whether over-use of quotas is reclaimed, as far as the leader says so."""
    preemption: ReportedPreemption | None = None
    """The settings of preemption; None if the leader does not say."""
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    """Which pods jobs move; by default if the leader does not say."""
    operators_have_hooks: bool | None = None
    """Whether the operators call hooks, as the quotas show it; None if no quota shows it."""
    ignored: tuple[tuple[Pod, MisspelledKey], ...] = ()
    """Gated pods, and a key of each that is misspelled or invalid."""
    leader: Leader | None = None
    """Who leads; None if that is not known."""
    reports: Mapping[str, Reported] = field(default_factory=dict)
    """Pod of the state (``namespace/name``) -> why it waits, as the operators reported it."""
    finalizers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of pods that are being deleted, by ``namespace/name``."""
    places: Mapping[GangKey, QueuePlace] = field(default_factory=dict)
    """Where gangs stand in the queue, as the operators reported it."""
    standings: Mapping[GangKey, QueueStanding] = field(default_factory=dict)
    """Where they stand in their queues, and when they are expected to start, as reported."""
    reported_quotas: tuple[ReportedQuota, ...] | None = None
    """The quotas of the target's namespace, where those of all must not be read, but these may."""
    sight: Sight = EVERYTHING
    """What of all that was read the asker may see; everything, if it was read with her rights."""

    all_details: Mapping[tuple[str, str], TargetDetails] = field(default_factory=dict)
    """Details of all that waits, by kind and ``namespace/name`` (of reservations: name), where they
    were asked for."""
    is_followed: bool = False
    """Whether changes arrive by themselves; otherwise it was listed once."""

    def gap_of(self, kind: str) -> Gap | None:
        """Return the gap of a kind, given by its name; None if all of it was read."""
        return next((gap for gap in self.gaps if gap.kind.name == kind), None)

    def extent_of(self, kind: str) -> Extent | None:
        """Return how much of a kind was read; None if all of it."""
        gap = self.gap_of(kind)
        return None if gap is None else gap.extent


ROLE_HINT: Final = "the ClusterRole koord-user has it"


def keep_known(reason: Reason | None, reading: Reading, namespace: str) -> Reason | None:
    """Return the part of a reason that is certain from what was read."""
    if reason is None or any(is_unknown(reading, kind) for kind in reason.rests_on):
        return None
    if not reading.sight.is_whole:
        reason = redact(reason, reading.sight.hide)
    if Extent.NAMESPACE not in {
        reading.extent_of(KindName.POD_GROUPS),
        reading.extent_of(KindName.PODS),
    }:
        return reason
    match reason:
        case MissingMembers(gangs):
            readable = tuple(count for count in gangs if _is_in(count.gang, namespace))
            return MissingMembers(readable) if readable else None
        case MissingGang(_, gangs) | InconsistentGroup(_, gangs):
            return reason if all(_is_in(gang, namespace) for gang in gangs) else None
        case _:
            return reason


def _is_in(gang: GangKey, namespace: str) -> bool:
    return gang.startswith(f"{namespace}/")


_UNKNOWN: Final[Mapping[str, frozenset[Extent]]] = {
    KindName.NODES: frozenset(Extent),
    KindName.POD_GROUPS: frozenset({Extent.NOTHING}),
    KindName.QUOTAS: frozenset({Extent.NAMESPACE, Extent.NOTHING}),  # a part of a tree is useless
    KindName.TOPOLOGIES: frozenset({Extent.NOTHING}),
}
"""Kind -> the extents that leave statements about its objects unknown."""


def is_unknown(reading: Reading, kind: str) -> bool:
    """Whether statements about objects of a kind, given by its name, are unknown."""
    return reading.extent_of(kind) in _UNKNOWN[kind]


def title_of_kind(reading: Reading, kind: str) -> str:
    """Return what RBAC calls a kind with a gap."""
    gap = reading.gap_of(kind)
    return kind if gap is None else str(gap.kind)


def describe_missing(reading: Reading, target: Target, keys: Iterable[str]) -> str:
    """Say that something does not exist; the same, if the asker may not know whether it does."""
    if not reading.sight.sees(target.namespace):
        return (
            f"there is no {target.kind} {target.name} in namespace {target.namespace}, or you may "
            "not see it"
        )
    problem = reading.rejected.get(target.key)
    if problem is not None:
        return f"{target.kind} {target.key} cannot be understood: {problem}"
    if target.kind is TargetKind.POD_GROUP and is_unknown(reading, KindName.POD_GROUPS):
        kind = title_of_kind(reading, KindName.POD_GROUPS)
        return (
            f"you may not list {kind} ({ROLE_HINT}): whether there is a PodGroup {target.name} "
            "is not known; ask about one of its pods"
        )
    split = [key.split("/", 1) for key in keys]
    split = [[namespace, name] for namespace, name in split if reading.sight.sees(namespace)]
    here = [name for namespace, name in split if namespace == target.namespace]
    elsewhere = sorted(namespace for namespace, name in split if name == target.name)
    text = f"there is no {target.kind} {target.name} in namespace {target.namespace}"
    if (
        reading.extent_of(KindName.POD_GROUPS) is Extent.NOT_SERVED
        and target.kind is TargetKind.POD_GROUP
    ):
        text += "; PodGroups are not installed: kubectl apply --server-side -f crds/"
    if elsewhere:
        text += f"; there is one in {', '.join(elsewhere[:MAX_SUGGESTIONS])}"
    if close := find_similar(target.name, here):
        text += f"; did you mean {' or '.join(close)}?"
    return text
