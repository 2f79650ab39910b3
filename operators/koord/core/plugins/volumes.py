"""Volumes of pods: on which nodes they are available, and whether we can place the pod at all.

The rules are those of kube-scheduler's plugins VolumeBinding, VolumeZone and VolumeRestrictions,
for claims that are bound: the node must match the volume's node affinity and its zone labels, and a
claim with ``ReadWriteOncePod`` may be used by one pod only. A claim that is bound when its first
pod is placed (``WaitForFirstConsumer``) is bound by kube-scheduler, which chooses or orders the
volume together with the node; pods with such claims are left to it, on nodes that may serve them.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.columns import ABSENT
from koord.core.engine.cycle import Cycle
from koord.core.engine.labels import LabelColumns
from koord.core.engine.plugin import FilterReach, Plugin, Reactive
from koord.core.model.constraints import ClaimUse, VolumeConstraints
from koord.core.model.kube_scheduler_reasons import LateClaim, NeedsKubeScheduler, PlacementUnknown
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import PodReason, Reason
from koord.core.model.selectors import SelectorTerm
from koord.core.model.templates import fill
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.late_volumes import (
    NOTHING_WANTED,
    FreeVolumes,
    StorageClass,
    VolumeOffer,
    WantedVolume,
)

_BETA: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_LABELS: Final = (*_BETA, *_BETA.values())
"""Labels of volumes that say where they are."""


class VolumeProblem(StrEnum):
    """What is wrong with a volume claim."""

    NOT_FOUND = "NotFound"
    LOST = "Lost"
    """Its volume is gone, according to the volume controller."""
    TERMINATING = "Terminating"
    NOT_FOR_POD = "NotForPod"
    """It has the name of an ephemeral volume's claim, but was not made for the pod."""
    NO_VOLUME = "NoVolume"
    """It is bound to a volume that does not exist."""
    UNBOUND = "Unbound"
    """Its storage class binds before the first pod is placed, and it is not bound."""


_PROBLEM_TEXTS: Final = {
    VolumeProblem.NOT_FOUND: "{_title} not found: {pod} waits until it exists",
    VolumeProblem.LOST: '{_title} bound to non-existent persistentvolume "{volume}"',
    VolumeProblem.TERMINATING: "{_title} is being deleted, and {pod} uses it",
    VolumeProblem.NOT_FOR_POD: "{_title} was not created for {pod}, but has the name of its volume",
    VolumeProblem.NO_VOLUME: '{_title} is bound to persistentvolume "{volume}", which does not '
    "exist",
    VolumeProblem.UNBOUND: "pod has unbound immediate PersistentVolumeClaims: {pod} waits until "
    "{_title} is bound",
}


@dataclass(frozen=True, slots=True)
class VolumeNotReady(PodReason):
    """A volume claim of a member is missing, lost, going or not bound; the message names it.

    ``volume`` is what it names, if any.
    """

    code: ClassVar = "VolumeNotReady"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    way_out: ClassVar = "create the claim, or see why it is not bound"
    says: ClassVar = "{_told}"
    claim: str
    problem: VolumeProblem
    volume: str = ""

    @property
    def _told(self) -> str:
        return fill(_PROBLEM_TEXTS[self.problem], self)

    @property
    def _title(self) -> str:
        return f'persistentvolumeclaim "{self.claim.partition("/")[2]}"'


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. ``volume`` may be set before ``is_bound``.

    ``owner`` is the uid of the pod that it was created for, if any.
    """

    key: str
    volume: str = ""
    is_bound: bool = False
    is_lost: bool = False
    is_terminating: bool = False
    is_exclusive: bool = False
    storage_class: str = ""
    owner: str = ""
    wanted: WantedVolume = NOTHING_WANTED


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume. ``zones`` holds its zone labels, each with the values it allows.

    ``is_in_tree`` marks volumes of cloud providers that were migrated to CSI drivers; only
    kube-scheduler can translate their labels.
    """

    name: str
    terms: tuple[SelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_in_tree: bool = False
    offer: VolumeOffer | None = None
    """None if a claim has it."""
    provisioner: str = ""
    """Who has made it; empty if it was made by hand."""


_UNKNOWN: Final = VolumeClaim("")


class VolumeCache:
    """Claims, volumes and classes, and which claims are used by pods on nodes.

    Unless ``is_known``, volumes were not read, and no pod is refused for its volumes.
    """

    def __init__(self) -> None:
        self.claims: dict[str, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.in_use: Counter[str] = Counter()
        self.is_known = True
        self.free = FreeVolumes()
        self.made_by: Counter[str] = Counter()
        """Provisioner -> how many volumes it has made, which shows that it works here."""
        self._claims_of: dict[tuple[str, str], set[str]] = {}
        """The volume of claims, or the class of those without one -> their keys."""

    def upsert_claim(self, claim: VolumeClaim) -> None:
        self.remove_claim(claim.key)
        self.claims[claim.key] = claim
        self._claims_of.setdefault(_index_of(claim), set()).add(claim.key)

    def remove_claim(self, key: str) -> None:
        claim = self.claims.pop(key, None)
        if claim is not None:
            claims = self._claims_of[_index_of(claim)]
            claims.discard(key)
            if not claims:
                del self._claims_of[_index_of(claim)]

    def upsert_volume(self, volume: Volume) -> None:
        self.remove_volume(volume.name)
        self.volumes[volume.name] = volume
        if volume.provisioner:
            self.made_by[volume.provisioner] += 1
        self.free.upsert(volume.name, volume.offer, volume.terms)

    def remove_volume(self, name: str) -> bool:
        """Return whether there was such a volume."""
        self.free.remove(name)
        volume = self.volumes.pop(name, None)
        if volume is not None and volume.provisioner:
            self.made_by[volume.provisioner] -= 1
        return volume is not None

    def claims_of(self, volume: str) -> frozenset[str]:
        """Return the claims that have a volume, or may get it."""
        claims = frozenset(self._claims_of.get((volume, ""), ()))
        storage_class = self.free.class_of(volume)
        return claims.union(self._claims_of.get(("", storage_class), ()) if storage_class else ())

    def claims_proven_by(self, volume: Volume) -> frozenset[str]:
        """Return the claims of which a volume is the first to show that they can be served."""
        maker = volume.provisioner
        if not maker or self.made_by[maker] > 1:
            return frozenset()
        classes = (name for name, class_ in self.classes.items() if class_.provisioner == maker)
        return frozenset(key for name in classes for key in self._claims_of.get(("", name), ()))

    def claims_in(self, storage_class: str) -> frozenset[str]:
        claims = (
            claim.key for claim in self.claims.values() if claim.storage_class == storage_class
        )
        return frozenset(claims)

    def use(self, claims: tuple[ClaimUse, ...], count: int) -> None:
        """Add ``count`` pods to the users of these claims."""
        for use in claims:
            if not use.is_own:
                self.in_use[use.key] += count
                if not self.in_use[use.key]:
                    del self.in_use[use.key]

    def bound(self, pod: Pod) -> Iterator[tuple[VolumeClaim, Volume]]:
        """Yield the bound claims of a pod with their volumes."""
        for use in pod.claims:
            claim = self.claims.get(use.key, _UNKNOWN)
            volume = self.volumes.get(claim.volume) if claim.is_bound else None
            if volume is not None:
                yield claim, volume

    def constraints(self, pod: Pod) -> VolumeConstraints | None:
        """Return what the claims of a pod ask of its node; None for nothing."""
        terms: set[tuple[SelectorTerm, ...]] = set()
        zones: set[tuple[str, tuple[str, ...]]] = set()
        exclusive: set[str] = set()
        for use in pod.claims:
            claim = self.claims.get(use.key, _UNKNOWN)
            volume = self.volumes.get(claim.volume) if claim.is_bound else None
            late = None if claim.is_bound else self._late(pod, claim)
            if volume is not None and volume.terms is not None:
                terms.add(volume.terms)
            elif late is not None:
                may_serve = self.free.terms_for(claim.key, claim.wanted, late)
                terms.update(() if may_serve is None else (may_serve,))
            if volume is not None and not use.is_own:
                zones.update(volume.zones)
            if claim.is_exclusive and not use.is_own:
                exclusive.add(claim.key)
        if not terms and not zones and not exclusive:
            return None
        return VolumeConstraints(
            tuple(sorted(terms, key=repr)), tuple(sorted(zones)), tuple(sorted(exclusive))
        )

    def blocking_reason(
        self, pod: Pod, shared: Collection[str] = ()
    ) -> VolumeNotReady | NeedsKubeScheduler | PlacementUnknown | None:
        """Return why the volumes of a pod prevent its placement on any node.

        Of a pod that kube-scheduler binds: why it may refuse every node that is planned. ``shared``
        are the claims that other pods of its unit use, too.
        """
        if not self.is_known:
            return None
        unsupported: list[str] = []
        late: list[LateClaim] = []
        for use in pod.claims:
            claim = self.claims.get(use.key)
            problem = self._problem_of(use, claim, pod)
            if problem is not None:
                volume = "" if claim is None else claim.volume
                return VolumeNotReady(pod.key, use.key, problem, volume)
            if claim is None or self._is_usable(claim):
                continue
            if not self._is_servable(pod, claim, is_shared=use.key in shared):
                unsupported.append(use.field)
                late += () if claim.is_bound else (LateClaim(claim.key, claim.storage_class),)
        # A reservation binds no claim: kube-scheduler binds it with the pod that uses it.
        if not unsupported or pod.handling is Handling.RESERVE:
            return None
        is_theirs = pod.handling is Handling.RELEASE_PINNED
        reason = PlacementUnknown if is_theirs else NeedsKubeScheduler
        return reason(pod.key, tuple(unsupported), tuple(late))

    def _is_servable(self, pod: Pod, claim: VolumeClaim, *, is_shared: bool) -> bool:
        """Whether kube-scheduler can serve a late claim on every node that we would plan.

        It can if a volume is kept for the claim, or if one will be made for it: by somebody who has
        made volumes in this cluster, for the one pod that uses the claim.
        """
        late = self._late(pod, claim)
        if late is None or pod.handling is not Handling.RELEASE_PINNED:
            return False
        if self.free.is_held_for(claim.key, claim.wanted, late.name):
            return True
        is_made = not late.is_static and self.made_by[late.provisioner] > 0
        return is_made and not is_shared and not self.in_use[claim.key]

    def _late(self, pod: Pod, claim: VolumeClaim) -> StorageClass | None:
        """Return the class of a claim that kube-scheduler binds with this pod; None for others."""
        storage_class = self.classes.get(claim.storage_class)
        is_late = storage_class is not None and storage_class.is_delayed and not claim.volume
        return storage_class if is_late and pod.handling is not Handling.RESERVE else None

    def _problem_of(
        self, use: ClaimUse, claim: VolumeClaim | None, pod: Pod
    ) -> VolumeProblem | None:
        if claim is None:
            return VolumeProblem.NOT_FOUND
        if claim.is_lost:
            return VolumeProblem.LOST
        if claim.is_terminating:
            return VolumeProblem.TERMINATING
        if use.is_own and claim.owner != pod.uid:
            return VolumeProblem.NOT_FOR_POD
        if claim.is_bound:
            return None if claim.volume in self.volumes else VolumeProblem.NO_VOLUME
        storage_class = self.classes.get(claim.storage_class)
        is_delayed = storage_class is not None and storage_class.is_delayed
        return None if is_delayed and not claim.volume else VolumeProblem.UNBOUND

    def _is_usable(self, claim: VolumeClaim) -> bool:
        """Whether we know on which nodes a claim is available."""
        return claim.is_bound and not self.volumes[claim.volume].is_in_tree


def _index_of(claim: VolumeClaim) -> tuple[str, str]:
    return (claim.volume, "") if claim.volume else ("", claim.storage_class)


class Volumes(Plugin):
    """Joins claims and volumes to the planner."""

    name = "volumes"

    def __init__(self) -> None:
        self.cache = VolumeCache()

    def upsert_claim(self, claim: VolumeClaim) -> None:
        if self.cache.claims.get(claim.key) != claim:
            self.cache.upsert_claim(claim)
            self.view.note_claims((claim.key,))

    def remove_claim(self, claim: VolumeClaim) -> None:
        self.cache.remove_claim(claim.key)
        self.view.note_claims((claim.key,))

    def upsert_volume(self, volume: Volume) -> None:
        """Apply a volume; claims that had it, have it now, or prove its room are tried again."""
        if self.cache.volumes.get(volume.name) != volume:
            self.view.note_claims(self.cache.claims_of(volume.name))
            self.cache.upsert_volume(volume)
            self.view.note_claims(self.cache.claims_of(volume.name))
            self.view.note_claims(self.cache.claims_proven_by(volume))

    def remove_volume(self, volume: Volume) -> None:
        claims = self.cache.claims_of(volume.name)
        if self.cache.remove_volume(volume.name):
            self.view.note_claims(claims)

    def upsert_storage_class(self, storage_class: StorageClass) -> None:
        if self.cache.classes.get(storage_class.name) != storage_class:
            self.cache.classes[storage_class.name] = storage_class
            self.view.note_claims(self.cache.claims_in(storage_class.name))

    def remove_storage_class(self, storage_class: StorageClass) -> None:
        if self.cache.classes.pop(storage_class.name, None) is not None:
            self.view.note_claims(self.cache.claims_in(storage_class.name))

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        self.cache.use(charge.claims, count)

    @override
    def open(self, cycle: Cycle) -> "VolumesSession":
        return VolumesSession(self.cache, cycle.table.labels)


class VolumesSession(Reactive):
    """Volumes in one cycle: changes of the use of exclusive claims."""

    name = Volumes.name
    reach = FilterReach.CLUSTER

    def __init__(self, cache: VolumeCache, labels: LabelColumns) -> None:
        self.cache = cache
        self.uses: Counter[str] = Counter()
        """Exclusive claim -> change of the number of its users since the cycle was opened."""
        self._labels = labels

    @override
    def ask(self, pod: Pod, shape: PodShape) -> VolumeConstraints | None:
        return self.cache.constraints(pod) if pod.claims else None

    @override
    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        for pod in pods:
            if pod.claims:
                return super().ask_all(pods)
        return None

    @override
    def blocking_reasons(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        users = Counter(use.key for pod in pods for use in pod.claims)
        shared = {key for key, count in users.items() if count > 1}
        return {
            pod.uid: reason
            for pod in pods
            if pod.claims and (reason := self.cache.blocking_reason(pod, shared)) is not None
        }

    @override
    def is_reactive(self, shape: PodShape) -> bool:
        constraints = constraints_of(shape)
        return constraints is not None and bool(constraints.exclusive)

    @override
    def most_when_empty(self, shape: PodShape) -> int | None:
        return NO_LIMIT if constraints_of(shape) is None else None

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        constraints = constraints_of(shape)
        if constraints is None:
            return
        labels = self._labels
        if constraints.exclusive:
            limit = int(not any(map(self._is_taken, constraints.exclusive)))
            yield NodeCause.VOLUME_IN_USE, np.full(labels.rows, limit, dtype=np.int64)[rows]
        if constraints.terms:
            mask = np.ones(labels.rows, dtype=np.bool_)
            for terms in constraints.terms:
                mask &= labels.rows_of_any(terms)
            yield NodeCause.VOLUME_AFFINITY, np.where(mask, NO_LIMIT, 0)[rows]
        if constraints.zones:
            mask = is_in_zones(constraints.zones, labels)
            yield NodeCause.VOLUME_ZONE, np.where(mask, NO_LIMIT, 0)[rows]

    @override
    def apply(self, shape: PodShape, row: int, count: int) -> None:
        constraints = constraints_of(shape)
        for claim in () if constraints is None else constraints.exclusive:
            self.uses[claim] += count
            if not self.uses[claim]:
                del self.uses[claim]

    def _is_taken(self, claim: str) -> bool:
        return self.cache.in_use[claim] + self.uses[claim] > 0


def constraints_of(shape: PodShape) -> VolumeConstraints | None:
    """Return the volume constraints that the session added to a shape."""
    volume_constraints = shape.ask_of(Volumes.name)
    return volume_constraints if isinstance(volume_constraints, VolumeConstraints) else None


def is_in_zones(zones: tuple[tuple[str, tuple[str, ...]], ...], labels: LabelColumns) -> Mask:
    """Return the rows with matching zone labels, and all rows without zone labels."""
    is_anywhere = np.ones(labels.rows, dtype=np.bool_)
    for key in ZONE_LABELS:
        is_anywhere &= np.equal(labels.column(key).ids, ABSENT)
    fits = np.ones(labels.rows, dtype=np.bool_)
    for key, values in zones:
        column = labels.column(key)
        here = column.having(values)
        if key in _BETA:
            # Volumes may still have the deprecated label when nodes only have the new one.
            here |= np.equal(column.ids, ABSENT) & labels.column(_BETA[key]).having(values)
        fits &= here
    return fits | is_anywhere
