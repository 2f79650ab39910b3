"""Jobs that wait suspended: read only where they are resumed.

The rights for that are an overlay. Without them no Job is seen, and nothing else waits for that.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from koord.core.engine.plugin import Plugin
from koord.core.suspend.model import QueuedJob
from koord.core.suspend.plugin import JobAdmissions, SuspendOptions
from koord.domains.planning import Planning, PlanOptions
from koord.domains.priorities import find_priority
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import AnyKind, Kind, of_plugin
from koord.kube.translate.jobs import OWNERS, JobTranslator, OwnerKind


def _make_kind(owner: OwnerKind) -> AnyKind:
    return Kind[Any, QueuedJob, JobTranslator](
        owner.api_version,
        owner.plural,
        owner.wire,
        partial(JobTranslator, owner),
        of_plugin(JobAdmissions),
        JobAdmissions.upsert,
        JobAdmissions.remove,
        absent_on=(NotFound, Forbidden),
    )


JOBS: Final = tuple(map(_make_kind, OWNERS))


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    if options.of(SuspendOptions).is_on:
        yield JobAdmissions(find_priority)


def _choose_kinds(options: PlanOptions) -> tuple[AnyKind, ...]:
    return JOBS if options.of(SuspendOptions).is_on else ()


PLANNING: Final = Planning(make_plugins=_make_plugins, more_kinds=_choose_kinds)
