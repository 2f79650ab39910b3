"""ElasticQuotaProfiles: from the wire to ``QuotaProfile``, and the last valid settings.

The model of the resource parses the settings, as strictly as the API server does; what it refuses
is reported on the object. While current settings are invalid, the last valid ones stay in force;
the status keeps them over a restart, in the form of the object.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from koord.api.annotations import RESOURCE_KEYS
from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.api.parse import InvalidObject, parse_value
from koord.api.quotaprofile import (
    DELETE,
    ElasticQuotaProfileSpec,
    find_policy_problems,
)
from koord.caches import cached_by_text
from koord.core.quota.profile import DEFAULT_KEYS, QuotaProfile
from koord.kube.translate.last_valid import read_last_valid
from koord.kube.translate.node_selectors import make_selector, translate_selector
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import WireObjectMeta, WireQuotaProfile

_EXACT: Final = Context(prec=64)
"""More digits than a ratio can have: it is written as a decimal of 32 characters at most."""
_NOTHING: Final[Mapping[str, str]] = {}
_adapter: Final = TypeAdapter(ElasticQuotaProfileSpec)


class ProfileTranslator(SeenStatuses):
    """Translates profiles, and keeps their status for the status writer."""

    def translate(self, wire: WireQuotaProfile) -> QuotaProfile:
        status = self._see(wire.metadata.uid, wire.status)
        profile = translate_profile(wire.metadata, bytes(wire.spec))
        kept = _decode_last_valid(wire.metadata, status) if profile.problems else None
        if kept is None:
            return profile
        last_valid = translate_profile(*kept)
        return profile if last_valid.problems else replace(profile, last_valid=last_valid)


def translate_profile(meta: WireObjectMeta, raw: bytes) -> QuotaProfile:
    """Translate a profile, given its ``spec`` as JSON."""
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    spec = _parse(raw)
    written = RESOURCE_KEYS.read(annotations)
    wrong = [invalid for invalid in (spec, written) if isinstance(invalid, InvalidObject)]
    problems = [str(problem) for invalid in wrong for problem in invalid.problems]
    problems += map(str, find_policy_problems(annotations))
    valid = None if isinstance(spec, InvalidObject) else spec
    return QuotaProfile(
        namespace=meta.namespace,
        name=meta.name,
        quota_name=valid.quota_name if valid else "",
        selector=translate_selector(valid.node_selector) if valid else None,
        tree_id=labels.get(keys.TREE_ID, ""),
        ratio=Fraction(valid.resource_ratio) if valid and valid.resource_ratio else None,
        keys=tuple(dict.fromkeys(written)) if isinstance(written, list) else DEFAULT_KEYS,
        labels=(valid.quota_labels if valid else None) or {},
        uid=meta.uid,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        is_owner=annotations.get(operators.DELETION_POLICY) == DELETE,
        problems=tuple(problems),
        generation=meta.generation,
    )


@cached_by_text()
def _parse(raw: bytes) -> ElasticQuotaProfileSpec | InvalidObject:
    spec: Any = msgspec.json.decode(raw) if raw else {}
    return parse_value(_adapter, spec or {}, at=("spec",))


class _LastValidProfile(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw()
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def encode_last_valid(profile: QuotaProfile) -> dict[str, Any]:
    """Return the settings of a profile in the form of the object, as the status keeps them."""
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


def _decode_last_valid(meta: WireObjectMeta, status: bytes) -> tuple[WireObjectMeta, bytes] | None:
    """Return metadata and spec with the last valid settings from a status; None without any."""
    kept = read_last_valid(status, _LastValidProfile)
    if kept is None:
        return None
    labelled = msgspec.structs.replace(meta, labels=kept.labels, annotations=kept.annotations)
    return labelled, bytes(kept.spec)


def _write_ratio(ratio: Fraction) -> str:
    return f"{_EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)):f}"
