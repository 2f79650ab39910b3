"""The ratios that annotations of a node show, and the patch that changes them."""

import math
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from koord.api.keys.colocation import CPU_NORMALIZATION
from koord.api.keys.device import AMPLIFICATION
from koord.caches import cached_by_text
from koord.core.amplification.publish import NAME, NOTHING_SHOWN, RatioChange, ShownRatios
from koord.core.amplification.ratios import MOST_OFFERED
from koord.core.model.amplification import to_hundredths
from koord.kube.decode import MALFORMED

_MAX_TEXT: Final = 4096
_UNREADABLE: Final = 0
_ratio_decoder = msgspec.json.Decoder(float)
_ratios_decoder = msgspec.json.Decoder(dict[str, float])


def read_shown_ratios(annotations: Mapping[str, str]) -> tuple[tuple[str, Hashable], ...]:
    """Return the ratios that a node shows, as an extension; () for none."""
    shown = ShownRatios(
        _read_normalization(annotations.get(CPU_NORMALIZATION, "")),
        _read_offers(annotations.get(AMPLIFICATION, "")),
    )
    return () if shown == NOTHING_SHOWN else ((NAME, shown),)


def _read_normalization(text: str) -> int | None:
    if not text:
        return None
    try:
        ratio = _ratio_decoder.decode(text)
    except MALFORMED:
        return _UNREADABLE
    return _to_hundredths(ratio)


@cached_by_text()
def _read_offers(text: str) -> tuple[tuple[str, int], ...]:
    if not text:
        return ()
    try:
        ratios = _ratios_decoder.decode(text) if len(text) <= _MAX_TEXT else {"": 0.0}
    except MALFORMED:
        ratios = {"": 0.0}
    return tuple((name, _to_hundredths(ratio)) for name, ratio in sorted(ratios.items()))


def _to_hundredths(ratio: float) -> int:
    is_ratio = math.isfinite(ratio) and 0 < ratio <= MOST_OFFERED
    return to_hundredths(ratio) if is_ratio else _UNREADABLE


def make_ratio_patch(change: RatioChange) -> dict[str, Any]:
    """Return the merge patch of a node."""
    annotations: dict[str, str | None] = {}
    if change.normalization is not None:
        annotations[CPU_NORMALIZATION] = change.normalization
    if change.offers is not None:
        annotations[AMPLIFICATION] = change.offers or None
    return {"metadata": {"annotations": annotations}}
