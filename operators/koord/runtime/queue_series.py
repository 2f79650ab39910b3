"""The series of queues: who waits, since when, what was promised, and what became of it.

Read at every scrape from what the last look at the queues has seen, and counted as units start.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from koord.controllers.queue_looks import QueueLooks, UnitStart
from koord.core.model.units import CPU
from koord.core.queue.plugin import Queues
from koord.core.queue.promises import Certainty
from koord.core.queue.reasons import BehindHead, HeldByOwner, NotItsTurn, WouldDelay
from koord.core.queue.run_time import Knowledge
from koord.runtime.collectors import Samples, SeriesCollector

_SIZES: Final = ((1, "0-1"), (8, "2-8"), (64, "9-64"))
_WAITS: Final = (1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_RATIOS: Final = (0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 4)
_MOST_RANKS: Final = 10
_MILLI: Final = 1000
"""CPUs are counted in thousandths."""
_ERRORS: Final = (10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


def watch_queues(looks: QueueLooks, registry: CollectorRegistry) -> Iterator[Collector]:
    """Yield the series that are read; those of units that start are counted in the registry."""
    series = _StartSeries(registry)
    looks.on_start = series.note
    figures = _queues(looks).figures
    figures.clock, figures.on_end = time.perf_counter, series.note_end
    yield _gauge("units", "Units that wait, by state.", ["queue", "state"], lambda: _units(looks))
    yield _gauge(
        "head_age_seconds", "Since when the first unit is refused.", ["queue"], lambda: _ages(looks)
    )
    yield _gauge(
        "reservations",
        "Waiting units for which room is reserved.",
        ["queue", "kind"],
        lambda: _reservations(looks),
    )
    yield _gauge(
        "eta_coverage_ratio",
        "Part of the last starts that came within the bounds of what was expected.",
        ["certainty"],
        lambda: _coverage(looks),
    )
    yield SeriesCollector(
        CounterMetricFamily,
        "koord_queue_promise_broken",
        "Promised starts that moved later, by cause.",
        ["cause"],
        lambda: [((str(cause),), count) for cause, count in looks.broken.items()],
    )

    yield SeriesCollector(
        CounterMetricFamily,
        "koord_queue_held_idle_resource_seconds",
        "Reserved room that was idle and refused to others: amounts times seconds.",
        ["tree", "resource"],
        lambda: _idle(looks),
    )
    yield SeriesCollector(
        CounterMetricFamily,
        "koord_queue_shadow_seconds",
        "Time that finding room to reserve has taken.",
        [],
        lambda: [((), _queues(looks).figures.searched)],
    )
    yield _gauge(
        "user_share",
        "Part of what the users of a queue have used lately that one of them has, by rank.",
        ["queue", "rank"],
        lambda: _shares(looks),
    )


def _queues(looks: QueueLooks) -> Queues:
    return looks.state.plugin(Queues)


def _idle(looks: QueueLooks) -> Samples:
    for (tree, resource), amount in list(_queues(looks).figures.idle.items()):
        yield (tree, resource), amount / _MILLI if resource == CPU else amount


def _shares(looks: QueueLooks) -> Samples:
    return [
        ((queue, str(rank)), float(share))
        for queue, shares in _queues(looks).largest_shares(_MOST_RANKS)
        for rank, share in enumerate(shares, start=1)
    ]


def _gauge(name: str, text: str, labels: list[str], read: Callable[[], Samples]) -> SeriesCollector:
    return SeriesCollector(GaugeMetricFamily, f"koord_queue_{name}", text, labels, read)


def _units(looks: QueueLooks) -> Samples:
    counts: Counter[tuple[str, str]] = Counter()
    for key, blocked in looks.queue.blocked.items():
        standing = looks.standings.get(key)
        match blocked.reason:
            case HeldByOwner():
                state = "held"
            case NotItsTurn() if not isinstance(blocked.reason, BehindHead | WouldDelay):
                state = "parked"
            case _:
                is_reserved = standing is not None and standing.reservation is not None
                state = "reserved" if is_reserved else "waiting"
        counts[looks.queue_of(blocked.unit), state] += 1
    return list(counts.items())


def _ages(looks: QueueLooks) -> Samples:
    since: dict[str, int] = {}
    for standing in looks.standings.values():
        if standing.head_since is not None:
            earliest = since.get(standing.queue, standing.head_since)
            since[standing.queue] = min(earliest, standing.head_since)
    now = looks.clock()
    return [((queue,), max(0.0, now - at)) for queue, at in since.items()]


def _reservations(looks: QueueLooks) -> Samples:
    reserved = (
        (standing.queue, standing.reservation.kind)
        for standing in looks.standings.values()
        if standing.reservation is not None
    )
    return list(Counter(reserved).items())


def _coverage(looks: QueueLooks) -> Samples:
    for certainty in Certainty:
        errors = [error for error in looks.errors if error.certainty is certainty]
        if errors:
            yield (certainty,), sum(error.is_covered for error in errors) / len(errors)


class _StartSeries:
    """What is counted when a unit starts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waits = prometheus_client.Histogram(
            "koord_queue_wait_seconds",
            "Time from a complete unit to its start.",
            ["queue", "size_class", "kind"],
            buckets=_WAITS,
            registry=registry,
        )
        self._backfilled = prometheus_client.Counter(
            "koord_queue_backfilled",
            "Units that started before others with earlier turns.",
            ["queue"],
            registry=registry,
        )
        self._overtakes = prometheus_client.Counter(
            "koord_queue_overtakes",
            "Units with earlier turns that others have started before.",
            ["queue"],
            registry=registry,
        )
        self._errors = prometheus_client.Histogram(
            "koord_queue_eta_error_seconds",
            "How far starts were from what was expected first.",
            ["certainty"],
            buckets=_ERRORS,
            registry=registry,
        )

        self._ratios = prometheus_client.Histogram(
            "koord_queue_estimate_ratio",
            "Run time of a unit as part of what was expected, by how that was known.",
            ["level"],
            buckets=_RATIOS,
            registry=registry,
        )

    def note_end(self, level: Knowledge, ratio: float) -> None:
        self._ratios.labels(level).observe(ratio)

    def note(self, start: UnitStart) -> None:
        kind = "backfill" if start.overtaken else "in_order"
        size = next((name for most, name in _SIZES if start.gpus <= most), "65+")
        self._waits.labels(start.queue, size, kind).observe(start.waited)
        if start.overtaken:
            self._backfilled.labels(start.queue).inc()
            self._overtakes.labels(start.queue).inc(start.overtaken)
        if start.error is not None:
            self._errors.labels(start.error.certainty).observe(start.error.seconds)
