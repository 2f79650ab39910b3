"""ElasticQuotas and ElasticQuotaProfiles: from the wire to the core; last valid settings.

Labels and annotations carry most of a quota. Annotations that cannot be read are kept by name: the
core decides what follows. While current settings are invalid, the last valid ones stay in force;
the status keeps them over a restart, in the form of the object.

The model of the resource parses the settings of a profile, as strictly as the API server does; what
it refuses is reported on the object.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter
from typing_extensions import override

from koord.api.annotations import (
    ADMISSION,
    MAX_STRICT_CHECK_RESOURCE_KEYS,
    NODE_SELECTOR,
    QUEUE,
    QUOTA_NAMESPACES,
    QUOTA_SHARED_WITH,
    RESOURCE_KEYS,
    SHARED_WEIGHT,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
)
from koord.api.elasticquota import ElasticQuotaSpec, KeptQuota
from koord.api.keys import operators
from koord.api.keys import quota as keys
from koord.api.parse import InvalidObject, JsonAnnotation, parse_value
from koord.api.quantity import Quantity, parse_quantity
from koord.api.queue import encode_queue, values_of
from koord.api.quotaprofile import (
    DELETE,
    ElasticQuotaProfileSpec,
    KeptProfile,
    find_policy_problems,
)
from koord.api.shape import Shape
from koord.caches import cached_by_text
from koord.core.model.selectors import LabelSelector
from koord.core.model.units import CPU, Amounts
from koord.core.quota.model import ROOT, QuotaSpec
from koord.core.quota.profile import DEFAULT_KEYS, QuotaProfile
from koord.core.quota.status import RECORDED
from koord.kube.decode import MALFORMED
from koord.kube.translate.amounts import encode_amounts, write_quantities
from koord.kube.translate.budget_records import read_budget
from koord.kube.translate.node_affinity import encode_selector, make_selector, translate_selector
from koord.kube.translate.queue_records import read_record
from koord.kube.translate.statuses import HasUid, SeenStatuses, read_last_valid
from koord.kube.wire import WireCustomResource, WireObjectMeta

SHOWN: Final = 256
"""Characters kept of an unreadable text: it ends up in conditions, which have a limit."""

_PRIORITY: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_PRIORITIES: Final = 2**31
"""Priorities of pods are below it, and not below its negative."""
_NOTHING: Final[Mapping[str, str]] = {}
_OLD_NAMES: Final = {
    "koordinator.sh/batch-cpu": "kubernetes.io/batch-cpu",
    "koordinator.sh/batch-memory": "kubernetes.io/batch-memory",
}
_RESULTS: Final = tuple(f"{keys.PREFIX}{name}" for name in RECORDED)
_QUOTA: Final = Shape(ElasticQuotaSpec, ("spec",))
_KEPT_QUOTA: Final = Shape(KeptQuota)
_KEPT_PROFILE: Final = Shape(KeptProfile)
_map_decoder = msgspec.json.Decoder(dict[str, str | int] | None)


class QuotaTranslator(SeenStatuses):
    """Translates ElasticQuotas, and keeps their metadata and status for the status writer."""

    def __init__(self) -> None:
        super().__init__()
        self._metas: dict[str, WireObjectMeta] = {}

    def meta_of(self, uid: str) -> WireObjectMeta | None:
        """Return the metadata last seen on an object; None if there is no such object."""
        return self._metas.get(uid)

    def recorded_on(self, uid: str) -> dict[str, str] | None:
        """Return the annotations of results last seen; None if there is no such object."""
        meta = self._metas.get(uid)
        if meta is None:
            return None
        annotations = meta.annotations or _NOTHING
        return {key: annotations[key] for key in _RESULTS if key in annotations}

    def finalizers_on(self, uid: str) -> list[str] | None:
        """Return ours of the finalizers last seen; None if there is no such object."""
        meta = self._metas.get(uid)
        if meta is None:
            return None
        return [finalizer for finalizer in meta.finalizers or () if finalizer == operators.IN_USE]

    def metadata_of(self, uid: str) -> dict[str, Any] | None:
        """Return what the status writer owns of the metadata; None if there is no such object."""
        finalizers = self.finalizers_on(uid)
        if finalizers is None:
            return None
        return {"annotations": self.recorded_on(uid) or {}, "finalizers": finalizers}

    @override
    def forget(self, value: HasUid) -> None:
        super().forget(value)
        self._metas.pop(value.uid, None)

    def translate(self, wire: WireCustomResource) -> QuotaSpec:
        self._metas[wire.metadata.uid] = wire.metadata
        status = self._see(wire.metadata.uid, wire.status)
        last_valid, record = _translate_last_valid(wire.metadata, status), read_record(status)
        budget = read_budget(status)
        if last_valid is not None and (record or budget):
            last_valid = replace(last_valid, queue_record=record, budget_record=budget)
        return replace(
            translate_quota(wire),
            last_valid=last_valid,
            queue_record=record,
            budget_record=budget,
        )


def make_recorded(amounts: Mapping[str, Amounts]) -> dict[str, str]:
    """Return results, given by name without prefix, as annotations."""
    return {
        f"{keys.PREFIX}{name}": encode_amounts(amount) for name, amount in amounts.items() if amount
    }


def read_recorded(annotations: Mapping[str, str]) -> dict[str, Amounts]:
    """Return the results in annotations; unreadable ones are left out."""
    results: dict[str, Amounts] = {}
    for key, text in annotations.items():
        with suppress(*MALFORMED):
            results[key.removeprefix(keys.PREFIX)] = read_amounts(text.encode())
    return results


def _translate_last_valid(meta: WireObjectMeta, status: bytes) -> QuotaSpec | None:
    kept = read_last_valid(status, _KEPT_QUOTA)
    if kept is None:
        return None
    labelled = msgspec.structs.replace(meta, labels=kept.labels, annotations=kept.annotations)
    try:
        return _translate(labelled, kept)
    except ValueError:
        return None  # somebody else has written nonsense into the status


def translate_quota(wire: WireCustomResource) -> QuotaSpec:
    """Translate an ElasticQuota. Raises ValueError if an amount cannot be parsed."""
    return _translate(wire.metadata, _QUOTA.read(bytes(wire.spec)))


def _translate(meta: WireObjectMeta, spec: ElasticQuotaSpec | KeptQuota) -> QuotaSpec:
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
        min=_to_amounts(spec.min),
        max=_to_amounts(spec.max),
        weight=_read_weight(annotations, unreadable),
        tree_id=labels.get(keys.TREE_ID, ""),
        is_tree_root=labels.get(keys.IS_ROOT) == "true",
        ignores_default_tree=labels.get(keys.IGNORE_DEFAULT_TREE) == "true",
        is_forced=labels.get(keys.ALLOW_FORCE_UPDATE) == "true",
        total=_read_amounts(TOTAL_RESOURCE, annotations, unreadable) or {},
        unschedulable=_read_amounts(UNSCHEDULABLE_RESOURCE, annotations, unreadable) or {},
        selector=_read_selector(annotations, unreadable),
        namespaces=_read_names(QUOTA_NAMESPACES, annotations, unreadable),
        shared_with=_read_names(QUOTA_SHARED_WITH, annotations, unreadable),
        strict_keys=_read_names(MAX_STRICT_CHECK_RESOURCE_KEYS, annotations, unreadable),
        max_priority=_read_priority(annotations, unreadable),
        admission=_read_amounts(ADMISSION, annotations, unreadable) or None,
        queue=_read_queue(annotations, unreadable),
        unreadable=tuple(unreadable),
        is_terminating=meta.deletion_timestamp is not None,
        profile=labels.get(keys.PROFILE, ""),
        generation=meta.generation,
    )


@cached_by_text()
def read_amounts(raw: bytes) -> Amounts:
    """Parse a map of amounts; negative ones are for the core to report. May raise ValueError."""
    amounts = (_map_decoder.decode(raw) if raw else None) or {}
    return _to_amounts({name: parse_quantity(text) for name, text in amounts.items()})


def _to_amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    return {_rename(name): _count(name, quantity) for name, quantity in (quantities or {}).items()}


def _rename(name: str) -> str:
    return _OLD_NAMES.get(name, name)


def _count(name: str, quantity: Quantity) -> int:
    return quantity.milli if name == CPU else quantity.whole


def _read_amounts(
    annotation: JsonAnnotation[dict[str, Quantity]],
    annotations: Mapping[str, str],
    unreadable: list[tuple[str, str]],
) -> Amounts | None:
    amounts = annotation.read(annotations)
    if isinstance(amounts, InvalidObject):
        unreadable.append(_name(annotation.key, annotations))
        return None
    return None if amounts is None else _to_amounts(amounts)


def _read_weight(
    annotations: Mapping[str, str], unreadable: list[tuple[str, str]]
) -> Amounts | None:
    """Read weights; negative ones are for the core to report, as those of ``min`` and ``max``."""
    if isinstance(SHARED_WEIGHT.read(annotations), InvalidObject):
        with suppress(*MALFORMED):
            weight = read_amounts(annotations[SHARED_WEIGHT.key].encode())
            if any(amount < 0 for amount in weight.values()):
                return weight
    return _read_amounts(SHARED_WEIGHT, annotations, unreadable)


def _read_selector(
    annotations: Mapping[str, str], unreadable: list[tuple[str, str]]
) -> LabelSelector:
    node_selector = NODE_SELECTOR.read(annotations)
    if isinstance(node_selector, InvalidObject):
        unreadable.append(_name(NODE_SELECTOR.key, annotations))
        return None
    return None if node_selector is None else translate_selector(node_selector)


def _read_priority(annotations: Mapping[str, str], unreadable: list[tuple[str, str]]) -> int | None:
    text = annotations.get(operators.MAX_PRIORITY)
    if text is None:
        return None
    if _PRIORITY.fullmatch(text) and -_PRIORITIES <= int(text) < _PRIORITIES:
        return int(text)
    unreadable.append(_name(operators.MAX_PRIORITY, annotations))
    return None


def _read_names(
    annotation: JsonAnnotation[list[str]],
    annotations: Mapping[str, str],
    unreadable: list[tuple[str, str]],
) -> tuple[str, ...]:
    names = annotation.read(annotations)
    if isinstance(names, InvalidObject):
        unreadable.append(_name(annotation.key, annotations))
        return ()
    return tuple(dict.fromkeys(names or ()))


def _read_queue(
    annotations: Mapping[str, str], unreadable: list[tuple[str, str]]
) -> Mapping[str, Any]:
    spec = QUEUE.read(annotations, unknown_fields="forbid")
    if isinstance(spec, InvalidObject):
        problem = spec.problems[0]
        text = str(problem)
        unreadable.append((QUEUE.key, text if len(text) <= SHOWN else f"{text[:SHOWN]}…"))
        return {}
    return {} if spec is None else values_of(spec)


def _name(key: str, annotations: Mapping[str, str]) -> tuple[str, str]:
    text = annotations[key]
    return key.removeprefix(keys.PREFIX), text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def encode_last_valid(spec: QuotaSpec) -> dict[str, Any]:
    """Return the settings of a quota in the form of the object, as the status keeps them."""
    labels = {
        keys.PARENT: "" if spec.parent == ROOT else spec.parent,
        keys.IS_PARENT: _write_flag(spec.is_parent),
        keys.ALLOW_LENT_RESOURCE: _write_flag(spec.lends),
        keys.TREE_ID: spec.tree_id,
        keys.IS_ROOT: _write_flag(spec.is_tree_root),
        keys.IGNORE_DEFAULT_TREE: _write_flag(spec.ignores_default_tree),
        keys.ALLOW_FORCE_UPDATE: _write_flag(spec.is_forced),
    }
    annotations = {
        keys.SHARED_WEIGHT: encode_amounts(spec.weight or {}),
        keys.TOTAL_RESOURCE: encode_amounts(spec.total),
        keys.UNSCHEDULABLE_RESOURCE: encode_amounts(spec.unschedulable),
        keys.ADMISSION: encode_amounts(spec.admission or {}),
        keys.NAMESPACES: msgspec.json.encode(spec.namespaces).decode(),
        keys.MAX_STRICT_CHECK_RESOURCE_KEYS: msgspec.json.encode(spec.strict_keys).decode(),
    }
    if spec.shared_with:
        annotations[operators.SHARED_WITH] = msgspec.json.encode(spec.shared_with).decode()
    if spec.max_priority is not None:
        annotations[operators.MAX_PRIORITY] = str(spec.max_priority)
    if spec.queue:
        annotations[operators.QUEUE] = encode_queue(spec.queue)
    if spec.selector:
        annotations[operators.NODE_SELECTOR] = encode_selector(spec.selector)
    kept = KeptQuota(
        min=write_quantities(spec.min),
        max=write_quantities(spec.max),
        labels=labels,
        annotations=annotations,
    )
    return kept.encode()


def _write_flag(flag: bool) -> str:  # noqa: FBT001 - what is written
    return "true" if flag else "false"


_EXACT: Final = Context(prec=64)
"""More digits than a ratio can have: it is written as a decimal of 32 characters at most."""
_adapter: Final = TypeAdapter(ElasticQuotaProfileSpec)


class ProfileTranslator(SeenStatuses):
    """Translates profiles, and keeps their status for the status writer."""

    def translate(self, wire: WireCustomResource) -> QuotaProfile:
        status = self._see(wire.metadata.uid, wire.status)
        profile = translate_profile(wire.metadata, bytes(wire.spec))
        kept = _decode_last_valid_profile(wire.metadata, status) if profile.problems else None
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


def encode_last_valid_profile(profile: QuotaProfile) -> dict[str, Any]:
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
    return KeptProfile(spec=spec, labels=labels, annotations=annotations).encode()


def _decode_last_valid_profile(
    meta: WireObjectMeta, status: bytes
) -> tuple[WireObjectMeta, bytes] | None:
    """Return metadata and spec with the last valid settings from a status; None without any."""
    kept = read_last_valid(status, _KEPT_PROFILE)
    if kept is None:
        return None
    labelled = msgspec.structs.replace(meta, labels=kept.labels, annotations=kept.annotations)
    return labelled, msgspec.json.encode(kept.spec)


def _write_ratio(ratio: Fraction) -> str:
    return f"{_EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)):f}"
