"""Quotas: trees of ElasticQuotas, and the profiles that make such trees from nodes."""

from collections.abc import Iterable
from typing import Final

from koord.core.engine.plugin import Plugin
from koord.core.quota.cache import QuotaCache
from koord.core.quota.hooks import Hooks
from koord.core.quota.model import QuotaOptions, QuotaSpec
from koord.core.quota.plugin import Quotas
from koord.core.quota.profile import QuotaProfile
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import NotFound
from koord.kube.kind import Kind, of_plugin
from koord.kube.reflector import Absence
from koord.kube.translate.quotas import ProfileTranslator, QuotaTranslator
from koord.kube.wire import WireCustomResource

QUOTAS_KEPT_SECONDS: Final = 600.0
"""Without ElasticQuotas pods start without limits: nobody may have meant that."""

QUOTAS: Final = Kind[WireCustomResource, QuotaSpec, QuotaTranslator](
    "scheduling.sigs.k8s.io/v1alpha1",
    "elasticquotas",
    WireCustomResource,
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
PROFILES: Final = Kind[WireCustomResource, QuotaProfile, ProfileTranslator](
    "quota.koordinator.sh/v1alpha1",
    "elasticquotaprofiles",
    WireCustomResource,
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
