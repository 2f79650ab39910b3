"""The series of what pods hold and quotas are owed, and of what became of all GPUs.

Read at scrapes from the state of the leader. Knows no pod: what is counted is counted elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from koord.answers.fragmentation import count_by_model, model_of
from koord.answers.gpus import MILLI, count_slices
from koord.answers.usage_levels import divide
from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.model.reason_class import ReasonClass
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.counters import ResourceLabels, UsageKind, UsageLabels
from koord.core.usage.plugin import UsageTimes
from koord.core.usage.segments import MS_PER_SECOND
from koord.core.usage.slices import measure_slices
from koord.runtime.collectors import Samples, SeriesCollector
from koord.runtime.team_series import GPUS_SECONDS, WAITING_SECONDS, find_waiting

_FAULT_OF_CLUSTER: Final = frozenset(
    {ReasonClass.QUOTA, ReasonClass.ROOM, ReasonClass.ORDER, ReasonClass.ENDING}
)
"""Who waits for another reason waits for its owner."""


@dataclass(slots=True)
class UsageFigures:
    """What is counted, and what is looked at once in a while. ``clock`` is that of the state.

    ``queue`` is None where nothing is planned; then nothing waits. ``budgets`` are GPU hours of 30
    days by quota.
    """

    state: ClusterState
    queue: Queue | None
    clock: Callable[[], float]
    budgets: Mapping[str, int] = field(default_factory=dict)
    _waited_at: float = float("-inf")
    _capacity: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _looked_at: float = float("-inf")

    @property
    def _times(self) -> UsageTimes:
        return self.state.plugin(UsageTimes)

    def gpus(self) -> Samples:
        """Return thousandths of GPUs times seconds."""
        now = self.clock()
        if self.queue is not None and not 0 <= now - self._waited_at < WAITING_SECONDS:
            self._waited_at = now
            self._times.note_waiting(_count_waiting(self.state, self.queue), now)
        return _per_second(self._times.collect(now))

    def resources(self) -> Samples:
        """Return amounts of other resources times seconds."""
        return _per_second(self._times.collect_resources(self.clock()))

    def capacity(self) -> Samples:
        """Return thousandths of GPUs by model and state; those of a model add up to its GPUs."""
        now = self.clock()
        if not 0 <= now - self._looked_at < GPUS_SECONDS:
            self._looked_at = now
            self._capacity = dict(_find_capacity(self.state, self._times.sum_by_model()))
        return self._capacity.items()


def _per_second(
    amounts: Iterable[tuple[UsageLabels, int]] | Iterable[tuple[ResourceLabels, int]],
) -> Samples:
    return ((labels, amount / MS_PER_SECOND) for labels, amount in amounts)


def _count_waiting(state: ClusterState, queue: Queue) -> Mapping[UsageLabels, int]:
    waiting: Counter[UsageLabels] = Counter()
    for unit in find_waiting(state, queue):
        if unit.reason_class in _FAULT_OF_CLUSTER:
            waiting[UsageLabels(unit.quota, "", "", UsageKind.WAITING)] += unit.milli_gpus
    return waiting


def _find_capacity(
    state: ClusterState, held: Mapping[tuple[str, str], int]
) -> Iterable[tuple[tuple[str, str], int]]:
    total, broken, down = Counter[str](), Counter[str](), Counter[str]()
    for gpus in count_by_model(state):
        total[gpus.model] = (gpus.used + gpus.free + gpus.broken + gpus.down) * MILLI
        broken[gpus.model], down[gpus.model] = gpus.broken * MILLI, gpus.down * MILLI
    for _, row in state.table.live_rows():
        node = state.table.node_at(row)
        if slices := count_slices(node.allocatable):
            total[model_of(node)] += measure_slices(slices)
    for model, most in sorted(total.items()):
        wanted = {
            GpuState.USED: held.get((model, UsageKind.HELD), 0),
            GpuState.RESERVED: held.get((model, UsageKind.RESERVED), 0),
            GpuState.BROKEN: broken[model],
            GpuState.DOWN: down[model],
        }
        for gpu_state, amount in divide(most, wanted).items():
            yield (model, str(gpu_state)), amount


def watch_usage(figures: UsageFigures) -> list[SeriesCollector]:
    """Return the series."""
    return [
        SeriesCollector(
            CounterMetricFamily,
            "koord_usage_milligpu_seconds",
            "Thousandths of GPUs times seconds, by kind, while this process led.",
            UsageLabels._fields,
            figures.gpus,
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_usage_resource_seconds",
            "CPUs (thousandths) and bytes that pods have held, times seconds.",
            ResourceLabels._fields,
            figures.resources,
        ),
        SeriesCollector(
            GaugeMetricFamily,
            "koord_capacity_milligpus",
            "Thousandths of GPUs by model and state; those of a model add up to its GPUs.",
            ("model", "state"),
            figures.capacity,
        ),
        SeriesCollector(
            GaugeMetricFamily,
            "koord_usage_budget_gpu_hours",
            "GPU hours in 30 days that a quota may use, as the configuration says.",
            ("quota",),
            lambda: [((quota,), hours) for quota, hours in sorted(figures.budgets.items())],
        ),
    ]
