"""The series of the operators, as the code defines them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from types import FunctionType
from unittest.mock import Mock

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit
from tests.controllers.test_queue_looks import make_looks, make_waiting
from tests.device.test_plugin import gpu_cluster, settle, whole
from tests.load.load_cluster import LoadCluster, options_of
from tests.objects import upsert_reservation
from tests.reservation.make import make_reservation
from tests.see.test_start_series import list_start

from koord.agent.gpu_samples import FIGURES, CardSample
from koord.agent.holders import GpuHolder
from koord.agent.nvidia import Card
from koord.agent.regions import ContainerCard, ContainerKernel, RegionReading
from koord.answers.standing import QueueStanding
from koord.controllers.over_commit import Offered, OverCommitPublisher
from koord.controllers.queue_looks import ForecastError, UnitStart
from koord.controllers.quota_status import QuotaAudit
from koord.core.audit.ring import Ring
from koord.core.colocation.decide import OfferState
from koord.core.engine.queue import Blocked, Queue
from koord.core.engine.state import ClusterState
from koord.core.load.aware import LoadAware
from koord.core.model.reasons import REASONS
from koord.core.queue.plugin import Queues
from koord.core.queue.promises import Certainty
from koord.core.queue.run_time import Knowledge
from koord.core.queue.turns import StartReservation
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary
from koord.core.usage.counters import UsageKind, UsageLabels
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.domains.planning import PlanOptions
from koord.domains.registry import make_cluster_state
from koord.domains.usage import PLANNING as USAGE
from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats
from koord.runtime import collectors
from koord.runtime.collectors import QuotaSeries, SeriesCollector
from koord.runtime.device_series import DeviceSeries
from koord.runtime.gpu_series import GpuCollector
from koord.runtime.metrics import Metrics
from koord.runtime.owners import count_unknown
from koord.runtime.queue_series import watch_queues
from koord.runtime.reviews import ReviewCounts
from koord.runtime.team_series import TeamFigures, watch_teams
from koord.runtime.usage_series import UsageFigures, watch_usage
from koord.see.app import METRICS
from koord.see.observed import Observed
from koord.see.series import ServeSeries, StoreSeries, StoreStanding
from koord.see.start_series import StartedSeries
from koord.store.keeper import StoreHealth
from koord.store.reading import StoreExtent

OF_PROMETHEUS = {"up": set()}
"""Series that every job has, with their labels beside those of the target."""
OF_TARGETS = {"job", "instance", "component", "pod"}
"""Labels that scraping adds."""


class Stand:
    """A fake of a measured part."""

    version = "v1"
    is_absent = False

    def __init__(self, stats) -> None:
        self.stats = stats

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True)
class Series:
    labels: set[str]
    is_counter: bool
    values: dict[str, set[str]]
    """Label -> its observed values."""


HOOKS = Hooks()
HOOKS.fail("hook", "load", ImportError())
CPU_ONE = {"cpu": 1}
SUMMARY = Summary("q", max=CPU_ONE, min=CPU_ONE, share=CPU_ONE, used=CPU_ONE, request=CPU_ONE)


def make_metrics() -> Metrics:
    """Return metrics with a sample of every series."""
    metrics, quotas = Metrics(), QuotaCache(hooks=HOOKS)
    metrics.quotas.attach(quotas)
    made = {
        collectors.migration_jobs: dict.fromkeys(("Pending", "Running"), 1).copy,
        collectors.pending_units: dict.fromkeys(REASONS, 1).copy,
        collectors.quota_audit: QuotaAudit(*[None] * 3),
        collectors.hook_failures: HOOKS,
        collectors.reflector_series: dict.fromkeys(
            ("pods", "nodes", "podgroups"), Stand(ReflectorStats())
        ),
        collectors.status_writes: [("pods", Stand(StatusStats()))],
        collectors.event_outcomes: Stand(EventStats()),
        collectors.kubelet_rejections: lambda: {"OutOfcpu": 1},
        collectors.quota_evictions: dict,
        collectors.preemptions: lambda: ({}, {}),
        collectors.assumed_pods: lambda: 1,
        collectors.audit_records: Ring(16, 1 << 20),
        collectors.leadership: lambda: True,
        collectors.loads: _make_loaded(),
        collectors.isolated_failures: {"status": 1},
        collectors.reservations: _make_reserved_state(),
    }
    of_policies = [
        *collectors.rebalancing(lambda: [(("p", "low"), 1)], lambda: [(("p",), 1)]),
        *collectors.defragmentation(lambda: [(("p", "8", "now"), 1)], lambda: [(("p",), 1)]),
    ]
    of_nodes = [
        *collectors.node_slos(lambda: [(("agent",), 1)]),
        *collectors.node_ratios(lambda: [(("refused",), 1)]),
    ]
    metrics.watch(*of_policies, *of_nodes, *collectors.over_commit(_make_publisher()))
    functions = {
        *made,
        collectors.rebalancing,
        collectors.defragmentation,
        collectors.over_commit,
        collectors.node_slos,
        collectors.node_ratios,
    }
    assert functions == set(_public_functions())
    for make, measured in made.items():
        series = make(measured)
        metrics.watch(*([series] if isinstance(series, SeriesCollector) else series))
    metrics.watch(*_watch_queues(metrics), *watch_teams(_make_figures()))
    metrics.watch(*watch_usage(_make_usage()))
    metrics.watch(count_unknown(Mock(count_unknown=lambda: Counter({"Thing.example.com": 1}))))
    metrics.watch_text(QuotaSeries(lambda: (SUMMARY,)))
    metrics.watch_text(_make_device_series())
    metrics.watch(make_gpu_collector())
    for operation in ("settle", "solve"):
        with quotas.stopwatch(operation), HOOKS.stopwatch("hook", "check_unit"):
            pass
    metrics.take()
    return metrics


def _make_device_series() -> DeviceSeries:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a"))
    return DeviceSeries(cluster.state, lambda: True)


def make_gpu_collector() -> GpuCollector:
    """Return the series of device agents, which they serve themselves."""
    card = Card(0, 0, "GPU-0", "NVIDIA A100", 1, None)
    source = Mock(cards=(card,), xids=Counter({("GPU-0", 79): 1}))
    sampler = Mock(source=source, read=lambda: [CardSample(card, dict.fromkeys(FIGURES, 1))])
    holder = GpuHolder("default", "p", "u", frozenset({0}))
    said = ContainerCard(holder, "c", 0, "GPU-0", 1, 1, 1)
    reading = RegionReading((said,), (ContainerKernel(holder, "c", 1),))
    return GpuCollector("n0", sampler, Mock(read=lambda: reading, problems=Counter()))


def _make_publisher() -> OverCommitPublisher:
    publisher = OverCommitPublisher(make_cluster_state(), Mock(), lambda: 0.0)
    publisher.offered["n0"] = Offered(OfferState.PUBLISHED, "", {})
    return publisher


def _make_loaded() -> LoadAware:
    cluster = LoadCluster(options_of()).nodes(make_node("n0"), make_node("n1"))
    cluster.report("n0").report("n1", updated=1.0)
    cluster.nodes(make_node("n2"))
    cluster.state.refresh()
    return cluster.aware


def _make_reserved_state() -> ClusterState:
    state = make_cluster_state()
    upsert_reservation(state, make_reservation())
    return state


def _watch_queues(metrics: Metrics) -> list[SeriesCollector]:
    cluster = make_waiting()
    looks = make_looks(cluster)
    cluster.step()
    (unit,) = cluster.queue.pending()
    reserved = StartReservation("Timed", 1, 1, {"n0": 1})
    standing = QueueStanding("q", 1, 1, 1, 8, "Reserved", head_since=1, reservation=reserved)
    looks.standings = {unit.key: standing}
    looks.errors.append(ForecastError(Certainty.PROMISED, 1.0, is_covered=True))
    series = list(watch_queues(looks, metrics.registry))
    looks.on_start(UnitStart("q", 8, 1.0, 1, looks.errors[0]))
    queues = cluster.state.plugin(Queues)
    queues.figures.idle["", "nvidia.com/gpu"] = 8
    queues.figures.on_end(Knowledge.DECLARED, 0.5)
    queues.largest_shares = lambda _: [("q", [Fraction(1)])]
    return series


def _make_figures() -> TeamFigures:
    """Return figures of a cluster with a unit of each class, and of GPUs."""
    cluster = make_cluster().nodes(make_node("n0").gpu(8))
    queue = Queue()
    for at, (code, kind) in enumerate(sorted(REASONS.items())):
        if kind.reason_class is not None:
            pod = make_pod(f"p{at}").gpu(1).build()
            reason = Mock(spec=kind, reason_class=kind.reason_class, code=code)
            queue.blocked[pod.uid] = Blocked(make_unit(pod.uid, [pod]), (pod,), reason)
    return TeamFigures(cluster.state, queue, lambda: 0.0)


def _make_usage() -> UsageFigures:
    """Return figures in which each kind is counted once."""
    options = PlanOptions(UsageOptions(is_on=True))
    state = make_cluster(more_plugins=USAGE.make_plugins(options)).state
    state.upsert_node(make_node("n0").gpu(8).build())
    state.upsert_pod(make_pod("w").gpu(1).resource("cpu", 1_000).running("n0").build())
    state.advance(1.0)
    state.refresh()
    times = state.plugin(UsageTimes)
    times.note_waiting({UsageLabels("q", "", "", kind): 1 for kind in UsageKind}, 1.0)
    return UsageFigures(state, None, lambda: 2.0, {"q": 1})


def make_serve_text() -> bytes:
    """Return the series of ``koord serve``, which it serves itself."""
    observed = Observed()
    request = Mock(path=METRICS)
    request.match_info.route.resource.canonical = METRICS
    observed.observe(request, 200, 0.1)
    reviews = [("token", ReviewCounts()), ("right", ReviewCounts())]
    snapshots = Mock(why_old="", last=Mock(at=0.0))
    observed.watch(ServeSeries(snapshots, (), (), lambda: reviews))
    store = StoreSeries(lambda: StoreStanding(True, 0, StoreHealth(), 1.0), Mock())
    store.extent = StoreExtent(1, 0, 1, 1, 1, 0)
    observed.watch(store)
    starts = StartedSeries()
    starts.read(map(msgspec.json.encode, list_start()))
    observed.watch(starts)
    return observed.encode()


def _public_functions() -> Iterator[FunctionType]:
    for name, one in vars(collectors).items():
        is_own = isinstance(one, FunctionType) and one.__module__ == collectors.__name__
        if is_own and not name.startswith("_"):
            yield one


def list_series() -> dict[str, Series]:
    """Return every series by its full name, such as ``koord_binds_total``."""
    found: dict[str, Series] = {}
    texts = make_metrics().encode(), make_serve_text()
    families = chain(*(text_string_to_metric_families(text.decode()) for text in texts))
    for family in families:
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue  # of another text format than the one that is served
            labels = {key: {value} for key, value in sample.labels.items()}
            known = found.get(sample.name)
            if known is not None:
                labels = {key: known.values[key] | labels[key] for key in labels}
            is_counter = family.type in {"counter", "histogram"}
            found[sample.name] = Series(set(labels), is_counter, labels)
    return found
