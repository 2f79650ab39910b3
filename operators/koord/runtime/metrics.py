"""What the process counts and measures, for Prometheus.

Other packages never import the client library: they are handed one of the recorders below, or a
protocol of their own that it satisfies. Each ``Metrics`` has a registry of its own, so several can
live in one interpreter without sharing counts.
"""

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All series of the process, named ``koord_<area>_<what>_<unit>``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planning = _PlanningSeries(self.registry)
        self._writing = _WritingSeries(self.registry)
        self._reading = _ReadingSeries(self.registry)

    def observe_cycle(self, seconds: float) -> None:
        """Record how long one planning cycle took."""
        self._planning.cycle.observe(seconds)

    def count_planned(self, *, placed: int, refused: int) -> None:
        """Count the pods that one plan placed and refused."""
        self._planning.pods.labels("placed").inc(placed)
        self._planning.pods.labels("refused").inc(refused)

    def set_pending(self, units_by_reason: Mapping[str, int]) -> None:
        """Say how many units wait, by reason; reasons not named any more disappear."""
        self._planning.pending.clear()
        for reason, units in units_by_reason.items():
            self._planning.pending.labels(reason).set(units)

    def set_assumed(self, pods: int) -> None:
        """Say how many pods are written but not yet confirmed by the watch."""
        self._planning.assumed.set(pods)

    def count_release(self, outcome: str) -> None:
        """Count one PATCH that took (or did not take) our gate off."""
        self._writing.releases.labels(outcome).inc()

    def count_bind(self, outcome: str) -> None:
        """Count one POST of a binding."""
        self._writing.binds.labels(outcome).inc()

    def observe_bind_latency(self, seconds: float) -> None:
        """Record the time from the moment a unit was complete to the binding of one of its pods."""
        self._writing.bind_latency.observe(seconds)

    def count_status_write(self, resource: str, outcome: str) -> None:
        """Count one update of a status subresource."""
        self._writing.statuses.labels(resource, outcome).inc()

    def for_reflector(self, resource: str) -> "ReflectorMetrics":
        """Return the recorder of one resource's reflector."""
        return ReflectorMetrics(self._reading, resource)

    def encode(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self.registry)


class ReflectorMetrics:
    """One resource's reflector: what it holds, and what it met on the way."""

    def __init__(self, series: "_ReadingSeries", resource: str) -> None:
        self._resource = resource
        self._events = series.events
        self._objects = series.objects.labels(resource)
        self._relists = series.relists.labels(resource)
        self._inferred_deletes = series.inferred_deletes.labels(resource)
        self._decode_errors = series.decode_errors.labels(resource)

    def set_objects(self, count: int) -> None:
        """Say how many objects the store holds."""
        self._objects.set(count)

    def count_event(self, event_type: str) -> None:
        """Count one watch event by its type."""
        self._events.labels(self._resource, event_type).inc()

    def count_relist(self) -> None:
        """Count one complete list, the first one included."""
        self._relists.inc()

    def count_inferred_deletes(self, objects: int) -> None:
        """Count deletions that no watch told of: found by comparing a list with the store."""
        self._inferred_deletes.inc(objects)

    def count_decode_error(self) -> None:
        """Count one object that could not be read."""
        self._decode_errors.inc()


class _PlanningSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycle = Histogram(
            "koord_cycle_seconds",
            "Time of one planning cycle, from snapshot to plan.",
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )
        self.pods = Counter(
            "koord_plan_pods", "Pods decided by the planner.", ["result"], registry=registry
        )
        self.pending = Gauge(
            "koord_pending_units", "Units that wait, by reason.", ["reason"], registry=registry
        )
        self.assumed = Gauge(
            "koord_assumed_pods", "Pods written but not yet seen on the watch.", registry=registry
        )


class _WritingSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.releases = Counter(
            "koord_releases", "Gates taken off pods.", ["outcome"], registry=registry
        )
        self.binds = Counter("koord_binds", "Bindings sent.", ["outcome"], registry=registry)
        self.bind_latency = Histogram(
            "koord_bind_latency_seconds",
            "Time from a complete unit to the accepted binding of a pod of it.",
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.statuses = Counter(
            "koord_status_writes",
            "Updates of status subresources.",
            ["resource", "outcome"],
            registry=registry,
        )


class _ReadingSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.objects = Gauge(
            "koord_reflector_objects", "Objects held.", ["resource"], registry=registry
        )
        self.events = Counter(
            "koord_reflector_events", "Watch events.", ["resource", "type"], registry=registry
        )
        self.relists = Counter(
            "koord_reflector_relists", "Complete lists.", ["resource"], registry=registry
        )
        self.inferred_deletes = Counter(
            "koord_reflector_inferred_deletes",
            "Deletions found by comparing a list with what was held.",
            ["resource"],
            registry=registry,
        )
        self.decode_errors = Counter(
            "koord_reflector_decode_errors",
            "Objects that could not be read.",
            ["resource"],
            registry=registry,
        )
