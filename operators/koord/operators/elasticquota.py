"""The operator ``elasticquota``: keeps the status of ElasticQuotas, and what else shows it.

The results are written twice: in the status, and for readers of Koordinator's annotations in those.
A finalizer delays the deletion of a quota that is used. All of it has one author.
"""

from typing import TYPE_CHECKING, Final

from koord.api.elasticquota import ElasticQuota
from koord.controllers.enforcement import Enforcement
from koord.controllers.queue_looks import QueueSummary
from koord.controllers.quota_status import ALL_QUOTAS, QuotaAudit, QuotaStatusPolicy
from koord.domains.gang import NATIVE_POD_GROUPS, POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.kube.objects import ref_of_quota
from koord.kube.quota_objects import EnforcementMap
from koord.kube.status import Former
from koord.kube.write_check import Write
from koord.operators.names import PLACEMENT, QUOTA
from koord.operators.operator import Operator
from koord.runtime.collectors import QuotaSeries, hook_failures, quota_audit

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


_FORMER: Final = (
    Former("koord-quota"),
    Former("koord-quota-annotations", is_of_status=False),
    Former("koord-quota-finalizer", is_of_status=False),
)


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(QUOTAS)
    author = parts.make_author(
        OPERATOR,
        seen,
        lambda _: ALL_QUOTAS,
        ref_of_quota,
        former=_FORMER,
        present_metadata=lambda ref: seen.metadata_of(ref.uid),
        observe=parts.metrics.quotas.write.observe,
    )
    policy = QuotaStatusPolicy(
        state=parts.reader.state,
        author=author,
        seen=seen,
        is_busy=parts.is_binding,
        reclaim_delay=parts.settings.reclaims_after,
    )

    def find_queue(name: str) -> QueueSummary | None:
        return None if parts.queue_looks is None else parts.queue_looks.summaries.get(name)

    policy.queue_of = find_queue
    controller = parts.handle(author, parts.keep_status(policy, author))
    enforcement = Enforcement(
        parts.reader.state,
        EnforcementMap(parts.client, lambda: parts.namespace),
        on_change=controller.wake,
        may_work=lambda: author.is_open,
    )
    policy.enforcement = enforcement.describe
    parts.enforcement = enforcement
    parts.background.append(enforcement.run)
    parts.metrics.watch_text(QuotaSeries(lambda: policy.summaries))


def start_audit(parts: "Parts") -> None:
    """Audit what is kept of quotas, whichever operator needs it."""
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
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
