"""The spec of the NodeSLO of a node: defaults, what the cluster says, what is said for the node.

Works on JSON values: mappings are merged field by field, anything else is replaced, lists as well.
What fields mean, and which values they may have, is checked where they are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.core.model.node_strategies import NodeStrategies
from koord.core.nodeslo.defaults import BURST, QOS, SYSTEM, THRESHOLDS

Json = Mapping[str, Any]
BANDWIDTH: Final = "totalNetworkBandwidth"
SYSTEM_FIELD: Final = "systemStrategy"


@dataclass(frozen=True)
class SloPart(NodeStrategies[Json]):
    """One part of NodeSLOs: strategies merged with the defaults; each part has its own class."""


class ThresholdPart(SloPart):
    """When best-effort pods are suppressed or evicted."""


class QosPart(SloPart):
    """What each QoS class gets."""


class BurstPart(SloPart):
    """Whether containers may use more CPU than their limit."""


class SystemPart(SloPart):
    """Settings of the kernel."""


class HostApplicationPart(SloPart):
    """Applications that are no pods, in the field ``applications``."""


DEFAULTS: Final[Mapping[type[SloPart], Json]] = {
    ThresholdPart: THRESHOLDS,
    QosPart: QOS,
    BurstPart: BURST,
    SystemPart: SYSTEM,
    HostApplicationPart: {},
}
FIELDS: Final[Mapping[type[SloPart], str]] = {
    ThresholdPart: "resourceUsedThresholdWithBE",
    QosPart: "resourceQOSStrategy",
    BurstPart: "cpuBurstStrategy",
    SystemPart: SYSTEM_FIELD,
    HostApplicationPart: "hostApplications",
}
"""Part -> its field of the spec."""
KEYS: Final[Mapping[type[SloPart], str]] = {
    ThresholdPart: "resource-threshold-config",
    QosPart: "resource-qos-config",
    BurstPart: "cpu-burst-config",
    SystemPart: "system-config",
    HostApplicationPart: "host-application-config",
}
"""Part -> its key of the configuration."""
_APPLICATIONS: Final = "applications"


@dataclass(frozen=True, slots=True)
class SloSettings:
    """The parts that are configured, by their class."""

    parts: Mapping[type[SloPart], SloPart] = field(default_factory=dict)


def merge(*layers: Json) -> dict[str, Any]:
    """Return the fields of all layers, later ones over earlier ones; None says nothing."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = merged.get(name)
            if isinstance(value, Mapping):
                merged[name] = merge(before if isinstance(before, Mapping) else {}, value)
            elif value is not None:
                merged[name] = value
    return merged


def render(settings: SloSettings, labels: Mapping[str, str], bandwidth: str = "") -> dict[str, Any]:
    """Return the spec of a node with these labels.

    ``bandwidth`` is what the node itself says of its network; empty for nothing.
    """
    return render_chosen(choose(settings, labels), bandwidth)


def choose(settings: SloSettings, labels: Mapping[str, str]) -> tuple[Json, ...]:
    """Return the strategy of each field for a node with these labels: one object for all equal."""
    return tuple(
        DEFAULTS[part] if part not in settings.parts else settings.parts[part].of(labels)
        for part in FIELDS
    )


def render_chosen(strategies: Iterable[Json], bandwidth: str = "") -> dict[str, Any]:
    """Return the spec that these strategies make."""
    spec: dict[str, Any] = {}
    for (part, name), strategy in zip(FIELDS.items(), strategies, strict=True):
        if part is HostApplicationPart:
            spec[name] = list(strategy.get(_APPLICATIONS, ()))
        else:
            spec[name] = merge(strategy)
    if bandwidth:
        spec[SYSTEM_FIELD][BANDWIDTH] = bandwidth
    return {name: value for name, value in spec.items() if value}


def keep_fields(rendered: Json, present: Json, fields: Iterable[str]) -> dict[str, Any]:
    """Return what was rendered, with some fields as they are at present."""
    kept = dict(rendered)
    for name in fields:
        kept.pop(name, None)
        if name in present:
            kept[name] = present[name]
    return kept


def is_shown(spec: Json, rendered: Json) -> bool:
    """Whether a spec says what was rendered, in the fields that are rendered."""
    return all(spec.get(name) == rendered.get(name) for name in FIELDS.values())
