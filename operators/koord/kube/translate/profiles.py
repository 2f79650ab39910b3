"""ClusterColocationProfiles from the wire to the core.

While the settings are invalid, the last valid ones count, which the status has. What a patch has
beside the known fields is left out and named.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from koord.api.clustercolocationprofile import (
    ClusterColocationProfileSpec,
    PodLabelSelector,
    parse_probability,
    skips_resources,
)
from koord.api.parse import InvalidObject, parse, parse_value
from koord.api.profile_patch import PodPatchFields, find_unknown_fields
from koord.core.model.koordinator_class import parse_qos
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.profiles.model import ColocationProfile, PodPatch, Texts
from koord.kube.decode import MALFORMED
from koord.kube.translate.statuses import SeenStatuses, read_last_valid_json
from koord.kube.wire import WireCustomResource

_adapter: Final = TypeAdapter(ClusterColocationProfileSpec)


class ColocationProfileTranslator(SeenStatuses):
    """Translates ClusterColocationProfiles."""

    def translate(self, wire: WireCustomResource) -> ColocationProfile:
        meta = wire.metadata
        status = self._see(meta.uid, wire.status)
        identity: dict[str, Any] = {
            "name": meta.name,
            "uid": meta.uid,
            "generation": meta.generation,
            "skips_resources": skips_resources(meta.annotations or {}),
        }
        spec = _read(bytes(wire.spec))
        is_kept = spec is None
        if spec is None:
            spec = _read(read_last_valid_json(status)) if status else None
        if spec is None:
            return ColocationProfile(**identity, is_invalid=True)
        settings = msgspec.json.encode(spec.encode()).decode()
        return translate_profile(spec, **identity, is_kept=is_kept, settings=settings)


def translate_profile(spec: ClusterColocationProfileSpec, **identity: Any) -> ColocationProfile:
    """Return the profile of valid settings; ``identity`` is what metadata says."""
    patch = spec.patch or {}
    return ColocationProfile(
        **identity,
        selector=_translate_selector(spec.selector),
        namespace_selector=_translate_selector(spec.namespace_selector),
        probability=parse_probability(spec.probability),
        is_per_owner=spec.probability_scope == "Owner",
        labels=_sort(spec.labels),
        annotations=_sort(spec.annotations),
        label_keys=_sort(spec.label_keys_mapping),
        annotation_keys=_sort(spec.annotation_keys_mapping),
        label_suffixes=_sort(spec.label_suffixes),
        scheduler_name=spec.scheduler_name or "",
        qos=parse_qos(spec.qos_class or ""),
        priority_class=spec.priority_class_name or "",
        koordinator_priority=spec.koordinator_priority,
        patch=_translate_patch(patch),
        left_out=tuple(find_unknown_fields(patch)),
    )


def _read(raw: bytes) -> ClusterColocationProfileSpec | None:
    try:
        written = msgspec.json.decode(raw or b"{}")
    except MALFORMED:
        return None
    spec = parse_value(_adapter, written, at=("spec",))
    return None if isinstance(spec, InvalidObject) else spec


def _sort(texts: Mapping[str, str] | None) -> Texts:
    return tuple(sorted((texts or {}).items()))


def _translate_selector(selector: PodLabelSelector | None) -> tuple[Requirement, ...]:
    if selector is None:
        return ()
    labels = _sort(selector.match_labels)
    return (
        *(Requirement(key, SelectorOperator.IN, (value,)) for key, value in labels),
        *(
            Requirement(
                requirement.key,
                SelectorOperator(requirement.operator),
                tuple(requirement.values or ()),
            )
            for requirement in selector.match_expressions or ()
        ),
    )


def _translate_patch(patch: Mapping[str, Any]) -> PodPatch:
    """Return the known part of a valid patch."""
    fields = parse(PodPatchFields, patch)
    if isinstance(fields, InvalidObject):
        return PodPatch()
    written_fields = fields.encode()
    metadata, spec = written_fields.get("metadata", {}), written_fields.get("spec", {})
    written: list[tuple[tuple[str, ...], Any]] = []
    if "tolerations" in spec:
        written.append((("tolerations",), spec["tolerations"]))
    for kind, affinity in spec.get("affinity", {}).items():
        written += [(("affinity", kind, name), value) for name, value in affinity.items()]
    return PodPatch(
        _sort(metadata.get("labels")),
        _sort(metadata.get("annotations")),
        _sort(spec.get("nodeSelector")),
        tuple(written),
    )
