"""The cluster as far as a user may read it: what answers are computed from, and what is missing.

A kind that must not be read is no error but a *gap*; ``missing_rights`` says what follows from it.
Who reads it fills these values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from koord.answers.leaders import Leader
from koord.answers.queue_view import QueuePlace
from koord.answers.quota_view import ReportedQuota
from koord.answers.reports import Reported, SeenCondition
from koord.api.misspelled_keys import MisspelledKey
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangKey
from koord.core.model.patience import Patience
from koord.core.model.pods import Pod
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting


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


VOLUME_KINDS: Final = (KindName.CLAIMS, KindName.VOLUMES, KindName.STORAGE_CLASSES)


class NamedKind(Protocol):
    """A kind of objects; as text it is ``plural.group``, as RBAC and kubectl name it."""

    @property
    def name(self) -> str:
        """The plural, unless two kinds share it."""

    def __str__(self) -> str: ...


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
    operators_have_hooks: bool | None = None
    """Whether the operators call hooks, as the quotas show it; None if no quota shows it."""
    ignored: tuple[tuple[Pod, MisspelledKey], ...] = ()
    """Gated pods, and a misspelled key of each."""
    leader: Leader | None = None
    """Who leads; None if that is not known."""
    reports: Mapping[str, Reported] = field(default_factory=dict)
    """Pod of the state (``namespace/name``) -> why it waits, as the operators reported it."""
    finalizers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of pods that are being deleted, by ``namespace/name``."""
    places: Mapping[GangKey, QueuePlace] = field(default_factory=dict)
    """Where gangs stand in the queue, as the operators reported it."""
    reported_quotas: tuple[ReportedQuota, ...] | None = None
    """The quotas of the target's namespace, where those of all must not be read, but these may."""

    def gap_of(self, kind: str) -> Gap | None:
        """Return the gap of a kind, given by its name; None if all of it was read."""
        return next((gap for gap in self.gaps if gap.kind.name == kind), None)

    def extent_of(self, kind: str) -> Extent | None:
        """Return how much of a kind was read; None if all of it."""
        gap = self.gap_of(kind)
        return None if gap is None else gap.extent
