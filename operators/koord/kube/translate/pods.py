"""Translates pods to ``koord.core.model.pods.Pod``, and keeps their form for the writers.

The core's pod has what scheduling needs. The form of the manifest (annotations, affinity, our
conditions) matters only for writing and is kept here by uid while the pod is pending.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from koord.api.gang import NO_INDEX, parse_topology_index
from koord.api.keys import operators
from koord.api.keys import quota as quota_keys
from koord.api.keys.gang import NETWORK_TOPOLOGY_INDEX, NETWORK_TOPOLOGY_SELECTOR
from koord.api.keys.preemption import CHECKPOINTED_AT, SOFT_EVICTION, SOFT_EVICTION_TIME
from koord.api.misspelled_keys import MisspelledKey, find_misspelled_keys
from koord.api.pod_qos import find_bad_agent_key
from koord.api.preemption import PreemptionPolicy, is_protected, read_policy
from koord.api.quantity import parse_duration_seconds
from koord.api.run_terms import find_bad_run_settings
from koord.caches import MIB, BoundedCache, size_of
from koord.core.eviction.protection import SYSTEM_CRITICAL
from koord.core.model.constraints import PodLabels
from koord.core.model.object_size import MOST_TO_PLAN, count_annotations
from koord.core.model.pods import (
    Allocation,
    ExceededLimit,
    Handling,
    Nominated,
    OwnerReference,
    Pod,
    PodPhase,
    PodShape,
    RecordedPlan,
    fast_init,
)
from koord.core.model.text import cut
from koord.kube.decode import MALFORMED
from koord.kube.kind import Counted, PodReader, TranslatorOptions
from koord.kube.plan_keys import (
    KnownPlans,
    OutdatedPlan,
    PlanKeys,
    Trust,
    is_daemon_set,
    is_pinned_by_us,
)
from koord.kube.preemption_records import read_deadline, read_nomination
from koord.kube.release import PodForm, decode_plan, is_recorded
from koord.kube.translate.gangs import GangMemberships
from koord.kube.translate.kueue import read_kueue_node
from koord.kube.translate.move_hints import read_move_hints
from koord.kube.translate.node_affinity import AffinityForm
from koord.kube.translate.pod_conditions import (
    POD_SCHEDULED,
    find_unschedulable,
    is_scale_up_mark,
    read_finished,
    read_marks,
    read_time,
)
from koord.kube.translate.shapes import MAX_PARTS, ShapeCache, ShapedSpec, volume_claims_of
from koord.kube.wire import PodSpec, WireObjectMeta, WirePod

MAX_MESSAGE: Final = 512
"""What is kept of a message of kube-scheduler: it names causes by number of nodes, most first."""
MAX_VALUE: Final = 80
"""What is shown of an invalid value."""
MAX_IGNORED: Final = 1 << 10
"""Pods with plans that are not ours, and with keys that are misspelled or invalid, to report."""
_NOT_A_PLAN: Final = MisspelledKey(
    operators.PLAN,
    "was not written by the operators for this pod and its node, and is ignored; remove it, and "
    "leave it out of pods that you create",
)

_NO_LABELS: Final[Mapping[str, str]] = {}
DEFAULT_SCHEDULER: Final = "default-scheduler"
_PHASES: Final = {phase.value: phase for phase in PodPhase} | {"": PodPhase.PENDING}
_WRITTEN_CONDITIONS: Final = frozenset({operators.PLACED, POD_SCHEDULED})

_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer with which the Job controller counts pods; it takes it off once they have ended."""
MAX_FINALIZER: Final = 128

_make_pod: Final = fast_init(Pod)


class PodTranslator:
    """Translates pods, and keeps the form of those that we may write."""

    def __init__(
        self,
        options: TranslatorOptions = TranslatorOptions(),  # noqa: B008 - a frozen value
    ) -> None:
        self.outdated: dict[str, OutdatedPlan] = {}
        """Pod uid -> a plan that counts, but that the current key did not sign."""
        self.ignored: dict[str, tuple[Pod, MisspelledKey]] = {}
        """Uid -> a pod with a plan annotation that is not a plan of ours, or a gated one with a key
        that is nearly one of ours; for whoever reports it."""
        self.marked: dict[str, Pod] = {}
        """Uid -> a pod that waits, and that we have marked for cluster autoscalers."""
        self._plans = options.plans or PlanKeys()
        self._known_plans = KnownPlans()
        self._forged: set[str] = set()
        """uids of pods with a plan that the operators did not write."""
        self._scheduler_name = options.scheduler_name
        self._readers = options.pod_readers
        self._reading_pods = frozenset(
            r for r in self._readers if type(r).read_pod is not PodReader.read_pod
        )
        self._counting = frozenset(r for r in self._readers if type(r).count is not PodReader.count)
        self._shapes = ShapeCache(self._readers)
        self._claims = GangMemberships(options.gang_defaults)
        self._forms: dict[str, PodForm] = {}
        self._texts: BoundedCache[str, str] = BoundedCache(16 * MIB)
        self._owned: BoundedCache[tuple[Any, ...], tuple[OwnerReference, ...]] = BoundedCache(
            16 * MIB
        )
        self._profiles: BoundedCache[tuple[Any, ...], PodLabels] = BoundedCache(16 * MIB)

    def form_of(self, uid: str) -> PodForm | None:
        return self._forms.get(uid)

    def status_of(self, uid: str) -> dict[str, Any]:
        """Return the conditions of a pending pod of ours that we may have written."""
        form = self._forms.get(uid)
        return {"conditions": msgspec.to_builtins(form.conditions)} if form else {}

    def forget(self, pod: Pod) -> None:
        self._forms.pop(pod.uid, None)
        self.marked.pop(pod.uid, None)
        self._known_plans.forget(pod.uid)
        self._forged.discard(pod.uid)
        self.outdated.pop(pod.uid, None)
        self.ignored.pop(pod.uid, None)

    def translate(self, wire: WirePod) -> Pod:
        """Translate a pod. Raises ValueError if a part is invalid."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        labels = meta.labels or _NO_LABELS
        shaped = self._shapes.look_up(wire)
        gates = [gate.name for gate in spec.scheduling_gates or ()]
        recorded = self._recorded(meta, spec.node_name, is_gated=bool(gates))
        pinned_to = shaped.pinned_to
        pinned = bool(pinned_to) and recorded is not None and recorded.node == pinned_to
        size = 0 if spec.node_name else count_annotations(meta.annotations or {})
        exceeded_limit = shaped.exceeded_limit or _find_exceeded_limit(wire, size)
        claims = () if exceeded_limit else volume_claims_of(wire)
        is_delegated = bool(shaped.shape.needs_kube_scheduler or claims)
        handling = self._handling(spec, gates, needs_kube_scheduler=is_delegated, pinned=pinned)
        if recorded is None and is_pinned_by_us(pinned_to, spec.node_name, meta.owner_references):
            handling = Handling.BIND
        is_foreign = handling is Handling.NOT_OURS
        is_daemon = is_foreign and not spec.node_name and _is_awaited_daemon(wire)
        is_deleted = meta.deletion_timestamp is not None
        gone_by = meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else 0.0
        marks = read_marks(wire)
        is_marked = marks.is_reclaimed or marks.preempted_by is not None
        extensions = self._extensions(wire, shaped)
        allocations = self._allocations(meta, shaped.shape, recorded, extensions)
        unschedulable = find_unschedulable(wire) if is_foreign and recorded is not None else None
        pod = _make_pod(
            uid=meta.uid,
            namespace=self._intern(meta.namespace),
            name=meta.name,
            shape=shaped.shape,
            profile=self._profile(meta.namespace, _NO_LABELS if exceeded_limit else labels),
            claims=claims,
            handling=handling,
            gang=self._claims.look_up(meta, _native_group(spec)),
            priority=spec.priority or 0,
            created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
            node=self._intern(spec.node_name),
            phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
            is_terminating=is_deleted or is_marked,
            is_eviction_pending=marks.is_eviction_pending,
            is_reclaimed=marks.is_reclaimed,
            preempted_by=marks.preempted_by,
            nominated=self._nominated(meta, spec.node_name),
            owners=self._owners(meta),
            foreign_gates=_foreign_gates(gates),
            kueue_node=read_kueue_node(wire),
            recorded=recorded,
            pinned=pinned,
            is_gated=bool(gates),
            is_unschedulable=unschedulable is not None,
            scheduler_message=cut(unschedulable.message, MAX_MESSAGE) if unschedulable else "",
            quota=self._intern(labels.get(quota_keys.NAME, "")),
            is_non_preemptible=_is_non_preemptible(labels, recorded),
            never_preempts=PreemptionPolicy.NEVER in {spec.preemption_policy, read_policy(labels)},
            is_protected=is_protected(labels),
            index=_index(meta),
            exceeded_limit=exceeded_limit,
            extensions=extensions,
            allocations=allocations,
            counted=self._count(shaped, extensions, allocations),
            sub_group=self._intern(_annotation(meta, operators.SUB_GROUP)),
            attraction=self._intern(_attraction(meta)),
            reserved_node=self._intern(shaped.pinned_to) if is_daemon and not gates else "",
            move_hints=read_move_hints(meta.annotations, spec.volumes),
            bound=marks.bound,
            disruption=marks.disruption,
            started=status.start_time.timestamp() if status.start_time else 0.0,
            finished=read_finished(status),
            checkpointed=read_time(_annotation(meta, CHECKPOINTED_AT)),
            soft_eviction=_seconds(_annotation(meta, SOFT_EVICTION_TIME)),
            ends_until=read_deadline(_annotation(meta, SOFT_EVICTION)) if is_marked else 0.0,
            marked=marks.since,
            protected=marks.protected,
            gone_by=gone_by,
            deleted=gone_by - (meta.deletion_grace_period_seconds or 0) if gone_by else 0.0,
            grace=spec.termination_grace_period_seconds or 0,
            finalizers=self._finalizers(meta),
            rejection=marks.rejection,
            wait_reason=marks.wait_reason,
            resource_version=meta.resource_version,
        )
        self._remember(pod, wire, shaped.form, size)
        return pod

    def _recorded(self, meta: WireObjectMeta, node: str, *, is_gated: bool) -> RecordedPlan | None:
        """Return the plan of a pod, if the operators wrote it for this pod and it still holds."""
        text = _annotation(meta, operators.PLAN)
        self._forged.discard(meta.uid)
        if not text:
            return self._known_plans.recall(meta.uid, node)
        plan = decode_plan(text)
        trust = self._plans.judge(meta.uid, text, _annotation(meta, operators.PLAN_SIGNATURE))
        # A plan next to a gate was copied: the release writes the one and removes the other.
        if is_gated or plan is None or (plan.node and node not in {"", plan.node}):
            trust = Trust.NONE
        if trust is Trust.OUTDATED:
            self.outdated[meta.uid] = OutdatedPlan(
                f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}", text
            )
        else:
            self.outdated.pop(meta.uid, None)
        if plan is None or trust is Trust.NONE:
            self._forged.add(meta.uid)
            return self._known_plans.recall(meta.uid, node)
        return self._known_plans.keep(meta.uid, plan)

    def _extensions(self, wire: WirePod, shaped: ShapedSpec) -> tuple[tuple[str, Hashable], ...]:
        """Return what a pod says to plugins; most readers look at labels and annotations alone."""
        meta, priority = wire.metadata, wire.spec.priority or 0
        annotations, labels = meta.annotations or _NO_LABELS, meta.labels or _NO_LABELS
        extensions: list[tuple[str, Hashable]] = []
        for reader in shaped.readers:
            if reader in self._reading_pods:
                hints = reader.read_pod(wire, shaped.shape)
            else:
                hints = reader.read_hints(annotations, labels, priority)
            if hints is not None:
                extensions.append((reader.name, hints))
        return tuple(extensions)

    def _allocations(
        self,
        meta: WireObjectMeta,
        shape: PodShape,
        plan: RecordedPlan | None,
        extensions: tuple[tuple[str, Hashable], ...],
    ) -> tuple[Allocation, ...]:
        """Return what a pod was given, if the operators wrote it with its plan."""
        if plan is None or not plan.records:
            return ()
        hints, written = dict(extensions), dict(plan.records)
        allocations: list[Allocation] = []
        for reader in self._readers:
            with suppress(*MALFORMED):
                if text := _recorded_text(meta, plan, reader.record):
                    allocations.append(reader.read_record(meta.uid, text, hints.get(reader.name)))
                elif reader.record in written:
                    lost = reader.replace_lost(meta.uid, shape)
                    allocations += () if lost is None else (lost,)
        return tuple(allocations)

    def _nominated(self, meta: WireObjectMeta, node: str) -> Nominated | None:
        """Return the nomination of a pod that has no node yet, if the operators wrote it."""
        text = "" if node else _annotation(meta, operators.NOMINATION)
        if not text:
            return None
        signature = _annotation(meta, operators.NOMINATION_SIGNATURE)
        return read_nomination(meta.uid, text, signature, self._plans)

    def _handling(
        self,
        spec: PodSpec,
        gates: list[str],
        *,
        needs_kube_scheduler: bool,
        pinned: bool,
    ) -> Handling:
        is_named = spec.scheduler_name == self._scheduler_name
        if operators.PLACEMENT_GATE in gates:
            if len(gates) > 1:
                return Handling.FOREIGN_GATE
            return Handling.RELEASE_AND_BIND if is_named else Handling.RELEASE_PINNED
        if not is_named:
            # Released and pinned by us: either scheduler may bind it. Features that only
            # kube-scheduler supports are left to it.
            return Handling.BIND if pinned and not needs_kube_scheduler else Handling.NOT_OURS
        return Handling.FOREIGN_GATE if gates else Handling.BIND

    def _count(
        self,
        shaped: ShapedSpec,
        extensions: tuple[tuple[str, Hashable], ...],
        allocations: Sequence[Allocation],
    ) -> Counted:
        """Return what quotas count for a pod if it is more than it requests."""
        hints = dict(extensions)
        counted = (
            reader.count(shaped.shape, hints.get(reader.name), allocations)
            for reader in shaped.readers
            if reader in self._counting
        )
        return next(filter(None, counted), ())

    def _remember(self, pod: Pod, wire: WirePod, affinity: AffinityForm, size: int) -> None:
        if pod.is_waiting and (pod.handling is not Handling.NOT_OURS or pod.recorded is not None):
            form = self._forms[pod.uid] = _make_form(wire, affinity, size)
            if any(map(is_scale_up_mark, form.conditions)):
                self.marked[pod.uid] = pod
            else:
                self.marked.pop(pod.uid, None)
        else:
            self._forms.pop(pod.uid, None)
            self.marked.pop(pod.uid, None)
        if len(self.ignored) < MAX_IGNORED:
            meta, ignored = wire.metadata, None
            if pod.uid in self._forged:
                ignored = _NOT_A_PLAN
            elif pod.is_gated:
                ignored = _find_ignored(pod, meta)
            if ignored is not None:
                self.ignored[pod.uid] = pod, ignored

    def _owners(self, meta: WireObjectMeta) -> tuple[OwnerReference, ...]:
        """Return the owners, by name; the pods of one owner share it."""
        if not meta.owner_references:
            return ()
        key = tuple(
            (
                owner_reference.name,
                owner_reference.kind,
                owner_reference.api_version,
                owner_reference.uid,
                bool(owner_reference.controller),
            )
            for owner_reference in meta.owner_references[:MAX_PARTS]
        )
        owners = self._owned.get(key)
        if owners is None:
            owners = tuple(sorted(OwnerReference(*fields) for fields in key))
            self._owned.keep(key, owners, 2 * size_of(key))
        return owners

    def _finalizers(self, meta: WireObjectMeta) -> tuple[str, ...]:
        """Return the finalizers of which nobody knows when they are taken off."""
        if not meta.finalizers:
            return ()
        is_tracked = any(
            owner_reference.kind == "Job" for owner_reference in meta.owner_references or ()
        )
        finalizers = {
            finalizer
            for finalizer in meta.finalizers
            if finalizer != _JOB_TRACKING or not is_tracked
        }
        return tuple(
            self._intern(cut(name, MAX_FINALIZER)) for name in sorted(finalizers)[:MAX_PARTS]
        )

    def _profile(self, namespace: str, labels: Mapping[str, str]) -> PodLabels:
        """Intern a namespace and labels, which many pods share."""
        seen = (namespace, *labels.items())  # servers send labels in one order
        pod_labels = self._profiles.get(seen)
        if pod_labels is None:
            own = {self._intern(key): self._intern(value) for key, value in labels.items()}
            pod_labels = PodLabels(self._intern(namespace), own)
            self._profiles.keep(seen, pod_labels, size_of(own) + size_of(seen))
        return pod_labels

    def _intern(self, text: str) -> str:
        interned = self._texts.get(text)
        return self._texts.keep(text, text, len(text)) if interned is None else interned


def _find_ignored(pod: Pod, meta: WireObjectMeta) -> MisspelledKey | None:
    """Return the first key that a pod has in vain: it is misspelled, or its value is invalid."""
    labels, annotations = meta.labels or _NO_LABELS, meta.annotations or _NO_LABELS
    return (
        next(find_misspelled_keys(labels, annotations), None)
        or _find_bad_run_setting(pod, meta)
        or find_bad_agent_key(labels, annotations)
    )


def _find_bad_run_setting(pod: Pod, meta: WireObjectMeta) -> MisspelledKey | None:
    """Return what a pod says wrongly of its run; of gangs by annotation that is told with them."""
    if pod.gang is not None and pod.gang.declared is not None:
        return None
    for key, value, problem, _ in find_bad_run_settings(meta.annotations or {}):
        return MisspelledKey(key, f'{problem}, and not "{cut(value, MAX_VALUE)}"')
    return None


def _foreign_gates(gates: list[str]) -> tuple[str, ...]:
    if not gates:
        return ()
    return tuple(sorted(gate for gate in gates[:MAX_PARTS] if gate != operators.PLACEMENT_GATE))


def _recorded_text(meta: WireObjectMeta, plan: RecordedPlan, key: str) -> str:
    """Return an annotation that was written with a plan; empty if it was not, or was changed."""
    text = _annotation(meta, key)
    return text if text and is_recorded(plan, key, text) else ""


def make_form(wire: WirePod, affinity: AffinityForm) -> PodForm:
    return _make_form(wire, affinity, count_annotations(wire.metadata.annotations or {}))


def _make_form(wire: WirePod, affinity: AffinityForm, annotation_bytes: int) -> PodForm:
    return PodForm(
        has_annotations=wire.metadata.annotations is not None,
        affinity=affinity,
        conditions=tuple(c for c in wire.status.conditions or () if c.type in _WRITTEN_CONDITIONS),
        annotation_bytes=annotation_bytes,
        time_limit=wire.spec.active_deadline_seconds,
    )


def _find_exceeded_limit(wire: WirePod, size: int) -> ExceededLimit | None:
    """Return of what a pod has too much outside the fields of its shape."""
    meta, spec = wire.metadata, wire.spec
    for what, items in (
        ("labels", meta.labels),
        ("owners", meta.owner_references),
        ("volumes", spec.volumes),
        ("scheduling gates", spec.scheduling_gates),
    ):
        if items and len(items) > MAX_PARTS:
            return ExceededLimit(what, len(items), MAX_PARTS)
    if size > MOST_TO_PLAN:
        return ExceededLimit("bytes of annotations", size, MOST_TO_PLAN)
    return None


def _native_group(spec: PodSpec) -> str:
    return spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""


def _is_awaited_daemon(wire: WirePod) -> bool:
    """Whether kube-scheduler is about to bind a pod of a DaemonSet: room is kept free for it.

    The owner of a pod writes who controls it and who schedules it. So room is kept only while
    kube-scheduler has not refused the pod, and afterwards only for priorities that may take the
    room anyway; how much of it, and how long, is decided by ``AwaitedDaemons``.
    """
    spec, owners = wire.spec, wire.metadata.owner_references or ()
    if spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        return False
    if not any(map(is_daemon_set, owners)):
        return False
    return (spec.priority or 0) >= SYSTEM_CRITICAL or find_unschedulable(wire) is None


def _is_non_preemptible(labels: Mapping[str, str], recorded: RecordedPlan | None) -> bool:
    """Whether a pod must not be evicted: a pod that was admitted without the label gets it late."""
    is_admitted = recorded is None or recorded.is_non_preemptible is not False
    return is_admitted and labels.get(quota_keys.PREEMPTIBLE) == "false"


def _annotation(meta: WireObjectMeta, key: str) -> str:
    return meta.annotations.get(key, "") if meta.annotations else ""


def _attraction(meta: WireObjectMeta) -> str:
    """Return what equal pods share; pods of other namespaces attract nobody."""
    selector = _annotation(meta, NETWORK_TOPOLOGY_SELECTOR)
    return f"{meta.namespace}/{selector}" if selector else ""


def _index(meta: WireObjectMeta) -> int:
    text = _annotation(meta, NETWORK_TOPOLOGY_INDEX)
    index = parse_topology_index(text) if text else NO_INDEX
    return index if isinstance(index, int) else NO_INDEX


def _seconds(text: str) -> float:
    """Return a duration in seconds; 0 if there is none, or none that Go would accept."""
    return max(parse_duration_seconds(text) or 0, 0) if text else 0
