"""The metrics of the process, for Prometheus.

Packages outside ``runtime`` never import the client library. They report what happens through the
methods of ``Metrics``, which satisfy their protocols; numbers that they keep themselves are read by
collectors at every scrape. Each ``Metrics`` has a registry of its own.

They are rendered in another thread than that of the numbers. So ``take`` reads them, in the event
loop that changes them, into values that do not change, and ``encode`` makes the text in any thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.core.quota.cache import QuotaCache
from koord.isolation import Isolation
from koord.kube.outcomes import Outcome

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WRITE_BUCKETS: Final = tuple(0.001 * 2**at for at in range(15))
_OPERATION_BUCKETS: Final = tuple(0.00001 * 2**at for at in range(24))
"""Of Koordinator's series."""


T = TypeVar("T")


class TextSeries(Protocol[T]):
    """Series of so many samples that their text is kept: ``render`` is called in any thread."""

    def read(self) -> T:
        """Return the numbers, as a value that does not change."""

    def render(self, value: T, /) -> bytes:
        """Return their text."""


class Metrics:
    """All series of the process: ``koord_<area>_<what>_<unit>``, and Koordinator's own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planning = _PlanningSeries(self.registry)
        self._writing = _WritingSeries(self.registry)
        self.quotas = QuotaHistograms(self.registry)
        self._watched: list[Collector] = []
        self._isolated = Isolation("metrics")
        self._texts: list[TextSeries[Any]] = []
        self._taken = _Taken([])

    def observe_cycle(self, seconds: float) -> None:
        self._planning.cycle.observe(seconds)

    def count_planned(self, *, placed: int, refused: int) -> None:
        self._planning.pods.labels("placed").inc(placed)
        self._planning.pods.labels("refused").inc(refused)

    def count_futile_plan(self) -> None:
        self._planning.futile.inc()

    def count_release(self, outcome: str) -> None:
        self._writing.releases.labels(outcome).inc()

    def count_bind(self, outcome: str) -> None:
        self._writing.binds.labels(outcome).inc()

    def observe_bind_latency(self, seconds: float) -> None:
        """Record the time from a complete unit to the binding of one of its pods."""
        self._writing.bind_latency.observe(seconds)

    def watch(self, *collectors: Collector) -> None:
        self._watched += collectors

    def watch_text(self, series: "TextSeries[Any]") -> None:
        self._texts.append(series)

    def take(self) -> None:
        """Read the numbers of all collectors."""
        read = (
            self._isolated.call(i, list, collector.collect())
            for i, collector in enumerate(self._watched)
        )
        families = [family for read_families in read for family in read_families or ()]
        values = (
            (series, self._isolated.call(type(series), series.read)) for series in self._texts
        )
        texts = tuple((series, value) for series, value in values if value is not None)
        self._taken = _Taken(families, texts)

    def encode(self) -> bytes:
        """Return the text format, with the numbers that were taken last."""
        taken = self._taken
        text = generate_latest(self.registry) + generate_latest(taken)
        return text + b"".join(series.render(value) for series, value in taken.texts)


@dataclass(frozen=True, slots=True, eq=False)
class _Taken(Collector):
    """Numbers as they were read; nothing changes them any more."""

    families: list[Metric]
    texts: "tuple[tuple[TextSeries[Any], Any], ...]" = ()

    @override
    def collect(self) -> Iterable[Metric]:
        return self.families


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
        self.futile = Counter(
            "koord_futile_plans", "Plans written without any effect.", registry=registry
        )


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


class QuotaHistograms:
    """How long operations on quotas take."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.write = Histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Time of one request that writes the status of a quota.",
            buckets=_WRITE_BUCKETS,
            registry=registry,
        )
        self.process = Histogram(
            "scheduler_elastic_quota_process_latency",
            "Seconds that an operation on all quotas takes.",
            ["operation"],
            buckets=_OPERATION_BUCKETS,
            registry=registry,
        )
        for operation in ("settle", "solve"):
            self.process.labels(operation)
        self.hook = Histogram(
            "scheduler_elastic_quota_hook_plugin_latency",
            "Seconds that a hook takes to answer.",
            ["plugin", "operation"],
            buckets=_OPERATION_BUCKETS,
            registry=registry,
        )

    def attach(self, quotas: QuotaCache) -> None:
        """Observe the operations and the hooks of these quotas."""
        quotas.stopwatch = lambda operation: self.process.labels(operation).time()
        quotas.hooks.stopwatch = lambda hook, operation: self.hook.labels(hook, operation).time()
