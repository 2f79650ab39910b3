"""The operator ``elasticquota``: keeps the status of ElasticQuotas."""

from typing import TYPE_CHECKING, Final

from koord.api.elasticquota import ElasticQuota
from koord.controllers.enforcement import Enforcement
from koord.controllers.quota_status import QuotaAudit, QuotaStatusPolicy
from koord.controllers.status_publishing import QuotaPublisher
from koord.domains.gang import NATIVE_POD_GROUPS, POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.kube.objects import ref_of_quota
from koord.kube.quota_objects import EnforcementMap
from koord.kube.status import (
    AFTER_BINDINGS,
    Form,
    Present,
    StatusWriter,
    annotated_by,
    applied_by,
    metadata_by,
)
from koord.kube.write_check import Write
from koord.operators.names import PLACEMENT, QUOTA
from koord.operators.operator import Operator
from koord.runtime.collectors import QuotaSeries, hook_failures, quota_audit

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(QUOTAS)
    observe = parts.metrics.quotas.write.observe

    def make_writer(form: Form, present: Present) -> StatusWriter:
        return parts.make_writer(QUOTAS.plural, form, present, pace=AFTER_BINDINGS, observe=observe)

    policy = QuotaStatusPolicy(
        state=parts.reader.state,
        sink=QuotaPublisher(
            make_writer(applied_by("koord-quota"), lambda ref: seen.status_of(ref.uid)),
            ref_of_quota,
            make_writer(
                annotated_by("koord-quota-annotations"), lambda ref: seen.recorded_on(ref.uid)
            ),
            make_writer(
                metadata_by("koord-quota-finalizer"), lambda ref: seen.finalizers_on(ref.uid)
            ),
            seen,
            events=parts.events,
        ),
        is_busy=parts.is_binding,
        reclaim_delay=parts.settings.reclaims_after,
    )
    controller = parts.keep_status(policy)
    enforcement = Enforcement(
        parts.reader.state,
        EnforcementMap(parts.client, lambda: parts.namespace),
        on_change=controller.wake,
    )
    policy.enforcement = enforcement.describe
    parts.enforcement = enforcement
    parts.background.append(enforcement.run)
    parts.metrics.watch_quotas(QuotaSeries(lambda: policy.summaries))


def start_audit(parts: "Parts") -> None:
    state = parts.reader.state
    parts.metrics.quotas.attach(state.quotas)
    parts.metrics.watch(hook_failures(state.quotas.hooks))
    if not parts.operators.isdisjoint({PLACEMENT, QUOTA}):
        audit = QuotaAudit(state, is_synced=parts.reader.is_synced, is_busy=parts.is_binding)
        parts.background.append(audit.run)
        parts.metrics.watch(*quota_audit(audit))


OPERATOR: Final = Operator(
    QUOTA,
    ElasticQuota,
    start,
    reads=(PODS, NODES, POD_GROUPS, NATIVE_POD_GROUPS, QUOTAS),
    writes=frozenset(
        {
            Write("scheduling.sigs.k8s.io", "elasticquotas/status", "patch"),
            Write("scheduling.sigs.k8s.io", "elasticquotas", "patch"),
        }
    ),
)
