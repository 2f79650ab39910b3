"""What pods hold over time, as counters and as budgets: counted only where somebody wants it."""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.answers.fragmentation import model_of
from koord.answers.gpus import measure_gpus
from koord.answers.usage import other_amounts_of
from koord.answers.usage_levels import find_quota_levels
from koord.core.engine.plugin import Plugin
from koord.core.engine.state_view import StateView
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.queue.counts import has_started
from koord.core.queue.plugin import Queues
from koord.core.quota.plugin import Quotas
from koord.core.usage.budget_plugin import Budgets, BudgetSources
from koord.core.usage.budgets import BudgetRecord
from koord.core.usage.counters import UsageKind, UsageLabels
from koord.core.usage.plugin import PodHolding, UsageOptions, UsageSources, UsageTimes
from koord.core.usage.quota_time import hold_level
from koord.domains.planning import Planning, PlanOptions


def _measure(pod: Pod) -> PodHolding:
    held = measure_gpus(pod)
    return PodHolding(held.with_slices(0), held.slices, other_amounts_of(pod))


def _has_started(view: StateView, unit: Unit) -> bool:
    return has_started(unit, view)


def _count_milli(pod: Pod) -> int:
    return measure_gpus(pod).amount


def _find_quota(view: StateView, pod: Pod) -> str:
    quotas = view.plugin(Quotas).cache
    return quotas.quota_of(pod) if quotas.is_in_use else ""


def _find_version(view: StateView) -> object:
    return view.plugin(Quotas).cache.bindings_version


def _find_levels(view: StateView) -> Mapping[UsageLabels, int]:
    """Return what quotas borrow, are owed, leave idle and lend, as far as it is anything."""
    rows: dict[UsageLabels, int] = {}
    for quota, level in find_quota_levels(view.plugin(Quotas).cache.solutions.values()).items():
        each = hold_level(level, 1)
        amounts = {
            UsageKind.BORROWED: each.borrowed,
            UsageKind.OWED: each.owed,
            UsageKind.IDLE: each.idle_min,
            UsageKind.LENT: each.lent,
        }
        rows |= {UsageLabels(quota, "", "", kind): n for kind, n in amounts.items() if n}
    return rows


class _Limits:
    """The budgets of the leaf quotas of one cluster; read anew once some quota was edited."""

    def __init__(self) -> None:
        self._edits: object = None
        self._limits: Mapping[str, int] = {}

    def find(self, view: StateView) -> Mapping[str, int]:
        catalog, queues = view.plugin(Quotas).cache.catalog, view.plugin(Queues)
        if not queues.is_limiting:
            return {}
        if self._edits != catalog.edits:
            self._edits = catalog.edits
            settings = {
                spec.name: queues.settings_of(spec.name).max_gpu_hours_per_month
                for spec in catalog.registry.specs.values()
                if not spec.is_parent
            }
            self._limits = {name: n for name, n in settings.items() if n is not None}
        return self._limits


def _find_record(view: StateView, quota: str) -> BudgetRecord | None:
    spec = view.plugin(Quotas).cache.catalog.registry.get(quota)
    record = None if spec is None else spec.budget_record
    return record if isinstance(record, BudgetRecord) else None


def _find_leaf(view: StateView, pod: Pod) -> str:
    return view.plugin(Queues).queue_of(pod)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    limits = _Limits().find
    yield Budgets(
        BudgetSources(limits, _find_leaf, _find_version, _count_milli, _find_record, _has_started)
    )
    if options.of(UsageOptions).is_on:
        yield UsageTimes(UsageSources(_measure, _find_quota, model_of, _find_version, _find_levels))


PLANNING: Final = Planning(make_plugins=_make_plugins)
