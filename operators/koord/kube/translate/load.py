"""What nodes use, as NodeMetrics report it: from the wire to ``koord.core.load``.

A usage of which an amount cannot be read, or can be no use, is left out as a whole, the others
count. Without that of the node itself a report says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from koord.api.quantity import parse_duration_seconds
from koord.caches import cached_by_text
from koord.core.load.model import (
    DEFAULT_INTERVAL,
    DEFAULT_WINDOW,
    Aggregation,
    HostApplicationLoad,
    LoadSource,
    NodeLoad,
    PodLoad,
)
from koord.core.model.koordinator_class import parse_class
from koord.core.model.units import CPU, Amounts
from koord.kube.decode import MALFORMED
from koord.kube.translate.amounts import check_usage, parse_usage
from koord.kube.wire import (
    AggregatedUsage,
    CollectPolicy,
    NamedResources,
    NodeMetricInfo,
    PodMetric,
    WireNodeMetric,
)

_NOTHING: Final[Amounts] = {}
_EMPTY: Final = frozenset({b"", b"{}", b"null"})
_decoder: Final = msgspec.json.Decoder(dict[str, str | int] | None)
_LONGEST: Final = 15
_SIZES: Final = {1: {"m": 1}, 2: {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}}
"""Length of a suffix -> what it stands for: thousandths of CPUs, and bytes."""
_AGGREGATIONS: Final = {str(kind): kind for kind in Aggregation}


def translate_node_metric(wire: WireNodeMetric) -> NodeLoad:
    status = wire.status
    info = status.node_metric or NodeMetricInfo()
    policy = wire.spec.metric_collect_policy or CollectPolicy()
    interval, window = policy.report_interval_seconds, policy.aggregate_duration_seconds
    reclaimable = status.prod_reclaimable_metric
    of_node, system = _read(info.node_usage), _read(info.system_usage)
    is_readable = all(map(_is_read, (of_node, system)))
    return NodeLoad(
        wire.metadata.name,
        LoadSource.NODE_METRIC,
        status.update_time.timestamp() if status.update_time else 0.0,
        float(interval) if interval and interval > 0 else DEFAULT_INTERVAL,
        float(window) if window and window > 0 else DEFAULT_WINDOW,
        status.node_metric is not None and is_readable,
        of_node,
        system,
        _read_aggregates(info.aggregated_node_usages or ()),
        dict(_read_pods(status.pods_metric or ())),
        tuple(
            HostApplicationLoad(_read(application.usage), parse_class(application.priority))
            for application in status.host_application_metric or ()
        ),
        _NOTHING if reclaimable is None else _read(reclaimable.resource),
        is_readable,
    )


def _is_read(usage: Amounts) -> bool:
    """Whether a usage that is written can be read."""
    return not isinstance(usage, LazyAmounts) or len(usage) > 0


class LazyAmounts(Mapping[str, int]):
    """Amounts that are parsed when somebody looks: of most pods nobody does."""

    __slots__ = ("_amounts", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._amounts: Amounts | None = None

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> int:
        return self._parse()[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._parse().get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parse())

    def __len__(self) -> int:
        return len(self._parse())

    def _parse(self) -> Amounts:
        if self._amounts is None:
            self._amounts, self._raw = _parse(self._raw), b""
        return self._amounts


def _parse(raw: bytes) -> Amounts:
    try:
        # Not cached: no two reports are equal.
        quantities = _decoder.decode(raw)
        return {name: _parse_usage(name, text) for name, text in (quantities or {}).items()}
    except MALFORMED:
        return _NOTHING


def _parse_usage(name: str, text: str | int) -> int:
    """Parse an amount; what agents write of CPUs and bytes, without a quantity in between."""
    if type(text) is str and text.isascii() and len(text) <= _LONGEST:
        end = 1 if name == CPU else 2
        digits, size = text[:-end], _SIZES[end].get(text[-end:])
        if size is not None and digits.isdecimal():
            return check_usage(name, int(digits) * size)
    return parse_usage(name, text)


def _read(usage: NamedResources) -> Amounts:
    raw = bytes(usage.resources)
    return _NOTHING if raw in _EMPTY else LazyAmounts(raw)


def _read_pods(metrics: Iterable[PodMetric]) -> Iterator[tuple[str, PodLoad]]:
    for metric in metrics:
        key = f"{metric.namespace}/{metric.name}"
        yield key, PodLoad(_read(metric.pod_usage), parse_class(metric.priority))


def _read_aggregates(
    listed: Iterable[AggregatedUsage],
) -> Mapping[Aggregation, Mapping[float, Amounts]]:
    aggregates: dict[Aggregation, dict[float, Amounts]] = {}
    for aggregated in listed:
        seconds = _read_duration(aggregated.duration)
        for name, usage in (aggregated.usage or {}).items() if seconds else ():
            kind, amounts = _AGGREGATIONS.get(name), _read(usage)
            if kind is not None and amounts:
                aggregates.setdefault(kind, {})[seconds] = amounts
    return aggregates


@cached_by_text()
def _read_duration(text: str) -> float:
    seconds = parse_duration_seconds(text)
    return 0.0 if seconds is None else float(seconds)
