"""The operator ``rebalancepolicy``: orders moves off hot nodes, and keeps statuses."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from koord.api.rebalancepolicy import RebalancePolicy
from koord.controllers.rebalance import RebalanceOptions, RebalancePolicies
from koord.core.load.options import LoadOptions
from koord.domains.balance import REBALANCE_POLICIES
from koord.domains.load_settings import LoadAwareSettings
from koord.domains.migration_settings import MigrationSettings
from koord.domains.preemption_settings import PreemptionSettings
from koord.domains.registry import KINDS
from koord.kube.evictor import Evictor
from koord.kube.migration_jobs import MigrationOrders
from koord.kube.objects import ref_of_rebalance_policy
from koord.kube.write_check import Write
from koord.operators.operator import Operator
from koord.runtime import collectors
from koord.runtime.clock import Clock

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(REBALANCE_POLICIES)
    author = parts.make_author(
        OPERATOR, seen, lambda meta: str(meta["name"]), ref_of_rebalance_policy
    )
    migration = parts.settings.of(MigrationSettings)
    policies = RebalancePolicies(
        parts.reader.state,
        author,
        seen.status_of,
        Evictor(parts.client, time.time),
        MigrationOrders(parts.client, migration.default_job_ttl),
        Clock(),
        RebalanceOptions(
            parts.settings.make_scoring(),
            parts.settings.of(PreemptionSettings).min_runtime,
            _find_limits_of_placement(parts),
            migration.make_options(compat=parts.reader.state.gangs.compat),
        ),
    )
    parts.handle(author, parts.keep_status(policies, author))
    parts.metrics.watch(*collectors.rebalancing(policies.counts, policies.totals))


def _find_limits_of_placement(parts: "Parts") -> Mapping[str, float]:
    """Return up to which percentages placement fills nodes, if it looks at load at all."""
    options = parts.settings.of(LoadAwareSettings).plan_options()
    load = next(option for option in options if isinstance(option, LoadOptions))
    is_checked = load.is_on and not parts.reader.state.gangs.compat
    return load.thresholds.general if is_checked else {}


OPERATOR: Final = Operator(
    "rebalancepolicy",
    RebalancePolicy,
    start,
    reads=(*KINDS, REBALANCE_POLICIES),
    writes=frozenset(
        {
            Write("operators.koordinator.sh", "rebalancepolicies/status", "patch"),
            Write("scheduling.koordinator.sh", "podmigrationjobs", "create"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
