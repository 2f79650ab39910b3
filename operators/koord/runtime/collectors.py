"""Series that are read when somebody scrapes: what is, and what others count for themselves.

The counters stay plain numbers where they are counted; only here do they become series.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary, measure
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
    """Units that wait, by reason."""

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
class QuotaCollector(Collector):
    """The numbers of quotas, under the name and the labels that Koordinator gives them."""

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
    """An audit of quotas, as far as it is measured."""

    @property
    def drift(self) -> Mapping[str, int]:
        """Field -> sum of all differences, in canonical units."""

    @property
    def repairs(self) -> int:
        """How often there were any."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditCollector(Collector):
    """What the audit of quotas has found."""

    audit: Auditing

    @override
    def collect(self) -> Iterator[Metric]:
        drift = GaugeMetricFamily(
            "koord_quota_drift",
            "Differences between what is kept of quotas and what their pods add up to.",
            labels=["field"],
        )
        for field, amount in self.audit.drift.items():
            drift.add_metric([field], amount)
        yield drift
        yield CounterMetricFamily(
            "koord_quota_repairs",
            "How often quotas were counted anew because of such differences.",
            value=self.audit.repairs,
        )


@dataclass(frozen=True, slots=True, eq=False)
class CountCollector(Collector):
    """Numbers that somebody else counts, told apart by one label."""

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
class HookCollector(Collector):
    """Failures of hooks."""

    hooks: Hooks

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "koord_quota_hook_failures",
            "How often a quota hook failed; what it would have checked was let through.",
            labels=["hook", "operation"],
        )
        for (name, operation), failure in sorted(self.hooks.failures.items()):
            family.add_metric([name, operation], failure.count)
        yield family


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
            "koord_reflector_events", "Changes taken in.", labels=["resource", "type"]
        )
        for resource, reflector in self.reflectors.items():
            for kind in _EVENT_TYPES:
                events.add_metric([resource, kind], getattr(reflector.stats, kind))
        yield events


@dataclass(frozen=True, slots=True, eq=False)
class StatusCollector(Collector):
    """Status writers, each with the plural of its resource; those of one resource are added up."""

    writers: Sequence[tuple[str, WritingStatus]]

    @override
    def collect(self) -> Iterator[Metric]:
        tally: Counter[tuple[str, str]] = Counter()
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
class EventCollector(Collector):
    """An event recorder."""

    recorder: Recording

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("koord_events", "Events.", labels=["outcome"])
        for outcome in _EVENT_OUTCOMES:
            family.add_metric([outcome], getattr(self.recorder.stats, outcome))
        yield family


_STATUS_OUTCOMES: Final = ("written", "unchanged", "gone", "refused", "retried")
_EVENT_TYPES: Final = ("added", "modified", "deleted")
_EVENT_OUTCOMES: Final = ("emitted", "repeated", "dropped", "refused")

_REFLECTOR_GAUGES: tuple[tuple[str, str, Callable[[Reflecting], float]], ...] = (
    ("objects", "Objects held.", len),
    (
        "silence_seconds",
        "Time since the API server was last heard of.",
        lambda reflector: reflector.stats.silence,
    ),
)
_REFLECTOR_COUNTERS: tuple[tuple[str, str, Callable[[ReflectorStats], float]], ...] = (
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
