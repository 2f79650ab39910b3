"""The operator ``defragmentationpolicy``: orders moves so that large jobs fit; keeps statuses."""

import time
from typing import TYPE_CHECKING, Final

from koord.api.defragmentationpolicy import DefragmentationPolicy
from koord.controllers.defragmentation import DefragmentationPolicies
from koord.core.defrag.search import DefragOptions
from koord.domains.defrag import DEFRAG_POLICIES
from koord.domains.migration_settings import MigrationSettings
from koord.domains.preemption_settings import PreemptionSettings
from koord.domains.registry import KINDS
from koord.kube.evictor import Evictor
from koord.kube.migration_jobs import MigrationOrders
from koord.kube.objects import ref_of_defrag_policy
from koord.kube.write_check import Write
from koord.operators.operator import Operator
from koord.runtime import collectors
from koord.runtime.clock import Clock

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    seen = parts.reader.translator(DEFRAG_POLICIES)
    author = parts.make_author(OPERATOR, seen, lambda meta: str(meta["name"]), ref_of_defrag_policy)
    preemption = parts.settings.of(PreemptionSettings)
    migration = parts.settings.of(MigrationSettings)
    policies = DefragmentationPolicies(
        parts.reader.state,
        author,
        seen.status_of,
        Evictor(parts.client, time.time),
        MigrationOrders(parts.client, migration.default_job_ttl),
        Clock(),
        lambda: parts.reader.take_snapshot().build,
        DefragOptions(
            preemption.min_runtime,
            preemption.max_per_day,
            scoring=parts.settings.make_scoring(),
            migration=migration.make_options(compat=parts.reader.state.gangs.compat),
        ),
    )
    parts.handle(author, parts.keep_status(policies, author))
    parts.metrics.watch(*collectors.defragmentation(policies.shapes, policies.totals))


OPERATOR: Final = Operator(
    "defragmentationpolicy",
    DefragmentationPolicy,
    start,
    reads=(*KINDS, DEFRAG_POLICIES),
    writes=frozenset(
        {
            Write("operators.koordinator.sh", "defragmentationpolicies/status", "patch"),
            Write("scheduling.koordinator.sh", "podmigrationjobs", "create"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
