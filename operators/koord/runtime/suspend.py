"""Who sees resumed Jobs through, where suspended Jobs are resumed."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from koord.controllers.suspend import JobStartPolicy
from koord.core.suspend.plugin import JobAdmissions
from koord.domains.suspend import JOBS
from koord.domains.suspend_settings import SuspendSettings
from koord.kube.objects import ObjectRef
from koord.kube.status import MERGED
from koord.kube.translate.jobs import JobTranslator
from koord.operators.names import PLACEMENT

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def _find_status(translator: JobTranslator, ref: ObjectRef) -> Mapping[str, Any] | None:
    return translator.status_of(ref.uid)


def start(parts: "Parts") -> None:
    placement = parts.placement
    is_on = parts.settings.of(SuspendSettings).enabled
    if PLACEMENT not in parts.operators or placement is None or not is_on:
        return
    state = parts.reader.state
    state.plugin(JobAdmissions).sign = parts.keys.sign
    for kind in JOBS:
        translator = parts.reader.translator(kind)
        writer = parts.make_writer(kind.plural, MERGED, partial(_find_status, translator))
        policy = JobStartPolicy(
            state,
            parts.binder.objects,
            writer,
            parts.events,
            placement.reason_for,
            placement.places.of,
            placement.clock,
        )
        parts.keep_status(policy)
