"""Describes what operators know: for the debug page, metrics and the report in the Lease."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import convert

from koord.api import Compat
from koord.controllers.placement import PlacementController
from koord.core.engine.state import ClusterState
from koord.core.load.model import NodeLoad
from koord.core.load.plugin import Loads
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import NO_USAGE, QuotaName
from koord.core.quota.reclaim import find_overuse
from koord.core.quota.status import summarise
from koord.domains.autoscaler_settings import AutoscalerSettings
from koord.domains.load_settings import LoadAwareSettings
from koord.domains.migration_settings import MigrationSettings
from koord.domains.owner_settings import OwnerSettings
from koord.domains.preemption_settings import PreemptionSettings
from koord.domains.quota_settings import QuotaSettings
from koord.domains.suspend_settings import SuspendSettings
from koord.kube.leader_report import PreemptionReport, QuotaReport

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts

_MOST_REASONS: Final = 8
_MOST_OPEN: Final = 20
_NAMES: Final[Mapping[str, str]] = {
    "name": "name",
    "parentName": "parent",
    "isParent": "is_parent",
    "tree": "tree",
    "max": "max",
    "min": "min",
    "autoScaleMin": "scaled_min",
    "sharedWeight": "weight",
    "request": "request",
    "childRequest": "child_request",
    "used": "used",
    "runtime": "share",
    "allocated": "allocated",
    "guaranteed": "guaranteed",
    "nonPreemptibleRequest": "non_preemptible_request",
    "nonPreemptibleUsed": "non_preemptible_used",
    "selfRequest": "demand",
}
"""Koordinator's name -> field of the summary."""


def count_by_reason(placement: PlacementController) -> dict[str, int]:
    queue = placement.queue
    counts = Counter(str(blocked.reason.code) for blocked in queue.blocked.values())
    counts.update(str(reason.code) for _, reason in queue.incomplete())
    return dict(counts)


def describe_placement(parts: "Parts") -> dict[str, object]:
    placement = parts.placement
    if placement is None:
        return {}
    queue = placement.queue
    return {
        "ready": len(queue),
        "blocked": {key: blocked_unit.reason.code for key, blocked_unit in queue.blocked.items()},
        "waiting": {key: reason.code for key, reason in queue.incomplete()},
        "kept": placement.holds.reserved_pods(),
        "held_up": {uid: reason.text() for uid, reason in placement.flights.held_up().items()},
    }


def report_enforcement(parts: "Parts") -> dict[str, Any]:
    """Return whom quotas bind, for the Lease; nothing where that is not known."""
    enforcement = parts.enforcement
    if enforcement is None or enforcement.enforced is None:
        return {}
    open_namespaces = enforcement.find_open()
    return {
        "open_namespaces": open_namespaces[:_MOST_OPEN],
        "open_count": len(open_namespaces),
        "enforced": len(enforcement.enforced),
    }


def report_queue(parts: "Parts") -> dict[str, Any]:
    """Return what the leader says of its queue in the Lease; nothing without placement."""
    placement, settings = parts.placement, parts.settings
    if placement is None:
        return {}
    preemption = settings.of(PreemptionSettings)
    return {
        "ready": len(placement.queue),
        "blocked": len(placement.queue.blocked),
        "incomplete": sum(1 for _ in placement.queue.incomplete()),
        "reasons": dict(Counter(count_by_reason(placement)).most_common(_MOST_REASONS)),
        "reclaim_after": settings.reclaims_after,
        "reclaim_budget_grace": settings.of(QuotaSettings).budget_grace,
        "preemption": PreemptionReport(
            preemption.enabled,
            preemption.min_runtime,
            preemption.max_per_day,
            preemption.stuck_after,
            preemption.most_grace,
            preemption.soft_eviction_limit,
        ),
        "compat": settings.compat is Compat.KOORDINATOR,
        "load": settings.of(LoadAwareSettings).as_reported,
        "migration": settings.of(MigrationSettings).as_reported,
        "autoscaler": settings.of(AutoscalerSettings).as_reported,
        "suspend": settings.of(SuspendSettings).enabled,
        "owners": settings.of(OwnerSettings).report(),
        "quota": convert(settings.of(QuotaSettings).options, QuotaReport, from_attributes=True),
    }


def describe_quota_state(parts: "Parts") -> dict[str, object]:
    state = parts.reader.state
    return {"quotas": describe_quotas(state)} if state.quotas.is_in_use else {}


def describe_quotas(state: ClusterState) -> dict[str, object]:
    """Return all active quotas and the problems of others; amounts in canonical units."""
    ledger = state.open_ledger()
    return {
        "quotas": describe_quota_summaries(state),
        "over": find_overuse(ledger),
        "problems": state.quotas.catalog.problems,
        "failures": {tree: repr(error) for tree, error in state.quotas.failures.items()},
        "outside": state.quotas.outside(),
    }


def describe_quota_summaries(state: ClusterState) -> list[dict[str, Any]]:
    """Return the numbers of all active quotas, under Koordinator's names."""
    if not state.quotas.is_in_use:
        return []
    ledger = state.open_ledger()
    return [describe_quota_summary(ledger, name) for name in ledger.names()]


def describe_quota_summary(ledger: Ledger, name: QuotaName) -> dict[str, Any]:
    """Return the numbers of one quota; they are those of the ledger, whatever happens meanwhile."""
    summary = summarise(ledger, name)
    usage = ledger.solution(name).inputs.usage.get(name, NO_USAGE)
    return {
        **{there: _plain(getattr(summary, here)) for there, here in _NAMES.items()},
        "allowLentResource": ledger.account(name).spec.lends,
        "selfUsed": _plain(usage.used),
        "submitted": _plain(usage.submitted),
    }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def describe_load(parts: "Parts") -> dict[str, object]:
    """Return who reports the use of each node, how old that is, and what is used."""
    state = parts.reader.state
    loads = state.plugin(Loads)
    nodes = {name: _describe_report(report, state.now) for name, report in loads.reports()}
    return {"load": nodes} if nodes else {}


def _describe_report(report: NodeLoad, now: float) -> dict[str, object]:
    return {
        "source": str(report.source),
        "age_seconds": round(now - report.updated) if report.updated else None,
        "usage": dict(report.usage),
        "pods": len(report.pods),
    }
