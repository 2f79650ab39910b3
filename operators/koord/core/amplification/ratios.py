"""The ratios of one node: how fast its processor is, and how many times its resources are offered.

The rules are Koordinator's. A processor that is faster than those the cluster is measured in counts
more: its normalisation ratio multiplies the ratio by which CPUs are offered. What is configured and
what a node reports is given; how both are read and written is not known here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.core.model.amplification import to_hundredths
from koord.core.model.node_strategies import NodeStrategies
from koord.core.model.processor import Processor
from koord.core.model.units import CPU

NORMALIZATION_KEY: Final = "cpu-normalization-config"
OFFER_KEY: Final = "resource-amplification-config"
"""Keys of the configuration."""
HUNDREDTHS: Final = 100
"""A ratio of 1, as it is written: with two decimals."""
LOWEST: Final = 1.0
HIGHEST: Final = 5.0
"""Of a processor; a larger ratio is a mistake."""
MOST_OFFERED: Final = 100.0
"""Of a resource; larger ratios are refused where they are read, too."""
TOLERATED: Final = 1
"""Hundredths by which a ratio may differ from that on the node, and is not written."""


@dataclass(frozen=True, slots=True)
class ModelRatios:
    """The ratios of one model of processors; None: nobody said."""

    base: float | None = None
    hyper_threads: float | None = None
    turbo: float | None = None
    both: float | None = None

    def of(self, processor: Processor) -> float | None:
        """Return the ratio with the features that are on."""
        match processor.has_hyper_threads, processor.has_turbo:
            case True, True:
                return self.both
            case True, False:
                return self.hyper_threads
            case False, True:
                return self.turbo
            case _:
                return self.base


@dataclass(frozen=True, slots=True)
class Normalization:
    """How processors of some nodes are compared."""

    is_on: bool = False
    default: float | None = None
    """Of models that ``models`` does not have."""
    models: Mapping[str, ModelRatios] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceOffers:
    """How many times resources of some nodes are offered."""

    is_on: bool = False
    ratios: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NormalizationStrategies(NodeStrategies[Normalization]):
    """How processors are compared, by nodes."""


@dataclass(frozen=True)
class OfferStrategies(NodeStrategies[ResourceOffers]):
    """How many times resources are offered, by nodes."""


@dataclass(frozen=True, slots=True)
class BadRatio:
    """No ratio can be given; what the node shows stays as it is."""

    code: str
    message: str


_SWITCH: Final = {"true": True, "false": False}


def find_normalization(
    strategy: Normalization, processor: Processor | None, switch: str | None
) -> int | BadRatio:
    """Return the normalisation ratio of a node, in hundredths: 100 where it is off.

    ``switch``: the label of the node that turns it on or off, which goes before the strategy.
    """
    is_on = strategy.is_on if switch is None else _SWITCH.get(switch)
    if is_on is None:
        return BadRatio("InvalidSwitch", f"the label must be true or false: {switch}")
    if not is_on:
        return HUNDREDTHS
    ratio = _find_ratio(strategy, processor)
    if isinstance(ratio, BadRatio):
        return ratio
    if not LOWEST <= ratio <= HIGHEST:
        text = f"the ratio must be {LOWEST:g} to {HIGHEST:g}: {ratio:g}"
        return BadRatio("InvalidRatio", text)
    return to_hundredths(ratio)


def _find_ratio(strategy: Normalization, processor: Processor | None) -> float | BadRatio:
    if processor is None or not processor.model:
        return BadRatio("UnknownProcessor", "the node reports no model of its processor")
    ratios = strategy.models.get(processor.model)
    ratio = None if ratios is None else ratios.of(processor)
    ratio = strategy.default if ratio is None else ratio
    if ratio is None:
        text = f"no ratio is configured for {processor.model}, and there is no default"
        return BadRatio("NoRatio", text)
    return ratio


def find_offers(offers: ResourceOffers, normalization: int) -> Mapping[str, int] | BadRatio:
    """Return how many times each resource is offered, in hundredths; without those of 1.

    ``normalization`` in hundredths multiplies the ratio of CPUs, unless the result is 1 or less.
    """
    ratios = dict(offers.ratios) if offers.is_on else {}
    configured = ratios.get(CPU, 0.0)
    cpu = (configured if configured > 0 else 1.0) * normalization / HUNDREDTHS
    if cpu > 1:
        ratios[CPU] = cpu
    for name, ratio in sorted(ratios.items()):
        if not 1 <= ratio <= MOST_OFFERED:
            text = f"the ratio of {name} must be 1 to {MOST_OFFERED:g}: {ratio:g}"
            return BadRatio("InvalidRatio", text)
    offered = {name: to_hundredths(ratio) for name, ratio in ratios.items()}
    return {name: n for name, n in sorted(offered.items()) if n > HUNDREDTHS}


def write_ratio(hundredths: int) -> str:
    """Return ``1.20`` for 120."""
    return f"{hundredths // HUNDREDTHS}.{hundredths % HUNDREDTHS:02d}"


def write_offers(offered: Mapping[str, int]) -> str:
    """Return the text of the annotation, empty for none: ``{"cpu":1.50}``."""
    ratios = ",".join(f"{json.dumps(name)}:{write_ratio(n)}" for name, n in sorted(offered.items()))
    return f"{{{ratios}}}" if ratios else ""


def differs(shown: int | None, ratio: int) -> bool:
    """Whether a ratio is to be written; one that a node does not show is 1."""
    return abs((HUNDREDTHS if shown is None else shown) - ratio) > TOLERATED
