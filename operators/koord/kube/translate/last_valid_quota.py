"""What an ElasticQuota's status keeps of settings that were in force, and back from there.

While what is written cannot be used, what was valid last goes on; kept in the status, it outlives a
restart. It has the form of the object: ``min`` and ``max``, and labels and annotations beside them.
"""

from typing import Any

import msgspec

from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.core.quota.model import ROOT, QuotaSpec
from koord.kube.translate.amounts import encode_amounts, write_amounts
from koord.kube.translate.last_valid import read_kept
from koord.kube.translate.node_selectors import encode_selector
from koord.kube.wire import ElasticQuotaSpec, ObjectMeta, WireElasticQuota


class _Kept(msgspec.Struct):
    min: msgspec.Raw = msgspec.Raw()
    max: msgspec.Raw = msgspec.Raw()
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def encode_kept(spec: QuotaSpec) -> dict[str, Any]:
    """Return the settings of a quota as they are kept."""
    labels = {
        keys.PARENT: "" if spec.parent == ROOT else spec.parent,
        keys.IS_PARENT: _write(spec.is_parent),
        keys.ALLOW_LENT_RESOURCE: _write(spec.lends),
        keys.TREE_ID: spec.tree_id,
        keys.IS_ROOT: _write(spec.is_tree_root),
        keys.IGNORE_DEFAULT_TREE: _write(spec.ignores_default_tree),
        keys.ALLOW_FORCE_UPDATE: _write(spec.is_forced),
    }
    annotations = {
        keys.SHARED_WEIGHT: encode_amounts(spec.weight or {}),
        keys.TOTAL_RESOURCE: encode_amounts(spec.total),
        keys.UNSCHEDULABLE_RESOURCE: encode_amounts(spec.unschedulable),
        keys.ADMISSION: encode_amounts(spec.admission or {}),
        keys.NAMESPACES: msgspec.json.encode(spec.namespaces).decode(),
        keys.MAX_STRICT_CHECK_RESOURCE_KEYS: msgspec.json.encode(spec.strict_keys).decode(),
    }
    if spec.selector:
        annotations[operators.NODE_SELECTOR] = encode_selector(spec.selector)
    return {
        "min": write_amounts(spec.min),
        "max": write_amounts(spec.max),
        "labels": labels,
        "annotations": annotations,
    }


def decode_kept(meta: ObjectMeta, status: bytes) -> WireElasticQuota | None:
    """Return an object with the settings that its status keeps; None if it keeps none."""
    kept = read_kept(status, _Kept)
    if kept is None:
        return None
    return WireElasticQuota(
        msgspec.structs.replace(meta, labels=kept.labels, annotations=kept.annotations),
        ElasticQuotaSpec(kept.min, kept.max),
    )


def _write(flag: bool) -> str:  # noqa: FBT001 - what is written
    return "true" if flag else "false"
