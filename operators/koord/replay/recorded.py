"""All that plans depend on, as it was at one moment, and the state of a cluster made of it again.

A reader of the command line records what it reads, the leader what it knows. What was not read is a
*gap* here, too: a state that is made of the record knows as little as that of the reader. Knows no
files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.reading import VOLUME_KINDS, Extent, Gap, Reading, ReportedPreemption
from koord.core.device.plugin import Devices
from koord.core.engine.gang_rooms import GangRoom
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_nominations
from koord.core.migration.model import MigrationOptions
from koord.core.model.pods import Allocation
from koord.core.owners.plugin import OwnerOptions
from koord.core.plugins.nominations import Nomination
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.hooks import Hooks
from koord.domains.device import DEVICES
from koord.domains.gang import NATIVE_POD_GROUPS, NATIVE_VERSIONS
from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.registry import KINDS, find_more_kinds, make_cluster_state
from koord.kube.kind import AnyKind
from koord.kube.reflector import Absence
from koord.replay.values import is_value
from koord.runtime.snapshot import ClusterSnapshot

_VOLUME_KINDS: Final = frozenset(map(str, VOLUME_KINDS))


@dataclass(frozen=True, slots=True)
class KindGap:
    """A kind of which not everything was read, by its name and by the one that RBAC has for it."""

    name: str
    title: str
    extent: str

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A pod that was planned and not seen on its node yet: by uid, where, and with what."""

    uid: str
    node: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What one cycle of the leader planned: ``units`` by key, in order, and with what.

    ``replacements`` and ``partial`` are what is held for lost members, and by NonStrict units;
    ``wasted`` and ``late`` what namespaces have wasted, and those that yield to others.
    """

    units: tuple[str, ...]
    scoring: Scoring = field(default_factory=Scoring)
    replacements: tuple[GangRoom, ...] = ()
    partial: tuple[GangRoom, ...] = ()
    wasted: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """The cluster at ``now``, in seconds since the epoch.

    ``values`` are the objects of each kind, by its name; ``options`` what plugins look up of the
    settings. ``nominations`` None: they are what the pods say. ``hooks`` are the names of those
    that quotas asked. ``absences`` are kinds that were not served, and how sure that was. With a
    ``turn`` it is what one cycle of the leader planned with; None: all that waits is planned.
    """

    now: float
    values: Mapping[str, tuple[Any, ...]]
    options: tuple[object, ...] = ()
    compat: bool = False
    gaps: tuple[KindGap, ...] = ()
    hooks: tuple[str, ...] = ()
    assumed: tuple[AssumedPod, ...] = ()
    nominations: tuple[Nomination, ...] | None = None
    reclaim: ReclaimSetting = UNKNOWN
    preemption: ReportedPreemption | None = None
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    absences: tuple[tuple[str, str], ...] = ()
    turn: RecordedTurn | None = None

    def make_state(self, hooks: Hooks) -> ClusterState:
        """Return the state; an object that cannot be applied counts as not there."""
        kinds = dict(self._find_kinds())
        by_name = {kind.name: kind for kind in kinds}
        state = ClusterSnapshot(
            lambda: make_cluster_state(*self.options, hooks, compat=self.compat),
            kinds,
            absences={
                by_name[name]: Absence[sure] for name, sure in self.absences if name in by_name
            },
            nominations=(),
            now=self.now,
        ).build()
        for pod in self.assumed:
            state.assume(pod.uid, pod.node, pod.allocations)
        settle(state, {gap.name: Extent(gap.extent) for gap in self.gaps}, self.nominations)
        state.advance(self.now)
        state.refresh()
        return state

    def _find_kinds(self) -> Iterator[tuple[AnyKind, tuple[Any, ...]]]:
        """Yield the kinds with their objects, in the order of reflectors."""
        kinds = {kind.name: kind for kind in (*KINDS, *find_more_kinds(*self.options))}
        for name, kind in kinds.items():
            yield kind, self.values.get(name, ())
        if any(isinstance(value, OwnerOptions) and value.is_on for value in self.options):
            # Which kinds these are is a matter of the configuration; one plugin keeps them all.
            owner_kind = make_kind(next(iter(OwnerKinds.choose().readable)))
            names = sorted(self.values.keys() - kinds.keys())
            yield owner_kind, tuple(value for name in names for value in self.values[name])

    def make_reading(self, hooks: Hooks) -> Reading:
        """Return what answers are computed from."""
        return Reading(
            self.make_state(hooks),
            gaps=tuple(Gap(gap, Extent(gap.extent)) for gap in self.gaps),
            reclaim=self.reclaim,
            preemption=self.preemption,
            migration=self.migration,
        )


def settle(
    state: ClusterState,
    gaps: Mapping[str, Extent],
    nominations: Iterable[Nomination] | None = None,
) -> None:
    """Tell a state that has all objects what was not read, by kind, and who is nominated."""
    state.volumes.is_known = not gaps.keys() & _VOLUME_KINDS
    state.plugin(Devices).is_known = gaps.get(DEVICES.name) is not Extent.NOTHING
    if gaps.get(NATIVE_POD_GROUPS.name) is Extent.NOT_SERVED:
        state.gangs.note_unread(NATIVE_VERSIONS)
    for nomination in find_nominations(state) if nominations is None else nominations:
        state.nominations.begin(nomination)


def record_reading(
    reading: Reading,
    values: Mapping[str, tuple[Any, ...]],
    options: Iterable[object],
    *,
    compat: bool,
    hooks: tuple[str, ...],
) -> RecordedCluster:
    """Return what a reading was made of; ``values`` are the objects that were read, by kind."""
    return RecordedCluster(
        now=reading.state.now,
        values=values,
        options=tuple(filter(is_value, options)),
        compat=compat,
        gaps=tuple(KindGap(gap.kind.name, str(gap.kind), gap.extent) for gap in reading.gaps),
        hooks=hooks,
        reclaim=reading.reclaim,
        preemption=reading.preemption,
        migration=reading.migration,
    )
