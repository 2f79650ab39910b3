"""ElasticQuotas: from the wire to ``koord.core.quota.model.QuotaSpec``.

Labels and annotations carry most of a quota. What cannot be read is kept by name: the core says
what follows from it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

import msgspec
from typing_extensions import override

from koord.api.annotations import (
    ADMISSION,
    MAX_STRICT_CHECK_RESOURCE_KEYS,
    NODE_SELECTOR,
    QUOTA_NAMESPACES,
    SHARED_WEIGHT,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
)
from koord.api.keys import quota as keys
from koord.api.parse import InvalidObject, JsonAnnotation
from koord.api.quantity import Quantity, parse_quantity
from koord.core.quota.model import ROOT, QuotaSpec
from koord.core.quota.status import RECORDED
from koord.core.selectors import LabelSelector
from koord.core.units import CPU, Amounts
from koord.kube.translate.amounts import encode_amounts
from koord.kube.translate.last_valid_quota import decode_kept
from koord.kube.translate.node_selectors import translate_selector
from koord.kube.translate.statuses import HasUid, SeenStatuses
from koord.kube.wire import ObjectMeta, WireElasticQuota

SHOWN: Final = 256
"""Of a text that cannot be read so much is kept: it ends up in conditions, which have a limit."""

_NOTHING: Final[Mapping[str, str]] = {}
_OLD_NAMES: Final = {
    "koordinator.sh/batch-cpu": "kubernetes.io/batch-cpu",
    "koordinator.sh/batch-memory": "kubernetes.io/batch-memory",
}
_RESULTS: Final = tuple(f"{keys.PREFIX}{name}" for name in RECORDED)
_map_decoder = msgspec.json.Decoder(dict[str, str | int] | None)


class QuotaTranslator(SeenStatuses):
    """Translates ElasticQuotas, and keeps what stands in them for those who write it."""

    def __init__(self) -> None:
        super().__init__()
        self._metas: dict[str, ObjectMeta] = {}

    def meta_of(self, uid: str) -> ObjectMeta | None:
        """Return the metadata that was last seen on an object; None if there is no such object."""
        return self._metas.get(uid)

    def recorded_on(self, uid: str) -> dict[str, str] | None:
        """Return the annotations of results that were last seen; None if there is no object."""
        meta = self._metas.get(uid)
        if meta is None:
            return None
        annotations = meta.annotations or _NOTHING
        return {key: annotations[key] for key in _RESULTS if key in annotations}

    @override
    def forget(self, value: HasUid) -> None:
        super().forget(value)
        self._metas.pop(value.uid, None)

    def translate(self, wire: WireElasticQuota) -> QuotaSpec:
        """Return the core's view of an ElasticQuota, and of what its status keeps."""
        self._metas[wire.metadata.uid] = wire.metadata
        status = self._see(wire.metadata.uid, wire.status)
        return replace(translate_quota(wire), last_valid=_translate_kept(wire.metadata, status))


def make_recorded(amounts: Mapping[str, Amounts]) -> dict[str, str]:
    """Return results as annotations, given by their names without prefix."""
    return {f"{keys.PREFIX}{name}": encode_amounts(one) for name, one in amounts.items() if one}


def read_recorded(annotations: Mapping[str, str]) -> dict[str, Amounts]:
    """Return the results that annotations tell; what cannot be read tells nothing."""
    found: dict[str, Amounts] = {}
    for key, text in annotations.items():
        with suppress(msgspec.DecodeError, ValueError):
            found[key.removeprefix(keys.PREFIX)] = _parse_amounts(text.encode())
    return found


def _translate_kept(meta: ObjectMeta, status: bytes) -> QuotaSpec | None:
    kept = decode_kept(meta, status)
    try:
        return None if kept is None else translate_quota(kept)
    except ValueError:
        return None  # whoever may write a status has written nonsense: as if there were none


def translate_quota(wire: WireElasticQuota) -> QuotaSpec:
    """Return the core's view of an ElasticQuota. Raises ValueError if an amount makes no sense."""
    meta = wire.metadata
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    unreadable: list[tuple[str, str]] = []
    created = meta.creation_timestamp
    return QuotaSpec(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        created=created.timestamp() if created else 0.0,
        parent=labels.get(keys.PARENT) or ROOT,
        is_parent=labels.get(keys.IS_PARENT) == "true",
        lends=labels.get(keys.ALLOW_LENT_RESOURCE) != "false",
        min=_parse_amounts(bytes(wire.spec.min)),
        max=_parse_amounts(bytes(wire.spec.max)),
        weight=_read_amounts(SHARED_WEIGHT, annotations, unreadable),
        tree_id=labels.get(keys.TREE_ID, ""),
        is_tree_root=labels.get(keys.IS_ROOT) == "true",
        ignores_default_tree=labels.get(keys.IGNORE_DEFAULT_TREE) == "true",
        is_forced=labels.get(keys.ALLOW_FORCE_UPDATE) == "true",
        total=_read_amounts(TOTAL_RESOURCE, annotations, unreadable) or {},
        unschedulable=_read_amounts(UNSCHEDULABLE_RESOURCE, annotations, unreadable) or {},
        selector=_read_selector(annotations, unreadable),
        namespaces=_read_names(QUOTA_NAMESPACES, annotations, unreadable),
        strict_keys=_read_names(MAX_STRICT_CHECK_RESOURCE_KEYS, annotations, unreadable),
        admission=_read_amounts(ADMISSION, annotations, unreadable) or None,
        unreadable=tuple(unreadable),
        profile=labels.get(keys.PROFILE, ""),
        generation=meta.generation,
    )


@lru_cache(maxsize=4096)
def _parse_amounts(raw: bytes) -> Amounts:
    """Read ``min`` or ``max``, negative amounts included: that they are is said of the quota."""
    amounts = (_map_decoder.decode(raw) if raw else None) or {}
    return {_rename(name): _count(name, parse_quantity(text)) for name, text in amounts.items()}


def _rename(name: str) -> str:
    return _OLD_NAMES.get(name, name)


def _count(name: str, quantity: Quantity) -> int:
    return quantity.milli if name == CPU else quantity.whole


def _read_amounts(
    annotation: JsonAnnotation[dict[str, Quantity]],
    annotations: Mapping[str, str],
    unreadable: list[tuple[str, str]],
) -> Amounts | None:
    found = annotation.read(annotations)
    if isinstance(found, InvalidObject):
        unreadable.append(_name(annotation.key, annotations))
        return None
    if found is None:
        return None
    return {_rename(name): _count(name, quantity) for name, quantity in found.items()}


def _read_selector(
    annotations: Mapping[str, str], unreadable: list[tuple[str, str]]
) -> LabelSelector:
    found = NODE_SELECTOR.read(annotations)
    if isinstance(found, InvalidObject):
        unreadable.append(_name(NODE_SELECTOR.key, annotations))
        return None
    return None if found is None else translate_selector(found)


def _read_names(
    annotation: JsonAnnotation[list[str]],
    annotations: Mapping[str, str],
    unreadable: list[tuple[str, str]],
) -> tuple[str, ...]:
    found = annotation.read(annotations)
    if isinstance(found, InvalidObject):
        unreadable.append(_name(annotation.key, annotations))
        return ()
    return tuple(dict.fromkeys(found or ()))


def _name(key: str, annotations: Mapping[str, str]) -> tuple[str, str]:
    text = annotations[key]
    return key.removeprefix(keys.PREFIX), text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
