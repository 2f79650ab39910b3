"""Gangs, PodGroups and topology constraints: from the wire to values of the core."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

from koord.api.annotations import NetworkTopologySpec
from koord.api.gang import (
    GANG_ANNOTATIONS,
    GANG_LABELS,
    UPSTREAM_DEFAULTS,
    BadSetting,
    GangDefaults,
    GangSettings,
    NameSource,
    PodGang,
    find_kueue_group,
    parse_pod_gang,
    parse_pod_group_settings,
)
from koord.api.keys import gang as keys
from koord.api.place_lists import read_places
from koord.api.podgroup import (
    GroupQueue,
    GroupRun,
    PodGroupSpec,
    PodGroupStatus,
    QueueReservation,
)
from koord.api.resource import Condition
from koord.api.shape import Shape
from koord.caches import EXPANSION, MIB, BoundedCache, size_of
from koord.core.gang.done import MAX_RECORDED, MAX_SUB_GROUPS
from koord.core.gang.group import MAX_GANGS, make_gang_key
from koord.core.gang.kueue import leave_topology
from koord.core.gang.phase import is_settled
from koord.core.gang.status import ConditionType
from koord.core.model.gang_history import MAX_BY, MAX_READ, MAX_WHY, Episode
from koord.core.model.gangs import (
    ROOT,
    BadValue,
    Bond,
    BondRecord,
    DeprecatedKey,
    GangKey,
    GangMembership,
    GangMode,
    GangPhase,
    GangSource,
    GangSpec,
    MatchPolicy,
    ObservedPodGroup,
    OnBindFailure,
    OnMemberFailure,
    QueueMemory,
    SubGroup,
    SubGroupTree,
)
from koord.core.model.topology_constraint import (
    DEFAULT_TOPOLOGY,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.kube.decode import MALFORMED
from koord.kube.translate.kueue import chooses_places
from koord.kube.translate.run_terms import make_run_terms
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import WireCustomResource, WireObjectMeta

_NO_TEXTS: Final[dict[str, str]] = {}
_PHASES: Final = {phase.value: phase for phase in GangPhase}


class GangMemberships:
    """Translates the gang that a pod names; equal claims are one object."""

    def __init__(self, defaults: GangDefaults) -> None:
        self._defaults = defaults
        self._known: BoundedCache[tuple[str | None, ...], GangMembership] = BoundedCache(16 * MIB)

    def look_up(self, meta: WireObjectMeta, native: str = "") -> GangMembership | None:
        """Return a pod's claim; None for a pod without a gang.

        ``native`` is the native PodGroup of Kubernetes that it names.
        """
        labels, annotations = meta.labels or _NO_TEXTS, meta.annotations or _NO_TEXTS
        if not (
            native
            or labels.get(keys.POD_GROUP)
            or labels.get(keys.LEGACY_NAME)
            or annotations.get(keys.NAME)
            or find_kueue_group(labels, annotations)
        ):
            return None
        is_by_kueue = chooses_places(annotations)
        key = (
            meta.namespace,
            native,
            str(is_by_kueue),
            *map(labels.get, GANG_LABELS),
            *map(annotations.get, GANG_ANNOTATIONS),
        )
        claim = self._known.get(key)
        if claim is None:
            gang = parse_pod_gang(meta.namespace, labels, annotations, self._defaults, native)
            claim = _make_membership(meta.namespace, gang)
            if is_by_kueue and claim.declared is not None:
                claim = _leave_topology(claim, claim.declared)
            self._known.keep(key, claim, EXPANSION * size_of(key))
        return claim


def _leave_topology(claim: GangMembership, declared: GangSpec) -> GangMembership:
    """Return the claim of a pod of which Kueue chooses the place."""
    spec = leave_topology(declared)
    return replace(claim, declared=spec, bad_values=spec.bad_values)


def _make_membership(namespace: str, gang: PodGang | None) -> GangMembership:
    if gang is None:
        raise ValueError("a gang is named by nothing")
    key = make_gang_key(namespace, gang.name)
    if gang.source is NameSource.POD_GROUP_LABEL:
        return GangMembership(key, GangSource.POD_GROUP)
    if gang.source is NameSource.NATIVE:
        return GangMembership(key, GangSource.NATIVE)
    bad = translate_bad_values(gang.bad)
    declared = None
    if gang.settings is not None:
        declared = make_gang_spec(key, gang.settings, GangSource.ANNOTATION, bad)
    deprecated = tuple(DeprecatedKey(*pair) for pair in gang.deprecated)
    return GangMembership(key, GangSource.ANNOTATION, declared, bad, deprecated)


def make_gang_spec(
    key: GangKey, settings: GangSettings, source: GangSource, bad: tuple[BadValue, ...]
) -> GangSpec:
    return GangSpec(
        key=key,
        min_member=settings.min_member,
        total=settings.total,
        wait_seconds=settings.wait_seconds,
        mode=GangMode(settings.mode),
        match_policy=MatchPolicy(settings.match_policy),
        group=settings.groups[:MAX_GANGS],
        listed=len(settings.groups) if len(settings.groups) > MAX_GANGS else 0,
        source=source,
        bad_values=bad,
        topology=make_constraint(settings),
        on_member_failure=OnMemberFailure(settings.on_member_failure),
        on_bind_failure=OnBindFailure(settings.on_bind_failure),
        sub_groups=make_sub_groups(settings),
        keeps_room=settings.kept_room != "GiveUp",
        is_held=settings.queue_hold == "true",
        most_priority=settings.queue_priority,
        retry=settings.queue_retry,
        run=make_run_terms(settings.run),
    )


def make_constraint(settings: GangSettings) -> TopologyConstraint | None:
    """Return the topology constraint of a gang; an empty one only for a gang with sub-groups."""
    topology = settings.topology_name or DEFAULT_TOPOLOGY
    if settings.topology is None or not settings.topology.gather_strategy:
        return None if settings.sub_groups is None else TopologyConstraint((), topology)
    return translate_constraint(settings.topology, topology)


def make_sub_groups(settings: GangSettings) -> SubGroupTree | None:
    sub_groups = settings.sub_groups
    if sub_groups is None:
        return None
    return _share(
        SubGroupTree(
            root=SubGroup(ROOT, min_sub_groups=sub_groups.min_sub_groups),
            groups=tuple(
                SubGroup(
                    group.name, group.min_member, group.layer, group.parent, group.min_sub_groups
                )
                for group in sub_groups.groups
            ),
        )
    )


_trees: WeakValueDictionary[int, SubGroupTree] = WeakValueDictionary()


def _share(tree: SubGroupTree) -> SubGroupTree:
    """Return the tree that others have already, if it is equal: members repeat those of gangs."""
    shared = _trees.get(hash(tree))
    if shared == tree:
        return shared
    _trees[hash(tree)] = tree
    return tree


def translate_constraint(
    spec: NetworkTopologySpec, topology: str = DEFAULT_TOPOLOGY
) -> TopologyConstraint:
    return TopologyConstraint(
        layers=tuple(
            LayerConstraint(
                rule.layer, GatherStrategy(rule.strategy), max(rule.pod_count_multiple, 1)
            )
            for rule in spec.gather_strategy
        ),
        topology=topology,
    )


def translate_bad_values(bad: Iterable[BadSetting]) -> tuple[BadValue, ...]:
    return tuple(BadValue(b.key, b.value, b.in_force, b.problem) for b in bad)


_SPEC: Final = Shape(
    PodGroupSpec, ("spec",), only={PodGroupSpec: ("min_member", "schedule_timeout_seconds")}
)
_STATUS: Final = Shape(
    PodGroupStatus,
    only={
        PodGroupStatus: (
            "phase", "occupied_by", "schedule_start_time", "scheduled", "running", "attempts",
            "conditions", "history", "runs", "queue",
        ),
        GroupQueue: ("head_since", "start_no_later_than", "reservation"),
        QueueReservation: (
            "since", "idle_held_seconds", "places", "more_places", "places_total",
        ),
        Condition: ("type", "status", "reason"),
    },
)  # fmt: skip
"""The fields of a status that outlive a restart."""
_UNKNOWN: Final = _STATUS.read(b"")


def _wait_reason(status: PodGroupStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == ConditionType.PLACED and condition.status != "True":
            return condition.reason
    return ""


class PodGroupTranslator(SeenStatuses):
    """Translates PodGroups, and keeps their statuses for their writers."""

    def __init__(self, defaults: GangDefaults = UPSTREAM_DEFAULTS) -> None:
        super().__init__()
        self.defaults = defaults

    def translate(self, wire: WireCustomResource) -> ObservedPodGroup:
        """Return the PodGroup as a value of the core; values out of bounds are kept."""
        meta, spec = wire.metadata, _SPEC.read(bytes(wire.spec))
        key = make_gang_key(meta.namespace, meta.name)
        settings, bad = parse_pod_group_settings(
            key,
            spec.min_member,
            spec.schedule_timeout_seconds,
            meta.annotations or _NO_TEXTS,
            self.defaults,
        )
        status = _read_status(self._see(meta.uid, wire.status))
        start, created = map(_seconds, (status.schedule_start_time, meta.creation_timestamp))
        waited = (start or 0.0) - (created or 0.0) if start else 0.0
        return ObservedPodGroup(
            key=key,
            uid=meta.uid,
            spec=make_gang_spec(key, settings, GangSource.POD_GROUP, translate_bad_values(bad)),
            generation=meta.generation,
            created=created or 0.0,
            is_terminating=meta.deletion_timestamp is not None,
            phase=_PHASES.get(status.phase or "", GangPhase.UNKNOWN),
            occupied_by=status.occupied_by or "",
            schedule_start=start,
            attempts=status.attempts,
            wait_reason=_wait_reason(status),
            is_settled=is_settled(
                spec.min_member, (status.scheduled or 0, status.running or 0), waited
            ),
            queued=_read_queue(status.queue),
            runs=tuple(_make_record(run) for run in (status.runs or ())[:MAX_RECORDED]),
            history=_read_history(status),
        )


def _read_history(status: PodGroupStatus) -> tuple[Episode, ...]:
    """Return the last episodes, oldest first, with as much of their texts as is written."""
    episodes = (
        Episode(
            int(episode.time.timestamp()),
            episode.what[:MAX_BY],
            (episode.why or "")[:MAX_WHY],
            (episode.by or "")[:MAX_BY],
        )
        for episode in status.history or ()
    )
    return tuple(sorted(episodes))[-MAX_READ:]


def _make_record(run: GroupRun) -> BondRecord:
    named = tuple(
        (sub_group.name, sub_group.succeeded)
        for sub_group in (run.sub_groups or ())[:MAX_SUB_GROUPS]
    )
    return BondRecord(Bond(run.controller, run.start, run.size), run.succeeded, named)


def _read_queue(queue: GroupQueue | None) -> QueueMemory | None:
    since = None if queue is None else _seconds(queue.head_since)
    if queue is None or since is None:
        return None
    reservation = queue.reservation
    if reservation is None or (reserved := _seconds(reservation.since)) is None:
        return QueueMemory(int(since))
    latest = _seconds(queue.start_no_later_than)
    return QueueMemory(
        int(since),
        int(reserved),
        max(0, reservation.idle_held_seconds),
        _read_places(reservation),
        None if latest is None else int(latest),
    )


def _read_places(reservation: QueueReservation) -> tuple[tuple[str, int], ...]:
    """Return all places of a reservation; nothing if some are missing."""
    places = {place.node: place.pods for place in reservation.places or ()}
    places |= read_places(reservation.more_places or "")
    is_whole = len(places) == reservation.places_total
    return tuple(sorted(places.items())) if is_whole else ()


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _read_status(raw: bytes) -> PodGroupStatus:
    try:
        return _STATUS.read(raw)
    except MALFORMED:
        # Invalid: the next write replaces it.
        return _UNKNOWN
