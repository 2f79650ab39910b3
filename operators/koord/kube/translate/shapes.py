"""The shape of a pod, cached by the raw bytes of all fields that it depends on.

Equal pods of one job cost one dictionary lookup each. Equal shapes are one object, even if their
bytes differ, until the cache is full; then it is cleared, and shapes remain equal but may no longer
be identical.

Pods may be almost as large as the API server allows. What is planned is bounded: a pod with more
than ``MAX_TEXT`` or ``LIMITS`` allow has only its requests in its shape, and an ``exceeded_limit``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from koord.caches import EXPANSION, MIB, BoundedCache, size_of
from koord.core.model.constraints import ClaimUse, PodConstraints
from koord.core.model.pod_requests import InitContainer, effective_requests, resized_requests
from koord.core.model.pods import ExceededLimit, HostPort, PodShape
from koord.core.model.selectors import SelectorTerm
from koord.core.model.units import Amounts
from koord.kube.kind import PodReader
from koord.kube.translate.amounts import parse_amounts, parse_requests
from koord.kube.translate.node_affinity import (
    AffinityForm,
    ParsedAffinity,
    parse_affinity,
    parse_selector,
    parse_tolerations,
)
from koord.kube.translate.pod_constraints import (
    parse_constraints,
    spread_label_keys,
)
from koord.kube.wire import Container, ContainerPort, ContainerStatus, PodSpec, WirePod

MAX_TEXT: Final = 64 * 1024
"""Bytes of all fields of a pod that its shape depends on."""
MAX_RESOURCES: Final = 64
MAX_TERMS: Final = 64
MAX_REQUIREMENTS: Final = 256
MAX_PARTS: Final = 256
_CACHE: Final = 32 * MIB
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - as kube-scheduler reads an absent hostIP

_Key: TypeAlias = tuple[Any, ...]
_encode: Final = msgspec.json.Encoder().encode
_objects_decoder = msgspec.json.Decoder(list[dict[str, Any]] | None)


@dataclass(frozen=True, slots=True)
class ShapedSpec:
    """A shape, and the form of the affinity, for the writers."""

    shape: PodShape
    form: AffinityForm
    pinned_to: str
    readers: tuple[PodReader, ...] = ()
    """Those whose hints matter for the shape."""
    exceeded_limit: ExceededLimit | None = None


class ShapeCache:
    """Caches the shapes of pod specs."""

    def __init__(self, readers: Iterable[PodReader] = ()) -> None:
        self._readers = tuple(readers)
        self._known: BoundedCache[_Key, ShapedSpec] = BoundedCache(_CACHE)
        self._shapes: BoundedCache[PodShape, PodShape] = BoundedCache(_CACHE)

    def look_up(self, pod: WirePod) -> ShapedSpec:
        key = _key_of(pod)
        shaped_spec = self._known.get(key)
        if shaped_spec is None:
            size = size_of(key)
            shaped_spec = self._make(pod, size, _count_text(key))
            self._known.keep(key, shaped_spec, EXPANSION * size)
        return shaped_spec

    def _make(self, pod: WirePod, size: int, text: int) -> ShapedSpec:
        if text > MAX_TEXT:
            bare = PodShape(requests=_requests_of(pod)[:MAX_RESOURCES])
            too_long = ExceededLimit("bytes of scheduling rules and requests", text, MAX_TEXT)
            return ShapedSpec(bare, AffinityForm(), "", self._concerned(bare), too_long)
        affinity = parse_affinity(bytes(pod.spec.affinity))
        shape = _make_shape(pod, affinity, size)
        exceeded_limit = _find_exceeded_limit(shape, pod.spec)
        if exceeded_limit is not None:
            shape = PodShape(requests=shape.requests[:MAX_RESOURCES])
        cached = self._shapes.get(shape)
        shape = self._shapes.keep(shape, shape, EXPANSION * size) if cached is None else cached
        return ShapedSpec(
            shape, affinity.form, affinity.pinned_to, self._concerned(shape), exceeded_limit
        )

    def _concerned(self, shape: PodShape) -> tuple[PodReader, ...]:
        return tuple(reader for reader in self._readers if reader.concerns(shape))


def _count_text(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_count_text, value)) if isinstance(value, tuple) else 0


def _find_exceeded_limit(shape: PodShape, spec: PodSpec) -> ExceededLimit | None:
    """Return what a pod has too much of; the first in a fixed order."""
    rules = shape.constraints or PodConstraints()
    terms = len(rules.affinity) + len(rules.anti_affinity) + len(rules.preferred)
    spread = len(rules.spread) + len(rules.even)
    node_terms = [*(shape.terms or ()), *(term for _, term in shape.preferences)]
    requirements = len(shape.node_selector)
    requirements += sum(
        len(node_term.expressions) + len(node_term.fields) for node_term in node_terms
    )
    for pods in rules.selectors:
        requirements += len(pods.selector or ()) + len(pods.namespace_selector or ())
    containers = len(spec.containers or ()) + len(spec.init_containers or ())
    for what, count, most in (
        ("terms of pod affinity and anti-affinity", terms, MAX_TERMS),
        ("topology spread constraints", spread, MAX_TERMS),
        ("requirements in selectors and affinity", requirements, MAX_REQUIREMENTS),
        ("tolerations", len(shape.tolerations), MAX_PARTS),
        ("host ports", len(shape.host_ports), MAX_PARTS),
        ("containers", containers, MAX_PARTS),
        ("requested resources", len(shape.requests), MAX_RESOURCES),
    ):
        if count > most:
            return ExceededLimit(what, count, most)
    return None


def _key_of(pod: WirePod) -> _Key:
    """Return all that the shape depends on; names and images are not part of it."""
    spec = pod.spec
    requirements = (
        spec.containers,
        spec.init_containers,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.resource_claims,
    )
    return (
        bool(spec.node_name),
        _encode(requirements),  # faster than a tuple of all parts
        _constraints_key(pod),
        _inline_disks(spec) if spec.volumes else (),
        _resizes_key(pod) if spec.node_name else None,
    )


def _resizes_key(pod: WirePod) -> _Key:
    status = pod.status
    resized = (
        status.container_statuses,
        status.init_container_statuses,
        status.allocated_resources,
        status.resources,
    )
    return _encode(resized), _is_resize_infeasible(pod)


def _make_shape(pod: WirePod, affinity: ParsedAffinity, size: int) -> PodShape:
    spec = pod.spec
    return PodShape(
        requests=_requests_of(pod),
        node_selector=parse_selector(bytes(spec.node_selector)),
        terms=_relevant_terms(affinity, is_bound=bool(spec.node_name)),
        tolerations=parse_tolerations(bytes(spec.tolerations)),
        host_ports=_all_host_ports(spec),
        preferences=affinity.preferences,
        constraints=_constraints_of(pod),
        needs_kube_scheduler=_unsupported_fields(spec),
        overhead=_overhead_of(spec),
        size=size,
    )


def _relevant_terms(affinity: ParsedAffinity, *, is_bound: bool) -> tuple[SelectorTerm, ...] | None:
    """Drop the pin to a node from bound pods: otherwise each node would have its own shapes."""
    return None if is_bound and affinity.pinned_to else affinity.terms


def _requests_of(pod: WirePod) -> tuple[tuple[str, int], ...]:
    spec, status = pod.spec, pod.status
    resized: dict[str, ContainerStatus] = {}
    pod_level = parse_requests(bytes(spec.resources))
    if spec.node_name:
        statuses = (status.container_statuses or []) + (status.init_container_statuses or [])
        resized = {s.name: s for s in statuses if s.resources}
        if pod_level and status.resources:
            pod_level = resized_requests(
                pod_level,
                parse_amounts(bytes(status.allocated_resources)),
                parse_requests(bytes(status.resources)),
                is_infeasible=_is_resize_infeasible(pod),
            )
    is_infeasible = bool(resized) and _is_resize_infeasible(pod)
    return effective_requests(
        [_current_requests(c, resized, is_infeasible=is_infeasible) for c in spec.containers or ()],
        [
            _init_requests(c, resized, is_infeasible=is_infeasible)
            for c in spec.init_containers or ()
        ],
        overhead=parse_amounts(bytes(spec.overhead)),
        pod_level=pod_level,
    )


def _overhead_of(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    parsed = parse_amounts(bytes(spec.overhead))
    return tuple(sorted((name, amount) for name, amount in parsed.items() if amount > 0))


def _current_requests(
    container: Container, statuses: dict[str, ContainerStatus], *, is_infeasible: bool
) -> Amounts:
    requested = parse_requests(bytes(container.resources))
    status = statuses.get(container.name)
    if status is None:
        return requested
    allocated = parse_amounts(bytes(status.allocated_resources))
    actual = parse_requests(bytes(status.resources))
    return resized_requests(requested, allocated, actual, is_infeasible=is_infeasible)


def _init_requests(
    container: Container, statuses: dict[str, ContainerStatus], *, is_infeasible: bool
) -> InitContainer:
    if not _is_sidecar(container):
        return InitContainer(parse_requests(bytes(container.resources)))
    return InitContainer(
        _current_requests(container, statuses, is_infeasible=is_infeasible), is_sidecar=True
    )


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _is_resize_infeasible(pod: WirePod) -> bool:
    return any(
        c.type == "PodResizePending" and c.reason == "Infeasible"
        for c in pod.status.conditions or ()
    )


def _all_host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    sidecars = filter(_is_sidecar, spec.init_containers or ())
    ports = {p for c in (*(spec.containers or ()), *sidecars) for p in _host_ports(c.ports or ())}
    return tuple(HostPort(*port) for port in sorted(ports))


def _host_ports(ports: Iterable[ContainerPort]) -> tuple[tuple[int, str, str], ...]:
    return tuple(
        (p.host_port, p.protocol or "TCP", p.host_ip or _ANY_ADDRESS) for p in ports if p.host_port
    )


def _constraints_key(pod: WirePod) -> _Key | None:
    """Return the parts that pod constraints depend on: spread, namespace and some labels."""
    spec = pod.spec
    spread = bytes(spec.topology_spread_constraints)
    # Most pods have neither: a fast check, without false negatives.
    if not (spread or b'"podA' in bytes(spec.affinity)):
        return None
    labels = pod.metadata.labels or {}
    keys = spread_label_keys(spread)
    return spread, pod.metadata.namespace, tuple((k, labels[k]) for k in keys if k in labels)


def _constraints_of(pod: WirePod) -> PodConstraints | None:
    key = _constraints_key(pod)
    if key is None:
        return None
    spread, namespace, labels = key
    return parse_constraints(bytes(pod.spec.affinity), spread, namespace, labels)


_DISKS: Final = {
    "gcePersistentDisk": "gce_persistent_disk",
    "awsElasticBlockStore": "aws_elastic_block_store",
    "iscsi": "iscsi",
    "rbd": "rbd",
}
"""Disks named in the pod itself, which pods cannot always share."""


def _inline_disks(spec: PodSpec) -> tuple[str, ...]:
    return tuple(
        f"spec.volumes[{at}].{name}"
        for at, volume in enumerate(spec.volumes or ())
        for name, field in _DISKS.items()
        if getattr(volume, field)
    )


def _unsupported_fields(spec: PodSpec) -> tuple[str, ...]:
    """Return the fields that only kube-scheduler supports; planning checks volume claims."""
    claims = ("spec.resourceClaims",) if _parse_objects(bytes(spec.resource_claims)) else ()
    return (*claims, *_inline_disks(spec))


def volume_claims_of(pod: WirePod) -> tuple[ClaimUse, ...]:
    meta = pod.metadata
    uses = []
    for at, volume in enumerate(pod.spec.volumes or ()):
        if volume.persistent_volume_claim is not None:
            key = f"{meta.namespace}/{volume.persistent_volume_claim.claim_name}"
            uses.append(ClaimUse(key, at))
        elif volume.ephemeral:
            uses.append(ClaimUse(f"{meta.namespace}/{meta.name}-{volume.name}", at, is_own=True))
    return tuple(uses)


def _parse_objects(raw: bytes) -> list[dict[str, Any]]:
    return (_objects_decoder.decode(raw) if raw else None) or []
