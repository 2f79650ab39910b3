"""What pods hold over time: counted only where the configuration says so."""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.answers.fragmentation import model_of
from koord.answers.gpus import measure_gpus
from koord.answers.usage import other_amounts_of
from koord.answers.usage_levels import find_quota_levels
from koord.core.engine.plugin import Plugin
from koord.core.engine.state_view import StateView
from koord.core.model.pods import Pod
from koord.core.quota.plugin import Quotas
from koord.core.usage.counters import UsageKind, UsageLabels
from koord.core.usage.plugin import PodHolding, UsageOptions, UsageSources, UsageTimes
from koord.core.usage.quota_time import hold_level
from koord.domains.planning import Planning, PlanOptions


def _measure(pod: Pod) -> PodHolding:
    held = measure_gpus(pod)
    return PodHolding(held.with_slices(0), held.slices, other_amounts_of(pod))


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


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    if options.of(UsageOptions).is_on:
        yield UsageTimes(UsageSources(_measure, _find_quota, model_of, _find_version, _find_levels))


PLANNING: Final = Planning(make_plugins=_make_plugins)
