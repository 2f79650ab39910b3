"""The series of ``koord serve`` beside those of its requests: its state, streams, reviews, store.

Read at every scrape from what the parts count themselves. How many rows a store has takes a scan,
so that is looked up in a thread once a minute.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.runtime.reviews import ReviewCounts
from koord.see.sessions import Sessions
from koord.see.snapshots import Snapshots
from koord.see.stream import EventStreams
from koord.store.errors import StoreError
from koord.store.keeper import StoreHealth
from koord.store.reading import StoreExtent

EXTENT_SECONDS: Final = 60.0
_MS: Final = 1000
log = logging.getLogger(__name__)


class ServeSeries(Collector):
    """How old the state is, who follows it, and what was asked of the API server about them.

    ``reviews`` returns the counts by what was asked about.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        streams: EventStreams,
        sessions: Sessions,
        reviews: Callable[[], Iterable[tuple[str, ReviewCounts]]],
    ) -> None:
        self._snapshots, self._streams = snapshots, streams
        self._sessions, self._reviews = sessions, reviews

    @override
    def collect(self) -> Iterator[Metric]:
        last = self._snapshots.last
        yield _gauge("streams", "Streams that are open.", len(self._streams))
        yield _gauge("sessions", "Sessions of browsers.", len(self._sessions))
        yield _gauge(
            "ready", "Whether the cluster is read and current.", not self._snapshots.why_old
        )
        if last is not None:
            age = max(0.0, time.time() - last.at)
            yield _gauge(
                "state_age_seconds", "Since when the state was not brought up to date.", age
            )
        reviews = CounterMetricFamily(
            "koord_see_reviews",
            "Questions whose a token is and what a user may, by how they were answered.",
            labels=["about", "answer"],
        )
        kept = GaugeMetricFamily(
            "koord_see_reviews_kept", "Answers to them that are kept.", labels=["about"]
        )
        for about, counts in self._reviews():
            for answer, count in counts.answers():
                reviews.add_metric([about, answer], count)
            kept.add_metric([about], counts.size)
        yield reviews
        yield kept


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """How a store is: ``failures`` are those of all times that it was opened."""

    is_written: bool
    failures: int
    health: StoreHealth
    feed_seconds: float
    """How long ago the feed was read to its end; infinite if it never was."""


class StoreSeries(Collector):
    """How a store is, and what it has. ``run`` it to have it measured.

    ``measure`` returns what there is, in any thread; it may raise ``StoreError``.
    """

    def __init__(
        self, look: Callable[[], StoreStanding], measure: Callable[[], StoreExtent]
    ) -> None:
        self._look, self._measure = look, measure
        self.extent: StoreExtent | None = None

    async def run(self) -> NoReturn:
        """Measure until cancelled."""
        while True:
            try:
                self.extent = await asyncio.to_thread(self._measure)
            except StoreError as error:
                self.extent = None
                log.debug("The store cannot be measured", extra={"why": str(error)})
            await asyncio.sleep(EXTENT_SECONDS)

    @override
    def collect(self) -> Iterator[Metric]:
        standing, extent = self._look(), self.extent
        health = standing.health
        yield _counter(
            "store_failures", "How often it could not be opened or written.", standing.failures
        )
        yield _gauge("store_written", "Whether it is open and written.", standing.is_written)
        yield _counter("store_written_records", "Records that were written.", health.records)
        dropped = CounterMetricFamily(
            "koord_see_store_dropped", "What was not written, by why.", labels=["why"]
        )
        for why, count in (
            ("invalid", health.invalid),
            ("late", health.late),
            ("busy", health.refused),
        ):
            dropped.add_metric([why], count)
        yield dropped
        if standing.feed_seconds != float("inf"):
            yield GaugeMetricFamily(
                "koord_feed_behind_seconds",
                "How long ago the feed of the leader was read to its end.",
                value=standing.feed_seconds,
            )
        if extent is not None:
            yield _gauge("store_records", "Records that it has.", extent.records)
            yield _gauge("store_segments", "Segments of usage that it has.", extent.segments)
            yield _gauge("store_bytes", "What it takes on the disk.", extent.bytes)
            if extent.first is not None:
                age = max(0.0, time.time() - extent.first / _MS)
                yield _gauge("store_oldest_age_seconds", "How old its oldest record is.", age)


def _gauge(name: str, means: str, value: float) -> Metric:
    return GaugeMetricFamily(f"koord_see_{name}", means, value=value)


def _counter(name: str, means: str, value: float) -> Metric:
    return CounterMetricFamily(f"koord_see_{name}", means, value=value)
