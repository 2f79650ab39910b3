"""The operator ``podmigrationjob``: moves the pods of PodMigrationJobs.

In the process that places pods it evicts through the controller of all evictions; alone in a
process it has one of its own, and the limits count there for themselves.
"""

import time
from typing import TYPE_CHECKING, Final

from koord.api import Compat
from koord.api.podmigrationjob import PodMigrationJob
from koord.controllers.eviction import EvictionController
from koord.controllers.migration import MigrationPolicy, count_phases
from koord.controllers.migration_arbiter import MigrationArbiter
from koord.controllers.migration_evictions import MigrationEvictions
from koord.controllers.migration_places import MigrationPlaces
from koord.core.eviction.limits import EvictionLimits, EvictionRate
from koord.domains.gang import POD_GROUPS
from koord.domains.migration import POD_MIGRATION_JOBS
from koord.domains.migration_settings import MigrationSettings
from koord.domains.placement import NODES, PODS
from koord.domains.reservation import PRIORITY_CLASSES, RESERVATIONS
from koord.kube.evictor import Evictor
from koord.kube.migrations import MigrationApi, ref_of_job
from koord.kube.status import AT_ONCE
from koord.kube.write_check import Write
from koord.operators.operator import Operator
from koord.runtime.clock import Clock
from koord.runtime.collectors import migration_jobs

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    state, settings = parts.reader.state, parts.settings.of(MigrationSettings)
    options = settings.make_options(compat=parts.settings.compat is Compat.KOORDINATOR)
    seen = parts.reader.translator(POD_MIGRATION_JOBS)
    author = parts.make_author(
        OPERATOR, seen, lambda meta: str(meta["uid"]), ref_of_job, pace=AT_ONCE
    )
    evictions, places = _find_evictions(parts, settings), MigrationPlaces(state, options)
    policy_of_evictions = MigrationEvictions(
        evictions,
        Evictor(parts.client, time.time),
        places,
        options,
        EvictionRate(settings.evict_qps, settings.evict_burst),
        lambda: options.is_on and author.is_open and not policy.conflict,
    )
    policy = MigrationPolicy(
        state,
        author,
        MigrationApi(parts.client),
        places,
        policy_of_evictions,
        options,
        time.time,
        parts.events,
    )
    policy_of_evictions.announce = policy.announce
    controller = parts.handle(author, parts.keep_status(policy, author))
    arbiter = MigrationArbiter(
        policy,
        lambda: author.is_open and parts.reader.is_synced(),
        settings.arbitration_args.interval,
        controller.hurry,
    )
    evictions.add(policy_of_evictions)
    parts.background.append(arbiter.run)
    parts.metrics.watch(migration_jobs(lambda: count_phases(state)))


def _find_evictions(parts: "Parts", settings: MigrationSettings) -> EvictionController:
    if parts.evictions is not None:
        return parts.evictions
    own = EvictionController(
        parts.reader.state,
        parts.reader.is_synced,
        Clock(time.time, time.monotonic),
        EvictionLimits(settings.eviction_limits),
    )
    parts.background.append(own.run)
    return own


OPERATOR: Final = Operator(
    "podmigrationjob",
    PodMigrationJob,
    start,
    reads=(PODS, NODES, POD_GROUPS, RESERVATIONS, PRIORITY_CLASSES, POD_MIGRATION_JOBS),
    writes=frozenset(
        {
            Write("scheduling.koordinator.sh", "podmigrationjobs", "patch"),
            Write("scheduling.koordinator.sh", "podmigrationjobs", "delete"),
            Write("scheduling.koordinator.sh", "podmigrationjobs/status", "patch"),
            Write("scheduling.koordinator.sh", "reservations", "create"),
            Write("scheduling.koordinator.sh", "reservations", "delete"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
