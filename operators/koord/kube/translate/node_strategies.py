"""Strategies of the ConfigMap ``slo-controller-config`` as values of the core.

A strategy for some nodes is merged over that of the cluster here, once, and checked as a whole: a
lower bound of one may not go with the threshold of the other. The fields of entries are JSON again
once they are checked, as NodeSLOs have the same ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from koord.api.model import Model
from koord.api.node_strategies import (
    CONFIG_OF_NODES,
    ApplicationConfig,
    BurstConfig,
    ForNodes,
    NormalizationConfig,
    NormalizationStrategy,
    OfferConfig,
    OfferStrategy,
    QosConfig,
    SystemConfig,
    ThresholdConfig,
)
from koord.api.nodeslo import CpuBurstStrategy, QosStrategy, SystemStrategy, ThresholdStrategy
from koord.api.parse import InvalidObject, Problem, parse_value
from koord.api.slo_config import SloConfigKey
from koord.core.amplification.ratios import (
    NORMALIZATION_KEY,
    OFFER_KEY,
    ModelRatios,
    Normalization,
    NormalizationStrategies,
    OfferStrategies,
    ResourceOffers,
)
from koord.core.model.selectors import LabelSelector
from koord.core.nodeslo.render import (
    DEFAULTS,
    KEYS,
    BurstPart,
    HostApplicationPart,
    Json,
    QosPart,
    SloPart,
    SystemPart,
    ThresholdPart,
    merge,
)
from koord.kube.translate.node_affinity import translate_selector
from koord.kube.translate.selector_overlaps import find_overlaps

P = TypeVar("P", bound=SloPart)
_ENTRIES: Final = ("node_strategies", "node_configs")
_LISTS: Final = {"nodeStrategies", "nodeConfigs"}


def _entries_of(config: Model) -> tuple[str, Sequence[ForNodes]]:
    """Return the entries for nodes, and the field that they are in."""
    for name, field in zip(_ENTRIES, ("nodeStrategies", "nodeConfigs"), strict=True):
        if entries := getattr(config, name, None):
            return field, entries
    return "", ()


def _cluster_of(config: Model) -> Json:
    """Return the fields of the strategy of the cluster."""
    written = config.encode()
    if hasattr(config, "cluster_strategy"):
        strategy: Json = written.get("clusterStrategy", {})
        return strategy
    return {name: value for name, value in written.items() if name not in _LISTS}


def _layers(config: Model) -> Iterator[tuple[LabelSelector, Json]]:
    """Yield selector and merged fields of each entry."""
    cluster = _cluster_of(config)
    for entry in _entries_of(config)[1]:
        own = entry.encode()
        fields = {name: value for name, value in own.items() if name not in CONFIG_OF_NODES}
        yield translate_selector(entry.node_selector), merge(cluster, fields)


def find_merged_problems(config: Model, strategy: type[Model], defaults: Json) -> Iterator[Problem]:
    """Yield what is wrong with strategies once they are merged, fields relative to the key."""
    adapter = TypeAdapter(strategy)
    field = _entries_of(config)[0]
    merged = [("clusterStrategy", _cluster_of(config))]
    merged += [(f"{field}[{at}]", fields) for at, (_, fields) in enumerate(_layers(config))]
    for where, fields in merged:
        valid = parse_value(adapter, merge(defaults, fields))
        for problem in valid.problems if isinstance(valid, InvalidObject) else ():
            name = ".".join(filter(None, (where, problem.field)))
            yield Problem(name, problem.value, f"with what it is merged over: {problem.message}")


def _find_overlaps(config: Model) -> Iterator[Problem]:
    return find_overlaps(*_entries_of(config))


def _make_part(part: type[P], config: Model) -> P:
    defaults = DEFAULTS[part]
    nodes = tuple((selector, merge(defaults, fields)) for selector, fields in _layers(config))
    return part(merge(defaults, _cluster_of(config)), nodes)


def _make_normalization(config: NormalizationConfig) -> NormalizationStrategies:
    nodes = tuple((selector, _read_normalization(fields)) for selector, fields in _layers(config))
    return NormalizationStrategies(_read_normalization(_cluster_of(config)), nodes)


def _read_normalization(fields: Json) -> Normalization:
    strategy = NormalizationStrategy.model_validate(fields)
    ratios = {
        name: ModelRatios(
            ratio.base_ratio,
            ratio.hyper_thread_enabled_ratio,
            ratio.turbo_enabled_ratio,
            ratio.hyper_thread_turbo_enabled_ratio,
        )
        for name, ratio in (strategy.ratio_model or {}).items()
    }
    return Normalization(bool(strategy.enable), strategy.default_ratio, ratios)


def _make_offers(config: OfferConfig) -> OfferStrategies:
    nodes = tuple((selector, _read_offers(fields)) for selector, fields in _layers(config))
    return OfferStrategies(_read_offers(_cluster_of(config)), nodes)


def _read_offers(fields: Json) -> ResourceOffers:
    strategy = OfferStrategy.model_validate(fields)
    return ResourceOffers(bool(strategy.enable), strategy.resource_amplification_ratio or {})


NORMALIZATION_CONFIG: Final = SloConfigKey(
    NORMALIZATION_KEY,
    NormalizationConfig,
    NormalizationStrategies,
    _make_normalization,
    _find_overlaps,
)
OFFER_CONFIG: Final = SloConfigKey(
    OFFER_KEY, OfferConfig, OfferStrategies, _make_offers, _find_overlaps
)


def _make_key(
    name: str, config: type[Model], part: type[SloPart], strategy: type[Model] | None
) -> SloConfigKey[Any]:
    def find_problems(value: Model) -> Iterable[Problem]:
        yield from _find_overlaps(value)
        if strategy is not None:
            yield from find_merged_problems(value, strategy, DEFAULTS[part])

    return SloConfigKey(name, config, part, lambda value: _make_part(part, value), find_problems)


_PARTS: Final[Mapping[type[SloPart], tuple[type[Model], type[Model] | None]]] = {
    ThresholdPart: (ThresholdConfig, ThresholdStrategy),
    QosPart: (QosConfig, QosStrategy),
    BurstPart: (BurstConfig, CpuBurstStrategy),
    SystemPart: (SystemConfig, SystemStrategy),
    HostApplicationPart: (ApplicationConfig, None),
}
NODE_SLO_CONFIGS: Final = tuple(
    _make_key(KEYS[part], config, part, strategy) for part, (config, strategy) in _PARTS.items()
)
"""The keys that NodeSLOs are made of."""
