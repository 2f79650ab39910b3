"""The series of the operators, as the code defines them."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from prometheus_client.registry import Collector

from koord.controllers.quota_audit import QuotaAudit
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary
from koord.core.reasons import REASONS
from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats
from koord.runtime import collectors as collectors_module
from koord.runtime import quota_metrics
from koord.runtime.collectors import (
    EventCollector,
    PendingCollector,
    ReflectorCollector,
    StatusCollector,
    count_rejections,
    gauge_assumed,
    gauge_leader,
)
from koord.runtime.metrics import Metrics
from koord.runtime.quota_metrics import (
    AuditCollector,
    HookCollector,
    QuotaCollector,
    count_evictions,
)

OF_PROMETHEUS = {"up": set()}
"""Series that every job has, with their labels beside those of the target."""
OF_TARGETS = {"job", "instance", "component", "pod"}
"""Labels that scraping adds."""


class Stand:
    """A fake of a measured part."""

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
SUMMARY = Summary("q", max={"cpu": 1}, share={"cpu": 1}, used={"cpu": 1})


def make_metrics() -> Metrics:
    """Return metrics with a sample of every series."""
    metrics, quotas = Metrics(), QuotaCache(hooks=HOOKS)
    metrics.quotas.attach(quotas)
    collectors = [
        PendingCollector(lambda: dict.fromkeys(REASONS, 1)),
        QuotaCollector(lambda: [SUMMARY]),
        AuditCollector(QuotaAudit(*[None] * 3)),
        HookCollector(HOOKS),
        ReflectorCollector(dict.fromkeys(("pods", "nodes", "podgroups"), Stand(ReflectorStats()))),
        StatusCollector([("pods", Stand(StatusStats()))]),
        EventCollector(Stand(EventStats())),
        count_rejections(lambda: {"OutOfcpu": 1}),
        count_evictions(dict),
        gauge_assumed(lambda: 1),
        gauge_leader(lambda: True),
    ]
    assert {type(one) for one in collectors} == {*_collectors_of(collectors_module, quota_metrics)}
    for collector in collectors:
        metrics.watch(collector)
    for operation in ("settle", "solve"):
        with quotas.stopwatch(operation), HOOKS.stopwatch("hook", "check_unit"):
            pass
    return metrics


def _collectors_of(*modules: ModuleType) -> Iterator[type]:
    """Yield every class of collectors that a module defines."""
    for module in modules:
        for one in vars(module).values():
            if isinstance(one, type) and Collector in one.__bases__:
                yield one


def list_series() -> dict[str, Series]:
    """Return every series by its full name, such as ``koord_binds_total``."""
    found: dict[str, Series] = {}
    for family in make_metrics().registry.collect():
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
