"""The series of units that start: how long they waited, for what, and how often overtaken.

Counted from the records of decisions as they are read from the leader's feed. Knows no store.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec
from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.answers.audit_starts import StartFinder

WAITS: Final = (1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
"""Seconds."""
TIMES: Final = (0, 1, 2, 5, 10, 20, 50, 100)
_MS: Final = 1000


class StartedSeries(Collector):
    """Counts starts from ``since`` on, in milliseconds since the epoch."""

    def __init__(self, since: int = 0) -> None:
        self._units = StartFinder(since)
        self._waits = Histogram(
            "koord_wait_seconds",
            "Time from a new unit until it was bound, by what most of it was spent on.",
            ["class"],
            registry=None,
            buckets=WAITS,
        )
        self._phases = Counter(
            "koord_phase_seconds",
            "Time of units until all members that they need run, by phase.",
            ["phase"],
            registry=None,
        )
        self._overtaken = Histogram(
            "koord_overtaken",
            "How many units behind a unit that started were placed before it.",
            registry=None,
            buckets=TIMES,
        )

    def read(self, lines: Iterable[bytes]) -> None:
        """Take records in, in their order; in any thread, but one at a time."""
        for line in lines:
            try:
                record: Any = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            started = self._units.add(record) if isinstance(record, dict) else None
            if started is None:
                continue
            self._waits.labels(started.mostly).observe(started.waited / _MS)
            self._overtaken.observe(started.overtaken)
            for phase, ms in started.phases.items():
                self._phases.labels(phase).inc(ms / _MS)

    @override
    def collect(self) -> Iterator[Metric]:
        series = (self._waits, self._phases, self._overtaken)
        return chain.from_iterable(each.collect() for each in series)
