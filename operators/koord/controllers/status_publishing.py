"""Publishes reasons as conditions of pods and events of the objects concerned.

Pods get merged conditions. Of custom resources that wait a report is made, for the author of their
status.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NoReturn

from koord.answers.standing import QueueStanding
from koord.api.keys import operators
from koord.api.misspelled_keys import MisspelledKey
from koord.api.pod_qos import AGENT_KEYS
from koord.api.podgroup import PodGroupStatus
from koord.api.resource import to_time
from koord.controllers.placement_reports import Attempts, PlacementReports
from koord.controllers.queue_status import make_queue_status
from koord.core.engine.state import ClusterState
from koord.core.gang.reasons import (
    InvalidAnnotation,
    describe_settings,
)
from koord.core.gang.status import ConditionType
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Handling, Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import cut
from koord.core.quota.model import QuotaSpec
from koord.core.quota.status import QuotaCondition
from koord.core.reservation.model import ReservationInfo
from koord.isolation import Isolation
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import (
    ObjectRef,
    ref_of_pod,
    ref_of_pod_group,
    ref_of_quota,
    ref_of_reservation,
)
from koord.kube.status import ConditionPatch, StatusPatch, StatusWriter
from koord.kube.translate.pod_conditions import POD_SCHEDULED, UNSCHEDULABLE

PLACING: Final = "Placing"
"""The action in events about placement."""
READING_KEYS: Final = "ReadingKeys"
"""The action in events about keys of pods that are ignored."""
_MAX_SAID: Final = 640
"""Length of a reason in an event, so that the command after it is not cut off."""
IGNORED_PER_MINUTE: Final = 5
MAX_REPORTED: Final = 1 << 14
_REASONS: Final = {operators.PLAN: "PlanIgnored", **dict.fromkeys(AGENT_KEYS, "QosSettingInvalid")}
"""Reasons of events, by key that is ignored; of the others it is KeyIgnored."""
OBSERVING: Final = "Observing"
"""The action in events about devices."""
HOLDING: Final = "Holding"
"""The action in events about placeholders."""
REVOKING: Final = "Revoking"
"""The action in events about evictions of pods whose quota is over its share."""
PLANNING: Final = "Planning"
"""The action in events about such evictions to come."""


PREEMPTING: Final = "Preempting"
"""The action in events about preemptions."""
MAX_VICTIM_EVENTS: Final = 20
"""Pods of one preempted gang that get an event of their own."""


@dataclass(frozen=True, slots=True)
class PlacementAnnouncer:
    """Reports why pods and complete gangs are not placed: for the operator ``placement``."""

    pods: StatusWriter
    pod_groups: PlacementReports
    reservations: PlacementReports
    events: EventRecorder
    compat: bool = False
    """Whether texts end with the words of Koordinator and kube-scheduler."""

    def announce_pod(self, pod: Pod, reason: Reason, *, is_placed: bool) -> None:
        """Set our condition on a pod.

        A pod without gate is expected to carry ``PodScheduled=False`` while it waits for room; on
        a gated one that condition is the API server's.
        """
        text = reason.text_for(pod.key, compat=self.compat)
        if pod.handling is Handling.RESERVE:
            reason_and_text = ("Scheduled", "") if is_placed else (UNSCHEDULABLE, text)
            self.reservations.submit(
                ref_of_pod(pod),
                StatusPatch((ConditionPatch("Scheduled", is_placed, *reason_and_text),)),
            )
            return
        notes = describe_settings(pod.gang) if pod.gang is not None else ""
        if notes and not isinstance(reason, InvalidAnnotation):
            text = f"{text} {notes}"
        conditions = [ConditionPatch(operators.PLACED, is_placed, reason.code, text)]
        if not is_placed and not pod.is_gated and reason.is_unschedulable:
            conditions.append(ConditionPatch(POD_SCHEDULED, False, UNSCHEDULABLE, text))
        self.pods.submit(ref_of_pod(pod), StatusPatch(tuple(conditions)))

    def announce_gang(
        self, pod_group: ObservedPodGroup, reason: Reason, attempts: Attempts
    ) -> None:
        """Set ``Placed`` to False on a PodGroup, and the condition of the step that failed."""
        false_conditions = {ConditionType.PLACED: reason.code, **reason.also_false}
        conditions = [
            ConditionPatch(
                kind, is_true, code, reason.text(compat=self.compat), pod_group.generation
            )
            for is_true, codes in ((False, false_conditions), (True, reason.also_true))
            for kind, code in codes.items()
        ]
        place, standing = attempts.place, attempts.standing
        if standing is not None:
            conditions.append(_make_queued(standing, pod_group.generation))
        status = PodGroupStatus(
            attempts=attempts.count,
            last_attempt_time=to_time(attempts.last) if attempts.last else None,
            queue_position=place.position if place is not None else None,
            gpus_ahead=place.gpus_ahead if place is not None else None,
            queue=make_queue_status(standing) if standing is not None else None,
        )
        patch = StatusPatch(tuple(conditions), status.encode_set())
        self.pod_groups.submit(ref_of_pod_group(pod_group), patch)

    def retract_gang(self, pod_group: ObservedPodGroup) -> None:
        """Say that there is nothing to say of a PodGroup any more."""
        self.pod_groups.submit(ref_of_pod_group(pod_group), StatusPatch())

    def announce_event(self, pod_group: ObservedPodGroup, reason: Reason, note: str) -> None:
        """Emit one event on a PodGroup: a warning, unless it was placed."""
        text = note or _point(reason, reason.text(compat=self.compat), f"pg {pod_group.key}")
        self._emit(ref_of_pod_group(pod_group), reason, text)

    def announce_pod_event(self, pod: Pod, reason: Reason) -> None:
        """Emit one event on a pod: a warning, unless it was placed."""
        target = pod.title if pod.handling is Handling.RESERVE else f"pod {pod.key}"
        text = _point(reason, reason.text_for(pod.key, compat=self.compat), target)
        self._emit(ref_of_pod(pod), reason, text)

    def _emit(self, ref: ObjectRef, reason: Reason, text: str) -> None:
        kind = EventType.NORMAL if reason.is_placed else EventType.WARNING
        self.events.record(ref, kind, action=PLACING, reason=reason.code, note=text)


def _point(reason: Reason, text: str, target: str) -> str:
    """Name the command that says more."""
    return text if reason.is_placed else f"{cut(text, _MAX_SAID)} More: koord explain {target}"


def _make_queued(standing: QueueStanding, generation: int) -> ConditionPatch:
    kind, text = ConditionType.QUEUED, standing.text()
    return ConditionPatch(kind, standing.is_queued, standing.state, text, generation)


@dataclass(slots=True)
class IgnoredKeys:
    """Emits one event on each pod with a plan that is not the operators', or a bad key.

    Keys are bad that are misspelled, and settings of QoS for agents that are invalid.

    In each minute a namespace gets a few, and the last one counts the others: whoever writes
    annotations must not use up the events of everybody. ``ignored`` is filled by the translator of
    pods and emptied here.
    """

    ignored: dict[str, tuple[Pod, MisspelledKey]]
    events: EventRecorder
    _reported: dict[str, None] = field(default_factory=dict)
    """Uids of pods that need no event any more, oldest first."""
    _sent: Counter[str] = field(default_factory=Counter)
    """Namespace -> events in this minute."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("ignored-keys"))

    async def run(self) -> NoReturn:
        for at in count(1):
            await asyncio.sleep(1)
            self.report()
            if at % 60 == 0:
                self._sent.clear()
        raise AssertionError("unreachable: count() does not end")

    def report(self) -> None:
        by_namespace: dict[str, list[tuple[Pod, MisspelledKey]]] = {}
        for uid, pod_and_key in self.ignored.items():
            if uid not in self._reported:
                by_namespace.setdefault(pod_and_key[0].namespace, []).append(pod_and_key)
        self.ignored.clear()
        for namespace, pods in by_namespace.items():
            room = IGNORED_PER_MINUTE - self._sent[namespace]
            if room <= 0:
                self.ignored.update((pod.uid, (pod, key)) for pod, key in pods)
                continue
            chosen, omitted = pods[:room], len(pods[room:])
            self._sent[namespace] += len(chosen)
            more = f"; {omitted} more pods of the namespace have such keys" if omitted else ""
            for pod, key in chosen:
                is_last = pod is chosen[-1][0]
                self._isolated.call(pod.uid, self._warn, pod, key, more if is_last else "")
            self._reported |= dict.fromkeys(pod.uid for pod, _ in pods)
        while len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]

    def _warn(self, pod: Pod, key: MisspelledKey, more: str) -> None:
        note = f"the key {cut(key.key)} {key.problem}{more}"
        reason = _REASONS.get(key.key, "KeyIgnored")
        ref, kind = ref_of_pod(pod), EventType.WARNING
        self.events.record(ref, kind, action=READING_KEYS, reason=reason, note=note)


@dataclass(frozen=True, slots=True)
class ReclaimAnnouncer:
    """Emits events about evictions of pods whose quota is over its share."""

    events: EventRecorder

    def announce_plan(self, quota: QuotaSpec, text: str) -> None:
        """Emit an event on the quota, before anybody is evicted."""
        ref, kind, reason = ref_of_quota(quota), EventType.NORMAL, "ReclaimPlanned"
        self.events.forget(ref, PLANNING)
        self.events.record(ref, kind, action=PLANNING, reason=reason, note=text)

    def announce_protected(self, quota: QuotaSpec, text: str) -> None:
        """Emit an event on the quota: disruption budgets delay that pods of it are evicted."""
        ref, kind, reason = ref_of_quota(quota), EventType.WARNING, operators.PROTECTED_BY_BUDGET
        self.events.forget(ref, PLANNING)
        self.events.record(ref, kind, action=PLANNING, reason=reason, note=text)

    def announce_overuse(self, quota: QuotaSpec, text: str) -> None:
        """Emit an event on the quota."""
        self._warn(ref_of_quota(quota), text)

    def announce_reclaimed(self, pod: Pod, text: str) -> None:
        """Emit an event on a pod."""
        self._warn(ref_of_pod(pod), text)

    def announce_soft_eviction(self, pod: Pod, text: str) -> None:
        """Emit an event on a pod that may end by itself."""
        self._warn(ref_of_pod(pod), text, "SoftEviction")

    def announce_spared(self, pod: Pod, text: str) -> None:
        """Emit an event on a pod that need not go any more."""
        self._warn(ref_of_pod(pod), text, "ReclaimCancelled")

    def retract_overuse(self, quota: QuotaSpec) -> None:
        """Forget the event on a quota, so that the next one is not counted as a repetition."""
        self.events.forget(ref_of_quota(quota), REVOKING)

    def _warn(
        self, ref: ObjectRef, text: str, reason: str = QuotaCondition.OVER_ENTITLEMENT
    ) -> None:
        self.events.record(ref, EventType.WARNING, action=REVOKING, reason=reason, note=text)


@dataclass(frozen=True, slots=True)
class PreemptionAnnouncer:
    """Emits events about preemptions, on both sides: on PodGroups, and on pods without one.

    Of a gang without PodGroup the first pod gets the event.
    """

    events: EventRecorder
    state: ClusterState
    record: Callable[[ObservedPodGroup, Happened, str, str], None] = field(default=lambda *_: None)
    """Adds to the history of a gang."""

    def announce_preempting(self, pods: Collection[Pod], text: str) -> None:
        self._announce(pods, EventType.NORMAL, "Preempting", text)

    def announce_soft_eviction(self, pods: Collection[Pod], text: str) -> None:
        self._announce(pods, EventType.WARNING, "SoftEviction", text)

    def announce_preempted(self, pods: Collection[Pod], text: str, *, by: str) -> None:
        """Emit an event on each victim; the history of a gang brings that of its PodGroup."""
        for gang in sorted({pod.gang.key for pod in pods if pod.gang is not None}):
            pod_group = self.state.gangs.pod_group(gang)
            if pod_group is not None:
                self.record(pod_group, Happened.PREEMPTED, text.rstrip("."), by)
        for pod in tuple(pods)[:MAX_VICTIM_EVENTS]:
            self._record(ref_of_pod(pod), EventType.WARNING, "Preempted", text)

    def announce_cancelled(self, pods: Collection[Pod], text: str) -> None:
        self._announce(pods, EventType.WARNING, "PreemptionCancelled", text)

    def _announce(self, pods: Collection[Pod], kind: EventType, reason: str, text: str) -> None:
        gangs = {pod.gang.key: pod for pod in reversed(tuple(pods)) if pod.gang is not None}
        for gang, first in sorted(gangs.items()):
            pod_group = self.state.gangs.pod_group(gang)
            ref = ref_of_pod(first) if pod_group is None else ref_of_pod_group(pod_group)
            self._record(ref, kind, reason, text)
        for pod in pods:
            if pod.gang is None:
                self._record(ref_of_pod(pod), kind, reason, text)

    def _record(self, ref: ObjectRef, kind: EventType, reason: str, text: str) -> None:
        self.events.record(ref, kind, action=PREEMPTING, reason=reason, note=text)


@dataclass(frozen=True, slots=True)
class DeviceAnnouncer:
    """Emits events about devices that failed while pods used them: one per gang or single pod."""

    events: EventRecorder

    def announce_unhealthy(self, user: Pod | ObservedPodGroup, text: str) -> None:
        ref = ref_of_pod(user) if isinstance(user, Pod) else ref_of_pod_group(user)
        kind = EventType.WARNING
        self.events.record(ref, kind, action=OBSERVING, reason="DeviceUnhealthy", note=text)


@dataclass(frozen=True, slots=True)
class ReservationAnnouncer:
    """Emits events about reservations whose placeholders the API server refuses."""

    events: EventRecorder

    def announce_refused(self, reservation: ReservationInfo, text: str) -> None:
        ref, reason = ref_of_reservation(reservation), "PlaceholderRefused"
        note = f"no placeholder can be created: {text}. Is manifests/overlays/placeholders applied?"
        self.events.record(ref, EventType.WARNING, action=HOLDING, reason=reason, note=note)
