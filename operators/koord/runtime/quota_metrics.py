"""The series of quotas, most of them under the names that Koordinator gives them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary, measure
from koord.kube.evictor import Eviction
from koord.runtime.collectors import CountCollector

_WRITE_BUCKETS: Final = tuple(0.001 * 2**at for at in range(15))
_OPERATION_BUCKETS: Final = tuple(0.00001 * 2**at for at in range(24))
"""Those of Koordinator's series."""


@dataclass(frozen=True, slots=True, eq=False)
class QuotaCollector(Collector):
    """The numbers of quotas, with Koordinator's name and labels."""

    summaries: Callable[[], Iterable[Summary]]

    @override
    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "scheduler_elastic_quota_status",
            "Numbers of quotas: CPU in thousandths, memory in bytes, others in pieces.",
            labels=["name", "tree", "is_parent", "parent", "field", "resource"],
        )
        for summary in self.summaries():
            is_parent = "true" if summary.is_parent else "false"
            labels = [summary.name, summary.tree, is_parent, summary.parent]
            for (field, resource), amount in measure(summary).items():
                family.add_metric([*labels, field, resource], amount)
        yield family


class Auditing(Protocol):
    """The audit of quotas, as far as it is measured."""

    @property
    def drift(self) -> Mapping[str, int]:
        """Field -> sum of all differences, in canonical units."""

    @property
    def repairs(self) -> int:
        """How many audits found differences."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditCollector(Collector):
    """The findings of the audit of quotas."""

    audit: Auditing

    @override
    def collect(self) -> Iterator[Metric]:
        drift = GaugeMetricFamily(
            "koord_quota_drift",
            "Differences between the recorded usage of quotas and the sums of their pods.",
            labels=["field"],
        )
        for field, amount in self.audit.drift.items():
            drift.add_metric([field], amount)
        yield drift
        yield CounterMetricFamily(
            "koord_quota_repairs",
            "How often quotas were recounted because of such differences.",
            value=self.audit.repairs,
        )


@dataclass(frozen=True, slots=True, eq=False)
class HookCollector(Collector):
    """Failures of hooks."""

    hooks: Hooks

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "koord_quota_hook_failures",
            "How often a quota hook failed; the pods it would have checked were let through.",
            labels=["hook", "operation"],
        )
        for (name, operation), failure in sorted(self.hooks.failures.items()):
            family.add_metric([name, operation], failure.count)
        yield family


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


def count_evictions(counts: Callable[[], Mapping[Eviction, int]]) -> CountCollector:
    """Return the series of evictions for quotas; ``counts`` are read at every scrape."""
    return CountCollector(
        "koord_quota_evictions",
        "Evictions of pods whose quota uses more than it is entitled to.",
        "outcome",
        lambda: {outcome: counts().get(outcome, 0) for outcome in Eviction},
    )
