"""The series that the operators have, asked of the code that makes them."""

from dataclasses import dataclass

from koord.controllers.quota_audit import QuotaAudit
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.status import Summary
from koord.core.reasons import REASONS
from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats
from koord.runtime.metrics import Metrics

OF_PROMETHEUS = {"up": set()}
"""Series that every job has, with their labels beside those of the target."""
OF_TARGETS = {"job", "instance", "component", "pod"}
"""Labels that scraping adds."""


class Stand:
    """Stands for a part that is measured."""

    def __init__(self, stats) -> None:
        self.stats = stats

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True)
class Series:
    labels: set[str]
    is_counter: bool
    values: dict[str, set[str]]
    """Label -> the values that it has been seen with."""


HOOKS = Hooks()
HOOKS.fail("hook", "load", ImportError())
SUMMARY = Summary("q", max={"cpu": 1}, share={"cpu": 1}, used={"cpu": 1})


def make_metrics() -> Metrics:
    """Return metrics that have a sample of everything."""
    metrics, keeper = Metrics(), QuotaCache()
    watch = {
        "watch_pending": lambda: metrics.watch_pending(lambda: dict.fromkeys(REASONS, 1)),
        "watch_quotas": lambda: metrics.watch_quotas(lambda: [SUMMARY]),
        "watch_quota_operations": lambda: metrics.watch_quota_operations(keeper),
        "watch_rejections": lambda: metrics.watch_rejections(lambda: {"OutOfcpu": 1}),
        "watch_evictions": lambda: metrics.watch_evictions(dict),
        "watch_quota_audit": lambda: metrics.watch_quota_audit(QuotaAudit(*[None] * 3)),
        "watch_assumed": lambda: metrics.watch_assumed(lambda: 1),
        "watch_leader": lambda: metrics.watch_leader(lambda: True),
        "watch_reflectors": lambda: metrics.watch_reflectors(
            dict.fromkeys(("pods", "nodes", "podgroups"), Stand(ReflectorStats()))
        ),
        "watch_status_writers": lambda: metrics.watch_status_writers(
            [("pods", Stand(StatusStats()))]
        ),
        "watch_hooks": lambda: metrics.watch_hooks(HOOKS),
        "watch_events": lambda: metrics.watch_events(Stand(EventStats())),
    }
    for name in dir(metrics):
        if name.startswith("watch_"):
            watch[name]()
    for operation in ("settle", "solve"):
        with keeper.stopwatch(operation), HOOKS.stopwatch("hook", "check_unit"):
            pass
    return metrics


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
