"""ElasticQuotaProfiles: from the wire to ``koord.core.quota.profile.Profile``.

The model of the resource reads the settings, as strictly as the API server does. What it does not
take is told of the object; a profile of which nothing can be read still has its name.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
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
from koord.core.quota.profile import DEFAULT_KEYS, QuotaProfile
from koord.kube.translate.last_valid_profile import decode_kept_profile
from koord.kube.translate.node_selectors import translate_selector
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import ObjectMeta, WireQuotaProfile

_NOTHING: Final[Mapping[str, str]] = {}
_adapter: Final = TypeAdapter(ElasticQuotaProfileSpec)


class ProfileTranslator(SeenStatuses):
    """Translates profiles, and keeps what stands in their status for those who write it."""

    def translate(self, wire: WireQuotaProfile) -> QuotaProfile:
        """Return the core's view of a profile, and of what its status keeps."""
        status = self._see(wire.metadata.uid, wire.status)
        profile = translate_profile(wire.metadata, bytes(wire.spec))
        kept = decode_kept_profile(wire.metadata, status) if profile.problems else None
        if kept is None:
            return profile
        last_valid = translate_profile(*kept)
        return profile if last_valid.problems else replace(profile, last_valid=last_valid)


def translate_profile(meta: ObjectMeta, raw: bytes) -> QuotaProfile:
    """Return the core's view of a profile, given its ``spec`` as JSON."""
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    spec = _parse(raw)
    written = RESOURCE_KEYS.read(annotations)
    wrong = [one for one in (spec, written) if isinstance(one, InvalidObject)]
    problems = [str(problem) for one in wrong for problem in one.problems]
    problems += map(str, find_policy_problems(annotations))
    found = None if isinstance(spec, InvalidObject) else spec
    return QuotaProfile(
        namespace=meta.namespace,
        name=meta.name,
        quota_name=found.quota_name if found else "",
        selector=translate_selector(found.node_selector) if found else None,
        tree_id=labels.get(keys.TREE_ID, ""),
        ratio=Fraction(found.resource_ratio) if found and found.resource_ratio else None,
        keys=tuple(dict.fromkeys(written)) if isinstance(written, list) else DEFAULT_KEYS,
        labels=(found.quota_labels if found else None) or {},
        uid=meta.uid,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        is_owner=annotations.get(operators.DELETION_POLICY) == DELETE,
        problems=tuple(problems),
        generation=meta.generation,
    )


@lru_cache(maxsize=1024)
def _parse(raw: bytes) -> ElasticQuotaProfileSpec | InvalidObject:
    spec: Any = msgspec.json.decode(raw) if raw else {}
    return parse_value(_adapter, spec or {}, at=("spec",))
