"""PodMigrationJobs, and the pods that they move: from the wire to ``koord.core.migration``.

Of a pod much more is asked before it is moved than planning needs, so its manifest is read then.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from koord.api.keys import migration as keys
from koord.api.podmigrationjob import (
    PodMigrationCondition,
    PodMigrationJobSpec,
    PodMigrationJobStatus,
)
from koord.api.quantity import parse_duration_seconds
from koord.api.resource import ObjectReference
from koord.api.shape import Shape
from koord.core.migration.model import (
    JobMode,
    JobPhase,
    JobStatus,
    JobStep,
    MigrationJob,
    MovedPod,
    MoveOrigin,
    PodReference,
    StepCondition,
)
from koord.core.model.pods import OwnerReference
from koord.kube.decode import MALFORMED
from koord.kube.translate.move_hints import read_cost, read_move_hints
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import (
    SchedulingGate,
    WireCondition,
    WireCustomResource,
    WireObjectMeta,
    WirePodVolume,
)

_SPEC: Final = Shape(PodMigrationJobSpec, ("spec",))
_STATUS: Final = Shape(
    PodMigrationJobStatus,
    only={
        PodMigrationJobStatus: (
            "phase", "status", "reason", "message", "conditions", "node_name", "pod_ref"
        ),
        PodMigrationCondition: ("type", "status", "reason", "message", "last_transition_time"),
    },
)  # fmt: skip
_PHASES: Final = {phase.value: phase for phase in JobPhase}
_MODES: Final = {mode.value: mode for mode in JobMode}
_STEPS: Final = {step.value: step for step in JobStep}
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_MANY: Final = 1 << 30
_NO_REASON: Final = "NotSet"
_NO_TEXTS: Final[Mapping[str, str]] = {}


class _WireMoveOrigin(Struct):
    node: str = ""
    workload: str = ""
    gang: str = ""
    created: float = 0.0


_origin_decoder: Final = msgspec.json.Decoder(_WireMoveOrigin)


class PodMigrationJobTranslator(SeenStatuses):
    """Translates PodMigrationJobs, and keeps their statuses for their writers."""

    def translate(self, wire: WireCustomResource) -> MigrationJob:
        meta = wire.metadata
        status = _read_status(self._see(meta.uid, wire.status))
        spec = _SPEC.read(bytes(wire.spec))
        labels, annotations = meta.labels or _NO_TEXTS, meta.annotations or _NO_TEXTS
        pod, options = spec.pod_ref, spec.reservation_options
        reference = None if options is None else options.reservation_ref
        seconds = parse_duration_seconds(spec.ttl) if spec.ttl else None
        grace = None if spec.delete_options is None else spec.delete_options.grace_period_seconds
        group = labels.get(keys.GROUP, "")
        is_named = bool(pod.namespace and pod.name)
        return MigrationJob(
            meta.name,
            meta.uid,
            _read_reference(pod),
            meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
            ttl=float(seconds) if seconds else None,
            mode=_MODES.get(spec.mode or ""),
            is_paused=bool(spec.paused),
            is_admitted=annotations.get(keys.PASSED_ARBITRATION) == "true",
            reservation=(reference.name or "") if reference is not None else "",
            group=group,
            group_size=_read_size(annotations) if group else 1,
            target=annotations.get(keys.TARGET_NODE, ""),
            policy=labels.get(keys.EVICT_POLICY, ""),
            reason=annotations.get(keys.EVICT_REASON)
            or annotations.get(keys.EVICT_TRIGGER)
            or _NO_REASON,
            created_by=annotations.get(keys.CREATED_BY, ""),
            evicts_protected=keys.EVICT in annotations,
            grace=grace,
            origin=_read_origin(annotations),
            status=status,
            problem="" if is_named else "spec.podRef must name a pod and its namespace",
            generation=meta.generation,
        )


def _read_reference(pod: ObjectReference) -> PodReference:
    return PodReference(pod.namespace or "", pod.name or "", pod.uid or "")


def _read_size(annotations: Mapping[str, str]) -> int:
    text = annotations.get(keys.GROUP_SIZE, "")
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return size or _MANY


def _read_origin(annotations: Mapping[str, str]) -> MoveOrigin:
    text = annotations.get(keys.ORIGIN, "")
    try:
        read = _origin_decoder.decode(text) if text else _WireMoveOrigin()
    except MALFORMED:
        return MoveOrigin()
    return MoveOrigin(read.node, read.workload, read.gang, read.created)


def write_origin(origin: MoveOrigin) -> str:
    wire = _WireMoveOrigin(origin.node, origin.workload, origin.gang, origin.pod_created)
    return msgspec.json.encode(wire).decode()


def _read_status(raw: bytes) -> JobStatus:
    try:
        status = _STATUS.read(raw)
    except MALFORMED:
        return JobStatus()
    conditions = {
        _STEPS[condition.type]: StepCondition(
            condition.status == "True",
            condition.reason or "",
            condition.message or "",
            condition.last_transition_time.timestamp() if condition.last_transition_time else 0.0,
        )
        for condition in status.conditions or ()
        if condition.type in _STEPS
    }
    pod = status.pod_ref
    return JobStatus(
        _PHASES.get(status.phase, JobPhase.PENDING),
        status.status or "",
        status.reason or "",
        status.message or "",
        status.node_name or "",
        None if pod is None else _read_reference(pod),
        conditions,
    )


class _MovedSpec(Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None
    priority: int | None = None
    volumes: list[WirePodVolume] | None = None


class _MovedStatus(Struct, rename="camel"):
    phase: str = ""
    qos_class: str = ""
    conditions: list[WireCondition] | None = None


class WireMovedPod(Struct):
    """A pod, with the fields that decide whether it may be moved."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _MovedSpec = msgspec.field(default_factory=_MovedSpec)
    status: _MovedStatus = msgspec.field(default_factory=_MovedStatus)


def read_moved_pod(wire: WireMovedPod, *, is_ours: bool = False, gang: str = "") -> MovedPod:
    """Return a pod as the rules of migration see it; ``is_ours`` and ``gang`` are known already."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    annotations, volumes = meta.annotations or _NO_TEXTS, spec.volumes or ()
    hints = read_move_hints(annotations, volumes)
    return MovedPod(
        meta.namespace,
        meta.name,
        meta.uid,
        node=spec.node_name,
        owners=tuple(
            OwnerReference(
                owner.name, owner.kind, owner.api_version, owner.uid, bool(owner.controller)
            )
            for owner in meta.owner_references or ()
        ),
        labels=meta.labels or _NO_TEXTS,
        priority=spec.priority or 0,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        phase=status.phase,
        qos=status.qos_class,
        scheduler=spec.scheduler_name,
        is_ours=is_ours,
        gang=gang,
        is_ready=any(
            condition.type == "Ready" and condition.status == "True"
            for condition in status.conditions or ()
        ),
        is_terminating=meta.deletion_timestamp is not None,
        is_static=hints.is_static,
        has_local_storage=hints.has_local_storage,
        has_memory_storage=hints.has_memory_storage,
        has_claims=any(volume.persistent_volume_claim is not None for volume in volumes),
        evicts_protected=hints.evicts_protected,
        eviction_cost=hints.eviction_cost,
        deletion_cost=read_cost(annotations.get(_DELETION_COST, "")),
        policy=(meta.labels or _NO_TEXTS).get(keys.EVICT_POLICY, ""),
    )
