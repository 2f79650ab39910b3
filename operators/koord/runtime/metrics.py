"""What the process counts and measures, for Prometheus.

Other packages never import the client library: what happens is pushed through the methods of
``Metrics``, which satisfy their protocols; what merely is (objects held, units that wait) is asked
for when somebody scrapes. Each ``Metrics`` has a registry of its own, so several can live in one
interpreter without sharing counts.
"""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


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


class Metrics:
    """All series of the process, named ``koord_<area>_<what>_<unit>``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planning = _PlanningSeries(self.registry)
        self._writing = _WritingSeries(self.registry)

    def observe_cycle(self, seconds: float) -> None:
        """Record how long one plan took."""
        self._planning.cycle.observe(seconds)

    def count_planned(self, *, placed: int, refused: int) -> None:
        """Count the pods that one plan placed and refused."""
        self._planning.pods.labels("placed").inc(placed)
        self._planning.pods.labels("refused").inc(refused)

    def count_release(self, outcome: str) -> None:
        """Count one PATCH that was to take our gate off a pod."""
        self._writing.releases.labels(outcome).inc()

    def count_bind(self, outcome: str) -> None:
        """Count one POST of a binding."""
        self._writing.binds.labels(outcome).inc()

    def observe_bind_latency(self, seconds: float) -> None:
        """Record the time from a complete unit to the binding of one of its pods."""
        self._writing.bind_latency.observe(seconds)

    def watch_pending(self, units_by_reason: Callable[[], Mapping[str, int]]) -> None:
        """Ask ``units_by_reason`` at every scrape how many units wait, and why."""
        self.registry.register(_Pending(units_by_reason))

    def watch_assumed(self, pods: Callable[[], int]) -> None:
        """Ask ``pods`` at every scrape how many pods are written but not yet confirmed."""
        gauge = Gauge(
            "koord_assumed_pods",
            "Pods written but not yet seen on the watch.",
            registry=self.registry,
        )
        gauge.set_function(pods)

    def watch_reflectors(self, reflectors: Mapping[str, Reflecting]) -> None:
        """Read these reflectors, by the plural of their resource, at every scrape."""
        self.registry.register(_Reflectors(reflectors))

    def watch_status_writers(self, writers: Sequence[tuple[str, WritingStatus]]) -> None:
        """Read these writers, each with the plural of its resource, at every scrape."""
        self.registry.register(_StatusWrites(writers))

    def watch_events(self, recorder: Recording) -> None:
        """Read this recorder at every scrape."""
        self.registry.register(_Events(recorder))

    def encode(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self.registry)


class _PlanningSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycle = Histogram(
            "koord_cycle_seconds",
            "Time of one plan.",
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )
        self.pods = Counter(
            "koord_plan_pods", "Pods decided by the planner.", ["result"], registry=registry
        )


class _WritingSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.releases = Counter(
            "koord_releases", "Patches that take our gate off.", ["outcome"], registry=registry
        )
        self.binds = Counter("koord_binds", "Bindings sent.", ["outcome"], registry=registry)
        self.bind_latency = Histogram(
            "koord_bind_latency_seconds",
            "Time from a complete unit to the accepted binding of a pod of it.",
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Pending(Collector):
    units_by_reason: Callable[[], Mapping[str, int]]

    @override
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "koord_pending_units", "Units that wait, by reason.", labels=["reason"]
        )
        for reason, units in self.units_by_reason().items():
            family.add_metric([reason], units)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class _Reflectors(Collector):
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


@dataclass(frozen=True, slots=True, eq=False)
class _StatusWrites(Collector):
    writers: Sequence[tuple[str, WritingStatus]]

    @override
    def collect(self) -> Iterator[Metric]:
        # Several operators may write about one resource.
        tally: Tally[tuple[str, str]] = Tally()
        for resource, writer in self.writers:
            for outcome in _STATUS_OUTCOMES:
                tally[resource, outcome] += getattr(writer.stats, outcome)
        family = CounterMetricFamily(
            "koord_status_writes", "Statements about status.", labels=["resource", "outcome"]
        )
        for labels, count in tally.items():
            family.add_metric(labels, count)
        yield family


@dataclass(frozen=True, slots=True, eq=False)
class _Events(Collector):
    recorder: Recording

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("koord_events", "Events.", labels=["outcome"])
        for outcome in _EVENT_OUTCOMES:
            family.add_metric([outcome], getattr(self.recorder.stats, outcome))
        yield family


_STATUS_OUTCOMES: Final = ("written", "unchanged", "gone", "refused", "retried")
_EVENT_OUTCOMES: Final = ("emitted", "repeated", "dropped", "refused")

_REFLECTOR_GAUGES: tuple[tuple[str, str, Callable[[Reflecting], float]], ...] = (
    ("objects", "Objects held.", len),
    (
        "silence_seconds",
        "Time since the API server was last heard of.",
        lambda reflector: time.monotonic() - reflector.stats.last_contact,
    ),
)
_REFLECTOR_COUNTERS: tuple[tuple[str, str, Callable[[ReflectorStats], float]], ...] = (
    ("events", "Changes taken in.", lambda stats: stats.added + stats.modified + stats.deleted),
    ("relists", "Complete lists, the first one included.", lambda stats: stats.lists),
    ("watches", "Watches opened.", lambda stats: stats.watches),
    (
        "inferred_deletes",
        "Deletions that no watch told of, found by comparing with a list.",
        lambda stats: stats.inferred_deletes,
    ),
    ("decode_errors", "Objects that made no sense.", lambda stats: stats.poison),
    ("decode_seconds", "Time spent on decoding.", lambda stats: stats.decode_seconds),
    ("errors", "Lists and watches that failed.", lambda stats: stats.errors),
)
