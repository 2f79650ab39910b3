"""Quotas: trees of ElasticQuotas, and the profiles that make such trees from nodes."""

from collections.abc import Iterable
from typing import Final

from koord.api.elasticquota import ElasticQuota
from koord.api.quotaprofile import ElasticQuotaProfile
from koord.core.engine.plugin import Plugin
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.model import QuotaOptions
from koord.core.quota.plugin import Quotas
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.reflector import Absence
from koord.kube.translate.quotas import ProfileTranslator, QuotaTranslator

QUOTAS_KEPT_SECONDS: Final = 600.0
"""Without ElasticQuotas pods start without limits: nobody may have meant that."""

QUOTAS: Final = of_model(
    ElasticQuota,
    lambda _: QuotaTranslator(),
    of_plugin(Quotas),
    Quotas.upsert,
    Quotas.remove,
    is_required=True,
    absent_on=(NotFound,),
    kept_seconds=QUOTAS_KEPT_SECONDS,
    note_absence=lambda state, absence: state.quotas.catalog.note_missing(
        is_missing=absence is Absence.UNPROVEN, is_final=absence is Absence.PROVEN
    ),
)
PROFILES: Final = of_model(
    ElasticQuotaProfile,
    lambda _: ProfileTranslator(),
    of_plugin(Quotas),
    Quotas.upsert_profile,
    Quotas.remove_profile,
    absent_on=(NotFound,),
)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    rules = options.of(QuotaOptions).choose_rules(compat=options.compat)
    yield Quotas(QuotaCache(rules, hooks=options.of(Hooks)))


PLANNING: Final = Planning(kinds=(QUOTAS,), make_plugins=_make_plugins)
