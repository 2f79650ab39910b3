"""The series for people: what waits in each quota and why, and how the GPUs of each model are used.

Read at scrapes from the state of the leader. Counting takes time where a thousand units wait or
there are thousands of nodes, so it is done once in a while and served again until then.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily

from koord.answers.fragmentation import GpuCounts, count_by_model
from koord.answers.gpus import count_gpus, measure_request
from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason
from koord.runtime.collectors import Samples, SeriesCollector

MOST_QUOTAS: Final = 200
"""Quotas with labels of their own: those where most waits. The others are summed up."""
OTHERS: Final = "(others)"
WAITING_SECONDS: Final = 5.0
"""How long a count of what waits is served again."""
GPUS_SECONDS: Final = 60.0
"""The same for GPUs, of which the whole cluster is looked at."""


class TeamWaiting(NamedTuple):
    """A gang or a pod that waits; ``since`` its first pod was created."""

    quota: str
    reason_class: str
    gpus: int
    since: float
    milli_gpus: int


@dataclass(slots=True)
class _Count:
    units: int = 0
    gpus: int = 0
    oldest: float = float("inf")


@dataclass(slots=True)
class TeamFigures:
    """Counts for the series; used in the event loop that plans. ``clock`` is that of the state."""

    state: ClusterState
    queue: Queue
    clock: Callable[[], float]
    _waiting: dict[tuple[str, str], _Count] = field(default_factory=dict)
    _counted_at: float = float("-inf")
    _models: tuple[GpuCounts, ...] = ()
    _looked_at: float = float("-inf")

    def waiting(self) -> Mapping[tuple[str, str], _Count]:
        """Return what waits, by quota and class."""
        now = self.clock()
        if not 0 <= now - self._counted_at < WAITING_SECONDS:
            self._counted_at = now
            self._waiting = _count(find_waiting(self.state, self.queue))
        return self._waiting

    def models(self) -> tuple[GpuCounts, ...]:
        """Return the GPUs of each model."""
        now = self.clock()
        if not 0 <= now - self._looked_at < GPUS_SECONDS:
            self._looked_at = now
            self._models = count_by_model(self.state)
        return self._models

    def ages(self) -> Samples:
        """Return how long the oldest of each quota and class waits."""
        now = self.clock()
        for labels, count in self.waiting().items():
            yield labels, max(0.0, now - count.oldest)


def watch_teams(figures: TeamFigures) -> list[SeriesCollector]:
    """Return the series."""
    waiting = ("quota", "class")

    def count(read: Callable[[_Count], int]) -> Callable[[], Samples]:
        return lambda: [(labels, read(count)) for labels, count in figures.waiting().items()]

    return [
        _gauge(
            "waiting_units",
            "Gangs and single pods that wait, by quota and class of reason.",
            waiting,
            count(lambda count: count.units),
        ),
        _gauge(
            "waiting_gpus",
            "GPUs that they ask for.",
            waiting,
            count(lambda count: count.gpus),
        ),
        _gauge(
            "longest_wait_seconds",
            "Since when the first pod of the one that waits for longest exists.",
            waiting,
            figures.ages,
        ),
        _gauge(
            "gpus",
            "GPUs by model: used or reserved, free, broken, or of nodes that are down.",
            ("model", "state"),
            lambda: _list_gpus(figures.models()),
        ),
        _gauge(
            "gpus_apart",
            "Free GPUs that pods of so many GPUs each cannot use, because they lie apart.",
            ("model", "size"),
            lambda: _list_losses(figures.models()),
        ),
    ]


def _gauge(
    name: str, text: str, labels: tuple[str, ...], read: Callable[[], Samples]
) -> SeriesCollector:
    return SeriesCollector(GaugeMetricFamily, f"koord_{name}", text, labels, read)


def find_waiting(state: ClusterState, queue: Queue) -> Iterator[TeamWaiting]:
    """Yield what waits, with the class of its reason."""
    for blocked in queue.blocked.values():
        yield _describe(state, blocked.pods, blocked.reason)
    for unit in queue.pending():
        if unit.key not in queue.blocked:
            yield _describe(state, unit.pods, None)
    for name, reason in queue.incomplete():
        pods = _find_pods(state, name)
        if pods:
            yield _describe(state, pods, reason)


def _find_pods(state: ClusterState, name: str) -> tuple[Pod, ...]:
    """Return the pods of a gang, or a single one by its uid."""
    if name in state.gangs:
        return tuple(pod for pod in state.gangs.members(name).values() if not pod.node)
    pod = state.pods.get(name)
    return () if pod is None else (pod,)


def _describe(state: ClusterState, pods: Iterable[Pod], reason: Reason | None) -> TeamWaiting:
    pods = tuple(pods)
    reason_class = ReasonClass.ORDER if reason is None else reason.reason_class
    return TeamWaiting(
        state.quotas.quota_of(pods[0]),
        str(reason_class or ""),
        sum(count_gpus(dict(pod.shape.requests)) for pod in pods),
        min(pod.created for pod in pods),
        sum(measure_request(dict(pod.shape.requests)).amount for pod in pods),
    )


def _count(waiting: Iterable[TeamWaiting]) -> dict[tuple[str, str], _Count]:
    units = list(waiting)
    most = Counter(unit.quota for unit in units).most_common(MOST_QUOTAS)
    named = {quota for quota, _ in most}
    counts: dict[tuple[str, str], _Count] = defaultdict(_Count)
    for unit in units:
        count = counts[unit.quota if unit.quota in named else OTHERS, unit.reason_class]
        count.units += 1
        count.gpus += unit.gpus
        count.oldest = min(count.oldest, unit.since)
    return dict(counts)


def _list_gpus(models: Iterable[GpuCounts]) -> Samples:
    for gpus in models:
        yield (gpus.model, "used"), gpus.used
        yield (gpus.model, "free"), gpus.free
        yield (gpus.model, "broken"), gpus.broken
        yield (gpus.model, "down"), gpus.down


def _list_losses(models: Iterable[GpuCounts]) -> Samples:
    for gpus in models:
        for size in gpus.sizes:
            yield (gpus.model, str(size.size)), size.lost
