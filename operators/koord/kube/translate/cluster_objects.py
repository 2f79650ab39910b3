"""Nodes, namespaces, volumes, volume claims, their classes, topologies: what decides placement.

The layers of a ClusterNetworkTopology are not validated here. Its status is kept for its writers,
and the last valid layers are read from it.
"""

from typing import Final

import msgspec

from koord.api.keys import operators
from koord.api.networktopology import ClusterNetworkTopologySpec
from koord.api.preemption import PreemptionPolicy
from koord.api.shape import Shape
from koord.caches import cached_by_text
from koord.core.model.nodes import CORDONED, FAILED, Namespace, Node, Taint
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, SelectorTerm
from koord.core.plugins.late_volumes import (
    FILESYSTEM,
    NOTHING_WANTED,
    StorageClass,
    VolumeOffer,
    WantedVolume,
)
from koord.core.plugins.volumes import ZONE_LABELS, Volume, VolumeClaim
from koord.core.reservation.lifecycle import PriorityClass
from koord.core.topology.cache import Topology
from koord.core.topology.layers import Layer
from koord.kube.translate.amounts import parse_amounts, parse_requests
from koord.kube.translate.colocation import read_node_facts
from koord.kube.translate.load_hints import read_own_limits
from koord.kube.translate.node_affinity import parse_node_selector
from koord.kube.translate.node_slo import read_bandwidth
from koord.kube.translate.numa import read_amplification, read_reserved
from koord.kube.translate.pod_conditions import read_time
from koord.kube.translate.pod_constraints import WireSelector
from koord.kube.translate.pod_constraints import parse_selector as parse_label_selector
from koord.kube.translate.ratios import read_shown_ratios
from koord.kube.translate.shapes import MAX_REQUIREMENTS
from koord.kube.translate.statuses import SeenStatuses, read_last_valid
from koord.kube.wire import (
    VolumeClaimSpec,
    WireCustomResource,
    WireNamespace,
    WireNode,
    WireObjectMeta,
    WirePriorityClass,
    WireStorageClass,
    WireVolume,
    WireVolumeClaim,
)

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_ONE_POD: Final = "ReadWriteOncePod"
_DELAYED: Final = "WaitForFirstConsumer"
_BETWEEN_ZONES: Final = "__"
_STORAGE: Final = "storage"
_AVAILABLE: Final = "Available"
_MADE_BY: Final = "pv.kubernetes.io/provisioned-by"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class _WireTaint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class _AddedTaint(msgspec.Struct, gc=False):
    key: str = ""
    added: str | None = msgspec.field(default=None, name="timeAdded")


class _TopologyLabel(msgspec.Struct, gc=False):
    key: str = ""
    values: list[str] | None = None


class _TopologyTerm(msgspec.Struct, gc=False):
    labels: list[_TopologyLabel] | None = msgspec.field(default=None, name="matchLabelExpressions")


_selector_decoder = msgspec.json.Decoder(WireSelector | None)
_topologies_decoder = msgspec.json.Decoder(list[_TopologyTerm] | None)
_taints_decoder = msgspec.json.Decoder(list[_WireTaint] | None)
_added_decoder = msgspec.json.Decoder(list[_AddedTaint] | None)


def translate_node(wire: WireNode) -> Node:
    meta, spec = wire.metadata, wire.spec
    annotations = meta.annotations or {}
    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        taints=_parse_taints(bytes(spec.taints)),
        is_unschedulable=bool(spec.unschedulable),
        is_terminating=meta.deletion_timestamp is not None,
        allocatable=parse_amounts(bytes(wire.status.allocatable)),
        published=_split(annotations.get(operators.PUBLISHED, "")),
        reserved=read_reserved(annotations),
        amplification=read_amplification(annotations),
        extensions=(
            *read_own_limits(annotations),
            *read_node_facts(wire),
            *read_shown_ratios(annotations),
            *read_bandwidth(annotations),
        ),
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        capacity=parse_amounts(bytes(wire.status.capacity)),
        out_since=_read_out_since(bytes(spec.taints)),
        resource_version=meta.resource_version,
    )


def _read_out_since(taints: bytes) -> float:
    """Return when a node got a taint that says that it has failed, or else is cordoned."""
    if b"timeAdded" not in taints:
        return 0.0
    written = _added_decoder.decode(taints) or ()
    keys = FAILED if any(taint.key in FAILED for taint in written) else CORDONED
    added = [read_time(taint.added or "") for taint in written if taint.key in keys]
    return min(filter(None, added), default=0.0)


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


@cached_by_text()
def _parse_taints(raw: bytes) -> tuple[Taint, ...]:
    """Sorted, without the times at which they were added."""
    wire = (_taints_decoder.decode(raw) if raw else None) or ()
    return tuple(Taint(*fields) for fields in sorted((t.key, t.value, t.effect) for t in wire))


def translate_namespace(wire: WireNamespace) -> Namespace:
    return Namespace(wire.metadata.name, wire.metadata.labels or {})


def translate_volume_claim(wire: WireVolumeClaim) -> VolumeClaim:
    meta, spec = wire.metadata, wire.spec
    annotations = meta.annotations or {}
    return VolumeClaim(
        key=f"{meta.namespace}/{meta.name}",
        volume=spec.volume_name,
        is_bound=bool(spec.volume_name) and _BIND_COMPLETED in annotations,
        is_lost=wire.status.phase == "Lost",
        is_terminating=meta.deletion_timestamp is not None,
        is_exclusive=_ONE_POD in (spec.access_modes or ()),
        # The legacy annotation still takes precedence over the field.
        storage_class=annotations.get(_CLASS, spec.storage_class_name or ""),
        owner=_owner_of(meta),
        wanted=NOTHING_WANTED if spec.volume_name else _wanted(spec),
    )


def _wanted(spec: VolumeClaimSpec) -> WantedVolume:
    return WantedVolume(
        size=parse_requests(bytes(spec.resources)).get(_STORAGE, 0),
        access_modes=tuple(sorted(spec.access_modes or ())),
        volume_mode=spec.volume_mode or FILESYSTEM,
        selector=_read_selector(bytes(spec.selector)),
    )


@cached_by_text()
def _read_selector(raw: bytes) -> LabelSelector:
    """No selector selects every volume, one that is too long none."""
    wire = _selector_decoder.decode(raw) if raw else None
    selector = () if wire is None else parse_label_selector(wire)
    return None if selector is not None and len(selector) > MAX_REQUIREMENTS else selector


def translate_volume(wire: WireVolume) -> Volume:
    spec = wire.spec
    disks = (
        spec.gce_persistent_disk,
        spec.aws_elastic_block_store,
        spec.azure_disk,
        spec.cinder,
        spec.portworx_volume,
    )
    labels = wire.metadata.labels or {}
    return Volume(
        name=wire.metadata.name,
        terms=_terms_of(bytes(spec.node_affinity.required)) if spec.node_affinity else None,
        zones=tuple(_zones(key, labels[key]) for key in ZONE_LABELS if _is_zone(labels.get(key))),
        is_in_tree=any(map(bool, disks)),
        offer=_offer(wire),
        provisioner=(wire.metadata.annotations or {}).get(_MADE_BY, ""),
    )


def _offer(wire: WireVolume) -> VolumeOffer | None:
    """Return what a volume offers to claims; kube-scheduler takes available ones only."""
    meta, spec = wire.metadata, wire.spec
    claim = spec.claim_ref
    if wire.status.phase != _AVAILABLE or meta.deletion_timestamp is not None:
        return None
    return VolumeOffer(
        storage_class=(meta.annotations or {}).get(_CLASS, spec.storage_class_name),
        size=parse_amounts(bytes(spec.capacity)).get(_STORAGE, 0),
        access_modes=tuple(sorted(spec.access_modes or ())),
        volume_mode=spec.volume_mode or FILESYSTEM,
        labels=tuple(sorted((meta.labels or {}).items())),
        claim="" if claim is None else f"{claim.namespace}/{claim.name}",
    )


def translate_storage_class(wire: WireStorageClass) -> StorageClass:
    return StorageClass(
        wire.metadata.name,
        is_delayed=wire.volume_binding_mode == _DELAYED,
        is_static=wire.provisioner == _NO_PROVISIONER,
        terms=_parse_topologies(bytes(wire.allowed_topologies)),
        provisioner=wire.provisioner,
    )


@cached_by_text()
def _parse_topologies(raw: bytes) -> tuple[SelectorTerm, ...] | None:
    """Return ``allowedTopologies`` as terms of which one must hold; None: any node."""
    wire = _topologies_decoder.decode(raw) if raw else None
    return (
        tuple(SelectorTerm(tuple(map(_one_of, term.labels or ()))) for term in wire or ()) or None
    )


def _one_of(label: _TopologyLabel) -> Requirement:
    return Requirement(label.key, SelectorOperator.IN, tuple(label.values or ()))


def translate_priority_class(wire: WirePriorityClass) -> PriorityClass:
    is_never = wire.preemption_policy == PreemptionPolicy.NEVER
    return PriorityClass(wire.metadata.name, wire.value, is_never)


@cached_by_text()
def _terms_of(raw: bytes) -> tuple[SelectorTerm, ...] | None:
    return parse_node_selector(raw) if raw else None


def _owner_of(meta: WireObjectMeta) -> str:
    controllers = (
        owner_reference.uid
        for owner_reference in meta.owner_references or ()
        if owner_reference.controller
    )
    return next(controllers, "")


def _is_zone(value: str | None) -> bool:
    """Whether a label is valid; kube-scheduler ignores one with an empty zone in it."""
    return value is not None and all(name.strip() for name in value.split(_BETWEEN_ZONES))


def _zones(key: str, value: str) -> tuple[str, tuple[str, ...]]:
    return key, tuple(sorted({name.strip() for name in value.split(_BETWEEN_ZONES)}))


_TOPOLOGY: Final = Shape(ClusterNetworkTopologySpec, ("spec",))
MAX_LAYERS: Final = 64
"""More are cut off; the API server allows 16."""


class TopologyTranslator(SeenStatuses):
    """Translates topologies, and keeps their statuses for their writers."""

    def translate(self, wire: WireCustomResource) -> Topology:
        meta = wire.metadata
        raw = self._see(meta.uid, wire.status)
        return Topology(
            name=meta.name,
            layers=_translate_layers(_TOPOLOGY.read(bytes(wire.spec))),
            uid=meta.uid,
            generation=meta.generation,
            last_valid=_translate_layers(read_last_valid(raw, _TOPOLOGY)),
        )


def _translate_layers(spec: ClusterNetworkTopologySpec | None) -> tuple[Layer, ...]:
    layers = spec.network_topology_spec if spec is not None else ()
    return tuple(
        Layer(layer.topology_layer, layer.parent_topology_layer or "", tuple(layer.label_key or ()))
        for layer in layers[:MAX_LAYERS]
    )
