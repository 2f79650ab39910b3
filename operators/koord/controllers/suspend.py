"""Jobs that wait suspended: what became of those that were resumed, and why the others wait.

Placement resumes a Job, and holds its room. Here it is seen whether its pods have come: then the
hold is taken off the Job. Otherwise, when its minute is over, the Job is suspended again, and waits
longer each time. Why a Job waits stands in its condition, as in that of a pod. Each write depends
on the Job as it was seen, so it can be repeated, and a crash between two of them loses nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from koord.answers.queue_view import QueuePlace
from koord.api.keys import operators
from koord.controllers.coalescing import Pause
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.suspend.model import QueuedJob
from koord.core.suspend.plugin import JobAdmissions
from koord.core.suspend.reasons import JobPlanned, JobStarted
from koord.core.suspend.writes import settle, suspend_again
from koord.kube.events import EventRecorder, EventType
from koord.kube.object_writer import ObjectWriter
from koord.kube.objects import ObjectRef
from koord.kube.outcomes import Done
from koord.kube.status import ConditionPatch, StatusPatch, StatusWriter
from koord.kube.translate.jobs import ref_of_job

ADMITTING: Final = "Admitting"
"""The action in events about Jobs."""
AGAIN_SECONDS: Final = 5.0
REPORT_SECONDS: Final = 60.0
"""How often the condition of a Job that waits is written at most, unless the Job changes."""
FIRST_LOOK_SECONDS: Final = 2.0
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(slots=True)
class JobStartPolicy:
    """Sees Jobs through their start; ``reason_for`` and ``place_of`` are those of placement."""

    state: ClusterState
    objects: ObjectWriter
    writer: StatusWriter
    events: EventRecorder
    reason_for: Callable[[Pod], Reason | None]
    place_of: Callable[[GangKey], QueuePlace | None]
    clock: Callable[[], float]
    _since: float | None = None
    """Since when it is looked on."""
    _resumed: set[str] = field(default_factory=set)

    @property
    def _plugin(self) -> JobAdmissions:
        return self.state.plugin(JobAdmissions)

    def changed(self) -> Iterable[str]:
        if self._since is None:
            self._since = self.clock()
        return self._plugin.take_changed()

    def pause_for(self, _uid: str) -> Pause:
        return _PAUSE

    async def update(self, uid: str) -> float | None:
        plugin, job = self._plugin, self._plugin.jobs.get(uid)
        if job is None or not (plugin.is_waiting(job) or plugin.was_resumed(job)):
            self._resumed.discard(uid)
            return None
        if plugin.was_resumed(job):
            return await self._see_through(job)
        self._resumed.discard(uid)
        reason = self._find_reason(job)
        self._report(job, reason)
        return FIRST_LOOK_SECONDS if isinstance(reason, JobPlanned) else REPORT_SECONDS

    def _find_reason(self, job: QueuedJob) -> Reason:
        reason = self._plugin.reason_for(job)
        stand_ins = self._plugin.stand_ins_of(job.uid) if reason is None else ()
        if stand_ins:
            reason = self.reason_for(stand_ins[0])
        return reason or JobPlanned()

    async def _see_through(self, job: QueuedJob) -> float | None:
        """Take the hold off a Job that has started, or suspend it again."""
        ref, now, reason = ref_of_job(job), self.clock(), self._find_reason(job)
        if job.uid not in self._resumed:
            self._resumed.add(job.uid)
            self._emit(ref, EventType.NORMAL, "Resumed", reason.text())
        has_started = self._plugin.outcome_of(job, now, now if self._since is None else self._since)
        if has_started is None:
            return 1.0
        change = settle(job) if has_started else suspend_again(job, now)
        outcome = await self.objects.write(change)
        if not isinstance(outcome, Done):
            return AGAIN_SECONDS
        if has_started:
            self._report(job, JobStarted())
        else:
            self._emit(ref, EventType.WARNING, "PodsMissing", reason.text())
            self.events.forget(ref, ADMITTING)
        return None

    def _report(self, job: QueuedJob, reason: Reason) -> None:
        text = reason.text()
        place = None if reason.is_placed else self.place_of(job.key)
        if place is not None:
            text = f"Position {place.position}, {place.gpus_ahead} GPUs ahead: {text}"
        condition = ConditionPatch(operators.PLACED, reason.is_placed, reason.code, text)
        self.writer.submit(ref_of_job(job), StatusPatch((condition,)))

    def _emit(self, ref: ObjectRef, kind: EventType, reason: str, note: str) -> None:
        self.events.record(ref, kind, action=ADMITTING, reason=reason, note=note)
