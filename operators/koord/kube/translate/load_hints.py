"""What pods and nodes say about their load: limits, class, annotations, and since when they run.

Read only where load counts. What cannot be read is ignored.
"""

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

import msgspec
from typing_extensions import override

from koord.api.keys.load import (
    AFTER_INITIALIZED,
    AFTER_SCHEDULED,
    RAW_ALLOCATABLE,
    SCALING_FACTORS,
    USAGE_THRESHOLDS,
)
from koord.api.quantity import parse_duration_seconds
from koord.caches import cached_by_text
from koord.core.load.model import NAME, NO_HINTS, Aggregation, LoadHints
from koord.core.load.options import Basis, LoadThresholds, OwnLimits
from koord.core.model.koordinator_class import TIERS, find_class, is_best_effort, name_of_tier
from koord.core.model.pod_requests import InitContainer, effective_requests
from koord.core.model.pods import PodShape
from koord.core.model.units import CPU, MEMORY, PODS, Amounts
from koord.kube.decode import MALFORMED
from koord.kube.kind import PodReader
from koord.kube.translate.amounts import parse_amount, parse_amounts, parse_limits
from koord.kube.translate.pod_conditions import POD_SCHEDULED, read_time
from koord.kube.wire import PodSpec, PodStatus, WirePod

T = TypeVar("T")
_NOTHING: Final[Mapping[str, str]] = {}
_INITIALIZED: Final = "Initialized"
_MAX_SECONDS: Final = 1 << 31
_LIMITED: Final = frozenset(
    {CPU, MEMORY, *(name_of_tier(tier, key) for tier in TIERS for key in (CPU, MEMORY))}
)
"""Resources of which a limit counts without a request; of others only beside a request."""


class _Aggregated(msgspec.Struct, rename="camel", gc=False):
    usage_thresholds: dict[str, int] | None = None
    usage_aggregation_type: Aggregation | None = None
    usage_aggregated_duration: str = ""


class _UsageThresholds(msgspec.Struct, rename="camel", gc=False):
    usage_thresholds: dict[str, int] | None = None
    prod_usage_thresholds: dict[str, int] | None = None
    aggregated_usage: _Aggregated | None = None


_factors_decoder: Final = msgspec.json.Decoder(dict[str, int])
_thresholds_decoder: Final = msgspec.json.Decoder(_UsageThresholds)
_amounts_decoder: Final = msgspec.json.Decoder(dict[str, str | int])


class LoadPodReader(PodReader):
    """Reads what counts of a pod beside its requests."""

    name = NAME

    @override
    def read_pod(self, wire: WirePod, shape: PodShape) -> Hashable | None:
        meta = wire.metadata
        annotations, labels = meta.annotations or _NOTHING, meta.labels or _NOTHING
        limits = _find_limits(wire.spec, shape)
        best_effort = is_best_effort(shape, dict(limits))
        is_bound = bool(wire.spec.node_name)
        hints = LoadHints(
            find_class(labels, wire.spec.priority or 0, is_best_effort=best_effort),
            limits,
            _read_factors(annotations.get(SCALING_FACTORS, "")),
            _read_seconds(annotations.get(AFTER_SCHEDULED)),
            _read_seconds(annotations.get(AFTER_INITIALIZED)),
            _read_transition(wire.status, POD_SCHEDULED) if is_bound else 0.0,
            _read_transition(wire.status, _INITIALIZED) if is_bound else 0.0,
        )
        return None if hints == NO_HINTS else hints


def read_own_limits(annotations: Mapping[str, str]) -> tuple[tuple[str, Hashable], ...]:
    """Return what annotations of a node say about its load, as an extension; () for nothing."""
    thresholds = _read_thresholds(annotations.get(USAGE_THRESHOLDS, ""))
    raw = _read_amounts(annotations.get(RAW_ALLOCATABLE, ""))
    own = OwnLimits(thresholds, raw)
    return () if own == OwnLimits() else ((NAME, own),)


def _find_limits(spec: PodSpec, shape: PodShape) -> tuple[tuple[str, int], ...]:
    """Return the effective limits that differ from the requests, by name."""
    running = [parse_limits(bytes(container.resources)) for container in spec.containers or ()]
    starting = [
        InitContainer(
            parse_limits(bytes(container.resources)), container.restart_policy == "Always"
        )
        for container in spec.init_containers or ()
    ]
    pod_level = parse_limits(bytes(spec.resources))
    if not any(running) and not any(init.requests for init in starting) and not pod_level:
        return ()
    limits = dict(effective_requests(running, starting, pod_level=pod_level))
    del limits[PODS]
    for name, amount in parse_amounts(bytes(spec.overhead)).items():
        if name in limits:
            limits[name] += amount
    requests = dict(shape.requests)
    return tuple(
        (name, amount)
        for name, amount in sorted(limits.items())
        if amount != requests.get(name) and (name in requests or name in _LIMITED)
    )


def _read_transition(status: PodStatus, kind: str) -> float:
    for condition in status.conditions or ():
        if condition.type == kind and condition.status == "True":
            return read_time(condition.last_transition_time or "")
    return 0.0


def _read_seconds(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    return min(int(text), _MAX_SECONDS)


@cached_by_text()
def _read_factors(text: str) -> tuple[tuple[str, int], ...]:
    if not text or len(text) > 4096:
        return ()
    try:
        factors = _factors_decoder.decode(text)
    except MALFORMED:
        return ()
    return tuple(sorted((name, max(0, min(n, 100))) for name, n in factors.items()))


@cached_by_text()
def _read_thresholds(text: str) -> LoadThresholds:
    if not text:
        return LoadThresholds()
    try:
        own = _thresholds_decoder.decode(text)
        aggregated = own.aggregated_usage or _Aggregated()
        seconds = parse_duration_seconds(aggregated.usage_aggregated_duration or "0s")
    except MALFORMED:
        return LoadThresholds()
    return LoadThresholds(
        _cut(own.usage_thresholds),
        _cut(own.prod_usage_thresholds),
        _cut(aggregated.usage_thresholds),
        Basis(aggregated.usage_aggregation_type, float(seconds or 0)),
    )


def _cut(percentages: Mapping[str, int] | None) -> dict[str, int]:
    return {name: max(0, min(n, 100)) for name, n in (percentages or {}).items()}


@cached_by_text()
def _read_amounts(text: str) -> tuple[tuple[str, int], ...]:
    if not text:
        return ()
    try:
        amounts: Amounts = {
            name: parse_amount(name, quantity)
            for name, quantity in _amounts_decoder.decode(text).items()
        }
    except MALFORMED:
        return ()
    return tuple(sorted(amounts.items()))
