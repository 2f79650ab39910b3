"""How a node is over-committed: its strategy, and who has a say in it.

A ColocationPolicy that selects the node, or else the ConfigMap with its first entry that does; over
it the annotation of the node, and over that its labels. Nothing is known here of JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from koord.core.engine.policies import ObservedPolicy
from koord.core.model.selectors import LabelSelector, is_selected
from koord.core.model.units import CPU


class CalculatePolicy(StrEnum):
    """What pods of higher priority count for in the batch resources of a node."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


@dataclass(frozen=True, slots=True)
class ResourceStrategy:
    """The part of a strategy about one resource; all but ``policy`` in percent of capacity.

    ``batch_most`` None: no limit.
    """

    reclaim: int
    policy: CalculatePolicy
    batch_most: int | None
    mid_most: int
    mid_static: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a node offers to batch and mid pods; the names are those of ``colocation-config``."""

    enable: bool = False
    cpu_reclaim_threshold_percent: int = 60
    memory_reclaim_threshold_percent: int = 65
    cpu_calculate_policy: CalculatePolicy = CalculatePolicy.USAGE
    memory_calculate_policy: CalculatePolicy = CalculatePolicy.USAGE
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None
    mid_cpu_threshold_percent: int = 100
    mid_memory_threshold_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_reclaim_mode: str = ""
    mid_static_cpu_reserved_percent: int = 0
    mid_static_memory_reserved_percent: int = 0
    degrade_time_minutes: int = 15
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float = 0.1

    @property
    def is_mid_static(self) -> bool:
        return self.mid_reclaim_mode == "static"

    def of(self, resource: str) -> ResourceStrategy:
        """Return the part about CPU or memory."""
        if resource == CPU:
            return ResourceStrategy(
                self.cpu_reclaim_threshold_percent,
                self.cpu_calculate_policy,
                self.batch_cpu_threshold_percent,
                self.mid_cpu_threshold_percent,
                self.mid_static_cpu_reserved_percent,
            )
        return ResourceStrategy(
            self.memory_reclaim_threshold_percent,
            self.memory_calculate_policy,
            self.batch_memory_threshold_percent,
            self.mid_memory_threshold_percent,
            self.mid_static_memory_reserved_percent,
        )


Fields: TypeAlias = Mapping[str, Any]
"""Fields of a strategy that somebody has set."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """An entry of the ConfigMap for some nodes."""

    name: str
    selector: LabelSelector
    fields: Fields


@dataclass(frozen=True, slots=True)
class ClusterColocation:
    """What the ConfigMap says."""

    cluster: Strategy = Strategy()
    node_configs: tuple[NodeConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What a valid ColocationPolicy says, and about which nodes."""

    strategy: Strategy
    selector: LabelSelector = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return is_selected(labels, self.selector)


ObservedColocation: TypeAlias = ObservedPolicy[PolicySettings]


@dataclass(frozen=True, slots=True)
class ResolvedStrategy:
    """The strategy of one node; ``sources`` are who has a say in it, the last first."""

    strategy: Strategy
    sources: tuple[str, ...] = ()
    policy: str = ""
    """The ColocationPolicy; empty: the ConfigMap, or nobody."""
    overridden: tuple[str, ...] = field(default=())
    """ColocationPolicies and entries that select it, too, and do not count."""


def resolve(
    labels: Mapping[str, str],
    own: Iterable[tuple[str, Fields]],
    policies: Iterable[ObservedColocation],
    settings: ClusterColocation | None,
) -> ResolvedStrategy:
    """Return the strategy of a node with these labels.

    ``own`` are the fields that the node itself sets, by who sets them: they can switch it off, and
    never on.
    """
    base = _find_base(labels, policies, settings)
    strategy, sources = base.strategy, list(base.sources)
    is_enabled = strategy.enable
    for source, fields in own:
        if fields:
            strategy = replace(strategy, **fields)
            sources.insert(0, source)
    if strategy.enable and not is_enabled:
        strategy = replace(strategy, enable=False)
    return replace(base, strategy=strategy, sources=tuple(sources))


def _find_base(
    labels: Mapping[str, str],
    policies: Iterable[ObservedColocation],
    settings: ClusterColocation | None,
) -> ResolvedStrategy:
    selecting = [
        policy
        for policy in sorted(policies, key=lambda policy: (policy.created, policy.name))
        if policy.settings is not None and policy.settings.selects(labels)
    ]
    if selecting:
        first, *overridden = selecting
        strategy = first.settings.strategy if first.settings is not None else Strategy()
        source = f"ColocationPolicy {first.name}"
        names = tuple(f"ColocationPolicy {policy.name}" for policy in overridden)
        return ResolvedStrategy(strategy, (source,), first.name, names)
    if settings is None:
        return ResolvedStrategy(Strategy())
    return _find_in_config(labels, settings)


def _find_in_config(labels: Mapping[str, str], settings: ClusterColocation) -> ResolvedStrategy:
    sources, strategy = ("colocation-config",), settings.cluster
    entries = [
        (f"nodeConfigs[{index}] {config.name}".rstrip(), config)
        for index, config in enumerate(settings.node_configs)
        if is_selected(labels, config.selector)
    ]
    if not entries:
        return ResolvedStrategy(strategy, sources)
    (name, config), *overridden = entries
    merged = replace(strategy, **config.fields)
    # The switch of the cluster is the master: an entry can switch off, and never on.
    merged = replace(merged, enable=merged.enable and strategy.enable)
    return ResolvedStrategy(merged, (name, *sources), "", tuple(name for name, _ in overridden))
