"""Nodes, namespaces, volumes, claims and classes of both: the fields that decide placement."""

from typing import Final

import msgspec

from koord.api.keys import operators
from koord.api.preemption import PreemptionPolicy
from koord.caches import cached_by_text
from koord.core.nodes import Namespace, Node, Taint
from koord.core.plugins.volumes import ZONE_LABELS, StorageClass, Volume, VolumeClaim
from koord.core.reservation.priority import PriorityClass
from koord.core.selectors import SelectorTerm
from koord.kube.translate.amounts import parse_amounts
from koord.kube.translate.node_affinity import parse_node_selector
from koord.kube.translate.numa import read_amplification, read_reserved
from koord.kube.wire import (
    ObjectMeta,
    WireClaim,
    WireNamespace,
    WireNode,
    WirePriorityClass,
    WireStorageClass,
    WireVolume,
)

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_ONE_POD: Final = "ReadWriteOncePod"
_DELAYED: Final = "WaitForFirstConsumer"
_BETWEEN_ZONES: Final = "__"


class _WireTaint(msgspec.Struct, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


_taints_decoder = msgspec.json.Decoder(list[_WireTaint] | None)


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
        resource_version=meta.resource_version,
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


@cached_by_text()
def _parse_taints(raw: bytes) -> tuple[Taint, ...]:
    """Sorted, without the times at which they were added."""
    wire = (_taints_decoder.decode(raw) if raw else None) or ()
    return tuple(Taint(*fields) for fields in sorted((t.key, t.value, t.effect) for t in wire))


def translate_namespace(wire: WireNamespace) -> Namespace:
    return Namespace(wire.metadata.name, wire.metadata.labels or {})


def translate_claim(wire: WireClaim) -> VolumeClaim:
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
    )


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
    )


def translate_storage_class(wire: WireStorageClass) -> StorageClass:
    return StorageClass(wire.metadata.name, wire.volume_binding_mode == _DELAYED)


def translate_priority_class(wire: WirePriorityClass) -> PriorityClass:
    is_never = wire.preemption_policy == PreemptionPolicy.NEVER
    return PriorityClass(wire.metadata.name, wire.value, is_never)


@cached_by_text()
def _terms_of(raw: bytes) -> tuple[SelectorTerm, ...] | None:
    return parse_node_selector(raw) if raw else None


def _owner_of(meta: ObjectMeta) -> str:
    controllers = (one.uid for one in meta.owner_references or () if one.controller)
    return next(controllers, "")


def _is_zone(value: str | None) -> bool:
    """Whether a label is valid; kube-scheduler ignores one with an empty zone in it."""
    return value is not None and all(one.strip() for one in value.split(_BETWEEN_ZONES))


def _zones(key: str, value: str) -> tuple[str, tuple[str, ...]]:
    return key, tuple(sorted({one.strip() for one in value.split(_BETWEEN_ZONES)}))
