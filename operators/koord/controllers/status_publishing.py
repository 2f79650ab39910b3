"""From reasons to what stands in the API: conditions and events, worded once, here.

Three writers, because server-side apply tells writers apart by name: pods get merged conditions,
PodGroups and the other resources applied ones, each operator under a field manager of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koord.api.keys import operators
from koord.api.resource import Resource
from koord.controllers.attempts import Attempts
from koord.controllers.validation import ACCEPTED, Verdict
from koord.core.gang.model import PodGroup
from koord.core.gang.reasons import InvalidAnnotation, describe_settings
from koord.core.gang.status import ConditionType
from koord.core.pods import Pod
from koord.core.quota.conditions import QuotaCondition
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import GeneratedQuota, ProfileKey, QuotaProfile
from koord.core.quota.status import are_same
from koord.core.reasons import Reason
from koord.core.topology.cache import Topology
from koord.core.units import Amounts
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import (
    ObjectRef,
    ref_of_pod,
    ref_of_pod_group,
    ref_of_profile,
    ref_of_quota,
    ref_of_topology,
)
from koord.kube.root_quota import RootQuotaWriter
from koord.kube.status import ConditionPatch, StatusPatch, StatusWriter, format_time
from koord.kube.translate.pods import POD_SCHEDULED, UNSCHEDULABLE
from koord.kube.translate.quotas import QuotaTranslator, make_recorded, read_recorded

PLACING: Final = "Placing"
"""The action that events are about."""
REVOKING: Final = "Revoking"
"""The same, where pods are evicted because their quota uses too much."""

_ALARMS: Final = frozenset(
    {
        (ConditionType.SPEC_VALID, False),
        (ConditionType.QUORUM_REACHED, False),
        (ConditionType.DEGRADED, True),
        (ConditionType.TIMEOUT, True),
        (QuotaCondition.CONFIG_INVALID, True),
    }
)
"""What somebody has to do something about: type and status of a condition."""


def _is_alarming(conditions: Iterable[ConditionPatch]) -> bool:
    return any((one.type, one.status) in _ALARMS for one in conditions)


@dataclass(frozen=True, slots=True)
class PlacementAnnouncer:
    """Says what the placement operator knows: why pods and complete gangs have no place."""

    pods: StatusWriter
    pod_groups: StatusWriter
    events: EventRecorder

    def announce_pod(self, pod: Pod, reason: Reason, *, is_placed: bool) -> None:
        """Set our condition on a pod.

        A pod without gate is expected to carry ``PodScheduled=False`` while it waits for room; on
        a gated one that condition is the API server's.
        """
        text = reason.text_for(pod.key)
        notes = describe_settings(pod.gang) if pod.gang is not None else ""
        if notes and not isinstance(reason, InvalidAnnotation):
            text = f"{text} {notes}"
        conditions = [ConditionPatch(operators.PLACED, is_placed, reason.code, text)]
        if not is_placed and not pod.is_gated and reason.is_unschedulable:
            conditions.append(ConditionPatch(POD_SCHEDULED, False, UNSCHEDULABLE, text))
        self.pods.submit(ref_of_pod(pod), StatusPatch(tuple(conditions)))

    def announce_gang(self, pod_group: PodGroup, reason: Reason, attempts: Attempts) -> None:
        """Set ``Placed=False`` on a PodGroup, and False what else it is that failed."""
        said = {ConditionType.PLACED: reason.code, **reason.also_false}
        conditions = (
            ConditionPatch(kind, False, code, reason.text(), pod_group.generation)
            for kind, code in said.items()
        )
        fields: dict[str, Any] = {"attempts": attempts.count}
        if attempts.last:
            fields["lastAttemptTime"] = format_time(attempts.last)
        self.pod_groups.submit(ref_of_pod_group(pod_group), StatusPatch(tuple(conditions), fields))

    def retract_gang(self, pod_group: PodGroup) -> None:
        """Leave a PodGroup to its own operator.

        Left over, a condition would be ours in part: that operator could not take its part back.
        """
        self.pod_groups.submit(ref_of_pod_group(pod_group), StatusPatch())

    def announce_event(self, pod_group: PodGroup, reason: Reason, note: str) -> None:
        """Emit one event on a PodGroup: a warning, unless it was placed."""
        kind = EventType.NORMAL if reason.is_placed else EventType.WARNING
        ref = ref_of_pod_group(pod_group)
        text = note or reason.text()
        self.events.record(ref, kind, action=PLACING, reason=reason.code, note=text)

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None:
        """Emit one event on a pod: a warning, unless it was placed."""
        kind = EventType.NORMAL if reason.is_placed else EventType.WARNING
        text = reason.text_for(pod.key)
        ref = ref_of_pod(pod)
        self.events.record(ref, kind, action=PLACING, reason=reason.code, note=text)


@dataclass(frozen=True, slots=True)
class PodGroupAnnouncer:
    """Says what the podgroup operator observes."""

    writer: StatusWriter

    def write_status(
        self,
        pod_group: PodGroup,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        """Set these fields and conditions of the status, and no others."""
        generation = {"observedGeneration": pod_group.generation}
        statement = StatusPatch(conditions, {**fields, **generation}, _is_alarming(conditions))
        self.writer.submit(ref_of_pod_group(pod_group), statement)


@dataclass(frozen=True, slots=True)
class QuotaAnnouncer:
    """Says what the elasticquota operator observes."""

    writer: StatusWriter
    annotations: StatusWriter
    seen: QuotaTranslator

    def write_annotations(self, quota: QuotaSpec, amounts: Mapping[str, Amounts]) -> None:
        """Set the annotations of these names, without their prefix, and no others."""
        present = self.seen.recorded_on(quota.uid)
        made = make_recorded(amounts)
        if present and are_same(amounts, read_recorded(present)):
            made = present  # in words of somebody else, perhaps: with zeros, or without
        if made or present:
            self.annotations.submit(ref_of_quota(quota), StatusPatch(fields=made))

    def write_status(
        self,
        quota: QuotaSpec,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        """Set these fields and conditions of the status, and no others."""
        generation = {"observedGeneration": quota.generation}
        statement = StatusPatch(conditions, {**fields, **generation}, _is_alarming(conditions))
        self.writer.submit(ref_of_quota(quota), statement)


@dataclass(frozen=True, slots=True)
class ProfileAnnouncer:
    """Writes quotas of profiles, and says what becomes of profiles."""

    writer: StatusWriter
    quotas: RootQuotaWriter
    seen: QuotaTranslator

    async def write_quota(
        self, profile: QuotaProfile, quota: GeneratedQuota, present: QuotaSpec | None
    ) -> None:
        """Make the quota, or bring it in line. Raises the errors of ``koord.kube.errors``."""
        meta = None if present is None else self.seen.meta_of(present.uid)
        await self.quotas.write(profile, quota, present, meta)

    def forget(self, key: ProfileKey) -> None:
        """Drop what is remembered of a profile that is gone."""
        self.quotas.forget(key)

    def write_status(
        self,
        profile: QuotaProfile,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        """Set these fields and conditions of the status, and no others."""
        statement = StatusPatch(conditions, {**fields, "observedGeneration": profile.generation})
        self.writer.submit(ref_of_profile(profile), statement)


@dataclass(frozen=True, slots=True)
class RevokeAnnouncer:
    """Says whose pods are evicted because their quota uses too much."""

    events: EventRecorder

    def announce_overuse(self, quota: QuotaSpec, text: str) -> None:
        """Emit an event on the quota."""
        self._warn(ref_of_quota(quota), text)

    def announce_revoked(self, pod: Pod, text: str) -> None:
        """Emit an event on a pod."""
        self._warn(ref_of_pod(pod), text)

    def retract_overuse(self, quota: QuotaSpec) -> None:
        """Let the next time be news."""
        self.events.forget(ref_of_quota(quota), REVOKING)

    def _warn(self, ref: ObjectRef, text: str) -> None:
        kind, reason = EventType.WARNING, QuotaCondition.OVER_ENTITLEMENT
        self.events.record(ref, kind, action=REVOKING, reason=reason, note=text)


@dataclass(frozen=True, slots=True)
class TopologyAnnouncer:
    """Says what the networktopology operator observes."""

    writer: StatusWriter

    def write_status(
        self, topology: Topology, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        """Set these fields and conditions of the status, and no others."""
        self.writer.submit(ref_of_topology(topology), StatusPatch(conditions, fields))


@dataclass(slots=True)
class AcceptedAnnouncer:
    """Says whether objects of the other kinds can be used."""

    writer: StatusWriter
    seen: dict[str, Mapping[str, Any]]
    """Object uid -> the status that it was last seen with; the writer compares with it."""

    def accept(
        self,
        resource: type[Resource],
        body: Mapping[str, Any],
        verdict: Verdict,
    ) -> None:
        """Write the condition of one object, if it differs from what is there."""
        meta = body["metadata"]
        names = resource.names
        ref = ObjectRef(
            names.api_version,
            names.kind,
            names.plural,
            meta["name"],
            meta["uid"],
            meta.get("namespace", ""),
        )
        self.seen[ref.uid] = body.get("status") or {}
        condition = ConditionPatch(
            ACCEPTED,
            not verdict.problems,
            verdict.reason,
            verdict.message,
            meta.get("generation"),
        )
        self.writer.submit(ref, StatusPatch((condition,)))

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object that is gone."""
        self.seen.pop(uid, None)

    def forget_all(self) -> None:
        """Drop what is remembered of all objects: they are about to be seen again."""
        self.seen.clear()
