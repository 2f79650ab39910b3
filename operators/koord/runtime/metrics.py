"""The metrics of the process, for Prometheus.

Packages outside ``runtime`` never import the client library. They report what happens through the
methods of ``Metrics``, which satisfy their protocols; numbers that they keep themselves are read by
collectors at every scrape. Each ``Metrics`` has a registry of its own.
"""

from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from koord.kube.binder import Outcome
from koord.runtime.quota_metrics import QuotaHistograms

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All series of the process: ``koord_<area>_<what>_<unit>``, and Koordinator's own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planning = _PlanningSeries(self.registry)
        self._writing = _WritingSeries(self.registry)
        self.quotas = QuotaHistograms(self.registry)

    def observe_cycle(self, seconds: float) -> None:
        """Record how long one plan took."""
        self._planning.cycle.observe(seconds)

    def count_planned(self, *, placed: int, refused: int) -> None:
        """Count the pods that one plan placed and refused."""
        self._planning.pods.labels("placed").inc(placed)
        self._planning.pods.labels("refused").inc(refused)

    def count_release(self, outcome: str) -> None:
        """Count one PATCH that removes our gate from a pod."""
        self._writing.releases.labels(outcome).inc()

    def count_bind(self, outcome: str) -> None:
        """Count one POST of a binding."""
        self._writing.binds.labels(outcome).inc()

    def observe_bind_latency(self, seconds: float) -> None:
        """Record the time from a complete unit to the binding of one of its pods."""
        self._writing.bind_latency.observe(seconds)

    def watch(self, collector: Collector) -> None:
        """Read a collector at every scrape."""
        self.registry.register(collector)

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
        for result in ("placed", "refused"):
            self.pods.labels(result)


class _WritingSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.releases = Counter(
            "koord_releases", "Patches that take our gate off.", ["outcome"], registry=registry
        )
        self.binds = Counter("koord_binds", "Bindings sent.", ["outcome"], registry=registry)
        # A series that begins with its first event hides that event from increase().
        for outcome in get_args(Outcome):
            self.releases.labels(outcome.__name__)
            self.binds.labels(outcome.__name__)
        self.bind_latency = Histogram(
            "koord_bind_latency_seconds",
            "Time from a complete unit to the accepted binding of a pod of it.",
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
