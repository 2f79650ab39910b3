"""Series that are read at every scrape, from plain numbers that other modules keep."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats


class Reflecting(Protocol):
    """A reflector, as far as it is measured."""

    stats: ReflectorStats

    def __len__(self) -> int:
        """Return how many objects it holds."""
        ...


class WritingStatus(Protocol):
    """A status writer, as far as it is measured."""

    stats: StatusStats


class Recording(Protocol):
    """An event recorder, as far as it is measured."""

    stats: EventStats


@dataclass(frozen=True, slots=True, eq=False)
class PendingCollector(Collector):
    """Pending units, by reason."""

    units_by_reason: Callable[[], Mapping[str, int]]

    @override
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "koord_pending_units", "Pending units, by reason.", labels=["reason"]
        )
        for reason, units in self.units_by_reason().items():
            family.add_metric([reason], units)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class CountCollector(Collector):
    """Counts that are kept elsewhere, by one label."""

    name: str
    text: str
    label: str
    counts: Callable[[], Mapping[str, int]]

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self.name, self.text, labels=[self.label])
        for value, count in self.counts().items():
            family.add_metric([value], count)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class GaugeCollector(Collector):
    """One number that is kept elsewhere."""

    name: str
    text: str
    read: Callable[[], float]

    @override
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self.name, self.text, value=self.read())


@dataclass(frozen=True, slots=True, eq=False)
class ReflectorCollector(Collector):
    """Reflectors, by the plural of their resource."""

    reflectors: Mapping[str, Reflecting]

    @override
    def collect(self) -> Iterator[Metric]:
        for name, text, read in _REFLECTOR_GAUGES:
            gauge = GaugeMetricFamily(f"koord_reflector_{name}", text, labels=["resource"])
            for resource, reflector in self.reflectors.items():
                gauge.add_metric([resource], read(reflector))
            yield gauge
        for name, text, count in _REFLECTOR_COUNTERS:
            counter = CounterMetricFamily(f"koord_reflector_{name}", text, labels=["resource"])
            for resource, reflector in self.reflectors.items():
                counter.add_metric([resource], count(reflector.stats))
            yield counter
        events = CounterMetricFamily(
            "koord_reflector_events", "Changes received.", labels=["resource", "type"]
        )
        for resource, reflector in self.reflectors.items():
            for kind in _EVENT_TYPES:
                events.add_metric([resource, kind], getattr(reflector.stats, kind))
        yield events


@dataclass(frozen=True, slots=True, eq=False)
class StatusCollector(Collector):
    """Status writers, with the plural of their resource; those of one resource are summed up."""

    writers: Sequence[tuple[str, WritingStatus]]

    @override
    def collect(self) -> Iterator[Metric]:
        tally: Counter[tuple[str, str]] = Counter()
        for resource, writer in self.writers:
            for outcome in _STATUS_OUTCOMES:
                tally[resource, outcome] += getattr(writer.stats, outcome)
        family = CounterMetricFamily(
            "koord_status_writes", "Requests that write status.", labels=["resource", "outcome"]
        )
        for labels, count in tally.items():
            family.add_metric(labels, count)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class EventCollector(Collector):
    """Events, by outcome."""

    recorder: Recording

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("koord_events", "Events.", labels=["outcome"])
        for outcome in _EVENT_OUTCOMES:
            family.add_metric([outcome], getattr(self.recorder.stats, outcome))
        yield family


def count_rejections(counts: Callable[[], Mapping[str, int]]) -> CountCollector:
    """Return the series of pods that kubelets rejected, given the counts by reason."""
    return CountCollector(
        "koord_kubelet_rejections",
        "Pods placed by us that the kubelet of their node has refused to run.",
        "reason",
        counts,
    )


def gauge_assumed(pods: Callable[[], int]) -> GaugeCollector:
    """Return the number of pods that are written but not confirmed yet."""
    return GaugeCollector("koord_assumed_pods", "Pods written but not yet seen on the watch.", pods)


def gauge_leader(is_leader: Callable[[], bool]) -> GaugeCollector:
    """Return whether this process plans and writes."""
    text = "1 in the process that plans and writes, 0 in those that stand by."
    return GaugeCollector("koord_leader", text, is_leader)


_STATUS_OUTCOMES: Final = ("written", "unchanged", "gone", "refused", "retried")
_EVENT_TYPES: Final = ("added", "modified", "deleted")
_EVENT_OUTCOMES: Final = ("emitted", "repeated", "dropped", "refused")

_REFLECTOR_GAUGES: tuple[tuple[str, str, Callable[[Reflecting], float]], ...] = (
    ("objects", "Objects held.", len),
    (
        "silence_seconds",
        "Time since the last data from the API server.",
        lambda reflector: reflector.stats.silence,
    ),
)
_REFLECTOR_COUNTERS: tuple[tuple[str, str, Callable[[ReflectorStats], float]], ...] = (
    ("relists", "Complete lists, the first one included.", lambda stats: stats.lists),
    ("watches", "Watches opened.", lambda stats: stats.watches),
    (
        "inferred_deletes",
        "Deletions that no watch reported, found by comparing with a list.",
        lambda stats: stats.inferred_deletes,
    ),
    ("decode_errors", "Objects that could not be decoded.", lambda stats: stats.poison),
    ("decode_seconds", "Time spent decoding.", lambda stats: stats.decode_seconds),
    ("errors", "Lists and watches that failed.", lambda stats: stats.errors),
)
