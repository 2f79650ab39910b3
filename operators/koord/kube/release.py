"""What the release of a pod writes: one patch, and the plan annotation that it leaves.

The release is a JSON patch because it must fail as a whole when the pod differs from what was
planned: ``test`` on the uid and the gate stops a stale leader from changing a pod that was
recreated or released already, and ``test … null`` protects what others added meanwhile. The
annotation is encoded and decoded here only, with the values of the core.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

from koord.api.gang import encode_bind_record
from koord.api.keys import operators
from koord.caches import cached_by_text
from koord.core.gang.start import make_bind_record
from koord.core.model.object_size import MOST_ANNOTATIONS, count_annotations
from koord.core.model.plan import Assignment, Placement
from koord.core.model.pods import Handling, RecordedPlan
from koord.kube.decode import MALFORMED
from koord.kube.plan_keys import PlanKeys, annotation_path, label_path
from koord.kube.translate.node_affinity import (
    NODE_NAME_FIELD,
    AffinityDepth,
    AffinityForm,
    TermForm,
)
from koord.kube.wire import WireCondition

Operation: TypeAlias = dict[str, Any]

_ANNOTATIONS: Final = "/metadata/annotations"
_TIME_LIMIT: Final = "/spec/activeDeadlineSeconds"
_AFFINITY: Final = "/spec/affinity"
_NODE_AFFINITY: Final = f"{_AFFINITY}/nodeAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = f"{_NODE_AFFINITY}/{_REQUIRED}/nodeSelectorTerms"


@dataclass(frozen=True, slots=True)
class PodForm:
    """The parts of a pending pod's manifest on which the patch depends."""

    has_annotations: bool
    affinity: AffinityForm
    conditions: tuple[WireCondition, ...] = ()
    annotation_bytes: int = 0
    time_limit: int | None = None
    """`activeDeadlineSeconds`."""

    def is_limited_to(self, seconds: int) -> bool:
        """Whether the pod is ended after so long in any case; its limit cannot be raised."""
        return self.time_limit is not None and self.time_limit <= seconds


@dataclass(frozen=True, slots=True)
class Written:
    """What a release writes to the metadata of a pod, and its binding again."""

    annotations: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    time_limit: int | None = None
    """Of the run, in seconds; the spec of the pod is to have it."""

    def fits_surely(self, form: PodForm | None) -> bool:
        """Whether a pod has room for the annotations, whichever of them it has already."""
        if form is None:
            return False
        return form.annotation_bytes + count_annotations(self.annotations) <= MOST_ANNOTATIONS


def make_release_patch(assignment: Assignment, form: PodForm, written: Written) -> list[Operation]:
    """Return the patch; a pod of which its own scheduler chooses the node is not pinned."""
    pod = assignment.pod
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": operators.PLACEMENT_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        *_annotate(form, written.annotations),
        *(
            {"op": "add", "path": label_path(key), "value": value}
            for key, value in written.labels.items()
        ),
    ]
    limit = written.time_limit
    if limit is not None and not form.is_limited_to(limit):
        operations.append({"op": "add", "path": _TIME_LIMIT, "value": limit})
    if pod.handling is Handling.RELEASE_PINNED and not assignment.is_open:
        operations += _pin(form.affinity, assignment.node)
    return operations


def _annotate(form: PodForm, annotations: Mapping[str, str]) -> list[Operation]:
    if not form.has_annotations:
        return _add_absent(_ANNOTATIONS, dict(annotations))
    return [
        {"op": "add", "path": annotation_path(key), "value": value}
        for key, value in annotations.items()
    ]


def _pin(form: AffinityForm, node: str) -> list[Operation]:
    """Restrict every required term to one node; terms are ORed, so each needs it."""
    field = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    match form.depth:
        case AffinityDepth.NONE:
            return _add_absent(_AFFINITY, {"nodeAffinity": {_REQUIRED: required}})
        case AffinityDepth.AFFINITY:
            return _add_absent(_NODE_AFFINITY, {_REQUIRED: required})
        case AffinityDepth.NODE_AFFINITY:
            return _add_absent(f"{_NODE_AFFINITY}/{_REQUIRED}", required)
        case AffinityDepth.REQUIRED:
            return [op for i, term in enumerate(form.terms) for op in _narrow(i, term, field)]


def _narrow(index: int, term: TermForm, field: Operation) -> list[Operation]:
    path = f"{_TERMS}/{index}/matchFields"
    match term:
        case TermForm.EMPTY:
            # It matches no node, and the server does not allow changing it.
            return []
        case TermForm.EXPRESSIONS:
            return _add_absent(path, [field])
        case TermForm.FIELDS:
            return [{"op": "add", "path": f"{path}/-", "value": field}]


def _add_absent(path: str, value: Any) -> list[Operation]:
    """Set an absent field; the server treats a test for null as a test for absence."""
    return [
        {"op": "test", "path": path, "value": None},
        {"op": "add", "path": path, "value": value},
    ]


class _PlanAnnotation(msgspec.Struct, omit_defaults=True, gc=False):
    node: str
    plan: str
    group: str = ""
    members: int = 1
    strength: int = 0
    gap: str | msgspec.UnsetType = msgspec.UNSET
    youngest: int = 0
    start: str = ""
    quota: str = ""
    fixed: bool | msgspec.UnsetType = msgspec.UNSET
    records: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(_PlanAnnotation)


def encode_metadata(
    assignment: Assignment, placement: Placement, keys: PlanKeys, now: int
) -> Written:
    """Return what is written with the release and again with the binding.

    ``now`` is in unix nanoseconds. Labels are only added to pods that have some.
    """
    record = make_bind_record(assignment.pod, placement.group, placement.uids)
    members = record.member_count if record is not None else 1
    gang = assignment.pod.gang
    strength = placement.strengths.get(gang.key, 0) if gang is not None else 0
    node = "" if assignment.is_open else assignment.node
    plan = _PlanAnnotation(node, placement.plan_id, placement.group, members, strength)
    plan.gap = placement.gap or msgspec.UNSET
    plan.quota = placement.charged.get(assignment.pod.uid, "")
    plan.fixed = assignment.pod.is_non_preemptible
    if record is not None:
        plan.youngest = int(placement.youngest)
        plan.start = record.start_id
    uid = assignment.pod.uid
    writes = [
        write
        for allocation in assignment.allocations
        for write in allocation.writes()
        if write.uid == uid
    ]
    plan.records = {
        write.key: _digest(write.value) for write in writes if write.is_record
    } or msgspec.UNSET
    text = msgspec.json.encode(plan).decode()
    signature = keys.sign(assignment.pod.uid, text)
    annotations = {operators.PLAN: text, operators.PLAN_SIGNATURE: signature}
    if record is not None:
        annotations |= encode_bind_record(record.group, record.member_count)
    annotations |= {
        write.key: str(now) if write.is_time else write.value
        for write in writes
        if not write.is_label
    }
    labels = {write.key: write.value for write in writes if write.is_label}
    return Written(annotations, labels, placement.time_limits.get(uid))


def encode_reservation(
    assignment: Assignment, placement: Placement, keys: PlanKeys
) -> dict[str, str]:
    """Return the annotations of a reservation that holds more than amounts; none for others.

    They are its plan and what is read back from it, as of a pod.
    """
    uid = assignment.pod.uid
    writes = (write for allocation in assignment.allocations for write in allocation.writes())
    records = {write.key for write in writes if write.is_record and write.uid == uid}
    if not records:
        return {}
    kept = records | {operators.PLAN, operators.PLAN_SIGNATURE}
    written = encode_metadata(assignment, placement, keys, 0).annotations
    return {key: value for key, value in written.items() if key in kept}


def add_record(plan: str, key: str, value: str) -> str:
    """Return a plan annotation that covers one more annotation. Raises ValueError."""
    try:
        made = _decoder.decode(plan)
    except MALFORMED as error:
        raise ValueError(str(error)) from error
    made.records = {**(made.records or {}), key: _digest(value)}
    return msgspec.json.encode(made).decode()


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def is_recorded(plan: RecordedPlan, key: str, text: str) -> bool:
    """Whether an annotation is as it was written with a plan, which is signed."""
    return (key, _digest(text)) in plan.records


@cached_by_text()
def decode_plan(text: str) -> RecordedPlan | None:
    """Decode a plan annotation; None if we cannot have written it."""
    if len(text) > MOST_ANNOTATIONS:  # what the API server accepted can be read
        return None
    try:
        plan = _decoder.decode(text)
    except MALFORMED:
        return None
    if not plan.plan or plan.members < 1 or plan.strength < 0:
        return None
    return RecordedPlan(
        plan.node,
        plan.plan,
        plan.group,
        plan.members,
        plan.strength,
        plan.gap or "",
        float(plan.youngest),
        plan.start,
        plan.quota,
        None if plan.fixed is msgspec.UNSET else plan.fixed,
        tuple((plan.records or {}).items()),
    )
