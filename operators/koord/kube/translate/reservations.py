"""Reservations, and what pods say about them: from the wire to ``koord.core.reservation``.

What cannot be read is left out and named.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from pydantic import TypeAdapter
from typing_extensions import override

from koord.api.annotations import (
    EXACT_MATCH,
    INNER_RESERVED,
    RESERVATION_AFFINITY,
    RESIZE_ALLOCATABLE,
    RESTRICTED_OPTIONS,
    ReservationAffinity,
    ResourceAmounts,
    SelectorRequirement,
)
from koord.api.keys import quota as quota_keys
from koord.api.keys.operators import PROTECTION
from koord.api.keys.reservation import (
    IGNORED,
    ORDER,
    PRE_ALLOCATABLE_PRIORITY,
    PRE_ALLOCATION_REQUIRED,
)
from koord.api.parse import InvalidObject, JsonAnnotation, parse_value
from koord.api.quantity import parse_duration_seconds
from koord.api.reservation import (
    ControllerReference,
    ReservationCondition,
    ReservationOwner,
    ReservationSpec,
    ReservationStatus,
)
from koord.api.resource import ObjectReference
from koord.api.shape import Shape
from koord.caches import cached_by_text
from koord.core.model.nodes import Taint
from koord.core.model.pods import Allocation, Handling, Pod, Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.model.text import listed
from koord.core.model.units import Amounts
from koord.core.reservation.model import (
    ALLOCATED,
    NAME,
    NO_HINTS,
    POD_PREFIX,
    AllocatePolicy,
    ControllerOwner,
    HoldProtection,
    ObjectOwner,
    Owner,
    PreAllocation,
    ReservationHints,
    ReservationInfo,
    ReservationState,
    ReservationUse,
    StatusCondition,
)
from koord.kube.decode import MALFORMED
from koord.kube.kind import PodReader
from koord.kube.objects import ref_of_pod
from koord.kube.translate.amounts import parse_amount, to_amounts
from koord.kube.translate.node_affinity import translate_selector
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.statuses import HasUid, SeenStatuses
from koord.kube.wire import PodSpec, WireCustomResource, WireObjectMeta, WirePod

if TYPE_CHECKING:
    from koord.kube.plan_keys import OutdatedPlan

PRIORITY: Final = "koordinator.sh/priority"
_SPEC: Final = TypeAdapter(ReservationSpec)
_DEFAULT_NAMESPACE: Final = "default"
Problems = list[tuple[str, str]]


class _TemplateSpec(PodSpec, gc=False):
    """Pods have the value of their class besides its name."""

    priority_class_name: str = ""


class _PodTemplate(Struct, gc=False):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _TemplateSpec = msgspec.field(default_factory=_TemplateSpec)


class _ReservationSpec(Struct, gc=False):
    template: _PodTemplate | None = None


_spec_decoder = msgspec.json.Decoder(_ReservationSpec)
_any_decoder = msgspec.json.Decoder(dict[str, Any])
_STATUS: Final = Shape(
    ReservationStatus,
    only={
        ReservationStatus: ("phase", "node_name", "allocatable", "conditions"),
        ReservationCondition: (
            "type", "status", "reason", "message", "last_probe_time", "last_transition_time"
        ),
    },
)  # fmt: skip


class ReservationTranslator(SeenStatuses):
    """Translates Reservations, and keeps their statuses for their writers."""

    def __init__(self, pods: PodTranslator | None = None) -> None:
        super().__init__()
        self.outdated: dict[str, OutdatedPlan] = {}
        """Uid -> a plan that counts, but that the current key did not sign."""
        self._pods = pods or PodTranslator()

    def forget(self, value: HasUid) -> None:
        super().forget(value)
        self.outdated.pop(value.uid, None)

    def translate(self, wire: WireCustomResource) -> ReservationInfo:
        meta = wire.metadata
        status = read_status(self._see(meta.uid, wire.status))
        problems = Problems()
        template = _read_template(bytes(wire.spec), problems)
        pod = self._make_pod(meta, template, status.node) if template is not None else None
        spec = _parse_spec(bytes(wire.spec))
        annotations, labels = meta.annotations or {}, meta.labels or {}
        reservation = ReservationInfo(
            name=meta.name,
            uid=meta.uid,
            pod=pod,
            labels=labels,
            status=status,
            options=_read_options(annotations, problems),
            order=_read_order(labels.get(ORDER, "")),
            namespace=template.metadata.namespace if template is not None else "",
            pinned_to=template.spec.node_name if template is not None else "",
            priority_class=template.spec.priority_class_name if template is not None else "",
            is_unschedulable=meta.deletion_timestamp is not None,
            created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
            inner=_read_amounts(INNER_RESERVED, annotations, problems),
            resize=_read_amounts(RESIZE_ALLOCATABLE, annotations, problems),
            protection=_read_protection(annotations, problems),
            generation=meta.generation,
        )
        if isinstance(spec, InvalidObject):
            problems += [(f"spec.{problem.field}", problem.message) for problem in spec.problems]
            return replace(reservation, problems=tuple(problems))
        return _with_spec(reservation, spec, problems)

    def _make_pod(self, meta: WireObjectMeta, template: _PodTemplate, node: str) -> Pod:
        """Return the pod that is planned for a reservation: its template, with its labels.

        Its allocations are those that the operators recorded for its node.
        """
        inner, spec = template.metadata, template.spec
        labels = {**(inner.labels or {}), **(meta.labels or {})}
        pod_meta = WireObjectMeta(
            name=f"{POD_PREFIX}{meta.name}",
            namespace=inner.namespace or _DEFAULT_NAMESPACE,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=labels,
            annotations={**(inner.annotations or {}), **(meta.annotations or {})},
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
        )
        # Of a scheduler of others: the translator need not remember how to write it.
        bare = msgspec.structs.replace(spec, node_name="", scheduling_gates=None, scheduler_name="")
        made = self._pods.translate(WirePod(pod_meta, bare))
        self._take_outdated(made)
        is_there = made.recorded is not None and made.recorded.node == node
        return replace(
            made,
            recorded=None,
            nominated=None if node else made.nominated,
            allocations=made.allocations if is_there else (),
            handling=Handling.RESERVE,
            priority=_read_priority(spec, labels),
            quota=labels.get(quota_keys.NAME, ""),
        )

    def _take_outdated(self, pod: Pod) -> None:
        """Keep the outdated plan of a reservation, and nothing else of a pod."""
        outdated = self._pods.outdated.get(pod.uid)
        self._pods.forget(pod)
        if outdated is None:
            self.outdated.pop(pod.uid, None)
        else:
            path = ref_of_pod(replace(pod, handling=Handling.RESERVE)).path
            self.outdated[pod.uid] = outdated._replace(path=path)


def _with_spec(
    reservation: ReservationInfo, spec: ReservationSpec, problems: Problems
) -> ReservationInfo:
    seconds = parse_duration_seconds(spec.ttl)
    return replace(
        reservation,
        owners=tuple(map(_translate_owner, spec.owners)),
        policy=AllocatePolicy(spec.allocate_policy or ""),
        taints=tuple(
            Taint(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()
        ),
        is_once=spec.allocate_once,
        pre_allocation=_read_pre_allocation(reservation, spec),
        is_unschedulable=reservation.is_unschedulable or bool(spec.unschedulable),
        ttl=float(seconds) if seconds else None,
        expires=spec.expires.timestamp() if spec.expires is not None else None,
        problems=tuple(problems + list(_find_bad_selectors(spec))),
    )


def _read_pre_allocation(
    reservation: ReservationInfo, spec: ReservationSpec
) -> PreAllocation | None:
    if not spec.pre_allocation:
        return None
    policy = spec.pre_allocation_policy
    return PreAllocation(
        is_clusterwide=policy is not None and policy.mode == "Cluster",
        takes_many=policy is not None and policy.enable_multiple,
        is_required=reservation.labels.get(PRE_ALLOCATION_REQUIRED) == "true",
    )


def _find_bad_selectors(spec: ReservationSpec) -> Iterator[tuple[str, str]]:
    for at, owner in enumerate(spec.owners):
        selector = owner.label_selector
        for number, match_expression in enumerate(
            selector.match_expressions or () if selector else ()
        ):
            if (match_expression.operator in {"In", "NotIn"}) != bool(match_expression.values):
                field = f"spec.owners[{at}].labelSelector.matchExpressions[{number}].values"
                operator = match_expression.operator
                yield field, f"must have values for In and NotIn, and only then: {operator}"


@cached_by_text()
def _parse_spec(raw: bytes) -> ReservationSpec | InvalidObject:
    value = _any_decoder.decode(raw) if raw else {}
    return parse_value(_SPEC, value)


def _read_template(raw: bytes, problems: Problems) -> _PodTemplate | None:
    try:
        return _spec_decoder.decode(raw).template if raw else None
    except MALFORMED as error:
        problems.append(("spec.template", str(error)))
        return None


def _read_priority(spec: PodSpec, labels: Mapping[str, str]) -> int:
    if spec.priority is not None:
        return spec.priority
    try:
        return int(labels.get(PRIORITY, ""))
    except ValueError:
        return 0


def _read_order(text: str) -> int:
    """Return the order of a reservation; a text that is no number counts as none."""
    try:
        return int(text or "0")
    except ValueError:
        return 0


def _read_options(annotations: Mapping[str, str], problems: Problems) -> tuple[str, ...]:
    options = RESTRICTED_OPTIONS.read(annotations)
    if isinstance(options, InvalidObject):
        problems += [(problem.field, problem.message) for problem in options.problems]
    return tuple(options.resources) if options and not isinstance(options, InvalidObject) else ()


def _read_protection(annotations: Mapping[str, str], problems: Problems) -> HoldProtection:
    text = annotations.get(PROTECTION, HoldProtection.LEDGER)
    if text in {*HoldProtection}:
        return HoldProtection(text)
    problems.append(
        (f"metadata.annotations[{PROTECTION}]", f"must be one of {listed(HoldProtection)}: {text}")
    )
    return HoldProtection.LEDGER


def _read_amounts(
    key: JsonAnnotation[ResourceAmounts], annotations: Mapping[str, str], problems: Problems
) -> Amounts:
    written = key.read(annotations)
    if isinstance(written, InvalidObject):
        problems += [(problem.field, problem.message) for problem in written.problems]
        return {}
    amounts = (written.resources if written else None) or {}
    return {name: parse_amount(name, str(amount)) for name, amount in amounts.items()}


def _translate_owner(owner: ReservationOwner) -> Owner:
    return Owner(
        _translate_object(owner.object) if owner.object else None,
        _translate_controller(owner.controller) if owner.controller else None,
        translate_selector(owner.label_selector) if owner.label_selector else None,
    )


def _translate_object(object_reference: ObjectReference) -> ObjectOwner:
    return ObjectOwner(
        object_reference.name or "",
        object_reference.namespace or "",
        object_reference.uid or "",
        object_reference.api_version or "",
    )


def _translate_controller(controller_reference: ControllerReference) -> ControllerOwner:
    return ControllerOwner(
        controller_reference.name,
        controller_reference.namespace or "",
        controller_reference.uid,
        controller_reference.kind,
        controller_reference.api_version,
        controller_reference.controller,
    )


def read_status(raw: bytes) -> ReservationState:
    """Return what a status says; one that cannot be read says nothing."""
    try:
        status = _STATUS.read(raw)
    except MALFORMED:
        status = _STATUS.read(b"")
    return ReservationState(
        phase=status.phase if "phase" in status.model_fields_set else "",
        node=status.node_name or "",
        allocatable=to_amounts(status.allocatable),
        conditions=tuple(map(_translate_condition, status.conditions or ())),
    )


def _translate_condition(condition: ReservationCondition) -> StatusCondition:
    probed, changed = condition.last_probe_time, condition.last_transition_time
    return StatusCondition(
        condition.type,
        condition.status or "",
        condition.reason or "",
        condition.message or "",
        probed.timestamp() if probed else 0.0,
        changed.timestamp() if changed else 0.0,
    )


MOST_DIGITS: Final = 12
_HINT_KEYS: Final = frozenset({RESERVATION_AFFINITY.key, EXACT_MATCH.key})


class _Use(Struct, gc=False):
    name: str
    uid: str


_use_decoder = msgspec.json.Decoder(_Use)


def read_reservation_hints(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> ReservationHints:
    """Return what a pod says about reservations, and what of it cannot be read."""
    is_ignoring = "true" in {labels.get(IGNORED), annotations.get(IGNORED)}
    rank = _read_rank(annotations)
    if _HINT_KEYS.isdisjoint(annotations):
        is_silent = not is_ignoring and not rank
        return NO_HINTS if is_silent else ReservationHints(is_ignoring=is_ignoring, rank=rank)
    affinity, exact = RESERVATION_AFFINITY.read(annotations), EXACT_MATCH.read(annotations)
    invalid = [invalid for invalid in (affinity, exact) if isinstance(invalid, InvalidObject)]
    if invalid:
        problems = tuple(
            (problem.field, problem.message)
            for invalid_object in invalid
            for problem in invalid_object.problems
        )
        return ReservationHints(has_affinity=True, problems=problems)
    names = tuple(exact.resource_names) if exact and not isinstance(exact, InvalidObject) else ()
    if affinity is None or isinstance(affinity, InvalidObject):
        return ReservationHints(exact=names, is_ignoring=is_ignoring, rank=rank)
    return ReservationHints(
        has_affinity=True,
        name=affinity.name,
        selector=tuple(sorted(affinity.reservation_selector.items())),
        terms=_read_terms(affinity),
        tolerations=tuple(
            Toleration(
                toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect
            )
            for toleration in affinity.tolerations
        ),
        exact=names,
        is_ignoring=is_ignoring,
        rank=rank,
    )


class ReservationPodReader(PodReader):
    """Reads what pods say about reservations, and which one they use."""

    name = NAME
    record = ALLOCATED

    @override
    def read_hints(
        self, annotations: Mapping[str, str], labels: Mapping[str, str], priority: int
    ) -> Hashable | None:
        hints = read_reservation_hints(annotations, labels)
        return None if hints is NO_HINTS else hints

    @override
    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        return read_use(uid, text)


def _read_rank(annotations: Mapping[str, str]) -> int:
    """Return the rank of a pod; a text that is no number counts as none."""
    try:
        return int(annotations.get(PRE_ALLOCATABLE_PRIORITY, "0")[:MOST_DIGITS])
    except ValueError:
        return 0


def _read_terms(affinity: ReservationAffinity) -> tuple[SelectorTerm, ...] | None:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return None
    return tuple(
        SelectorTerm(
            tuple(map(_read_requirement, term.match_expressions)),
            tuple(map(_read_requirement, term.match_fields)),
        )
        for term in required.reservation_selector_terms
    )


def _read_requirement(selector_requirement: SelectorRequirement) -> Requirement:
    return Requirement(
        selector_requirement.key,
        SelectorOperator(selector_requirement.operator),
        tuple(selector_requirement.values),
    )


def read_use(pod: str, text: str) -> ReservationUse:
    """Return what the annotation of a pod (uid) records. Raises ValueError."""
    allocated = _use_decoder.decode(text)
    return ReservationUse(pod, allocated.name, allocated.uid)
