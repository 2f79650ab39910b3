"""Series that are read at every scrape, from plain numbers that other modules keep.

Most series of quotas have the names that Koordinator gives them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.controllers.over_commit import OverCommitPublisher
from koord.controllers.preemption import PREEMPTION_OUTCOMES
from koord.controllers.quota_status import QuotaAudit
from koord.core.audit.ring import Ring
from koord.core.device.status import find_drift as find_device_drift
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Outcome
from koord.core.load.aware import LoadAware
from koord.core.load.counts import count_above, count_reports
from koord.core.model.reasons import class_of
from koord.core.model.units import is_unlimited
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary, measure
from koord.core.reservation.metrics import find_drift, phase_series, resource_series
from koord.core.reservation.plugin import Reservations
from koord.kube.events import EventRecorder
from koord.kube.evictor import Eviction
from koord.kube.reflector import Reflector
from koord.kube.status import StatusWriter

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, and the number."""
Family: TypeAlias = type[CounterMetricFamily] | type[GaugeMetricFamily]


@dataclass(frozen=True, slots=True, eq=False)
class SeriesCollector(Collector):
    """One metric; ``read`` returns its samples."""

    family: Family
    name: str
    text: str
    labels: Sequence[str]
    read: Callable[[], Samples]

    @override
    def collect(self) -> Iterator[Metric]:
        family = self.family(self.name, self.text, labels=self.labels)
        for labels, number in self.read():
            family.add_metric(labels, number)
        yield family


def rebalancing(counts: Callable[[], Samples], moves: Callable[[], Samples]) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_balance_nodes",
            "Nodes in the last round of a RebalancePolicy, by class.",
            ["policy", "class"],
            counts,
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_balance_moves",
            "Pods that a RebalancePolicy has moved.",
            ["policy"],
            moves,
        ),
    ]


def over_commit(publisher: OverCommitPublisher) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_over_commit_nodes",
            "Nodes, by whether they offer batch and mid resources.",
            ["state"],
            publisher.counts,
        ),
        SeriesCollector(
            GaugeMetricFamily,
            "koord_over_commit_offered",
            "Batch and mid resources that all nodes offer together.",
            ["resource"],
            publisher.totals,
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_over_commit_writes",
            "Writes of batch and mid resources to nodes, by outcome.",
            ["outcome"],
            publisher.writes,
        ),
    ]


def node_slos(count: Callable[[], Samples]) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_node_slo_nodes",
            "Nodes whose NodeSLO koordlet applies, nobody applies, or is still to be written.",
            ["state"],
            count,
        )
    ]


def node_ratios(count: Callable[[], Samples]) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_node_ratio_nodes",
            "Nodes whose ratios cannot be found, or are still to be written.",
            ["state"],
            count,
        )
    ]


def loads(aware: LoadAware) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_load_nodes",
            "Nodes, by who reports what they use, and how the report counts.",
            ["source", "state"],
            lambda: count_reports(aware).items(),
        ),
        SeriesCollector(
            GaugeMetricFamily,
            "koord_load_nodes_above_threshold",
            "Nodes that use more than their threshold, by resource.",
            ["resource"],
            lambda: [((name,), number) for name, number in count_above(aware).items()],
        ),
    ]


def defragmentation(shapes: Callable[[], Samples], moves: Callable[[], Samples]) -> list[Collector]:
    return [
        SeriesCollector(
            GaugeMetricFamily,
            "koord_defrag_shapes_fitting",
            "How many of a shape fit now, and would if all free GPUs were together.",
            ["policy", "shape", "free"],
            shapes,
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_defrag_moves",
            "Moves that a DefragmentationPolicy has ordered.",
            ["policy"],
            moves,
        ),
    ]


def migration_jobs(jobs_by_phase: Callable[[], Mapping[str, int]]) -> SeriesCollector:
    return SeriesCollector(
        GaugeMetricFamily,
        "koord_migration_jobs",
        "PodMigrationJobs, by phase.",
        ["phase"],
        lambda: [((phase,), number) for phase, number in jobs_by_phase().items()],
    )


def pending_units(units_by_reason: Callable[[], Mapping[str, int]]) -> SeriesCollector:
    return SeriesCollector(
        GaugeMetricFamily,
        "koord_pending_units",
        "Pending units, by the class of their reason and by reason.",
        ["class", "reason"],
        lambda: [
            ((class_of(code) or "", code), number) for code, number in units_by_reason().items()
        ],
    )


def audit_records(ring: Ring) -> list[SeriesCollector]:
    """Return how many records of decisions were made, and lost for want of room."""
    return [
        SeriesCollector(
            CounterMetricFamily,
            "koord_audit_records",
            "Records of decisions that were made.",
            [],
            lambda: [((), ring.made)],
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_audit_dropped",
            "Records of decisions that had no room any more.",
            [],
            lambda: [((), ring.dropped)],
        ),
    ]


def assumed_pods(count: Callable[[], int]) -> SeriesCollector:
    return SeriesCollector(
        GaugeMetricFamily,
        "koord_assumed_pods",
        "Pods written but not yet seen on the watch.",
        [],
        lambda: [((), count())],
    )


def isolated_failures(counts: Mapping[str, int]) -> SeriesCollector:
    return SeriesCollector(
        CounterMetricFamily,
        "koord_isolated_failures",
        "Objects left out of a loop after an unexpected error.",
        ["loop"],
        lambda: _by_one_label(counts),
    )


def leadership(is_leader: Callable[[], bool]) -> SeriesCollector:
    return SeriesCollector(
        GaugeMetricFamily,
        "koord_leader",
        "1 in the process that plans and writes, 0 in those that stand by.",
        [],
        lambda: [((), is_leader())],
    )


def kubelet_rejections(counts: Callable[[], Mapping[str, int]]) -> SeriesCollector:
    return SeriesCollector(
        CounterMetricFamily,
        "koord_kubelet_rejections",
        "Pods placed by us that the kubelet of their node has refused to run.",
        ["reason"],
        lambda: _by_one_label(counts()),
    )


def quota_evictions(counts: Callable[[], Mapping[Eviction, int]]) -> SeriesCollector:
    return SeriesCollector(
        CounterMetricFamily,
        "koord_quota_evictions",
        "Evictions of pods whose quota uses more than it is entitled to.",
        ["outcome"],
        lambda: [((outcome,), counts().get(outcome, 0)) for outcome in Eviction],
    )


def preemptions(
    counts: Callable[[], tuple[Mapping[Outcome, int], Mapping[Eviction, int]]],
) -> tuple[SeriesCollector, ...]:
    return (
        SeriesCollector(
            CounterMetricFamily,
            "koord_preemptions",
            "Preemptions that have ended.",
            ["outcome"],
            lambda: [((outcome,), counts()[0].get(outcome, 0)) for outcome in PREEMPTION_OUTCOMES],
        ),
        SeriesCollector(
            CounterMetricFamily,
            "koord_preemption_victims",
            "Deletions of preempted pods.",
            ["outcome"],
            lambda: [((outcome,), counts()[1].get(outcome, 0)) for outcome in Eviction],
        ),
    )


def event_outcomes(recorder: EventRecorder) -> SeriesCollector:
    return SeriesCollector(
        CounterMetricFamily,
        "koord_events",
        "Events.",
        ["outcome"],
        lambda: [((outcome,), getattr(recorder.stats, outcome)) for outcome in _EVENT_OUTCOMES],
    )


def status_writes(writers: Sequence[tuple[str, StatusWriter]]) -> SeriesCollector:
    """Return the outcomes of status writers, summed up by the plural of their resource."""

    def read() -> Samples:
        tally: Counter[tuple[str, str]] = Counter()
        for resource, writer in writers:
            for outcome in _STATUS_OUTCOMES:
                tally[resource, outcome] += getattr(writer.stats, outcome)
        return tally.items()

    return SeriesCollector(
        CounterMetricFamily,
        "koord_status_writes",
        "Requests that write status.",
        ["resource", "outcome"],
        read,
    )


def reflector_series(reflectors: Mapping[str, Reflector[Any, Any]]) -> Iterator[SeriesCollector]:
    """Yield the series of reflectors, which are given by the plural of their resource."""

    def read(field: str) -> Callable[[], Samples]:
        return lambda: [
            ((resource,), getattr(reflector.stats, field))
            for resource, reflector in reflectors.items()
        ]

    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reflector_objects",
        "Objects held.",
        ["resource"],
        lambda: [((resource,), len(reflector)) for resource, reflector in reflectors.items()],
    )
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reflector_silence_seconds",
        "Time since the last data from the API server.",
        ["resource"],
        read("silence"),
    )
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reflector_served",
        "Whether the API server serves a kind, by the version that is read.",
        ["resource", "version"],
        lambda: [
            ((resource, reflector.version), float(not reflector.is_absent))
            for resource, reflector in reflectors.items()
        ],
    )
    for name, (field, text) in _REFLECTOR_COUNTERS.items():
        yield SeriesCollector(
            CounterMetricFamily, f"koord_reflector_{name}", text, ["resource"], read(field)
        )
    yield SeriesCollector(
        CounterMetricFamily,
        "koord_reflector_events",
        "Changes received.",
        ["resource", "type"],
        lambda: [
            ((resource, kind), getattr(reflector.stats, kind))
            for resource, reflector in reflectors.items()
            for kind in _EVENT_TYPES
        ],
    )


def quota_audit(audit: QuotaAudit) -> Iterator[SeriesCollector]:
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_quota_drift",
        "Differences between the recorded usage of quotas and the sums of their pods.",
        ["field"],
        lambda: _by_one_label(audit.drift),
    )
    yield SeriesCollector(
        CounterMetricFamily,
        "koord_quota_repairs",
        "How often quotas were recounted because of such differences.",
        [],
        lambda: [((), audit.repairs)],
    )


def reservations(state: ClusterState) -> Iterator[SeriesCollector]:
    """Return Koordinator's series of reservations, and how far their accounts are off."""
    plugin = state.plugin(Reservations)
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reservation_status_phase",
        "1 for the phase of a reservation, 0 for the others.",
        ["name", "phase"],
        lambda: (
            ((reservation.name, phase), number)
            for reservation in plugin.reservations.values()
            for phase, number in phase_series(reservation.status).items()
        ),
    )
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reservation_resource",
        "What is reserved (allocatable), used (allocated), and their ratio (utilization).",
        ["name", "type", "resource", "unit"],
        lambda: (
            ((account.reservation.name, *labels), number)
            for account in plugin.accounts.values()
            for *labels, number in resource_series(account.reserved, account.allocated())
        ),
    )
    yield SeriesCollector(
        GaugeMetricFamily,
        "koord_reservation_drift",
        "Accounts of reservations, and of the devices of their nodes, that differ from the sums of "
        "their pods.",
        [],
        lambda: [
            ((), len(find_drift(state)) + len(find_device_drift(state, plugin.exact_nodes())))
        ],
    )


def hook_failures(hooks: Hooks) -> SeriesCollector:
    return SeriesCollector(
        CounterMetricFamily,
        "koord_quota_hook_failures",
        "How often a quota hook failed; the pods it would have checked were let through.",
        ["hook", "operation"],
        lambda: [(labels, failure.count) for labels, failure in sorted(hooks.failures.items())],
    )


def _by_one_label(numbers: Mapping[str, int]) -> Samples:
    return (((value,), number) for value, number in numbers.items())


_LIMITS: Final = frozenset({"max", "sharedWeight"})
_STATUS_OUTCOMES: Final = ("written", "unchanged", "gone", "refused", "retried")
_EVENT_TYPES: Final = ("added", "modified", "deleted")
_EVENT_OUTCOMES: Final = ("emitted", "repeated", "dropped", "refused")
_REFLECTOR_COUNTERS: Final = {
    "relists": ("lists", "Complete lists, the first one included."),
    "watches": ("watches", "Watches opened."),
    "inferred_deletes": (
        "inferred_deletes",
        "Deletions that no watch reported, found by comparing with a list.",
    ),
    "decode_errors": ("poison", "Objects that could not be decoded."),
    "decode_seconds": ("decode_seconds", "Time spent decoding."),
    "errors": ("errors", "Lists and watches that failed."),
}
"""End of the metric's name -> field of ``ReflectorStats``, and the help text."""


class QuotaSeries:
    """The series of quotas, as text.

    There are tens of thousands of lines, and few change from one scrape to the next: the lines of a
    quota are kept while its numbers stay the same. ``read`` returns the numbers of all quotas.
    """

    NAME: Final = "scheduler_elastic_quota_status"
    HEAD: Final = (
        b"# HELP scheduler_elastic_quota_status "
        b"Numbers of quotas: CPU in thousandths, memory in bytes, others in pieces.\n"
        b"# TYPE scheduler_elastic_quota_status gauge\n"
    )

    def __init__(self, read: Callable[[], tuple[Summary, ...]]) -> None:
        self.read = read
        self._kept: dict[str, tuple[Summary, bytes]] = {}

    def render(self, summaries: Iterable[Summary]) -> bytes:
        kept, self._kept = self._kept, {}
        for summary in summaries:
            before = kept.get(summary.name)
            if before is None or before[0] != summary:
                before = summary, self._write(summary)
            self._kept[summary.name] = before
        return b"".join([self.HEAD, *(lines for _, lines in self._kept.values())])

    def _write(self, summary: Summary) -> bytes:
        head = f'{self.NAME}{{name="{escape_label(summary.name)}",'
        head += f'tree="{escape_label(summary.tree)}",'
        head += f'is_parent="{"true" if summary.is_parent else "false"}",'
        head += f'parent="{escape_label(summary.parent)}",field="'
        return "".join(
            f'{head}{field}",resource="{escape_label(resource)}"}} {_write_sample(field, amount)}\n'
            for (field, resource), amount in measure(summary).items()
        ).encode()


def _write_sample(field: str, amount: int) -> str:
    """Write a number; a limit that is none is infinite, as dashboards show it."""
    return "+Inf" if field in _LIMITS and is_unlimited(amount) else str(amount)


@lru_cache(maxsize=1024)
def escape_label(text: str) -> str:
    """Return a value of a label as the text format has it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
