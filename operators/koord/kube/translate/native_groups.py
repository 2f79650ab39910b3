"""Native PodGroups of Kubernetes: from the wire, in each version, to the settings of a gang.

Their spec is closed, so what gangs have beyond it stands in annotations, as on our own PodGroups.
They are only read: nothing is known here of writing, and nothing of the versions that are served.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from koord.api.gang import (
    GangDefaults,
    make_foreign_name,
    parse_native_settings,
)
from koord.api.keys import gang as keys
from koord.core.gang.group import make_gang_key
from koord.core.model.gangs import BadValue, GangSource, ObservedPodGroup
from koord.core.model.native_terms import NativeTerms
from koord.core.model.text import cut
from koord.core.model.topology_constraint import (
    TopologyConstraint,
    constrain_by_label,
)
from koord.kube.translate.gangs import make_gang_spec, translate_bad_values
from koord.kube.wire import NativePodGroupSpec, WireNativePodGroup

_NO_TEXTS: Final[dict[str, str]] = {}
_WHOLE: Final = "PodGroup"
"""The mode in ``v1alpha2``; the other is ``Pod``."""
_NEVER: Final = "Never"


class DisruptionMode(msgspec.Struct, gc=False):
    """``spec.disruptionMode`` since ``v1alpha3``: a union of empty objects."""

    all: dict[str, object] | None = None


def translate_native(wire: WireNativePodGroup, defaults: GangDefaults) -> ObservedPodGroup:
    """Translate a native PodGroup; without gang policy its minimum is 0.

    Raises a MALFORMED error.
    """
    meta, gang = wire.metadata, wire.spec.scheduling_policy.gang
    key = make_gang_key(meta.namespace, make_foreign_name(keys.NATIVE_GROUP, meta.name))
    settings, bad = parse_native_settings(
        key, gang.min_count if gang is not None else 0, meta.annotations or _NO_TEXTS, defaults
    )
    problems = (*translate_bad_values(bad), *_find_parent(wire.spec))
    spec = make_gang_spec(key, settings, GangSource.NATIVE, problems)
    return ObservedPodGroup(
        key=key,
        uid=meta.uid,
        spec=replace(
            spec,
            topology=_constrain(wire.spec, spec.topology),
            native=_read_terms(wire.spec),
        ),
        generation=meta.generation,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        is_terminating=meta.deletion_timestamp is not None,
    )


def _find_parent(spec: NativePodGroupSpec) -> Iterable[BadValue]:
    """Yield what is to be told of a group that is to start with others: it starts by itself."""
    if spec.parent_composite_pod_group_name:
        yield BadValue(
            "spec.parentCompositePodGroupName",
            cut(spec.parent_composite_pod_group_name),
            "the group by itself",
            f"is not read: gangs that start together name each other in {keys.GROUPS}",
        )


def _read_terms(spec: NativePodGroupSpec) -> NativeTerms:
    return NativeTerms(
        spec.scheduling_policy.gang is not None,
        _is_disrupted_whole(bytes(spec.disruption_mode)),
        spec.priority,
        spec.preemption_policy == _NEVER,
        tuple(claim.name for claim in spec.resource_claims or ()),
    )


def _is_disrupted_whole(raw: bytes) -> bool:
    if not raw:
        return False
    mode = msgspec.json.decode(raw, type=str | DisruptionMode | None)
    return mode == _WHOLE or (isinstance(mode, DisruptionMode) and mode.all is not None)


def _constrain(
    spec: NativePodGroupSpec, annotated: TopologyConstraint | None
) -> TopologyConstraint | None:
    """Return the constraint of a group: one node label that all must share, beside annotations."""
    constraints = spec.scheduling_constraints
    key = next((item.key for item in (constraints and constraints.topology) or ()), "")
    return constrain_by_label(annotated, key) if key else annotated
