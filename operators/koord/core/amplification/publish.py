"""Which annotations of a node are to change, so that it shows the ratios that were found.

A ratio that differs by a hundredth at most is left as it is: fewer writes, and nobody measures it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koord.core.amplification.ratios import (
    HUNDREDTHS,
    BadRatio,
    NormalizationStrategies,
    OfferStrategies,
    ResourceOffers,
    differs,
    find_normalization,
    find_offers,
    write_offers,
    write_ratio,
)
from koord.core.model.nodes import Node
from koord.core.model.processor import Processor

NAME: Final = "ratios"
"""Of the extension of nodes that show ratios."""
SWITCH_LABEL: Final = "node.koordinator.sh/cpu-normalization-enabled"
_FAMILY: Final = (
    "feature.node.kubernetes.io/cpu-model.vendor_id",
    "feature.node.kubernetes.io/cpu-model.family",
    "feature.node.kubernetes.io/cpu-model.id",
)
_HYPER_THREADS: Final = "feature.node.kubernetes.io/cpu-hardware_multithreading"
_TURBO: Final = "feature.node.kubernetes.io/cpu-pstate.turbo"


@dataclass(frozen=True, slots=True)
class ShownRatios:
    """The ratios that annotations of a node show, in hundredths; None: there is no annotation.

    A ratio of 0 is one that cannot be read: it differs from every other.
    """

    normalization: int | None = None
    offers: tuple[tuple[str, int], ...] = ()


NOTHING_SHOWN: Final = ShownRatios()


def shown_by(node: Node) -> ShownRatios:
    shown = next((value for name, value in node.extensions if name == NAME), NOTHING_SHOWN)
    return shown if isinstance(shown, ShownRatios) else NOTHING_SHOWN


def processor_of(node: Node, reported: Processor | None) -> Processor | None:
    """Return the processor that an agent reports, or else labels of Node Feature Discovery.

    These have no name of the model: ``vendor-family-model`` stands for it, such as Intel-6-85.
    """
    if reported is not None and reported.model:
        return reported
    parts = [node.labels.get(key, "") for key in _FAMILY]
    if not all(parts):
        return None
    return Processor(
        "-".join(parts),
        node.labels.get(_HYPER_THREADS) == "true",
        node.labels.get(_TURBO) == "true",
    )


@dataclass(frozen=True, slots=True)
class RatioChange:
    """What is to be written to a node; None: that annotation stays as it is.

    An empty text of ``offers`` takes the annotation off.
    """

    normalization: str | None = None
    offers: str | None = None

    def __bool__(self) -> bool:
        return self.normalization is not None or self.offers is not None


NO_CHANGE: Final = RatioChange()


def find_change(
    node: Node,
    reported: Processor | None,
    normalizations: NormalizationStrategies | None,
    offers: OfferStrategies | None,
) -> RatioChange | BadRatio:
    """Return which annotations change; what nobody has configured changes nothing."""
    if normalizations is None and offers is None:
        return NO_CHANGE
    shown, labels = shown_by(node), node.labels
    ratio: int | BadRatio = HUNDREDTHS
    if normalizations is not None:
        processor, switch = processor_of(node, reported), labels.get(SWITCH_LABEL)
        ratio = find_normalization(normalizations.of(labels), processor, switch)
    if isinstance(ratio, BadRatio):
        return ratio
    offered = find_offers(ResourceOffers() if offers is None else offers.of(labels), ratio)
    if isinstance(offered, BadRatio):
        return offered
    is_other = normalizations is not None and differs(shown.normalization, ratio)
    return RatioChange(
        write_ratio(ratio) if is_other else None,
        write_offers(offered) if _differ(dict(shown.offers), offered) else None,
    )


def _differ(shown: Mapping[str, int], offered: Mapping[str, int]) -> bool:
    return shown.keys() != offered.keys() or any(
        differs(shown[name], ratio) for name, ratio in offered.items()
    )
