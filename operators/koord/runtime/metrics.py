"""What the process counts and measures, for Prometheus.

Other packages never import the client library: what happens is pushed through the methods of
``Metrics``, which satisfy their protocols; what merely is (objects held, units that wait) is asked
for when somebody scrapes. Each ``Metrics`` has a registry of its own, so several can live in one
interpreter without sharing counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary
from koord.kube.binder import Outcome
from koord.kube.evictor import Eviction
from koord.runtime.collectors import (
    AuditCollector,
    Auditing,
    CountCollector,
    EventCollector,
    HookCollector,
    PendingCollector,
    QuotaCollector,
    Recording,
    Reflecting,
    ReflectorCollector,
    StatusCollector,
    WritingStatus,
)

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_QUOTA_WRITE_BUCKETS = tuple(0.001 * 2**at for at in range(15))
_QUOTA_BUCKETS = tuple(0.00001 * 2**at for at in range(24))
"""Those of Koordinator's series."""


class Metrics:
    """All series of the process, named ``koord_<area>_<what>_<unit>`` but for Koordinator's own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planning = _PlanningSeries(self.registry)
        self._writing = _WritingSeries(self.registry)
        self._quotas = _QuotaSeries(self.registry)

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
        self.registry.register(PendingCollector(units_by_reason))

    def watch_quotas(self, summaries: Callable[[], Iterable[Summary]]) -> None:
        """Ask ``summaries`` at every scrape for the numbers of all quotas."""
        self.registry.register(QuotaCollector(summaries))

    def observe_quota_write(self, seconds: float) -> None:
        """Record how long one request took that writes the status of a quota."""
        self._quotas.write.observe(seconds)

    def watch_quota_operations(self, keeper: QuotaCache) -> None:
        """Record how long operations on all quotas take."""
        keeper.stopwatch = lambda operation: self._quotas.process.labels(operation).time()

    def watch_quota_audit(self, audit: Auditing) -> None:
        """Read this audit of quotas at every scrape."""
        self.registry.register(AuditCollector(audit))

    def watch_evictions(self, counts: Callable[[], Mapping[Eviction, int]]) -> None:
        """Ask ``counts`` at every scrape how many pods were evicted for quotas, by outcome."""
        self.registry.register(
            CountCollector(
                "koord_quota_evictions",
                "Evictions of pods whose quota uses more than it is entitled to.",
                "outcome",
                lambda: {outcome: counts().get(outcome, 0) for outcome in Eviction},
            )
        )

    def watch_rejections(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Ask ``counts`` at every scrape how many pods kubelets have refused, by their reasons."""
        self.registry.register(
            CountCollector(
                "koord_kubelet_rejections",
                "Pods placed by us that the kubelet of their node has refused to run.",
                "reason",
                counts,
            )
        )

    def watch_assumed(self, pods: Callable[[], int]) -> None:
        """Ask ``pods`` at every scrape how many pods are written but not yet confirmed."""
        gauge = Gauge(
            "koord_assumed_pods",
            "Pods written but not yet seen on the watch.",
            registry=self.registry,
        )
        gauge.set_function(pods)

    def watch_leader(self, is_leader: Callable[[], bool]) -> None:
        """Ask ``is_leader`` at every scrape whether this process plans and writes."""
        gauge = Gauge(
            "koord_leader",
            "1 in the process that plans and writes, 0 in those that stand by.",
            registry=self.registry,
        )
        gauge.set_function(is_leader)

    def watch_reflectors(self, reflectors: Mapping[str, Reflecting]) -> None:
        """Read these reflectors, by the plural of their resource, at every scrape."""
        self.registry.register(ReflectorCollector(reflectors))

    def watch_status_writers(self, writers: Sequence[tuple[str, WritingStatus]]) -> None:
        """Read these writers, each with the plural of its resource, at every scrape."""
        self.registry.register(StatusCollector(writers))

    def watch_hooks(self, hooks: Hooks) -> None:
        """Record how long these hooks take, and read their failures at every scrape."""
        hooks.stopwatch = lambda hook, operation: self._quotas.hook.labels(hook, operation).time()
        self.registry.register(HookCollector(hooks))

    def watch_events(self, recorder: Recording) -> None:
        """Read this recorder at every scrape."""
        self.registry.register(EventCollector(recorder))

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


class _QuotaSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.write = Histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Time of one request that writes the status of a quota.",
            buckets=_QUOTA_WRITE_BUCKETS,
            registry=registry,
        )
        self.process = Histogram(
            "scheduler_elastic_quota_process_latency",
            "Seconds that an operation on all quotas takes.",
            ["operation"],
            buckets=_QUOTA_BUCKETS,
            registry=registry,
        )
        for operation in ("settle", "solve"):
            self.process.labels(operation)
        self.hook = Histogram(
            "scheduler_elastic_quota_hook_plugin_latency",
            "Seconds that a hook takes to answer.",
            ["plugin", "operation"],
            buckets=_QUOTA_BUCKETS,
            registry=registry,
        )
