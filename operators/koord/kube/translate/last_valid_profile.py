"""What an ElasticQuotaProfile's status keeps of settings that were in force, and back from there.

While what is written cannot be used, what was valid last goes on; kept in the status, it outlives a
restart. It has the form of the object: ``spec``, and labels and annotations beside it.
"""

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.api.quotaprofile import DELETE
from koord.core.quota.profile import QuotaProfile
from koord.kube.translate.last_valid import read_kept
from koord.kube.translate.node_selectors import make_selector
from koord.kube.wire import ObjectMeta

_EXACT: Final = Context(prec=64)
"""More digits than a ratio can have: it is written as a decimal of 32 characters at most."""


class _Kept(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw()
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def encode_kept_profile(profile: QuotaProfile) -> dict[str, Any]:
    """Return the settings of a profile as they are kept."""
    spec: dict[str, Any] = {
        "quotaName": profile.quota_name,
        "nodeSelector": make_selector(profile.selector or ()),
    }
    if profile.labels:
        spec["quotaLabels"] = dict(profile.labels)
    if profile.ratio is not None:
        spec["resourceRatio"] = _write_ratio(profile.ratio)
    annotations = {keys.RESOURCE_KEYS: msgspec.json.encode(profile.keys).decode()}
    if profile.is_owner:
        annotations[operators.DELETION_POLICY] = DELETE
    labels = {keys.TREE_ID: profile.tree_id} if profile.tree_id else {}
    return {"spec": spec, "labels": labels, "annotations": annotations}


def decode_kept_profile(meta: ObjectMeta, status: bytes) -> tuple[ObjectMeta, bytes] | None:
    """Return metadata and spec with the settings that a status keeps; None if it keeps none."""
    kept = read_kept(status, _Kept)
    if kept is None:
        return None
    labelled = msgspec.structs.replace(meta, labels=kept.labels, annotations=kept.annotations)
    return labelled, bytes(kept.spec)


def _write_ratio(ratio: Fraction) -> str:
    return f"{_EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)):f}"
