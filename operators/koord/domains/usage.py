"""What pods hold over time: counted only where the configuration says so."""

from collections.abc import Iterable
from typing import Final

from koord.answers.fragmentation import model_of
from koord.answers.gpus import measure_gpus
from koord.core.engine.plugin import Plugin
from koord.core.engine.state_view import StateView
from koord.core.model.pods import Pod
from koord.core.quota.plugin import Quotas
from koord.core.usage.plugin import UsageOptions, UsageTimes
from koord.domains.planning import Planning, PlanOptions


def _find_quota(view: StateView, pod: Pod) -> str:
    quotas = view.plugin(Quotas).cache
    return quotas.quota_of(pod) if quotas.is_in_use else ""


def _find_version(view: StateView) -> object:
    return view.plugin(Quotas).cache.bindings_version


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    if options.of(UsageOptions).is_on:
        yield UsageTimes(lambda pod: measure_gpus(pod).amount, _find_quota, model_of, _find_version)


PLANNING: Final = Planning(make_plugins=_make_plugins)
